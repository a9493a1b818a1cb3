//! The disk requests of one connection: their tokens, and the abandoned ones.
//!
//! A command has one request at a disk at a time, so the command's slot names the request. A
//! command that ends before its request abandons it. The slot is then free for another command, and
//! the token of the abandoned request no longer names the slot. A connection stays until its
//! abandoned requests have ended, because the disk delivers their completions to its task.

use fabrix_proto::Slot;

use crate::disk::Barrier;

/// The disk requests of one connection.
#[derive(Default)]
pub(crate) struct Requests {
    /// Generation of tokens of each slot. Slots behind the end have the first one. Abandoning a
    /// request begins a new generation of its slot.
    generations: Vec<u16>,
    /// Token numbers of abandoned requests, each with the barrier before its disk. A disk that is
    /// not exported any more needs none.
    abandoned: Vec<(u32, Option<Barrier>)>,
}

impl Requests {
    /// Token number of the request that the command of a slot makes now.
    #[inline(always)]
    pub(crate) fn number(&self, slot: Slot) -> u32 {
        number(slot, self.generation(slot))
    }

    /// Takes the end of a request. Returns the slot of its command, or `None` if the request was
    /// abandoned.
    pub(crate) fn ended(&mut self, number: u32) -> Option<Slot> {
        let own = number - DISK_SLOTS;
        let slot = Slot((own & SLOT_MASK) as u16);
        if own >> GENERATION_SHIFT == u32::from(self.generation(slot)) {
            return Some(slot);
        }
        self.abandoned.retain(|(other, _)| *other != number);
        None
    }

    /// Abandons the request of a slot. The slot is free for another command.
    pub(crate) fn abandon(&mut self, slot: Slot, barrier: Option<Barrier>) {
        self.abandoned.push((self.number(slot), barrier));
        let at = usize::from(slot.0);
        if self.generations.len() <= at {
            self.generations.resize(at + 1, 0);
        }
        // A generation may come again while a request of its first use is still at a disk.
        while self.is_abandoned(self.number(slot)) {
            self.generations[at] = (self.generations[at] + 1) % GENERATIONS;
        }
    }

    /// Whether abandoned requests are still at disks.
    pub(crate) fn are_abandoned(&self) -> bool {
        !self.abandoned.is_empty()
    }

    fn is_abandoned(&self, number: u32) -> bool {
        self.abandoned.iter().any(|(other, _)| *other == number)
    }

    #[inline(always)]
    fn generation(&self, slot: Slot) -> u16 {
        let generation = self.generations.get(usize::from(slot.0));
        generation.copied().unwrap_or(0)
    }
}

#[inline(always)]
const fn number(slot: Slot, generation: u16) -> u32 {
    DISK_SLOTS + ((generation as u32) << GENERATION_SHIFT | slot.0 as u32)
}

/// Lowest token number of disk requests. The transport and the timers have those below.
pub(crate) const DISK_SLOTS: u32 = 16;
const GENERATION_SHIFT: u32 = 16;
/// Number of generations: every token number fits into 32 bits.
const GENERATIONS: u16 = 0x8000;
const SLOT_MASK: u32 = 0xFFFF;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_that_was_abandoned_is_not_taken_for_the_next_one_of_its_slot() {
        let mut requests = Requests::default();
        let slot = Slot(7);
        let old = requests.number(slot);
        requests.abandon(slot, None);
        let new = requests.number(slot);
        assert_ne!(old, new);
        assert_eq!(requests.ended(old), None);
        assert!(!requests.are_abandoned());
        assert_eq!(requests.ended(new), Some(slot));
        assert_eq!(requests.ended(requests.number(Slot(8))), Some(Slot(8)));
    }

    #[test]
    fn tokens_that_come_round_leave_out_those_that_are_still_at_a_disk() {
        let mut requests = Requests::default();
        let slot = Slot(u16::MAX);
        let first = requests.number(slot);
        requests.abandon(slot, None);
        for _ in 0..u32::from(u16::MAX) {
            let number = requests.number(slot);
            assert_ne!(number, first);
            requests.abandon(slot, None);
            assert_eq!(requests.ended(number), None);
        }
        assert!(requests.are_abandoned());
        assert_eq!(requests.ended(first), None);
        assert!(!requests.are_abandoned());
    }
}
