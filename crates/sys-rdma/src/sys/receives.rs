//! The receive queue of a queue pair as this end counts it.
//!
//! A slot is with the device from its preparation to its completion. Meanwhile nobody sees its
//! bytes.

use std::io;
use std::ptr;

use fabrix_rt::Shard;

use super::completions::request_id;
use super::layout::{RecvWr, Sge};
use super::slots::Slots;

/// The receive queue as this end counts it.
pub(super) struct ReceiveRing {
    requests: Box<[RecvWr]>,
    ranges: Box<[Sge]>,
    slots: Slots,
    /// Slots of the device, and those that go to it with the next flush.
    posted: Box<[bool]>,
    posted_count: usize,
    prepared: Vec<u32>,
}

impl ReceiveRing {
    /// A queue of at most `count` receives, with the slots that there are so far.
    pub(super) fn new(number: u32, count: u32, slots: Slots) -> Self {
        let requests = (0..count).map(|slot| RecvWr {
            wr_id: request_id(number, false, slot),
            num_sge: 1,
            ..RecvWr::empty()
        });
        let mut this = Self {
            requests: requests.collect(),
            ranges: vec![Sge::default(); count as usize].into(),
            slots,
            posted: vec![false; count as usize].into(),
            posted_count: 0,
            prepared: Vec::with_capacity(count as usize),
        };
        this.set_ranges(0);
        this
    }

    /// Slots that may be posted.
    pub(super) fn count(&self) -> u32 {
        self.slots.count()
    }

    /// Takes buffers for all receives.
    ///
    /// Errors: as of [`Slots::take`].
    pub(super) fn grow(
        &mut self,
        shard: &mut Shard,
        key_of: impl Fn(u32) -> Option<u32>,
    ) -> io::Result<()> {
        let (first, most) = (self.slots.count(), self.ranges.len());
        let most = u32::try_from(most).expect("capacities are u32");
        self.slots.grow(shard, key_of, most)?;
        self.set_ranges(first);
        Ok(())
    }

    fn set_ranges(&mut self, first: u32) {
        for slot in first..self.slots.count() {
            let range = self.slots.range(slot, self.slots.slot_bytes());
            self.ranges[slot as usize] = range;
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.posted_count == self.prepared.len()
    }

    pub(super) fn prepare(&mut self, slot: u32) {
        assert!(slot < self.slots.count(), "slot {slot} has no memory");
        assert!(!self.posted[slot as usize], "slot {slot} is posted already");
        self.posted[slot as usize] = true;
        self.posted_count += 1;
        self.prepared.push(slot);
    }

    pub(super) fn bytes(&self, slot: u32, bytes: usize) -> &[u8] {
        assert!(!self.posted[slot as usize], "slot {slot} is posted");
        // SAFETY: the device has given the slot back, and posting it again needs `&mut self`.
        // WHY UNSAFE: the memory of receives is shared with the device.
        unsafe { self.slots.bytes(slot, bytes) }
    }

    pub(super) fn chain(&mut self) -> Option<*mut RecvWr> {
        let ranges = self.ranges.as_mut_ptr();
        let requests = self.requests.as_mut_ptr();
        let mut next: *mut RecvWr = ptr::null_mut();
        for slot in self.prepared.iter().rev() {
            let request = &mut self.requests[*slot as usize];
            request.next = next;
            request.sg_list = ranges.wrapping_add(*slot as usize);
            next = requests.wrapping_add(*slot as usize);
        }
        (!next.is_null()).then_some(next)
    }

    pub(super) fn all_posted(&mut self) {
        self.prepared.clear();
    }

    /// The device has taken the receives before `bad`. An unknown one tells nothing, so all count
    /// as taken: they end with the queue pair.
    pub(super) fn posted_before(&mut self, bad: *const RecvWr) {
        let start = self.requests.as_ptr() as usize;
        let slot = (bad as usize).wrapping_sub(start) / size_of::<RecvWr>();
        let taken = self
            .prepared
            .iter()
            .position(|prepared| *prepared as usize == slot);
        self.prepared.drain(..taken.unwrap_or(self.prepared.len()));
    }

    /// The device gives a slot back. False: it did not have it, or it claims more than the slot
    /// has room for.
    pub(super) fn completed(&mut self, slot: u32, bytes: usize) -> bool {
        if slot >= self.slots.count() || !self.posted[slot as usize] {
            return false;
        }
        self.posted[slot as usize] = false;
        self.posted_count -= 1;
        bytes <= self.slots.slot_bytes()
    }
}

#[cfg(test)]
mod tests {
    use fabrix_rt::{Shard, ShardConfig};

    use super::*;

    fn ring() -> (Shard, ReceiveRing) {
        let config = ShardConfig {
            arena_bytes: 16 << 20,
            ..ShardConfig::default()
        };
        let mut shard = Shard::new(config).expect("a shard");
        let slots = Slots::take(&mut shard, |_| Some(7), 4, 100).expect("room");
        (shard, ReceiveRing::new(3, 4, slots))
    }

    #[test]
    fn a_slot_is_with_the_device_until_its_completion() {
        let (_shard, mut ring) = ring();
        assert!(ring.is_empty() && ring.chain().is_none());
        ring.prepare(2);
        ring.prepare(0);
        assert!(ring.is_empty(), "the device has nothing yet");
        let first = ring.chain().expect("two receives");
        assert_eq!(first.cast_const(), &raw const ring.requests[2]);
        let second = ring.requests[2].next;
        assert_eq!(second.cast_const(), &raw const ring.requests[0]);
        assert!(ring.requests[0].next.is_null());
        ring.all_posted();
        assert!(!ring.is_empty() && ring.chain().is_none());
        assert!(ring.completed(0, 100));
        assert_eq!(ring.bytes(0, 100).len(), 100);
        assert!(!ring.completed(0, 0), "it came back already");
        assert!(!ring.completed(9, 0), "there is no such slot");
        assert!(!ring.completed(2, 129), "no slot has so much room");
        assert!(ring.is_empty());
    }

    #[test]
    #[should_panic(expected = "slot 1 is posted")]
    fn a_posted_slot_is_not_read() {
        let (_shard, mut ring) = ring();
        ring.prepare(1);
        ring.bytes(1, 1);
    }

    #[test]
    #[should_panic(expected = "slot 1 is posted already")]
    fn a_slot_is_posted_once() {
        let (_shard, mut ring) = ring();
        ring.prepare(1);
        ring.prepare(1);
    }

    #[test]
    fn slots_behind_a_refused_one_are_not_with_the_device() {
        let (_shard, mut ring) = ring();
        for slot in 0..4 {
            ring.prepare(slot);
        }
        ring.chain();
        let bad = &raw const ring.requests[1];
        ring.posted_before(bad);
        assert!(ring.completed(0, 1));
        assert!(ring.is_empty());
    }
}
