//! I/O commands: from a submission entry to a typed command and back. Every zero-based field ends
//! here.
//!
//! Parsing checks all that can be checked without the data: reserved bits, the namespace, the
//! range, the limits. What passes is safe to hand to a disk. It does not see data, except the range
//! list of Dataset Management (`command/dataset.rs`), and does not know what becomes of a command.
//! The way back is in `command/build.rs`.
//! Source: NVM Command Set Specification 1.x, chapter "Commands".

mod build;
mod dataset;

pub use self::dataset::{DatasetRange, ranges};
use super::reservation::ReservationCommand;
use super::spec::{Direction, Opcode, Status, SubmissionEntry};
use super::subsystem::{Authorized, Namespace};
use crate::scsi::reservation::Access;

/// Most ranges of one Dataset Management command.
pub const RANGES_MAX: usize = 256;

/// Bytes of the list that holds them: what Linux transfers however few the ranges are.
pub const RANGE_LIST_BYTES: u32 = 4096;

/// Most bytes that a limit may name (MDTS, WZSL): 65536 blocks of 512 bytes.
///
/// A controller names one limit for all its namespaces, in bytes. A host divides it by the block
/// size, and NLB, which has 16 bits, has to hold the quotient. Linux cuts a larger one short
/// without a word.
pub const COMMAND_BYTES_MAX: u32 = (CDW12_BLOCKS + 1) * 512;

/// What the I/O commands of a controller may ask for; the same values stand in its Identify data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IoLimits {
    /// Most data of one command (MDTS), at most [`COMMAND_BYTES_MAX`].
    pub max_transfer_bytes: u32,
    /// Most blocks' bytes of one Write Zeroes (WZSL), at most [`COMMAND_BYTES_MAX`].
    pub max_write_zeroes_bytes: u32,
    /// Compare is supported, alone and fused with Write.
    pub compare: bool,
    /// Verify is supported.
    pub verify: bool,
}

/// Whether a command is half of a fused pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fuse {
    /// It stands alone.
    Normal,
    /// The Compare of a Compare and Write.
    First,
    /// The Write of a Compare and Write.
    Second,
}

/// An I/O command in plain counts: `lba` and `blocks` count blocks, `blocks` is 1 to 65536.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IoCommand {
    /// Make all that was acknowledged durable.
    Flush,
    /// Read blocks; with `fua` from the medium, what a volatile cache holds of them made durable
    /// first.
    Read {
        /// First block.
        lba: u64,
        /// How many.
        blocks: u32,
        /// Force unit access.
        fua: bool,
    },
    /// Write blocks; with `fua` durable before the answer.
    Write {
        /// First block.
        lba: u64,
        /// How many.
        blocks: u32,
        /// Force unit access.
        fua: bool,
    },
    /// Compare blocks with the data sent.
    Compare {
        /// First block.
        lba: u64,
        /// How many.
        blocks: u32,
    },
    /// Write zeroes, without data.
    WriteZeroes {
        /// First block.
        lba: u64,
        /// How many.
        blocks: u32,
        /// The host would like the blocks deallocated.
        deallocate: bool,
        /// Force unit access.
        fua: bool,
    },
    /// Hints about ranges; the ranges come as data, for [`ranges`].
    DatasetManagement {
        /// How many ranges, 1 to 256.
        ranges: u16,
        /// The ranges are to be deallocated; without it the command asks for nothing.
        deallocate: bool,
    },
    /// Read and check blocks, without data.
    Verify {
        /// First block.
        lba: u64,
        /// How many.
        blocks: u32,
    },
    /// Registers, acquires, releases or reports reservations.
    Reservation(ReservationCommand),
}

/// An I/O command that passed every check, with the namespace it is for.
#[derive(Clone, Copy, Debug)]
pub struct IoRequest<'v> {
    /// The namespace.
    pub namespace: &'v Namespace,
    /// Half of a pair, or not.
    pub fuse: Fuse,
    /// What is asked.
    pub command: IoCommand,
}

impl<'v> IoRequest<'v> {
    /// Reads an I/O command; the namespace is looked up in `view`, so nothing else can be reached.
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

    /// Bytes of data the command moves at least, by the namespace's block size.
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

/// Refuses reserved flags, data described by anything but one SGL, and metadata. A command without
/// data has nothing to describe, so its PSDT says nothing.
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

    /// The blocks the command is about, where it names them itself.
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

    /// What the command does, as far as reservations of others care.
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
/// LR: the host wants little effort spent on errors; a wish that may be ignored.
const CDW12_LIMITED_RETRY: u32 = 1 << 31;
/// AD of Dataset Management.
const DSM_DEALLOCATE: u32 = 1 << 2;
/// IDR, IDW and AD.
const DSM_ATTRIBUTES: u32 = 0b111;
/// Bytes of a [`DatasetRange`].
const RANGE_BYTES: u32 = 16;
