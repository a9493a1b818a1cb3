//! Logical unit without I/O. The unit receives a command and returns an answer, a disk operation,
//! or a change of shared state. The executor therefore needs no SCSI code, and the CDB parser needs
//! no disk.
//!
//! Checks happen in this order: unit attention, CDB, access state, reservation, range, limits,
//! write protection.
//! The only state per nexus is its [`Attentions`]. The caller passes everything else in a [`View`],
//! because all nexuses share the disk, its mode parameters and its reservations.
//! Source: SAM-5, "Unit attention conditions"; SPC-4 and SBC-3, the commands.

mod answers;
mod failure;
mod medium;
mod parameters;

use alloc::vec::Vec;

pub use failure::Failure;

use super::additional::AdditionalSense;
use super::alua::AccessState;
use super::attention::{Attention, Attentions};
use super::cdb::{ByteCheck, Command, CommandEntry, Extent, Features};
use super::copy::{CopyList, CopyStatus};
use super::data_in::DataIn;
use super::pages::mode::ModeParameters;
use super::pages::{Disk, Target, capacity, inquiry};
use super::reservation::{Access, Change, Refusal, Request, Reservations, Standing};
use super::sense::{SENSE_BYTES_MAX, Sense, SenseFormat, SenseKey};
use super::spec::{Opcode, Status};

/// Answer to a command: status, sense data, and the length of its data-in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// SCSI status.
    pub status: Status,
    /// Sense data. Present only with CHECK CONDITION.
    pub sense: Option<Sense>,
    /// Length of the data-in in bytes. The data lies at the start of the page.
    pub bytes: u32,
}

impl Answer {
    /// GOOD, without data.
    pub const GOOD: Self = Self::status(Status::GOOD);
    /// RESERVATION CONFLICT.
    pub const CONFLICT: Self = Self::status(Status::RESERVATION_CONFLICT);

    /// An answer with `status`, without sense data and data.
    #[must_use]
    pub const fn status(status: Status) -> Self {
        Self {
            status,
            sense: None,
            bytes: 0,
        }
    }

    /// CHECK CONDITION with `sense`.
    #[must_use]
    pub const fn check(sense: Sense) -> Self {
        Self {
            status: Status::CHECK_CONDITION,
            sense: Some(sense),
            bytes: 0,
        }
    }

    /// GOOD with `bytes` bytes of data-in.
    #[must_use]
    pub const fn data(bytes: u32) -> Self {
        Self {
            status: Status::GOOD,
            sense: None,
            bytes,
        }
    }

    /// The answer to a reservation request, from the result of [`Reservations::apply`].
    #[must_use]
    pub fn reserved(result: Result<&Change, Refusal>) -> Self {
        let sense = match result {
            Ok(_) => return Self::GOOD,
            Err(Refusal::Conflict) => return Self::CONFLICT,
            Err(Refusal::InvalidRelease) => {
                Sense::illegal(AdditionalSense::INVALID_RELEASE_OF_RESERVATION)
            }
            Err(Refusal::InvalidKey) => Sense::field_in_parameters(8, None),
            Err(Refusal::InvalidInitiator) => Sense::field_in_parameters(24, None),
            Err(Refusal::TooManyRegistrants) => {
                Sense::illegal(AdditionalSense::INSUFFICIENT_REGISTRATION_RESOURCES)
            }
        };
        Self::check(sense)
    }
}

/// Operation for the disk. The unit has checked all extents. The transport has checked that the
/// data of a write has the length that the command names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DiskOperation {
    /// Reads blocks.
    Read {
        /// Blocks to read.
        extent: Extent,
        /// FUA: the disk first makes cached writes to these blocks durable.
        fua: bool,
    },
    /// Writes blocks.
    Write {
        /// Blocks to write.
        extent: Extent,
        /// FUA: the answer follows when the blocks are on the medium.
        fua: bool,
        /// WRITE ATOMIC: the disk writes all blocks or none, even when the power fails.
        atomic: bool,
    },
    /// Writes blocks to the medium and reads them back.
    WriteAndVerify {
        /// Blocks to write.
        extent: Extent,
        /// BYTCHK: the disk compares the blocks that it reads back with the data.
        compare: bool,
    },
    /// Reads blocks and checks them, or compares them with the received data.
    Verify {
        /// Blocks to verify.
        extent: Extent,
        /// Comparison to make.
        check: ByteCheck,
    },
    /// Writes the bitwise OR of the blocks and the data. The operation is atomic with respect to
    /// other writes.
    OrWrite {
        /// Blocks to change.
        extent: Extent,
        /// FUA: the answer follows when the blocks are on the medium.
        fua: bool,
    },
    /// Compares the blocks with the first half of the data, and writes the second half if they are
    /// equal. The operation is atomic with respect to other writes.
    CompareAndWrite {
        /// Blocks to compare and write.
        extent: Extent,
        /// FUA: the answer follows when the blocks are on the medium.
        fua: bool,
    },
    /// Writes one block of data to every block of the extent.
    WriteSame {
        /// Blocks to write.
        extent: Extent,
        /// UNMAP: the disk may deallocate the blocks instead, if the data is all zeroes and
        /// deallocated blocks read as zeroes.
        deallocate: bool,
        /// FUA: the answer follows when the blocks are on the medium.
        fua: bool,
    },
    /// Makes blocks read as zeroes.
    WriteZeroes {
        /// Blocks to zero.
        extent: Extent,
        /// UNMAP: the disk may deallocate the blocks, if deallocated blocks read as zeroes.
        deallocate: bool,
        /// FUA: the answer follows when the blocks are on the medium.
        fua: bool,
    },
    /// Deallocates blocks.
    Deallocate(Vec<Extent>),
    /// Makes all answered writes durable.
    Flush,
}

/// Next step for a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The command is answered.
    Answer(Answer),
    /// The command needs its parameter list. The caller receives [`Command::parameter_bytes`] bytes
    /// and passes them to [`View::parameters`].
    Parameters(Command),
    /// The disk carries out an operation. The answer to the command is GOOD, or [`Failure::answer`]
    /// if the operation fails.
    Disk(DiskOperation),
    /// The caller passes the request to [`Reservations::apply`]. [`Answer::reserved`] turns the
    /// result into an answer.
    Reserve(Request),
    /// The caller replaces the mode parameters and reports [`Attention::ModeParametersChanged`] to
    /// the other nexuses. The answer is GOOD.
    Mode(ModeParameters),
    /// The caller copies blocks. The answer is GOOD, or [`Failure::CopyAborted`] if the copy fails.
    Copy(CopyList),
    /// The caller asks the disk for the provisioning of its blocks from `lba` on. [`lba_status`]
    /// makes the answer.
    LbaStatus {
        /// First block. The unit has checked that it lies on the disk.
        lba: u64,
        /// ALLOCATION LENGTH.
        allocation: u32,
    },
    /// The caller looks up the progress of a copy. [`copy_status`] makes the answer.
    CopyStatus {
        /// LIST IDENTIFIER.
        list: u8,
        /// ALLOCATION LENGTH.
        allocation: u32,
    },
}

/// The answer to GET LBA STATUS. `runs` begin at `lba`; [`capacity::lba_runs`] of them are used.
pub fn lba_status(
    lba: u64,
    allocation: u32,
    runs: impl Iterator<Item = capacity::LbaRun>,
    page: &mut [u8],
) -> Answer {
    let mut out = DataIn::new(page, allocation);
    capacity::write_lba_status(lba, runs.take(capacity::lba_runs(allocation)), &mut out);
    Answer::data(out.finish())
}

/// The answer to RECEIVE COPY STATUS(LID1). `status` is `None` when the target does not know the
/// list identifier.
pub fn copy_status(status: Option<&CopyStatus>, allocation: u32, page: &mut [u8]) -> Answer {
    let Some(status) = status else {
        return Answer::check(Sense::field_in_cdb(2, None));
    };
    let mut out = DataIn::new(page, allocation);
    status.write(&mut out);
    Answer::data(out.finish())
}

/// Snapshot of a logical unit, as one nexus sees it.
#[derive(Clone, Copy, Debug)]
pub struct View<'v> {
    /// Size, limits and names of the disk.
    pub disk: &'v Disk,
    /// Current mode parameters.
    pub mode: ModeParameters,
    /// Target that exports the disk.
    pub target: &'v Target,
    /// Relative target port identifier of the nexus, from 1.
    pub port: u16,
    /// State of the logical unit at the target port of the nexus.
    pub access: AccessState,
    /// States of the logical unit at the ports of `target`, in their order.
    pub states: &'v [AccessState],
    /// Logical unit numbers that this initiator may see, in ascending order.
    pub luns: &'v [u16],
    /// Reservations of the disk, for PERSISTENT RESERVE IN.
    pub reservations: &'v Reservations,
    /// Rights of the nexus under these reservations: [`Reservations::standing`]. The caller keeps
    /// the value until the reservations change.
    pub standing: Standing,
}

impl View<'_> {
    /// Processes one command. Data-in is written to the start of `page`, and truncated to its
    /// length.
    pub fn classify(&self, attentions: &mut Attentions, cdb: &[u8], page: &mut [u8]) -> Outcome {
        self.try_classify(attentions, cdb, page)
            .unwrap_or_else(|sense| Outcome::Answer(Answer::check(sense)))
    }

    fn try_classify(
        &self,
        attentions: &mut Attentions,
        cdb: &[u8],
        page: &mut [u8],
    ) -> Result<Outcome, Sense> {
        if let Some(attention) = take_attention(attentions, cdb) {
            return Err(attention.sense());
        }
        let (command, entry) = Command::parse(cdb, self.disk.features())?;
        self.check_access_state(&command)?;
        if self.standing.conflicts(access(&command, entry)) {
            return Ok(Outcome::Answer(Answer::CONFLICT));
        }
        if let Some(extent) = command.extent() {
            return self.medium(&command, extent, entry);
        }
        self.check_protection(&command)?;
        match command {
            Command::Reserve => Ok(Outcome::Reserve(Request::LegacyReserve)),
            Command::Release => Ok(Outcome::Reserve(Request::LegacyRelease)),
            Command::StartStopUnit { flush: true, .. } => Ok(Outcome::Disk(DiskOperation::Flush)),
            Command::GetLbaStatus { lba, allocation } if lba < self.disk.blocks => {
                Ok(Outcome::LbaStatus { lba, allocation })
            }
            Command::GetLbaStatus { .. } => Err(Sense::illegal(AdditionalSense::LBA_OUT_OF_RANGE)),
            Command::ReceiveCopyStatus { list, allocation } => {
                Ok(Outcome::CopyStatus { list, allocation })
            }
            _ if command.parameter_bytes().is_some() => self.await_parameters(command),
            _ => {
                let mut out = DataIn::new(page, command.allocation());
                self.write_answer(&command, attentions, &mut out)?;
                Ok(Outcome::Answer(Answer::data(out.finish())))
            }
        }
    }

    /// Refuses commands that the access state of the target port does not allow.
    ///
    /// Source: SPC-4, "Unavailable state" and "Transitions between target port asymmetric access
    /// states".
    fn check_access_state(&self, command: &Command) -> Result<(), Sense> {
        match self.access.sense() {
            Some(sense) if !command.passes_access_states() => Err(sense),
            _ => Ok(()),
        }
    }

    /// Requests the parameter list of `command`. A list length of zero is handled at once: the list
    /// is processed as empty.
    fn await_parameters(&self, command: Command) -> Result<Outcome, Sense> {
        match command.parameter_bytes() {
            Some(0) => self.try_parameters(&command, &[]),
            Some(bytes) if bytes > PARAMETER_BYTES_MAX => Err(length_error()),
            _ => Ok(Outcome::Parameters(command)),
        }
    }

    fn check_protection(&self, command: &Command) -> Result<(), Sense> {
        if !command.writes() {
            return Ok(());
        }
        let code = match (self.disk.read_only, self.mode.write_protect) {
            (true, _) => AdditionalSense::WRITE_PROTECTED,
            (false, true) => AdditionalSense::SOFTWARE_WRITE_PROTECTED,
            (false, false) => return Ok(()),
        };
        Err(Sense::new(SenseKey::DATA_PROTECT, code))
    }

    /// Writes the sense data of `answer` in the format that the mode parameters select. Returns its
    /// length in bytes.
    #[must_use]
    pub fn sense_bytes(&self, answer: &Answer, out: &mut [u8; SENSE_BYTES_MAX]) -> usize {
        match answer.sense {
            Some(sense) => sense.write(self.mode.sense_format(), out),
            None => 0,
        }
    }
}

/// Answers a command for a logical unit number without logical unit. `luns` are the numbers that
/// exist, in ascending order.
///
/// Source: SPC-4, "Incorrect logical unit selection".
pub fn classify_absent(luns: &[u16], cdb: &[u8], page: &mut [u8]) -> Answer {
    let unsupported = Sense::illegal(AdditionalSense::LOGICAL_UNIT_NOT_SUPPORTED);
    let Ok((command, _)) = Command::parse(cdb, NO_FEATURES) else {
        return Answer::check(unsupported);
    };
    let mut out = DataIn::new(page, command.allocation());
    match command {
        Command::Inquiry { page: None, .. } => inquiry::write_absent(&mut out),
        Command::ReportLuns { .. } => capacity::write_luns(luns, &mut out),
        Command::RequestSense { descriptor, .. } => {
            answers::write_sense(&unsupported, descriptor, &mut out);
        }
        _ => return Answer::check(unsupported),
    }
    Answer::data(out.finish())
}

/// Takes the unit attention to report instead of executing the command. INQUIRY, REPORT LUNS and
/// REQUEST SENSE execute despite a pending unit attention.
///
/// Source: SPC-4, "INQUIRY command", "REPORT LUNS command", "REQUEST SENSE command".
fn take_attention(attentions: &mut Attentions, cdb: &[u8]) -> Option<Attention> {
    let opcode = Opcode(*cdb.first()?);
    let passes = matches!(
        opcode,
        Opcode::INQUIRY | Opcode::REPORT_LUNS | Opcode::REQUEST_SENSE
    );
    if passes { None } else { attentions.take() }
}

/// Access class of the command. START STOP UNIT and PREVENT ALLOW MEDIUM REMOVAL count as writes
/// when they stop the unit or prevent removal. All other commands have the class of their table
/// row.
fn access(command: &Command, entry: &CommandEntry) -> Access {
    match command {
        Command::StartStopUnit { start: false, .. } | Command::PreventAllow { prevent: true } => {
            Access::Write
        }
        _ => entry.access,
    }
}

fn length_error() -> Sense {
    Sense::illegal(AdditionalSense::PARAMETER_LIST_LENGTH_ERROR)
}

/// Longest parameter list in bytes. 64 KiB hold 256 TransportIDs with iSCSI names of full length.
pub const PARAMETER_BYTES_MAX: u32 = 1 << 16;

const NO_FEATURES: Features = Features {
    unmap: false,
    atomic: false,
    compare_and_write: false,
    copy: false,
};
