//! The result of a request, and the errors of opening a disk. A status is an answer and not a Rust
//! error: every front end maps it to its protocol in one table.

use std::error::Error;
use std::fmt;

use crate::Operation;

/// Result of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Status {
    /// Success.
    Ok,
    /// The request ends behind the end of the disk.
    OutOfRange,
    /// The disk does not support the operation.
    Unsupported,
    /// The disk is read-only.
    ReadOnly,
    /// The medium failed to read. The data must not be used.
    MediaRead,
    /// The medium failed to write. The content of the blocks is unknown.
    MediaWrite,
    /// No space is left below the disk (a sparse file on a full file system).
    NoSpace,
    /// The blocks differ from the expected data. Nothing was written.
    CompareFailed,
    /// The disk is not ready now. A retry may succeed.
    NotReady,
    /// The request was cancelled before its execution, because the disk or its connection went
    /// away.
    Aborted,
    /// The storage refuses this process, because another one serves the disk. Another way to the
    /// disk leads to that one, and the request may be repeated there.
    Refused,
    /// Durability is lost: an earlier flush failed. No later flush is trusted until the disk is
    /// reopened.
    Degraded,
    /// A fault in Fabrix itself.
    Internal,
}

impl Status {
    /// Every status, in the order of its number.
    pub const ALL: [Self; 13] = [
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
        Self::Refused,
        Self::Degraded,
        Self::Internal,
    ];

    /// The status as the result of a completion: 0 for `Ok`, otherwise a number below all error
    /// numbers of the kernel.
    #[must_use]
    pub const fn to_result(self) -> i32 {
        match self {
            Self::Ok => 0,
            other => FIRST_RESULT - other as i32,
        }
    }

    /// The status of a completion's result. Unknown numbers become `Internal`.
    #[must_use]
    pub fn from_result(result: i32) -> Self {
        Self::ALL
            .into_iter()
            .find(|status| status.to_result() == result)
            .unwrap_or(Self::Internal)
    }

    /// Whether an operator should know: the disk has failed, not the request.
    #[must_use]
    pub const fn is_the_disks(self) -> bool {
        match self {
            Self::MediaRead
            | Self::MediaWrite
            | Self::NoSpace
            | Self::NotReady
            | Self::Aborted
            | Self::Refused
            | Self::Degraded
            | Self::Internal => true,
            Self::Ok
            | Self::OutOfRange
            | Self::Unsupported
            | Self::ReadOnly
            | Self::CompareFailed => false,
        }
    }

    /// Whether the request succeeded.
    #[must_use]
    pub const fn is_ok(self) -> bool {
        matches!(self, Self::Ok)
    }

    /// The first error of two results. Used for requests in several pieces.
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
            Self::Unsupported => "the disk does not support the operation",
            Self::ReadOnly => "the disk is read-only",
            Self::MediaRead => "the medium did not give the data back",
            Self::MediaWrite => "the medium did not take the data",
            Self::NoSpace => "no space is left below the disk; free some, writes then go on",
            Self::CompareFailed => "the blocks hold something else",
            Self::NotReady => "the disk cannot be reached, or has no memory for the request",
            Self::Aborted => "the disk or its connection went away",
            Self::Refused => "the storage refuses this process, and serves another one",
            Self::Degraded => {
                "a flush has failed, so none is believed until the disk is opened again"
            }
            Self::Internal => "an internal error",
        })
    }
}

/// A request that its disk has failed, for the operator's log.
#[derive(Clone, Copy, Debug)]
pub struct Failed {
    /// The operation of the request.
    pub operation: Operation,
    /// First block.
    pub lba: u64,
    /// Number of blocks; 0 for a flush.
    pub blocks: u32,
    /// Result of the request.
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

/// Category of an open error. It decides the exit code of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenErrorKind {
    /// The user's text makes no sense.
    Usage,
    /// The file, device or remote disk does not exist.
    NotFound,
    /// The operating system denies access.
    Denied,
    /// Another user has it open.
    InUse,
    /// It exists, but lacks a needed feature.
    Unsupported,
    /// Out of memory or file descriptors.
    NoMemory,
    /// The remote side cannot be reached or does not answer.
    Unreachable,
    /// The remote side rejects our credentials.
    Authentication,
    /// Any other error of the operating system.
    Io,
}

/// Error of opening a disk: a sentence that names the disk and the remedy.
#[derive(Debug)]
pub struct OpenError {
    /// Category of the error.
    pub kind: OpenErrorKind,
    /// The whole sentence for the user.
    pub sentence: String,
    /// Underlying error, if there is one.
    pub source: Option<Box<dyn Error + Send + Sync>>,
}

impl OpenError {
    /// An error without an underlying cause.
    #[must_use]
    pub fn new(kind: OpenErrorKind, sentence: impl Into<String>) -> Self {
        Self {
            kind,
            sentence: sentence.into(),
            source: None,
        }
    }

    /// The same error with its underlying cause.
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

/// Result number of the first status. The kernel's errors are -1 to -4095, so the two ranges never
/// overlap.
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
