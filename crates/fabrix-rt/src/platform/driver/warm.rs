//! Receives of connections that were active just now, tried by hand while the shard spins.
//!
//! A receive in the ring costs a poll request, a wake-up and a second entry into the kernel before
//! its bytes are here; where the peer answers within microseconds that is a tenth of the whole
//! round trip. So while the shard spins anyway, a few receives stay here and are tried directly;
//! before it sleeps they go into the ring.

use super::now::{ended, receive};
use crate::driver::{Ending, Submission};
use crate::{Op, TaskId};

/// The receives that are tried by hand.
pub(super) struct Warm {
    held: Vec<Held>,
}

struct Held {
    submission: Submission,
    tries: u32,
}

/// More connections than this are served better by the ring, which looks at all of them in one
/// call.
pub(super) const MOST: usize = 2;
/// A connection that was silent for so many tries, about a millisecond, is not warm any more. That
/// is longer than it is between two of a few thousand requests a second, and an idle connection
/// costs its shard no more.
const TRIES_MOST: u32 = 4096;

impl Warm {
    /// None so far. All memory is taken here: the first time may come long after a connection is
    /// ready.
    pub(super) fn new() -> Self {
        Self {
            held: Vec::with_capacity(MOST),
        }
    }

    /// Whether one more receive may stay here.
    pub(super) fn has_room(&self) -> bool {
        self.held.len() < MOST
    }

    /// Keeps a receive.
    pub(super) fn keep(&mut self, submission: Submission) {
        debug_assert!(matches!(submission.1, Op::Receive { .. }), "only receives");
        self.held.push(Held {
            submission,
            tries: 0,
        });
    }

    pub(super) fn len(&self) -> usize {
        self.held.len()
    }

    /// Tries every receive once. What has been silent for too long goes to `cold`.
    pub(super) fn attempt(&mut self, endings: &mut Vec<Ending>, cold: &mut Vec<Submission>) {
        let mut index = 0;
        while let Some(held) = self.held.get_mut(index) {
            match receive(&mut held.submission.1) {
                Some(result) => {
                    let (token, op) = self.held.remove(index).submission;
                    endings.push((token, ended(result, op)));
                }
                None if held.tries >= TRIES_MOST => cold.push(self.held.remove(index).submission),
                None => {
                    held.tries += 1;
                    index += 1;
                }
            }
        }
    }

    /// One of the receives, which is to go into the ring: the shard is going to sleep.
    pub(super) fn take(&mut self) -> Option<Submission> {
        self.held.pop().map(|held| held.submission)
    }

    /// A task is gone.
    pub(super) fn forget(&mut self, task: TaskId) {
        self.held.retain(|held| held.submission.0.task != task);
    }
}
