//! Receives of recently active connections, tried by direct system calls while the shard spins.
//!
//! A receive in the ring costs a poll request, a wake-up and a second entry into the kernel. If the
//! peer answers within microseconds, that is a tenth of the round trip. So a few receives stay here
//! while the shard spins. Before it sleeps they go into the ring.

use super::now::{ended, receive};
use crate::driver::{Completed, Submission};
use crate::{Op, TaskId};

/// The receives that stay out of the ring.
pub(super) struct Warm {
    held: Vec<Held>,
}

struct Held {
    submission: Submission,
    tries: u32,
}

/// Most receives that stay out of the ring. The ring serves more connections better, with one call
/// for all.
pub(super) const MOST: usize = 2;
/// Tries, about a millisecond, after which a silent connection goes into the ring. At a few
/// thousand requests a second the next request comes sooner. An idle connection costs no tries
/// after that.
const TRIES_MOST: u32 = 4096;

impl Warm {
    /// An empty list, with all its memory: nothing is allocated once a connection is ready.
    pub(super) fn new() -> Self {
        Self {
            held: Vec::with_capacity(MOST),
        }
    }

    /// Whether there is room for one more receive.
    pub(super) fn has_room(&self) -> bool {
        self.held.len() < MOST
    }

    /// Adds a receive.
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

    /// Tries every receive once. Receives without bytes for too long move to `cold`.
    pub(super) fn attempt(&mut self, endings: &mut Vec<Completed>, cold: &mut Vec<Submission>) {
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

    /// Removes one receive, which goes into the ring because the shard is about to sleep.
    pub(super) fn take(&mut self) -> Option<Submission> {
        self.held.pop().map(|held| held.submission)
    }

    /// Drops the receives of a removed task.
    pub(super) fn forget(&mut self, task: TaskId) {
        self.held.retain(|held| held.submission.0.task != task);
    }
}
