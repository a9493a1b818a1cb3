//! What this process is to the kernel.

use std::io;

use super::check;

/// Leaves the terminal and the group of processes that it was started in.
pub(crate) fn new_session() -> io::Result<()> {
    // SAFETY: takes nothing and touches no memory.
    // WHY UNSAFE: std makes no sessions.
    check(unsafe { libc::setsid() })?;
    Ok(())
}

/// The calling thread carries the machine's own I/O: its memory is never taken by waiting for that I/O.
pub(crate) fn io_flusher() -> io::Result<()> {
    // SAFETY: takes numbers and touches no memory.
    // WHY UNSAFE: std has no prctl.
    check(unsafe { libc::prctl(PR_SET_IO_FLUSHER, 1, 0, 0, 0) })?;
    Ok(())
}

/// Whether we act as root.
pub(crate) fn is_root() -> bool {
    // SAFETY: takes nothing and touches no memory.
    // WHY UNSAFE: std does not tell.
    unsafe { libc::geteuid() == 0 }
}

/// Source: include/uapi/linux/prctl.h of the Linux kernel, 5.6 and later.
const PR_SET_IO_FLUSHER: libc::c_int = 57;
