//! One request of a guest: its meaning, checked against the disk, and the layout of its data.
//!
//! It knows the request format and the disk's geometry, and submits nothing.

use fabrix_block::Geometry;
use fabrix_proto::virtio::blk::{HEAD_BYTES, Head, Range, SECTOR_BYTES, UNMAP, kind};
use fabrix_proto::virtio::queue::Chain;
use fabrix_proto::virtio::{Broken, Memory, gather, total};
use zerocopy::FromBytes;

use crate::job::{Action, Job, trims};

/// The execution of a request.
pub(super) enum Plan {
    /// Transfer `bytes` bytes from block `lba` on.
    Data {
        action: Action,
        lba: u64,
        bytes: u64,
    },
    /// Execute a disk operation without data.
    Job(Job),
    /// Return the identity string.
    Identity,
    /// Nothing to do.
    Nothing,
    /// Fail: the range is outside the disk or not aligned to blocks.
    Wrong,
    /// Fail: the request type is unknown.
    Unsupported,
}

/// The execution of a descriptor chain. With `durable`, writes are answered when they are on the
/// medium.
///
/// Errors: the chain is not a valid request and cannot even be answered.
pub(super) fn plan(
    memory: &impl Memory,
    chain: &Chain,
    geometry: &Geometry,
    durable: bool,
) -> Result<Plan, Broken> {
    let mut head = [0; HEAD_BYTES];
    if !gather(memory, &chain.readable, 0, &mut head) {
        return Err(Broken("a request is shorter than its head"));
    }
    if total(&chain.writable) == 0 {
        return Err(Broken("a request has no room for its answer"));
    }
    let head = Head::read_from_bytes(&head).map_err(|_| Broken("a request is no request"))?;
    let out_bytes = total(&chain.readable) - HEAD_BYTES as u64;
    let in_bytes = total(&chain.writable) - 1;
    let sector = head.sector.get();
    Ok(match head.kind.get() {
        kind::IN => data(Action::Read, sector, in_bytes, geometry),
        kind::OUT if geometry.read_only => Plan::Wrong,
        kind::OUT => data(Action::Write { durable }, sector, out_bytes, geometry),
        kind::FLUSH => Plan::Job(Job::new(Action::Flush, 0, 0)),
        kind::GET_ID => Plan::Identity,
        kind @ (kind::DISCARD | kind::WRITE_ZEROES) => {
            let mut range = [0; size_of::<Range>()];
            let is_one = out_bytes == range.len() as u64;
            if !is_one || !gather(memory, &chain.readable, HEAD_BYTES as u64, &mut range) {
                return Ok(Plan::Wrong);
            }
            match Range::read_from_bytes(&range) {
                Ok(range) => without_data(kind, &range, geometry, durable),
                Err(_) => Plan::Wrong,
            }
        }
        _ => Plan::Unsupported,
    })
}

fn data(action: Action, sector: u64, bytes: u64, geometry: &Geometry) -> Plan {
    match blocks(sector, bytes, geometry) {
        Some((_, 0)) => Plan::Nothing,
        Some((lba, _)) => Plan::Data { action, lba, bytes },
        None => Plan::Wrong,
    }
}

fn without_data(kind: u32, range: &Range, geometry: &Geometry, durable: bool) -> Plan {
    if geometry.read_only {
        return Plan::Wrong;
    }
    let deallocate = range.flags.get() & UNMAP != 0;
    let action = match kind {
        kind::DISCARD if range.flags.get() != 0 || !trims(geometry) => return Plan::Unsupported,
        kind::DISCARD => Action::Trim { durable },
        _ if range.flags.get() & !UNMAP != 0 => return Plan::Unsupported,
        _ => Action::Zeroes {
            deallocate: deallocate && trims(geometry),
            durable,
        },
    };
    let bytes = u64::from(range.sectors.get()) * SECTOR_BYTES;
    match blocks(range.sector.get(), bytes, geometry) {
        Some((_, 0)) => Plan::Nothing,
        Some((lba, blocks)) => Plan::Job(Job::new(action, lba, blocks)),
        None => Plan::Wrong,
    }
}

/// First block and number of blocks of a range. None: the range is not made of whole blocks on the
/// disk.
fn blocks(sector: u64, bytes: u64, geometry: &Geometry) -> Option<(u64, u64)> {
    let block = u64::from(geometry.block_bytes);
    let offset = sector.checked_mul(SECTOR_BYTES)?;
    let end = offset.checked_add(bytes)?;
    let whole = offset.is_multiple_of(block) && bytes.is_multiple_of(block);
    (whole && end <= geometry.bytes()).then_some((offset / block, bytes / block))
}
