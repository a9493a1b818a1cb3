//! Record of a queue's requests in progress, in memory that outlives the process. A process that
//! takes over the queue carries these requests out again.
//!
//! Each step writes one word. The order of the steps is such that a death between any two of them
//! neither loses a request nor answers one twice. The monitor and earlier back ends can write this
//! memory too, so every value read from it is checked. Each check ends after as many steps as the
//! queue has entries.
//! Source: QEMU, docs/interop/vhost-user.rst, "Inflight I/O tracking", for split virtqueues. All
//! integers are in the machine's own order.

use core::mem::offset_of;

use alloc::vec::Vec;

use zerocopy::IntoBytes;

use super::{Broken, Memory};

/// Header of a queue's region. 16 bytes.
#[repr(C)]
struct Head {
    features: u64,
    /// Version. 0: the region is unused.
    version: u16,
    /// Number of entries that follow.
    entries: u16,
    /// Descriptor head that was returned last, or is being returned. Each entry links to the one
    /// before.
    last: u16,
    /// Index of the used ring when the last entry was removed.
    used: u16,
}
const _: () = assert!(size_of::<Head>() == 16);

/// Entry of one descriptor. Only the entries of chain heads are used. 16 bytes.
#[repr(C)]
struct Entry {
    /// 1 if a request with this head is in progress.
    in_progress: u8,
    padding: [u8; 5],
    next: u16,
    /// Submission number: requests are carried out again in this order.
    counter: u64,
}
const _: () = assert!(size_of::<Entry>() == 16 && offset_of!(Entry, next) == 6);

const VERSION: u16 = 1;
/// Value of `in_progress` and of the padding byte after it, as one word.
const IN_PROGRESS: u16 = u16::from_ne_bytes([1, 0]);
const GONE: Broken = Broken("the record of requests in progress has gone");

/// Number of regions (one for each queue) and of entries in each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Number of queues.
    pub queues: u16,
    /// Number of entries: the size of the largest queue.
    pub entries: u16,
}

impl Shape {
    /// Length of all regions in bytes.
    #[must_use]
    pub fn bytes(self) -> u64 {
        u64::from(self.queues) * self.region_bytes()
    }

    /// Length of all regions and of the owner record after them, in bytes.
    #[must_use]
    pub fn whole_bytes(self) -> u64 {
        self.bytes() + size_of::<Owner>() as u64
    }

    /// Offset of a queue's region, or `None` if the queue has no region.
    #[must_use]
    pub fn region(self, queue: usize) -> Option<u64> {
        let queue = u16::try_from(queue).ok()?;
        (queue < self.queues).then(|| u64::from(queue) * self.region_bytes())
    }

    /// Length of one region in bytes. Regions do not share a cache line of 64 bytes.
    fn region_bytes(self) -> u64 {
        let entries = u64::from(self.entries) * size_of::<Entry>() as u64;
        (size_of::<Head>() as u64 + entries).next_multiple_of(64)
    }
}

native! {
    /// Identity of the disk that the requests belong to. Stored after the regions, where other back
    /// ends do not look. 64 bytes.
    struct Owner: 64 bytes {
        magic: [u8; 8],
        disk: Disk,
        unused: [u8; 4],
    }
}
const MAGIC: [u8; 8] = *b"fabrix:1";

/// Identity of a disk: its UUID, its NGUID and its serial number, in this order.
pub type Disk = [u8; 52];

/// Claims a record for a disk: its requests will be carried out on this disk. A record without an
/// identity belongs to any disk.
///
/// Errors: the record belongs to another disk, and its requests would destroy data on this one.
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

/// Region of one queue.
#[derive(Debug)]
pub struct QueueRegion {
    address: u64,
    entries: u16,
    /// Submission number of the next request.
    counter: u64,
}

impl QueueRegion {
    /// Opens the region at `address`, for a queue whose used ring has the index `used`. Also
    /// returns the heads of the requests in progress, in the order of submission, or `None` if the
    /// region was unused.
    ///
    /// Errors: the region has another version or size, belongs to another queue, or is outside the
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

    /// Records a request before it is carried out.
    ///
    /// Errors: the region is outside the memory.
    pub fn taken(&mut self, memory: &impl Memory, head: u16) -> Result<(), Broken> {
        let counter = self.entry(head) + offset_of!(Entry, counter) as u64;
        if !memory.write(counter, &self.counter.to_ne_bytes()) {
            return Err(GONE);
        }
        self.counter = self.counter.wrapping_add(1);
        store(memory, self.entry(head), IN_PROGRESS)
    }

    /// Records that the next step of the used ring will return this request. [`given`](Self::given)
    /// follows.
    ///
    /// Errors: the region is outside the memory.
    pub fn giving(&self, memory: &impl Memory, head: u16) -> Result<(), Broken> {
        let before = self.get(memory, offset_of!(Head, last))?;
        let next = self.entry(head) + offset_of!(Entry, next) as u64;
        store(memory, next, before)?;
        self.set(memory, offset_of!(Head, last), head)
    }

    /// Records that a request was returned and that the used ring now has the index `used`.
    ///
    /// Errors: the region is outside the memory.
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

    /// Removes the requests that a dead process returned in the used ring before it could remove
    /// them from this record.
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
            // A queue that has begun anew has no request in progress.
            return Err(Broken(
                "the record of requests in progress is of another queue",
            ));
        }
        self.set(memory, offset_of!(Head, used), used)
    }

    /// Heads of the requests in progress, in the order of submission. The next submission number
    /// follows theirs.
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
