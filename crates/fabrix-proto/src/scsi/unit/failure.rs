//! Failures of disk operations, and the sense data that reports them.
//!
//! Source: SPC-4, "Sense key and additional sense code definitions"; SBC-3, "Error reporting".

use super::{Answer, Sense};
use crate::scsi::additional::AdditionalSense;
use crate::scsi::sense::SenseKey;
use crate::scsi::spec::Status;

/// Failure of a disk operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The compared data differs. The offset of the first difference, in bytes from the start of
    /// the data.
    Miscompare(u64),
    /// The disk has become smaller since the command was checked, and no longer has the blocks.
    OutOfRange,
    /// Reading the medium failed. The LBA, if known.
    Read(Option<u64>),
    /// Writing the medium failed. The LBA, if known.
    Write(Option<u64>),
    /// The storage behind a thin-provisioned disk is full.
    NoSpace,
    /// The disk refuses writes.
    WriteProtected,
    /// The disk is gone or was removed.
    Gone,
    /// The disk cannot accept the operation now. Nothing was changed.
    Busy,
    /// The access state of the target port refuses commands. The additional sense code of the
    /// state.
    Inaccessible(AdditionalSense),
    /// The operation was aborted.
    Aborted,
    /// Reading or writing a disk of a copy failed, or the disk is not accessible.
    CopyAborted,
    /// The target has failed, or its connection to the disk.
    Internal,
}

impl Failure {
    /// Answer to the command whose operation failed.
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
            Self::Inaccessible(code) => Sense::new(SenseKey::NOT_READY, code),
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
