//! Facts about the machine for the reader of a report, and events during the measurement. They come
//! from /proc and /sys; missing facts are left out.

use std::fs;
use std::path::Path;

use fabrix_bench::Counted;

use super::number::bytes;
use crate::machine::read;

/// Names and values in display order.
pub(super) fn facts() -> Vec<(String, String)> {
    let mut facts = Vec::new();
    let mut fact = |name: &str, value: Option<String>| {
        facts.extend(
            value
                .filter(|value| !value.is_empty())
                .map(|value| (name.to_owned(), value)),
        );
    };
    let used = fabrix_rt::topology::cpus().len().to_string();
    fact("processor", line_after("/proc/cpuinfo", "model name"));
    fact("processors used", Some(used));
    fact("hypervisor", hypervisor());
    fact(
        "governor",
        read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
    );
    let memory = line_after("/proc/meminfo", "MemTotal");
    fact("memory", memory.map(|text| bytes(kibibytes(&text) as f64)));
    fact("kernel", read("/proc/sys/kernel/osrelease"));
    fact("mitigations", mitigations());
    fact("network", network());
    fact(
        "load before",
        read("/proc/loadavg").map(|text| text.split(' ').take(3).collect::<Vec<_>>().join(" ")),
    );
    let engine = match fabrix_rt::engine::probe() {
        Ok(_) => "io_uring".to_owned(),
        Err(refused) => format!("epoll ({})", refused.found),
    };
    fact("engine", Some(engine));
    facts
}

/// Counters that show whether other load or heat influenced the measurement.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Reading {
    /// Stolen ticks and all ticks.
    steal: (u64, u64),
    /// Number of thermal throttling events.
    throttled: u64,
}

impl Reading {
    /// Reads the counters now.
    pub(crate) fn take() -> Self {
        let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
        let count = |cpu: &usize| {
            let path =
                format!("/sys/devices/system/cpu/cpu{cpu}/thermal_throttle/core_throttle_count");
            read(&path)
                .and_then(|text| text.parse::<u64>().ok())
                .unwrap_or(0)
        };
        Self {
            steal: stolen(&stat),
            throttled: fabrix_rt::topology::cpus().iter().map(count).sum(),
        }
    }

    /// Sentences about disturbances since an earlier reading.
    pub(crate) fn doubts(&self, earlier: &Self) -> Vec<String> {
        let mut doubts = Vec::new();
        let stolen = self.steal.0.saturating_sub(earlier.steal.0) as f64;
        let all = self.steal.1.saturating_sub(earlier.steal.1) as f64;
        if all > 0.0 && stolen / all > STEAL_MOST {
            doubts.push(format!(
                "the hypervisor gave {:.1} % of the processor time to other machines",
                stolen / all * 100.0
            ));
        }
        let hot = self.throttled.saturating_sub(earlier.throttled);
        if hot > 0 {
            doubts.push(format!(
                "processors were slowed down {} because they were too hot",
                Counted(hot, "time")
            ));
        }
        doubts
    }
}

/// Whether `bytes` fit into this machine's memory. Unknown counts as no.
pub(crate) fn has_room(bytes: u64) -> bool {
    let total = line_after("/proc/meminfo", "MemTotal");
    total.is_some_and(|total| bytes < kibibytes(&total))
}

/// Bytes of a value like `24576 kB`.
fn kibibytes(text: &str) -> u64 {
    let digits = text.trim_end_matches(" kB").parse::<u64>();
    digits.unwrap_or(0).saturating_mul(1024)
}

/// Fraction of stolen time above which a warning is given.
const STEAL_MOST: f64 = 0.01;

/// Steal and total of the first line of /proc/stat.
///
/// Source: proc_stat(5), the fields of "cpu": the eighth is steal; guest time is part of user time
/// already.
fn stolen(stat: &str) -> (u64, u64) {
    let line = stat.lines().next().unwrap_or_default();
    let fields: Vec<u64> = line
        .split_ascii_whitespace()
        .skip(1)
        .take(8)
        .map_while(|field| field.parse().ok())
        .collect();
    (fields.get(7).copied().unwrap_or(0), fields.iter().sum())
}

fn hypervisor() -> Option<String> {
    let flags = line_after("/proc/cpuinfo", "flags")?;
    let guest = flags.split(' ').any(|flag| flag == "hypervisor");
    let vendor = read("/sys/class/dmi/id/sys_vendor");
    guest.then(|| vendor.unwrap_or_else(|| "yes: this is a virtual machine".to_owned()))
}

/// The kernel's mitigations of processor vulnerabilities, as counts.
fn mitigations() -> Option<String> {
    let folder = fs::read_dir("/sys/devices/system/cpu/vulnerabilities").ok()?;
    let texts: Vec<String> = folder
        .flatten()
        .filter_map(|entry| fs::read_to_string(entry.path()).ok())
        .collect();
    let count = |word: &str| texts.iter().filter(|text| text.starts_with(word)).count();
    Some(format!(
        "{} mitigated, {} vulnerable, {} not affected",
        count("Mitigation"),
        count("Vulnerable"),
        count("Not affected")
    ))
}

/// The active network interfaces, with their speed if known.
fn network() -> Option<String> {
    let folder = fs::read_dir("/sys/class/net").ok()?;
    let mut names: Vec<String> = folder
        .flatten()
        .filter_map(|entry| interface(&entry.path()))
        .collect();
    names.sort();
    Some(names.join(", "))
}

fn interface(path: &Path) -> Option<String> {
    let name = path.file_name()?.to_string_lossy().into_owned();
    let file = |name: &str| read(path.join(name));
    if name == "lo" || file("operstate")? != "up" {
        return None;
    }
    let speed = file("speed")
        .and_then(|text| text.parse::<i64>().ok())
        .filter(|speed| *speed > 0);
    let mtu = file("mtu").unwrap_or_default();
    Some(speed.map_or_else(
        || format!("{name} (MTU {mtu})"),
        |speed| format!("{name} ({speed} Mb/s, MTU {mtu})"),
    ))
}

/// Text after the colon in the first line that starts with `key`.
fn line_after(path: &str, key: &str) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let line = text.lines().find(|line| line.starts_with(key))?;
    line.split_once(':')
        .map(|(_, value)| value.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_read_in_the_kernels_unit() {
        assert_eq!((kibibytes("2048 kB"), kibibytes("?")), (2 << 20, 0));
        assert!(has_room(4096) && !has_room(u64::MAX));
    }

    #[test]
    fn stolen_time_is_the_eighth_field() {
        assert_eq!(stolen("cpu  10 0 20 30 0 0 0 40 5 0\ncpu0 1"), (40, 100));
        assert_eq!(stolen(""), (0, 0));
    }

    #[test]
    fn stolen_time_and_heat_are_doubts_and_quiet_is_none() {
        let earlier = Reading::default();
        let quiet = Reading {
            steal: (5, 1000),
            throttled: 0,
        };
        assert!(quiet.doubts(&earlier).is_empty());
        let loud = Reading {
            steal: (50, 1000),
            throttled: 3,
        };
        let doubts = loud.doubts(&earlier);
        assert!(
            doubts[0].contains("5.0 %") && doubts[1].contains("3 times"),
            "{doubts:?}"
        );
    }
}
