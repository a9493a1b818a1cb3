//! Command ids of one queue, as the host chooses them: a slot and a generation.
//!
//! The next command of a slot has another generation, so a late answer to the earlier one matches
//! no command.

use crate::Slot;

/// How command ids divide into slot and generation.
#[derive(Clone, Copy, Debug)]
pub(super) struct SlotIds {
    /// Number of low bits of a command id that are the slot.
    slot_bits: u32,
}

impl SlotIds {
    /// The ids of a queue with `max_slots` slots, 1 to [`MAX_SLOTS`].
    pub(super) const fn new(max_slots: u16) -> Self {
        Self {
            slot_bits: u16::BITS - (max_slots - 1).leading_zeros(),
        }
    }

    /// The id of a slot's next command, after `last` (0: there was none).
    #[inline(always)]
    pub(super) const fn next(self, last: u16, slot: Slot) -> u16 {
        let (bits, generation) = (self.slot_bits, last >> self.slot_bits);
        let next = if generation >= u16::MAX >> bits {
            0
        } else {
            generation + 1
        };
        let id = next << bits | slot.0;
        // NVMe reserves 0xFFFF.
        if id == u16::MAX { slot.0 } else { id }
    }

    /// The slot of a command id, which may be one that the queue does not have.
    #[inline(always)]
    pub(super) const fn slot(self, command_id: u16) -> Slot {
        Slot(command_id & ((1 << self.slot_bits) - 1))
    }
}

/// Maximum number of slots. Four bits of each command id remain for the generation.
pub(super) const MAX_SLOTS: u16 = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_leads_to_its_slot_and_differs_from_the_last_and_from_the_reserved_one() {
        for max_slots in [1, 2, 31, 128, MAX_SLOTS] {
            let ids = SlotIds::new(max_slots);
            for slot in [0, max_slots / 2, max_slots - 1].map(Slot) {
                let mut last = 0;
                for _ in 0..=u16::MAX {
                    let id = ids.next(last, slot);
                    assert_eq!(ids.slot(id), slot);
                    assert!(
                        id != u16::MAX && id != last,
                        "{slot:?} of {max_slots}: {id}"
                    );
                    last = id;
                }
            }
        }
    }
}
