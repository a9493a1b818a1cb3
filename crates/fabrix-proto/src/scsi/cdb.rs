//! Command descriptor blocks: from bytes to a typed command, with every field checked that can be
//! checked without the disk. Zero transfer lengths, the 256 blocks of READ(6) and the like end
//! here.
//!
//! It sees neither data nor the disk's size; ranges are checked in [`unit`](super::unit). A bit
//! that means nothing is refused with a pointer to it, which [`table`] decides; fields whose values
//! are restricted are refused in `parse`.
//! Source: SPC-4 and SBC-3, the chapters of commands.

pub mod build;
mod parse;
pub mod table;

pub use table::{CommandEntry, Features};

use super::sense::Sense;
use crate::scsi::spec::CDB_BYTES_MAX;

/// Blocks that a command is about; `blocks` may be zero, and the end may lie beyond the disk and
/// beyond 64 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// LOGICAL BLOCK ADDRESS.
    pub lba: u64,
    /// TRANSFER LENGTH, NUMBER OF LOGICAL BLOCKS or the like: a plain count.
    pub blocks: u32,
}

/// BYTCHK: what VERIFY compares with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ByteCheck {
    /// 00b: nothing, the medium is read and checked.
    Medium,
    /// 01b: data for every block.
    Data,
    /// 11b: one block of data, for all.
    OneBlock,
}

/// SELECT REPORT of REPORT LUNS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SelectReport {
    /// 00h, 02h and 11h: all that there is here. ESXi asks with 11h.
    Units,
    /// 01h: well known logical units, of which there are none.
    WellKnown,
}

/// PC: which values MODE SENSE wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageControl {
    /// 00b.
    Current,
    /// 01b: a mask of what MODE SELECT may change.
    Changeable,
    /// 10b.
    Default,
    /// 11b: there are none.
    Saved,
}

/// MODE SENSE(6) or (10).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModeSense {
    /// The header is that of the 10-byte command.
    pub long: bool,
    /// DBD: no block descriptor.
    pub no_block_descriptor: bool,
    /// LLBAA: the block descriptor may be the long one.
    pub long_lba: bool,
    /// Which values.
    pub control: PageControl,
    /// PAGE CODE.
    pub page: u8,
    /// SUBPAGE CODE.
    pub subpage: u8,
    /// ALLOCATION LENGTH.
    pub allocation: u32,
}

/// PERSISTENT RESERVE OUT before its parameter list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReserveOut {
    /// SERVICE ACTION, 0 to 7.
    pub action: u8,
    /// SCOPE; only the logical unit (0) exists.
    pub scope: u8,
    /// TYPE, not checked: some actions ignore it.
    pub kind: u8,
    /// PARAMETER LIST LENGTH.
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
    /// 011b: one command, the service action looked at if it has some.
    Either,
}

/// A command, its fields in plain counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(
    missing_docs,
    reason = "the variants and their fields are the standard's"
)]
pub enum Command {
    TestUnitReady,
    /// `descriptor`: DESC, the format wanted.
    RequestSense {
        descriptor: bool,
        allocation: u32,
    },
    /// `page`: PAGE CODE where EVPD is set.
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
    /// `long`: the 10-byte command; `bytes`: PARAMETER LIST LENGTH.
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
    /// `compare`: BYTCHK 01b, the data are compared with what was written.
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
    /// `no_data`: NDOB, zeroes without a data-out buffer.
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
    /// Always the whole disk is made durable, and before the answer: the extent is only checked,
    /// IMMED not needed.
    SynchronizeCache {
        extent: Extent,
    },
    GetLbaStatus {
        lba: u64,
        allocation: u32,
    },
    /// `long`: the 12-byte command; `lists`: REQ_PLIST, REQ_GLIST and the format, as they stand in
    /// the CDB.
    ReadDefectData {
        long: bool,
        lists: u8,
        allocation: u32,
    },
    /// `flush`: it is to stop, and NO_FLUSH is not set.
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
    /// `timeouts`: RCTD.
    ReportOperationCodes {
        timeouts: bool,
        reporting: Reporting,
        opcode: u8,
        service_action: u16,
        allocation: u32,
    },
    /// `extended`: REPD.
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

/// Where the data of a command go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// There are none.
    None,
    /// From the target to the initiator.
    In,
    /// From the initiator to the target.
    Out,
}

/// What data a command moves, for a transport that has to check what the initiator expects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transfer {
    /// Which way.
    pub direction: Direction,
    /// How many bytes; for an answer with an allocation length, at most.
    pub bytes: u64,
    /// The command has no meaning with another number of bytes, so it is refused instead of leaving
    /// a residual.
    pub exact: bool,
}

impl Transfer {
    /// Whether the command can be done when the initiator expects to move `expected` bytes. Where
    /// it can, and the numbers differ, the transport moves the smaller and reports the rest as
    /// residual.
    #[must_use]
    pub const fn fits(&self, expected: u64) -> bool {
        !self.exact || expected == self.bytes
    }
}

impl Command {
    /// Reads a CDB; bytes that the command does not have are not looked at.
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

    /// The blocks the command names itself.
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

    /// Whether the command changes blocks, and so is refused where the medium is write protected.
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

    /// The data that the command moves on a disk with blocks of `block_bytes`.
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

    /// Bytes of the parameter list, for commands that have one.
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

    /// ALLOCATION LENGTH, zero for commands that have none.
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
    /// Bytes of data that come with it.
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
