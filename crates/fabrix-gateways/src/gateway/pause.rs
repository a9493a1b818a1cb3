//! The pause between two clients of the disks. It grows after each client that was of no use, so
//! that a cluster that refuses every client gets few of them: each stays in its blocklist for long.
//! A gateway that stands still again and again comes back each time at once. Knows times and what
//! became of the client, and not the state of the group.

use std::time::Duration;

/// The age of the present client of the disks, and the pause before the next one.
#[derive(Debug)]
pub(super) struct Pause {
    /// When the client was made.
    begun: Duration,
    /// When the gateway has joined with it. None: it has not.
    joined: Option<Duration>,
    /// The client has opened disks to hosts.
    has_taken: bool,
    /// The cluster has refused the client at a disk, and it had opened none before.
    is_refused: bool,
    length: Duration,
}

impl Pause {
    /// The first client was made now.
    pub(super) fn new(now: Duration) -> Self {
        Self {
            begun: now,
            joined: None,
            has_taken: false,
            is_refused: false,
            length: Duration::ZERO,
        }
    }

    /// When the next client may be made.
    pub(super) fn ends_at(&self) -> Duration {
        self.begun + self.length
    }

    /// The gateway has joined its group.
    pub(super) fn joined(&mut self, now: Duration) {
        self.joined = Some(now);
    }

    /// The client has opened a disk to hosts.
    pub(super) fn took(&mut self) {
        self.has_taken = true;
    }

    /// The cluster refuses the client at a disk that was to be opened to hosts.
    pub(super) fn refused(&mut self) {
        self.is_refused = !self.has_taken;
    }

    /// There is a new client. The cluster has last taken a beat of the gateway at `heard`. Beats
    /// come from another client, so they do not prove that the cluster takes that of the disks.
    pub(super) fn renewed(&mut self, now: Duration, heard: Duration) {
        let was_long = self.joined.is_some_and(|at| heard >= at + LONG_LIFE);
        let length = match was_long && !self.is_refused {
            true => SHORTEST,
            false => (self.length * 2).clamp(SHORTEST, LONGEST),
        };
        *self = Self {
            length,
            ..Self::new(now)
        };
    }
}

const SHORTEST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(60);
/// A gateway whose beats the cluster took for so long had no fault that lasts.
const LONG_LIFE: Duration = Duration::from_secs(2);
