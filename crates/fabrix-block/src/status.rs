//! How a request ends, and how opening a disk fails. A status is an answer, not an error: front
//! ends turn it into their protocol's words in one table each.

use std::error::Error;
use std::fmt;

use crate::Operation;

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Status {
    /// Done as asked.
    Ok,
    /// The request ends after the disk.
    OutOfRange,
    /// This disk does not do this operation.
    Unsupported,
    /// The disk is not to be written.
    ReadOnly,
    /// The medium did not give the data back. What was read must not be used.
    MediaRead,
    /// The medium did not take the data. What the blocks hold now is unknown.
    MediaWrite,
    /// The disk's space is used up (a sparse file on a full file system).
    NoSpace,
    /// The blocks did not hold what they were compared with; nothing was written.
    CompareFailed,
    /// Not now: trying again may help.
    NotReady,
    /// Given up before it was carried out, because the disk or its connection went away.
    Aborted,
    /// Durability is lost: a flush failed earlier, and no later one can be believed until the disk
    /// is reopened.
    Degraded,
    /// A fault of our own.
    Internal,
}

impl Status {
    /// Every status, in the order of its number.
    pub const ALL: [Self; 12] = [
        Self::Ok,
        Self::OutOfRange,
        Self::Unsupported,
        Self::ReadOnly,
        Self::MediaRead,
        Self::MediaWrite,
        Self::NoSpace,
        Self::CompareFailed,
        Self::NotReady,
        Self::Aborted,
        Self::Degraded,
        Self::Internal,
    ];

    /// The status as the result of a completion: zero for `Ok`, else a number below all of the
    /// kernel's errors.
    #[must_use]
    pub const fn to_result(self) -> i32 {
        match self {
            Self::Ok => 0,
            other => FIRST_RESULT - other as i32,
        }
    }

    /// The status that a completion's result stands for. Numbers that no status has are a fault of
    /// our own.
    #[must_use]
    pub fn from_result(result: i32) -> Self {
        Self::ALL
            .into_iter()
            .find(|status| status.to_result() == result)
            .unwrap_or(Self::Internal)
    }

    /// Whether an operator should know of it: the disk has failed, and not the request.
    #[must_use]
    pub const fn is_the_disks(self) -> bool {
        match self {
            Self::MediaRead
            | Self::MediaWrite
            | Self::NoSpace
            | Self::NotReady
            | Self::Aborted
            | Self::Degraded
            | Self::Internal => true,
            Self::Ok
            | Self::OutOfRange
            | Self::Unsupported
            | Self::ReadOnly
            | Self::CompareFailed => false,
        }
    }

    /// Whether the request was carried out.
    #[must_use]
    pub const fn is_ok(self) -> bool {
        matches!(self, Self::Ok)
    }

    /// The first error of two, for requests in several pieces.
    #[must_use]
    pub const fn and(self, later: Self) -> Self {
        if self.is_ok() { later } else { self }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ok => "done",
            Self::OutOfRange => "the request ends after the disk",
            Self::Unsupported => "the disk does not do this",
            Self::ReadOnly => "the disk is read-only",
            Self::MediaRead => "the medium did not give the data back",
            Self::MediaWrite => "the medium did not take the data",
            Self::NoSpace => "no space is left below the disk; free some, writes then go on",
            Self::CompareFailed => "the blocks hold something else",
            Self::NotReady => "the disk cannot be reached, or has no memory for the request",
            Self::Aborted => "the disk or its connection went away",
            Self::Degraded => {
                "a flush has failed, so none is believed until the disk is opened again"
            }
            Self::Internal => "an internal error",
        })
    }
}

/// A request that its disk has failed, for an operator.
#[derive(Clone, Copy, Debug)]
pub struct Failed {
    /// What was asked for.
    pub operation: Operation,
    /// The first block.
    pub lba: u64,
    /// How many blocks; none for a flush.
    pub blocks: u32,
    /// How it ended.
    pub status: Status,
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = self.operation.word();
        match self.blocks {
            0 => write!(f, "{word} failed: {}", self.status),
            blocks => write!(
                f,
                "{word} of {blocks} blocks at block {} failed: {}",
                self.lba, self.status
            ),
        }
    }
}

/// What kind of trouble kept a disk from opening: what the program's exit code depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenErrorKind {
    /// What the user wrote cannot be meant.
    Usage,
    /// There is no such file, device or remote disk.
    NotFound,
    /// The operating system does not let us.
    Denied,
    /// Somebody else has it open.
    InUse,
    /// It exists, and it cannot do what is needed.
    Unsupported,
    /// Too little memory, too few file descriptors.
    NoMemory,
    /// The remote side cannot be reached, or does not answer.
    Unreachable,
    /// The remote side does not accept who we are.
    Authentication,
    /// Anything else that the operating system says.
    Io,
}

/// Why a disk could not be opened: a sentence that names the disk and what to do.
#[derive(Debug)]
pub struct OpenError {
    /// What kind of trouble it is.
    pub kind: OpenErrorKind,
    /// The whole sentence, for a person.
    pub sentence: String,
    /// What it was caused by, if something below said so.
    pub source: Option<Box<dyn Error + Send + Sync>>,
}

impl OpenError {
    /// An error of our own making.
    #[must_use]
    pub fn new(kind: OpenErrorKind, sentence: impl Into<String>) -> Self {
        Self {
            kind,
            sentence: sentence.into(),
            source: None,
        }
    }

    /// The same error with what it was caused by.
    #[must_use]
    pub fn caused_by(mut self, source: impl Error + Send + Sync + 'static) -> Self {
        self.source = Some(Box::new(source));
        self
    }
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.sentence)
    }
}

impl Error for OpenError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source
            .as_deref()
            .map(|source| source as &(dyn Error + 'static))
    }
}

/// The kernel's errors are -1 to -4095; ours begin below, so that the two are never mistaken for
/// each other.
const FIRST_RESULT: i32 = -5000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_status_survives_the_way_through_a_completion() {
        for status in Status::ALL {
            assert_eq!(Status::from_result(status.to_result()), status);
        }
    }

    #[test]
    fn an_error_of_the_kernel_is_not_taken_for_a_status() {
        for errno in 1..4096 {
            assert_eq!(Status::from_result(-errno), Status::Internal);
        }
        assert_eq!(Status::from_result(4096), Status::Internal);
    }

    #[test]
    fn a_failed_request_is_a_sentence_for_the_operator() {
        let failed = |operation, blocks, status| {
            let lba = 1024;
            let failed = Failed {
                operation,
                lba,
                blocks,
                status,
            };
            failed.to_string()
        };
        let sentence = failed(Operation::Read, 8, Status::MediaRead);
        let expected =
            "read of 8 blocks at block 1024 failed: the medium did not give the data back";
        assert_eq!(sentence, expected);
        let sentence = failed(Operation::Flush, 0, Status::Degraded);
        assert!(sentence.starts_with("flush failed: "), "{sentence}");
    }

    #[test]
    fn the_first_error_of_two_is_kept() {
        assert_eq!(Status::Ok.and(Status::NoSpace), Status::NoSpace);
        assert_eq!(Status::MediaRead.and(Status::Ok), Status::MediaRead);
        assert_eq!(Status::MediaRead.and(Status::NoSpace), Status::MediaRead);
    }
}
