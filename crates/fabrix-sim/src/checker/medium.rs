//! What the medium below a block may hold: the writes of which one is left when the power fails.

use super::{Tick, Value, WriteId};

/// The writes that may be on the medium of one block.
#[derive(Clone, Debug)]
pub(super) struct Medium(Vec<Kept>);

/// A write that may be on the medium.
#[derive(Clone, Copy, Debug)]
struct Kept {
    write: WriteId,
    /// The time of its end. The largest number: it runs, or has failed and may happen yet.
    ended: Tick,
}

impl Default for Medium {
    /// Zeroes.
    fn default() -> Self {
        let write = WriteId { value: 0, began: 0 };
        Self(vec![Kept { write, ended: 0 }])
    }
}

impl Medium {
    /// The writes that may be on the medium.
    pub(super) fn values(&self) -> impl Iterator<Item = Value> {
        self.0.iter().map(|kept| kept.write.value)
    }

    /// A write begins. The cache may write it back at any time.
    pub(super) fn write_begins(&mut self, write: WriteId) {
        let ended = Tick::MAX;
        self.0.push(Kept { write, ended });
    }

    /// A write was acknowledged.
    pub(super) fn write_ends(&mut self, write: WriteId, now: Tick) {
        if let Some(kept) = self.0.iter_mut().find(|kept| kept.write == write) {
            kept.ended = now;
        }
    }

    /// A write ends without any effect.
    pub(super) fn never_happens(&mut self, write: WriteId) {
        self.0.retain(|kept| kept.write != write);
    }

    /// A write is on the medium. What had ended before it began is gone.
    pub(super) fn is_durable(&mut self, write: WriteId) {
        self.0
            .retain(|kept| kept.write == write || kept.ended > write.began);
    }

    /// A flush has ended. `possible`: what the block may have held since the flush began.
    pub(super) fn flushed(&mut self, possible: &[Value]) {
        self.0.retain(|kept| possible.contains(&kept.write.value));
    }

    /// The block held `value` after the power was lost at `lost`. If the write had ended before,
    /// the medium has kept it, and none of the others of that time.
    pub(super) fn saw(&mut self, value: Value, lost: Tick) {
        let of_value = self.0.iter().filter(|kept| kept.write.value == value);
        let last = of_value.map(|kept| kept.ended).max();
        if last.is_some_and(|last| last < lost) {
            self.0
                .retain(|kept| kept.write.value == value || kept.ended > lost);
        }
    }
}
