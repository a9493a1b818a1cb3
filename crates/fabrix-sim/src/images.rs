//! The two images of a disk or a file: what reads see, and what is left after a loss of power.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use crate::choices::Choices;

/// The images, and the writes that have not taken effect.
pub(crate) struct Images {
    /// What reads see.
    seen: Vec<u8>,
    /// What is on the medium.
    medium: Vec<u8>,
    /// Blocks that the cache no longer writes back, because the medium has refused them.
    given_up: BTreeSet<usize>,
    /// Writes in progress.
    under_way: BTreeMap<Place, Write>,
}

/// Number of a write in progress: that of its channel or operation, and its slot.
pub(crate) type Place = (u64, usize);

/// A write in progress.
pub(crate) struct Write {
    /// Its first byte on the disk.
    pub(crate) start: usize,
    /// Its bytes.
    pub(crate) source: Vec<u8>,
    /// Whether each of its blocks may keep its old bytes.
    pub(crate) is_a_hint: bool,
}

impl Images {
    /// Zeroes.
    pub(crate) fn new(bytes: usize) -> Self {
        Self {
            seen: vec![0; bytes],
            medium: vec![0; bytes],
            given_up: BTreeSet::new(),
            under_way: BTreeMap::new(),
        }
    }

    /// What reads see.
    pub(crate) fn seen(&self) -> &[u8] {
        &self.seen
    }

    /// All bytes.
    pub(crate) fn whole(&self) -> Range<usize> {
        0..self.seen.len()
    }

    /// A write begins. From now on a loss of power may leave parts of it behind.
    pub(crate) fn begin(&mut self, place: Place, write: Write) {
        self.under_way.insert(place, write);
    }

    /// A write never takes effect.
    pub(crate) fn give_back(&mut self, place: Place) {
        self.under_way.remove(&place);
    }

    /// Changes the size. What is behind the end is lost, on the medium too.
    pub(crate) fn resize(&mut self, bytes: usize) {
        self.seen.resize(bytes, 0);
        self.medium.resize(bytes, 0);
        self.given_up.retain(|block| (block + 1) * BLOCK <= bytes);
    }

    /// The writes of a channel or operation never take effect.
    pub(crate) fn forget(&mut self, channel: u64) {
        self.under_way.retain(|(it, _), _| *it != channel);
    }

    /// The first `bytes` of a write take effect for readers. Result: what has changed.
    pub(crate) fn take_effect(
        &mut self,
        place: Place,
        bytes: usize,
        choices: &mut Choices,
    ) -> Range<usize> {
        let mut write = self.under_way.remove(&place).expect("it began");
        write.source.truncate(bytes);
        for (range, source) in write.blocks() {
            if write.is_a_hint && choices.once_in(2) {
                continue;
            }
            if choices.once_in(4) {
                // The cache writes the block back before it changes.
                self.write_back(range.clone());
            }
            self.seen[range.clone()].copy_from_slice(source);
            self.given_up.remove(&(range.start / BLOCK));
        }
        write.start..write.start + write.source.len()
    }

    /// A write fails: each of its blocks takes effect or not.
    pub(crate) fn tear(&mut self, place: Place, choices: &mut Choices) {
        let write = self.under_way.get_mut(&place).expect("it began");
        write.is_a_hint = true;
        let bytes = write.source.len();
        self.take_effect(place, bytes, choices);
    }

    /// The cache writes a range back to the medium.
    pub(crate) fn write_back(&mut self, range: Range<usize>) {
        for block in range.start / BLOCK..range.end.div_ceil(BLOCK) {
            if !self.given_up.contains(&block) {
                let range = block * BLOCK..(block + 1) * BLOCK;
                self.medium[range.clone()].copy_from_slice(&self.seen[range]);
            }
        }
    }

    /// The cache fails to write some blocks of a range back, and gives them up: readers see them
    /// until the power is lost. False: there was nothing to write.
    pub(crate) fn give_up(&mut self, range: Range<usize>, choices: &mut Choices) -> bool {
        let mut any = false;
        for block in range.start / BLOCK..range.end.div_ceil(BLOCK) {
            let range = block * BLOCK..(block + 1) * BLOCK;
            let is_clean = self.given_up.contains(&block);
            if !is_clean && self.seen[range.clone()] != self.medium[range] && choices.once_in(2) {
                self.given_up.insert(block);
                any = true;
            }
        }
        any
    }

    /// Each block of the cache, and each block of a write in progress, is on the medium or is lost.
    pub(crate) fn lose_power(&mut self, choices: &mut Choices) {
        let kept = choices.one_of(&[0, 1, 2, 4]);
        for block in 0..self.seen.len() / BLOCK {
            if choices.below(4) < kept {
                self.write_back(block * BLOCK..(block + 1) * BLOCK);
            }
        }
        for write in self.under_way.values() {
            for (range, source) in write.blocks() {
                if choices.below(4) < kept && range.end <= self.medium.len() {
                    self.medium[range].copy_from_slice(source);
                }
            }
        }
        self.seen.copy_from_slice(&self.medium);
        self.given_up.clear();
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

/// Bytes of a block.
pub(crate) const BLOCK_BYTES: u32 = 512;
/// The same, for slices.
pub(crate) const BLOCK: usize = BLOCK_BYTES as usize;
