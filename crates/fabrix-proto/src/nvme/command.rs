//! I/O commands: converts submission entries to typed commands and back. Zero-based fields become
//! plain counts.
//!
//! The parser checks everything that needs no data: reserved bits, the namespace, the range, the
//! limits. A parsed command is safe to submit to a disk. `command/dataset.rs` parses the range list
//! of Dataset Management, which is data. `command/build.rs` builds commands.
//! Source: NVM Command Set Specification 1.x, chapter "Commands".

mod build;
mod dataset;

pub use self::dataset::{DatasetRange, ranges};
use super::reservation::ReservationCommand;
use super::spec::{Direction, Opcode, Status, SubmissionEntry};
use super::subsystem::{Authorized, Namespace};
use crate::scsi::reservation::Access;

/// Maximum number of ranges of one Dataset Management command.
pub const RANGES_MAX: usize = 256;

/// Length of the range list in bytes. Linux always sends 4096 bytes, even for few ranges.
pub const RANGE_LIST_BYTES: u32 = 4096;

/// Maximum value of a limit in bytes (MDTS, WZSL): 65536 blocks of 512 bytes.
///
/// A controller has one limit in bytes for all its namespaces. A host divides the limit by the
/// block size, and the 16-bit NLB field has to hold the quotient. Linux silently truncates a larger
/// quotient.
pub const COMMAND_BYTES_MAX: u32 = (CDW12_BLOCKS + 1) * 512;

/// Limits of I/O commands of a controller. Identify Controller reports the same values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IoLimits {
    /// Maximum data length of one command in bytes (MDTS), at most [`COMMAND_BYTES_MAX`].
    pub max_transfer_bytes: u32,
    /// Maximum length of one Write Zeroes in bytes (WZSL), at most [`COMMAND_BYTES_MAX`].
    pub max_write_zeroes_bytes: u32,
    /// Compare is supported, alone and fused with Write.
    pub compare: bool,
    /// Verify is supported.
    pub verify: bool,
}

/// Position of a command in a fused pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fuse {
    /// The command is not fused.
    Normal,
    /// First command: the Compare of a Compare and Write.
    First,
    /// Second command: the Write of a Compare and Write.
    Second,
}

/// A parsed I/O command. `lba` is the first block. `blocks` is a plain count, 1 to 65536.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IoCommand {
    /// Makes all acknowledged writes durable.
    Flush,
    /// Reads blocks.
    Read {
        /// First block.
        lba: u64,
        /// Number of blocks.
        blocks: u32,
        /// Force unit access: the disk first makes cached writes to these blocks durable.
        fua: bool,
    },
    /// Writes blocks.
    Write {
        /// First block.
        lba: u64,
        /// Number of blocks.
        blocks: u32,
        /// Force unit access: the data is durable before the answer.
        fua: bool,
    },
    /// Compares blocks with the received data.
    Compare {
        /// First block.
        lba: u64,
        /// Number of blocks.
        blocks: u32,
    },
    /// Writes zeroes. The command has no data.
    WriteZeroes {
        /// First block.
        lba: u64,
        /// Number of blocks.
        blocks: u32,
        /// DEAC: the controller may deallocate the blocks.
        deallocate: bool,
        /// Force unit access: the zeroes are durable before the answer.
        fua: bool,
    },
    /// Gives hints about ranges of blocks. The ranges are in the data, see [`ranges`].
    DatasetManagement {
        /// Number of ranges, 1 to 256.
        ranges: u16,
        /// AD: the controller may deallocate the ranges. Without the attribute the command does
        /// nothing.
        deallocate: bool,
    },
    /// Reads and checks blocks. The command has no data.
    Verify {
        /// First block.
        lba: u64,
        /// Number of blocks.
        blocks: u32,
    },
    /// Registers, acquires, releases or reports reservations.
    Reservation(ReservationCommand),
}

/// An I/O command that has passed all checks, with its namespace.
#[derive(Clone, Copy, Debug)]
pub struct IoRequest<'v> {
    /// Namespace of the command.
    pub namespace: &'v Namespace,
    /// Position in a fused pair.
    pub fuse: Fuse,
    /// Parsed command.
    pub command: IoCommand,
}

impl<'v> IoRequest<'v> {
    /// Parses an I/O command. Only namespaces of `view` can be reached.
    ///
    /// # Errors
    /// The status to answer with: Invalid Command Opcode, Invalid Namespace or Format, Invalid
    /// Field, LBA Out of Range, Namespace is Write Protected.
    #[inline(always)]
    pub fn parse(
        entry: &SubmissionEntry,
        view: &'v Authorized,
        limits: &IoLimits,
    ) -> Result<Self, Status> {
        if !is_supported(entry.io_opcode(), limits) {
            return Err(Status::INVALID_OPCODE);
        }
        check_flags(entry)?;
        let fuse = fuse(entry)?;
        let namespace = view
            .namespace(entry.nsid.get())
            .ok_or(Status::INVALID_NAMESPACE)?;
        let command = IoCommand::parse(entry)?;
        command.check(namespace, limits)?;
        Ok(Self {
            namespace,
            fuse,
            command,
        })
    }

    /// Minimum length in bytes of the data that the command moves.
    #[must_use]
    pub fn data_bytes(&self) -> u32 {
        self.command.data_bytes(self.namespace)
    }

    /// Checks the length of the host's SGL against the command.
    ///
    /// Reads, writes and compares must fit exactly. A range list may be longer than its ranges:
    /// Linux always sends 4096 bytes. A command without data must come with none.
    ///
    /// # Errors
    /// Data SGL Length Invalid.
    pub fn check_sgl(&self, sgl_bytes: u32) -> Result<(), Status> {
        let least = self.data_bytes();
        let most = match self.command {
            IoCommand::DatasetManagement { .. } => RANGE_LIST_BYTES,
            IoCommand::Reservation(command) => command.data_bytes_most(),
            _ => least,
        };
        if (least..=most).contains(&sgl_bytes) {
            return Ok(());
        }
        Err(Status::DATA_SGL_LENGTH_INVALID)
    }
}

fn is_supported(opcode: Opcode, limits: &IoLimits) -> bool {
    match opcode {
        Opcode::FLUSH
        | Opcode::READ
        | Opcode::WRITE
        | Opcode::WRITE_ZEROES
        | Opcode::DATASET_MANAGEMENT
        | Opcode::RESERVATION_REGISTER
        | Opcode::RESERVATION_REPORT
        | Opcode::RESERVATION_ACQUIRE
        | Opcode::RESERVATION_RELEASE => true,
        Opcode::COMPARE => limits.compare,
        Opcode::VERIFY => limits.verify,
        _ => false,
    }
}

/// Refuses reserved flags, metadata, and data that is not described by one SGL. PSDT is ignored for
/// commands without data.
fn check_flags(entry: &SubmissionEntry) -> Result<(), Status> {
    let moves_data = entry.direction() != Direction::None;
    let reserved = entry.flags & FLAGS_RESERVED != 0;
    if reserved || moves_data && (entry.psdt() != PSDT_SGL_BITS || entry.metadata.get() != 0) {
        return Err(Status::INVALID_FIELD);
    }
    Ok(())
}

#[inline(always)]
fn fuse(entry: &SubmissionEntry) -> Result<Fuse, Status> {
    if entry.fuse_bits() == 0 {
        return Ok(Fuse::Normal);
    }
    match (entry.fuse_bits(), entry.io_opcode()) {
        (1, Opcode::COMPARE) => Ok(Fuse::First),
        (2, Opcode::WRITE) => Ok(Fuse::Second),
        _ => Err(Status::INVALID_FIELD),
    }
}

impl IoCommand {
    #[inline(always)]
    fn parse(entry: &SubmissionEntry) -> Result<Self, Status> {
        let lba = u64::from(entry.cdw11.get()) << 32 | u64::from(entry.cdw10.get());
        let cdw12 = entry.cdw12.get();
        let blocks = (cdw12 & CDW12_BLOCKS) + 1;
        let fua = cdw12 & CDW12_FUA != 0;
        let allowed = |bits: u32| match cdw12 & !(CDW12_BLOCKS | CDW12_LIMITED_RETRY | bits) {
            0 => Ok(()),
            _ => Err(Status::INVALID_FIELD),
        };
        Ok(match entry.io_opcode() {
            Opcode::FLUSH => Self::Flush,
            Opcode::READ => {
                allowed(CDW12_FUA)?;
                Self::Read { lba, blocks, fua }
            }
            Opcode::WRITE => {
                allowed(CDW12_FUA)?;
                Self::Write { lba, blocks, fua }
            }
            Opcode::COMPARE => {
                allowed(CDW12_FUA)?;
                Self::Compare { lba, blocks }
            }
            Opcode::VERIFY => {
                allowed(CDW12_FUA)?;
                Self::Verify { lba, blocks }
            }
            Opcode::WRITE_ZEROES => {
                allowed(CDW12_FUA | CDW12_DEALLOCATE)?;
                Self::WriteZeroes {
                    lba,
                    blocks,
                    deallocate: cdw12 & CDW12_DEALLOCATE != 0,
                    fua,
                }
            }
            Opcode::DATASET_MANAGEMENT => Self::dataset_management(entry)?,
            Opcode::RESERVATION_REGISTER
            | Opcode::RESERVATION_REPORT
            | Opcode::RESERVATION_ACQUIRE
            | Opcode::RESERVATION_RELEASE => Self::Reservation(ReservationCommand::parse(entry)?),
            _ => return Err(Status::INVALID_OPCODE),
        })
    }

    fn dataset_management(entry: &SubmissionEntry) -> Result<Self, Status> {
        let [ranges, reserved @ ..] = entry.cdw10.get().to_le_bytes();
        let attributes = entry.cdw11.get();
        if reserved != [0; 3] || attributes & !DSM_ATTRIBUTES != 0 {
            return Err(Status::INVALID_FIELD);
        }
        let deallocate = attributes & DSM_DEALLOCATE != 0;
        Ok(Self::DatasetManagement {
            ranges: u16::from(ranges) + 1,
            deallocate,
        })
    }

    /// First block and number of blocks. `None` for commands without such fields.
    #[must_use]
    pub const fn extent(&self) -> Option<(u64, u32)> {
        match *self {
            Self::Read { lba, blocks, .. }
            | Self::Write { lba, blocks, .. }
            | Self::Compare { lba, blocks }
            | Self::WriteZeroes { lba, blocks, .. }
            | Self::Verify { lba, blocks } => Some((lba, blocks)),
            Self::Flush | Self::DatasetManagement { .. } | Self::Reservation(_) => None,
        }
    }

    /// Access class of the command: decides whether another host's reservation forbids the command.
    ///
    /// Source: NVM Express Base Specification 2.x, "Command Behavior in the Presence of a
    /// Reservation".
    #[must_use]
    pub const fn access(&self) -> Access {
        match self {
            Self::Read { .. } | Self::Compare { .. } | Self::Verify { .. } => Access::Read,
            Self::Flush
            | Self::Write { .. }
            | Self::WriteZeroes { .. }
            | Self::DatasetManagement { .. } => Access::Write,
            Self::Reservation(_) => Access::Always,
        }
    }

    /// Whether the command changes blocks.
    #[must_use]
    pub const fn is_write(&self) -> bool {
        matches!(
            self,
            Self::Write { .. }
                | Self::WriteZeroes { .. }
                | Self::DatasetManagement {
                    deallocate: true,
                    ..
                }
        )
    }

    fn check(&self, namespace: &Namespace, limits: &IoLimits) -> Result<(), Status> {
        if let Self::Reservation(command) = self {
            return command.check(namespace, limits.max_transfer_bytes);
        }
        if let Some((lba, blocks)) = self.extent() {
            if !namespace.contains(lba, u64::from(blocks)) {
                return Err(Status::LBA_OUT_OF_RANGE);
            }
            let most = match self {
                Self::WriteZeroes { .. } => limits.max_write_zeroes_bytes,
                Self::Verify { .. } => u32::MAX,
                _ => limits.max_transfer_bytes,
            };
            if u64::from(blocks) * u64::from(namespace.block_bytes) > u64::from(most) {
                return Err(Status::INVALID_FIELD);
            }
        }
        if self.is_write() && namespace.read_only {
            return Err(Status::NAMESPACE_WRITE_PROTECTED);
        }
        Ok(())
    }

    fn data_bytes(&self, namespace: &Namespace) -> u32 {
        match *self {
            Self::Read { blocks, .. }
            | Self::Write { blocks, .. }
            | Self::Compare { blocks, .. } => blocks.saturating_mul(namespace.block_bytes),
            Self::DatasetManagement { ranges, .. } => u32::from(ranges) * RANGE_BYTES,
            Self::Flush | Self::WriteZeroes { .. } | Self::Verify { .. } => 0,
            Self::Reservation(command) => command.data_bytes(),
        }
    }
}

/// PSDT 01b: SGLs, contiguous metadata.
const PSDT_SGL_BITS: u8 = 0b01;
/// Bits 5:2 of the flags.
const FLAGS_RESERVED: u8 = 0b0011_1100;
/// NLB, zero-based.
const CDW12_BLOCKS: u32 = 0xFFFF;
/// DEAC of Write Zeroes.
const CDW12_DEALLOCATE: u32 = 1 << 25;
/// FUA.
const CDW12_FUA: u32 = 1 << 30;
/// LR: the host wishes little effort for error recovery. The target ignores the wish.
const CDW12_LIMITED_RETRY: u32 = 1 << 31;
/// AD of Dataset Management.
const DSM_DEALLOCATE: u32 = 1 << 2;
/// IDR, IDW and AD.
const DSM_ATTRIBUTES: u32 = 0b111;
/// Bytes of a [`DatasetRange`].
const RANGE_BYTES: u32 = 16;
