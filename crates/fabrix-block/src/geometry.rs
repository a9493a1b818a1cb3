//! The sizes, limits and promises of a disk: plain values that stay the same while the disk is
//! open. Front ends derive everything they report to hosts (block size, cache, atomicity, unmap)
//! from them.

/// The sizes, limits and promises of a disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Block size in bytes, the unit of every address: 512 or 4096. Files in the page cache may
    /// have blocks of 1 byte, which only the load generator uses.
    pub block_bytes: u32,
    /// Number of blocks.
    pub blocks: u64,
    /// Bytes that the medium writes without a read-modify-write. At least `block_bytes`.
    pub physical_block_bytes: u32,
    /// Preferred request size in bytes, for example a stripe of an array. 0: no preference.
    pub optimal_io_bytes: u32,
    /// Longest read or write in bytes. Operations without payload may be longer.
    pub max_transfer_bytes: u32,
    /// Whether a power failure may lose answered writes that no flush has followed.
    pub volatile_cache: bool,
    /// What an answered flush means.
    pub durability: Durability,
    /// Blocks that are written entirely or not at all when the power fails. 1: only single blocks.
    pub atomic_write_blocks: u32,
    /// Whether the disk refuses writes.
    pub read_only: bool,
    /// Content of deallocated blocks.
    pub deallocate: Deallocate,
}

/// Meaning of an answered flush.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Durability {
    /// Nothing survives the end of this process: the RAM disk reports this.
    None,
    /// All writes answered before the flush are on the medium.
    Device,
}

/// Content of deallocated blocks, from the weakest promise to the strongest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Deallocate {
    /// The disk does not deallocate and answers `Unsupported`.
    No,
    /// The blocks read as anything until they are written.
    Undefined,
    /// The blocks read as zeroes.
    Zeroes,
}

impl Geometry {
    /// The default geometry: no preferences, no promises, and no limit but the largest transfer.
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

    /// The same geometry with another physical block size in bytes. None: unchanged.
    ///
    /// Errors: A sentence, when the physical block is smaller than a block.
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

    /// Whether all the blocks lie on the disk.
    #[must_use]
    pub const fn contains(&self, lba: u64, blocks: u32) -> bool {
        match lba.checked_add(blocks as u64) {
            Some(end) => end <= self.blocks,
            None => false,
        }
    }

    /// Byte offset of a block. The block lies on the disk, so the product does not overflow.
    #[must_use]
    pub const fn offset(&self, lba: u64) -> u64 {
        lba * self.block_bytes as u64
    }
}

/// Longest read or write of every disk in bytes: 1 MiB. All protocols can carry it and a shard can
/// lend it in one piece.
pub const MAX_TRANSFER_BYTES: u32 = 1 << 20;

/// Block size in bytes when the user names none. Every host accepts 512, and all of them align to
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
