//! The pure part of a logical unit: a command comes in, and an answer, a disk operation or a change
//! of shared state comes out. Whoever executes knows no SCSI; whoever reads CDBs knows no disk.
//!
//! It checks in this order: unit attention, CDB, reservation, range, limits, protection. What it
//! keeps is one [`Attentions`] per nexus; everything else is shown to it in a [`View`], because
//! disk, mode parameters and reservations belong to all nexuses and have their own owners.
//! Source: SAM-5, "Unit attention conditions"; SPC-4 and SBC-3, the commands.

mod answers;
mod failure;
mod medium;
mod parameters;

use alloc::vec::Vec;

pub use failure::Failure;

use super::additional::AdditionalSense;
use super::attention::{Attention, Attentions};
use super::cdb::{ByteCheck, Command, CommandEntry, Extent, Features};
use super::copy::{CopyList, CopyStatus};
use super::data_in::DataIn;
use super::pages::mode::ModeParameters;
use super::pages::{Disk, Target, capacity, inquiry};
use super::reservation::{Access, Change, Refusal, Request, Reservations, Standing};
use super::sense::{SENSE_BYTES_MAX, Sense, SenseFormat, SenseKey};
use super::spec::{Opcode, Status};

/// An answer: its status, why, and how many bytes of the page are data for the initiator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// How the command ended.
    pub status: Status,
    /// Why, with CHECK CONDITION.
    pub sense: Option<Sense>,
    /// Data-in, at the start of the page.
    pub bytes: u32,
}

impl Answer {
    /// GOOD, without data.
    pub const GOOD: Self = Self::status(Status::GOOD);
    /// RESERVATION CONFLICT.
    pub const CONFLICT: Self = Self::status(Status::RESERVATION_CONFLICT);

    /// A status alone.
    #[must_use]
    pub const fn status(status: Status) -> Self {
        Self {
            status,
            sense: None,
            bytes: 0,
        }
    }

    /// CHECK CONDITION.
    #[must_use]
    pub const fn check(sense: Sense) -> Self {
        Self {
            status: Status::CHECK_CONDITION,
            sense: Some(sense),
            bytes: 0,
        }
    }

    /// GOOD with data.
    #[must_use]
    pub const fn data(bytes: u32) -> Self {
        Self {
            status: Status::GOOD,
            sense: None,
            bytes,
        }
    }

    /// The answer to a request that was put to the reservations.
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

/// What a disk is to do. Extents have been checked; the data of writes have the length that the
/// command says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DiskOperation {
    /// Read blocks; with `fua` from the medium.
    Read {
        /// Which.
        extent: Extent,
        /// What a volatile cache holds of them is made durable first.
        fua: bool,
    },
    /// Write blocks.
    Write {
        /// Which.
        extent: Extent,
        /// Answer when they are on the medium.
        fua: bool,
        /// All of them or none, whatever happens.
        atomic: bool,
    },
    /// Write blocks to the medium and read them back.
    WriteAndVerify {
        /// Which.
        extent: Extent,
        /// Compare what was read with the data.
        compare: bool,
    },
    /// Read blocks and check them, or compare them with the data that came.
    Verify {
        /// Which.
        extent: Extent,
        /// With what.
        check: ByteCheck,
    },
    /// Write the bitwise OR of the blocks and the data, as one step among all writes.
    OrWrite {
        /// Which.
        extent: Extent,
        /// Answer when they are on the medium.
        fua: bool,
    },
    /// Write the second half of the data if the blocks hold the first, as one step among all
    /// writes.
    CompareAndWrite {
        /// Which.
        extent: Extent,
        /// Answer when they are on the medium.
        fua: bool,
    },
    /// Write one block of data to all blocks. With `deallocate`, and if it is all zeroes and the
    /// disk's deallocated blocks read as zeroes, they may be deallocated instead.
    WriteSame {
        /// Which.
        extent: Extent,
        /// See above.
        deallocate: bool,
        /// Answer when they are on the medium.
        fua: bool,
    },
    /// Make blocks read as zeroes.
    WriteZeroes {
        /// Which.
        extent: Extent,
        /// They may be deallocated, where that makes them read as zeroes.
        deallocate: bool,
        /// Answer when they are on the medium.
        fua: bool,
    },
    /// The blocks are not needed any more.
    Deallocate(Vec<Extent>),
    /// Make all that was answered durable.
    Flush,
}

/// What becomes of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It is answered.
    Answer(Answer),
    /// It needs its parameter list of so many bytes first, then [`View::parameters`].
    Parameters(Command),
    /// The disk is to do something; [`Failure::answer`] says what a failure means, else the answer
    /// is GOOD.
    Disk(DiskOperation),
    /// To be put to [`Reservations::apply`]; [`Answer::reserved`] says what its result means.
    Reserve(Request),
    /// The mode parameters are to be these. Other nexuses get [`Attention::ModeParametersChanged`];
    /// then GOOD.
    Mode(ModeParameters),
    /// Blocks are to be copied; then GOOD, or [`Failure::CopyAborted`].
    Copy(CopyList),
    /// The disk is to be asked how its blocks from `lba` on are provisioned; the answer is
    /// [`lba_status`].
    LbaStatus {
        /// A block of the disk.
        lba: u64,
        /// ALLOCATION LENGTH.
        allocation: u32,
    },
    /// What became of a copy; the answer is [`copy_status`].
    CopyStatus {
        /// LIST IDENTIFIER.
        list: u8,
        /// ALLOCATION LENGTH.
        allocation: u32,
    },
}

/// The answer to GET LBA STATUS: the runs from `lba` on, of which [`capacity::lba_runs`] are taken.
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

/// The answer to RECEIVE COPY STATUS(LID1): what is known of the copy, if it is known.
pub fn copy_status(status: Option<&CopyStatus>, allocation: u32, page: &mut [u8]) -> Answer {
    let Some(status) = status else {
        return Answer::check(Sense::field_in_cdb(2, None));
    };
    let mut out = DataIn::new(page, allocation);
    status.write(&mut out);
    Answer::data(out.finish())
}

/// What a logical unit is at this moment, for one nexus.
#[derive(Clone, Copy, Debug)]
pub struct View<'v> {
    /// The disk.
    pub disk: &'v Disk,
    /// The mode parameters.
    pub mode: ModeParameters,
    /// The target.
    pub target: &'v Target,
    /// The port through which the nexus comes.
    pub port: u16,
    /// All logical units that this initiator may see, in ascending order.
    pub luns: &'v [u16],
    /// The reservations, for those who ask about them.
    pub reservations: &'v Reservations,
    /// What the nexus is towards them: [`Reservations::standing`], kept until they change.
    pub standing: Standing,
}

impl View<'_> {
    /// Takes one command. Data of an answer are written to the start of `page`, and cut to it.
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

    /// An empty list asks for nothing, except where one of a fixed length is due.
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

    /// The sense data of an answer, in the format that the mode parameters say, and how many bytes
    /// they are.
    #[must_use]
    pub fn sense_bytes(&self, answer: &Answer, out: &mut [u8; SENSE_BYTES_MAX]) -> usize {
        match answer.sense {
            Some(sense) => sense.write(self.mode.sense_format(), out),
            None => 0,
        }
    }
}

/// Takes a command for a logical unit number that nothing has.
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

/// The attention that stands before this command, if one does: three commands pass by.
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

/// The table's class, and what depends on a field.
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

/// The longest parameter list: 256 TransportIDs of the longest names.
pub const PARAMETER_BYTES_MAX: u32 = 1 << 16;

const NO_FEATURES: Features = Features {
    unmap: false,
    atomic: false,
    compare_and_write: false,
    copy: false,
};
