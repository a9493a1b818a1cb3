//! Block device: requests, answers, and the configuration space.
//!
//! Source: VIRTIO 1.2, section 5.2 "Block Device". All integers are little-endian.

use zerocopy::byteorder::little_endian::{U16, U32, U64};

/// Unit of every address and length in bytes, independent of the disk's block size.
pub const SECTOR_BYTES: u64 = 512;
/// Length in bytes of the head of every request.
pub const HEAD_BYTES: usize = size_of::<Head>();
/// Bytes of the identity string.
pub const ID_BYTES: usize = 20;

/// Feature bits of block devices.
pub mod feature {
    /// `seg_max` is valid: maximum number of segments of a request.
    pub const SEG_MAX: u64 = 1 << 2;
    /// Writes fail.
    pub const READ_ONLY: u64 = 1 << 5;
    /// `block_bytes` is valid: smallest unit of reads and writes.
    pub const BLOCK_SIZE: u64 = 1 << 6;
    /// Flush is supported.
    pub const FLUSH: u64 = 1 << 9;
    /// The fields about physical blocks and preferred sizes are valid.
    pub const TOPOLOGY: u64 = 1 << 10;
    /// `writeback` can be read and set.
    pub const WRITEBACK: u64 = 1 << 11;
    /// The device may have several queues.
    pub const QUEUES: u64 = 1 << 12;
    /// Discard is supported.
    pub const DISCARD: u64 = 1 << 13;
    /// Write zeroes is supported.
    pub const WRITE_ZEROES: u64 = 1 << 14;
}

wire! {
    /// The head of a request. 16 bytes.
    ///
    /// Source: section 5.2.6.
    pub struct Head: 16 bytes {
        /// Type of the request: [`kind`].
        pub kind: U32,
        reserved: U32,
        /// First sector.
        pub sector: U64,
    }
}

/// Types of requests.
pub mod kind {
    /// Read.
    pub const IN: u32 = 0;
    /// Write.
    pub const OUT: u32 = 1;
    /// Make all answered writes durable.
    pub const FLUSH: u32 = 4;
    /// The identity string.
    pub const GET_ID: u32 = 8;
    /// Deallocate space.
    pub const DISCARD: u32 = 11;
    /// Write zeroes.
    pub const WRITE_ZEROES: u32 = 13;
}

wire! {
    /// Range of a discard or of a write of zeroes. 16 bytes.
    pub struct Range: 16 bytes {
        /// First sector.
        pub sector: U64,
        /// Number of sectors.
        pub sectors: U32,
        /// Bit 0: the device may deallocate instead of writing zeroes.
        pub flags: U32,
    }
}

/// The device may deallocate instead of writing zeroes.
pub const UNMAP: u32 = 1;

/// Status, the last byte of every request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Answer {
    /// Done.
    Ok = 0,
    /// The request failed.
    IoError = 1,
    /// The request is not supported.
    Unsupported = 2,
}

wire! {
    /// Configuration space. 60 bytes.
    ///
    /// Source: section 5.2.4.
    #[derive(Default)]
    pub struct Config: 60 bytes {
        /// Sectors.
        pub capacity: U64,
        /// Maximum length of a segment in bytes. Not used.
        pub size_max: U32,
        /// Maximum number of segments of a request.
        pub seg_max: U32,
        geometry: [u8; 4],
        /// Bytes of a logical block.
        pub block_bytes: U32,
        /// Logical blocks in a physical one, as a power of two.
        pub physical_block_exponent: u8,
        /// The first aligned logical block.
        pub alignment_offset: u8,
        /// Preferred minimum transfer in logical blocks.
        pub min_io_blocks: U16,
        /// Preferred transfer in logical blocks.
        pub opt_io_blocks: U32,
        /// 1: writes may stay in a cache until a flush. 0: answered writes are on the medium.
        pub writeback @ 32: u8,
        unused: u8,
        /// Number of queues.
        pub num_queues: U16,
        /// Maximum number of sectors of a discard.
        pub max_discard_sectors: U32,
        /// Maximum number of ranges of a discard.
        pub max_discard_ranges: U32,
        /// Preferred alignment of discards in sectors.
        pub discard_alignment_sectors: U32,
        /// Maximum number of sectors of a write of zeroes.
        pub max_zeroes_sectors: U32,
        /// Maximum number of ranges of a write of zeroes.
        pub max_zeroes_ranges: U32,
        /// 1: a write of zeroes may deallocate.
        pub zeroes_may_unmap: u8,
        unused2: [u8; 3],
    }
}

/// Properties of a disk that a guest can see.
#[derive(Clone, Copy, Debug)]
pub struct Facts {
    /// Bytes of the disk.
    pub bytes: u64,
    /// Bytes of a logical block: a power of two, 512 or more.
    pub block_bytes: u32,
    /// Size in bytes of the medium's physical block, at least a logical block.
    pub physical_bytes: u32,
    /// Preferred transfer in bytes. 0: no preference.
    pub optimal_bytes: u32,
    /// Maximum number of queues.
    pub queues: u16,
    /// Writes fail.
    pub read_only: bool,
    /// The disk can deallocate space.
    pub trims: bool,
}

impl Facts {
    /// Feature bits of the disk, without those of every device.
    #[must_use]
    pub fn features(&self) -> u64 {
        let if_so = |condition: bool, bits: u64| if condition { bits } else { 0 };
        feature::SEG_MAX
            | feature::BLOCK_SIZE
            | feature::FLUSH
            | feature::TOPOLOGY
            | feature::WRITEBACK
            | feature::QUEUES
            | if_so(self.read_only, feature::READ_ONLY)
            | if_so(!self.read_only, feature::WRITE_ZEROES)
            | if_so(!self.read_only && self.trims, feature::DISCARD)
    }

    /// Content of the configuration space.
    #[must_use]
    pub fn config(&self) -> Config {
        let block_sectors = self.block_bytes / 512;
        let exponent = (self.physical_bytes / self.block_bytes).max(1).ilog2();
        let zeroes = if self.read_only { 0 } else { ZEROES_SECTORS };
        let discards = if self.trims { zeroes } else { 0 };
        Config {
            capacity: U64::new(self.bytes / SECTOR_BYTES),
            seg_max: U32::new(SEGMENTS_MAX),
            block_bytes: U32::new(self.block_bytes),
            physical_block_exponent: u8::try_from(exponent).unwrap_or(0),
            min_io_blocks: U16::new(1),
            opt_io_blocks: U32::new(self.optimal_bytes / self.block_bytes),
            writeback: 1,
            num_queues: U16::new(self.queues),
            max_discard_sectors: U32::new(discards),
            max_discard_ranges: U32::new(discards.min(1)),
            discard_alignment_sectors: U32::new(block_sectors),
            max_zeroes_sectors: U32::new(zeroes),
            max_zeroes_ranges: U32::new(zeroes.min(1)),
            zeroes_may_unmap: u8::from(self.trims),
            ..Config::default()
        }
    }
}

/// Maximum number of segments of a request without head and status: a queue of 128 holds them
/// without indirect tables.
const SEGMENTS_MAX: u32 = 126;
/// Maximum number of sectors of a discard or of a write of zeroes: 2 GiB, whole blocks of any size.
const ZEROES_SECTORS: u32 = 1 << 22;

/// Offset of `writeback`, the only byte that a guest may set.
pub const WRITEBACK_AT: usize = 32;
