//! The keys of a section, and the job that they form.

use fabrix_bench::arrivals::{Pacing, Rate};
use fabrix_bench::job::Distribution;
use fabrix_bench::job::{Share, parse_split};
use fabrix_bench::steady::Steady;
use fabrix_bench::{Job, RUNTIME_MAX, Rw};
use std::time::Duration;

use super::numbers::{size, switch, time, whole};
use super::{Listed, Logs, usual};
use crate::cli::bench::args::parse_percentiles;

/// A section under construction. Values that depend on each other are kept until its end.
#[derive(Clone, Debug, Default)]
pub(super) struct Builder {
    job: Job,
    name: Option<String>,
    filename: Option<String>,
    size_percent: Option<u32>,
    offset_percent: Option<u32>,
    /// Bytes to transfer, independent of the region's size.
    io_size: Option<u64>,
    logs: Logs,
    kilo: u64,
    waits: bool,
    time_based: bool,
    loops: u32,
    rate_iops: Option<u32>,
    poisson: bool,
    steady: Option<String>,
    steady_window: Duration,
    steady_ramp: Duration,
}

impl Builder {
    /// A section without keys: fio's defaults.
    pub(super) fn new() -> Self {
        Self {
            job: usual(),
            kilo: 1024,
            loops: 1,
            steady_window: Duration::from_secs(1),
            ..Self::default()
        }
    }

    /// Applies one key.
    ///
    /// Errors: a sentence that names the key.
    pub(super) fn set(&mut self, key: &str, value: &str) -> Result<(), String> {
        if SATISFIED.contains(&key) {
            return Ok(());
        }
        self.apply(key, value).map_err(|sentence| {
            if sentence.starts_with(key) {
                sentence
            } else {
                format!("{key}: {sentence}")
            }
        })
    }

    fn apply(&mut self, key: &str, value: &str) -> Result<(), String> {
        let job = &mut self.job;
        match key {
            "name" => self.name = Some(value.to_owned()),
            "rw" | "readwrite" => job.rw = Rw::parse(value).map_err(|error| error.to_string())?,
            "bs" | "blocksize" => self.set_block(value)?,
            "bssplit" => self.job.split = self.split(value)?,
            "size" | "offset" => self.set_place(key, value)?,
            "io_size" | "io_limit" => self.io_size = Some(size(value, self.kilo)?),
            "offset_increment" => job.offset_increment = size(value, self.kilo)?,
            "filename" => self.filename = Some(value.replace("\\:", ":")),
            "iodepth" => job.iodepth = whole(value, 1)?,
            "numjobs" => job.numjobs = whole(value, 1)?,
            "runtime" | "timeout" => job.runtime = time(value)?,
            "ramp_time" => job.ramp = time(value)?,
            "time_based" => self.time_based = switch(value)?,
            "loops" => self.loops = whole(value, 1)?,
            "number_ios" => job.number_ios = Some(whole(value, 1)?),
            "rwmixread" => job.rwmixread = percent(value)?,
            "rwmixwrite" => job.rwmixread = 100 - percent(value)?,
            "rate_iops" => self.rate_iops = Some(whole(value, 1)?),
            "rate_process" => self.poisson = word(value, &[("linear", false), ("poisson", true)])?,
            "random_distribution" => job.distribution = Distribution::parse(value)?,
            "randseed" => job.seed = whole(value, 0)?,
            "write_bw_log" | "write_iops_log" | "write_lat_log" => self.logs.set(key, value),
            "log_avg_msec" => {
                let millis = whole(value, 1)
                    .map_err(|_| "each request is no reading; name a time, like 500")?;
                self.logs.every = Some(Duration::from_millis(millis));
            }
            "percentile_list" => job.percentiles = parse_percentiles(value)?.0,
            "continue_on_error" => {
                job.continue_on_error =
                    word(value, &[("none", false), ("io", true), ("all", true)])?
            }
            "verify" => {
                job.verify = word(
                    value,
                    &[("0", false), ("crc32c", true), ("crc32c-intel", true)],
                )
                .map_err(|_| {
                    format!("verify={value} is not supported; verify=crc32c checks every block")
                })?
            }
            "steadystate" | "ss" => self.steady = Some(value.to_owned()),
            "steadystate_duration" | "ss_dur" => self.steady_window = time(value)?,
            "steadystate_ramp_time" | "ss_ramp" => self.steady_ramp = time(value)?,
            "stonewall" | "wait_for_previous" => self.waits = switch(value)?,
            "kb_base" => self.kilo = word(value, &[("1000", 1000), ("1024", 1024)])?,
            "direct" if value == "1" => {}
            "direct" => {
                return Err(
                    "buffered files are said in the disk's URI: filename=/path,direct=off".into(),
                );
            }
            _ => return Err(format!("`{key}` is not supported")),
        }
        Ok(())
    }

    fn set_block(&mut self, value: &str) -> Result<(), String> {
        let bytes = |text: &str| {
            let bytes = size(text, self.kilo)?;
            u32::try_from(bytes).map_err(|_| format!("`{text}` is too long a request"))
        };
        let (reads, writes) = value.split_once(',').unwrap_or((value, value));
        let (reads, writes) = (bytes(reads)?, bytes(writes)?);
        let share = |bytes| {
            vec![Share {
                bytes,
                percent: 100,
            }]
        };
        self.job.block_bytes = reads;
        self.job.split = if reads == writes {
            Default::default()
        } else {
            [share(reads), share(writes)]
        };
        Ok(())
    }

    fn split(&self, value: &str) -> Result<[Vec<Share>; 2], String> {
        match self.kilo {
            1000 => parse_split(value, |text| size(text, 1000)),
            _ => parse_split(value, |text| size(text, 1024)),
        }
    }

    /// Applies `size` or `offset`: bytes, or a percentage of the disk.
    fn set_place(&mut self, key: &str, value: &str) -> Result<(), String> {
        let share = value.strip_suffix('%').map(percent).transpose()?;
        let bytes = if share.is_some() {
            0
        } else {
            size(value, self.kilo)?
        };
        if key == "offset" {
            (self.job.offset, self.offset_percent) = (bytes, share);
        } else {
            (self.job.size, self.size_percent) = (share.is_none().then_some(bytes), share);
        }
        Ok(())
    }

    /// Whether the job waits for the end of the previous jobs.
    pub(super) fn waits(&self) -> bool {
        self.waits
    }

    /// The job of the section.
    ///
    /// Errors: a sentence when the keys contradict each other.
    pub(super) fn build(self, section: String) -> Result<Listed, String> {
        let mut job = self.job;
        job.name = self.name.unwrap_or(section);
        if self.time_based && job.runtime == RUNTIME_MAX {
            return Err(format!("job `{}`: time_based needs runtime=", job.name));
        }
        job.loops = (!self.time_based).then_some(self.loops);
        if let Some(bytes) = self.io_size.filter(|_| !self.time_based) {
            if job.is_split() {
                let name = job.name;
                return Err(format!("job `{name}`: io_size needs requests of one size"));
            }
            let ios = bytes.div_ceil(job.block_bytes.max(1).into());
            let least = job.number_ios.map_or(ios, |number| number.min(ios));
            (job.number_ios, job.loops) = (Some(least.max(1)), None);
        }
        job.rate = self.rate_iops.map(|iops| Rate {
            iops,
            pacing: if self.poisson {
                Pacing::Poisson
            } else {
                Pacing::Fixed
            },
        });
        let steady = self
            .steady
            .map(|text| Steady::parse(&text, self.steady_window, self.steady_ramp));
        job.steady = steady.transpose()?;
        let logs = self.logs.named(&job.name);
        Ok(Listed {
            filename: self.filename,
            job,
            size_percent: self.size_percent,
            offset_percent: self.offset_percent,
            logs,
        })
    }
}

fn percent(text: &str) -> Result<u32, String> {
    whole(text, 0)
        .ok()
        .filter(|percent: &u32| *percent <= 100)
        .ok_or_else(|| format!("`{text}` is not a percentage"))
}

/// Parses one of several words.
fn word<T: Copy>(value: &str, words: &[(&str, T)]) -> Result<T, String> {
    let names: Vec<&str> = words.iter().map(|(name, _)| *name).collect();
    let found = words.iter().find(|(name, _)| *name == value);
    found
        .map(|(_, meaning)| *meaning)
        .ok_or_else(|| format!("`{value}` is not one of {}", names.join(", ")))
}

/// Accepted keys without effect: they ask for behaviour that Fabrix always has, or have no meaning
/// here.
const SATISFIED: [&str; 13] = [
    "ioengine",
    "thread",
    "group_reporting",
    "norandommap",
    "new_group",
    "description",
    "refill_buffers",
    "invalidate",
    "randrepeat",
    "gtod_reduce",
    "clocksource",
    "clat_percentiles",
    "lat_percentiles",
];
