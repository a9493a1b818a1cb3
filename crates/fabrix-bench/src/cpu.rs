//! Processor use in cores over the measured time: of the job threads, the process and the machine.
//!
//! The counters are read at the start and at the end, never while a request is timed. The job
//! threads read their own time (see `worker`). The machine's time comes from /proc/stat in ticks of
//! 10 ms, so over a few milliseconds it tells little.

use std::time::{Duration, Instant};

use fabrix_rt::process::{Usage, usage};
use fabrix_rt::topology::{self, CpuTimes};

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
    /// Context switches of this process's threads.
    pub context_switches: u64,
    /// Page faults of this process that were answered from memory.
    pub minor_faults: u64,
    /// Page faults of this process that waited for a disk.
    pub major_faults: u64,
    /// Part of `machine_cores` in the kernel, with interrupts and stolen time.
    pub machine_system_cores: f64,
    /// Number of cores of the machine.
    pub cores: usize,
    /// Length of the measured time.
    pub window: Duration,
}

/// The counters at one time.
#[derive(Clone, Debug)]
pub(crate) struct Snapshot {
    /// Times before and after the counters of the process were read.
    at: [Instant; 2],
    process: Usage,
    machine: Vec<CpuTimes>,
}

impl Snapshot {
    /// Reads the counters now. Unreadable counters are 0.
    pub(crate) fn take() -> Self {
        let before = Instant::now();
        let process = usage();
        Self {
            at: [before, Instant::now()],
            process,
            machine: topology::cpu_busy(),
        }
    }

    /// Processor use between an earlier snapshot and this one. The caller adds the time of the job
    /// threads.
    pub(crate) fn since(&self, earlier: &Self) -> Cpu {
        // The use of the process lies within this time, even where a reading was interrupted.
        let window = self.at[1].duration_since(earlier.at[0]);
        let cores = |time: Duration| {
            if window.is_zero() {
                0.0
            } else {
                time.as_secs_f64() / window.as_secs_f64()
            }
        };
        let (now, was) = (&self.process, &earlier.process);
        Cpu {
            job_cores: 0.0,
            user_cores: cores(now.user.saturating_sub(was.user)),
            system_cores: cores(now.system.saturating_sub(was.system)),
            machine_cores: busy_cores(&earlier.machine, &self.machine, |times| times.busy),
            machine_system_cores: busy_cores(&earlier.machine, &self.machine, |times| times.system),
            context_switches: now.context_switches - was.context_switches,
            minor_faults: now.minor_faults - was.minor_faults,
            major_faults: now.major_faults - was.major_faults,
            cores: self.machine.len(),
            window,
        }
    }
}

impl Cpu {
    /// Raises the figures of the process and of the machine to those of their parts, where
    /// `threads_cores` is the use of all job threads, and limits those of the process to all cores.
    ///
    /// The counters of the machine, and those of threads on other processors, advance in ticks.
    /// Over a few milliseconds a part may therefore appear to use more than the whole.
    pub(crate) fn contain(&mut self, threads_cores: f64) {
        let most = self.cores as f64 / (self.user_cores + self.system_cores);
        if most < 1.0 {
            self.user_cores *= most;
            self.system_cores *= most;
        }
        let missing = threads_cores - self.user_cores - self.system_cores;
        self.user_cores += missing.max(0.0);
        let process = self.user_cores + self.system_cores;
        self.machine_cores = self.machine_cores.max(process);
        let system = self.machine_system_cores.max(self.system_cores);
        self.machine_system_cores = system.min(self.machine_cores - self.user_cores);
    }
}

/// Cores busy between two readings of /proc/stat, by one of their times.
fn busy_cores(
    earlier: &[CpuTimes],
    later: &[CpuTimes],
    part: impl Fn(&CpuTimes) -> Duration,
) -> f64 {
    let pairs = later
        .iter()
        .filter_map(|now| Some((earlier.iter().find(|was| was.cpu == now.cpu)?, now)));
    let busy = pairs.map(|(was, now)| {
        let total = now.total.saturating_sub(was.total);
        let busy = part(now).saturating_sub(part(was));
        if total.is_zero() {
            0.0
        } else {
            busy.as_secs_f64() / total.as_secs_f64()
        }
    });
    busy.sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_core_that_was_half_busy_counts_half() {
        let times = |busy, total| CpuTimes {
            cpu: 3,
            busy: Duration::from_millis(busy),
            system: Duration::from_millis(busy / 2),
            total: Duration::from_millis(total),
        };
        let (was, now) = (times(100, 1000), times(600, 2000));
        let busy = busy_cores(&[was], &[now], |times| times.busy);
        assert!((busy - 0.5).abs() < 1e-9, "{busy}");
        let system = busy_cores(&[was], &[now], |times| times.system);
        assert!((system - 0.25).abs() < 1e-9, "{system}");
    }

    #[test]
    fn no_process_uses_more_than_its_machine_however_short_the_time() {
        let begin = Snapshot::take();
        while begin.at[0].elapsed() < Duration::from_micros(3300) {}
        let mut cpu = Snapshot::take().since(&begin);
        cpu.contain(0.0);
        let process = cpu.user_cores + cpu.system_cores;
        assert!(process <= cpu.cores as f64 + 0.01, "{cpu:?}");
        let mut ticks = Cpu {
            user_cores: 2.0,
            system_cores: 1.0,
            cores: 2,
            ..Cpu::default()
        };
        ticks.contain(1.5);
        assert!((ticks.user_cores - 4.0 / 3.0).abs() < 1e-9, "{ticks:?}");
        assert!((ticks.machine_cores - 2.0).abs() < 1e-9, "{ticks:?}");
    }

    #[test]
    fn a_machine_uses_at_least_what_its_threads_use() {
        let mut cpu = Cpu {
            user_cores: 0.25,
            system_cores: 0.25,
            cores: 2,
            ..Cpu::default()
        };
        cpu.contain(1.0);
        assert_eq!((cpu.user_cores, cpu.system_cores), (0.75, 0.25));
        assert_eq!((cpu.machine_cores, cpu.machine_system_cores), (1.0, 0.25));
        let busy = Cpu {
            machine_cores: 2.0,
            machine_system_cores: 0.5,
            ..cpu
        };
        let mut same = busy;
        same.contain(1.0);
        assert_eq!(same, busy, "nothing has to be raised");
    }
}
