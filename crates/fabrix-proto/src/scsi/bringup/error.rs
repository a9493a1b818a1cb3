//! Why there is no disk, in the words that a user reads.

use core::fmt;

use crate::scsi::sense::Sense;
use crate::scsi::spec::Status;

/// Why there is no disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BringupError {
    /// The target has no logical unit of this number.
    NoUnit(u16),
    /// It has one, and it is no disk: its peripheral device type.
    NotADisk(u16, u8),
    /// The target has no disk at all.
    NoDisk,
    /// Another initiator has reserved it.
    Reserved(u16),
    /// A command that every disk has did not end well.
    Failed {
        /// Which.
        what: &'static str,
        /// How.
        status: Status,
        /// Why.
        sense: Option<Sense>,
    },
    /// An answer that cannot be.
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
