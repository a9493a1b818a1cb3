//! What a result of librbd means for a request.

use fabrix_block::{Operation, Status};
use fabrix_rt::errno;

/// The status of a request of `bytes` bytes with a result of librbd: zero, a number of bytes, or a
/// negative error number.
pub(crate) fn status(operation: Operation, bytes: u64, result: i64) -> Status {
    if result < 0 {
        return failed(operation, result);
    }
    // librbd reads less at the end of an image that has shrunk.
    let is_short = operation == Operation::Read && u64::try_from(result) != Ok(bytes);
    match is_short {
        true => Status::OutOfRange,
        false => Status::Ok,
    }
}

/// Whether the cluster has refused a request because of the client from which it comes: the client
/// was shut out, or another one has the exclusive lock.
pub(crate) fn is_refusal(result: i64) -> bool {
    [errno::ESHUTDOWN, errno::EROFS]
        .map(|errno| -i64::from(errno))
        .contains(&result)
}

fn failed(operation: Operation, result: i64) -> Status {
    match i32::try_from(result.unsigned_abs()).unwrap_or(errno::EIO) {
        errno::ENOSPC | errno::EDQUOT => Status::NoSpace,
        errno::EINVAL => Status::OutOfRange,
        // The cluster has shut this client out, or another client has the exclusive lock.
        errno::ESHUTDOWN | errno::EROFS => Status::Refused,
        // The image is gone, or this client may not use it any more.
        errno::ENOENT | errno::EPERM | errno::EACCES => Status::NotReady,
        errno::ETIMEDOUT | errno::EAGAIN | errno::EBUSY | errno::ENOMEM => Status::NotReady,
        errno::EOPNOTSUPP => Status::Unsupported,
        _ if operation.writes() || operation == Operation::Flush => Status::MediaWrite,
        _ => Status::MediaRead,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WRITE: Operation = Operation::Write { durable: false };

    #[test]
    fn a_result_is_the_status_that_hosts_act_upon() {
        for (operation, bytes, result, expected) in [
            (Operation::Read, 4096, 4096, Status::Ok),
            (Operation::Read, 4096, 512, Status::OutOfRange),
            (WRITE, 4096, 0, Status::Ok),
            (WRITE, 4096, -i64::from(errno::ENOSPC), Status::NoSpace),
            (WRITE, 4096, -i64::from(errno::ESHUTDOWN), Status::Refused),
            (WRITE, 4096, -i64::from(errno::EROFS), Status::Refused),
            (WRITE, 4096, -i64::from(errno::EIO), Status::MediaWrite),
            (
                Operation::Flush,
                0,
                -i64::from(errno::EIO),
                Status::MediaWrite,
            ),
            (
                Operation::Read,
                4096,
                -i64::from(errno::EIO),
                Status::MediaRead,
            ),
            (
                Operation::Read,
                4096,
                -i64::from(errno::ENOENT),
                Status::NotReady,
            ),
            (Operation::Read, 4096, i64::MIN, Status::MediaRead),
        ] {
            assert_eq!(
                status(operation, bytes, result),
                expected,
                "{operation:?} {result}"
            );
        }
    }
}
