//! Facts about a disk as plain values. The modules below write pages from them.
//!
//! Every announced feature comes from a field here, and [`unit`](super::unit) refuses commands by
//! the same field. A page therefore never announces more than the unit does. The same facts always
//! give the same bytes.

pub mod capacity;
pub mod inquiry;
pub mod mode;
pub mod support;
pub mod vital;

use alloc::string::String;
use alloc::vec::Vec;

use super::cdb::{Extent, Features};

/// Content of deallocated blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deallocate {
    /// The disk does not deallocate.
    No,
    /// The content is undefined until the next write.
    Undefined,
    /// The blocks read as zeroes.
    Zeroes,
}

/// A disk as initiators see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Disk {
    /// Block size in bytes, a power of two.
    pub block_bytes: u32,
    /// Size in blocks.
    pub blocks: u64,
    /// Physical block size in bytes, at least one block. Smaller writes cost a read.
    pub physical_block_bytes: u32,
    /// Optimal transfer length in bytes. Zero: no preference.
    pub optimal_io_bytes: u32,
    /// Maximum length of a read or write in bytes, at least one block.
    pub max_transfer_bytes: u32,
    /// Volatile write cache: a power loss may lose answered writes that were not flushed.
    pub volatile_cache: bool,
    /// The disk refuses writes.
    pub read_only: bool,
    /// Content of deallocated blocks.
    pub deallocate: Deallocate,
    /// Maximum number of blocks of an atomic write. WRITE ATOMIC exists from 2 blocks on, because a
    /// write of one block is always atomic.
    pub atomic_write_blocks: u32,
    /// Maximum number of blocks of COMPARE AND WRITE. Zero: the command does not exist.
    pub compare_and_write_blocks: u8,
    /// PTPL_C: reservations can persist through power loss.
    pub stores_reservations: bool,
    /// EXTENDED COPY exists.
    pub copies: bool,
    /// Names of the disk.
    pub identity: Identity,
}

/// Names of a disk. They stay the same after a restart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// T10 VENDOR IDENTIFICATION, 8 characters.
    pub vendor: String,
    /// PRODUCT IDENTIFICATION, 16 characters.
    pub product: String,
    /// PRODUCT REVISION LEVEL, 4 characters.
    pub revision: String,
    /// PRODUCT SERIAL NUMBER.
    pub serial: String,
    /// NAA designator of type 6h or 3h. The page writer sets its first four bits to the type.
    pub naa: Naa,
    /// EUI-64, if the disk has one.
    pub eui64: Option<[u8; 8]>,
    /// UUID, if the disk has one.
    pub uuid: Option<[u8; 16]>,
}

/// NAA designator. ESXi and multipath name the disk by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Naa {
    /// NAA Locally Assigned (3h): 60 bits that we choose.
    Local(u64),
    /// NAA IEEE Registered Extended (6h): an identifier assigned by the owner of its OUI.
    Registered([u8; 16]),
}

/// Target that exports the disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// iSCSI name of the target.
    pub name: String,
    /// Target ports in ascending order of their identifiers, at least one.
    pub ports: Vec<TargetPort>,
    /// Supported task management functions.
    pub task_management: TaskManagement,
}

/// A target port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TargetPort {
    /// RELATIVE TARGET PORT IDENTIFIER, from 1.
    pub id: u16,
    /// TARGET PORT GROUP.
    pub group: u16,
    /// Target portal group tag, a part of the iSCSI target port name.
    pub tag: u16,
}

/// Supported task management functions: bits 15:8 are byte 0 of the report, bits 7:0 are byte 1.
///
/// Source: SPC-4, "REPORT SUPPORTED TASK MANAGEMENT FUNCTIONS parameter data".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskManagement(pub u16);

impl TaskManagement {
    /// ATS: ABORT TASK.
    pub const ABORT_TASK: Self = Self(0x8000);
    /// ATSS: ABORT TASK SET.
    pub const ABORT_TASK_SET: Self = Self(0x4000);
    /// CTSS: CLEAR TASK SET.
    pub const CLEAR_TASK_SET: Self = Self(0x1000);
    /// LURS: LOGICAL UNIT RESET.
    pub const LOGICAL_UNIT_RESET: Self = Self(0x0800);
    /// QTS: QUERY TASK.
    pub const QUERY_TASK: Self = Self(0x0400);
    /// QTSS: QUERY TASK SET.
    pub const QUERY_TASK_SET: Self = Self(0x0002);
    /// ITNRS: I_T NEXUS RESET.
    pub const NEXUS_RESET: Self = Self(0x0001);

    /// Union of both sets.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl Disk {
    /// Features of the disk, which decide what commands exist.
    #[must_use]
    pub fn features(&self) -> Features {
        Features {
            unmap: self.deallocate != Deallocate::No,
            atomic: self.atomic_write_blocks > 1,
            compare_and_write: self.compare_and_write_blocks > 0,
            copy: self.copies,
        }
    }

    /// Whether all blocks of `extent` lie on the disk. An empty extent may lie at the end of the
    /// disk, because libiscsi expects that.
    #[must_use]
    pub fn contains(&self, extent: Extent) -> bool {
        extent
            .lba
            .checked_add(extent.blocks.into())
            .is_some_and(|end| end <= self.blocks)
    }

    /// Maximum length of a read or write in blocks.
    #[must_use]
    pub const fn max_transfer_blocks(&self) -> u32 {
        self.max_transfer_bytes / self.block_bytes
    }

    /// Maximum length of WRITE ATOMIC in blocks, at most 65535 because its length field has 16
    /// bits. Zero without the command.
    #[must_use]
    pub fn max_atomic_blocks(&self) -> u32 {
        if !self.features().atomic {
            return 0;
        }
        let blocks = self.atomic_write_blocks.min(self.max_transfer_blocks());
        blocks.min(u16::MAX.into())
    }

    /// LOGICAL BLOCKS PER PHYSICAL BLOCK EXPONENT, at most 15.
    #[must_use]
    pub fn physical_exponent(&self) -> u8 {
        let blocks = (self.physical_block_bytes / self.block_bytes).max(1);
        u8::try_from(blocks.ilog2()).unwrap_or(0).min(15)
    }
}

/// Maximum number of blocks of one UNMAP, all descriptors together. The limit bounds the work of
/// one command.
pub const UNMAP_BLOCKS_MAX: u32 = 1 << 20;
/// Maximum number of block descriptors of one UNMAP.
pub const UNMAP_DESCRIPTORS_MAX: u32 = 256;
/// Maximum number of blocks of one WRITE SAME: the length field of WRITE SAME(10) has 16 bits. With
/// a larger limit libiscsi expects that a single command can write and read as many blocks.
pub const WRITE_SAME_BLOCKS_MAX: u32 = 0xFFFF;
