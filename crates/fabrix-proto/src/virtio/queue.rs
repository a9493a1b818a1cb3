//! The split virtqueue, device side: three tables in the guest's memory.
//!
//! Source: VIRTIO 1.2, section 2.7 "Split Virtqueues". All integers are little-endian.

use alloc::vec::Vec;

use zerocopy::IntoBytes;
use zerocopy::byteorder::little_endian::{U16, U32, U64};

use super::{Broken, Memory, Segment};

wire! {
    /// One entry of a descriptor table. 16 bytes.
    ///
    /// Source: section 2.7.5.
    pub struct Descriptor: 16 bytes {
        /// Guest address of the buffer.
        pub address: U64,
        /// Length of the buffer in bytes.
        pub length: U32,
        /// [`NEXT`], [`WRITE`], [`INDIRECT`].
        pub flags: U16,
        /// Index of the next descriptor in the chain, valid with [`NEXT`].
        pub next: U16,
    }
}

/// The chain has a next descriptor.
pub const NEXT: u16 = 1;
/// The device writes the buffer. Without this flag the device reads it.
pub const WRITE: u16 = 2;
/// The buffer holds a table of descriptors.
pub const INDIRECT: u16 = 4;
/// Flag of the available ring: the device should send no notification.
pub const NO_CALL: u16 = 1;

/// Largest accepted queue size.
pub const SIZE_MAX: u16 = 1024;
/// Longest chain: the data segments announced to the guest (`seg_max`), a header and a status.
pub const CHAIN_MAX: usize = 256;

/// Location of a queue, in guest addresses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Layout {
    /// Number of descriptors, a power of two.
    pub size: u16,
    /// Address of the descriptor table.
    pub descriptors: u64,
    /// Address of the available ring, which the guest fills.
    pub available: u64,
    /// Address of the used ring, which the device fills.
    pub used: u64,
}

impl Layout {
    /// Lengths in bytes of the descriptor table, the available ring and the used ring, with the
    /// event fields.
    #[must_use]
    pub fn bytes(size: u16) -> (u64, u64, u64) {
        let size = u64::from(size);
        (16 * size, 6 + 2 * size, 6 + 8 * size)
    }

    fn available_event(&self) -> u64 {
        self.used + 4 + 8 * u64::from(self.size)
    }

    fn used_event(&self) -> u64 {
        self.available + 4 + 2 * u64::from(self.size)
    }
}

/// One request: the buffers that the device reads, then those that it writes.
#[derive(Debug, Default)]
pub struct Chain {
    /// Buffers that the device reads.
    pub readable: Vec<Segment>,
    /// Buffers that the device writes.
    pub writable: Vec<Segment>,
}

impl Chain {
    /// Empties the chain and keeps its memory.
    pub fn clear(&mut self) {
        self.readable.clear();
        self.writable.clear();
    }
}

/// Device side of one queue.
#[derive(Debug)]
pub struct Queue {
    layout: Layout,
    event_index: bool,
    /// Index of the next entry to read in the available ring.
    next: u16,
    /// Index of the next entry to fill in the used ring.
    used: u16,
    /// Value of `used` at the last call of [`Queue::wants_call`].
    told: u16,
}

impl Queue {
    /// A new or resumed queue. `next` is the index of the first entry to read in the available
    /// ring.
    ///
    /// Errors: the size is invalid, or a part is not aligned or is outside the guest's memory.
    pub fn new(
        layout: Layout,
        next: u16,
        event_index: bool,
        memory: &impl Memory,
    ) -> Result<Self, Broken> {
        if !layout.size.is_power_of_two() || layout.size > SIZE_MAX {
            return Err(Broken(
                "the size of a queue is not a power of two up to 1024",
            ));
        }
        let aligned = layout.descriptors.is_multiple_of(16)
            && layout.available.is_multiple_of(2)
            && layout.used.is_multiple_of(4);
        if !aligned {
            return Err(Broken(
                "a part of a queue is not aligned as the standard says",
            ));
        }
        let (descriptors, available, used) = Layout::bytes(layout.size);
        let there = memory.contains(layout.descriptors, descriptors)
            && memory.contains(layout.available, available)
            && memory.contains(layout.used, used);
        let used = memory.load(layout.used + 2).filter(|_| there);
        let used = used.ok_or(Broken("a queue does not lie in the guest's memory"))?;
        Ok(Self {
            layout,
            event_index,
            next,
            used,
            told: used,
        })
    }

    /// Index of the next entry to read in the available ring.
    #[must_use]
    pub fn next_available(&self) -> u16 {
        self.next
    }

    /// Number of descriptors.
    #[must_use]
    pub fn size(&self) -> u16 {
        self.layout.size
    }

    /// Index of the used ring.
    #[must_use]
    pub fn used(&self) -> u16 {
        self.used
    }

    /// Skips `taken` entries of the available ring: requests that an earlier process has taken and
    /// not returned. [`Queue::take_again`] reads these.
    pub fn go_on_behind(&mut self, taken: u16) {
        self.next = self.used.wrapping_add(taken);
    }

    /// Reads a request that was taken before and not returned, and stores its buffers in `chain`.
    ///
    /// Errors: the chain is invalid.
    pub fn take_again(
        &self,
        memory: &impl Memory,
        head: u16,
        chain: &mut Chain,
    ) -> Result<(), Broken> {
        chain.clear();
        self.walk(memory, head, chain)
    }

    /// Takes the next request, if there is one. Stores its buffers in `chain` and returns its head,
    /// which [`Queue::give`] needs.
    ///
    /// Errors: the chain is invalid.
    pub fn take(&mut self, memory: &impl Memory, chain: &mut Chain) -> Result<Option<u16>, Broken> {
        let Some(entry) = self.waiting(memory)? else {
            return Ok(None);
        };
        let head = memory
            .load(entry)
            .ok_or(Broken("the available ring has gone"))?;
        chain.clear();
        self.walk(memory, head, chain)?;
        self.next = self.next.wrapping_add(1);
        Ok(Some(head))
    }

    /// Guest address of the next entry of the available ring, if the guest has filled it.
    fn waiting(&self, memory: &impl Memory) -> Result<Option<u64>, Broken> {
        let available = memory.load(self.layout.available + 2);
        let available = available.ok_or(Broken("the available ring has gone"))?;
        match available.wrapping_sub(self.next) {
            0 => Ok(None),
            ahead if ahead > self.layout.size => Err(Broken(
                "more requests are available than the queue has room for",
            )),
            _ => {
                let slot = u64::from(self.next % self.layout.size);
                Ok(Some(self.layout.available + 4 + 2 * slot))
            }
        }
    }

    fn walk(&self, memory: &impl Memory, head: u16, chain: &mut Chain) -> Result<(), Broken> {
        let mut table = (self.layout.descriptors, u32::from(self.layout.size));
        let mut index = head;
        // The bound ends a loop: a loop has more descriptors than a chain may have.
        for _ in 0..=CHAIN_MAX {
            let descriptor = read(memory, table, index)?;
            let flags = descriptor.flags.get();
            if flags & INDIRECT != 0 {
                table = indirect(&descriptor, table.0 == self.layout.descriptors)?;
                index = 0;
                continue;
            }
            add(memory, &descriptor, chain)?;
            if flags & NEXT == 0 {
                return Ok(());
            }
            index = descriptor.next.get();
        }
        Err(Broken(
            "a chain of descriptors is a loop, or longer than any may be",
        ))
    }

    /// Returns a request to the guest. `written` is the number of bytes written to its buffers.
    ///
    /// Errors: the used ring is outside the guest's memory.
    pub fn give(&mut self, memory: &impl Memory, head: u16, written: u32) -> Result<(), Broken> {
        let slot = u64::from(self.used % self.layout.size);
        let entry = [U32::new(head.into()), U32::new(written)];
        let gone = Broken("the used ring has gone");
        if !memory.write(self.layout.used + 4 + 8 * slot, entry.as_bytes()) {
            return Err(gone);
        }
        self.used = self.used.wrapping_add(1);
        match memory.store(self.layout.used + 2, self.used) {
            true => Ok(()),
            false => Err(gone),
        }
    }

    /// Requests a notification (kick) for the next request. Returns true if a request has arrived
    /// meanwhile, because no kick will follow for it.
    ///
    /// Errors: the rings are outside the guest's memory.
    pub fn ask_for_kick(&mut self, memory: &impl Memory) -> Result<bool, Broken> {
        if self.event_index && !memory.store(self.layout.available_event(), self.next) {
            return Err(Broken("the used ring has gone"));
        }
        Ok(self.waiting(memory)?.is_some())
    }

    /// True if the guest wants a notification for the requests returned since the last call.
    ///
    /// Errors: the available ring is outside the guest's memory.
    pub fn wants_call(&mut self, memory: &impl Memory) -> Result<bool, Broken> {
        let before = core::mem::replace(&mut self.told, self.used);
        if before == self.used {
            return Ok(false);
        }
        let gone = Broken("the available ring has gone");
        if !self.event_index {
            let flags = memory.load(self.layout.available).ok_or(gone)?;
            return Ok(flags & NO_CALL == 0);
        }
        let event = memory.load(self.layout.used_event()).ok_or(gone)?;
        // True if the used entries include the index that the guest has named: section 2.7.7.2.
        let since = self.used.wrapping_sub(event).wrapping_sub(1);
        Ok(since < self.used.wrapping_sub(before))
    }
}

/// Reads one descriptor of a table, which is given by its address and number of entries.
fn read(
    memory: &impl Memory,
    (table, entries): (u64, u32),
    index: u16,
) -> Result<Descriptor, Broken> {
    if u32::from(index) >= entries {
        return Err(Broken("a descriptor's number is outside its table"));
    }
    let mut bytes = [0; size_of::<Descriptor>()];
    let address = table.checked_add(16 * u64::from(index));
    match address {
        Some(address) if memory.read(address, &mut bytes) => Ok(zerocopy::transmute!(bytes)),
        _ => Err(Broken(
            "a table of descriptors lies outside the guest's memory",
        )),
    }
}

/// Address and number of entries of the table behind an indirect descriptor.
fn indirect(descriptor: &Descriptor, is_first: bool) -> Result<(u64, u32), Broken> {
    let length = descriptor.length.get();
    if !is_first {
        return Err(Broken("an indirect table leads to another one"));
    }
    if descriptor.flags.get() & NEXT != 0 {
        return Err(Broken("an indirect table is not the end of its chain"));
    }
    if length == 0 || !length.is_multiple_of(16) {
        return Err(Broken(
            "an indirect table is no whole number of descriptors",
        ));
    }
    Ok((descriptor.address.get(), length / 16))
}

fn add(memory: &impl Memory, descriptor: &Descriptor, chain: &mut Chain) -> Result<(), Broken> {
    let segment = Segment {
        address: descriptor.address.get(),
        bytes: descriptor.length.get(),
    };
    if chain.readable.len() + chain.writable.len() == CHAIN_MAX {
        return Err(Broken(
            "a chain of descriptors is a loop, or longer than any may be",
        ));
    }
    if !memory.contains(segment.address, segment.bytes.into()) {
        return Err(Broken("a descriptor lies outside the guest's memory"));
    }
    if descriptor.flags.get() & WRITE != 0 {
        chain.writable.push(segment);
    } else if chain.writable.is_empty() {
        chain.readable.push(segment);
    } else {
        return Err(Broken(
            "a chain has something to read behind what is to be written",
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
