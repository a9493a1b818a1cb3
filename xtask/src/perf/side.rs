//! One side of a comparison: which programs, with what load; and how it is measured.
//!
//! Both sides of a row are run as their users would run them: their binaries, their options, what
//! they print. Targets that stay from one measurement to the next are in `started.rs`; here is what
//! starts and ends with each.

use super::{Programs, attach, fio, iscsi, spdk};
use serde_json::Value;

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
    /// At both ends; in an open loop at the target, because there the host always spins.
    pub(super) spin: Spin,
    pub(super) data_digest: bool,
    /// Offered requests per second, in an open loop; None: the next request follows an answer.
    pub(super) iops: Option<u32>,
    /// A second connection, of 128 KiB reads with 8 in flight, keeps the target busy meanwhile.
    pub(super) beside: bool,
}

/// Who serves.
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
    /// Another: nbdfuse's, served by nbdkit.
    NbdFuse,
    /// And one that is a file in memory, with nothing but the kernel in between.
    LocalLoop,
    /// The file is read where it lies.
    Nobody,
}

impl Server {
    /// Whether what is asked is a block device that we have made, whose work threads of the kernel
    /// do.
    pub(super) fn is_device(self) -> bool {
        matches!(self, Self::Attached | Self::NbdFuse | Self::LocalLoop)
    }
}

/// Who asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Client {
    /// `fabrix bench`, over NVMe/TCP, or on the file itself where nobody serves it.
    Bench,
    /// The same over iSCSI.
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
    /// A file in memory, and one on the disk that holds the build folder; both past the page cache.
    Tmpfs,
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

/// What came of one measurement of one side; what it does not tell is zero.
#[derive(Clone, Debug, Default)]
pub(super) struct Measured {
    pub(super) iops: f64,
    pub(super) p50_us: f64,
    pub(super) p95_us: f64,
    pub(super) p99_us: f64,
    /// Processor time of the target, in processors.
    pub(super) target_cpu: f64,
    /// What the program printed.
    pub(super) raw: Value,
}

impl Side {
    /// Whether it is one connection of our host to our target, with a disk that needs nothing
    /// prepared.
    pub(super) fn is_plain(&self) -> bool {
        let ours = self.server == Server::Fabrix && self.client == Client::Bench;
        ours && !self.beside && matches!(self.disk, Disk::Ram | Disk::Null)
    }

    /// Whether both find the same target, started with the same words.
    pub(super) fn is_served_like(&self, other: &Self) -> bool {
        (self.server, self.disk, self.spin) == (other.server, other.disk, other.spin)
            && self.client.speaks_iscsi() == other.client.speaks_iscsi()
    }

    /// Why this machine cannot measure this side, if so.
    pub(super) fn refusal(&self, programs: &Programs) -> Result<(), String> {
        match (self.server, self.client) {
            (Server::Spdk, _) | (_, Client::SpdkPerf) => spdk::Spdk::find().map(|_| ()),
            (Server::Tgt, _) => iscsi::need_tgt(),
            (server, _) if server.is_device() => attach::need(server),
            (_, Client::IscsiPerf) => iscsi::need_iscsi_perf(),
            (_, Client::IscsiBench) => programs.reaches_iscsi(),
            (_, Client::Fio) => fio::need(),
            _ => Ok(()),
        }?;
        match self.disk {
            Disk::Tmpfs | Disk::File => fio::need(),
            Disk::Ram | Disk::Null => Ok(()),
        }
    }

    /// Measures for so many seconds, after warming up, where nothing has to be started first.
    pub(super) fn measure(&self, programs: &Programs, seconds: u32) -> Result<Measured, String> {
        match (self.server, self.client) {
            (Server::Nobody, Client::Bench) => {
                let path = programs.path(self.disk).ok_or("this disk is no file")?;
                let disk = path.display().to_string();
                super::fabrix::bench(&programs.fabrix, &disk, self, &runtime(seconds))
            }
            (Server::Nobody, _) => fio::measure(self, programs, seconds),
            (Server::Attached | Server::NbdFuse | Server::LocalLoop, _) => {
                attach::measure(self, programs, seconds)
            }
            (Server::Tgt, _) => iscsi::measure_tgt(self, programs, seconds),
            (Server::IscsiLimit, _) => iscsi::measure_limit(self, programs, seconds),
            (server, _) => Err(format!("{server:?} has to be started first")),
        }
    }

    /// The host of an open loop spins, here as well as where it is ours. How long is said for each
    /// measurement.
    pub(super) fn words_of_the_ceiling(&self) -> Vec<String> {
        let direction = match self.access {
            Access::Read => "read".to_owned(),
            Access::Write => "write".to_owned(),
            Access::Mixed { percent_read } => percent_read.to_string(),
        };
        let waiting = match (self.spin, self.iops) {
            (Spin::Never, None) => "block",
            (Spin::Never, Some(_)) => "block-target",
            (Spin::Auto | Spin::Always, _) => "spin",
        };
        let mut words = vec![
            self.depth.to_string(),
            self.block_bytes.to_string(),
            direction,
            waiting.to_owned(),
            "-".to_owned(),
        ];
        if let Some(iops) = self.iops {
            words.extend([(DISK_BYTES >> 20).to_string(), iops.to_string()]);
        }
        words
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

    /// The share of reads that goes with that word; without meaning for the other two.
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
    /// Reads fio's keys, which `fabrix bench` prints too: both directions together, and the latency
    /// of the one that is there, or of reads in a mix.
    pub(super) fn from_fio(who: &str, text: &str, access: Access) -> Result<Self, String> {
        let raw = parse_json(who, text)?;
        let rate = |way: &str| {
            let at = format!("/jobs/0/{way}/iops");
            raw.pointer(&at).and_then(Value::as_f64).unwrap_or(0.0)
        };
        let iops = rate("read") + rate("write");
        if iops <= 0.0 {
            return Err(format!("{who} counted no requests: {raw}"));
        }
        let way = if access == Access::Write {
            "write"
        } else {
            "read"
        };
        // From when a request was due: the same as from its start, unless the load is an open loop.
        let latency = |percent: &str| {
            let at = |kind: &str| format!("/jobs/0/{way}/{kind}/percentile/{percent}");
            positive(&raw, &at("lat_ns")).or_else(|_| positive(&raw, &at("clat_ns")))
        };
        Ok(Self {
            iops,
            p50_us: latency("50.000000").unwrap_or(0.0) / 1000.0,
            p95_us: latency("95.000000").unwrap_or(0.0) / 1000.0,
            p99_us: latency("99.000000").unwrap_or(0.0) / 1000.0,
            target_cpu: 0.0,
            raw,
        })
    }

    pub(super) fn rate(iops: f64, said: &str) -> Self {
        Self {
            iops,
            raw: Value::String(said.trim().to_owned()),
            ..Self::default()
        }
    }
}

/// The words of a measurement of so many seconds.
pub(super) fn runtime(seconds: u32) -> [String; 4] {
    ["--ramp", "1", "--runtime", &seconds.to_string()].map(str::to_owned)
}

/// A number above zero at this place (RFC 6901): zero would be a broken measurement.
pub(super) fn positive(value: &Value, path: &str) -> Result<f64, String> {
    let found = value.pointer(path).and_then(Value::as_f64);
    found
        .filter(|number| *number > 0.0)
        .ok_or_else(|| format!("no usable number at {path} in {value}"))
}

pub(super) fn parse_json(who: &str, text: &str) -> Result<Value, String> {
    serde_json::from_str(text).map_err(|error| format!("{who} printed no JSON ({error}): {text}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mix_counts_both_directions() {
        let text = r#"{"jobs": [{"read": {"iops": 300.0}, "write": {"iops": 700.0}}]}"#;
        let mixed = Access::Mixed { percent_read: 30 };
        let measured = Measured::from_fio("fio", text, mixed).expect("numbers");
        assert!((measured.iops - 1000.0).abs() < 1e-9);
    }

    #[test]
    fn latency_counts_from_when_a_request_was_due() {
        let text = r#"{"jobs": [{"write": {"iops": 5,
            "lat_ns": {"percentile": {"50.000000": 15000, "99.000000": 40000}},
            "clat_ns": {"percentile": {"50.000000": 9000, "99.000000": 10000}}}}]}"#;
        let measured = Measured::from_fio("bench", text, Access::Write).expect("numbers");
        assert!((measured.p50_us - 15.0).abs() < 1e-9 && (measured.p99_us - 40.0).abs() < 1e-9);
    }

    #[test]
    fn bare_sockets_are_offered_the_same_load_and_sleep_where_ours_does() {
        let side = Side {
            server: Server::BareSockets,
            client: Client::Bench,
            disk: Disk::Ram,
            access: Access::Read,
            block_bytes: 4096,
            depth: 128,
            spin: Spin::Never,
            data_digest: false,
            iops: Some(10_000),
            beside: false,
        };
        let words = |side: Side| side.words_of_the_ceiling().join(" ");
        let expected = "128 4096 read block-target - 1024 10000";
        assert_eq!(words(side), expected);
        let closed = Side { iops: None, ..side };
        assert_eq!(words(closed), "128 4096 read block -");
    }

    #[test]
    fn nothing_done_is_no_measurement() {
        assert!(
            Measured::from_fio("fio", r#"{"jobs": [{"read": {"iops": 0}}]}"#, Access::Read)
                .is_err()
        );
        assert!(Measured::from_fio("fio", "hello", Access::Read).is_err());
        assert!(positive(&serde_json::json!({ "iops": 0 }), "/iops").is_err());
    }
}
