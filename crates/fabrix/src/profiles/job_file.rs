//! fio's job files and command lines, converted to jobs of our generator.
//!
//! The conversion is pure: sections in, jobs out. fio's rules for numbers and fio's defaults apply.
//! `table` says what each key does. A key that would change the result is honoured or refused. A
//! key without effect is accepted and noted. Source: fio's documentation, "Job file format" and
//! "Job file parameters".

mod engines;
mod keys;
mod numbers;
mod place;
mod processors;
pub(crate) mod sections;
pub(crate) mod table;
mod variables;

use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::Duration;

use fabrix_bench::{Job, RUNTIME_MAX, Results};
use fabrix_block::geometry::DEFAULT_BLOCK_BYTES;
use fabrix_block::spec::without_secrets;

use keys::{Amount, Builder, Notes};
pub(crate) use place::{Place, Target};
use sections::{Section, Setting};

use crate::report::sheet::Written;

/// A job of a file or of a command line. Its disk is not yet known.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Listed {
    /// Where the job's disk is.
    pub(crate) place: Place,
    pub(crate) job: Job,
    pub(crate) written: Written,
    /// `size` and `offset` as percentages of the disk.
    size_percent: Option<u32>,
    offset_percent: Option<u32>,
    /// `offset_increment`.
    increment: Amount,
    /// `filesize`: bytes of the disk that the job may use.
    file_bytes: Option<u64>,
    /// `io_size`: the amount of I/O after which the job ends.
    io_size: Option<Amount>,
    pub(crate) logs: Logs,
    /// Time between the start of the stage and the start of the job.
    pub(crate) start_delay: Duration,
    pub(crate) least: Least,
    /// Processors of `cpus_allowed`.
    pub(crate) cpus: Option<Vec<usize>>,
    /// Number of the job's group: `stonewall` and `new_group` begin another one.
    pub(crate) group: u32,
    /// `group_reporting`: whether the job is reported together with its group.
    pub(crate) group_reporting: bool,
    /// `new_group`: whether the job begins a group.
    begins_group: bool,
    /// `stonewall`: whether the job waits for all previous jobs.
    waits: bool,
    /// `wait_for`: name of the job that has to end first.
    wait_for: Option<String>,
    /// Index of that job, if it is in the same stage.
    pub(crate) waits_in_stage: Option<usize>,
    /// `exitall`: whether the end of the job ends all others of its stage.
    pub(crate) exit_all: bool,
    /// `exit_what=all`: whether no later stage runs then.
    exits_run: bool,
    /// Chunk in bytes of the stripe over the job's files, if it has several.
    pub(crate) chunk_bytes: Option<u32>,
}

/// The jobs of a command.
#[derive(Debug, Default)]
pub(crate) struct Jobs {
    /// Stages, which run one after the other. The jobs of a stage run at the same time.
    pub(crate) stages: Vec<Vec<Listed>>,
    notes: Notes,
}

/// Logs of readings over time, with the prefixes of their file names: `write_bw_log`,
/// `write_iops_log`, `write_lat_log`.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Logs {
    pub(crate) bw: Option<String>,
    pub(crate) iops: Option<String>,
    pub(crate) lat: Option<String>,
    /// `log_avg_msec`: interval of the readings.
    pub(crate) every: Option<Duration>,
    /// `per_job_logs=0`: whether the names have no number.
    pub(crate) shared: bool,
}

impl Logs {
    /// All logs with one prefix.
    pub(crate) fn all(name: &str) -> Self {
        let name = Some(name.to_owned());
        Self {
            bw: name.clone(),
            iops: name.clone(),
            lat: name,
            ..Self::default()
        }
    }

    /// The prefixes of all logs to be written.
    pub(crate) fn prefixes(&self) -> impl Iterator<Item = &str> {
        let logs = [&self.bw, &self.iops, &self.lat];
        logs.into_iter().flatten().map(String::as_str)
    }

    /// Sets a log. A key without a value, which is read as 1, takes the job's name as prefix.
    fn set(&mut self, key: &str, value: &str) -> Result<(), String> {
        let log = match key {
            "write_bw_log" => &mut self.bw,
            "write_iops_log" => &mut self.iops,
            _ => &mut self.lat,
        };
        *log = Some(if value == "1" { "" } else { value }.to_owned());
        Ok(())
    }

    /// Sets the interval of the readings.
    fn set_interval(&mut self, value: &str, kilo: u64) -> Result<(), String> {
        let millis = numbers::whole(value, 0, kilo)?;
        self.every = (millis > 0).then(|| Duration::from_millis(millis));
        Ok(())
    }

    /// Replaces missing prefixes by the job's name.
    fn named(mut self, job: &str) -> Self {
        let logs = [&mut self.bw, &mut self.iops, &mut self.lat];
        let nameless = logs.into_iter().flatten().filter(|name| name.is_empty());
        nameless.for_each(|name| job.clone_into(name));
        self
    }
}

/// The least rates of a job for reads and writes: `rate_min` in bytes and `rate_iops_min` in
/// requests a second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Least {
    bytes: [Option<u64>; 2],
    iops: [Option<u64>; 2],
}

impl Least {
    /// A sentence about the first rate that a job did not reach.
    pub(crate) fn missed(&self, results: &Results) -> Option<String> {
        let all = &results.aggregate;
        let percent = results.job.percent_read();
        let sides = [(&all.read, percent > 0), (&all.write, percent < 100)];
        let of_side = |index: usize| {
            let (side, used) = sides[index];
            let rates = [
                ("rate_min", self.bytes[index], side.bw_bytes, "bytes"),
                ("rate_iops_min", self.iops[index], side.iops, "requests"),
            ];
            rates.into_iter().find_map(|(key, least, reached, what)| {
                let least = least.filter(|least| used && reached < *least as f64)?;
                let name = &results.job.name;
                Some(format!(
                    "job `{name}` reached {reached:.0} {what} a second, less than {key}={least}"
                ))
            })
        };
        of_side(0).or_else(|| of_side(1))
    }
}

impl Listed {
    /// The job for a disk of `disk_bytes`, with all percentages resolved. The disk consists of
    /// `files` files.
    ///
    /// Errors: a sentence when a percentage leaves no space.
    pub(crate) fn for_disk(mut self, disk_bytes: u64, files: u64) -> Result<Job, String> {
        self.on_files(files);
        let disk_bytes = self
            .file_bytes
            .map_or(disk_bytes, |file| file.min(disk_bytes));
        let granule = u64::from(self.job.unit_bytes()).max(1);
        self.job.offset_increment = match self.increment {
            Amount::Bytes(bytes) => bytes,
            share @ Amount::Percent(_) => share.of(disk_bytes) / granule * granule,
        };
        let (io_size, is_limited) = (self.io_size, self.file_bytes.is_some());
        let single_bytes = self.place.single_bytes;
        let mut job = self.on(disk_bytes)?;
        let rest = disk_bytes.saturating_sub(job.offset);
        // A disk does not have the last part of a sector of its file.
        let sector = u64::from(DEFAULT_BLOCK_BYTES);
        let is_rest = |size: u64| size < rest.saturating_add(sector);
        job.size = job
            .size
            .map(|size| if is_rest(size) { size.min(rest) } else { size });
        if is_limited {
            job.size = Some(job.size.map_or(rest, |size| size.min(rest)));
        }
        let bytes = job.size.unwrap_or(rest);
        job.io_bytes = io_size.map(|amount| amount.of(bytes).max(1));
        if io_size.is_none() && (bytes < disk_bytes || ends_with(&job, bytes)) {
            limit_holes(&mut job, bytes);
        }
        let unit = u64::from(job.block_bytes.max(1));
        let whole = bytes.next_multiple_of(unit);
        if !job.rw.is_random() && !job.is_split() && bytes < whole && whole <= rest {
            // As in fio, the last request ends behind the size if the disk has room.
            job.io_bytes = job.io_bytes.or(Some(bytes));
            job.size = Some(whole);
        } else if !single_bytes {
            // As in fio, requests end within the size, wherever in a sector that ends.
            job.size = job.size.map(|size| size - size % sector);
        }
        Ok(job)
    }

    /// Whether requests or addresses are no multiples of a sector.
    fn needs_bytes(&self) -> bool {
        let sector = u64::from(DEFAULT_BLOCK_BYTES);
        let lengths = [false, true].map(|write| {
            let shares = self.job.sizes(write);
            shares
                .iter()
                .any(|share| !u64::from(share.bytes).is_multiple_of(sector))
        });
        let increment = match self.increment {
            Amount::Bytes(bytes) => bytes,
            Amount::Percent(_) => 0,
        };
        lengths.contains(&true) || !(self.job.offset | increment).is_multiple_of(sector)
    }

    /// The job with its region. As in fio, an offset in percent is rounded up to the shortest
    /// request, and a size in percent is rounded down.
    ///
    /// Errors: a sentence when a percentage leaves no space.
    fn on(self, disk_bytes: u64) -> Result<Job, String> {
        let part = |percent: u32| {
            let bytes = u128::from(disk_bytes) * u128::from(percent) / 100;
            u64::try_from(bytes).unwrap_or(disk_bytes)
        };
        let mut job = self.job;
        let unit = u64::from(job.unit_bytes()).max(1);
        if let Some(percent) = self.offset_percent {
            job.offset = part(percent).next_multiple_of(unit);
        }
        if let Some(percent) = self.size_percent {
            let most = disk_bytes.saturating_sub(job.offset);
            job.size = Some(part(percent).min(most) / unit * unit);
        }
        if job.size == Some(0) {
            return Err(format!(
                "job `{}`: its size in percent leaves nothing of {disk_bytes} bytes",
                job.name
            ));
        }
        Ok(job)
    }
}

/// Whether the last request of a walk with holes ends exactly at the end of a region of `bytes`.
fn ends_with(job: &Job, bytes: u64) -> bool {
    let block = u64::from(job.block_bytes);
    let stride = block + job.skip_bytes.unsigned_abs();
    !job.is_split() && bytes % stride == block % stride
}

/// Limits a forward walk with holes to one pass over a region of `bytes`, whatever is left out. As
/// in fio, that is the rule for a region that is not the whole disk, and for a walk whose last
/// request ends at the end of the disk. Any other walk starts over until its bytes are those of the
/// region.
fn limit_holes(job: &mut Job, bytes: u64) {
    let (1.., Some(loops)) = (job.skip_bytes, job.loops) else {
        return;
    };
    let stride = u64::from(job.block_bytes) + job.skip_bytes.unsigned_abs();
    // In a mix, the walk of the more frequent direction ends first.
    let percent = u64::from(job.percent_read());
    let ios = bytes.div_ceil(stride).max(1) * 100 / percent.max(100 - percent);
    let ios = ios.saturating_mul(loops.into());
    job.number_ios = Some(job.number_ios.map_or(ios, |number| number.min(ios)));
    job.loops = None;
}

impl Jobs {
    /// The jobs of sections. `over` has settings that replace those of all jobs. `wanted` has the
    /// names of the sections to use; none means all.
    ///
    /// Errors: a sentence for each wrong key.
    pub(crate) fn of(
        sections: &[Section],
        over: &[Setting],
        wanted: &[String],
    ) -> Result<Self, Vec<String>> {
        let mut errors: Vec<String> = Vec::new();
        let mut jobs = Self::default();
        let mut global = Builder::new();
        let mut of_global: Vec<&Setting> = Vec::new();
        for section in sections {
            let mut builder = global.clone();
            let over: &[Setting] = if section.is_global() { &[] } else { over };
            let replaces = over.iter().any(|one| one.is("filename"));
            let own = section.settings.iter();
            let own = own.filter(|one| !(replaces && one.is("filename")));
            if replaces {
                builder.place.filenames.clear();
            }
            for setting in own.chain(over) {
                let wrong = builder.set(setting).err();
                let wrong = wrong.map(|sentence| setting.said(&sentence));
                errors.extend(wrong.filter(|sentence| !errors.contains(sentence)));
            }
            if section.is_global() {
                // As in fio, sections do not inherit a name.
                builder.name = None;
                global = builder;
                of_global.extend(&section.settings);
            } else if wanted.is_empty() || wanted.contains(&section.name) {
                let built = builder.build(&section.name);
                let added = built.and_then(|(mut listed, notes)| {
                    listed.written = Written {
                        global: written(of_global.iter().copied()),
                        own: written(section.settings.iter().chain(over)),
                    };
                    jobs.add(listed, notes)
                });
                errors.extend(added.err());
            }
        }
        jobs.complete();
        if errors.is_empty() && jobs.stages.is_empty() {
            let named = sections.iter().filter(|section| !section.is_global());
            let names: Vec<&str> = named.map(|section| section.name.as_str()).collect();
            errors.push(match names[..] {
                [] => "there is no job in it; a job is a section like [name]".into(),
                _ => format!(
                    "no job has the name {}; there are {}",
                    wanted.join(" or "),
                    names.join(", ")
                ),
            });
        }
        if errors.is_empty() {
            Ok(jobs)
        } else {
            Err(errors)
        }
    }

    /// Sets what depends on all jobs. `exitall` of one job applies to all, as in fio. All jobs
    /// address bytes in files of the page cache, if one of them has to: they may share a file.
    fn complete(&mut self) {
        let single_bytes = self.stages.iter().flatten().any(Listed::needs_bytes);
        let exit_all = self.stages.iter().flatten().any(|one| one.exit_all);
        let exits_run = self.stages.iter().flatten().any(|one| one.exits_run);
        if exits_run && exit_all && self.stages.len() > 1 {
            self.stages.truncate(1);
            let sentence = "exit_what=all: the first job that ends also ends the run: later stages do not start";
            self.notes.sentences.insert(sentence.into());
        }
        for one in self.stages.iter_mut().flatten() {
            one.place.single_bytes = single_bytes;
            one.exit_all = exit_all;
        }
    }

    /// Adds a job. It joins the last stage, unless it has to wait for that stage.
    fn add(&mut self, mut listed: Listed, notes: Notes) -> Result<(), String> {
        let last = self.stages.last().and_then(|stage| stage.last());
        let begins = listed.waits || listed.begins_group;
        listed.group = last.map_or(0, |last| last.group + u32::from(begins));
        listed.waits_in_stage = self.waits_for(&listed)?.filter(|_| !listed.waits);
        match self.stages.last_mut() {
            Some(stage) if !listed.waits => stage.push(listed),
            _ => self.stages.push(vec![listed]),
        }
        self.notes.ignored.extend(notes.ignored);
        self.notes.sentences.extend(notes.sentences);
        Ok(())
    }

    /// Index in the last stage of the job that `wait_for` names. None if that job has ended before
    /// the stage.
    fn waits_for(&self, listed: &Listed) -> Result<Option<usize>, String> {
        let (Some(first), me) = (&listed.wait_for, &listed.job.name) else {
            return Ok(None);
        };
        let is_first = |one: &Listed| one.job.name == *first;
        if !self.stages.iter().flatten().any(is_first) {
            return Err(format!(
                "job `{me}`: wait_for={first} names no job before it"
            ));
        }
        let last = self.stages.last();
        Ok(last.and_then(|stage| stage.iter().rposition(is_first)))
    }

    /// Appends the stages of other jobs.
    pub(crate) fn append(&mut self, mut other: Self) {
        let last = self.stages.last().and_then(|stage| stage.last());
        let groups = last.map_or(0, |last| last.group + 1);
        let more = other.stages.iter_mut().flatten();
        more.for_each(|one| one.group += groups);
        self.stages.extend(other.stages);
        self.notes.ignored.extend(other.notes.ignored);
        self.notes.sentences.extend(other.notes.sentences);
    }

    /// Sentences for the user, before the measurement.
    pub(crate) fn notes(&self) -> Vec<String> {
        let mut notes: Vec<String> = self.notes.sentences.iter().cloned().collect();
        if !self.notes.ignored.is_empty() {
            let keys: Vec<&str> = self.notes.ignored.iter().copied().collect();
            notes.push(format!("without effect here: {}", keys.join(", ")));
        }
        notes
    }
}

/// Settings with the first one of a key's names, and without secrets.
fn written<'a>(settings: impl Iterator<Item = &'a Setting>) -> Vec<(String, String)> {
    let known = settings.filter_map(|setting| Some((table::find(&setting.key)?, &setting.value)));
    known
        .map(|(key, value)| (key.name().to_owned(), without_secrets(value)))
        .collect()
}

/// A seed that differs in each call.
fn random_seed() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// fio's defaults for a job.
fn usual() -> Job {
    Job {
        rw: fabrix_bench::Rw::Read,
        iodepth: 1,
        runtime: RUNTIME_MAX,
        ramp: Duration::ZERO,
        ..Job::default()
    }
}

#[cfg(test)]
mod tests;
