//! What this process is to the kernel.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::os::unix::thread::JoinHandleExt;
use std::thread::JoinHandle;

use super::check;

/// Leaves the terminal and the group of processes that it was started in.
pub(crate) fn new_session() -> io::Result<()> {
    // SAFETY: takes nothing and touches no memory.
    // WHY UNSAFE: std makes no sessions.
    check(unsafe { libc::setsid() })?;
    Ok(())
}

/// Makes a standard descriptor (0 to 2) another name of this file.
pub(crate) fn duplicate(file: BorrowedFd<'_>, standard: RawFd) -> io::Result<()> {
    assert!(
        (0..=2).contains(&standard),
        "{standard} belongs to somebody"
    );
    // SAFETY: takes two numbers; the standard descriptors are owned by nobody who would close them.
    // WHY UNSAFE: std does not redirect its own process.
    check(unsafe { libc::dup2(file.as_raw_fd(), standard) })?;
    Ok(())
}

/// The calling thread carries the machine's own I/O: its memory is never taken by waiting for that
/// I/O.
pub(crate) fn io_flusher() -> io::Result<()> {
    // SAFETY: takes numbers and touches no memory.
    // WHY UNSAFE: std has no prctl.
    check(unsafe { libc::prctl(PR_SET_IO_FLUSHER, 1, 0, 0, 0) })?;
    Ok(())
}

/// Waits until a thread has ended, however it has ended: `JoinHandle::join` itself panics for a
/// thread that the kernel has ended.
pub(crate) fn join(thread: JoinHandle<()>) {
    let id = thread.into_pthread_t();
    // SAFETY: the id comes from a handle that no longer exists, so nobody else joins or detaches
    // the thread.
    // WHY UNSAFE: std expects a result of every thread that it joins.
    let joined = unsafe { libc::pthread_join(id, std::ptr::null_mut()) };
    assert_eq!(joined, 0, "a thread is joined once, by another thread");
}

/// Ends the calling thread as the kernel does when it fails within one of its calls: nothing is
/// unwound.
#[cfg(test)]
pub(crate) fn vanish() {
    // SAFETY: takes a number; what the thread owns is never used again and never freed.
    // WHY UNSAFE: std ends threads by returning only.
    unsafe { libc::syscall(libc::SYS_exit, 0) };
}

/// Cores of this process have so many bytes at most; where the limit is lower already it stays.
pub(crate) fn limit_core(bytes: libc::rlim_t) {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: the kernel writes one rlimit, which outlives the call.
    // WHY UNSAFE: std has no limits.
    let got = check(unsafe { libc::getrlimit(libc::RLIMIT_CORE, &raw mut limit) });
    if got.is_err() {
        return;
    }
    limit.rlim_cur = limit.rlim_max.min(bytes);
    // SAFETY: the kernel reads one rlimit.
    // WHY UNSAFE: std has no limits.
    let set = check(unsafe { libc::setrlimit(libc::RLIMIT_CORE, &raw const limit) });
    debug_assert!(set.is_ok(), "no more than the hard limit is asked for");
}

/// Ends both directions of every socket of this process, whatever holds it: peers see their
/// connections end, and nobody listens any more. The descriptors stay open.
pub(crate) fn shut_down_sockets() {
    let Ok(entries) = std::fs::read_dir("/proc/self/fd") else {
        return;
    };
    let names = entries.flatten().map(|entry| entry.file_name());
    for number in names.filter_map(|name| name.to_str()?.parse::<RawFd>().ok()) {
        // SAFETY: takes two numbers and touches no memory; what is no socket refuses.
        // WHY UNSAFE: std shuts down sockets that it owns, and other threads own these.
        let _no_socket = unsafe { libc::shutdown(number, libc::SHUT_RDWR) };
    }
}

/// Whether we act as root.
pub(crate) fn is_root() -> bool {
    // SAFETY: takes nothing and touches no memory.
    // WHY UNSAFE: std does not tell.
    unsafe { libc::geteuid() == 0 }
}

/// Source: include/uapi/linux/prctl.h of the Linux kernel, 5.6 and later.
const PR_SET_IO_FLUSHER: libc::c_int = 57;
