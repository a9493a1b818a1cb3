//! Was the machine ours while we measured? Read from /proc before and after.
//!
//! Two things spoil a measurement: the hypervisor gave the time of the processors to somebody else
//! (steal), or another program ran. Times are clock ticks of the kernel's accounting, 10 ms each.
//! Windows of some seconds are the least it can judge.

use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;

const STEAL_SHARE_MAX: f64 = 0.01;
const FOREIGN_SHARE_MAX: f64 = 0.02;

/// Sums of clock ticks at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Ticks {
    /// All processors: user and system time.
    busy: u64,
    /// All processors: time that the hypervisor took.
    steal: u64,
    /// All processors: all of the above, idle time and interrupts.
    total: u64,
    /// We, what we have started, and what that has started.
    ours: u64,
    /// Other programs; threads of the kernel do not count.
    programs: u64,
}

/// What disturbed a measurement, as shares of the processors' time.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Noise {
    steal: f64,
    foreign: f64,
}

impl Ticks {
    pub(super) fn now() -> Result<Self, String> {
        let mut stats = BTreeMap::new();
        let entries = fs::read_dir("/proc").map_err(|error| format!("/proc: {error}"))?;
        for entry in entries.flatten() {
            let pid = entry
                .file_name()
                .to_str()
                .and_then(|name| name.parse().ok());
            // A process that has just ended is no error; its parent has its time.
            let stat = fs::read_to_string(entry.path().join("stat"));
            stats.extend(pid.zip(stat.ok()));
        }
        let mut ticks = Self::of_processors(&read("/proc/stat")?);
        (ticks.ours, ticks.programs) = of_processes(&stats, std::process::id());
        Ok(ticks)
    }

    fn of_processors(stat: &str) -> Self {
        // user nice system idle iowait irq softirq steal; what follows is counted in these already
        let line = stat.lines().next().unwrap_or_default();
        let words = line.split_whitespace().skip(1).take(8);
        let ticks: Vec<u64> = words.map(|word| word.parse().unwrap_or(0)).collect();
        Self {
            busy: ticks.iter().take(3).sum(),
            steal: ticks.get(7).copied().unwrap_or(0),
            total: ticks.iter().sum(),
            ..Self::default()
        }
    }

    /// What disturbed since then. `kernel_works`: threads of the kernel do a part of what is
    /// measured, so only other programs disturb.
    #[expect(clippy::cast_precision_loss, reason = "ticks of some seconds")]
    pub(super) fn noise_since(&self, start: &Self, kernel_works: bool) -> Noise {
        let since = |of: fn(&Self) -> u64| of(self).saturating_sub(of(start)) as f64;
        let total = since(|ticks| ticks.total).max(1.0);
        let programs = since(|ticks| ticks.programs);
        // The sum over programs misses other containers; the rest of the busy time does not.
        let rest = since(|ticks| ticks.busy) - since(|ticks| ticks.ours);
        let foreign = if kernel_works {
            programs
        } else {
            rest.max(programs)
        };
        Noise {
            steal: since(|ticks| ticks.steal) / total,
            foreign: foreign / total,
        }
    }
}

impl Noise {
    /// Why the measurement does not count, if so.
    pub(super) fn spoils(&self) -> Option<String> {
        let percent = |share: f64| share * 100.0;
        if self.steal > STEAL_SHARE_MAX {
            let percent = percent(self.steal);
            return Some(format!("the hypervisor took {percent:.1} % of the machine"));
        }
        let percent = percent(self.foreign);
        (self.foreign > FOREIGN_SHARE_MAX)
            .then(|| format!("other programs took {percent:.1} % of the machine"))
    }

    pub(super) fn to_json(self) -> Value {
        json!({ "steal_share": self.steal, "foreign_share": self.foreign })
    }
}

/// The ticks of `own` and of what it has started, and of other programs.
fn of_processes(stats: &BTreeMap<u32, String>, own: u32) -> (u64, u64) {
    let (mut ours, mut programs) = (0, 0);
    for (pid, stat) in stats {
        // A name may hold anything: the fields are counted from the parenthesis that closes it.
        let fields = after_name(stat).skip(11).take(4);
        let ticks: u64 = fields.map(|word| word.parse().unwrap_or(0)).sum();
        let parent = |pid: &u32| after_name(stats.get(pid)?).nth(1)?.parse().ok();
        let mut ancestors = std::iter::successors(Some(*pid), parent);
        if ancestors.any(|ancestor| ancestor == own) {
            ours += ticks;
        } else if parent(pid) != Some(KERNEL_THREADS) {
            programs += ticks;
        }
    }
    (ours, programs)
}

/// The parent of all threads of the kernel, `kthreadd`.
const KERNEL_THREADS: u32 = 2;

fn after_name(stat: &str) -> impl Iterator<Item = &str> {
    let (_, fields) = stat.rsplit_once(')').unwrap_or_default();
    fields.split_whitespace()
}

/// Processor time of a running process in nanoseconds, all its threads together.
pub(super) fn run_time_ns(pid: u32) -> Result<u64, String> {
    let folder = format!("/proc/{pid}/task");
    let tasks = fs::read_dir(&folder).map_err(|error| format!("{folder}: {error}"))?;
    let times = tasks.flatten().filter_map(|task| {
        let text = fs::read_to_string(task.path().join("schedstat")).ok()?;
        text.split_whitespace().next()?.parse::<u64>().ok()
    });
    Ok(times.sum())
}

/// The text of a file of the kernel.
pub(super) fn read(path: &str) -> Result<String, String> {
    fs::read_to_string(path).map_err(|error| format!("cannot read {path}: {error}"))
}

/// What a reader of the raw results wants to know about the machine.
pub(super) fn describe_machine() -> Value {
    let cpu_info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let mut lines = cpu_info.lines();
    let model = lines.find_map(|line| line.strip_prefix("model name"));
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    json!({
        "cpu": model.map(|rest| rest.trim_start_matches(['\t', ' ', ':'])),
        "cpus": std::thread::available_parallelism().map_or(0, usize::from),
        "kernel": kernel.trim(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steal_and_other_programs_spoil_a_measurement() {
        let spoils = |[busy, steal, ours, programs]: [u64; 4], kernel_works: bool| {
            let end = Ticks {
                busy,
                steal,
                total: 1000,
                ours,
                programs,
            };
            let noise = end.noise_since(&Ticks::default(), kernel_works);
            noise.spoils().unwrap_or_default()
        };
        assert_eq!(spoils([810, 5, 800, 10], false), "");
        assert!(spoils([800, 20, 800, 0], false).contains("hypervisor"));
        assert!(spoils([850, 0, 850, 50], false).contains("other programs took 5.0 %"));
        assert!(spoils([900, 0, 800, 0], false).contains("other programs took 10.0 %"));
        assert_eq!(spoils([900, 0, 800, 0], true), "", "threads of the kernel");
        assert!(spoils([900, 0, 800, 50], true).contains("other programs"));
    }

    #[test]
    fn what_we_have_started_is_ours_with_whatever_that_started() {
        let stat =
            |parent: u32, ticks: u64| format!("1 (a) b) S {parent} 1 1 0 -1 0 0 0 0 0 {ticks} 0 0");
        let stats = [
            (1, stat(0, 2)),
            (2, stat(0, 0)),
            (7, stat(1, 10)),
            (8, stat(7, 100)),
            (9, stat(8, 1000)),
            (10, stat(1, 20)),
            (11, stat(2, 5)),
        ];
        assert_eq!(of_processes(&stats.into(), 7), (1110, 22));
    }
}
