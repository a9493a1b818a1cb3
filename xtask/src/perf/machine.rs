//! Was the machine ours while we measured, and the same? Read from /proc before and after, and
//! asked of `distance`.
//!
//! Three things spoil a measurement: the hypervisor gave the time to somebody else (steal), another
//! program ran, or the hypervisor moved the processors nearer to each other or apart between its
//! two sides. Times are clock ticks of the kernel's accounting, 10 ms each, so windows of some
//! seconds are the least it can judge.

use super::Programs;
use super::processes::{Processes, read};
use crate::process::{command, output};
use serde_json::{Value, json};
use std::fs;

const STEAL_SHARE_MAX: f64 = 0.01;
const FOREIGN_SHARE_MAX: f64 = 0.02;
/// The longest way between the processors may be so many times the shortest: under one cache or not
/// is 53 and 320 ns.
const DISTANCE_RATIO_MAX: u64 = 2;

/// The state of the machine when a measurement began.
pub(super) struct Watch {
    cpus: Vec<usize>,
    start: Snapshot,
    distances_ns: Vec<u64>,
}

/// What disturbed a measurement, as shares of the processors' time.
#[derive(Default)]
pub(super) struct Noise {
    steal: f64,
    foreign: f64,
    /// What of that other programs took, without threads of the kernel.
    programs: f64,
    /// How long a cache line took from one processor to the other and back, in nanoseconds,
    /// whenever that was asked.
    distances_ns: Vec<u64>,
}

impl Watch {
    /// Starts watching; `cpus` are those that measure.
    pub(super) fn start(cpus: &[usize]) -> Result<Self, String> {
        Ok(Self {
            cpus: cpus.to_vec(),
            start: Snapshot::take(cpus)?,
            distances_ns: Vec::new(),
        })
    }

    /// How far are the processors from each other? To be asked while none of the programs runs.
    pub(super) fn look(&mut self, programs: &Programs) -> Result<(), String> {
        let mut distance = command(&programs.distance.to_string_lossy());
        let text = output(distance.args(self.cpus.iter().map(usize::to_string)))?;
        let nanoseconds = text.trim().parse();
        let nanoseconds = nanoseconds.map_err(|_| format!("`distance` printed `{text}`"))?;
        self.distances_ns.push(nanoseconds);
        Ok(())
    }

    /// To be called when the programs that measured have ended.
    pub(super) fn end(self) -> Result<Noise, String> {
        let mut noise = Noise::between(&self.start, &Snapshot::take(&self.cpus)?);
        noise.distances_ns = self.distances_ns;
        Ok(noise)
    }
}

impl Noise {
    fn between(start: &Snapshot, end: &Snapshot) -> Self {
        let since = |end: u64, start: u64| end.saturating_sub(start);
        let busy = since(end.all.busy, start.all.busy);
        let ours = since(end.processes.ours, start.processes.ours);
        // Two views, because each is blind to something: the sum over processes misses other
        // containers, what is left of the busy time misses whatever the kernel did in our name.
        let foreign =
            since(end.processes.others, start.processes.others).max(busy.saturating_sub(ours));
        Self {
            steal: share(
                since(end.measuring.steal, start.measuring.steal),
                &end.measuring,
                &start.measuring,
            ),
            foreign: share(foreign, &end.all, &start.all),
            programs: share(
                since(end.processes.programs, start.processes.programs),
                &end.all,
                &start.all,
            ),
            distances_ns: Vec::new(),
        }
    }

    /// Of two measurements that are compared: what disturbed one of them spoils both.
    pub(super) fn and(&self, other: &Self) -> Self {
        Self {
            steal: self.steal.max(other.steal),
            foreign: self.foreign.max(other.foreign),
            programs: self.programs.max(other.programs),
            distances_ns: [&self.distances_ns[..], &other.distances_ns].concat(),
        }
    }

    #[cfg(test)]
    pub(super) fn saw(&mut self, distance_ns: u64) {
        self.distances_ns.push(distance_ns);
    }

    /// What threads of the kernel took was taken for us: only other programs have disturbed.
    pub(super) fn leave_the_kernel_out(&mut self) {
        self.foreign = self.programs;
    }

    /// Why the measurement does not count, if it does not.
    pub(super) fn spoils(&self) -> Option<String> {
        if self.steal > STEAL_SHARE_MAX {
            return Some(format!(
                "the hypervisor took {:.1} % of the processors",
                self.steal * 100.0
            ));
        }
        if let (Some(near), Some(far)) = (
            self.distances_ns.iter().min(),
            self.distances_ns.iter().max(),
        ) && *far > *near * DISTANCE_RATIO_MAX
        {
            return Some(format!(
                "the hypervisor moved the processors: a cache line took {near} to {far} ns there and back"
            ));
        }
        let percent = self.foreign * 100.0;
        (self.foreign > FOREIGN_SHARE_MAX)
            .then(|| format!("other programs took {percent:.1} % of the machine"))
    }

    pub(super) fn to_json(&self) -> Value {
        json!({
            "steal_share": self.steal,
            "foreign_share": self.foreign,
            "distances_ns": self.distances_ns,
        })
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "ticks of one measurement, far below 2^52"
)]
fn share(part: u64, end: &CpuTimes, start: &CpuTimes) -> f64 {
    let whole = end.total.saturating_sub(start.total).max(1);
    part as f64 / whole as f64
}

struct Snapshot {
    /// All processors together.
    all: CpuTimes,
    /// The ones that measure.
    measuring: CpuTimes,
    processes: Processes,
}

/// Sums of clock ticks.
#[derive(Debug, Default, PartialEq, Eq)]
struct CpuTimes {
    /// User and system time; interrupts count neither as ours nor as others'.
    busy: u64,
    steal: u64,
    total: u64,
}

impl Snapshot {
    fn take(cpus: &[usize]) -> Result<Self, String> {
        let stat = read("/proc/stat")?;
        let measuring = |name: &str| cpus.iter().any(|cpu| name == format!("cpu{cpu}"));
        Ok(Self {
            all: sum_cpus(&stat, |name| name == "cpu"),
            measuring: sum_cpus(&stat, measuring),
            processes: Processes::read()?,
        })
    }
}

/// Sums the lines of /proc/stat whose first word is wanted.
fn sum_cpus(stat: &str, wanted: impl Fn(&str) -> bool) -> CpuTimes {
    let mut sum = CpuTimes::default();
    for line in stat.lines() {
        let mut words = line.split_whitespace();
        if !words.next().is_some_and(&wanted) {
            continue;
        }
        // user nice system idle iowait irq softirq steal; what follows is counted in these already
        let ticks: Vec<u64> = words
            .take(8)
            .map(|word| word.parse().unwrap_or(0))
            .collect();
        sum.busy += ticks.iter().take(3).sum::<u64>();
        sum.steal += ticks.get(7).copied().unwrap_or(0);
        sum.total += ticks.iter().sum::<u64>();
    }
    sum
}

/// Established TCP connections that end at this local port.
pub(super) fn connections_at(port: u16) -> Result<usize, String> {
    Ok(count_connections(&read("/proc/net/tcp")?, port))
}

fn count_connections(table: &str, port: u16) -> usize {
    let ends_here = format!(":{port:04X}");
    let rows = table
        .lines()
        .skip(1)
        .map(|line| line.split_whitespace().collect::<Vec<_>>());
    // columns: number, local address, remote address, state (01 is established)
    rows.filter(|row| row.len() > 3 && row[1].ends_with(&ends_here) && row[3] == "01")
        .count()
}

/// What a reader of the raw results wants to know about the machine.
pub(super) fn describe() -> Value {
    let cpu_info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpu_info
        .lines()
        .find_map(|line| line.strip_prefix("model name"));
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

    const STAT: &str = "cpu  30 0 10 60 0 0 0 4 0 0\ncpu0 10 0 5 30 0 0 0 1 0 0\ncpu1 20 0 5 30 0 0 0 3 0 0\nintr 5\n";

    fn snapshot(busy: u64, steal: u64, total: u64, ours: u64, others: u64) -> Snapshot {
        let times = || CpuTimes { busy, steal, total };
        Snapshot {
            all: times(),
            measuring: times(),
            processes: Processes {
                ours,
                others,
                programs: 0,
            },
        }
    }

    #[test]
    fn sums_only_the_processors_that_are_asked_for() {
        let both = sum_cpus(STAT, |name| name == "cpu0" || name == "cpu1");
        assert_eq!(
            both,
            CpuTimes {
                busy: 40,
                steal: 4,
                total: 104
            }
        );
        assert_eq!(sum_cpus(STAT, |name| name == "cpu0").busy, 15);
    }

    #[test]
    fn threads_of_the_kernel_disturb_unless_they_work_for_us() {
        let mut end = snapshot(900, 0, 1000, 800, 100);
        let mut noise = Noise::between(&snapshot(0, 0, 0, 0, 0), &end);
        assert!(noise.spoils().is_some());
        noise.leave_the_kernel_out();
        assert_eq!(noise.spoils(), None);
        end.processes.programs = 50;
        let mut noise = Noise::between(&snapshot(0, 0, 0, 0, 0), &end);
        noise.leave_the_kernel_out();
        assert!(noise.spoils().is_some());
    }

    #[test]
    fn a_quiet_machine_spoils_nothing() {
        let noise = Noise::between(&snapshot(0, 0, 0, 0, 0), &snapshot(800, 5, 1000, 800, 10));
        assert_eq!(noise.spoils(), None);
    }

    #[test]
    fn processors_that_were_moved_spoil_a_measurement_and_those_that_are_far_do_not() {
        let mut noise = Noise {
            distances_ns: vec![320, 311, 335],
            ..Noise::default()
        };
        assert_eq!(noise.spoils(), None);
        noise.distances_ns.push(53);
        assert!(noise.spoils().expect("moved").contains("53 to 335 ns"));
    }

    #[test]
    fn what_disturbed_one_of_two_spoils_both() {
        let near = || Noise {
            distances_ns: vec![53, 60],
            ..Noise::default()
        };
        let far = Noise {
            distances_ns: vec![320, 311],
            ..Noise::default()
        };
        let stolen = Noise {
            steal: 0.02,
            ..near()
        };
        assert_eq!(near().and(&near()).spoils(), None);
        assert!(near().and(&far).spoils().is_some());
        assert!(near().and(&stolen).spoils().is_some());
        assert!(stolen.and(&near()).spoils().is_some());
    }

    #[test]
    fn steal_and_other_programs_spoil_a_measurement() {
        let steal = Noise::between(&snapshot(0, 0, 0, 0, 0), &snapshot(800, 20, 1000, 800, 0));
        assert!(steal.spoils().expect("2 % stolen").contains("hypervisor"));
        let seen = Noise::between(&snapshot(0, 0, 0, 0, 0), &snapshot(800, 0, 1000, 800, 50));
        assert!(
            seen.spoils()
                .expect("5 % elsewhere")
                .contains("other programs")
        );
        let unseen = Noise::between(&snapshot(0, 0, 0, 0, 0), &snapshot(900, 0, 1000, 800, 0));
        assert!(
            unseen
                .spoils()
                .expect("10 % unexplained")
                .contains("other programs")
        );
    }

    #[test]
    fn counts_only_established_connections_to_the_port() {
        let table = "sl local remote st\n\
            0: 0100007F:115C 00000000:0000 0A x\n\
            1: 0100007F:115C 0100007F:9000 01 x\n\
            2: 0100007F:9000 0100007F:115C 01 x\n";
        assert_eq!(count_connections(table, 0x115c), 1);
    }
}
