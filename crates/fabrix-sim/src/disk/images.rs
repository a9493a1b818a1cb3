//! The two images of a disk: what reads see, and what is left after a loss of power.

use std::collections::BTreeMap;
use std::ops::Range;

use fabrix_block::Deallocate;

use super::{BLOCK_BYTES, DiskHabits};
use crate::choices::Choices;

/// The images, and the writes that have not taken effect.
pub(super) struct Images {
    habits: DiskHabits,
    /// What reads see.
    seen: Vec<u8>,
    /// What is on the medium.
    medium: Vec<u8>,
    /// Writes in progress, by channel and slot.
    under_way: BTreeMap<(u64, usize), Write>,
}

/// A write in progress.
pub(super) struct Write {
    /// Its first byte on the disk.
    pub(super) start: usize,
    /// Its bytes.
    pub(super) source: Vec<u8>,
    /// Whether it deallocates: its blocks hold zeroes if the disk promises so.
    pub(super) is_deallocation: bool,
    /// Whether it is on the medium when it ends.
    pub(super) durable: bool,
}

impl Images {
    /// Zeroes.
    pub(super) fn new(bytes: usize, habits: DiskHabits) -> Self {
        Self {
            habits,
            seen: vec![0; bytes],
            medium: vec![0; bytes],
            under_way: BTreeMap::new(),
        }
    }

    /// What reads see.
    pub(super) fn seen(&self) -> &[u8] {
        &self.seen
    }

    /// A write begins. From now on a loss of power may leave parts of it behind.
    pub(super) fn begin(&mut self, place: (u64, usize), write: Write) {
        self.under_way.insert(place, write);
    }

    /// The writes of a channel never take effect.
    pub(super) fn forget(&mut self, channel: u64) {
        self.under_way.retain(|(it, _), _| *it != channel);
    }

    /// A write takes effect.
    pub(super) fn take_effect(&mut self, place: (u64, usize), choices: &mut Choices) {
        let write = self.under_way.remove(&place).expect("it began");
        let durable = write.durable || !self.habits.volatile_cache;
        for (range, source) in write.blocks() {
            if write.is_deallocation && !self.is_deallocated(choices) {
                continue;
            }
            if choices.once_in(4) {
                // The cache writes the block back before it changes.
                self.medium[range.clone()].copy_from_slice(&self.seen[range.clone()]);
            }
            self.seen[range.clone()].copy_from_slice(source);
            if durable {
                self.medium[range].copy_from_slice(source);
            }
        }
    }

    /// Whether a block that is deallocated holds zeroes. Without a promise it may keep its bytes.
    fn is_deallocated(&self, choices: &mut Choices) -> bool {
        self.habits.deallocate == Deallocate::Zeroes || choices.once_in(2)
    }

    /// Everything that reads see is on the medium.
    pub(super) fn flush(&mut self) {
        self.medium.copy_from_slice(&self.seen);
    }

    /// Each block of the cache, and each block of a write in progress, is on the medium or is lost.
    pub(super) fn lose_power(&mut self, choices: &mut Choices) {
        let kept = choices.one_of(&[0, 1, 2, 4]);
        for (seen, medium) in self.seen.chunks(BLOCK).zip(self.medium.chunks_mut(BLOCK)) {
            if choices.below(4) < kept {
                medium.copy_from_slice(seen);
            }
        }
        for write in self.under_way.values() {
            for (range, source) in write.blocks() {
                if choices.below(4) < kept {
                    self.medium[range].copy_from_slice(source);
                }
            }
        }
        self.seen.copy_from_slice(&self.medium);
    }
}

impl Write {
    /// The bytes of each block, and their place on the disk.
    fn blocks(&self) -> impl Iterator<Item = (Range<usize>, &[u8])> {
        let starts = (self.start..).step_by(BLOCK);
        starts
            .zip(self.source.chunks(BLOCK))
            .map(|(start, source)| (start..start + source.len(), source))
    }
}

const BLOCK: usize = BLOCK_BYTES as usize;
