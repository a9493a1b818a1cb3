//! virtio, device side: the split virtqueue in a guest's memory, the block device, and vhost-user,
//! by which a virtual machine monitor (QEMU) hands over memory and queues.
//!
//! [`Memory`] copies, so no code here holds a reference to guest memory. The guest may change its
//! memory at any time. Therefore the device copies everything once into its own memory and checks
//! the copy.
//! Source: Virtual I/O Device (VIRTIO) 1.2.

pub mod blk;
pub mod inflight;
pub mod queue;
#[cfg(test)]
mod testing;
pub mod vhost_user;

/// Memory of a guest, addressed by guest addresses. Addresses and lengths come from the guest and
/// may be invalid.
pub trait Memory {
    /// True if the memory contains the whole range.
    fn contains(&self, address: u64, bytes: u64) -> bool;

    /// Copies from the guest. Returns false if a part of the range is outside the memory.
    fn read(&self, address: u64, out: &mut [u8]) -> bool;

    /// Copies to the guest. Returns false if a part of the range is outside the memory.
    fn write(&self, address: u64, bytes: &[u8]) -> bool;

    /// Reads two bytes in one access, ordered with all other reads and writes. Returns `None` if
    /// the address is outside the memory or not aligned.
    fn load(&self, address: u64) -> Option<u16>;

    /// Writes two bytes in one access, ordered with all other reads and writes. Returns false if
    /// the address is outside the memory or not aligned.
    fn store(&self, address: u64, value: u16) -> bool;
}

/// A range of a guest's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Guest address of the first byte.
    pub address: u64,
    /// Length in bytes.
    pub bytes: u32,
}

/// Divides the range of `bytes` bytes from `skip` on, counted over all `segments`, into its parts.
/// Calls `piece` with each part's guest address, its offset in the range, and its length. Returns
/// false if the segments are too short or if `piece` returns false.
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

/// Total length of the segments in bytes.
#[must_use]
pub fn total(segments: &[Segment]) -> u64 {
    segments
        .iter()
        .map(|segment| u64::from(segment.bytes))
        .sum()
}

/// Copies from the segments, from byte `skip` on. Returns false if the segments are too short or
/// outside the memory.
pub fn gather(memory: &impl Memory, segments: &[Segment], skip: u64, out: &mut [u8]) -> bool {
    pieces(segments, skip, out.len(), |address, at, bytes| {
        memory.read(address, &mut out[at..at + bytes])
    })
}

/// Copies into the segments, from byte `skip` on. Returns false if the segments are too short or
/// outside the memory.
pub fn scatter(memory: &impl Memory, segments: &[Segment], skip: u64, source: &[u8]) -> bool {
    pieces(segments, skip, source.len(), |address, at, bytes| {
        memory.write(address, &source[at..at + bytes])
    })
}

/// A violation of virtio by the guest or its monitor, as a sentence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Broken(pub &'static str);

/// Feature bits common to all kinds of devices.
pub mod feature {
    /// Indirect descriptors: a descriptor may point to a table of descriptors.
    pub const INDIRECT_DESCRIPTORS: u64 = 1 << 28;
    /// Event index: each side names the ring entry for which it wants the next notification.
    pub const EVENT_INDEX: u64 = 1 << 29;
    /// The device conforms to version 1 of the standard.
    pub const VERSION_1: u64 = 1 << 32;
}
