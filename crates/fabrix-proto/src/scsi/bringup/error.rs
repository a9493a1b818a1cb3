//! Errors of a bring-up, as sentences for the user.

use core::fmt;

use crate::scsi::sense::Sense;
use crate::scsi::spec::Status;

/// Reason why the target has no usable disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BringupError {
    /// The target has no logical unit with this number.
    NoUnit(u16),
    /// The logical unit with this number is no disk. The second field is its peripheral device
    /// type.
    NotADisk(u16, u8),
    /// The target has no disk.
    NoDisk,
    /// Another initiator has reserved the logical unit with this number.
    Reserved(u16),
    /// A mandatory command failed.
    Failed {
        /// Name of the command.
        what: &'static str,
        /// SCSI status of the answer.
        status: Status,
        /// Sense data of the answer, if it has some.
        sense: Option<Sense>,
    },
    /// An answer is malformed. The text is a sentence for the user.
    Broken(&'static str),
}

impl fmt::Display for BringupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoUnit(lun) => write!(
                f,
                "the target has no LUN {lun}; leave the number away to take its first disk"
            ),
            Self::NotADisk(lun, kind) => write!(
                f,
                "LUN {lun} is no disk (peripheral device type {kind:02X}h); leave the number away to take the first"
            ),
            Self::NoDisk => f.write_str("the target shows no disk to this initiator"),
            Self::Reserved(lun) => write!(
                f,
                "LUN {lun} is reserved by another initiator: release it there"
            ),
            Self::Failed {
                what,
                status,
                sense: Some(sense),
            } => write!(
                f,
                "the target answered {what} with status {:02X}h, {}",
                status.0, sense.code
            ),
            Self::Failed { what, status, .. } => {
                write!(
                    f,
                    "the target answered {what} with status {:02X}h",
                    status.0
                )
            }
            Self::Broken(sentence) => f.write_str(sentence),
        }
    }
}

impl core::error::Error for BringupError {}
