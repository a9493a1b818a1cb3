//! A section under construction, whose keys are set one by one. `resolve` makes the job of it.

mod files;
mod resolve;

use std::collections::BTreeSet;
use std::time::Duration;

use fabrix_bench::Job;
use fabrix_bench::arrivals::FlowShare;
use fabrix_bench::job::{Share, parse_range, parse_split};
use fabrix_bench::search::LatencyTarget;
use fabrix_bench::verify::{Method, Verify};

use fabrix_block::spec::without_secrets;

use super::numbers::{percent, size, whole};
use super::place::Service;
use super::sections::Setting;
use super::table::{Effect, find, unknown};
use super::{Least, Logs, Place, usual};

/// Sentences for the user about a command's jobs.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Notes {
    /// Keys without effect that were used.
    pub(super) ignored: BTreeSet<&'static str>,
    /// Differences from the text of the jobs.
    pub(super) sentences: BTreeSet<String>,
}

/// A number of bytes, or a percentage of something that is known later.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Amount {
    Bytes(u64),
    Percent(u32),
}

impl Amount {
    pub(super) fn parse(value: &str, kilo: u64) -> Result<Self, String> {
        match value.ends_with('%') {
            true => percent(value).map(Self::Percent),
            false => size(value, kilo).map(Self::Bytes),
        }
    }

    /// The amount in bytes. Percentages are those of `whole`.
    pub(super) fn of(self, whole: u64) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Percent(percent) => {
                let bytes = u128::from(whole) * u128::from(percent) / 100;
                u64::try_from(bytes).expect("at most the whole")
            }
        }
    }
}

/// A section under construction. Values that depend on each other are kept until its end.
#[derive(Clone, Debug)]
pub(super) struct Builder {
    pub(super) job: Job,
    pub(super) name: Option<String>,
    pub(super) place: Place,
    size_percent: Option<u32>,
    offset_percent: Option<u32>,
    pub(super) increment: Amount,
    /// Bytes to transfer, independent of the region's size.
    pub(super) io_size: Option<Amount>,
    /// `filesize`: length of the file in bytes.
    pub(super) file_bytes: Option<u64>,
    pub(super) logs: Logs,
    /// `kb_base`: the meaning of `k`.
    pub(super) kilo: u64,
    pub(super) waits: bool,
    pub(super) group_reporting: bool,
    pub(super) begins_group: bool,
    pub(super) wait_for: Option<String>,
    pub(super) exit_all: bool,
    /// `exit_what=all`.
    pub(super) exits_run: bool,
    /// `fill_device`.
    pub(super) fills: bool,
    pub(super) start_delay: Duration,
    pub(super) time_based: bool,
    pub(super) loops: u32,
    pub(super) seed: Option<u64>,
    /// `randrepeat` and `allrandrepeat`: whether all runs have the same seed.
    pub(super) repeat: bool,
    pub(super) repeat_all: bool,
    pub(super) engine: Option<String>,
    pub(super) synchronous: bool,
    pub(super) cpus: Option<Vec<usize>>,
    /// Rates for reads, writes and trims: requests per second, and bytes per second.
    pub(super) rate_iops: [Option<u64>; 3],
    pub(super) rate_bytes: [Option<u64>; 3],
    pub(super) poisson: bool,
    /// Options of the verification.
    pub(super) verify: Verify,
    /// `verify`: whether data is verified. None: the key was not used.
    verifies: Option<bool>,
    /// `bs`: size of trims in bytes, if it is given apart.
    trim_bytes: Option<u32>,
    pub(super) verify_only: bool,
    /// `thinktime` and its companions.
    pub(super) thinktime: Duration,
    pub(super) thinktime_blocks: Option<u32>,
    pub(super) thinktime_iotime: Option<Duration>,
    /// `thinktime_blocks_type=issue`.
    pub(super) thinktime_by_issue: bool,
    pub(super) least: Least,
    /// `flow` and its companions. The weight 0 is none.
    pub(super) flow: FlowShare,
    /// `latency_target` and its companions.
    pub(super) latency: LatencyTarget,
    /// `fsync` and `fdatasync`: writes from one flush to the next. 0: no flushes.
    pub(super) fsync: u32,
    pub(super) fdatasync: u32,
    /// `end_fsync` and `fsync_on_close`.
    pub(super) end_fsync: bool,
    pub(super) fsync_on_close: bool,
    pub(super) steady: Option<String>,
    pub(super) steady_window: Duration,
    pub(super) steady_ramp: Duration,
    notes: Notes,
}

impl Builder {
    /// A section without keys: fio's defaults.
    pub(super) fn new() -> Self {
        Self {
            job: usual(),
            name: None,
            place: Place::default(),
            size_percent: None,
            offset_percent: None,
            increment: Amount::Bytes(0),
            io_size: None,
            file_bytes: None,
            logs: Logs::default(),
            kilo: 1024,
            waits: false,
            group_reporting: false,
            begins_group: false,
            wait_for: None,
            exit_all: false,
            exits_run: false,
            fills: false,
            start_delay: Duration::ZERO,
            time_based: false,
            loops: 1,
            seed: None,
            repeat: true,
            repeat_all: false,
            engine: None,
            synchronous: true,
            cpus: None,
            rate_iops: [None; 3],
            rate_bytes: [None; 3],
            poisson: false,
            verify: Verify::default(),
            verifies: None,
            trim_bytes: None,
            verify_only: false,
            thinktime: Duration::ZERO,
            thinktime_blocks: None,
            thinktime_iotime: None,
            thinktime_by_issue: false,
            least: Least::default(),
            flow: FlowShare {
                id: 0,
                weight: 0,
                sleep: Duration::ZERO,
            },
            latency: LatencyTarget {
                target: Duration::ZERO,
                window: Duration::ZERO,
                percentile: 100.0,
                keeps_running: false,
            },
            fsync: 0,
            fdatasync: 0,
            end_fsync: false,
            fsync_on_close: false,
            steady: None,
            steady_window: Duration::from_secs(1),
            steady_ramp: Duration::ZERO,
            notes: Notes::default(),
        }
    }

    /// Applies one key.
    ///
    /// Errors: a sentence that names the key.
    pub(super) fn set(&mut self, setting: &Setting) -> Result<(), String> {
        let (key, value) = (&setting.key, setting.value.as_str());
        let known = find(key).ok_or_else(|| unknown(key))?;
        match known.effect {
            Effect::Honoured(set) => {
                set(self, value).map_err(|sentence| match sentence.starts_with(known.name()) {
                    true => sentence,
                    false => format!("{key}: {sentence}"),
                })
            }
            Effect::Ignored => {
                self.notes.ignored.insert(known.name_of(key));
                Ok(())
            }
            Effect::Refused(neutral) if neutral.contains(&value) => Ok(()),
            Effect::Refused(_) => Err(format!("`{key}` is not supported: {}", known.why)),
        }
    }

    /// Applies the number behind `rw`: bytes to leave out, or requests at one random address.
    pub(super) fn set_follows(&mut self, number: Option<&str>) -> Result<(), String> {
        (self.job.run_ios, self.job.skip_bytes) = (1, 0);
        match (number, self.job.rw) {
            (None, _) => {}
            (Some(number), rw) if rw.is_random() => {
                self.job.run_ios = whole(number, 1, self.kilo)?;
            }
            (Some(number), _) => {
                let (backwards, text) = match number.strip_prefix('-') {
                    Some(text) => (true, text),
                    None => (false, number),
                };
                let bytes = i64::try_from(size(text, self.kilo)?);
                let bytes = bytes.map_err(|_| format!("`{number}` is longer than any disk"))?;
                self.job.skip_bytes = if backwards { -bytes } else { bytes };
            }
        }
        Ok(())
    }

    /// Applies `bs`: sizes of reads, writes and trims. An empty part is fio's default.
    pub(super) fn set_block(&mut self, value: &str) -> Result<(), String> {
        let bytes = |text: &str| {
            if text.is_empty() {
                return Ok(usual().block_bytes);
            }
            let bytes = size(text, self.kilo)?;
            u32::try_from(bytes).map_err(|_| format!("`{text}` is too long a request"))
        };
        let parts: Vec<&str> = value.split(',').map(str::trim).collect();
        self.trim_bytes = None;
        let (reads, writes) = match parts[..] {
            [both] => (both, both),
            [reads, writes] => (reads, writes),
            [reads, writes, trims] => {
                self.trim_bytes = Some(bytes(trims)?);
                (reads, writes)
            }
            _ => return Err(format!("`{value}` has more than three sizes")),
        };
        let (reads, writes) = (bytes(reads)?, bytes(writes)?);
        let share = |bytes| {
            vec![Share {
                bytes,
                percent: 100,
            }]
        };
        self.job.block_bytes = reads;
        self.job.ranges = [None; 2];
        self.job.split = if reads == writes {
            Default::default()
        } else {
            [share(reads), share(writes)]
        };
        Ok(())
    }

    /// Applies `bsrange`.
    pub(super) fn set_range(&mut self, value: &str) -> Result<(), String> {
        let kilo = self.kilo;
        let ranges = parse_range(value, |text| size(text, kilo))?;
        self.job.block_bytes = ranges[0].shortest;
        self.job.split = Default::default();
        self.job.ranges = ranges.map(Some);
        Ok(())
    }

    /// Applies `blockalign`: alignments of reads, writes and trims.
    pub(super) fn set_align(&mut self, value: &str) -> Result<(), String> {
        let mut parts = value
            .split(',')
            .map(|text| whole(text.trim(), 0, self.kilo));
        let reads = parts.next().unwrap_or(Ok(0))?;
        let writes = parts.next().transpose()?.unwrap_or(reads);
        self.job.align = [reads, writes];
        Ok(())
    }

    pub(super) fn split(&self, value: &str) -> Result<[Vec<Share>; 2], String> {
        match self.kilo {
            1000 => parse_split(value, |text| size(text, 1000)),
            _ => parse_split(value, |text| size(text, 1024)),
        }
    }

    /// Applies `size` or `offset`: bytes, or a percentage of the disk.
    pub(super) fn set_place(&mut self, key: &str, value: &str) -> Result<(), String> {
        let (bytes, share) = match Amount::parse(value, self.kilo)? {
            Amount::Bytes(bytes) => (bytes, None),
            Amount::Percent(percent) => (0, Some(percent)),
        };
        if key == "offset" {
            (self.job.offset, self.offset_percent) = (bytes, share);
        } else {
            let all = share.is_some() || bytes == 0;
            (self.job.size, self.size_percent) = ((!all).then_some(bytes), share);
        }
        Ok(())
    }

    /// Applies `filename`.
    pub(super) fn add_file(&mut self, value: &str) {
        if let [first, ..] = &self.place.filenames[..] {
            self.note(format!(
                "filename is given twice: as in fio, jobs work on {} and {}",
                without_secrets(first),
                without_secrets(value)
            ));
        }
        self.place.filenames.push(value.to_owned());
    }

    /// Applies `file_service_type`: a law, and the requests in each file behind a colon.
    pub(super) fn set_service(&mut self, value: &str) -> Result<(), String> {
        let (law, number) = value.split_once(':').unzip();
        self.place.service = match law.unwrap_or(value) {
            "random" => Service::Random,
            "roundrobin" => {
                let number = number.map(|number| whole(number, 1, self.kilo));
                Service::RoundRobin(number.transpose()?.unwrap_or(1))
            }
            "sequential" | "zipf" | "pareto" | "normal" | "gauss" => Service::Other,
            _ => {
                return Err(format!(
                    "`{value}` is not known; write roundrobin, random or sequential"
                ));
            }
        };
        Ok(())
    }

    /// Parses rates for reads and, behind commas, for writes and trims. The last rate applies to
    /// the directions behind it too. An empty rate and 0 are no limit.
    pub(super) fn rates(
        &self,
        value: &str,
        parse: impl Fn(&str) -> Result<u64, String>,
    ) -> Result<[Option<u64>; 3], String> {
        let rate = |text: &str| match text.trim() {
            "" => Ok(None),
            text => parse(text).map(|rate| (rate > 0).then_some(rate)),
        };
        let mut parts = value.split(',');
        let reads = rate(parts.next().unwrap_or_default())?;
        let writes = parts.next().map_or(Ok(reads), rate)?;
        let trims = parts.next().map_or(Ok(writes), rate)?;
        match parts.next() {
            None => Ok([reads, writes, trims]),
            Some(_) => Err(format!("`{value}` has more than three rates")),
        }
    }

    /// Applies `verify`.
    pub(super) fn set_verify(&mut self, value: &str) -> Result<(), String> {
        self.verifies = Some(!matches!(value, "0" | "none"));
        if self.verifies == Some(true) {
            self.verify.method = Method::parse(value)?;
        }
        Ok(())
    }

    fn note(&mut self, sentence: String) {
        self.notes.sentences.insert(sentence);
    }
}
