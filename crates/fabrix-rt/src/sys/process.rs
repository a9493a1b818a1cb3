//! System calls about this process and its threads.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::os::unix::thread::JoinHandleExt;
use std::thread::JoinHandle;
use std::time::Duration;

use super::affinity::{limit, set_limit};
use super::check;

/// Makes a new session (setsid), so that the end of the terminal or of the process group does not
/// end this process.
///
/// Errors: this process leads a group already.
pub fn new_session() -> io::Result<()> {
    // SAFETY: takes nothing and touches no memory.
    // WHY UNSAFE: std makes no sessions.
    check(unsafe { libc::setsid() })?;
    Ok(())
}

/// Makes a standard descriptor (0 to 2) refer to this file.
pub(crate) fn duplicate(file: BorrowedFd<'_>, standard: RawFd) -> io::Result<()> {
    assert!(
        (0..=2).contains(&standard),
        "{standard} belongs to somebody"
    );
    // SAFETY: takes two numbers. No value of Rust owns a standard descriptor, so none closes it.
    // WHY UNSAFE: std does not redirect its own process.
    check(unsafe { libc::dup2(file.as_raw_fd(), standard) })?;
    Ok(())
}

/// What this process has used since its start, over all of its threads, ended ones included.
///
/// Source: getrusage(2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// CPU time in user mode.
    pub user: Duration,
    /// CPU time in the kernel.
    pub system: Duration,
    /// Page faults that were answered from memory.
    pub minor_faults: u64,
    /// Page faults that waited for a disk.
    pub major_faults: u64,
    /// Context switches, voluntary and not.
    pub context_switches: u64,
}

/// Reads what this process has used until now. Times have a resolution of 1 us.
pub fn usage() -> Usage {
    // SAFETY: all bytes zero are a valid rusage, a structure of numbers.
    // WHY UNSAFE: libc has no other way to make one.
    let mut raw: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel writes one rusage into `raw`, which outlives the call.
    // WHY UNSAFE: std does not tell what a process uses.
    let result = unsafe { libc::getrusage(libc::RUSAGE_SELF, &raw mut raw) };
    assert_eq!(result, 0, "the arguments are right");
    let count = |count: libc::c_long| u64::try_from(count).unwrap_or(0);
    let time = |time: libc::timeval| {
        let micros = u64::try_from(time.tv_usec).unwrap_or(0);
        Duration::from_secs(count(time.tv_sec)) + Duration::from_micros(micros)
    };
    Usage {
        user: time(raw.ru_utime),
        system: time(raw.ru_stime),
        minor_faults: count(raw.ru_minflt),
        major_faults: count(raw.ru_majflt),
        context_switches: count(raw.ru_nvcsw) + count(raw.ru_nivcsw),
    }
}

/// Marks the calling thread as one that carries I/O of this machine (PR_SET_IO_FLUSHER). When the
/// kernel needs memory for the thread, it then does not wait for writes that only this thread can
/// finish.
///
/// Errors: `PermissionDenied` without CAP_SYS_RESOURCE.
pub fn carries_io() -> io::Result<()> {
    // SAFETY: takes numbers and touches no memory.
    // WHY UNSAFE: std has no prctl.
    check(unsafe { libc::prctl(PR_SET_IO_FLUSHER, 1, 0, 0, 0) })?;
    Ok(())
}

/// Waits until a thread has ended. `JoinHandle::join` would panic for a thread that the kernel has
/// ended.
pub(crate) fn join(thread: JoinHandle<()>) {
    let id = thread.into_pthread_t();
    // SAFETY: the id comes from a handle that this function has consumed, so nobody else joins or
    // detaches the thread.
    // WHY UNSAFE: std expects a result of every thread that it joins.
    let joined = unsafe { libc::pthread_join(id, std::ptr::null_mut()) };
    assert_eq!(joined, 0, "a thread is joined once, by another thread");
}

/// Ends the calling thread without unwinding, as the kernel does when it fails in a system call.
#[cfg(test)]
pub(crate) fn vanish() {
    // SAFETY: takes a number. The values of the thread are leaked.
    // WHY UNSAFE: std ends threads by returning only.
    unsafe { libc::syscall(libc::SYS_exit, 0) };
}

/// Limits the core files of this process to `bytes`. A lower limit stays.
pub(crate) fn limit_core(bytes: libc::rlim_t) {
    let Ok(mut core) = limit(libc::RLIMIT_CORE) else {
        return;
    };
    core.rlim_cur = core.rlim_max.min(bytes);
    let set = set_limit(libc::RLIMIT_CORE, &core);
    debug_assert!(set.is_ok(), "no more than the hard limit is asked for");
}

/// Shuts down every socket of this process. Peers see their connections end, and listeners stop.
/// The descriptors stay open.
pub(crate) fn shut_down_sockets() {
    let Ok(entries) = std::fs::read_dir("/proc/self/fd") else {
        return;
    };
    let names = entries.flatten().map(|entry| entry.file_name());
    for number in names.filter_map(|name| name.to_str()?.parse::<RawFd>().ok()) {
        // SAFETY: takes two numbers and touches no memory. Other files refuse the call.
        // WHY UNSAFE: std shuts down sockets by their owners, which are other threads.
        let _no_socket = unsafe { libc::shutdown(number, libc::SHUT_RDWR) };
    }
}

/// Whether the effective user is root.
pub fn is_root() -> bool {
    // SAFETY: takes nothing and touches no memory.
    // WHY UNSAFE: std does not tell.
    unsafe { libc::geteuid() == 0 }
}

/// Source: include/uapi/linux/prctl.h of the Linux kernel, 5.6 and later.
const PR_SET_IO_FLUSHER: libc::c_int = 57;
