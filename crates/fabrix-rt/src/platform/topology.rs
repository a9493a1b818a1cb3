//! CPUs of this machine, their load, and limits of this process.

use std::io;
use std::time::Duration;

use crate::sys;
pub use crate::sys::affinity::open_files;
pub use crate::sys::clock::thread_cpu_time;

/// Times of one CPU since the machine started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuTimes {
    /// Number of the CPU.
    pub cpu: usize,
    /// Time in which the CPU was not idle, or was taken by the hypervisor.
    pub busy: Duration,
    /// Part of `busy` in the kernel: system calls, interrupts and time taken by the hypervisor.
    pub system: Duration,
    /// All time.
    pub total: Duration,
}

/// The CPUs that this thread may use, ascending. CPU 0 if the kernel does not say.
pub fn cpus() -> Vec<usize> {
    sys::affinity::allowed(0).unwrap_or_else(|_| vec![0])
}

/// Number of CPUs that the kernel is prepared for, present or not. None: the kernel does not say.
pub fn possible_cpus() -> Option<usize> {
    let list = std::fs::read_to_string("/sys/devices/system/cpu/possible").ok()?;
    count(list.trim())
}

/// Count of the numbers in a list of the kernel, such as `0-3,8`.
fn count(list: &str) -> Option<usize> {
    let part = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        last.checked_sub(first)?.checked_add(1)
    };
    list.split(',')
        .try_fold(0usize, |sum, next| sum.checked_add(part(next)?))
}

/// Binds the calling thread to one CPU.
///
/// Errors: `InvalidInput`, with the number, for a CPU that this process may not use.
pub fn pin(cpu: usize) -> io::Result<()> {
    let named =
        |error: io::Error| io::Error::new(error.kind(), format!("binding to CPU {cpu}: {error}"));
    sys::affinity::pin(cpu).map_err(named)
}

/// Times of every CPU since the machine started (/proc/stat). Empty if the file cannot be read.
pub fn cpu_busy() -> Vec<CpuTimes> {
    let text = std::fs::read_to_string("/proc/stat").unwrap_or_default();
    let tick =
        Duration::from_secs(1) / u32::try_from(sys::clock::ticks_per_second()).unwrap_or(100);
    text.lines()
        .filter_map(|line| cpu_times(line, tick))
        .collect()
}

/// Boot id, which differs for every start of every machine. Processes with equal boot ids share one
/// monotonic clock. None: the kernel does not say.
pub fn boot_id() -> Option<[u8; 16]> {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let digits = text.trim().replace('-', "");
    let id = (digits.len() == 32).then(|| u128::from_str_radix(&digits, 16).ok());
    id.flatten().map(u128::to_be_bytes)
}

/// Sets the current limit of open files.
///
/// Errors: `InvalidInput` above the highest limit of [`open_files`].
pub fn set_open_files(now: u64) -> io::Result<()> {
    let (_, most) = open_files()?;
    sys::affinity::set_open_files(now, most)
}

/// Reads one line of /proc/stat: "cpu3 user nice system idle iowait irq softirq steal guest
/// guest_nice". User and nice include the times of guests.
fn cpu_times(line: &str, tick: Duration) -> Option<CpuTimes> {
    let mut words = line.strip_prefix("cpu")?.split(' ');
    let cpu = words.next()?.parse().ok()?;
    let ticks: Vec<u64> = words.take(8).map_while(|word| word.parse().ok()).collect();
    let total: u64 = ticks.iter().sum();
    let idle = ticks.get(3)? + ticks.get(4)?;
    let user = ticks[0] + ticks[1];
    let length = |ticks: u64| tick.saturating_mul(u32::try_from(ticks).unwrap_or(u32::MAX));
    Some(CpuTimes {
        cpu,
        busy: length(total.saturating_sub(idle)),
        system: length(total.saturating_sub(idle + user)),
        total: length(total),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_proc_stat_is_read_without_counting_guests_twice() {
        let tick = Duration::from_millis(10);
        let times = cpu_times("cpu1 100 0 50 800 40 5 3 2 60 0", tick).expect("a CPU's line");
        let expected = (Duration::from_millis(1600), Duration::from_millis(10_000));
        assert_eq!(
            (times.cpu, times.busy, times.total),
            (1, expected.0, expected.1)
        );
        assert_eq!(times.system, Duration::from_millis(600));
        assert_eq!(cpu_times("cpu  100 0 50 800 40 5 3 2 60 0", tick), None);
        assert_eq!(cpu_times("intr 5", tick), None);
        assert_eq!(cpu_times("cpu0 1 2", tick), None);
    }

    #[test]
    fn possible_cpus_are_counted_with_their_gaps() {
        assert_eq!(count("0"), Some(1));
        assert_eq!(count("0-3,8,10-11"), Some(7));
        for wrong in ["", "3-2", "0-", "a", "0-18446744073709551615"] {
            assert_eq!(count(wrong), None, "{wrong}");
        }
        assert!(possible_cpus().is_none_or(|possible| possible >= cpus().len()));
    }

    #[test]
    fn this_machine_has_cpus_and_they_can_be_bound_to() {
        let cpus = cpus();
        assert!(!cpus.is_empty() && cpus.is_sorted());
        assert!(cpu_busy().len() >= cpus.len());
        std::thread::spawn(move || {
            pin(cpus[0]).expect("an allowed CPU");
            assert_eq!(super::cpus(), [cpus[0]]);
        })
        .join()
        .expect("the bound thread");
        assert!(pin(100_000).unwrap_err().to_string().contains("100000"));
    }
}
