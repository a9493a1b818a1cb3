//! Clocks of the kernel, and the unit of its CPU times.

use std::time::Duration;

/// CLOCK_MONOTONIC in nanoseconds.
pub(crate) fn monotonic_ns() -> u64 {
    let time = read(libc::CLOCK_MONOTONIC);
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// CPU time of the calling thread.
pub fn thread_cpu_time() -> Duration {
    read(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// Ticks per second in /proc/stat (USER_HZ).
pub(crate) fn ticks_per_second() -> u64 {
    // SAFETY: sysconf reads a number and touches no memory of ours.
    // WHY UNSAFE: every libc function is.
    let ticks = unsafe { libc::sysconf(libc::_SC_CLK_TCK) };
    u64::try_from(ticks).unwrap_or(100).max(1)
}

fn read(clock: libc::clockid_t) -> Duration {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the kernel writes one timespec into `time`, which outlives the call.
    // WHY UNSAFE: std's Instant hides the number, and the kernel's timeouts want it.
    let result = unsafe { libc::clock_gettime(clock, &raw mut time) };
    assert!(result == 0, "Linux has had these clocks since 2.6.12");
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let nanos = u32::try_from(time.tv_nsec).unwrap_or(0);
    Duration::new(seconds, nanos)
}
