//! What a worker is made of, and what the run and its jobs tell each other.
//!
//! Plain values; the run (`crate::run`) fills them, a job reads them.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::mpsc::Sender;
use std::time::Duration;

use fabrix_block::Device;
use fabrix_rt::TaskId;

use crate::job::{Job, Region};
use crate::results::Tally;

/// What the run tells its jobs.
pub(crate) enum Command {
    /// Everybody is ready: begin.
    Start,
    /// End now; what is in flight is still waited for.
    Stop,
    /// The same, and nothing is missing: the rates are steady.
    Enough,
}

/// What a job tells the run.
pub(crate) enum Event {
    /// The channel is open and has answered once: which worker, and its task.
    Ready(usize, TaskId),
    /// The job could not begin: a sentence.
    Failed(String),
    /// The job of this worker is over.
    Ended(usize, Box<Tally>),
}

/// What anybody may look at while the job runs.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    /// Reads, then writes.
    pub(crate) sides: [SideCounters; 2],
    pub(crate) errors: AtomicU64,
}

/// One direction of [`Counters`].
#[derive(Debug, Default)]
pub(crate) struct SideCounters {
    pub(crate) ios: AtomicU64,
    pub(crate) bytes: AtomicU64,
    /// Latencies, added up.
    pub(crate) wait_ns: AtomicU64,
}

/// What a worker is made of.
pub(crate) struct Setup {
    /// Which of all workers of the run.
    pub(crate) worker: usize,
    /// Which of the jobs that `numjobs` asks for.
    pub(crate) index: u32,
    pub(crate) job: Job,
    pub(crate) region: Region,
    /// Where what is read is written to.
    pub(crate) copy_to: Option<Destination>,
    /// The disk's block.
    pub(crate) block_bytes: u32,
    pub(crate) run: u64,
    pub(crate) drain: Duration,
    /// The same when the user has seen enough.
    pub(crate) stop_drain: Duration,
    pub(crate) counters: Arc<Counters>,
    pub(crate) events: Sender<Event>,
}

/// The other end of a copy.
pub(crate) struct Destination {
    pub(crate) device: Arc<dyn Device>,
    /// As many bytes as the region that is read.
    pub(crate) region: Region,
}
