//! This process among the others.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;

use crate::sys;

/// Leaves the terminal and the group of processes that it was started in: what ends those does not
/// end this one.
///
/// Errors: it leads a group already.
pub fn new_session() -> io::Result<()> {
    sys::process::new_session()
}

/// From now on what is printed goes to `stdout`, and what is said to `stderr`.
///
/// Errors: what dup2(2) says.
pub fn redirect(stdout: &std::fs::File, stderr: &std::fs::File) -> io::Result<()> {
    sys::process::duplicate(stdout.as_fd(), 1)?;
    sys::process::duplicate(stderr.as_fd(), 2)
}

/// Says that the calling thread carries the machine's own I/O (PR_SET_IO_FLUSHER): when the kernel
/// needs memory for it, it does not wait for writes that only this thread can finish.
///
/// Errors: that needs a privilege (CAP_SYS_RESOURCE).
pub fn carries_io() -> io::Result<()> {
    sys::process::io_flusher()
}

/// The kernel writes no core of this process from now on: its memory holds a secret. Processes that
/// it starts inherit that.
///
/// A limit of one byte is too small for a core in a file, and keeps the kernel from handing one to
/// a program, which a limit of zero does not. `PR_SET_DUMPABLE` would do more: it hides the memory
/// from other processes of the same user too, and those send the data of long writes from there
/// ([`crate::peer`]).
/// Source: core(5), "Piping core dumps to a program"; fs/coredump.c of the Linux kernel.
pub fn leave_no_core() {
    sys::process::limit_core(1);
}

/// Shows other processes these words as the command line of this one. Each takes the place of the
/// word that was given, and what is longer is cut off.
///
/// Errors: /proc is not to be had, or the words given are not where the kernel has put them.
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
    // The kernel writes to memory that no value of Rust lies in: the words were copied when they
    // were read.
    let memory = File::options().write(true).open("/proc/self/mem")?;
    memory.write_all_at(&place, begin)
}

/// Where the words lie, from the line of /proc/self/stat: `arg_start` and `arg_end`.
///
/// Source: proc_pid_stat(5), fields 48 and 49; the name of the program, which may hold anything, is
/// field 2.
fn words_place(stat: &str) -> Option<(u64, u64)> {
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_whitespace().skip(48 - 3);
    let mut field = || fields.next()?.parse().ok();
    Some((field()?, field()?))
}

/// Whether we act as root.
pub fn is_root() -> bool {
    sys::process::is_root()
}
