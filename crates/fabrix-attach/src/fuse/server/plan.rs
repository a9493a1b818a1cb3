//! What a request of the kernel means for the disk: a table, without state.

use fabrix_block::Geometry;
use fabrix_proto::fuse::Asked;
use fabrix_rt::errno;

use crate::job::{Ask, Job, trims};

/// What a request is answered with when it was carried out.
#[derive(Clone, Copy)]
pub(super) enum Reply {
    Empty,
    Written(u32),
    /// So many bytes of what was read, from so many bytes into it.
    Data {
        skip: usize,
        bytes: usize,
    },
}

/// What a request means for the disk; None: nothing is to be done. An error is an errno.
pub(super) fn plan(
    asked: Asked,
    geometry: &Geometry,
    transfer_bytes: u32,
) -> Result<Option<(Job, Reply)>, i32> {
    let block = u64::from(geometry.block_bytes);
    let size = geometry.bytes();
    Ok(match asked {
        Asked::Read { offset, bytes } => {
            let end = offset.saturating_add(bytes.into()).min(size);
            if offset >= end {
                return Ok(None);
            }
            let first = offset / block;
            // What begins or ends within a block may be more than one transfer: then less comes
            // back, as read(2) may.
            let most = (u64::from(transfer_bytes) / block).max(1);
            let blocks = (end.div_ceil(block) - first).min(most);
            let end = end.min((first + blocks) * block);
            let in_memory = |bytes: u64| usize::try_from(bytes).map_err(|_| errno::EINVAL);
            let reply = Reply::Data {
                skip: in_memory(offset - first * block)?,
                bytes: in_memory(end - offset)?,
            };
            Some((Job::new(Ask::Read, first, blocks), reply))
        }
        Asked::Write { offset, bytes } => {
            if geometry.read_only {
                return Err(errno::EROFS);
            }
            let blocks = range(offset, bytes.into(), geometry, errno::ENOSPC)?;
            if bytes > transfer_bytes {
                return Err(errno::EINVAL);
            }
            let job = Job::new(Ask::Write { durable: false }, offset / block, blocks);
            (blocks > 0).then_some((job, Reply::Written(bytes)))
        }
        Asked::Sync => Some((Job::new(Ask::Flush, 0, 0), Reply::Empty)),
        Asked::Zero {
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
            // A hole reads as zeroes: a deallocation would promise less.
            let ask = Ask::Zeroes {
                deallocate: punch,
                durable: false,
            };
            let blocks = range(offset, bytes, geometry, errno::EINVAL)?;
            (blocks > 0).then_some((Job::new(ask, offset / block, blocks), Reply::Empty))
        }
        _ => None,
    })
}

/// How many blocks a range has, if it consists of blocks of this disk.
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
