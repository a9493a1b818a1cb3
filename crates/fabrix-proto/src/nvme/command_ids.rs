//! Command ids of one queue, as the controller sees them: which are in use.
//!
//! The host chooses the ids. Two commands in progress may not have the same one, because the
//! answers name nothing else.

use alloc::boxed::Box;

/// The ids in use. One bit for each of the 65,536 ids, 8 KiB in all: a duplicate is found in one
/// step, whatever ids a host uses.
pub(super) struct CommandIds {
    taken: Box<[u64]>,
}

impl CommandIds {
    /// No id is in use.
    pub(super) fn new() -> Self {
        Self {
            taken: alloc::vec![0; WORDS].into_boxed_slice(),
        }
    }

    /// Whether a command in progress has this id.
    pub(super) fn is_taken(&self, id: u16) -> bool {
        self.taken[word(id)] & bit(id) != 0
    }

    /// Takes an id. False: another command has it.
    #[inline(always)]
    pub(super) fn take(&mut self, id: u16) -> bool {
        let is_free = !self.is_taken(id);
        self.taken[word(id)] |= bit(id);
        is_free
    }

    /// Frees an id.
    #[inline(always)]
    pub(super) fn free(&mut self, id: u16) {
        self.taken[word(id)] &= !bit(id);
    }
}

fn word(id: u16) -> usize {
    usize::from(id / 64)
}

fn bit(id: u16) -> u64 {
    1 << (id % 64)
}

const WORDS: usize = (u16::MAX as usize + 1) / 64;
