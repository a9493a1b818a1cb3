//! A section under construction, and the job that its keys form.

use std::collections::BTreeSet;
use std::time::Duration;

use fabrix_bench::arrivals::{Bursts, Pacing, Rate};
use fabrix_bench::job::{Share, parse_range, parse_split};
use fabrix_bench::steady::Steady;
use fabrix_bench::verify::{Checksum, Method, Verify};
use fabrix_bench::{Flushes, Job, RUNTIME_MAX, Rw};

use super::numbers::{percent, size, whole};
use super::sections::Setting;
use super::table::{Effect, find, unknown};
use super::{Least, Listed, Logs, Place, Written, random_seed, usual};

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
    /// Rates for reads and writes: requests per second, and bytes per second.
    pub(super) rate_iops: [Option<u64>; 2],
    pub(super) rate_bytes: [Option<u64>; 2],
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
            start_delay: Duration::ZERO,
            time_based: false,
            loops: 1,
            seed: None,
            repeat: true,
            repeat_all: false,
            engine: None,
            synchronous: true,
            cpus: None,
            rate_iops: [None; 2],
            rate_bytes: [None; 2],
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
            (Some(_), rw) if rw.reads() && rw.writes() => {
                return Err(format!(
                    "{rw} takes no number behind it; write two sections"
                ));
            }
            (Some(number), _) => self.job.skip_bytes = size(number, self.kilo)?,
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
        self.job.random_map &= self.job.align == [0, 0];
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

    /// Parses rates for reads and, behind a comma, for writes. One rate applies to both. An empty
    /// rate and 0 are no limit.
    pub(super) fn rates(
        &self,
        value: &str,
        parse: impl Fn(&str) -> Result<u64, String>,
    ) -> Result<[Option<u64>; 2], String> {
        let rate = |text: &str| match text.trim() {
            "" => Ok(None),
            text => parse(text).map(|rate| (rate > 0).then_some(rate)),
        };
        let mut parts = value.split(',');
        let reads = rate(parts.next().unwrap_or_default())?;
        let writes = parts.next().map(rate).transpose()?;
        if parts.next().map(rate).transpose()?.flatten().is_some() {
            return Err("a rate for trims is not supported; leave the third number out".into());
        }
        Ok([reads, writes.unwrap_or(reads)])
    }

    /// Applies `verify`.
    pub(super) fn set_verify(&mut self, value: &str) -> Result<(), String> {
        self.verifies = Some(!matches!(value, "0" | "none"));
        if self.verifies == Some(true) {
            self.verify.method = Method::parse(value)?;
        }
        Ok(())
    }

    /// Resolves the verification. As in fio, a pattern without `verify` is verified with a header.
    fn resolve_verify(&mut self) {
        if self.verifies.is_none() && self.verify.pattern.is_some() {
            self.verifies = Some(true);
            self.verify.method = Method::Header(Checksum::Pattern);
        }
        self.job.verify = (self.verifies == Some(true)).then(|| self.verify.clone());
        if self.verify_only && self.job.verify.is_some() && self.job.rw.writes() {
            self.note(format!(
                "verify_only: nothing is written; the blocks that rw={} would write are read and verified",
                self.job.rw
            ));
            self.job.rw = Rw::new(self.job.rw.is_random(), 100);
        }
        let is_divided = self.job.numjobs > 1
            && self.place.directory.is_none()
            && matches!(self.increment, Amount::Bytes(0));
        if self.job.verify.is_some() && self.job.rw.writes() && is_divided {
            self.note(format!(
                "verify: each of the {} jobs writes and verifies a part of the region of its own; in fio they \
                 overwrite each other's blocks",
                self.job.numjobs
            ));
        }
    }

    fn note(&mut self, sentence: String) {
        self.notes.sentences.insert(sentence);
    }

    /// The job of the section, and the sentences about it.
    ///
    /// Errors: a sentence when the keys contradict each other.
    pub(super) fn build(mut self, section: &str) -> Result<(Listed, Notes), String> {
        let name = self.name.take().unwrap_or_else(|| section.to_owned());
        let built = self
            .limit()
            .and_then(|()| self.resolve_rate())
            .and_then(|()| self.resolve_flushes());
        built.map_err(|sentence| format!("job `{name}`: {sentence}"))?;
        if self.job.rw.trims_only()
            && let Some(bytes) = self.trim_bytes
        {
            (self.job.block_bytes, self.job.split) = (bytes, Default::default());
        }
        self.resolve_verify();
        self.resolve_depth();
        self.resolve_pauses();
        self.resolve_sizes();
        if self.logs.prefixes().next().is_some() && self.logs.every.is_none() {
            let sentence = "logs have a reading for every 500 ms; log_avg_msec= says how often";
            self.note(sentence.into());
        }
        let steady = self
            .steady
            .as_ref()
            .map(|text| Steady::parse(text, self.steady_window, self.steady_ramp));
        self.job.steady = steady.transpose()?;
        self.job.seed = match self.seed {
            Some(seed) => seed,
            None if self.repeat || self.repeat_all => self.job.seed,
            None => random_seed(),
        };
        self.job.name.clone_from(&name);
        self.place.section.clone_from(&name);
        let listed = Listed {
            place: self.place,
            job: self.job,
            written: Written::default(),
            size_percent: self.size_percent,
            offset_percent: self.offset_percent,
            increment: self.increment,
            io_size: self.io_size,
            logs: self.logs.named(&name),
            start_delay: self.start_delay,
            least: self.least,
            cpus: self.cpus,
            group: 0,
            group_reporting: self.group_reporting,
            begins_group: self.begins_group,
            waits: self.waits,
            wait_for: self.wait_for,
            waits_in_stage: None,
            exit_all: self.exit_all,
        };
        Ok((listed, self.notes))
    }

    /// Resolves what ends the job.
    fn limit(&mut self) -> Result<(), String> {
        if self.time_based && self.job.runtime == RUNTIME_MAX {
            self.note("time_based needs runtime=, and has no effect without it".into());
            self.time_based = false;
        }
        self.job.loops = (!self.time_based).then_some(self.loops);
        self.io_size = self.io_size.filter(|_| !self.time_based);
        if self.io_size.is_some() && self.job.is_split() {
            return Err("io_size needs requests of one size".into());
        }
        Ok(())
    }

    /// Resolves the flushes. One kind is enough: a file is flushed with its metadata in both.
    fn resolve_flushes(&mut self) -> Result<(), String> {
        let (fsync, fdatasync) = (self.fsync, self.fdatasync);
        if fsync > 0 && fdatasync > 0 && fsync != fdatasync {
            return Err(format!(
                "fsync={fsync} and fdatasync={fdatasync} are both flushes here; write one of them"
            ));
        }
        self.job.flushes = Flushes {
            every: fsync.max(fdatasync),
            at_end: self.end_fsync || self.fsync_on_close,
        };
        Ok(())
    }

    /// Limits the depth of synchronous engines to 1.
    fn resolve_depth(&mut self) {
        if !self.synchronous || self.job.iodepth == 1 {
            return;
        }
        let depth = std::mem::replace(&mut self.job.iodepth, 1);
        self.note(match &self.engine {
            Some(engine) => format!(
                "ioengine={engine} is synchronous: iodepth is 1 and not {depth}; write ioengine=libaio for more"
            ),
            None => format!(
                "fio's default engine (psync) is synchronous: iodepth is 1 and not {depth}; \
                 write ioengine=libaio for more"
            ),
        });
    }

    /// Resolves the region and the length of the file.
    fn resolve_sizes(&mut self) {
        let job = &mut self.job;
        if let Some(file) = self.file_bytes {
            job.size = Some(job.size.map_or(file, |size| size.min(file)));
        }
        let end = job.size.map(|size| {
            let moved = self
                .increment
                .of(0)
                .saturating_mul(u64::from(job.numjobs) - 1);
            size.saturating_add(job.offset).saturating_add(moved)
        });
        self.place.bytes = self.file_bytes.max(end);
    }

    /// Resolves the offered load from `rate` and `rate_iops`. As in fio, each direction of a mix
    /// has a rate of its own, or none.
    fn resolve_rate(&mut self) -> Result<(), String> {
        let read = self.job.percent_read();
        let mut rates = [self.rate_of(0)?, self.rate_of(1)?];
        match read {
            100 => self.job.rate = rates[0].take(),
            0 => self.job.rate = rates[1].take(),
            _ => self.job.side_rates = rates,
        }
        Ok(())
    }

    /// Rate of reads (0) or writes (1).
    fn rate_of(&self, side: usize) -> Result<Option<Rate>, String> {
        let iops = match (self.rate_bytes[side], self.rate_iops[side]) {
            (None, None) => return Ok(None),
            (None, Some(iops)) => iops as f64,
            (Some(_), Some(_)) => return Err("write rate= or rate_iops=, and not both".into()),
            (Some(bytes), None) => bytes as f64 / self.mean_bytes(side == 1),
        };
        let pacing = match self.poisson {
            true => Pacing::Poisson,
            false => Pacing::Fixed,
        };
        Ok(Some(Rate { iops, pacing }))
    }

    /// Mean length of a request in bytes.
    fn mean_bytes(&self, write: bool) -> f64 {
        let shares = self.job.sizes(write);
        let bytes = |share: Share| f64::from(share.bytes) * f64::from(share.percent) / 100.0;
        shares.iter().map(bytes).sum()
    }

    /// Resolves `thinktime`. fio looks at the completed requests after each start, so that all
    /// requests in flight belong to the burst.
    fn resolve_pauses(&mut self) {
        if self.thinktime.is_zero() {
            return;
        }
        let blocks = match (self.thinktime_blocks, self.thinktime_iotime) {
            (None, Some(_)) => u32::MAX,
            (blocks, _) => blocks.unwrap_or(1),
        };
        let more = match self.thinktime_by_issue {
            true => 0,
            false => self.job.iodepth - 1,
        };
        self.job.bursts = Some(Bursts {
            ios: blocks.saturating_add(more),
            time: self.thinktime_iotime,
            pause: self.thinktime,
            quiet: true,
        });
    }
}
