//! Parameters of a worker, and the messages between the run and its jobs.
//!
//! Plain values: `crate::run` creates them, and a job reads them.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::mpsc::Sender;
use std::time::Duration;

use fabrix_block::Device;
use fabrix_rt::TaskId;

use crate::arrivals::Member;
use crate::job::{Job, Region};
use crate::results::Tally;

/// Command from the run to a job.
pub(crate) enum Command {
    /// All jobs are ready: start the load.
    Start,
    /// End now. Requests in flight are still awaited.
    Stop,
    /// End now as if the time were over: the rates are steady, or another job has ended.
    End,
}

/// Event from a job to the run.
pub(crate) enum Event {
    /// The channel is open and has answered a first read. Fields: worker and its task.
    Ready(usize, TaskId),
    /// The job could not start. Field: a sentence.
    Failed(String),
    /// The job of this worker has ended.
    Ended(usize, Box<Tally>),
}

/// Counters of a running job. Any thread may read them.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    /// Counters per direction: reads, writes, trims.
    pub(crate) sides: [SideCounters; 3],
    pub(crate) errors: AtomicU64,
}

/// One direction of [`Counters`].
#[derive(Debug, Default)]
pub(crate) struct SideCounters {
    pub(crate) ios: AtomicU64,
    pub(crate) bytes: AtomicU64,
    /// Sum of the latencies in nanoseconds.
    pub(crate) wait_ns: AtomicU64,
}

/// Parameters of a worker.
pub(crate) struct Setup {
    /// Index among all workers of the run.
    pub(crate) worker: usize,
    /// Index among the `numjobs` jobs.
    pub(crate) index: u32,
    pub(crate) job: Job,
    pub(crate) region: Region,
    /// The job's part in a flow. The job takes it at its creation.
    pub(crate) flow: Option<Member>,
    /// Destination of a copy.
    pub(crate) copy_to: Option<Destination>,
    /// Block size of the disk in bytes.
    pub(crate) block_bytes: u32,
    /// Longest request of the disk in bytes. Longer requests of the job are split.
    pub(crate) max_transfer_bytes: u32,
    pub(crate) run: u64,
    pub(crate) drain: Duration,
    /// `drain` after the user has stopped the run.
    pub(crate) stop_drain: Duration,
    pub(crate) counters: Arc<Counters>,
    pub(crate) events: Sender<Event>,
}

/// Destination of a copy.
pub(crate) struct Destination {
    pub(crate) device: Arc<dyn Device>,
    /// Region on the destination disk, as long as the region that is read.
    pub(crate) region: Region,
}
