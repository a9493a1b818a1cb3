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
        let slot_bytes = (slot_bytes.max(1) as usize).next_multiple_of(ALIGNMENT);
        let slots_per_buffer = (BUFFER_BYTES / slot_bytes)
            .max(1)
            .min(count.max(1) as usize);
        let mut slots = Self {
            buffers: Vec::new(),
            count,
            slot_bytes,
            slots_per_buffer,
        };
        for _ in 0..(count as usize).div_ceil(slots_per_buffer) {
            let buf = shard.take_buf(slots_per_buffer * slot_bytes);
            let buf = buf.ok_or(io::ErrorKind::OutOfMemory)?;
            let key = key_of(buf.slab());
            slots.buffers.push(Place {
                start: buf.start(),
                key: key.ok_or(io::ErrorKind::OutOfMemory)?,
                _buf: buf,
            });
        }
        Ok(slots)
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
const BUFFER_BYTES: usize = 1 << 20;
