//! One request of the driver, checked against the disk.
//!
//! It knows the driver's formats and the disk's geometry, and submits nothing.

use fabrix_block::Geometry;
use fabrix_proto::ublk::spec::{Descriptor, Operation};
use fabrix_rt::errno;

use crate::job::{Action, Job, trims};

/// A request of the driver.
pub(super) struct Call {
    pub(super) job: Job,
    /// Bytes to transfer, and the result on success.
    pub(super) bytes: u32,
    /// Whether the disk uses the request's registered pages, which are registered under the tag's
    /// number.
    pub(super) lent: bool,
}

/// The disk job of a request, without registered pages. None: there is nothing to do. The error is
/// an errno.
pub(super) fn plan(
    descriptor: &Descriptor,
    geometry: &Geometry,
    transfer_bytes: u32,
) -> Result<Option<Call>, i32> {
    let action = match descriptor.operation() {
        Operation::Read => Action::Read,
        Operation::Write { durable } => Action::Write { durable },
        Operation::Flush => Action::Flush,
        Operation::Discard => Action::Trim { durable: false },
        Operation::WriteZeroes {
            deallocate,
            durable,
        } => Action::Zeroes {
            deallocate: deallocate && trims(geometry),
            durable,
        },
        Operation::Unknown => return Err(errno::EOPNOTSUPP),
    };
    if action == Action::Flush {
        let job = Job::new(action, 0, 0);
        return Ok(Some(Call {
            job,
            bytes: 0,
            lent: false,
        }));
    }
    if geometry.read_only && action != Action::Read {
        return Err(errno::EROFS);
    }
    let (offset, bytes) = descriptor.range().ok_or(errno::EINVAL)?;
    let block = u64::from(geometry.block_bytes);
    if !offset.is_multiple_of(block) || !bytes.is_multiple_of(block) {
        return Err(errno::EINVAL);
    }
    let moves = matches!(action, Action::Read | Action::Write { .. });
    if moves && bytes > u64::from(transfer_bytes) {
        return Err(errno::EINVAL);
    }
    if bytes == 0 {
        return Ok(None);
    }
    let job = Job::new(action, offset / block, bytes / block);
    let moved = if moves { bytes } else { 0 };
    let bytes = u32::try_from(moved).map_err(|_| errno::EINVAL)?;
    Ok(Some(Call {
        job,
        bytes,
        lent: false,
    }))
}
