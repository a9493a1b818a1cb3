//! What a queue has in progress, in memory that outlives the process: whoever serves the queue
//! after a death carries it out again.
//!
//! Each step is one word, in an order such that a death between any two of them neither loses a
//! request nor answers one twice. The monitor, and back ends before us, can write this memory too:
//! nothing that is read from it is believed, and all of it is looked through in as many steps as a
//! queue has entries.
//! Source: QEMU, docs/interop/vhost-user.rst, "Inflight I/O tracking", for split virtqueues. All
//! integers are in the machine's own order.

use core::mem::offset_of;

use alloc::vec::Vec;

use zerocopy::IntoBytes;

use super::{Broken, Memory};

/// What the region of a queue begins with. 16 bytes.
#[repr(C)]
struct Head {
    features: u64,
    /// 0: nothing was written here yet.
    version: u16,
    /// How many entries follow.
    entries: u16,
    /// The head that was given back last, or is about to be; each entry names the one before it.
    last: u16,
    /// How far the used ring was filled when the last entry was taken out.
    used: u16,
}
const _: () = assert!(size_of::<Head>() == 16);

/// One for each descriptor; only those of heads are used. 16 bytes.
#[repr(C)]
struct Entry {
    /// 1: a request with this head is in progress.
    in_progress: u8,
    padding: [u8; 5],
    next: u16,
    /// Requests are carried out again in this order.
    counter: u64,
}
const _: () = assert!(size_of::<Entry>() == 16 && offset_of!(Entry, next) == 6);

const VERSION: u16 = 1;
/// The first byte of an entry, and one of padding.
const IN_PROGRESS: u16 = u16::from_ne_bytes([1, 0]);
const GONE: Broken = Broken("the record of requests in progress has gone");

/// How many regions there are, one for each queue, and how many entries each has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Queues.
    pub queues: u16,
    /// Entries: the size of the largest queue.
    pub entries: u16,
}

impl Shape {
    /// Bytes of all regions.
    #[must_use]
    pub fn bytes(self) -> u64 {
        u64::from(self.queues) * self.region_bytes()
    }

    /// The same, and what is behind them.
    #[must_use]
    pub fn whole_bytes(self) -> u64 {
        self.bytes() + size_of::<Owner>() as u64
    }

    /// Where the region of a queue begins. None: it has none.
    #[must_use]
    pub fn region(self, queue: usize) -> Option<u64> {
        let queue = u16::try_from(queue).ok()?;
        (queue < self.queues).then(|| u64::from(queue) * self.region_bytes())
    }

    /// Two queues do not write to one line of a cache.
    fn region_bytes(self) -> u64 {
        let entries = u64::from(self.entries) * size_of::<Entry>() as u64;
        (size_of::<Head>() as u64 + entries).next_multiple_of(64)
    }
}

native! {
    /// Behind the regions, where no other back end looks: whose requests these are. 64 bytes.
    struct Owner: 64 bytes {
        magic: [u8; 8],
        disk: Disk,
        unused: [u8; 4],
    }
}
const MAGIC: [u8; 8] = *b"fabrix:1";

/// By what a disk is told from others: its UUID, its NGUID and its serial number, one behind the
/// other.
pub type Disk = [u8; 52];

/// Takes a record over for a disk: what is in progress there is to be carried out on it. A record
/// that says nothing about a disk is anybody's.
///
/// Errors: it is another disk's, and its requests would destroy this one.
pub fn own(memory: &impl Memory, shape: Shape, disk: &Disk) -> Result<(), Broken> {
    let ours = Owner {
        magic: MAGIC,
        disk: *disk,
        unused: [0; 4],
    };
    let mut found = [0; size_of::<Owner>()];
    if memory.read(shape.bytes(), &mut found) {
        let found: Owner = zerocopy::transmute!(found);
        if found.magic == MAGIC && found.disk != ours.disk {
            return Err(Broken(
                "the machine has requests in progress of another disk",
            ));
        }
        memory.write(shape.bytes(), ours.as_bytes());
    }
    Ok(())
}

/// The region of one queue.
#[derive(Debug)]
pub struct QueueRegion {
    address: u64,
    entries: u16,
    /// What the next request is marked with.
    counter: u64,
}

impl QueueRegion {
    /// Opens the region at `address`, for a queue whose used ring is filled up to `used`. With it
    /// come the heads of what is in progress, in the order in which they were taken; None: it is
    /// new, and nothing is known.
    ///
    /// Errors: it is of another version or size, or of another queue; it does not lie in the
    /// memory.
    pub fn open(
        memory: &impl Memory,
        address: u64,
        entries: u16,
        used: u16,
    ) -> Result<(Self, Option<Vec<u16>>), Broken> {
        let mut region = Self {
            address,
            entries,
            counter: 0,
        };
        match region.get(memory, offset_of!(Head, version))? {
            0 => {
                region.begin(memory, used)?;
                Ok((region, None))
            }
            VERSION if region.get(memory, offset_of!(Head, entries))? == entries => {
                region.settle(memory, used)?;
                let heads = region.find(memory)?;
                Ok((region, Some(heads)))
            }
            _ => Err(Broken(
                "the record of requests in progress is of another version or size",
            )),
        }
    }

    /// A request was taken, and nothing was done about it yet.
    ///
    /// Errors: the memory is not there.
    pub fn taken(&mut self, memory: &impl Memory, head: u16) -> Result<(), Broken> {
        let counter = self.entry(head) + offset_of!(Entry, counter) as u64;
        if !memory.write(counter, &self.counter.to_ne_bytes()) {
            return Err(GONE);
        }
        self.counter = self.counter.wrapping_add(1);
        store(memory, self.entry(head), IN_PROGRESS)
    }

    /// A request is about to be given back, by the next step of the used ring;
    /// [`given`](Self::given) follows it.
    ///
    /// Errors: the memory is not there.
    pub fn giving(&self, memory: &impl Memory, head: u16) -> Result<(), Broken> {
        let before = self.get(memory, offset_of!(Head, last))?;
        let next = self.entry(head) + offset_of!(Entry, next) as u64;
        store(memory, next, before)?;
        self.set(memory, offset_of!(Head, last), head)
    }

    /// A request was given back: the used ring is filled up to `used` now.
    ///
    /// Errors: the memory is not there.
    pub fn given(&self, memory: &impl Memory, head: u16, used: u16) -> Result<(), Broken> {
        store(memory, self.entry(head), 0)?;
        self.set(memory, offset_of!(Head, used), used)
    }

    fn begin(&self, memory: &impl Memory, used: u16) -> Result<(), Broken> {
        for head in 0..self.entries {
            store(memory, self.entry(head), 0)?;
        }
        self.set(memory, offset_of!(Head, entries), self.entries)?;
        self.set(memory, offset_of!(Head, used), used)?;
        self.set(memory, offset_of!(Head, version), VERSION)
    }

    /// Who died after a step of the used ring, and before it had noted that, has given back more
    /// than it says here.
    fn settle(&self, memory: &impl Memory, used: u16) -> Result<(), Broken> {
        let more = used.wrapping_sub(self.get(memory, offset_of!(Head, used))?);
        if more <= self.entries {
            let mut head = self.get(memory, offset_of!(Head, last))?;
            for _ in 0..more {
                if head >= self.entries {
                    return Err(Broken(
                        "the record of requests in progress names one that cannot be",
                    ));
                }
                store(memory, self.entry(head), 0)?;
                head = load(memory, self.entry(head) + offset_of!(Entry, next) as u64)?;
            }
        } else if !self.sorted(memory)?.is_empty() {
            // A queue that has begun anew has nothing in progress.
            return Err(Broken(
                "the record of requests in progress is of another queue",
            ));
        }
        self.set(memory, offset_of!(Head, used), used)
    }

    /// The heads of what is in progress, in the order in which they were taken; what is taken next
    /// comes behind them.
    fn find(&mut self, memory: &impl Memory) -> Result<Vec<u16>, Broken> {
        let found = self.sorted(memory)?;
        self.counter = found.last().map_or(0, |(last, _)| last.wrapping_add(1));
        Ok(found.into_iter().map(|(_, head)| head).collect())
    }

    fn sorted(&self, memory: &impl Memory) -> Result<Vec<(u64, u16)>, Broken> {
        let mut found = Vec::new();
        for head in 0..self.entries {
            let entry = self.entry(head);
            if load(memory, entry)?.to_ne_bytes()[0] != 1 {
                continue;
            }
            let mut counter = [0; size_of::<u64>()];
            if !memory.read(entry + offset_of!(Entry, counter) as u64, &mut counter) {
                return Err(GONE);
            }
            found.push((u64::from_ne_bytes(counter), head));
        }
        found.sort_unstable();
        Ok(found)
    }

    fn entry(&self, head: u16) -> u64 {
        self.address + size_of::<Head>() as u64 + u64::from(head) * size_of::<Entry>() as u64
    }

    fn get(&self, memory: &impl Memory, field: usize) -> Result<u16, Broken> {
        load(memory, self.address + field as u64)
    }

    fn set(&self, memory: &impl Memory, field: usize, value: u16) -> Result<(), Broken> {
        store(memory, self.address + field as u64, value)
    }
}

fn load(memory: &impl Memory, address: u64) -> Result<u16, Broken> {
    memory.load(address).ok_or(GONE)
}

fn store(memory: &impl Memory, address: u64, value: u16) -> Result<(), Broken> {
    match memory.store(address, value) {
        true => Ok(()),
        false => Err(GONE),
    }
}

#[cfg(test)]
mod tests;
