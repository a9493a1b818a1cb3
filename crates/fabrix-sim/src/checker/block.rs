//! What one block may hold: the writes that a read may return, and how reads, ends of writes and
//! losses of power narrow them.

use super::medium::Medium;
use super::{Tick, Value, WriteId};

/// What one block may hold.
#[derive(Clone, Debug, Default)]
pub(super) struct Block {
    /// Acknowledged writes that may be the last one, with the times of their ends.
    pub(super) acknowledged: Vec<(Value, Tick)>,
    /// Writes in progress, and whether they were seen.
    pub(super) running: Vec<(WriteId, bool)>,
    /// Writes that failed: they may have happened, and may happen yet.
    pub(super) failed: Vec<Failed>,
    /// What is left when the power fails.
    pub(super) medium: Medium,
}

/// A write that failed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Failed {
    pub(super) write: WriteId,
    /// Its host may have sent it again: it may happen after it was seen.
    pub(super) repeats: bool,
}

impl Block {
    /// The values that a read may return.
    pub(super) fn possible(&self) -> impl Iterator<Item = Value> {
        let acknowledged = self.acknowledged.iter().map(|(value, _)| *value);
        let running = self.running.iter().map(|(write, _)| write.value);
        acknowledged
            .chain(running)
            .chain(self.failed.iter().map(|it| it.write.value))
    }

    /// Takes a write out of those in progress. Result: whether it was seen, None if it is over.
    pub(super) fn take_running(&mut self, write: WriteId) -> Option<bool> {
        let index = self.running.iter().position(|(it, _)| *it == write)?;
        Some(self.running.remove(index).1)
    }

    /// The power is lost: the block holds one of the writes on its medium.
    pub(super) fn power_lost(&mut self, now: Tick) {
        for running in &mut self.running {
            running.1 = false;
        }
        let running = self.running.iter().map(|(write, _)| write.value);
        let open: Vec<_> = running
            .chain(self.failed.iter().map(|it| it.write.value))
            .collect();
        let left = self.medium.values().filter(|it| !open.contains(it));
        self.acknowledged = left.map(|value| (value, now)).collect();
    }

    /// The block held `value` at some time from `began` to `now`: what had ended before is gone.
    /// Only one write can have left a value, but for zeroes: which write was seen is known then if
    /// there is one.
    pub(super) fn saw(&mut self, value: Value, began: Tick, now: Tick) {
        self.acknowledged
            .retain(|(it, ended)| *it == value || *ended > began);
        if self.possible().filter(|it| *it == value).count() > 1 {
            return;
        }
        if let Some(running) = self.running.iter_mut().find(|(it, _)| it.value == value) {
            running.1 = true;
        } else if let Some(index) = self.failed.iter().position(|it| it.write.value == value) {
            if !self.failed[index].repeats {
                self.failed.remove(index);
            }
            self.acknowledged.push((value, now));
        }
    }
}
