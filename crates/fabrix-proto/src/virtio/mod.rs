//! virtio, as the device of a virtual machine sees it: the split virtqueue over somebody else's
//! memory, the block device, and vhost-user, by which a machine's monitor hands both over.
//!
//! Nothing here holds memory of a guest: a [`Memory`] copies. The guest may change its memory at
//! any time, so everything is read once, into our own, and checked there. Source: Virtual I/O
//! Device (VIRTIO) 1.2.

pub mod blk;
pub mod inflight;
pub mod queue;
#[cfg(test)]
mod testing;
pub mod vhost_user;

/// The memory of a guest, by the addresses that the guest uses. Every address and length may be
/// nonsense.
pub trait Memory {
    /// Whether all of a range is there.
    fn contains(&self, address: u64, bytes: u64) -> bool;

    /// Copies out. False: not all of the range is there.
    fn read(&self, address: u64, out: &mut [u8]) -> bool;

    /// Copies in. False: not all of the range is there.
    fn write(&self, address: u64, bytes: &[u8]) -> bool;

    /// Reads two bytes at once, in order with all else that is read and written. None: not there,
    /// or not aligned.
    fn load(&self, address: u64) -> Option<u16>;

    /// Writes two bytes at once, in order with all else that is read and written. False: not there,
    /// or not aligned.
    fn store(&self, address: u64, value: u16) -> bool;
}

/// A piece of a guest's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Where it begins, in the guest's addresses.
    pub address: u64,
    /// How many bytes.
    pub bytes: u32,
}

/// Cuts a range of what `segments` hold together, `bytes` from `skip` on, into its pieces: each is
/// told to `piece` with its address, where in the range it begins, and how long it is. False: the
/// segments are shorter, or a piece said so.
pub fn pieces(
    segments: &[Segment],
    skip: u64,
    bytes: usize,
    mut piece: impl FnMut(u64, usize, usize) -> bool,
) -> bool {
    let (mut skip, mut done) = (skip, 0);
    for segment in segments {
        let held = u64::from(segment.bytes);
        if skip >= held {
            skip -= held;
            continue;
        }
        let here = usize::try_from(held - skip).unwrap_or(usize::MAX);
        let here = here.min(bytes - done);
        if here > 0 && !piece(segment.address + skip, done, here) {
            return false;
        }
        (skip, done) = (0, done + here);
    }
    done == bytes
}

/// How many bytes the segments hold together.
#[must_use]
pub fn total(segments: &[Segment]) -> u64 {
    segments
        .iter()
        .map(|segment| u64::from(segment.bytes))
        .sum()
}

/// Copies out of what segments hold together, from `skip` on. False: they are shorter, or not in
/// the memory.
pub fn gather(memory: &impl Memory, segments: &[Segment], skip: u64, out: &mut [u8]) -> bool {
    pieces(segments, skip, out.len(), |address, at, bytes| {
        memory.read(address, &mut out[at..at + bytes])
    })
}

/// Copies into what segments hold together, from `skip` on. False: they are shorter, or not in the
/// memory.
pub fn scatter(memory: &impl Memory, segments: &[Segment], skip: u64, source: &[u8]) -> bool {
    pieces(segments, skip, source.len(), |address, at, bytes| {
        memory.write(address, &source[at..at + bytes])
    })
}

/// The guest has broken the rules of its device; the sentence says how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Broken(pub &'static str);

/// Feature bits that every kind of device has.
pub mod feature {
    /// Descriptors may lie in a table of their own.
    pub const INDIRECT_DESCRIPTORS: u64 = 1 << 28;
    /// Kicks and calls are asked for by index.
    pub const EVENT_INDEX: u64 = 1 << 29;
    /// The device obeys version 1 of the standard.
    pub const VERSION_1: u64 = 1 << 32;
}
