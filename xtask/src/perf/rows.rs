//! What is measured, and what is good enough: one line per row.
//!
//! A row compares two sides, ours first, by one number each. The figure is the ratio, or our number
//! itself where there is no other side. A figure on the wrong side of the floor fails the run.

use super::side::{Access, Client, Disk, Measured, Server, Side, Spin};

/// `GROUP NAME | our side | what differs at the other side | number and floor`. Words of a side
/// stand in [`Side::with`].
const TABLE: &str = "
wire      4k-randread-32                     | read 4k 32                    | bare        | iops >= 0.80
wire      4k-randread-128                    | read 4k 128                   | bare        | iops >= 0.80
wire      4k-randwrite-32                    | write 4k 32                   | bare        | iops >= 0.80
wire      4k-randwrite-128                   | write 4k 128                  | bare        | iops >= 0.80
wire      4k-randread-1-p50                  | read 4k 1                     | bare        | p50 <= 1.15
wire      4k-randwrite-1-p50                 | write 4k 1                    | bare        | p50 <= 1.15
wire      128k-randread-8                    | read 128k 8                   | bare        | iops >= 0.90
wire      128k-randwrite-8                   | write 128k 8                  | bare        | iops >= 0.60
mix       8k-70-writes-32                    | mix=30 8k 32                  | bare        | iops >= 0.75
mix       16k-50-writes-32                   | mix=50 16k 32                 | bare        | iops >= 0.75
digest    digest-4k-randread-32              | read 4k 32 digest             | no-digest   | iops >= 0.65
digest    digest-4k-randwrite-32             | write 4k 32 digest            | no-digest   | iops >= 0.65
digest    digest-128k-randread-8             | read 128k 8 digest            | no-digest   | iops >= 0.65
digest    digest-128k-randwrite-8            | write 128k 8 digest           | no-digest   | iops >= 0.65
sleep     sleep-4k-randread-1-p50            | read 4k 1 sleep               | bare        | p50 <= 1.15
sleep     sleep-4k-randwrite-1-p50           | write 4k 1 sleep              | bare        | p50 <= 1.15
file      file-tmpfs-4k-randread-32          | read 4k 32 tmpfs              | nobody fio  | iops >= 0.80
file      file-tmpfs-4k-randwrite-32         | write 4k 32 tmpfs             | nobody fio  | iops >= 0.80
file      file-disk-4k-randread-32           | read 4k 32 file               | nobody fio  | iops >= 0.80
file      file-disk-4k-randwrite-32          | write 4k 32 file              | nobody fio  | iops >= 0.80
file      bench-file-tmpfs-4k-randread-32    | read 4k 32 tmpfs spin nobody  | fio         | iops >= 0.95
file      bench-file-tmpfs-4k-randwrite-32   | write 4k 32 tmpfs spin nobody | fio         | iops >= 0.90
file      bench-file-tmpfs-128k-randwrite-4  | write 128k 4 tmpfs spin nobody| fio         | iops >= 0.90
file      bench-file-disk-4k-randread-32     | read 4k 32 file spin nobody   | fio         | iops >= 0.95
file      bench-file-disk-4k-randread-32-p50 | read 4k 32 file spin nobody   | fio         | p50 <= 1.10
file      bench-file-disk-4k-randread-32-p99 | read 4k 32 file spin nobody   | fio         | p99 <= 1.25
file      bench-file-asleep-4k-randread-32   | read 4k 32 file nobody        | fio         | iops >= 0.75
open-loop cpu-at-1k-iops                     | read 4k 128 rate=1000         |             | cpu <= 0.10
open-loop cpu-at-10k-iops                    | read 4k 128 rate=10000        |             | cpu <= 0.30
open-loop cpu-at-50k-iops                    | read 4k 128 rate=50000        |             | cpu <= 1.00
open-loop p99-at-10k-iops                    | read 4k 128 rate=10000        | spin        | p99 <= 2.00
open-loop asleep-at-10k-iops-p50             | read 4k 128 rate=10000        | bare sleep  | p50 <= 1.25
open-loop asleep-at-10k-iops-p95             | read 4k 128 rate=10000        | bare sleep  | p95 <= 1.25
fair      fair-4k-beside-128k-p99            | read 4k 1 sleep beside        | alone       | p99 <= 3.00
iscsi     iscsi-tgt-ram-4k-randread-32       | read 4k 32 iscsi-perf         | tgt         | iops >= 5.00
iscsi     iscsi-tgt-null-4k-randread-32      | read 4k 32 iscsi-perf null    | tgt         | iops >= 3.00
iscsi     iscsi-tgt-ram-4k-randread-1        | read 4k 1 iscsi-perf          | tgt         | iops >= 1.50
iscsi     iscsi-limit-ram-4k-randread-32     | read 4k 32 iscsi-perf         | iscsi-limit | iops >= 0.80
iscsi     iscsi-limit-null-4k-randread-32    | read 4k 32 iscsi-perf null    | iscsi-limit | iops >= 0.80
iscsi     iscsi-host-4k-randread-32          | read 4k 32 iscsi              | nvme        | iops >= 0.80
iscsi     iscsi-host-4k-randwrite-32         | write 4k 32 iscsi             | nvme        | iops >= 0.80
iscsi     iscsi-host-128k-randread-8         | read 128k 8 iscsi             | nvme        | iops >= 0.80
attach    attach-nbdfuse-4k-randread-32      | read 4k 32 attached fio       | nbdfuse     | iops >= 2.00
attach    attach-nbdfuse-4k-randwrite-32     | write 4k 32 attached fio      | nbdfuse     | iops >= 2.00
attach    attach-loop-4k-randread-32         | read 4k 32 attached fio       | loop        | iops >= 0.20
attach    attach-loop-4k-randwrite-32        | write 4k 32 attached fio      | loop        | iops >= 0.20
spdk      spdk-host-4k-randread-32           | read 4k 32 spin spdk-perf     | spdk        | iops >= 1.00
spdk      spdk-host-4k-randread-128          | read 4k 128 spin spdk-perf    | spdk        | iops >= 1.00
spdk      spdk-host-4k-randwrite-32          | write 4k 32 spin spdk-perf    | spdk        | iops >= 1.00
spdk      spdk-host-4k-randwrite-128         | write 4k 128 spin spdk-perf   | spdk        | iops >= 1.00
spdk      spdk-host-128k-randread-8          | read 128k 8 spin spdk-perf    | spdk        | iops >= 1.00
spdk      spdk-host-128k-randwrite-8         | write 128k 8 spin spdk-perf   | spdk        | iops >= 1.00
spdk      spdk-target-4k-randread-32         | read 4k 32 spin spdk          | spdk-perf   | iops >= 1.00
spdk      spdk-target-4k-randread-128        | read 4k 128 spin spdk         | spdk-perf   | iops >= 1.00
spdk      spdk-target-4k-randwrite-32        | write 4k 32 spin spdk         | spdk-perf   | iops >= 1.00
spdk      spdk-target-4k-randwrite-128       | write 4k 128 spin spdk        | spdk-perf   | iops >= 1.00
spdk      spdk-target-128k-randread-8        | read 128k 8 spin spdk         | spdk-perf   | iops >= 1.00
spdk      spdk-target-128k-randwrite-8       | write 128k 8 spin spdk        | spdk-perf   | iops >= 1.00
spdk      spdk-file-disk-4k-randread-32      | read 4k 32 file spin          | spdk spdk-perf | iops >= 1.00
spdk      spdk-file-disk-4k-randwrite-32     | write 4k 32 file spin         | spdk spdk-perf | iops >= 1.00
";
/// The names of numbers in [`Measured`].
const NUMBERS: [&str; 5] = ["iops", "p50", "p95", "p99", "cpu"];
/// The group that runs when the command line names no rows.
const USUAL: &str = "wire";

/// One line of the table.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) name: &'static str,
    pub(super) group: &'static str,
    pub(super) ours: Side,
    pub(super) other: Option<Side>,
    /// The name of the number by which sides are compared.
    pub(super) number: &'static str,
    pub(super) floor: Floor,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Floor {
    AtLeast(f64),
    AtMost(f64),
}

pub(super) fn all() -> Vec<Row> {
    let lines = TABLE.lines().filter(|line| !line.is_empty());
    let row = |line| Row::parse(line).unwrap_or_else(|| panic!("a row of another form: {line}"));
    lines.map(row).collect()
}

/// The rows of `--scale`: 1, 2, 4 and 8 shards, with as many host cores on other processors. The
/// floor is 0, because the bare sockets show how far the machine itself scales.
pub(super) fn scale() -> Vec<Row> {
    let loads = [
        ("read", "4k 32"),
        ("write", "4k 32"),
        ("read", "128k 8"),
        ("write", "128k 8"),
    ];
    let mut rows = Vec::new();
    for shards in [1, 2, 4, 8] {
        for disk in ["null", "ram"] {
            for (access, load) in loads {
                let name = format!("{shards}-{disk}-{access}-{}", load.replace(' ', "-"));
                let side = format!("{access} {load} {disk} shards={shards}");
                let line = format!("scale {name} | {side} | bare | iops >= 0.00");
                rows.extend(Row::parse(line.leak()));
            }
        }
    }
    rows
}

impl Row {
    fn parse(line: &'static str) -> Option<Self> {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let [head, ours, other, judged] = cells[..] else {
            return None;
        };
        let (group, name) = head.split_once(' ')?;
        let (number, floor) = judged.split_once(' ')?;
        let (sign, bound) = floor.split_once(' ')?;
        let bound = bound.parse().ok()?;
        let ours = Side::BASE.with(ours)?;
        let other = match other {
            "" => None,
            words => Some(ours.with(words)?),
        };
        Some(Self {
            name: name.trim(),
            group,
            ours,
            other,
            number: NUMBERS.into_iter().find(|known| *known == number)?,
            floor: match sign {
                ">=" => Floor::AtLeast(bound),
                "<=" => Floor::AtMost(bound),
                _ => return None,
            },
        })
    }

    /// Whether the row runs when the command line names no rows.
    pub(super) fn is_usual(&self) -> bool {
        self.group == USUAL
    }

    pub(super) fn sides(&self) -> impl Iterator<Item = &Side> {
        std::iter::once(&self.ours).chain(&self.other)
    }

    /// The number of a side.
    ///
    /// # Errors
    /// It is zero: nothing was measured.
    pub(super) fn number_of(&self, measured: &Measured) -> Result<f64, String> {
        let number = measured.number(self.number);
        (number > 0.0)
            .then_some(number)
            .ok_or_else(|| format!("no {} in {}", self.number, measured.raw))
    }

    /// Whether threads of the kernel do a part of the measured work: that of a loop device, or
    /// writes to a disk.
    pub(super) fn is_the_kernels(&self) -> bool {
        let writes_a_file = self.ours.disk == Disk::File && self.ours.access != Access::Read;
        self.ours.server.is_device() || writes_a_file
    }
}

impl Side {
    /// Random 4 KiB reads of a RAM disk over NVMe/TCP by our host.
    pub(super) const BASE: Self = Self {
        server: Server::Fabrix,
        client: Client::Bench,
        disk: Disk::Ram,
        access: Access::Read,
        block_bytes: 4096,
        depth: 1,
        spin: Spin::Auto,
        data_digest: false,
        iops: None,
        beside: false,
        shards: 1,
    };

    /// This side with what the words say; None: a word is unknown.
    fn with(mut self, words: &str) -> Option<Self> {
        for word in words.split_whitespace() {
            match word {
                "bare" => self.server = Server::BareSockets,
                "iscsi-limit" => self.server = Server::IscsiLimit,
                "tgt" => self.server = Server::Tgt,
                "spdk" => self.server = Server::Spdk,
                "attached" => self.server = Server::Attached,
                "nbdfuse" => self.server = Server::NbdFuse,
                "loop" => self.server = Server::LocalLoop,
                "nobody" => self.server = Server::Nobody,
                "nvme" => self.client = Client::Bench,
                "iscsi" => self.client = Client::IscsiBench,
                "iscsi-perf" => self.client = Client::IscsiPerf,
                "spdk-perf" => self.client = Client::SpdkPerf,
                "fio" => self.client = Client::Fio,
                "ram" => self.disk = Disk::Ram,
                "null" => self.disk = Disk::Null,
                "tmpfs" => self.disk = Disk::Tmpfs,
                "file" => self.disk = Disk::File,
                "read" => self.access = Access::Read,
                "write" => self.access = Access::Write,
                "sleep" => self.spin = Spin::Never,
                "spin" => self.spin = Spin::Always,
                "digest" | "no-digest" => self.data_digest = word == "digest",
                "beside" | "alone" => self.beside = word == "beside",
                _ => self.set(word)?,
            }
        }
        Some(self)
    }

    /// A word with a number in it.
    fn set(&mut self, word: &str) -> Option<()> {
        if let Some(kib) = word.strip_suffix('k') {
            self.block_bytes = kib.parse::<u32>().ok()? << 10;
        } else if let Some((key, number)) = word.split_once('=') {
            let number = number.parse().ok()?;
            match key {
                "mix" => {
                    self.access = Access::Mixed {
                        percent_read: number,
                    }
                }
                "rate" => self.iops = Some(number),
                "shards" => self.shards = number,
                _ => return None,
            }
        } else {
            self.depth = word.parse().ok()?;
        }
        Some(())
    }
}

impl Floor {
    pub(super) fn bound(self) -> f64 {
        let (Self::AtLeast(bound) | Self::AtMost(bound)) = self;
        bound
    }

    pub(super) fn is_met(self, figure: f64) -> bool {
        match self {
            Self::AtLeast(bound) => figure >= bound,
            Self::AtMost(bound) => figure <= bound,
        }
    }
}

impl std::fmt::Display for Floor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let words = match self {
            Self::AtLeast(_) => "at least",
            Self::AtMost(_) => "at most",
        };
        write!(f, "{words} {:.2}", self.bound())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(name: &str) -> Row {
        let mut rows = all().into_iter();
        rows.find(|row| row.name == name).expect("a row")
    }

    #[test]
    fn every_row_is_understood_and_has_a_name_of_its_own() {
        let rows = all();
        let names: std::collections::BTreeSet<_> = rows.iter().map(|row| row.name).collect();
        assert_eq!(names.len(), rows.len());
        assert!(Side::BASE.with("read 4k sometimes").is_none());
    }

    #[test]
    fn the_other_side_is_ours_but_for_its_words() {
        let row = row("iscsi-tgt-null-4k-randread-32");
        let other = row.other.expect("two sides");
        assert_eq!(
            (other.server, other.client, other.disk, other.depth),
            (Server::Tgt, Client::IscsiPerf, Disk::Null, 32)
        );
        assert_eq!(row.ours.server, Server::Fabrix);
        assert_eq!(row.floor, Floor::AtLeast(3.0));
    }

    #[test]
    fn threads_of_the_kernel_are_left_out_where_they_do_a_part_of_the_work() {
        assert!(row("file-disk-4k-randwrite-32").is_the_kernels());
        assert!(row("attach-loop-4k-randread-32").is_the_kernels());
        assert!(!row("file-disk-4k-randread-32").is_the_kernels());
        assert!(!row("file-tmpfs-4k-randwrite-32").is_the_kernels());
    }

    #[test]
    fn sides_that_differ_in_the_host_alone_share_a_target() {
        let shares = |name| {
            let row = row(name);
            row.ours.is_served_like(&row.other.expect("two sides"))
        };
        assert!(shares("spdk-target-4k-randread-32") && shares("digest-4k-randread-32"));
        assert!(!shares("4k-randread-32") && !shares("spdk-host-4k-randread-32"));
        assert!(!shares("p99-at-10k-iops") && !shares("iscsi-host-4k-randread-32"));
    }
}
