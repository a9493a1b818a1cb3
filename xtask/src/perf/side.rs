//! One side of a comparison: which programs run, under which load, and the numbers that come of it.
//!
//! How a side is started and measured stands in `started.rs`.

use super::{Programs, attach, spdk};
use crate::interop::install_tool;
use serde_json::Value;
use std::collections::BTreeMap;

pub(super) const TARGET_CPU: &str = "0";
pub(super) const HOST_CPU: &str = "1";
/// The size of every disk that keeps something.
pub(super) const DISK_BYTES: u64 = 1 << 30;

/// What is measured, and under which load.
#[derive(Clone, Copy, Debug)]
pub(super) struct Side {
    pub(super) server: Server,
    pub(super) client: Client,
    pub(super) disk: Disk,
    pub(super) access: Access,
    pub(super) block_bytes: u32,
    pub(super) depth: u32,
    /// At both ends. In an open loop at the target alone, because there the host always spins.
    pub(super) spin: Spin,
    pub(super) data_digest: bool,
    /// Requests per second of an open loop; None: the next request follows an answer.
    pub(super) iops: Option<u32>,
    /// A second connection, of 128 KiB reads with 8 in flight, keeps the target busy meanwhile.
    pub(super) beside: bool,
    /// Shards of the target, and as many cores of the host.
    pub(super) shards: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Server {
    Fabrix,
    /// The example `ceiling`, both ends of it.
    BareSockets,
    /// The example `iscsi_limit`: bare sockets in an iSCSI target's place.
    IscsiLimit,
    Tgt,
    Spdk,
    /// A block device of this machine: ours attached over FUSE, served by ours over NVMe/TCP.
    Attached,
    /// Another block device: nbdfuse's, served by nbdkit.
    NbdFuse,
    /// A file in memory under a loop device, with nothing but the kernel in between.
    LocalLoop,
    /// The file is read where it lies.
    Nobody,
}

impl Server {
    /// Whether the client opens a block device that we have made.
    pub(super) fn is_device(self) -> bool {
        matches!(self, Self::Attached | Self::NbdFuse | Self::LocalLoop)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Client {
    /// `fabrix bench`, over NVMe/TCP, or on the file itself where nobody serves it.
    Bench,
    /// `fabrix bench` over iSCSI.
    IscsiBench,
    /// libiscsi's.
    IscsiPerf,
    SpdkPerf,
    Fio,
}

impl Client {
    pub(super) fn speaks_iscsi(self) -> bool {
        matches!(self, Self::IscsiBench | Self::IscsiPerf)
    }
}

/// What is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Disk {
    Ram,
    /// Reads zeroes, forgets writes.
    Null,
    /// A file in memory, past the page cache.
    Tmpfs,
    /// A file on the disk that holds the build folder, past the page cache.
    File,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    Read,
    Write,
    Mixed { percent_read: u32 },
}

/// When a waiting end looks for the next answer instead of sleeping; the words of `--spin`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Spin {
    Auto,
    Never,
    Always,
}

/// What came of one measurement of one side.
#[derive(Clone, Debug, Default)]
pub(super) struct Measured {
    /// Numbers by name: `iops`; the latencies `p50`, `p95` and `p99` in microseconds; and
    /// `cpu`, the processor time of the target in processors.
    numbers: BTreeMap<&'static str, f64>,
    /// What the program printed.
    pub(super) raw: Value,
}

impl Side {
    /// Whether both find the same target, started with the same words.
    pub(super) fn is_served_like(&self, other: &Self) -> bool {
        (self.server, self.disk, self.spin) == (other.server, other.disk, other.spin)
            && self.client.speaks_iscsi() == other.client.speaks_iscsi()
    }

    /// The processors of each pair of a shard and a host core.
    pub(super) fn cpus(&self) -> impl Iterator<Item = [u32; 2]> {
        let shards = self.shards;
        (0..shards).map(move |shard| [shard, shards + shard])
    }

    /// The processors of the target (0) or of the host (1), as `--cores` takes them.
    pub(super) fn cores(&self, end: usize) -> String {
        let cpus: Vec<String> = self.cpus().map(|pair| pair[end].to_string()).collect();
        cpus.join(",")
    }

    /// Why this machine cannot measure this side, if so.
    pub(super) fn refusal(&self, programs: &Programs) -> Result<(), String> {
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        if cpus < 2 * self.shards as usize {
            return Err(format!("{} processors are needed", 2 * self.shards));
        }
        match (self.server, self.client) {
            (Server::Spdk, _) | (_, Client::SpdkPerf) => spdk::Spdk::find().map(|_| ()),
            (Server::Tgt, _) => install_tool("iscsi-perf").and_then(|()| install_tool("tgtd")),
            (server, _) if server.is_device() => attach::need(server),
            (_, Client::IscsiPerf) => install_tool("iscsi-perf"),
            (_, Client::Fio) => install_tool("fio"),
            _ => Ok(()),
        }?;
        match programs.path(self.disk) {
            Some(_) => install_tool("fio"),
            None => Ok(()),
        }
    }
}

impl Access {
    /// The word of fio, which `fabrix bench` understands.
    pub(super) fn fio(self) -> &'static str {
        match self {
            Self::Read => "randread",
            Self::Write => "randwrite",
            Self::Mixed { .. } => "randrw",
        }
    }

    /// The share of reads.
    pub(super) fn percent_read(self) -> u32 {
        match self {
            Self::Read => 100,
            Self::Write => 0,
            Self::Mixed { percent_read } => percent_read,
        }
    }
}

impl Spin {
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Never => "never",
            Self::Always => "always",
        }
    }
}

impl Measured {
    /// Numbers by name, of which zero means that the side does not tell.
    pub(super) fn of(numbers: impl Into<BTreeMap<&'static str, f64>>, raw: Value) -> Self {
        let numbers = numbers.into();
        Self { numbers, raw }
    }

    /// A number by its name; zero if the side does not tell.
    pub(super) fn number(&self, name: &str) -> f64 {
        self.numbers.get(name).copied().unwrap_or(0.0)
    }

    pub(super) fn add(&mut self, name: &'static str, number: f64) {
        self.numbers.insert(name, number);
    }

    /// Reads fio's keys, which `fabrix bench` prints too: the rate of both directions together, and
    /// the latency of the one that is there, or of reads in a mix.
    pub(super) fn from_fio(who: &str, text: &str, access: Access) -> Result<Self, String> {
        let raw = parse_json(who, text)?;
        let number = |path: &str| raw.pointer(path).and_then(Value::as_f64).unwrap_or(0.0);
        let iops = number("/jobs/0/read/iops") + number("/jobs/0/write/iops");
        if iops <= 0.0 {
            return Err(format!("{who} counted no requests: {raw}"));
        }
        let way = match access {
            Access::Write => "write",
            _ => "read",
        };
        // `lat` counts from when a request was due: the same as `clat` but in an open loop.
        let latency = |percent: &str| {
            let at = |kind| number(&format!("/jobs/0/{way}/{kind}/percentile/{percent}"));
            let latency_ns = match at("lat_ns") {
                0.0 => at("clat_ns"),
                latency_ns => latency_ns,
            };
            latency_ns / 1000.0
        };
        let [p50, p95, p99] = ["50.000000", "95.000000", "99.000000"].map(latency);
        let numbers = [("iops", iops), ("p50", p50), ("p95", p95), ("p99", p99)];
        Ok(Self::of(numbers, raw))
    }

    /// From what the example `ceiling` prints.
    pub(super) fn from_ceiling(text: &str) -> Result<Self, String> {
        let raw = parse_json("the ceiling", text)?;
        let number = |key: &str| raw[key].as_f64().unwrap_or(0.0);
        // Only one request at a time, and those of an open loop, have their latency taken.
        let latencies = [
            ("p50", "p50_us"),
            ("p95", "p95_us"),
            ("p99", "p99_us"),
            ("iops", "iops"),
        ];
        Ok(Self::of(
            latencies.map(|(name, key)| (name, number(key))),
            raw,
        ))
    }

    /// From a program that tells its rate alone.
    pub(super) fn rate(iops: f64, said: &str) -> Self {
        Self::of([("iops", iops)], said.trim().into())
    }
}

pub(super) fn parse_json(who: &str, text: &str) -> Result<Value, String> {
    serde_json::from_str(text).map_err(|error| format!("{who} printed no JSON ({error}): {text}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mix_counts_both_directions_and_latency_counts_from_when_a_request_was_due() {
        let text = r#"{"jobs": [{"read": {"iops": 300.0}, "write": {"iops": 700.0,
            "lat_ns": {"percentile": {"50.000000": 15000}},
            "clat_ns": {"percentile": {"50.000000": 9000, "99.000000": 40000}}}}]}"#;
        let measured = Measured::from_fio("bench", text, Access::Write).expect("numbers");
        let numbers = ["iops", "p50", "p99"].map(|name| measured.number(name));
        assert_eq!(numbers, [1000.0, 15.0, 40.0]);
    }

    #[test]
    fn nothing_done_is_no_measurement() {
        let of = |text| Measured::from_fio("fio", text, Access::Read);
        assert!(of(r#"{"jobs": [{"read": {"iops": 0}}]}"#).is_err() && of("hello").is_err());
    }
}
