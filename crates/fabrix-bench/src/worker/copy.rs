//! The second half of a copy: what was read is written to another disk, in the same buffer and from
//! the same slot.
//!
//! A slot is busy from the start of its read to the end of its write; reads and writes are counted
//! each on their side. Writes go before new reads, and when no more is read, those that are left
//! are written.

use std::collections::VecDeque;

use fabrix_block::Channel;
use fabrix_rt::Shard;

use super::{Destination, Worker};
use crate::job::Region;

/// The other disk, and what waits to be written there.
pub(super) struct Copy {
    channel: Box<dyn Channel>,
    region: Region,
    /// Slots that hold what was read; at most all of them.
    due: VecDeque<u32>,
}

impl Copy {
    /// Opens the other disk on the worker's shard.
    ///
    /// Errors: a sentence when it cannot be opened.
    pub(super) fn open(shard: &mut Shard, to: &Destination, iodepth: u32) -> Result<Self, String> {
        Ok(Self {
            channel: to.device.open(shard).map_err(|error| error.to_string())?,
            region: to.region,
            due: VecDeque::with_capacity(iodepth as usize),
        })
    }

    pub(super) fn channel(&mut self) -> Option<&mut Box<dyn Channel>> {
        Some(&mut self.channel)
    }

    /// The disk had no room: this write is the next one again.
    pub(super) fn put_first(&mut self, slot: u32) {
        self.due.push_front(slot);
    }
}

impl Worker {
    /// Where requests of a direction lie on their disk.
    pub(super) fn region_of(&self, write: bool) -> Region {
        match &self.copy {
            Some(copy) if write => copy.region,
            _ => self.setup.region,
        }
    }

    /// A request has succeeded: when it was a read of a copy, its slot waits to write what it has,
    /// and that is true.
    pub(super) fn copy_on(&mut self, index: u32) -> bool {
        let slot = &mut self.slots[index as usize];
        match &mut self.copy {
            Some(copy) if !slot.access.write && !self.life.is_cut_short() => {
                slot.access.write = true;
                slot.write = slot.read.take();
                (slot.meant_ns, slot.start_ns) = (self.clock.now_ns(), self.clock.now_ns());
                copy.due.push_back(index);
                true
            }
            _ => false,
        }
    }

    /// The next slot that is to be written.
    pub(super) fn next_copied(&mut self) -> Option<u32> {
        self.copy.as_mut()?.due.pop_front()
    }

    pub(super) fn has_copied(&self) -> bool {
        self.copy.as_ref().is_some_and(|copy| !copy.due.is_empty())
    }

    /// The job ends before its time: what was read is not written any more.
    pub(super) fn forget_copied(&mut self) {
        while let Some(index) = self.next_copied() {
            self.reclaim(index);
            self.idle.push_back(index);
        }
    }

    /// A slot is free: the buffer of its write is the next read's.
    pub(super) fn reclaim(&mut self, index: u32) {
        let slot = &mut self.slots[index as usize];
        if self.copy.is_some() && slot.access.write {
            slot.read = slot.write.take();
        }
    }
}
