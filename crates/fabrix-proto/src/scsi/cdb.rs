//! Command descriptor blocks: turns bytes into a typed [`Command`]. Special encodings, such as a
//! READ(6) length of zero for 256 blocks, are resolved here.
//!
//! The parser checks every field that needs neither data nor disk size; [`unit`](super::unit)
//! checks ranges. A set bit without meaning is refused with a pointer to the bit, by means of
//! [`table`]. A field with an unsupported value is refused in `parse`.
//! Source: SPC-4 and SBC-3, the chapters of commands.

pub mod build;
mod parse;
pub mod table;

pub use table::{CommandEntry, Features};

use super::sense::Sense;
use crate::scsi::spec::CDB_BYTES_MAX;

/// Range of blocks of a command. `blocks` may be zero. The end may lie beyond the disk, and `lba +
/// blocks` may exceed 64 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// LOGICAL BLOCK ADDRESS of the first block.
    pub lba: u64,
    /// Number of blocks, from TRANSFER LENGTH, NUMBER OF LOGICAL BLOCKS or the like.
    pub blocks: u32,
}

/// BYTCHK: comparison that VERIFY makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ByteCheck {
    /// 00b: no comparison. The disk reads and checks the medium.
    Medium,
    /// 01b: with data for every block.
    Data,
    /// 11b: with one block of data for all blocks.
    OneBlock,
}

/// SELECT REPORT of REPORT LUNS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SelectReport {
    /// 00h, 02h and 11h: all logical units. ESXi asks with 11h.
    Units,
    /// 01h: well known logical units. The target has none.
    WellKnown,
}

/// PC: values that MODE SENSE returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageControl {
    /// 00b: values in force.
    Current,
    /// 01b: a mask of what MODE SELECT may change.
    Changeable,
    /// 10b: values at the start.
    Default,
    /// 11b: saved values. The target saves none and refuses the request.
    Saved,
}

/// MODE SENSE(6) or (10).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModeSense {
    /// True for MODE SENSE(10), whose header has 8 bytes instead of 4.
    pub long: bool,
    /// DBD: the answer has no block descriptor.
    pub no_block_descriptor: bool,
    /// LLBAA: the answer may have the long block descriptor.
    pub long_lba: bool,
    /// PC: values to return.
    pub control: PageControl,
    /// PAGE CODE.
    pub page: u8,
    /// SUBPAGE CODE.
    pub subpage: u8,
    /// ALLOCATION LENGTH.
    pub allocation: u32,
}

/// CDB of PERSISTENT RESERVE OUT, without its parameter list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReserveOut {
    /// SERVICE ACTION, 0 to 7.
    pub action: u8,
    /// SCOPE. Only the logical unit (0) exists.
    pub scope: u8,
    /// TYPE. Unchecked, because some actions ignore it.
    pub kind: u8,
    /// PARAMETER LIST LENGTH in bytes.
    pub bytes: u32,
}

/// REPORTING OPTIONS of REPORT SUPPORTED OPERATION CODES.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reporting {
    /// 000b: all commands.
    All,
    /// 001b: one command without service actions.
    Opcode,
    /// 010b: one command with its service action.
    ServiceAction,
    /// 011b: one command. The service action counts only if the command has service actions.
    Either,
}

/// A command with decoded fields. Lengths are in bytes, `blocks` are plain counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(
    missing_docs,
    reason = "the variants and their fields are the standard's"
)]
pub enum Command {
    TestUnitReady,
    /// `descriptor`: DESC, descriptor format instead of fixed format.
    RequestSense {
        descriptor: bool,
        allocation: u32,
    },
    /// `page`: PAGE CODE if EVPD is set, `None` for the standard INQUIRY data.
    Inquiry {
        page: Option<u8>,
        allocation: u32,
    },
    ReadCapacity10,
    ReadCapacity16 {
        allocation: u32,
    },
    ReportLuns {
        select: SelectReport,
        allocation: u32,
    },
    ModeSense(ModeSense),
    /// `long`: MODE SELECT(10) instead of (6). `bytes`: PARAMETER LIST LENGTH.
    ModeSelect {
        long: bool,
        bytes: u32,
    },
    Read {
        extent: Extent,
        fua: bool,
    },
    Write {
        extent: Extent,
        fua: bool,
    },
    /// `compare`: BYTCHK 01b. The disk compares the blocks that it reads back with the data.
    WriteAndVerify {
        extent: Extent,
        compare: bool,
    },
    WriteAtomic {
        extent: Extent,
        fua: bool,
    },
    Verify {
        extent: Extent,
        check: ByteCheck,
    },
    OrWrite {
        extent: Extent,
        fua: bool,
    },
    CompareAndWrite {
        extent: Extent,
        fua: bool,
    },
    /// `no_data`: NDOB. The command has no data-out buffer and writes zeroes.
    WriteSame {
        extent: Extent,
        unmap: bool,
        no_data: bool,
    },
    Unmap {
        bytes: u32,
    },
    PreFetch {
        extent: Extent,
    },
    /// The target flushes the whole disk and answers when the flush is done. The extent is only
    /// checked, and IMMED has no effect.
    SynchronizeCache {
        extent: Extent,
    },
    GetLbaStatus {
        lba: u64,
        allocation: u32,
    },
    /// `long`: READ DEFECT DATA(12) instead of (10). `lists`: REQ_PLIST, REQ_GLIST and the format,
    /// as in the CDB.
    ReadDefectData {
        long: bool,
        lists: u8,
        allocation: u32,
    },
    /// `flush`: START is zero and NO_FLUSH is not set.
    StartStopUnit {
        start: bool,
        flush: bool,
    },
    PreventAllow {
        prevent: bool,
    },
    PersistentReserveIn {
        action: u8,
        allocation: u32,
    },
    PersistentReserveOut(ReserveOut),
    Reserve,
    Release,
    /// `extended`: PARAMETER DATA FORMAT 001b.
    ReportTargetPortGroups {
        extended: bool,
        allocation: u32,
    },
    /// `timeouts`: RCTD, the answer includes timeouts descriptors.
    ReportOperationCodes {
        timeouts: bool,
        reporting: Reporting,
        opcode: u8,
        service_action: u16,
        allocation: u32,
    },
    /// `extended`: REPD, the answer has the extended format.
    ReportTaskManagement {
        extended: bool,
        allocation: u32,
    },
    ExtendedCopy {
        bytes: u32,
    },
    ReceiveCopyStatus {
        list: u8,
        allocation: u32,
    },
    ReceiveCopyParameters {
        allocation: u32,
    },
}

/// Direction of the data of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// No data.
    None,
    /// From the target to the initiator.
    In,
    /// From the initiator to the target.
    Out,
}

/// Data that a command moves. A transport compares it with the length that the initiator expects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transfer {
    /// Direction of the data.
    pub direction: Direction,
    /// Length in bytes. For a command with an allocation length: the most that the answer may have.
    pub bytes: u64,
    /// True if the command is refused when the initiator expects another length. False if the
    /// transport reports the difference as a residual.
    pub exact: bool,
}

impl Transfer {
    /// Whether the command can execute when the initiator expects to move `expected` bytes. If the
    /// lengths differ, the transport moves the smaller number of bytes and reports the rest as a
    /// residual.
    #[must_use]
    pub const fn fits(&self, expected: u64) -> bool {
        !self.exact || expected == self.bytes
    }
}

impl Command {
    /// Parses a CDB. Bytes behind the length of the command are ignored.
    ///
    /// # Errors
    /// ILLEGAL REQUEST: INVALID COMMAND OPERATION CODE, or INVALID FIELD IN CDB with a pointer to
    /// the field.
    pub fn parse(cdb: &[u8], features: Features) -> Result<(Self, &'static CommandEntry), Sense> {
        let mut padded = [0; CDB_BYTES_MAX];
        let taken = cdb.len().min(CDB_BYTES_MAX);
        padded[..taken].copy_from_slice(&cdb[..taken]);
        let entry = parse::entry(&padded, features)?;
        if taken < entry.cdb_bytes() {
            return Err(Sense::field_in_cdb(u16::try_from(taken).unwrap_or(0), None));
        }
        if let Some((byte, bit)) = entry.stray_bit(&padded, features) {
            return Err(Sense::field_in_cdb(byte, Some(bit)));
        }
        Ok((parse::command(entry, &padded)?, entry))
    }

    /// Blocks that the CDB names.
    #[must_use]
    pub const fn extent(&self) -> Option<Extent> {
        match *self {
            Self::Read { extent, .. }
            | Self::Write { extent, .. }
            | Self::WriteAndVerify { extent, .. }
            | Self::WriteAtomic { extent, .. }
            | Self::Verify { extent, .. }
            | Self::OrWrite { extent, .. }
            | Self::CompareAndWrite { extent, .. }
            | Self::WriteSame { extent, .. }
            | Self::PreFetch { extent }
            | Self::SynchronizeCache { extent } => Some(extent),
            _ => None,
        }
    }

    /// Whether the command changes blocks. The target refuses such a command when the medium is
    /// write protected.
    #[must_use]
    pub const fn writes(&self) -> bool {
        matches!(
            self,
            Self::Write { .. }
                | Self::WriteAndVerify { .. }
                | Self::WriteAtomic { .. }
                | Self::OrWrite { .. }
                | Self::CompareAndWrite { .. }
                | Self::WriteSame { .. }
                | Self::Unmap { .. }
                | Self::ExtendedCopy { .. }
        )
    }

    /// Whether the command is executed in every access state of the target port. The size is read
    /// in every state, too, as at Linux' target in its state standby: an initiator that has found a
    /// path without a size (multipathd) does not use it later.
    ///
    /// Source: SPC-4, "Unavailable state".
    #[must_use]
    pub const fn passes_access_states(&self) -> bool {
        matches!(
            self,
            Self::Inquiry { .. }
                | Self::ReportLuns { .. }
                | Self::RequestSense { .. }
                | Self::ReportTargetPortGroups { .. }
                | Self::ModeSense(_)
                | Self::ReadCapacity10
                | Self::ReadCapacity16 { .. }
        )
    }

    /// Data that the command moves on a disk with blocks of `block_bytes` bytes.
    #[must_use]
    pub fn transfer(&self, block_bytes: u32) -> Transfer {
        let (direction, bytes) = match self.parameter_bytes() {
            Some(bytes) => (Direction::Out, u64::from(bytes)),
            None => self.other_bytes(block_bytes),
        };
        Transfer {
            direction: if bytes == 0 {
                Direction::None
            } else {
                direction
            },
            bytes,
            exact: matches!(self, Self::CompareAndWrite { .. } | Self::WriteSame { .. }),
        }
    }

    /// Length of the parameter list in bytes, for commands that have one.
    #[must_use]
    pub const fn parameter_bytes(&self) -> Option<u32> {
        match *self {
            Self::ModeSelect { bytes, .. }
            | Self::Unmap { bytes }
            | Self::ExtendedCopy { bytes }
            | Self::PersistentReserveOut(ReserveOut { bytes, .. }) => Some(bytes),
            _ => None,
        }
    }

    fn other_bytes(&self, block_bytes: u32) -> (Direction, u64) {
        let blocks = |count: u32| u64::from(count) * u64::from(block_bytes);
        match *self {
            Self::Read { extent, .. } => (Direction::In, blocks(extent.blocks)),
            Self::Write { extent, .. }
            | Self::WriteAndVerify { extent, .. }
            | Self::WriteAtomic { extent, .. }
            | Self::OrWrite { extent, .. } => (Direction::Out, blocks(extent.blocks)),
            Self::Verify { extent, check } => (Direction::Out, check.bytes(extent, block_bytes)),
            Self::CompareAndWrite { extent, .. } => (Direction::Out, 2 * blocks(extent.blocks)),
            Self::WriteSame { no_data, .. } => (Direction::Out, blocks(u32::from(!no_data))),
            Self::ReadCapacity10 => (Direction::In, 8),
            _ => (Direction::In, u64::from(self.allocation())),
        }
    }

    /// ALLOCATION LENGTH in bytes. Zero for commands that have none.
    #[must_use]
    pub const fn allocation(&self) -> u32 {
        match *self {
            Self::RequestSense { allocation, .. }
            | Self::Inquiry { allocation, .. }
            | Self::ReadCapacity16 { allocation }
            | Self::ReportLuns { allocation, .. }
            | Self::ModeSense(ModeSense { allocation, .. })
            | Self::GetLbaStatus { allocation, .. }
            | Self::ReadDefectData { allocation, .. }
            | Self::PersistentReserveIn { allocation, .. }
            | Self::ReportTargetPortGroups { allocation, .. }
            | Self::ReportOperationCodes { allocation, .. }
            | Self::ReportTaskManagement { allocation, .. }
            | Self::ReceiveCopyStatus { allocation, .. }
            | Self::ReceiveCopyParameters { allocation } => allocation,
            Self::ReadCapacity10 => 8,
            _ => 0,
        }
    }
}

impl ByteCheck {
    /// Length in bytes of the data-out that the comparison needs.
    #[must_use]
    pub fn bytes(self, extent: Extent, block_bytes: u32) -> u64 {
        let blocks = match self {
            Self::Medium => 0,
            Self::Data => extent.blocks,
            Self::OneBlock => extent.blocks.min(1),
        };
        u64::from(blocks) * u64::from(block_bytes)
    }
}
