//! Interprets the kernel's result of one operation. It is a pure table, readable and testable
//! alone.

use crate::Status;
use fabrix_rt::errno;

/// Kind of the kernel operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Read,
    Write,
    Sync,
    Allocate,
}

/// Consequence of a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// This many more bytes are done. Some may be left.
    Progress(u64),
    /// Nothing was done. Repeat the operation.
    Retry,
    /// The file system does not support the operation.
    Unsupported,
    /// The request has failed.
    Failed(Status),
}

/// Interprets `result`, the kernel's answer to an operation of `wanted` bytes. Progress counts
/// whole blocks of `block_bytes`: the rest of a partial block is transferred again, so that direct
/// I/O stays aligned.
pub(super) fn judge(kind: Kind, result: i32, wanted: u64, block_bytes: u32) -> Outcome {
    let Ok(bytes) = u64::try_from(result) else {
        return failure(kind, result.unsigned_abs().cast_signed());
    };
    match kind {
        Kind::Sync | Kind::Allocate => Outcome::Progress(wanted),
        Kind::Read | Kind::Write => {
            let whole = bytes - bytes % u64::from(block_bytes);
            match whole.min(wanted) {
                0 => Outcome::Failed(medium(kind)),
                whole => Outcome::Progress(whole),
            }
        }
    }
}

fn failure(kind: Kind, errno: i32) -> Outcome {
    match errno {
        errno::EAGAIN => Outcome::Retry,
        // An interrupted flush may have consumed the kernel's report about a lost write. It
        // therefore counts as failed.
        errno::EINTR if kind != Kind::Sync => Outcome::Retry,
        errno::EOPNOTSUPP | errno::ENOSYS | errno::ENODEV if kind == Kind::Allocate => {
            Outcome::Unsupported
        }
        errno::ENOSPC | errno::EDQUOT | errno::EFBIG if kind != Kind::Read => {
            Outcome::Failed(Status::NoSpace)
        }
        errno::ENODEV | errno::ENXIO | errno::ESHUTDOWN => Outcome::Failed(Status::NotReady),
        errno::EROFS | errno::EPERM if kind != Kind::Read => Outcome::Failed(Status::ReadOnly),
        errno::ECANCELED => Outcome::Failed(Status::Aborted),
        errno::EINVAL | errno::EBADF | errno::EFAULT => Outcome::Failed(Status::Internal),
        _ => Outcome::Failed(medium(kind)),
    }
}

fn medium(kind: Kind) -> Status {
    match kind {
        Kind::Read => Status::MediaRead,
        Kind::Write | Kind::Allocate | Kind::Sync => Status::MediaWrite,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_answer_counts_in_whole_blocks() {
        assert_eq!(judge(Kind::Read, 4096, 8192, 512), Outcome::Progress(4096));
        assert_eq!(judge(Kind::Write, 1000, 8192, 512), Outcome::Progress(512));
    }

    #[test]
    fn no_progress_is_an_error_and_not_zeroes() {
        assert_eq!(
            judge(Kind::Read, 0, 8192, 512),
            Outcome::Failed(Status::MediaRead)
        );
        assert_eq!(
            judge(Kind::Read, 511, 8192, 512),
            Outcome::Failed(Status::MediaRead)
        );
        assert_eq!(
            judge(Kind::Write, 0, 8192, 512),
            Outcome::Failed(Status::MediaWrite)
        );
    }

    #[test]
    fn an_answer_longer_than_the_question_counts_as_the_question() {
        assert_eq!(
            judge(Kind::Read, i32::MAX, 8192, 512),
            Outcome::Progress(8192)
        );
    }

    #[test]
    fn errors_of_the_kernel_become_the_status_a_host_can_act_on() {
        let table = [
            (Kind::Read, errno::EIO, Outcome::Failed(Status::MediaRead)),
            (Kind::Write, errno::EIO, Outcome::Failed(Status::MediaWrite)),
            (Kind::Write, errno::ENOSPC, Outcome::Failed(Status::NoSpace)),
            (Kind::Write, errno::EDQUOT, Outcome::Failed(Status::NoSpace)),
            (
                Kind::Allocate,
                errno::ENOSPC,
                Outcome::Failed(Status::NoSpace),
            ),
            (Kind::Write, errno::EROFS, Outcome::Failed(Status::ReadOnly)),
            (Kind::Read, errno::ENODEV, Outcome::Failed(Status::NotReady)),
            (Kind::Allocate, errno::EOPNOTSUPP, Outcome::Unsupported),
            (Kind::Read, errno::EINTR, Outcome::Retry),
            (Kind::Write, errno::EAGAIN, Outcome::Retry),
            (
                Kind::Sync,
                errno::EINTR,
                Outcome::Failed(Status::MediaWrite),
            ),
            (
                Kind::Read,
                errno::ECANCELED,
                Outcome::Failed(Status::Aborted),
            ),
            (
                Kind::Write,
                errno::EINVAL,
                Outcome::Failed(Status::Internal),
            ),
        ];
        for (kind, errno, expected) in table {
            assert_eq!(judge(kind, -errno, 4096, 512), expected, "{kind:?} {errno}");
        }
        assert_eq!(
            judge(Kind::Read, i32::MIN, 4096, 512),
            Outcome::Failed(Status::MediaRead)
        );
    }
}
