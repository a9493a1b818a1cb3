//! The sizes, limits and promises of a disk: plain values, true from opening to closing. What a
//! front end tells its hosts (block size, cache, atomicity, unmap) is derived from these and from
//! nothing else.

/// The sizes, limits and promises of a disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Bytes in a block, the unit of every address: 512 or 4096.
    pub block_bytes: u32,
    /// How many blocks there are.
    pub blocks: u64,
    /// Bytes the medium writes without reading first. At least `block_bytes`.
    pub physical_block_bytes: u32,
    /// Bytes worth asking for at once: a stripe of an array. 0: no preference.
    pub optimal_io_bytes: u32,
    /// The longest read or write, in bytes. Operations without payload are not bound by it.
    pub max_transfer_bytes: u32,
    /// Whether answered writes may be lost with the power until a flush is answered.
    pub volatile_cache: bool,
    /// What an answered flush means.
    pub durability: Durability,
    /// How many blocks are written whole or not at all if the power fails. 1: only single blocks.
    pub atomic_write_blocks: u32,
    /// Whether every write is refused.
    pub read_only: bool,
    /// What becomes of deallocated blocks.
    pub deallocate: Deallocate,
}

/// What an answered flush means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Durability {
    /// Nothing outlives this process: a RAM disk says so instead of pretending to flush.
    None,
    /// What was answered before the flush is on the medium.
    Device,
}

/// What becomes of deallocated blocks, from the least promise to the greatest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Deallocate {
    /// The disk does not deallocate; the operation is answered `Unsupported`.
    No,
    /// They read as anything until they are written.
    Undefined,
    /// They read as zeroes.
    Zeroes,
}

impl Geometry {
    /// A disk without preferences, limits beyond the largest transfer, or promises: the start for
    /// all disks.
    #[must_use]
    pub const fn new(block_bytes: u32, blocks: u64) -> Self {
        Self {
            block_bytes,
            blocks,
            physical_block_bytes: if block_bytes > 4096 {
                block_bytes
            } else {
                4096
            },
            optimal_io_bytes: 0,
            max_transfer_bytes: MAX_TRANSFER_BYTES,
            volatile_cache: false,
            durability: Durability::None,
            atomic_write_blocks: 1,
            read_only: false,
            deallocate: Deallocate::No,
        }
    }

    /// The same disk with a medium that writes so many bytes at once; None: as it was.
    ///
    /// Errors: a sentence when that is less than a block.
    pub fn with_physical(mut self, physical_block_bytes: Option<u32>) -> Result<Self, String> {
        let physical = physical_block_bytes.unwrap_or(self.physical_block_bytes);
        if physical < self.block_bytes {
            return Err(format!(
                "physical={physical} is less than the block of {} bytes",
                self.block_bytes
            ));
        }
        self.physical_block_bytes = physical;
        Ok(self)
    }

    /// The size of the disk in bytes.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.blocks.saturating_mul(self.block_bytes as u64)
    }

    /// Whether the blocks all lie on the disk.
    #[must_use]
    pub const fn contains(&self, lba: u64, blocks: u32) -> bool {
        match lba.checked_add(blocks as u64) {
            Some(end) => end <= self.blocks,
            None => false,
        }
    }

    /// Where a block begins, in bytes. The block lies on the disk, so this does not overflow.
    #[must_use]
    pub const fn offset(&self, lba: u64) -> u64 {
        lba * self.block_bytes as u64
    }
}

/// The longest read or write of every disk here: 1 MiB, which all protocols can carry and a shard
/// can lend.
pub const MAX_TRANSFER_BYTES: u32 = 1 << 20;

/// The block size of a disk whose user did not say: every host takes 512, and all of them align to
/// the physical block of 4096.
pub const DEFAULT_BLOCK_BYTES: u32 = 512;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_at_the_end_is_inside_and_one_block_more_is_not() {
        let geometry = Geometry::new(512, 100);
        assert!(geometry.contains(90, 10));
        assert!(geometry.contains(100, 0));
        assert!(!geometry.contains(90, 11));
        assert!(!geometry.contains(u64::MAX, 1));
    }

    #[test]
    fn a_disk_larger_than_all_bytes_there_are_does_not_overflow() {
        assert_eq!(Geometry::new(4096, u64::MAX).bytes(), u64::MAX);
    }
}
