//! Executes jobs: one thread per job, a common start, progress reports, and the results at the end.
//!
//! The calling thread waits and adds up the counters. It does not access a disk. Every exit path
//! stops and joins all threads. `workers` manages the threads, and `monitor` reads time and
//! counters.

mod monitor;
mod overlap;
mod starts;
mod workers;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fabrix_block::Device;
use fabrix_rt::ShardConfig;

use crate::job::{Job, JobError};
use crate::results::Results;
pub use starts::Start;
use workers::Workers;

/// Execution parameters of a run. They do not influence the requests.
#[derive(Clone)]
pub struct Config {
    /// Configuration of each job's shard. Its memory limit is raised by the size of the job's
    /// buffers.
    pub shard: ShardConfig,
    /// Cores for the jobs: job `i` runs on core `pin[i % len]`. Empty: the scheduler decides.
    pub pin: Vec<usize>,
    /// Interval of the progress reports.
    pub progress_every: Duration,
    /// Time limit for the disk's first answer.
    pub ready: Duration,
    /// Time without any completion after which the last requests of an amount, or of the
    /// verification at the end, are given up.
    pub drain: Duration,
    /// `drain` after the planned time, after a failure, and after the user has stopped the run.
    /// After a stop it also limits the wait for the first answer.
    pub stop_drain: Duration,
    /// Set to true by the user to stop the run. The results until then are returned.
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
    /// Whether the user has stopped the run.
    fn is_stopped(&self) -> bool {
        let stop = self.stop.as_ref();
        stop.is_some_and(|stop| stop.load(Ordering::Relaxed))
    }
}

/// Phase of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The load runs, but is not yet measured.
    Ramp,
    /// The load runs and is measured.
    Measuring,
    /// The load has ended. The run waits for the last completions, or reads back written blocks.
    Finishing,
}

/// Progress report.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Progress {
    /// Current phase.
    pub phase: Phase,
    /// Time since the start of the load.
    pub elapsed: Duration,
    /// Planned duration: ramp and measured time.
    pub planned: Duration,
    /// Completed requests since the start of the measurement, or of the load during the ramp.
    pub ios: u64,
    /// Requests per second since the previous report.
    pub iops: f64,
    /// Bytes per second since the previous report.
    pub bw_bytes: f64,
    /// Failed requests so far.
    pub errors: u64,
}

/// Reason why there are no results, as a sentence for the user.
#[derive(Debug)]
pub enum RunError {
    /// The job cannot run on these disks.
    Job(JobError),
    /// A thread, a channel or memory was not available, or the disk did not answer its first read.
    Start(String),
    /// A thread ended without a result: a fault of the program.
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

/// One of several jobs that run side by side, with its disks.
#[derive(Clone, Copy)]
pub struct Part<'a> {
    /// The disks. Job `i` of `numjobs` works on disk `i % disks`.
    pub devices: &'a [Arc<dyn Device>],
    /// The job.
    pub job: &'a Job,
    /// Destination of a copy: the job reads, and the data is written there.
    pub copy_to: Option<CopyTo<'a>>,
    /// Start of the part.
    pub start: Start,
}

/// Destination of a copy.
#[derive(Clone, Copy)]
pub struct CopyTo<'a> {
    /// The disk to write to.
    pub device: &'a Arc<dyn Device>,
    /// Position of the region's first byte on that disk, in bytes.
    pub offset: u64,
}

/// Runs a job on one or more disks and waits for its end.
///
/// Each of `numjobs` jobs has its own thread, shard and channel. Job `i` works on disk `i % disks`.
/// All jobs start together when every channel has answered a first read. `progress` is called on
/// this thread every `config.progress_every`.
///
/// Errors: see [`RunError`]. A failed first read is an error of the run. Later failures of requests
/// are part of the results.
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
            start: Start::default(),
        }],
        config,
        progress,
    )?;
    Ok(results.pop().expect("one part has one result"))
}

/// Runs several jobs side by side, each as in [`run`]. All start together unless their [`Start`]
/// says otherwise, and each ends at its own time. The results are in the order of `parts`.
///
/// Errors: see [`RunError`].
pub fn run_together(
    parts: &[Part<'_>],
    config: &Config,
    progress: &mut dyn FnMut(&Progress),
) -> Result<Vec<Results>, RunError> {
    let mut workers = Workers::spawn_all(parts, config)?;
    workers.wait_until_ready(config)?;
    workers.observe(parts, config, progress)
}
