//! Equal pieces of registered buffers: the memory of receives and of messages to send.

use std::io;
use std::ptr::NonNull;
use std::slice;

use fabrix_rt::{Buf, Shard};

use super::layout::Sge;

/// Slots of one size. They own their buffers, so no `Buf` shows their bytes to anybody else.
pub(super) struct Slots {
    buffers: Vec<Place>,
    count: u32,
    slot_bytes: usize,
    slots_per_buffer: usize,
}

struct Place {
    start: NonNull<u8>,
    key: u32,
    /// Keeps the memory mapped.
    _buf: Buf,
}

impl Slots {
    /// Takes buffers of the shard for `count` slots. `key_of`: local key of a slab.
    ///
    /// Errors: `OutOfMemory` without buffers, or with buffers that the device does not know.
    pub(super) fn take(
        shard: &mut Shard,
        key_of: impl Fn(u32) -> Option<u32>,
        count: u32,
        slot_bytes: u32,
    ) -> io::Result<Self> {
        let mut slots = Self::new(count, slot_bytes);
        slots.grow(shard, key_of, count)?;
        Ok(slots)
    }

    /// No slots so far, of at most `most`.
    pub(super) fn new(most: u32, slot_bytes: u32) -> Self {
        let slot_bytes = (slot_bytes.max(1) as usize).next_multiple_of(ALIGNMENT);
        let slots_per_buffer = (BUFFER_BYTES / slot_bytes).max(1).min(most.max(1) as usize);
        Self {
            buffers: Vec::new(),
            count: 0,
            slot_bytes,
            slots_per_buffer,
        }
    }

    /// Takes buffers until there are `count` slots.
    ///
    /// Errors: as of [`Slots::take`]. Slots that there were stay.
    pub(super) fn grow(
        &mut self,
        shard: &mut Shard,
        key_of: impl Fn(u32) -> Option<u32>,
        count: u32,
    ) -> io::Result<()> {
        while self.room() < count {
            let buf = shard.take_buf(self.slots_per_buffer * self.slot_bytes);
            let buf = buf.ok_or(io::ErrorKind::OutOfMemory)?;
            let key = key_of(buf.slab());
            self.buffers.push(Place {
                start: buf.start(),
                key: key.ok_or(io::ErrorKind::OutOfMemory)?,
                _buf: buf,
            });
        }
        self.count = self.count.max(count);
        Ok(())
    }

    /// Slots of one buffer.
    pub(super) fn per_buffer(&self) -> u32 {
        u32::try_from(self.slots_per_buffer).unwrap_or(u32::MAX)
    }

    /// Slots of all buffers.
    fn room(&self) -> u32 {
        let room = self.buffers.len() * self.slots_per_buffer;
        u32::try_from(room).unwrap_or(u32::MAX)
    }

    pub(super) fn count(&self) -> u32 {
        self.count
    }

    pub(super) fn slot_bytes(&self) -> usize {
        self.slot_bytes
    }

    /// The first `bytes` of a slot, for the device. Panics outside the slots.
    pub(super) fn range(&self, slot: u32, bytes: usize) -> Sge {
        let (start, key) = self.place(slot, bytes);
        Sge {
            addr: start.as_ptr() as u64,
            length: u32::try_from(bytes).expect("a slot is shorter than a buffer"),
            lkey: key,
        }
    }

    /// The first bytes of a slot. Panics outside the slots.
    ///
    /// # Safety
    /// The device does not write into the slot while the result exists.
    pub(super) unsafe fn bytes(&self, slot: u32, bytes: usize) -> &[u8] {
        let (start, _) = self.place(slot, bytes);
        // SAFETY: the range lies in a buffer of this value, whose bytes are initialised: the kernel
        // maps zeroes. The caller keeps the device away, and writers need `&mut self`.
        // WHY UNSAFE: a slice of a part of a buffer, beside parts that a device writes.
        unsafe { slice::from_raw_parts(start.as_ptr(), bytes) }
    }

    /// Writes the first bytes of a slot. Panics outside the slots.
    ///
    /// # Safety
    /// The device does not use the slot.
    pub(super) unsafe fn write(&mut self, slot: u32, bytes: &[u8]) {
        let (start, _) = self.place(slot, bytes.len());
        // SAFETY: as of `bytes`, and `&mut self` allows no slice of the slot.
        // WHY UNSAFE: as of `bytes`.
        unsafe {
            start
                .as_ptr()
                .copy_from_nonoverlapping(bytes.as_ptr(), bytes.len())
        }
    }

    fn place(&self, slot: u32, bytes: usize) -> (NonNull<u8>, u32) {
        assert!(
            slot < self.count && bytes <= self.slot_bytes,
            "{bytes} bytes of slot {slot} of {} with {} bytes",
            self.count,
            self.slot_bytes
        );
        let (index, inside) = (
            slot as usize / self.slots_per_buffer,
            slot as usize % self.slots_per_buffer,
        );
        let place = &self.buffers[index];
        // SAFETY: a buffer has so many slots.
        // WHY UNSAFE: pointer arithmetic.
        let start = unsafe { place.start.add(inside * self.slot_bytes) };
        (start, place.key)
    }
}

/// Bytes of a cache line: two slots share none.
const ALIGNMENT: usize = 64;
/// Most bytes of one buffer: a part of a slab.
const BUFFER_BYTES: usize = 64 << 10;
