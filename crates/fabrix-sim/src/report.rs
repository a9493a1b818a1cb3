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

impl Report {
    /// Whatever is left of what hosts have used is a fault.
    pub(crate) fn left(&mut self, left: impl IntoIterator<Item = (&'static str, usize)>) {
        let left = left.into_iter().filter(|(_, count)| *count > 0);
        self.faults
            .extend(left.map(|(what, count)| format!("{count} {what} are left")));
    }
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
