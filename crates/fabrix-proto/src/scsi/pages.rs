//! What a disk says of itself: the facts as plain values, and below this file the pages written
//! from them.
//!
//! Every promise in a page comes from a fact here, and [`unit`](super::unit) refuses by the same
//! fact, so that no page says more than is done. Nothing here is random or remembered: the same
//! facts give the same bytes.

pub mod capacity;
pub mod inquiry;
pub mod mode;
pub mod support;
pub mod vital;

use alloc::string::String;
use alloc::vec::Vec;

use super::cdb::{Extent, Features};

/// What becomes of deallocated blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deallocate {
    /// The disk does not deallocate.
    No,
    /// They read as anything until they are written.
    Undefined,
    /// They read as zeroes.
    Zeroes,
}

/// A disk as initiators are to know it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Disk {
    /// Bytes in a block, a power of two.
    pub block_bytes: u32,
    /// How many blocks there are.
    pub blocks: u64,
    /// Bytes that the medium writes without reading first; at least a block.
    pub physical_block_bytes: u32,
    /// Bytes worth asking for at once; zero: no preference.
    pub optimal_io_bytes: u32,
    /// The longest read or write; at least a block.
    pub max_transfer_bytes: u32,
    /// Answered writes may be lost with the power until the cache is synchronized.
    pub volatile_cache: bool,
    /// Every write is refused.
    pub read_only: bool,
    /// What becomes of deallocated blocks.
    pub deallocate: Deallocate,
    /// Blocks written whole or not at all; with one or none there is no WRITE ATOMIC, which would
    /// promise nothing.
    pub atomic_write_blocks: u32,
    /// Most blocks of a COMPARE AND WRITE; with none the command does not exist.
    pub compare_and_write_blocks: u8,
    /// Reservations can be stored, so that they outlive the power (PTPL_C).
    pub stores_reservations: bool,
    /// The executor copies, so EXTENDED COPY exists.
    pub copies: bool,
    /// Its names.
    pub identity: Identity,
}

/// The names of a disk, the same after every restart.
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
    /// NAA identifier of type 6h or 3h; its first four bits are made to say which.
    pub naa: Naa,
    /// EUI-64, where the disk has one.
    pub eui64: Option<[u8; 8]>,
    /// UUID, where the disk has one.
    pub uuid: Option<[u8; 16]>,
}

/// The identifier from which ESXi and multipath name the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Naa {
    /// NAA Locally Assigned (3h): 60 bits of our own.
    Local(u64),
    /// NAA IEEE Registered Extended (6h): whoever owns the OUI answers for it.
    Registered([u8; 16]),
}

/// The target through which the disk is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Its iSCSI name.
    pub name: String,
    /// Its ports, in the order of their identifiers, never none.
    pub ports: Vec<TargetPort>,
    /// Task management functions that the transport and the executor do.
    pub task_management: TaskManagement,
}

/// One target port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TargetPort {
    /// RELATIVE TARGET PORT IDENTIFIER, from 1.
    pub id: u16,
    /// TARGET PORT GROUP.
    pub group: u16,
    /// Target portal group tag, which is part of an iSCSI target port's name.
    pub tag: u16,
}

/// Which task management functions are supported: bits 15:8 are byte 0 of the report, bits 7:0 byte
/// 1.
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

    /// Both.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl Disk {
    /// Which commands exist on this disk.
    #[must_use]
    pub fn features(&self) -> Features {
        Features {
            unmap: self.deallocate != Deallocate::No,
            atomic: self.atomic_write_blocks > 1,
            compare_and_write: self.compare_and_write_blocks > 0,
            copy: self.copies,
        }
    }

    /// Whether the blocks all lie on the disk. None at all may also stand at its end, as libiscsi
    /// asks for.
    #[must_use]
    pub fn contains(&self, extent: Extent) -> bool {
        extent
            .lba
            .checked_add(extent.blocks.into())
            .is_some_and(|end| end <= self.blocks)
    }

    /// The longest read or write, in blocks.
    #[must_use]
    pub const fn max_transfer_blocks(&self) -> u32 {
        self.max_transfer_bytes / self.block_bytes
    }

    /// The longest WRITE ATOMIC, in blocks; none without the command. Its length has 16 bits.
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

/// Most blocks of all descriptors of one UNMAP: bounds the work of one command.
pub const UNMAP_BLOCKS_MAX: u32 = 1 << 20;
/// Most block descriptors of one UNMAP.
pub const UNMAP_DESCRIPTORS_MAX: u32 = 256;
/// Most blocks of one WRITE SAME: what the 10-byte command can say. libiscsi takes a larger limit
/// for a promise that as many blocks can be written and read at once.
pub const WRITE_SAME_BLOCKS_MAX: u32 = 0xFFFF;
