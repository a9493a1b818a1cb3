//! Processor use in cores over the measured time: of the job threads, the process and the machine.
//!
//! The counters are read at the start and at the end, never while a request is timed. The job
//! threads read their own time (see `worker`). The process's time comes from /proc/self/stat in
//! ticks of 10 ms, its context switches from /proc/self/task, and the machine's time from
//! /proc/stat.

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
    at: Instant,
    process: Process,
    context_switches: u64,
    machine: Vec<CpuTimes>,
}

impl Snapshot {
    /// Reads the counters now. Unreadable counters are 0.
    pub(crate) fn take() -> Self {
        let text = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
        let process = process(&text).unwrap_or_default();
        Self {
            at: Instant::now(),
            process,
            context_switches: context_switches(),
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
            user_cores: cores(self.process.user.saturating_sub(earlier.process.user)),
            system_cores: cores(self.process.system.saturating_sub(earlier.process.system)),
            machine_cores: busy_cores(&earlier.machine, &self.machine, |times| times.busy),
            machine_system_cores: busy_cores(&earlier.machine, &self.machine, |times| times.system),
            context_switches: self
                .context_switches
                .saturating_sub(earlier.context_switches),
            minor_faults: self
                .process
                .minor_faults
                .saturating_sub(earlier.process.minor_faults),
            major_faults: self
                .process
                .major_faults
                .saturating_sub(earlier.process.major_faults),
            cores: self.machine.len(),
            window,
        }
    }
}

impl Cpu {
    /// Raises the figures of the process and of the machine to those of their parts, where
    /// `threads_cores` is the use of all job threads.
    ///
    /// The counters of processes and of the machine advance in ticks, those of threads in
    /// nanoseconds. Over a short time a thread may therefore appear to use more than the machine.
    pub(crate) fn contain(&mut self, threads_cores: f64) {
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

/// Context switches of all threads of this process until now.
///
/// Source: proc_pid_status(5), `voluntary_ctxt_switches` and `nonvoluntary_ctxt_switches`.
fn context_switches() -> u64 {
    let Ok(threads) = std::fs::read_dir("/proc/self/task") else {
        return 0;
    };
    let of = |text: &str| -> u64 {
        let counts = text.lines().filter(|line| line.contains("ctxt_switches:"));
        let counts = counts.filter_map(|line| line.split_once(':')?.1.trim().parse::<u64>().ok());
        counts.sum()
    };
    threads
        .filter_map(|thread| std::fs::read_to_string(thread.ok()?.path().join("status")).ok())
        .map(|text| of(&text))
        .sum()
}

/// Counters of a process.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Process {
    user: Duration,
    system: Duration,
    minor_faults: u64,
    major_faults: u64,
}

/// The counters of a process, from the text of /proc/PID/stat.
///
/// Source: proc_pid_stat(5), fields 10 (minflt), 12 (majflt), 14 (utime) and 15 (stime).
fn process(text: &str) -> Option<Process> {
    // The name stands in parentheses and may contain any character, so only the last `)` ends it.
    let after_name = &text[text.rfind(')')? + 1..];
    let fields: Vec<&str> = after_name.split_ascii_whitespace().collect();
    let count = |field: usize| fields.get(field - 3)?.parse::<u64>().ok();
    let time = |field: usize| Some(TICK * u32::try_from(count(field)?).ok()?);
    Some(Process {
        user: time(14)?,
        system: time(15)?,
        minor_faults: count(10)?,
        major_faults: count(12)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_whose_name_looks_like_fields_is_read_right() {
        let text = "12 (a) 1 (b) S 1 2 3 4 5 6 7 8 9 10 150 25 0 0 20 0 1";
        let expected = Process {
            user: Duration::from_millis(1500),
            system: Duration::from_millis(250),
            minor_faults: 7,
            major_faults: 9,
        };
        assert_eq!(process(text), Some(expected));
    }

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
    fn a_machine_uses_at_least_what_its_threads_use() {
        let mut cpu = Cpu {
            user_cores: 0.25,
            system_cores: 0.25,
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

    #[test]
    fn a_text_that_is_not_the_expected_one_gives_nothing() {
        assert_eq!(process(""), None);
        assert_eq!(process("1 (x) S 1 2"), None);
    }
}
