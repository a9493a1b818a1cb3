//! What came of a run: plain values, in fio's terms, for the program to write down as it likes.
//!
//! Nothing here knows a format. Times are nanoseconds, rates are per second of measured time
//! (without `ramp`).

use std::time::Duration;

use fabrix_block::Status;

use crate::cpu::Cpu;
use crate::job::Job;
use crate::latency::{Latency, Recorder, real};
use crate::series::Point;
use crate::steady::Attained;

/// One direction of one job, or of all jobs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Side {
    /// Requests that succeeded.
    pub ios: u64,
    /// Bytes they moved.
    pub bytes: u64,
    /// Measured time.
    pub runtime_ns: u64,
    /// Requests per second.
    pub iops: f64,
    /// Bytes per second.
    pub bw_bytes: f64,
    /// From the submission of a request to its ending (fio's `clat`, with the submission included).
    pub service: Latency,
    /// From the moment it was meant to start (fio's `lat`): the same in a closed loop.
    pub latency: Latency,
}

/// A job's verification.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verified {
    /// Blocks that were read back and compared.
    pub blocks_checked: u64,
    /// Blocks that were wrong.
    pub errors: u64,
    /// The first of them, as a sentence.
    pub first_error: Option<String>,
}

/// Requests that failed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Errors {
    /// How often each status came, the ones that came only.
    pub by_status: Vec<(Status, u64)>,
    /// The first failure, as a sentence.
    pub first: Option<String>,
}

impl Errors {
    /// All failures.
    pub fn total(&self) -> u64 {
        self.by_status.iter().map(|(_, count)| count).sum()
    }

    /// Counts one more failure; the sentence is made for the first one only.
    pub(crate) fn count(&mut self, status: Status, sentence: impl FnOnce() -> String) {
        match self
            .by_status
            .iter_mut()
            .find(|(known, _)| *known == status)
        {
            Some((_, count)) => *count += 1,
            None => self.by_status.push((status, 1)),
        }
        self.first.get_or_insert_with(sentence);
    }

    fn add(&mut self, other: &Self) {
        for (status, count) in &other.by_status {
            match self.by_status.iter_mut().find(|(known, _)| known == status) {
                Some((_, sum)) => *sum += count,
                None => self.by_status.push((*status, *count)),
            }
        }
        if self.first.is_none() {
            self.first.clone_from(&other.first);
        }
    }
}

/// One job, or all of them together.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct JobResult {
    /// Reads.
    pub read: Side,
    /// Writes.
    pub write: Side,
    /// Both.
    pub total: Side,
    /// CPU time of the job's thread in the measured time.
    pub cpu_time: Duration,
    /// Requests that failed, whenever they did.
    pub errors: Errors,
    /// How often the disk had no room for a request; it was offered again.
    pub busy: u64,
    /// Why the job ended before its time, if it did: a sentence.
    pub ended_early: Option<String>,
    /// Present when the job verified.
    pub verify: Option<Verified>,
}

/// What a run gives.
#[derive(Clone, Debug, PartialEq)]
pub struct Results {
    /// What was asked.
    pub job: Job,
    /// Each job, in order.
    pub jobs: Vec<JobResult>,
    /// All jobs together (fio's `group_reporting`).
    pub aggregate: JobResult,
    /// Processor use while measuring; with several jobs side by side, all of theirs but
    /// `job_cores`.
    pub cpu: Cpu,
    /// How the rates went, second by second or so.
    pub series: Vec<Point>,
    /// Present when the job asked for a steady state.
    pub steady: Option<Attained>,
}

impl Results {
    /// Whether nothing failed, nothing was found wrong and every job ran its time.
    pub fn is_clean(&self) -> bool {
        let all = &self.aggregate;
        let verified = all
            .verify
            .as_ref()
            .is_none_or(|verified| verified.errors == 0);
        all.errors.total() == 0 && all.ended_early.is_none() && verified
    }
}

/// What one job counts while it runs; sums of these make the aggregate.
#[derive(Clone, Debug)]
pub(crate) struct Tally {
    /// Reads, then writes.
    pub(crate) sides: [SideTally; 2],
    pub(crate) runtime_ns: u64,
    pub(crate) cpu_time: Duration,
    pub(crate) errors: Errors,
    pub(crate) busy: u64,
    pub(crate) ended_early: Option<String>,
    pub(crate) verify: Option<Verified>,
}

/// One direction while it runs.
#[derive(Clone, Debug)]
pub(crate) struct SideTally {
    pub(crate) ios: u64,
    pub(crate) bytes: u64,
    pub(crate) service: Recorder,
    /// Only in an open loop; otherwise the same as `service`.
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
        self.service.add(&other.service);
        if let (Some(mine), Some(theirs)) = (&mut self.latency, &other.latency) {
            mine.add(theirs);
        }
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
    /// Everything allocated, nothing counted.
    pub(crate) fn new(open_loop: bool, verify: bool) -> Self {
        Self {
            sides: [SideTally::new(open_loop), SideTally::new(open_loop)],
            runtime_ns: 0,
            cpu_time: Duration::ZERO,
            // Room for every status, so that a failing disk does not make the worker allocate.
            errors: Errors {
                by_status: Vec::with_capacity(16),
                first: None,
            },
            busy: 0,
            ended_early: None,
            verify: verify.then(Verified::default),
        }
    }

    /// Forgets the ramp; failures and wrong blocks are never forgotten.
    pub(crate) fn begin_measuring(&mut self) {
        self.sides.iter_mut().for_each(SideTally::reset);
        self.busy = 0;
    }

    /// Adds another job; measured time is that of the one that ran longest, as in fio.
    pub(crate) fn add(&mut self, other: &Self) {
        for (mine, theirs) in self.sides.iter_mut().zip(&other.sides) {
            mine.add(theirs);
        }
        self.runtime_ns = self.runtime_ns.max(other.runtime_ns);
        self.cpu_time += other.cpu_time;
        self.errors.add(&other.errors);
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

    /// Cores that the job's thread kept busy in its measured time.
    pub(crate) fn cores(&self) -> f64 {
        if self.runtime_ns == 0 {
            return 0.0;
        }
        self.cpu_time.as_secs_f64() / (real(self.runtime_ns.into()) / 1e9)
    }

    /// The figures for the report, with the values at these percentiles.
    pub(crate) fn result(&self, percentiles: &[f64]) -> JobResult {
        let mut both = self.sides[0].clone();
        both.add(&self.sides[1]);
        JobResult {
            read: self.sides[0].result(self.runtime_ns, percentiles),
            write: self.sides[1].result(self.runtime_ns, percentiles),
            total: both.result(self.runtime_ns, percentiles),
            cpu_time: self.cpu_time,
            errors: self.errors.clone(),
            busy: self.busy,
            ended_early: self.ended_early.clone(),
            verify: self.verify.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_add_up_and_the_longest_gives_the_time() {
        let mut sum = Tally::new(false, false);
        for runtime_ns in [1_000_000_000, 2_000_000_000] {
            let mut job = Tally::new(false, false);
            job.runtime_ns = runtime_ns;
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
        errors.count(Status::MediaRead, || "first".into());
        errors.count(Status::NoSpace, || "second".into());
        errors.count(Status::MediaRead, || "third".into());
        assert_eq!(errors.first.as_deref(), Some("first"));
        assert_eq!(
            errors.by_status,
            [(Status::MediaRead, 2), (Status::NoSpace, 1)]
        );
        assert_eq!(errors.total(), 3);
    }
}
