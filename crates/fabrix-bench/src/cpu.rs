//! Processor use in cores over the measured time: of the job threads, the process and the machine.
//!
//! The counters are read at the start and at the end, never while a request is timed. The job
//! threads read their own time (see `worker`). The process's time comes from /proc/self/stat in
//! ticks of 10 ms, and the machine's from /proc/stat.

use std::time::{Duration, Instant};

use fabrix_rt::topology::{self, CpuTimes};

/// Tick of the processor times in /proc: 10 ms (USER_HZ), independent of the kernel's internal
/// tick.
const TICK: Duration = Duration::from_millis(10);

/// Processor use over the measured time, in cores. 1.5 means that on average one and a half cores
/// were busy.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cpu {
    /// The job threads, including the disk code that runs on them.
    pub job_cores: f64,
    /// This process in user mode.
    pub user_cores: f64,
    /// This process in the kernel.
    pub system_cores: f64,
    /// The whole machine. Time stolen by the hypervisor counts as busy.
    pub machine_cores: f64,
    /// Number of cores of the machine.
    pub cores: usize,
    /// Length of the measured time.
    pub window: Duration,
}

/// The counters at one time.
#[derive(Clone, Debug)]
pub(crate) struct Snapshot {
    at: Instant,
    user: Duration,
    system: Duration,
    machine: Vec<CpuTimes>,
}

impl Snapshot {
    /// Reads the counters now. Unreadable counters are 0.
    pub(crate) fn take() -> Self {
        let text = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
        let (user, system) = process_times(&text).unwrap_or_default();
        Self {
            at: Instant::now(),
            user,
            system,
            machine: topology::cpu_busy(),
        }
    }

    /// Processor use between an earlier snapshot and this one. The caller adds the time of the job
    /// threads.
    pub(crate) fn since(&self, earlier: &Self) -> Cpu {
        let window = self.at.duration_since(earlier.at);
        let cores = |time: Duration| {
            if window.is_zero() {
                0.0
            } else {
                time.as_secs_f64() / window.as_secs_f64()
            }
        };
        Cpu {
            job_cores: 0.0,
            user_cores: cores(self.user.saturating_sub(earlier.user)),
            system_cores: cores(self.system.saturating_sub(earlier.system)),
            machine_cores: busy_cores(&earlier.machine, &self.machine),
            cores: self.machine.len(),
            window,
        }
    }
}

/// Busy cores between two readings of /proc/stat.
fn busy_cores(earlier: &[CpuTimes], later: &[CpuTimes]) -> f64 {
    let pairs = later
        .iter()
        .filter_map(|now| Some((earlier.iter().find(|was| was.cpu == now.cpu)?, now)));
    let busy = pairs.map(|(was, now)| {
        let total = now.total.saturating_sub(was.total);
        let busy = now.busy.saturating_sub(was.busy);
        if total.is_zero() {
            0.0
        } else {
            busy.as_secs_f64() / total.as_secs_f64()
        }
    });
    busy.sum()
}

/// User and system time of a process, from the text of /proc/PID/stat.
///
/// Source: proc_pid_stat(5), fields 14 (utime) and 15 (stime).
fn process_times(text: &str) -> Option<(Duration, Duration)> {
    // The name stands in parentheses and may contain any character, so only the last `)` ends it.
    let after_name = &text[text.rfind(')')? + 1..];
    let mut fields = after_name.split_ascii_whitespace().skip(11);
    let mut ticks = || fields.next()?.parse::<u32>().ok();
    let (user, system) = (ticks()?, ticks()?);
    Some((TICK * user, TICK * system))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_whose_name_looks_like_fields_is_read_right() {
        let text = "12 (a) 1 (b) S 1 2 3 4 5 6 7 8 9 10 150 25 0 0 20 0 1";
        let times = process_times(text);
        assert_eq!(
            times,
            Some((Duration::from_millis(1500), Duration::from_millis(250)))
        );
    }

    #[test]
    fn a_core_that_was_half_busy_counts_half() {
        let times = |busy, total| CpuTimes {
            cpu: 3,
            busy: Duration::from_millis(busy),
            total: Duration::from_millis(total),
        };
        let busy = busy_cores(&[times(100, 1000)], &[times(600, 2000)]);
        assert!((busy - 0.5).abs() < 1e-9, "{busy}");
    }

    #[test]
    fn a_text_that_is_not_the_expected_one_gives_nothing() {
        assert_eq!(process_times(""), None);
        assert_eq!(process_times("1 (x) S 1 2"), None);
    }
}
