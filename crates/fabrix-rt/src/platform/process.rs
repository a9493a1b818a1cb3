//! Properties of this process: session, output, core files, command line, use of the machine.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;

use crate::sys;
pub use crate::sys::process::{Usage, carries_io, is_root, new_session, usage};

/// Redirects standard output and standard error to files.
///
/// Errors: what dup2(2) says.
pub fn redirect(stdout: &std::fs::File, stderr: &std::fs::File) -> io::Result<()> {
    sys::process::duplicate(stdout.as_fd(), 1)?;
    sys::process::duplicate(stderr.as_fd(), 2)
}

/// Keeps the kernel from writing a core of this process, because its memory holds a secret.
/// Processes that it starts inherit this.
///
/// The limit of cores becomes one byte. That is too small for a core file, and keeps the kernel
/// from piping a core to a program, which a limit of zero does not. Source: core(5), "Piping core
/// dumps to a program"; fs/coredump.c of the Linux kernel.
pub fn leave_no_core() {
    sys::process::limit_core(1);
}

/// Changes the command line of this process as other processes see it. Each word replaces the given
/// word at its position, cut to its length.
///
/// Errors: /proc cannot be read, or the command line is not where the kernel has put it.
pub fn show_words(shown: &[OsString]) -> io::Result<()> {
    let stat = fs::read_to_string("/proc/self/stat")?;
    let (begin, end) = words_place(&stat).ok_or(io::ErrorKind::InvalidData)?;
    let given: Vec<OsString> = std::env::args_os().collect();
    let bytes: usize = given.iter().map(|word| word.len() + 1).sum();
    if bytes as u64 != end.saturating_sub(begin) || shown.len() != given.len() {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut place = Vec::with_capacity(bytes);
    for (shown, given) in shown.iter().zip(&given) {
        let next = place.len() + given.len() + 1;
        let length = shown.len().min(given.len());
        place.extend_from_slice(&shown.as_bytes()[..length]);
        place.resize(next, 0);
    }
    // No value of Rust lies in the written memory: std has copied the words.
    let memory = File::options().write(true).open("/proc/self/mem")?;
    memory.write_all_at(&place, begin)
}

/// Start and end of the command line in memory, from the line of /proc/self/stat: `arg_start`,
/// `arg_end`.
///
/// Source: proc_pid_stat(5), fields 48 and 49. Field 2, the name of the program, may contain any
/// character.
fn words_place(stat: &str) -> Option<(u64, u64)> {
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_whitespace().skip(48 - 3);
    let mut field = || fields.next()?.parse().ok();
    Some((field()?, field()?))
}
