//! What processes use, read from /proc: time of the processors, memory, files.
//!
//! Knows processes by their number alone, ours as those that we and ours have started. What
//! disturbs a measurement stands in `machine.rs`.

use std::collections::BTreeMap;
use std::fs;

/// The text of a file of the kernel.
pub(super) fn read(path: &str) -> Result<String, String> {
    fs::read_to_string(path).map_err(|error| format!("cannot read {path}: {error}"))
}

/// User and system time of a process and of the children it waited for.
fn process_ticks(stat: &str) -> Option<u64> {
    // The name may hold anything, so the fields are counted from the parenthesis that closes it.
    let (_, fields) = stat.rsplit_once(')')?;
    Some(
        fields
            .split_whitespace()
            .skip(11)
            .take(4)
            .map(|word| word.parse().unwrap_or(0))
            .sum(),
    )
}

/// The number of a process's parent.
fn parent_of(stat: &str) -> Option<u32> {
    let (_, fields) = stat.rsplit_once(')')?;
    fields.split_whitespace().nth(1)?.parse().ok()
}

/// Whether this is a thread of the kernel: all of them come from number 2, `kthreadd`.
fn is_the_kernels(stat: &str) -> bool {
    parent_of(stat) == Some(2)
}

/// Times of processes that live, in ticks.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Processes {
    /// We, what we have started, and what that has; with what all of them waited for.
    pub(super) ours: u64,
    /// All others, and those of them that are no threads of the kernel.
    pub(super) others: u64,
    pub(super) programs: u64,
}

impl Processes {
    pub(super) fn read() -> Result<Self, String> {
        let entries =
            fs::read_dir("/proc").map_err(|error| format!("cannot list /proc: {error}"))?;
        let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let numbers = names.filter_map(|name| name.parse().ok());
        // A process that has just ended is no error; its parent has its time.
        let stat = |pid| fs::read_to_string(format!("/proc/{pid}/stat")).ok();
        let stats = numbers.filter_map(|pid: u32| Some((pid, stat(pid)?)));
        Ok(Self::sum(&stats.collect(), std::process::id()))
    }

    /// `stats` are the processes by number.
    fn sum(stats: &BTreeMap<u32, String>, own: u32) -> Self {
        let mut sums = Self::default();
        for (pid, stat) in stats {
            let ticks = process_ticks(stat).unwrap_or(0);
            let parent = |pid: &u32| parent_of(stats.get(pid)?);
            if std::iter::successors(Some(*pid), parent).any(|ancestor| ancestor == own) {
                sums.ours += ticks;
                continue;
            }
            sums.others += ticks;
            sums.programs += if is_the_kernels(stat) { 0 } else { ticks };
        }
        sums
    }
}

/// Processor time of a running process in nanoseconds, all its threads together.
pub(super) fn run_time_ns(pid: u32) -> Result<u64, String> {
    let folder = format!("/proc/{pid}/task");
    let cannot = |error| format!("cannot read {folder}: {error}");
    let mut sum = 0;
    for task in fs::read_dir(&folder).map_err(cannot)? {
        let path = task.map_err(cannot)?.path().join("schedstat");
        let text = fs::read_to_string(path).map_err(cannot)?;
        let first = text
            .split_whitespace()
            .next()
            .and_then(|word| word.parse::<u64>().ok());
        sum += first.ok_or_else(|| format!("{folder}: schedstat does not begin with a number"))?;
    }
    Ok(sum)
}

/// Memory that a running process has in use, in bytes.
pub(super) fn resident_bytes(pid: u32) -> Result<u64, String> {
    let path = format!("/proc/{pid}/status");
    field_of(&read(&path)?, "VmRSS:")
        .map(|kib| kib * 1024)
        .ok_or_else(|| format!("{path} has no VmRSS"))
}

/// How many files a process may open if it raises its own limit as far as it may.
pub(super) fn open_files_most() -> Result<u64, String> {
    let path = "/proc/self/limits";
    let text = read(path)?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("Max open files"));
    // soft limit, hard limit, unit
    let hard = line.and_then(|rest| rest.split_whitespace().nth(1));
    match hard {
        Some("unlimited") => Ok(u64::MAX),
        Some(number) => number
            .parse()
            .map_err(|_| format!("{path}: `{number}` is no number")),
        None => Err(format!("{path} does not say how many files may be open")),
    }
}

/// The number behind a key of /proc/PID/status.
fn field_of(status: &str, key: &str) -> Option<u64> {
    let rest = status.lines().find_map(|line| line.strip_prefix(key))?;
    rest.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_a_process_with_its_children_whatever_its_name() {
        let stat = "7 (a) b) R 1 1 1 0 -1 0 0 0 0 0 10 20 3 4 20 0 1 0";
        assert_eq!(process_ticks(stat), Some(37));
        assert_eq!(process_ticks("nothing"), None);
    }

    #[test]
    fn what_we_have_started_is_ours_with_whatever_that_started() {
        let stat = |parent: u32, ticks: u64| format!("1 (x) S {parent} 1 1 0 -1 0 0 0 0 0 {ticks}");
        let stats = [
            (1, stat(0, 1)),
            (2, stat(0, 1)),
            (7, stat(1, 10)),
            (8, stat(7, 100)),
            (9, stat(8, 1000)),
            (10, stat(1, 20)),
            (11, stat(2, 5)),
        ];
        let sums = Processes::sum(&stats.into(), 7);
        let expected = Processes {
            ours: 1110,
            others: 27,
            programs: 22,
        };
        assert_eq!(sums, expected);
    }

    #[test]
    fn threads_of_the_kernel_come_from_its_own() {
        assert!(is_the_kernels("9 (kworker/0:1) I 2 0 0 0 -1 0"));
        assert!(!is_the_kernels("9 (a) 2) S 1 2 2 0 -1 0"));
    }

    #[test]
    fn reads_a_number_of_a_process() {
        let status = "Name:\tx\nVmHWM:\t 9 kB\nVmRSS:\t  1234 kB\n";
        assert_eq!(field_of(status, "VmRSS:"), Some(1234));
        assert_eq!(field_of(status, "VmSwap:"), None);
    }
}
