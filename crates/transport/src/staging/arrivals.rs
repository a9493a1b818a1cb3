//! What a peer has of a stream: each slot's payload ends somewhere in it, and is read in order.
//!
//! Knows positions only.

use std::mem;

use fabrix_proto::Slot;

pub(crate) struct Arrivals {
    /// Where in the stream each slot's payload ended last.
    marks: Vec<u64>,
    /// The peer has the stream so far.
    position: u64,
}

impl Arrivals {
    /// Of so many slots, nothing of whose payload was said.
    pub(crate) fn new(slots: usize) -> Self {
        Self {
            marks: vec![0; slots],
            position: 0,
        }
    }

    /// A slot's payload, or a part of it, ends at a position in the stream.
    #[inline(always)]
    pub(crate) fn mark(&mut self, slot: Slot, ends_at: u64) {
        self.marks[usize::from(slot.0)] = ends_at;
    }

    /// The peer has all that was sent of a slot's payload.
    #[inline(always)]
    pub(crate) fn arrived(&mut self, slot: Slot) {
        self.position = self.position.max(self.marks[usize::from(slot.0)]);
    }

    /// Whether it certainly has.
    #[inline(always)]
    pub(crate) fn has(&self, slot: Slot) -> bool {
        self.marks[usize::from(slot.0)] <= self.position
    }

    /// The slot is free: nobody asks for its payload any more. Result: where that ended.
    pub(crate) fn forget(&mut self, slot: Slot) -> u64 {
        mem::take(&mut self.marks[usize::from(slot.0)])
    }

    /// The peer has the stream so far.
    pub(crate) fn position(&self) -> u64 {
        self.position
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_one_slots_payload_has_all_before_it_and_an_older_answer_takes_nothing_back() {
        let [first, second, third] = [0, 1, 2].map(Slot);
        let mut arrivals = Arrivals::new(3);
        assert!(arrivals.has(first), "nothing was said of it");
        arrivals.mark(first, 100);
        arrivals.mark(second, 200);
        arrivals.mark(third, 300);
        arrivals.arrived(second);
        arrivals.arrived(first);
        assert_eq!(arrivals.position(), 200);
        assert!(arrivals.has(first) && arrivals.has(second) && !arrivals.has(third));
        assert_eq!(arrivals.forget(third), 300);
        assert!(arrivals.has(third));
    }
}
