//! This process among the others.

use std::io;
use std::os::fd::AsFd;

use crate::sys;

/// Leaves the terminal and the group of processes that it was started in: what ends those does not end this one.
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

/// Says that the calling thread carries the machine's own I/O (PR_SET_IO_FLUSHER): when the kernel needs memory for it,
/// it does not wait for writes that only this thread can finish.
///
/// Errors: that needs a privilege (CAP_SYS_RESOURCE).
pub fn carries_io() -> io::Result<()> {
    sys::process::io_flusher()
}

/// Whether we act as root.
pub fn is_root() -> bool {
    sys::process::is_root()
}
