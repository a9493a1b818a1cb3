//! RAID 0: stripes over several disks. `layout` maps addresses (pure arithmetic). `join` executes
//! requests that touch several members. A failing member fails its requests, and nothing is
//! repaired. The power may fail between the pieces of a request, so only single blocks are written
//! atomically.

mod join;
mod layout;
#[cfg(test)]
mod tests;

pub use layout::{Layout, Piece};

use std::sync::Arc;

use fabrix_rt::Shard;

use crate::geometry::{Deallocate, Durability, Geometry};
use crate::spec::{CHUNK_BYTES, MEMBERS_MAX, Size};
use crate::{Allocation, Channel, Device, Identity, OpenError, OpenErrorKind, Run};

/// Several disks as one disk.
pub struct Raid0 {
    members: Vec<Arc<dyn Device>>,
    layout: Layout,
    geometry: Geometry,
    identity: Identity,
    notes: Vec<String>,
}

impl Raid0 {
    /// An array over `members`, in this order, with chunks of `chunk_bytes` (a power of two, 4 KiB
    /// to 16 MiB). Every member contributes as many whole chunks as the smallest member has.
    ///
    /// Errors: `Usage` when the block sizes of the members differ, a member is smaller than a
    /// chunk, or their number is not 2 to 64.
    pub fn new(
        chunk_bytes: u32,
        members: Vec<Arc<dyn Device>>,
        identity: Identity,
    ) -> Result<Arc<Self>, OpenError> {
        let wrong = |sentence: String| {
            OpenError::new(
                OpenErrorKind::Usage,
                format!("{}: {sentence}", identity.name),
            )
        };
        if members.len() < 2 || members.len() > MEMBERS_MAX {
            let count = members.len();
            return Err(wrong(format!(
                "an array has 2 to {MEMBERS_MAX} members, not {count}"
            )));
        }
        if !chunk_bytes.is_power_of_two() || !CHUNK_BYTES.contains(&chunk_bytes) {
            let chunk = Size(u64::from(chunk_bytes));
            return Err(wrong(format!(
                "chunk {chunk} is not a power of two from 4k to 16M"
            )));
        }
        let block_bytes = same_block(&members).map_err(wrong)?;
        let layout = Layout::new(members.len(), chunk_bytes / block_bytes);
        let used = used_blocks(&members, &layout).map_err(wrong)?;
        let geometry = geometry(&members, &layout, used);
        let notes = notes(&members, used);
        Ok(Arc::new(Self {
            members,
            layout,
            geometry,
            identity,
            notes,
        }))
    }

    fn chunk_bytes(&self) -> u32 {
        let bytes = self.layout.chunk_blocks() * u64::from(self.geometry.block_bytes);
        u32::try_from(bytes).expect("a chunk has 16 MiB at most")
    }
}

fn same_block(members: &[Arc<dyn Device>]) -> Result<u32, String> {
    let first = members[0].geometry().block_bytes;
    match members
        .iter()
        .find(|member| member.geometry().block_bytes != first)
    {
        None => Ok(first),
        Some(other) => Err(format!(
            "{} has blocks of {first} bytes and {} of {}; say block=4096 for both",
            members[0].identity().name,
            other.identity().name,
            other.geometry().block_bytes
        )),
    }
}

/// Number of blocks used of each member.
fn used_blocks(members: &[Arc<dyn Device>], layout: &Layout) -> Result<u64, String> {
    let smallest = members.iter().min_by_key(|member| member.geometry().blocks);
    let smallest = smallest.expect("an array has at least two members");
    let blocks = smallest.geometry().blocks;
    // The bound keeps the array's block count within 64 bits: 64 members of 2^57 blocks.
    let used = (blocks - blocks % layout.chunk_blocks()).min(1 << 57);
    if used == 0 {
        return Err(format!(
            "{} is smaller than one chunk",
            smallest.identity().name
        ));
    }
    Ok(used)
}

/// The array's promises are those of its weakest member.
fn geometry(members: &[Arc<dyn Device>], layout: &Layout, used: u64) -> Geometry {
    let all = || members.iter().map(|member| member.geometry());
    let block_bytes = members[0].geometry().block_bytes;
    let stripe_blocks = layout.chunk_blocks() * members.len() as u64;
    let stripe_bytes = stripe_blocks * u64::from(block_bytes);
    Geometry {
        block_bytes,
        blocks: used * members.len() as u64,
        physical_block_bytes: all()
            .map(|g| g.physical_block_bytes)
            .max()
            .unwrap_or(block_bytes),
        optimal_io_bytes: u32::try_from(stripe_bytes).unwrap_or(u32::MAX),
        max_transfer_bytes: all()
            .map(|g| g.max_transfer_bytes)
            .min()
            .unwrap_or(block_bytes),
        volatile_cache: all().any(|g| g.volatile_cache),
        durability: all()
            .map(|g| g.durability)
            .min()
            .unwrap_or(Durability::None),
        atomic_write_blocks: 1,
        read_only: all().any(|g| g.read_only),
        deallocate: all().map(|g| g.deallocate).min().unwrap_or(Deallocate::No),
    }
}

fn notes(members: &[Arc<dyn Device>], used: u64) -> Vec<String> {
    let mut notes: Vec<String> = Vec::new();
    for member in members {
        notes.extend_from_slice(member.notes());
        let geometry = member.geometry();
        let unused = (geometry.blocks - used).saturating_mul(u64::from(geometry.block_bytes));
        if unused > 0 {
            let name = &member.identity().name;
            notes.push(format!(
                "{name}: the last {unused} bytes are not used by the array"
            ));
        }
    }
    notes
}

impl Device for Raid0 {
    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn identity(&self) -> &Identity {
        &self.identity
    }

    fn open(&self, shard: &mut Shard) -> Result<Box<dyn Channel>, OpenError> {
        let members: Result<Vec<_>, _> = self
            .members
            .iter()
            .map(|member| member.open(shard))
            .collect();
        Ok(join::open(
            shard,
            members?,
            self.layout,
            self.geometry.clone(),
        ))
    }

    /// Answers for one chunk at a time, because the next chunk lies on another member.
    fn allocation(&self, lba: u64) -> Run {
        let mut pieces = self.layout.pieces(lba, u32::MAX);
        match pieces.next() {
            Some(piece) => self.members[piece.member]
                .allocation(piece.lba)
                .at_most(piece.blocks.into()),
            None => Run::to_the_end(Allocation::Mapped, lba, self.geometry.blocks),
        }
    }

    fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Builds the array from the members' current sizes. The place of a block does not depend on
    /// those sizes, so the data stays where it is. Members that cannot be resized keep their size.
    fn resize(&self, bytes: Option<u64>) -> Result<Arc<dyn Device>, OpenError> {
        let unsupported = |sentence: &str| {
            let sentence = format!("{}: {sentence}", self.identity.name);
            OpenError::new(OpenErrorKind::Unsupported, sentence)
        };
        if bytes.is_some() {
            return Err(unsupported(
                "an array is as large as its members let it be; resize those",
            ));
        }
        let mut members = self.members.clone();
        let mut measured = false;
        for member in &mut members {
            match member.resize(None) {
                Ok(now) => (*member, measured) = (now, true),
                Err(error) if error.kind == OpenErrorKind::Unsupported => {}
                Err(error) => return Err(error),
            }
        }
        if !measured {
            return Err(unsupported(
                "no member of this array can change its size while it is served",
            ));
        }
        Ok(Self::new(
            self.chunk_bytes(),
            members,
            self.identity.clone(),
        )?)
    }
}
