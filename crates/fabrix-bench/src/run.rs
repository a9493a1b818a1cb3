//! Runs job specifications: a thread per job, a common start, the progress meanwhile, the results
//! at the end.
//!
//! The calling thread waits and adds up; it touches no disk. Every way out, good or bad, ends and
//! joins all threads. The threads are `crew`, time and readings are `watch`.

mod crew;
mod watch;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fabrix_block::Device;
use fabrix_rt::ShardConfig;

use crate::job::{Job, JobError};
use crate::results::Results;
use crew::Crew;

/// How a run is carried out; nothing here changes what is asked of the disk.
#[derive(Clone)]
pub struct Config {
    /// What each job's shard is made of. Its memory limit is raised to what the job's buffers need.
    pub shard: ShardConfig,
    /// The cores of the jobs, job `i` on core `i % len`; empty: the scheduler's choice.
    pub pin: Vec<usize>,
    /// How often the progress is told.
    pub progress_every: Duration,
    /// How long the disk may take to answer its first read.
    pub ready: Duration,
    /// How long the last requests may go without any answer.
    pub drain: Duration,
    /// The same when the user has seen enough; also for the first answer.
    pub stop_drain: Duration,
    /// Becomes true when the user has seen enough; the results until then are given.
    pub stop: Option<Arc<AtomicBool>>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            shard: ShardConfig::default(),
            pin: Vec::new(),
            progress_every: Duration::from_millis(500),
            ready: Duration::from_secs(30),
            drain: Duration::from_secs(30),
            stop_drain: Duration::from_secs(5),
            stop: None,
        }
    }
}

impl Config {
    /// Whether the user has seen enough.
    fn is_stopped(&self) -> bool {
        let stop = self.stop.as_ref();
        stop.is_some_and(|stop| stop.load(Ordering::Relaxed))
    }
}

/// What a run is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The load runs and does not count yet.
    Ramp,
    /// The load runs and counts.
    Measuring,
    /// The load is over; last answers are waited for, or what was written is read back.
    Finishing,
}

/// What can be said while a run lasts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Progress {
    /// What the run is doing.
    pub phase: Phase,
    /// Time since the load began.
    pub elapsed: Duration,
    /// Ramp and measured time together.
    pub planned: Duration,
    /// Requests done since measuring began, during the ramp since the load began.
    pub ios: u64,
    /// Requests per second since the progress was last told.
    pub iops: f64,
    /// Bytes per second since the progress was last told.
    pub bw_bytes: f64,
    /// Failed requests so far.
    pub errors: u64,
}

/// Why there are no results: a sentence for the user.
#[derive(Debug)]
pub enum RunError {
    /// The job cannot be run on these disks.
    Job(JobError),
    /// A thread, a channel or memory was not to be had, or the disk did not answer its first read.
    Start(String),
    /// A thread ended without a result: our own mistake.
    Lost(String),
}

impl fmt::Display for RunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Job(error) => error.fmt(f),
            Self::Start(sentence) | Self::Lost(sentence) => f.write_str(sentence),
        }
    }
}

impl std::error::Error for RunError {}

/// One job with its disks, of several that run side by side.
#[derive(Clone, Copy)]
pub struct Part<'a> {
    /// The disks; job `i` of `numjobs` works on disk `i % disks`.
    pub devices: &'a [Arc<dyn Device>],
    /// What is done on them.
    pub job: &'a Job,
    /// Where what is read is written to: a copy. The job then only reads.
    pub copy_to: Option<CopyTo<'a>>,
}

/// The other end of a copy.
#[derive(Clone, Copy)]
pub struct CopyTo<'a> {
    /// The disk that is written.
    pub device: &'a Arc<dyn Device>,
    /// Where on it the first byte of the job's region comes to lie.
    pub offset: u64,
}

/// Runs a job on one disk or several, and waits for its end.
///
/// Each of `numjobs` jobs has a thread, a shard and a channel of its own; job `i` works on disk `i
/// % disks`. All begin together, when every channel has answered a first read. `progress` is called
/// on this thread every `config.progress_every`.
///
/// Errors: see [`RunError`]; a first read that fails is one. Later requests that fail are not
/// errors of the run; they stand in the results.
pub fn run(
    devices: &[Arc<dyn Device>],
    job: &Job,
    config: &Config,
    progress: &mut dyn FnMut(&Progress),
) -> Result<Results, RunError> {
    let mut results = run_together(
        &[Part {
            devices,
            job,
            copy_to: None,
        }],
        config,
        progress,
    )?;
    Ok(results.pop().expect("one part has one result"))
}

/// Runs several jobs side by side, as [`run`] does one: all begin together, and each ends when its
/// own time is over.
///
/// Errors: see [`RunError`]. The results are in the order of the parts.
pub fn run_together(
    parts: &[Part<'_>],
    config: &Config,
    progress: &mut dyn FnMut(&Progress),
) -> Result<Vec<Results>, RunError> {
    let mut crew = Crew::gather(parts, config)?;
    crew.wait_until_ready(config)?;
    crew.start()?;
    crew.watch(parts, config, progress)
}
