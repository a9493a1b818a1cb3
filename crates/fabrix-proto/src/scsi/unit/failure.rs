//! What went wrong at a disk, in SCSI's words.
//!
//! Source: SPC-4, "Sense key and additional sense code definitions"; SBC-3, "Error reporting".

use super::{Answer, Sense};
use crate::scsi::additional::AdditionalSense;
use crate::scsi::sense::SenseKey;
use crate::scsi::spec::Status;

/// How an operation of a disk failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The data differ, first at this offset in bytes from the start of the data.
    Miscompare(u64),
    /// The blocks have left the disk since the command was checked.
    OutOfRange,
    /// The medium could not be read; the block, if it is known.
    Read(Option<u64>),
    /// The medium could not be written.
    Write(Option<u64>),
    /// There is no space left below a thin disk.
    NoSpace,
    /// The disk refuses writes.
    WriteProtected,
    /// The disk is gone, or was taken away.
    Gone,
    /// It cannot be taken now; nothing was done.
    Busy,
    /// It was aborted.
    Aborted,
    /// A disk of a copy failed, or does not let us.
    CopyAborted,
    /// A fault of ours, or of the way to the disk.
    Internal,
}

impl Failure {
    /// The answer to the command.
    #[must_use]
    pub const fn answer(self) -> Answer {
        Answer::check(match self {
            Self::Miscompare(offset) => Sense::miscompare(offset),
            Self::OutOfRange => Sense::illegal(AdditionalSense::LBA_OUT_OF_RANGE),
            Self::Read(lba) => medium_error(AdditionalSense::UNRECOVERED_READ_ERROR, lba),
            Self::Write(lba) => medium_error(AdditionalSense::WRITE_ERROR, lba),
            Self::NoSpace => Sense::new(
                SenseKey::DATA_PROTECT,
                AdditionalSense::SPACE_ALLOCATION_FAILED,
            ),
            Self::WriteProtected => {
                Sense::new(SenseKey::DATA_PROTECT, AdditionalSense::WRITE_PROTECTED)
            }
            Self::Gone => Sense::illegal(AdditionalSense::LOGICAL_UNIT_NOT_SUPPORTED),
            Self::Busy => return Answer::status(Status::BUSY),
            Self::Aborted => Sense::new(SenseKey::ABORTED_COMMAND, AdditionalSense::NONE),
            Self::CopyAborted => Sense::new(
                SenseKey::COPY_ABORTED,
                AdditionalSense::THIRD_PARTY_DEVICE_FAILURE,
            ),
            Self::Internal => Sense::new(
                SenseKey::HARDWARE_ERROR,
                AdditionalSense::INTERNAL_TARGET_FAILURE,
            ),
        })
    }
}

const fn medium_error(code: AdditionalSense, lba: Option<u64>) -> Sense {
    let sense = Sense::new(SenseKey::MEDIUM_ERROR, code);
    match lba {
        Some(lba) => sense.with_information(lba),
        None => sense,
    }
}
