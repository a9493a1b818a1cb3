//! The job of a section whose keys are all known: values that depend on each other.

use fabrix_bench::arrivals::{Bursts, Pacing, Rate};
use fabrix_bench::job::Share;
use fabrix_bench::steady::Steady;
use fabrix_bench::verify::{Checksum, Method};
use fabrix_bench::{Flushes, RUNTIME_MAX, Rw};

use super::{Amount, Builder, Notes};
use crate::profiles::job_file::place::Lengths;
use crate::profiles::job_file::{Listed, Written, random_seed};

/// A name whose control characters are written as escapes: they would act on the terminal.
fn printable(name: &str) -> String {
    let shown = |letter: char| match letter.is_control() {
        true => letter.escape_default().to_string(),
        false => letter.to_string(),
    };
    name.chars().map(shown).collect()
}

impl Builder {
    /// The job of the section, and the sentences about it.
    ///
    /// Errors: a sentence when the keys contradict each other.
    pub(in super::super) fn build(mut self, section: &str) -> Result<(Listed, Notes), String> {
        let raw = self.name.take().unwrap_or_else(|| section.to_owned());
        let name = printable(&raw);
        self.limit();
        let built = self.resolve_rate().and_then(|()| self.resolve_flushes());
        built.map_err(|sentence| format!("job `{name}`: {sentence}"))?;
        if self.job.rw.trims_only()
            && let Some(bytes) = self.trim_bytes
        {
            (self.job.block_bytes, self.job.split) = (bytes, Default::default());
        }
        self.resolve_verify();
        self.resolve_depth();
        self.resolve_pauses();
        self.job.flow = (self.flow.weight > 0).then_some(self.flow);
        self.job.latency_target = (!self.latency.target.is_zero()).then_some(self.latency);
        self.resolve_align();
        self.resolve_sizes();
        if self.fills {
            (self.job.size, self.size_percent) = (None, None);
            self.note("fill_device: jobs use the whole disk; a file does not grow".into());
        }
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
        self.place.section.clone_from(&raw);
        let chunk_bytes = self
            .chunk_bytes()
            .map_err(|sentence| format!("job `{name}`: {sentence}"))?;
        let listed = Listed {
            place: self.place,
            job: self.job,
            written: Written::default(),
            size_percent: self.size_percent,
            offset_percent: self.offset_percent,
            increment: self.increment,
            file_bytes: self.file_bytes,
            io_size: self.io_size,
            logs: self.logs.named(&raw),
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
            exits_run: self.exits_run,
            chunk_bytes,
        };
        Ok((listed, self.notes))
    }

    /// Resolves what ends the job.
    fn limit(&mut self) {
        if self.time_based && self.job.runtime == RUNTIME_MAX {
            self.note("time_based needs runtime=, and has no effect without it".into());
            self.time_based = false;
        }
        self.job.loops = (!self.time_based).then_some(self.loops);
        let ios = self.job.number_ios.filter(|_| !self.time_based);
        // As in fio, each loop has this number.
        self.job.number_ios = ios.map(|ios| ios.saturating_mul(self.loops.into()));
        self.io_size = self.io_size.filter(|_| !self.time_based);
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

    /// Turns the random map off if addresses have another alignment than the shortest requests.
    fn resolve_align(&mut self) {
        let differs = |write: bool| {
            let align = self.job.align[usize::from(write)];
            align != 0 && align != self.job.sizes(write).shortest_bytes()
        };
        self.job.random_map &= !differs(false) && !differs(true);
    }

    /// Resolves the region and the length of the file.
    fn resolve_sizes(&mut self) {
        let job = &mut self.job;
        if let Some(file) = self.file_bytes {
            let all = file.saturating_mul(self.place.files() as u64);
            job.size = Some(job.size.map_or(all, |size| size.min(all)));
        }
        self.limit_random();
        let job = &self.job;
        let moved = self
            .increment
            .of(0)
            .saturating_mul(u64::from(job.numjobs) - 1);
        self.place.lengths = Lengths {
            file: self.file_bytes,
            size: job.size,
            offset: job.offset.saturating_add(moved),
        };
    }

    /// As in fio, random requests of a job with `filesize` use the whole file, and `size` is their
    /// amount.
    fn limit_random(&mut self) {
        let job = &mut self.job;
        let file = self.file_bytes.filter(|_| job.rw.is_random());
        let all = file.map(|file| file.saturating_mul(self.place.files() as u64));
        if let (Some(all), Some(size)) = (all, job.size)
            && size < all
        {
            job.size = Some(all);
            let amount = self.io_size.map_or(size, |amount| amount.of(size));
            self.io_size = (!self.time_based).then_some(Amount::Bytes(amount));
        }
    }

    /// Resolves the offered load from `rate` and `rate_iops`. As in fio, each direction of a mix
    /// has a rate of its own, or none.
    fn resolve_rate(&mut self) -> Result<(), String> {
        let mut rates = [self.rate_of(0)?, self.rate_of(1)?];
        match self.job.percent_read() {
            _ if self.job.rw.trims_only() => self.job.rate = self.rate_of(2)?,
            100 => self.job.rate = rates[0].take(),
            0 => self.job.rate = rates[1].take(),
            _ => self.job.side_rates = rates,
        }
        Ok(())
    }

    /// Rate of reads (0), writes (1) or trims (2).
    fn rate_of(&self, side: usize) -> Result<Option<Rate>, String> {
        let iops = match (self.rate_bytes[side], self.rate_iops[side]) {
            (None, None) => return Ok(None),
            (None, Some(iops)) => iops as f64,
            (Some(_), Some(_)) => return Err("write rate= or rate_iops=, and not both".into()),
            (Some(bytes), None) => bytes as f64 / self.mean_bytes(side),
        };
        let pacing = match self.poisson {
            true => Pacing::Poisson,
            false => Pacing::Fixed,
        };
        Ok(Some(Rate { iops, pacing }))
    }

    /// Mean length of a read (0), a write (1) or a trim (2) in bytes.
    fn mean_bytes(&self, side: usize) -> f64 {
        if let (2, Some(bytes)) = (side, self.trim_bytes) {
            return bytes.into();
        }
        let shares = self.job.sizes(side > 0);
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
}
