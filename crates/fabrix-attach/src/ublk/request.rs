//! One request of the kernel: what it asks, checked against the disk.
//!
//! Knows the driver's words and the disk's geometry; submits nothing.

use fabrix_block::Geometry;
use fabrix_proto::ublk::spec::{Asked, Descriptor};
use fabrix_rt::errno;

use crate::job::{Ask, Job, trims};

/// One request of the kernel.
pub(super) struct Call {
    pub(super) job: Job,
    /// What is moved, and what the kernel is told was moved.
    pub(super) bytes: u32,
    /// Whether the disk is to use the pages of the request, which lie at the place of its tag.
    pub(super) lent: bool,
}

/// What a request means for the disk, as if nothing were lent; None: nothing is to be done. An
/// error is an errno.
pub(super) fn plan(
    descriptor: &Descriptor,
    geometry: &Geometry,
    transfer_bytes: u32,
) -> Result<Option<Call>, i32> {
    let ask = match descriptor.asked() {
        Asked::Read => Ask::Read,
        Asked::Write { durable } => Ask::Write { durable },
        Asked::Flush => Ask::Flush,
        Asked::Discard => Ask::Trim { durable: false },
        Asked::WriteZeroes {
            deallocate,
            durable,
        } => Ask::Zeroes {
            deallocate: deallocate && trims(geometry),
            durable,
        },
        Asked::Unknown => return Err(errno::EOPNOTSUPP),
    };
    if ask == Ask::Flush {
        let job = Job::new(ask, 0, 0);
        return Ok(Some(Call {
            job,
            bytes: 0,
            lent: false,
        }));
    }
    if geometry.read_only && ask != Ask::Read {
        return Err(errno::EROFS);
    }
    let (offset, bytes) = descriptor.range().ok_or(errno::EINVAL)?;
    let block = u64::from(geometry.block_bytes);
    if !offset.is_multiple_of(block) || !bytes.is_multiple_of(block) {
        return Err(errno::EINVAL);
    }
    let moves = matches!(ask, Ask::Read | Ask::Write { .. });
    if moves && bytes > u64::from(transfer_bytes) {
        return Err(errno::EINVAL);
    }
    if bytes == 0 {
        return Ok(None);
    }
    let job = Job::new(ask, offset / block, bytes / block);
    let moved = if moves { bytes } else { 0 };
    let bytes = u32::try_from(moved).map_err(|_| errno::EINVAL)?;
    Ok(Some(Call {
        job,
        bytes,
        lent: false,
    }))
}
