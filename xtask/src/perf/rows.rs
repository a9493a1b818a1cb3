//! What is measured, and what is good enough: data only.
//!
//! A row compares two sides, ours first, by one number each; the figure is the ratio, or our number
//! itself where there is nothing to compare with. The goal fails a run. The aim is where the row is
//! to arrive one day: it is shown beside the goal and fails nothing.

use super::side::{Access, Client, Disk, Measured, Server, Side, Spin};

/// One line of the table.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) name: &'static str,
    pub(super) group: Group,
    pub(super) load: Load,
    pub(super) goal: Goal,
    pub(super) aim: Goal,
}

/// What belongs together, by the word that `--only` takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Group {
    Wire,
    Idle,
    Mix,
    Digest,
    Sleep,
    File,
    OpenLoop,
    Fair,
    Many,
    Iscsi,
    Attach,
    Spdk,
}

/// What is asked of the target.
#[derive(Clone, Copy, Debug)]
pub(super) enum Load {
    /// The same load on two sides, or on ours alone.
    Sides {
        ours: Side,
        other: Option<Side>,
        number: Number,
    },
    /// So many connections that ask for nothing.
    Connections { count: u32, number: Held },
}

/// The number of a side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Number {
    /// Requests per second.
    Iops,
    /// Latency of requests, in microseconds: the median, and what one of twenty and of a hundred
    /// exceeds.
    P50,
    P95,
    P99,
    /// Processor time of the target, in processors.
    TargetCpu,
}

/// What is looked at while connections stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Held {
    /// Processor time of the target, in processors.
    Cpu,
    /// Memory of the target for each connection, in KiB.
    Memory,
    /// How long one more host takes to connect, read and leave, against the same with no other
    /// connection.
    OneMore,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Goal {
    AtLeast(f64),
    AtMost(f64),
}

const KIB: u32 = 1024;
/// Random 4 KiB reads of a RAM disk over NVMe/TCP, 32 in flight.
const BASE: Side = Side {
    server: Server::Fabrix,
    client: Client::Bench,
    disk: Disk::Ram,
    access: Access::Read,
    block_bytes: 4 * KIB,
    depth: 32,
    spin: Spin::Auto,
    data_digest: false,
    iops: None,
    beside: false,
};
const SMALL: Side = Side { depth: 1, ..BASE };
const LARGE: Side = Side {
    block_bytes: 128 * KIB,
    depth: 8,
    ..BASE
};
const TMPFS: Side = Side {
    disk: Disk::Tmpfs,
    ..BASE
};
const FILE: Side = Side {
    disk: Disk::File,
    ..BASE
};
/// A depth at which no request of an open loop waits for another's place.
const OPEN: Side = deep(BASE);
const OPEN_10K: Side = Side {
    iops: Some(10_000),
    ..OPEN
};

pub(super) const ROWS: &[Row] = &[
    wire("4k-randread-32", BASE, 0.60, 0.90),
    wire("4k-randread-128", deep(BASE), 0.60, 0.90),
    wire("4k-randwrite-32", writes(BASE), 0.60, 0.85),
    wire("4k-randwrite-128", deep(writes(BASE)), 0.60, 0.85),
    latency("4k-randread-1-p50", Group::Wire, SMALL, 1.40, 1.12),
    latency("4k-randwrite-1-p50", Group::Wire, writes(SMALL), 1.40, 1.12),
    wire("128k-randread-8", LARGE, 0.70, 0.95),
    wire("128k-randwrite-8", writes(LARGE), 0.70, 0.95),
    idle("idle-16-connections", Group::Idle, 16),
    mix("8k-70-writes-32", 30, 8 * KIB),
    mix("16k-50-writes-32", 50, 16 * KIB),
    digest("digest-4k-randread-32", BASE),
    digest("digest-4k-randwrite-32", writes(BASE)),
    digest("digest-128k-randread-8", LARGE),
    digest("digest-128k-randwrite-8", writes(LARGE)),
    latency(
        "sleep-4k-randread-1-p50",
        Group::Sleep,
        sleeping(SMALL),
        1.15,
        1.15,
    ),
    latency(
        "sleep-4k-randwrite-1-p50",
        Group::Sleep,
        sleeping(writes(SMALL)),
        1.15,
        1.15,
    ),
    file("file-tmpfs-4k-randread-32", TMPFS),
    file("file-tmpfs-4k-randwrite-32", writes(TMPFS)),
    file("file-disk-4k-randread-32", FILE),
    file("file-disk-4k-randwrite-32", writes(FILE)),
    bench_file("bench-file-tmpfs-4k-randread-32", TMPFS, Number::Iops),
    bench_file("bench-file-disk-4k-randread-32", FILE, Number::Iops),
    bench_file("bench-file-disk-4k-randread-32-p50", FILE, Number::P50),
    bench_file("bench-file-disk-4k-randread-32-p99", FILE, Number::P99),
    Row {
        aim: Goal::AtLeast(0.95),
        ..row(
            "bench-file-asleep-4k-randread-32",
            Group::File,
            on_the_file(FILE, Number::Iops),
            Goal::AtLeast(0.75),
        )
    },
    idle("idle-1-connection", Group::Many, 1),
    idle("idle-64-connections", Group::Many, 64),
    idle("idle-1000-connections", Group::Many, 1000),
    memory("memory-64-connections", 64),
    memory("memory-1000-connections", 1000),
    row(
        "one-more-than-10000",
        Group::Many,
        Load::Connections {
            count: 10_000,
            number: Held::OneMore,
        },
        Goal::AtMost(1.5),
    ),
    open_loop_cpu("cpu-at-1k-iops", 1_000, 0.10),
    open_loop_cpu("cpu-at-10k-iops", 10_000, 0.30),
    open_loop_cpu("cpu-at-50k-iops", 50_000, 1.00),
    row(
        "p99-at-10k-iops",
        Group::OpenLoop,
        against(
            OPEN_10K,
            Side {
                spin: Spin::Always,
                ..OPEN_10K
            },
            Number::P99,
        ),
        Goal::AtMost(2.0),
    ),
    asleep_at_10k("asleep-at-10k-iops-p50", Number::P50),
    asleep_at_10k("asleep-at-10k-iops-p95", Number::P95),
    row(
        "fair-4k-beside-128k-p99",
        Group::Fair,
        against(
            sleeping(Side {
                beside: true,
                ..SMALL
            }),
            sleeping(SMALL),
            Number::P99,
        ),
        Goal::AtMost(3.0),
    ),
    tgt("iscsi-tgt-ram-4k-randread-32", Disk::Ram, 32, 5.0),
    tgt("iscsi-tgt-null-4k-randread-32", Disk::Null, 32, 3.0),
    tgt("iscsi-tgt-ram-4k-randread-1", Disk::Ram, 1, 1.5),
    iscsi_limit("iscsi-limit-ram-4k-randread-32", Disk::Ram),
    iscsi_limit("iscsi-limit-null-4k-randread-32", Disk::Null),
    iscsi_host("iscsi-host-4k-randread-32", BASE),
    iscsi_host("iscsi-host-4k-randwrite-32", writes(BASE)),
    iscsi_host("iscsi-host-128k-randread-8", LARGE),
    attached("attach-nbdfuse-4k-randread-32", BASE, Server::NbdFuse, 2.0),
    attached(
        "attach-nbdfuse-4k-randwrite-32",
        writes(BASE),
        Server::NbdFuse,
        2.0,
    ),
    attached("attach-loop-4k-randread-32", BASE, Server::LocalLoop, 0.20),
    attached(
        "attach-loop-4k-randwrite-32",
        writes(BASE),
        Server::LocalLoop,
        0.20,
    ),
    spdk_host("spdk-host-4k-randread-32", BASE),
    spdk_host("spdk-host-4k-randread-128", deep(BASE)),
    spdk_host("spdk-host-4k-randwrite-32", writes(BASE)),
    spdk_host("spdk-host-4k-randwrite-128", deep(writes(BASE))),
    spdk_host("spdk-host-128k-randread-8", LARGE),
    spdk_host("spdk-host-128k-randwrite-8", writes(LARGE)),
    spdk_target("spdk-target-4k-randread-32", BASE),
    spdk_target("spdk-target-4k-randread-128", deep(BASE)),
    spdk_target("spdk-target-4k-randwrite-32", writes(BASE)),
    spdk_target("spdk-target-4k-randwrite-128", deep(writes(BASE))),
    spdk_target("spdk-target-128k-randread-8", LARGE),
    spdk_target("spdk-target-128k-randwrite-8", writes(LARGE)),
    beside_spdk("spdk-file-disk-4k-randread-32", FILE),
    beside_spdk("spdk-file-disk-4k-randwrite-32", writes(FILE)),
];

/// A row whose goal is its aim.
const fn row(name: &'static str, group: Group, load: Load, goal: Goal) -> Row {
    Row {
        name,
        group,
        load,
        goal,
        aim: goal,
    }
}

const fn against(ours: Side, other: Side, number: Number) -> Load {
    Load::Sides {
        ours,
        other: Some(other),
        number,
    }
}

const fn writes(side: Side) -> Side {
    Side {
        access: Access::Write,
        ..side
    }
}

const fn deep(side: Side) -> Side {
    Side { depth: 128, ..side }
}

const fn sleeping(side: Side) -> Side {
    Side {
        spin: Spin::Never,
        ..side
    }
}

const fn bare(side: Side) -> Side {
    Side {
        server: Server::BareSockets,
        ..side
    }
}

const fn wire(name: &'static str, side: Side, goal: f64, aim: f64) -> Row {
    Row {
        aim: Goal::AtLeast(aim),
        ..row(
            name,
            Group::Wire,
            against(side, bare(side), Number::Iops),
            Goal::AtLeast(goal),
        )
    }
}

const fn latency(name: &'static str, group: Group, side: Side, goal: f64, aim: f64) -> Row {
    Row {
        aim: Goal::AtMost(aim),
        ..row(
            name,
            group,
            against(side, bare(side), Number::P50),
            Goal::AtMost(goal),
        )
    }
}

const fn mix(name: &'static str, percent_read: u32, block_bytes: u32) -> Row {
    let side = Side {
        access: Access::Mixed { percent_read },
        block_bytes,
        ..BASE
    };
    row(
        name,
        Group::Mix,
        against(side, bare(side), Number::Iops),
        Goal::AtLeast(0.85),
    )
}

const fn digest(name: &'static str, side: Side) -> Row {
    let digested = Side {
        data_digest: true,
        ..side
    };
    row(
        name,
        Group::Digest,
        against(digested, side, Number::Iops),
        Goal::AtLeast(0.80),
    )
}

const fn file(name: &'static str, side: Side) -> Row {
    let fio = Side {
        server: Server::Nobody,
        client: Client::Fio,
        ..side
    };
    row(
        name,
        Group::File,
        against(side, fio, Number::Iops),
        Goal::AtLeast(0.85),
    )
}

/// The two load generators on the same file, with nothing in between: they should see the same
/// disk. Ours looks for answers all the time: how it sleeps is another question, which has a row of
/// its own.
const fn bench_file(name: &'static str, side: Side, number: Number) -> Row {
    let side = Side {
        spin: Spin::Always,
        ..side
    };
    let goal = match number {
        Number::P50 => Goal::AtMost(1.10),
        Number::P99 => Goal::AtMost(1.25),
        Number::Iops | Number::P95 | Number::TargetCpu => Goal::AtLeast(0.95),
    };
    row(name, Group::File, on_the_file(side, number), goal)
}

const fn on_the_file(side: Side, number: Number) -> Load {
    let ours = Side {
        server: Server::Nobody,
        ..side
    };
    let fio = Side {
        client: Client::Fio,
        ..ours
    };
    against(ours, fio, number)
}

const fn idle(name: &'static str, group: Group, count: u32) -> Row {
    let load = Load::Connections {
        count,
        number: Held::Cpu,
    };
    Row {
        aim: Goal::AtMost(0.005),
        ..row(name, group, load, Goal::AtMost(0.01))
    }
}

const fn memory(name: &'static str, count: u32) -> Row {
    let load = Load::Connections {
        count,
        number: Held::Memory,
    };
    row(name, Group::Many, load, Goal::AtMost(64.0))
}

const fn open_loop_cpu(name: &'static str, iops: u32, at_most: f64) -> Row {
    let load = Load::Sides {
        ours: Side {
            iops: Some(iops),
            ..OPEN
        },
        other: None,
        number: Number::TargetCpu,
    };
    row(name, Group::OpenLoop, load, Goal::AtMost(at_most))
}

/// Our target as it is, which sleeps between most requests of this load, and bare sockets whose
/// target does: what is left when nobody can help how long a machine takes to wake. Of p95, because
/// p99 is that of the machine's stalls.
const fn asleep_at_10k(name: &'static str, number: Number) -> Row {
    let load = against(OPEN_10K, bare(sleeping(OPEN_10K)), number);
    Row {
        aim: Goal::AtMost(1.15),
        ..row(name, Group::OpenLoop, load, Goal::AtMost(1.25))
    }
}

const fn tgt(name: &'static str, disk: Disk, depth: u32, at_least: f64) -> Row {
    under_iscsi_perf(name, Server::Tgt, disk, depth, at_least)
}

/// What libiscsi's client shows of us, as a share of the most that it was seen to show of anybody:
/// a row against tgt, divided by this, is the most that such a row can be here. The goal leaves a
/// tenth to the spread of runs, and a tenth to answering at once: waiting for more to answer pays
/// here, and costs hosts that wait for every answer.
const fn iscsi_limit(name: &'static str, disk: Disk) -> Row {
    Row {
        aim: Goal::AtLeast(0.90),
        ..under_iscsi_perf(name, Server::IscsiLimit, disk, 32, 0.80)
    }
}

const fn under_iscsi_perf(
    name: &'static str,
    server: Server,
    disk: Disk,
    depth: u32,
    at_least: f64,
) -> Row {
    let ours = Side {
        client: Client::IscsiPerf,
        disk,
        depth,
        ..BASE
    };
    row(
        name,
        Group::Iscsi,
        against(ours, Side { server, ..ours }, Number::Iops),
        Goal::AtLeast(at_least),
    )
}

const fn iscsi_host(name: &'static str, side: Side) -> Row {
    let over_iscsi = Side {
        client: Client::IscsiBench,
        ..side
    };
    row(
        name,
        Group::Iscsi,
        against(over_iscsi, side, Number::Iops),
        Goal::AtLeast(0.80),
    )
}

/// fio on a block device: our remote disk's, and another.
const fn attached(name: &'static str, side: Side, other: Server, at_least: f64) -> Row {
    let ours = Side {
        server: Server::Attached,
        client: Client::Fio,
        ..side
    };
    let theirs = Side {
        server: other,
        ..ours
    };
    row(
        name,
        Group::Attach,
        against(ours, theirs, Number::Iops),
        Goal::AtLeast(at_least),
    )
}

/// SPDK's host at our target.
const fn spdk_host(name: &'static str, side: Side) -> Row {
    let client = Client::SpdkPerf;
    beside_spdk(name, Side { client, ..side })
}

/// Our host at SPDK's target.
const fn spdk_target(name: &'static str, side: Side) -> Row {
    let server = Server::Spdk;
    beside_spdk(name, Side { server, ..side })
}

/// One end ours and one SPDK's, or both ours, and both SPDK's. SPDK's never sleep, so ours does not
/// either.
const fn beside_spdk(name: &'static str, side: Side) -> Row {
    let side = Side {
        spin: Spin::Always,
        ..side
    };
    let both = Side {
        server: Server::Spdk,
        client: Client::SpdkPerf,
        ..side
    };
    row(
        name,
        Group::Spdk,
        against(side, both, Number::Iops),
        Goal::AtLeast(1.0),
    )
}

impl Group {
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Wire => "wire",
            Self::Idle => "idle",
            Self::Mix => "mix",
            Self::Digest => "digest",
            Self::Sleep => "sleep",
            Self::File => "file",
            Self::OpenLoop => "open-loop",
            Self::Fair => "fair",
            Self::Many => "many",
            Self::Iscsi => "iscsi",
            Self::Attach => "attach",
            Self::Spdk => "spdk",
        }
    }

    /// Whether it runs when nobody says what to run.
    pub(super) fn is_usual(self) -> bool {
        matches!(self, Self::Wire | Self::Idle)
    }
}

impl Number {
    /// The number of a side, which is above zero where something was measured.
    pub(super) fn of(self, measured: &Measured) -> Result<f64, String> {
        let number = match self {
            Self::Iops => measured.iops,
            Self::P50 => measured.p50_us,
            Self::P95 => measured.p95_us,
            Self::P99 => measured.p99_us,
            Self::TargetCpu => measured.target_cpu,
        };
        if number > 0.0 {
            return Ok(number);
        }
        Err(format!("no {self:?} in {}", measured.raw))
    }
}

impl Load {
    /// How many pairs this load needs when the user asked for `asked`: idle connections do not vary
    /// much.
    pub(super) fn pairs(self, asked: usize) -> usize {
        match self {
            Self::Connections { .. } => asked.min(3),
            Self::Sides { .. } => asked,
        }
    }

    /// Whether threads of the kernel do a part of what is measured: the work of a loop device, what
    /// is written to a disk, and the end of many connections.
    pub(super) fn is_the_kernels(self) -> bool {
        match self {
            Self::Sides { ours, .. } => {
                let reads = ours.access == Access::Read;
                ours.server.is_device() || (ours.disk == Disk::File && !reads)
            }
            Self::Connections { number, .. } => number == Held::OneMore,
        }
    }

    /// Whether other programs change the figure: what a process itself used is counted, whoever
    /// else ran.
    pub(super) fn needs_quiet(self) -> bool {
        !matches!(
            self,
            Self::Connections {
                number: Held::Cpu | Held::Memory,
                ..
            }
        )
    }
}

impl Goal {
    pub(super) fn bound(self) -> f64 {
        match self {
            Self::AtLeast(bound) | Self::AtMost(bound) => bound,
        }
    }

    pub(super) fn is_met(self, figure: f64) -> bool {
        match self {
            Self::AtLeast(bound) => figure >= bound,
            Self::AtMost(bound) => figure <= bound,
        }
    }
}

impl std::fmt::Display for Goal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (words, bound) = match self {
            Self::AtLeast(bound) => ("at least", bound),
            Self::AtMost(bound) => ("at most", bound),
        };
        let digits = if *bound < 0.01 { 3 } else { 2 };
        write!(f, "{words} {bound:.digits$}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_goal_is_met_at_its_bound() {
        assert!(Goal::AtLeast(0.6).is_met(0.6) && !Goal::AtLeast(0.6).is_met(0.59));
        assert!(Goal::AtMost(1.4).is_met(1.4) && !Goal::AtMost(1.4).is_met(1.41));
        assert!(!Goal::AtLeast(0.6).is_met(f64::NAN) && !Goal::AtMost(1.4).is_met(f64::NAN));
        assert_eq!(Goal::AtMost(0.005).to_string(), "at most 0.005");
    }

    #[test]
    fn every_row_has_a_name_of_its_own() {
        let names: std::collections::BTreeSet<_> = ROWS.iter().map(|row| row.name).collect();
        assert_eq!(names.len(), ROWS.len());
    }

    #[test]
    fn threads_of_the_kernel_are_left_out_where_they_do_a_part_of_the_work() {
        let is_the_kernels = |name| {
            let row = ROWS.iter().find(|row| row.name == name);
            row.expect("a row").load.is_the_kernels()
        };
        for name in [
            "file-disk-4k-randwrite-32",
            "attach-loop-4k-randread-32",
            "one-more-than-10000",
        ] {
            assert!(is_the_kernels(name), "{name}");
        }
        for name in [
            "file-disk-4k-randread-32",
            "file-tmpfs-4k-randwrite-32",
            "bench-file-disk-4k-randread-32",
        ] {
            assert!(!is_the_kernels(name), "{name}");
        }
    }

    #[test]
    fn sides_that_differ_in_the_host_alone_share_a_target() {
        let shares = |name| {
            let row = ROWS.iter().find(|row| row.name == name);
            let Load::Sides { ours, other, .. } = row.expect("a row").load else {
                return false;
            };
            ours.is_served_like(&other.expect("two sides"))
        };
        assert!(shares("spdk-target-4k-randread-32") && shares("digest-4k-randread-32"));
        for name in [
            "4k-randread-32",
            "spdk-host-4k-randread-32",
            "p99-at-10k-iops",
            "iscsi-host-4k-randread-32",
        ] {
            assert!(!shares(name), "{name}");
        }
    }

    #[test]
    fn no_aim_is_easier_than_its_goal() {
        for row in ROWS {
            let (Goal::AtLeast(bound) | Goal::AtMost(bound)) = row.aim;
            assert!(row.goal.is_met(bound), "{}", row.name);
        }
    }
}
