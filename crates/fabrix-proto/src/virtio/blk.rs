//! The block device: what a guest asks, what it is told, and the space in which it reads what the
//! disk is.
//!
//! Source: VIRTIO 1.2, section 5.2 "Block Device". All integers are little-endian.

use zerocopy::byteorder::little_endian::{U16, U32, U64};

/// The unit of every address and length, whatever the disk's block is.
pub const SECTOR_BYTES: u64 = 512;
/// What every request begins with, for the device to read.
pub const HEAD_BYTES: usize = size_of::<Head>();
/// Bytes of the identity string.
pub const ID_BYTES: usize = 20;

/// Feature bits of block devices.
pub mod feature {
    /// `seg_max` says how many segments a request has at most.
    pub const SEG_MAX: u64 = 1 << 2;
    /// Writes fail.
    pub const READ_ONLY: u64 = 1 << 5;
    /// `block_bytes` is the smallest that can be read or written.
    pub const BLOCK_SIZE: u64 = 1 << 6;
    /// There are flushes.
    pub const FLUSH: u64 = 1 << 9;
    /// The fields about physical blocks and the best sizes are there.
    pub const TOPOLOGY: u64 = 1 << 10;
    /// `writeback` can be read and set.
    pub const WRITEBACK: u64 = 1 << 11;
    /// There may be several queues.
    pub const QUEUES: u64 = 1 << 12;
    /// Space can be given back.
    pub const DISCARD: u64 = 1 << 13;
    /// Zeroes can be written without sending them.
    pub const WRITE_ZEROES: u64 = 1 << 14;
}

wire! {
    /// The head of a request. 16 bytes.
    ///
    /// Source: section 5.2.6.
    pub struct Head: 16 bytes {
        /// What is asked: [`kind`].
        pub kind: U32,
        reserved: U32,
        /// First sector.
        pub sector: U64,
    }
}

/// What can be asked.
pub mod kind {
    /// Read.
    pub const IN: u32 = 0;
    /// Write.
    pub const OUT: u32 = 1;
    /// What was answered is to be on the medium.
    pub const FLUSH: u32 = 4;
    /// The identity string.
    pub const GET_ID: u32 = 8;
    /// Give space back.
    pub const DISCARD: u32 = 11;
    /// Write zeroes.
    pub const WRITE_ZEROES: u32 = 13;
}

wire! {
    /// What follows the head of a discard or of zeroes. 16 bytes.
    pub struct Range: 16 bytes {
        /// First sector.
        pub sector: U64,
        /// How many.
        pub sectors: U32,
        /// Bit 0: zeroes may be made by giving space back.
        pub flags: U32,
    }
}

/// Zeroes may be made by giving space back.
pub const UNMAP: u32 = 1;

/// The last byte of every request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Answer {
    /// Done.
    Ok = 0,
    /// It failed.
    IoError = 1,
    /// There is no such request.
    Unsupported = 2,
}

wire! {
    /// What a guest reads about the disk. 60 bytes.
    ///
    /// Source: section 5.2.4.
    #[derive(Default)]
    pub struct Config: 60 bytes {
        /// Sectors.
        pub capacity: U64,
        /// Most bytes of a segment; not told.
        pub size_max: U32,
        /// Most segments of a request.
        pub seg_max: U32,
        geometry: [u8; 4],
        /// Bytes of a logical block.
        pub block_bytes: U32,
        /// Logical blocks in a physical one, as a power of two.
        pub physical_block_exponent: u8,
        /// The first aligned logical block.
        pub alignment_offset: u8,
        /// Logical blocks worth asking for at least.
        pub min_io_blocks: U16,
        /// Logical blocks worth asking for at best.
        pub opt_io_blocks: U32,
        /// 1: writes may stay in a cache until a flush. 0: they are on the medium when they are
        /// answered.
        pub writeback @ 32: u8,
        unused: u8,
        /// How many queues there are.
        pub num_queues: U16,
        /// Most sectors of a discard.
        pub max_discard_sectors: U32,
        /// Most ranges of a discard.
        pub max_discard_ranges: U32,
        /// Sectors to which discards are best aligned.
        pub discard_alignment_sectors: U32,
        /// Most sectors of zeroes.
        pub max_zeroes_sectors: U32,
        /// Most ranges of zeroes.
        pub max_zeroes_ranges: U32,
        /// 1: zeroes may give space back.
        pub zeroes_may_unmap: u8,
        unused2: [u8; 3],
    }
}

/// What a guest is to know about a disk.
#[derive(Clone, Copy, Debug)]
pub struct Facts {
    /// Bytes of the disk.
    pub bytes: u64,
    /// Bytes of a logical block: a power of two, 512 or more.
    pub block_bytes: u32,
    /// Bytes that the medium writes at once; not less than a block.
    pub physical_bytes: u32,
    /// Bytes worth asking for at once. 0: no preference.
    pub optimal_bytes: u32,
    /// Queues at most.
    pub queues: u16,
    /// Writes fail.
    pub read_only: bool,
    /// The disk gives space back.
    pub trims: bool,
}

impl Facts {
    /// The feature bits that this disk has, those of every device not included.
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

    /// What is read in the space of the device.
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

/// Segments of a request, head and status not counted: what a queue of 128 has room for without
/// indirect tables.
const SEGMENTS_MAX: u32 = 126;
/// A discard, or zeroes, cover 2 GiB at most: whole blocks of any size.
const ZEROES_SECTORS: u32 = 1 << 22;

/// Where `writeback` stands: the one byte that a guest may set.
pub const WRITEBACK_AT: usize = 32;
