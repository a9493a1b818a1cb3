//! Translates a request of the kernel into disk requests: a table without state.

use fabrix_block::Geometry;
use fabrix_proto::fuse::Operation;
use fabrix_rt::errno;

use crate::job::{Action, Job, trims};

/// Body of the answer to a successful request.
#[derive(Clone, Copy)]
pub(super) enum Reply {
    Empty,
    Written(u32),
    /// `bytes` bytes of the read data, after the first `skip`.
    Data {
        skip: usize,
        bytes: usize,
    },
}

/// The disk job of a request. None: there is nothing to do. The error is an errno.
pub(super) fn plan(
    operation: Operation,
    geometry: &Geometry,
    transfer_bytes: u32,
) -> Result<Option<(Job, Reply)>, i32> {
    let block = u64::from(geometry.block_bytes);
    let size = geometry.bytes();
    Ok(match operation {
        Operation::Read { offset, bytes } => {
            let end = offset.saturating_add(bytes.into()).min(size);
            if offset >= end {
                return Ok(None);
            }
            let first = offset / block;
            // A read that is not aligned to blocks may exceed one transfer. It then returns fewer
            // bytes, as read(2) allows.
            let most = (u64::from(transfer_bytes) / block).max(1);
            let blocks = (end.div_ceil(block) - first).min(most);
            let end = end.min((first + blocks) * block);
            let in_memory = |bytes: u64| usize::try_from(bytes).map_err(|_| errno::EINVAL);
            let reply = Reply::Data {
                skip: in_memory(offset - first * block)?,
                bytes: in_memory(end - offset)?,
            };
            Some((Job::new(Action::Read, first, blocks), reply))
        }
        Operation::Write { offset, bytes } => {
            if geometry.read_only {
                return Err(errno::EROFS);
            }
            let blocks = range(offset, bytes.into(), geometry, errno::ENOSPC)?;
            if bytes > transfer_bytes {
                return Err(errno::EINVAL);
            }
            let job = Job::new(Action::Write { durable: false }, offset / block, blocks);
            (blocks > 0).then_some((job, Reply::Written(bytes)))
        }
        Operation::Sync => Some((Job::new(Action::Flush, 0, 0), Reply::Empty)),
        Operation::Zero {
            offset,
            bytes,
            punch,
        } => {
            if geometry.read_only {
                return Err(errno::EROFS);
            }
            if punch && !trims(geometry) {
                return Err(errno::EOPNOTSUPP);
            }
            // A hole must read as zeroes, which a plain deallocation does not promise.
            let action = Action::Zeroes {
                deallocate: punch,
                durable: false,
            };
            let blocks = range(offset, bytes, geometry, errno::EINVAL)?;
            (blocks > 0).then_some((Job::new(action, offset / block, blocks), Reply::Empty))
        }
        _ => None,
    })
}

/// Number of blocks in a range. The range must consist of whole blocks.
fn range(offset: u64, bytes: u64, geometry: &Geometry, past_end: i32) -> Result<u64, i32> {
    let block = u64::from(geometry.block_bytes);
    if !offset.is_multiple_of(block) || !bytes.is_multiple_of(block) {
        return Err(errno::EINVAL);
    }
    match offset.checked_add(bytes) {
        Some(end) if end <= geometry.bytes() => Ok(bytes / block),
        _ => Err(past_end),
    }
}
