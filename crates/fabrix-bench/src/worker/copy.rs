//! The write half of a copy: data that was read is written to another disk, from the same buffer
//! and slot.
//!
//! A slot is occupied from the start of its read to the end of its write. Reads and writes are
//! counted separately. Writes start before new reads. When no more reads start, the remaining
//! writes still do.

use std::collections::VecDeque;

use fabrix_block::Channel;
use fabrix_rt::Shard;

use super::{Destination, Worker};
use crate::access::Direction;
use crate::job::Region;

/// The destination disk and the pending writes.
pub(super) struct Copy {
    pub(super) channel: Box<dyn Channel>,
    region: Region,
    /// Slots with data to be written. At most all slots.
    pub(super) due: VecDeque<u32>,
}

impl Copy {
    /// Opens the destination disk on the worker's shard.
    ///
    /// Errors: a sentence when the disk cannot be opened.
    pub(super) fn open(shard: &mut Shard, to: &Destination, iodepth: u32) -> Result<Self, String> {
        Ok(Self {
            channel: to.device.open(shard).map_err(|error| error.to_string())?,
            region: to.region,
            due: VecDeque::with_capacity(iodepth as usize),
        })
    }
}

impl Worker {
    /// The region of a direction: that of the source disk or of the destination disk.
    pub(super) fn region_of(&self, direction: Direction) -> Region {
        match &self.copy {
            Some(copy) if direction == Direction::Write => copy.region,
            _ => self.setup.region,
        }
    }

    /// Turns the finished read of a copy into a pending write. False: the request was not such a
    /// read.
    pub(super) fn queue_copy_write(&mut self, index: u32) -> bool {
        let slot = &mut self.slots[index as usize];
        match &mut self.copy {
            Some(copy) if slot.access.direction == Direction::Read && !self.lifecycle.cut_short => {
                slot.access.direction = Direction::Write;
                slot.write = slot.read.take();
                (slot.scheduled_ns, slot.start_ns) = (self.clock.now_ns(), self.clock.now_ns());
                copy.due.push_back(index);
                true
            }
            _ => false,
        }
    }

    /// The next slot with data to be written.
    pub(super) fn next_copy(&mut self) -> Option<u32> {
        self.copy.as_mut()?.due.pop_front()
    }

    pub(super) fn has_pending_copies(&self) -> bool {
        self.copy.as_ref().is_some_and(|copy| !copy.due.is_empty())
    }

    /// Discards the pending writes when the job ends early.
    pub(super) fn discard_pending_copies(&mut self) {
        while let Some(index) = self.next_copy() {
            self.reclaim(index);
            self.idle.push_back(index);
        }
    }

    /// Frees a slot. The buffer of a copy's write becomes the buffer of the next read.
    pub(super) fn reclaim(&mut self, index: u32) {
        let slot = &mut self.slots[index as usize];
        if self.copy.is_some() && slot.access.direction == Direction::Write {
            slot.read = slot.write.take();
        }
    }
}
