//! The end of a shard's loop, and the tasks that put it off because they still speak to a peer.

use std::mem;
use std::time::Duration;

use super::{Shard, Wait};
use crate::TaskId;

/// Whether the loop is to end, and who puts it off.
#[derive(Default)]
pub(super) struct Ending {
    is_asked_for: bool,
    /// Tasks after whose removal the loop ends.
    awaited: Vec<TaskId>,
}

impl Ending {
    pub(super) fn is_asked_for(&self) -> bool {
        self.is_asked_for
    }

    /// A task was removed.
    pub(super) fn is_removed(&mut self, id: TaskId) {
        self.awaited.retain(|awaited| *awaited != id);
    }
}

impl Shard {
    /// Ends [`Shard::run`] after this turn.
    pub fn stop(&mut self) {
        self.ending.is_asked_for = true;
    }

    /// Lets [`Shard::run`] go on until this task is removed, for at most 2 s more than it was to
    /// run. For a task that ends, and says so to its peer.
    pub fn stop_after(&mut self, id: TaskId) {
        if self.tasks.get(id).is_some() {
            self.ending.awaited.push(id);
        }
    }

    /// Turns until [`Shard::stop`] or [`Remote::stop`](crate::Remote::stop). Then each task hears
    /// of it ([`Task::stopping`](crate::Task::stopping)), and the loop goes on as long as one puts
    /// the end off. Operations in progress stay so.
    pub fn run(&mut self) {
        while !mem::take(&mut self.ending.is_asked_for) {
            self.turn(Wait::Forever);
        }
        let end = self.driver.now() + PUT_OFF_MOST;
        for task in self.tasks.all() {
            task.borrow_mut().stopping(self);
        }
        while !self.ending.awaited.is_empty() && self.driver.now() < end {
            self.ending.is_asked_for = false; // asked for twice
            self.turn(Wait::AtMost(end.since(self.driver.now())));
        }
        self.ending.is_asked_for = false;
    }
}

/// 2 s: twice as long as a session waits for the answer to its Logout.
const PUT_OFF_MOST: Duration = Duration::from_secs(2);
