//! The time in which every request of a world ends after its last fault: a bound that follows from
//! the deadlines of hosts and targets.

use std::time::Duration;

/// Everything that a world still has to do when its faults are over, at most.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Backlog {
    /// Requests of all hosts.
    pub(crate) requests: u64,
    /// Longest pause before a request.
    pub(crate) pause: Duration,
    /// Longest time of a request at the disk.
    pub(crate) at_disk: Duration,
    /// Longest time that a write of a lost path waits before it is repeated.
    pub(crate) unsettled: Duration,
}

impl Backlog {
    /// The time in which it is done: an outage, and then one request after the other.
    pub(crate) fn most(self) -> Duration {
        let each = self.pause + self.at_disk * STEPS + TRAVEL;
        let requests = u32::try_from(self.requests).expect("few requests");
        OUTAGE + self.unsettled * LOSSES + each * requests
    }
}

/// An outage takes no longer. A host notices a silent target by its keep-alive (5 s, and 5 s for
/// the answer). The next attempt follows after 5 s, may meet the same silence for 10 s, and waits
/// 3 s for older sessions and 5 s for the disk. A few attempts fail while the target ends what it
/// had.
const OUTAGE: Duration = Duration::from_secs(60);
/// The same write is lost so often at most after the last fault: once on each of two paths.
const LOSSES: u32 = 2;
/// Steps of a request at the disk: a compare-and-write reads and writes, and one other waits for
/// it.
const STEPS: u32 = 3;
/// Ten ways through the network, of 10 ms at most.
const TRAVEL: Duration = Duration::from_millis(100);
