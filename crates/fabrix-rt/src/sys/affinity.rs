//! The CPUs of a thread, and resource limits of the process.

use std::io;

use super::check;

/// The CPUs that a thread may use. 0 names the calling thread, the id of a process its main thread.
pub(crate) fn allowed(thread: u32) -> io::Result<Vec<usize>> {
    let thread = libc::pid_t::try_from(thread).map_err(io::Error::other)?;
    // SAFETY: a cpu_set_t is an array of bits, and zero is the empty set.
    // WHY UNSAFE: libc gives the type no constructor.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel writes at most the given size, which is the size of `set`.
    // WHY UNSAFE: std cannot ask for the affinity.
    check(unsafe { libc::sched_getaffinity(thread, size_of::<libc::cpu_set_t>(), &raw mut set) })?;
    // SAFETY: the index is below CPU_SETSIZE, so CPU_ISSET reads inside the set.
    // WHY UNSAFE: every libc function is.
    let is_set = |cpu: &usize| unsafe { libc::CPU_ISSET(*cpu, &set) };
    Ok((0..CPUS_MAX).filter(is_set).collect())
}

/// Binds the calling thread to one CPU.
pub(crate) fn pin(cpu: usize) -> io::Result<()> {
    if cpu >= CPUS_MAX {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "no such CPU"));
    }
    // SAFETY: as in `allowed`.
    // WHY UNSAFE: libc gives the type no constructor.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: the index is below CPU_SETSIZE, as checked above, so CPU_SET writes inside the set.
    // WHY UNSAFE: every libc function is.
    unsafe { libc::CPU_SET(cpu, &mut set) };
    // SAFETY: the kernel reads the given size, which is the size of `set`.
    // WHY UNSAFE: std cannot bind a thread.
    check(unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set) })?;
    Ok(())
}

/// Limits of open files: the current one, and the highest that this process may set.
pub fn open_files() -> io::Result<(u64, u64)> {
    let limit = limit(libc::RLIMIT_NOFILE)?;
    Ok((limit.rlim_cur, limit.rlim_max))
}

/// Sets the limits of open files.
pub(crate) fn set_open_files(now: u64, most: u64) -> io::Result<()> {
    let limit = libc::rlimit {
        rlim_cur: now,
        rlim_max: most,
    };
    set_limit(libc::RLIMIT_NOFILE, &limit)
}

/// Limit of locked memory in bytes (RLIMIT_MEMLOCK).
pub(crate) fn memlock_bytes() -> u64 {
    limit(libc::RLIMIT_MEMLOCK).map_or(0, |limit| limit.rlim_cur)
}

/// Limits of a resource of this process.
pub(super) fn limit(resource: libc::__rlimit_resource_t) -> io::Result<libc::rlimit> {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: the kernel writes one rlimit, which outlives the call.
    // WHY UNSAFE: std has no limits.
    check(unsafe { libc::getrlimit(resource, &raw mut limit) })?;
    Ok(limit)
}

/// Sets the limits of a resource of this process.
pub(super) fn set_limit(
    resource: libc::__rlimit_resource_t,
    limit: &libc::rlimit,
) -> io::Result<()> {
    // SAFETY: the kernel reads one rlimit, which outlives the call.
    // WHY UNSAFE: std has no limits.
    check(unsafe { libc::setrlimit(resource, limit) })?;
    Ok(())
}

const CPUS_MAX: usize = libc::CPU_SETSIZE as usize;
