//! The split virtqueue: three tables in the guest's memory, read and written as the device does.
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
        /// Where the bytes are.
        pub address: U64,
        /// How many.
        pub length: U32,
        /// [`NEXT`], [`WRITE`], [`INDIRECT`].
        pub flags: U16,
        /// The next one of the chain, if the flags say that there is one.
        pub next: U16,
    }
}

/// The chain goes on.
pub const NEXT: u16 = 1;
/// The device writes there; else it reads.
pub const WRITE: u16 = 2;
/// What is there is a table of descriptors.
pub const INDIRECT: u16 = 4;
/// In the available ring's flags: do not call.
pub const NO_CALL: u16 = 1;

/// The largest queue that is accepted.
pub const SIZE_MAX: u16 = 1024;
/// The longest chain: what a guest is told (`seg_max`), and a head and a status.
pub const CHAIN_MAX: usize = 256;

/// Where a queue lies, in the guest's addresses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Layout {
    /// How many descriptors: a power of two.
    pub size: u16,
    /// The descriptor table.
    pub descriptors: u64,
    /// What the guest makes available.
    pub available: u64,
    /// What the device has used.
    pub used: u64,
}

impl Layout {
    /// Bytes of the three parts, events included: descriptors, available ring, used ring.
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

/// One request: what the device reads, then what it writes.
#[derive(Debug, Default)]
pub struct Chain {
    /// To be read.
    pub readable: Vec<Segment>,
    /// To be written.
    pub writable: Vec<Segment>,
}

impl Chain {
    /// Makes it empty; its memory is used again.
    pub fn clear(&mut self) {
        self.readable.clear();
        self.writable.clear();
    }
}

/// The device's side of one queue.
#[derive(Debug)]
pub struct Queue {
    layout: Layout,
    event_index: bool,
    /// The next entry of the available ring to look at.
    next: u16,
    /// The next entry of the used ring to fill.
    used: u16,
    /// What `used` was when the guest was last asked whether it wants to be called.
    told: u16,
}

impl Queue {
    /// A queue that begins, or goes on: `next` is the entry of the available ring that comes first.
    ///
    /// Errors: a size that no queue has, a part that is not aligned or not in the guest's memory.
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

    /// The entry of the available ring that comes next.
    #[must_use]
    pub fn next_available(&self) -> u16 {
        self.next
    }

    /// How many descriptors it has.
    #[must_use]
    pub fn size(&self) -> u16 {
        self.layout.size
    }

    /// How far the used ring is filled.
    #[must_use]
    pub fn used(&self) -> u16 {
        self.used
    }

    /// Goes on behind so many requests that were taken before, and not given back:
    /// [`Queue::take_again`].
    pub fn go_on_behind(&mut self, taken: u16) {
        self.next = self.used.wrapping_add(taken);
    }

    /// Takes a request that was taken before, and not given back: in `chain` what it consists of.
    ///
    /// Errors: the chain cannot be walked.
    pub fn take_again(
        &self,
        memory: &impl Memory,
        head: u16,
        chain: &mut Chain,
    ) -> Result<(), Broken> {
        chain.clear();
        self.walk(memory, head, chain)
    }

    /// Takes the next request, if there is one: its head, by which it is given back, and in `chain`
    /// what it consists of.
    ///
    /// Errors: the chain cannot be walked.
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

    /// Where the next head stands.
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
        // Who comes round in a loop has more descriptors than a chain may have.
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

    /// Gives a request back; `written` bytes of what it may write were written.
    ///
    /// Errors: the used ring is no longer in the guest's memory.
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

    /// Asks to be kicked for what comes from now on. True: something has come meanwhile, and no
    /// kick will say so.
    ///
    /// Errors: the rings are no longer in the guest's memory.
    pub fn ask_for_kick(&mut self, memory: &impl Memory) -> Result<bool, Broken> {
        if self.event_index && !memory.store(self.layout.available_event(), self.next) {
            return Err(Broken("the used ring has gone"));
        }
        Ok(self.waiting(memory)?.is_some())
    }

    /// Whether the guest wants to be called for what was given back since this was asked last.
    ///
    /// Errors: the available ring is no longer in the guest's memory.
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
        // Whether the wanted index is one of those that were used: section 2.7.7.2.
        let since = self.used.wrapping_sub(event).wrapping_sub(1);
        Ok(since < self.used.wrapping_sub(before))
    }
}

/// One descriptor of a table: where it begins, and how many it has.
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

/// The table behind a descriptor.
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
