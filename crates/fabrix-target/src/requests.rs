//! The disk requests of one connection: which tokens they have, and which of them were abandoned.
//!
//! A command has one request at a disk at a time, so the command's slot names the request. When a
//! command ends before its request, the request is abandoned: the slot is free for another command,
//! and the request's token, which stays with the disk, means the slot no more. A connection stays
//! until its abandoned requests have ended, because the disk tells the connection's task.

use fabrix_proto::Slot;

use crate::disk::Barrier;

/// The disk requests of one connection.
#[derive(Default)]
pub(crate) struct Requests {
    /// Which generation of tokens each slot has; slots behind the end have the first. Abandoning a
    /// request begins a new generation of its slot.
    generations: Vec<u16>,
    /// By their numbers, each with the barrier before its disk. A disk that is exported no more
    /// needs none.
    abandoned: Vec<(u32, Option<Barrier>)>,
}

impl Requests {
    /// Slot number, in the connection's task, of the request that the command of a slot makes now.
    #[inline(always)]
    pub(crate) fn number(&self, slot: Slot) -> u32 {
        number(slot, self.generation(slot))
    }

    /// A request has ended. Gives the slot of its command; none: the request was abandoned, and is
    /// forgotten.
    pub(crate) fn ended(&mut self, number: u32) -> Option<Slot> {
        let own = number - DISK_SLOTS;
        let slot = Slot((own & SLOT_MASK) as u16);
        if own >> GENERATION_SHIFT == u32::from(self.generation(slot)) {
            return Some(slot);
        }
        self.abandoned.retain(|(other, _)| *other != number);
        None
    }

    /// Nobody waits any more for the request of a slot, and the slot is free for another command.
    pub(crate) fn abandon(&mut self, slot: Slot, barrier: Option<Barrier>) {
        self.abandoned.push((self.number(slot), barrier));
        let at = usize::from(slot.0);
        if self.generations.len() <= at {
            self.generations.resize(at + 1, 0);
        }
        // A generation may come round while a request of its first time is still at a disk.
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

/// Slots of the connection's task from here on are disk requests; those below are its transport's.
pub(crate) const DISK_SLOTS: u32 = 16;
const GENERATION_SHIFT: u32 = 16;
/// So many that every number fits into 32 bits.
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
