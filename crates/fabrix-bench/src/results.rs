//! The measurements of a run: plain values in fio's terms, independent of any output format.
//!
//! Times are in nanoseconds. Rates are per second of measured time, without `ramp`.

mod depths;
mod entries;

use std::time::Duration;

use fabrix_block::Status;

use crate::cpu::Cpu;
use crate::job::Job;
use crate::latency::{Latency, Recorder, real};
use crate::search::SearchEnd;
use crate::series::Point;
use crate::steady::Attained;
pub use depths::Depths;
pub use entries::Recorded;

/// Measurements of one direction of one job or of all jobs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Side {
    /// Successful requests.
    pub ios: u64,
    /// Bytes of the successful requests.
    pub bytes: u64,
    /// Measured time in nanoseconds: of several jobs from the first start to the last end.
    pub runtime_ns: u64,
    /// Requests per second.
    pub iops: f64,
    /// Bytes per second.
    pub bw_bytes: f64,
    /// Latency from the submission of a request to its completion (fio's `clat` plus the time of
    /// the submission).
    pub service: Latency,
    /// Latency from the scheduled start (fio's `lat`). Equal to `service` in a closed loop.
    pub latency: Latency,
}

/// Result of a job's verification.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verified {
    /// Blocks read back and compared.
    pub blocks_checked: u64,
    /// Blocks with wrong content.
    pub errors: u64,
    /// Sentence about the first wrong block.
    pub first_error: Option<String>,
}

/// The failed requests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Errors {
    /// Number of failures per status. Statuses without failures are absent.
    pub by_status: Vec<(Status, u64)>,
    /// Sentence about the first failure.
    pub first: Option<String>,
}

impl Errors {
    /// Number of all failures.
    pub fn total(&self) -> u64 {
        self.by_status.iter().map(|(_, count)| count).sum()
    }

    /// Counts `failures`. `sentence` is called for the first of all only.
    pub(crate) fn count(
        &mut self,
        status: Status,
        failures: u64,
        sentence: impl FnOnce() -> String,
    ) {
        self.add_count(status, failures);
        self.first.get_or_insert_with(sentence);
    }

    fn add_count(&mut self, status: Status, more: u64) {
        let mut known = self.by_status.iter_mut();
        match known.find(|(known, _)| *known == status) {
            Some((_, count)) => *count += more,
            None => self.by_status.push((status, more)),
        }
    }

    fn add(&mut self, other: &Self) {
        for (status, count) in &other.by_status {
            self.add_count(*status, *count);
        }
        if self.first.is_none() {
            self.first.clone_from(&other.first);
        }
    }
}

/// Measurements of one job or of all jobs together.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct JobResult {
    /// Reads, with those of the verification after the load.
    pub read: Side,
    /// Writes.
    pub write: Side,
    /// Trims.
    pub trim: Side,
    /// Reads, writes and trims of the load together.
    pub total: Side,
    /// Latency of the flushes between writes.
    pub sync: Latency,
    /// CPU time of the job's thread during the measured time.
    pub cpu_time: Duration,
    /// Failed requests, including those before the measurement.
    pub errors: Errors,
    /// Requests in flight at the start of each request.
    pub depths: Depths,
    /// Depth of the job at its end: `iodepth`, or the depth that `latency_target` found.
    pub depth: u32,
    /// Outcome of the search of `latency_target`. Of several jobs the worst.
    pub search: Option<SearchEnd>,
    /// Number of `Busy` answers. Each such request was submitted again.
    pub busy: u64,
    /// Reason for an early end, as a sentence.
    pub ended_early: Option<String>,
    /// Result of the verification, if the job verified.
    pub verify: Option<Verified>,
}

/// The results of a run.
#[derive(Clone, Debug)]
pub struct Results {
    /// The job as requested.
    pub job: Job,
    /// Results of the single jobs, in order.
    pub jobs: Vec<JobResult>,
    /// The other jobs of joined results, as requested.
    pub others: Vec<Job>,
    /// Results of all jobs together (fio's `group_reporting`).
    pub aggregate: JobResult,
    /// Processor use during the measurement, from the first start to the last end. If several jobs
    /// run side by side, all fields except `job_cores` include the other jobs.
    pub cpu: Cpu,
    /// Rates over time, in points of about a second.
    pub series: Vec<Point>,
    /// Result of the steady-state condition, if the job has one.
    pub steady: Option<Attained>,
    /// Counters of all jobs together.
    pub recorded: Recorded,
}

/// Reason for the early end of a job that was told to stop.
pub const STOPPED: &str = "stopped before its time";

impl Results {
    /// Whether no request failed, no block was wrong and no job ended early.
    pub fn is_clean(&self) -> bool {
        let all = &self.aggregate;
        let verified = all
            .verify
            .as_ref()
            .is_none_or(|verified| verified.errors == 0);
        all.errors.total() == 0 && all.ended_early.is_none() && verified
    }
}

/// Counters of a running job. Their sum over all jobs gives the aggregate.
#[derive(Clone, Debug)]
pub(crate) struct Tally {
    /// Counters per direction: reads, writes, trims.
    pub(crate) sides: [SideTally; 3],
    /// Latencies of the flushes. None: the job does not flush.
    pub(crate) sync: Option<Recorder>,
    pub(crate) runtime_ns: u64,
    /// Clock at the end of the measured time.
    pub(crate) until_ns: u64,
    pub(crate) cpu_time: Duration,
    pub(crate) errors: Errors,
    pub(crate) depths: Depths,
    pub(crate) depth: u32,
    pub(crate) search: Option<SearchEnd>,
    pub(crate) busy: u64,
    pub(crate) ended_early: Option<String>,
    pub(crate) verify: Option<Verified>,
    /// Reads of the verification after the load, if the job verifies. As in fio they count as
    /// reads.
    pub(crate) read_back: Option<SideTally>,
    pub(crate) read_back_ns: u64,
}

/// Counters of one direction.
#[derive(Clone, Debug)]
pub(crate) struct SideTally {
    pub(crate) ios: u64,
    pub(crate) bytes: u64,
    pub(crate) service: Recorder,
    /// Latency from the scheduled start. None in a closed loop, where it equals `service`.
    pub(crate) latency: Option<Recorder>,
}

impl SideTally {
    fn new(open_loop: bool) -> Self {
        Self {
            ios: 0,
            bytes: 0,
            service: Recorder::new(),
            latency: open_loop.then(Recorder::new),
        }
    }

    fn reset(&mut self) {
        (self.ios, self.bytes) = (0, 0);
        self.service.reset();
        self.latency.iter_mut().for_each(Recorder::reset);
    }

    fn add(&mut self, other: &Self) {
        self.ios += other.ios;
        self.bytes += other.bytes;
        // In a closed loop the latency is that of the service.
        if other.latency.is_some() && self.latency.is_none() {
            self.latency = Some(self.service.clone());
        }
        if let Some(mine) = &mut self.latency {
            mine.add(other.latency.as_ref().unwrap_or(&other.service));
        }
        self.service.add(&other.service);
    }

    fn result(&self, runtime_ns: u64, percentiles: &[f64]) -> Side {
        let service = self.service.summary(percentiles);
        let latency = self
            .latency
            .as_ref()
            .map_or_else(|| service.clone(), |latency| latency.summary(percentiles));
        let seconds = real(runtime_ns.into()) / 1e9;
        let rate = |count: u64| {
            if runtime_ns == 0 {
                0.0
            } else {
                real(count.into()) / seconds
            }
        };
        Side {
            ios: self.ios,
            bytes: self.bytes,
            runtime_ns,
            iops: rate(self.ios),
            bw_bytes: rate(self.bytes),
            service,
            latency,
        }
    }
}

impl Tally {
    /// Allocates all counters.
    pub(crate) fn new(open_loop: bool, verify: bool) -> Self {
        Self {
            sides: std::array::from_fn(|_| SideTally::new(open_loop)),
            sync: None,
            runtime_ns: 0,
            until_ns: 0,
            cpu_time: Duration::ZERO,
            // Capacity for every status, so that a failing disk causes no allocation in the worker.
            errors: Errors {
                by_status: Vec::with_capacity(16),
                first: None,
            },
            depths: Depths::default(),
            depth: 0,
            search: None,
            busy: 0,
            ended_early: None,
            verify: verify.then(Verified::default),
            read_back: verify.then(|| SideTally::new(open_loop)),
            read_back_ns: 0,
        }
    }

    /// Clears the counters of the ramp. Failures and wrong blocks are kept.
    pub(crate) fn begin_measuring(&mut self) {
        self.sides.iter_mut().for_each(SideTally::reset);
        self.sync.iter_mut().for_each(Recorder::reset);
        self.depths = Depths::default();
        self.busy = 0;
    }

    /// Adds the counters of another job. The measured time is that from the first start to the last
    /// end, so that the rates of jobs one after another are not added up.
    pub(crate) fn add(&mut self, other: &Self) {
        for (mine, theirs) in self.sides.iter_mut().zip(&other.sides) {
            mine.add(theirs);
        }
        match (&mut self.sync, &other.sync) {
            (Some(mine), Some(theirs)) => mine.add(theirs),
            (None, Some(theirs)) => self.sync = Some(theirs.clone()),
            (_, None) => {}
        }
        self.add_time(other);
        self.read_back_ns = self.read_back_ns.max(other.read_back_ns);
        if let (Some(mine), Some(theirs)) = (&mut self.read_back, &other.read_back) {
            mine.add(theirs);
        }
        self.cpu_time += other.cpu_time;
        self.errors.add(&other.errors);
        self.depths.add(&other.depths);
        self.depth = self.depth.max(other.depth);
        self.search = self.search.max(other.search);
        self.busy += other.busy;
        if self.ended_early.is_none() {
            self.ended_early.clone_from(&other.ended_early);
        }
        if let (Some(mine), Some(theirs)) = (&mut self.verify, &other.verify) {
            mine.blocks_checked += theirs.blocks_checked;
            mine.errors += theirs.errors;
            if mine.first_error.is_none() {
                mine.first_error.clone_from(&theirs.first_error);
            }
        }
    }

    /// Extends the measured time over that of another job.
    fn add_time(&mut self, other: &Self) {
        if self.runtime_ns == 0 || other.runtime_ns == 0 {
            self.runtime_ns = self.runtime_ns.max(other.runtime_ns);
            self.until_ns = self.until_ns.max(other.until_ns);
            return;
        }
        let until_ns = self.until_ns.max(other.until_ns);
        let length = |of: &Self| of.runtime_ns + (until_ns - of.until_ns);
        self.runtime_ns = length(self).max(length(other));
        self.until_ns = until_ns;
    }

    /// Cores that the job's thread kept busy on average over `window`, or over its measured time
    /// where that is longer.
    pub(crate) fn cores(&self, window: Duration) -> f64 {
        cores(self.cpu_time, self.runtime_ns, window)
    }

    /// The reads of the load and of the verification after it.
    fn reads(&self, percentiles: &[f64]) -> Side {
        let load = &self.sides[0];
        let Some(read_back) = self.read_back.as_ref().filter(|side| side.ios > 0) else {
            return load.result(self.runtime_ns, percentiles);
        };
        let mut both = load.clone();
        both.add(read_back);
        let load_ns = if load.ios > 0 { self.runtime_ns } else { 0 };
        both.result(load_ns + self.read_back_ns, percentiles)
    }

    /// The results for the report, with the values of the given percentiles.
    pub(crate) fn result(&self, percentiles: &[f64]) -> JobResult {
        let mut all = self.sides[0].clone();
        self.sides[1..].iter().for_each(|side| all.add(side));
        JobResult {
            read: self.reads(percentiles),
            write: self.sides[1].result(self.runtime_ns, percentiles),
            trim: self.sides[2].result(self.runtime_ns, percentiles),
            total: all.result(self.runtime_ns, percentiles),
            sync: self
                .sync
                .as_ref()
                .map_or_else(Latency::default, |sync| sync.summary(percentiles)),
            cpu_time: self.cpu_time,
            errors: self.errors.clone(),
            depths: self.depths,
            depth: self.depth,
            search: self.search,
            busy: self.busy,
            ended_early: self.ended_early.clone(),
            verify: self.verify.clone(),
        }
    }
}

/// Cores busy for `cpu_time` over the longer one of two times.
fn cores(cpu_time: Duration, runtime_ns: u64, window: Duration) -> f64 {
    let longer = Duration::from_nanos(runtime_ns).max(window);
    cpu_time.as_secs_f64() / longer.as_secs_f64().max(1e-9)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_one_after_another_are_measured_from_the_first_start_to_the_last_end() {
        let job = |until_ns, runtime_ns| {
            let mut job = Tally::new(false, false);
            (job.until_ns, job.runtime_ns) = (until_ns, runtime_ns);
            job.sides[0].ios = 300;
            job.cpu_time = Duration::from_nanos(runtime_ns);
            job
        };
        let second = 1_000_000_000;
        for order in [[0, 1, 2], [2, 0, 1], [1, 2, 0]] {
            let jobs = [
                job(11 * second, second),
                job(12 * second, second),
                job(13 * second, second),
            ];
            let mut sum = Tally::new(false, false);
            order.iter().for_each(|at| sum.add(&jobs[*at]));
            let read = sum.result(&[50.0]).read;
            assert_eq!(read.runtime_ns, 3 * second);
            assert!((read.iops - 300.0).abs() < 1e-9);
            assert!((sum.cores(Duration::from_secs(3)) - 1.0).abs() < 1e-9);
        }
    }

    #[test]
    fn jobs_add_up_and_the_longest_gives_the_time() {
        let mut sum = Tally::new(false, false);
        for runtime_ns in [1_000_000_000, 2_000_000_000] {
            let mut job = Tally::new(false, false);
            (job.runtime_ns, job.until_ns) = (runtime_ns, runtime_ns);
            job.sides[1].ios = 500;
            job.sides[1].bytes = 500 * 4096;
            sum.add(&job);
        }
        let result = sum.result(&[50.0]);
        assert_eq!(
            (result.write.ios, result.total.ios, result.read.ios),
            (1000, 1000, 0)
        );
        assert!((result.write.iops - 500.0).abs() < 1e-9);
        assert!((result.total.bw_bytes - 500.0 * 4096.0).abs() < 1e-6);
    }

    #[test]
    fn the_first_failure_keeps_its_sentence_and_each_status_its_count() {
        let mut errors = Errors::default();
        errors.count(Status::MediaRead, 1, || "first".into());
        errors.count(Status::NoSpace, 1, || "second".into());
        errors.count(Status::MediaRead, 1, || "third".into());
        assert_eq!(errors.first.as_deref(), Some("first"));
        assert_eq!(
            errors.by_status,
            [(Status::MediaRead, 2), (Status::NoSpace, 1)]
        );
        assert_eq!(errors.total(), 3);
    }
}
