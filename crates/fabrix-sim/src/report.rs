//! What a run of a world brought.

use std::fmt;
use std::time::Duration;

/// What a run brought.
#[derive(Debug, Default)]
pub struct Report {
    /// Equal for two runs of one seed.
    pub digest: u64,
    /// What was wrong.
    pub faults: Vec<String>,
    /// Requests that ended.
    pub ended: u64,
    /// Those of them that failed.
    pub failed: u64,
    /// How often hosts lost their connections.
    pub losses: u64,
    /// Turns of all shards.
    pub turns: u64,
    /// Most bytes of buffers in use on one shard.
    pub buffer_bytes: usize,
    /// The time that passed until the last request had ended.
    pub time: Duration,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} requests ended, {} of them with an error, {} connections lost, in {:?} of simulated time and {} \
             turns, with {} bytes of buffers at most; digest {:016x}",
            self.ended,
            self.failed,
            self.losses,
            self.time,
            self.turns,
            self.buffer_bytes,
            self.digest
        )
    }
}
