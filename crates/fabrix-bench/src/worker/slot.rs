//! Slots for requests, and the buffers that travel with the requests.
//!
//! All buffers are allocated before the first request. This file fills the buffers of writes, and
//! makes sure that a buffer is not changed while a disk may still read it.

use fabrix_block::Status;
use fabrix_rt::{Buf, Loan, Shard};

use super::Worker;
use super::pieces::Pieces;
use crate::access::{Access, Direction};
use crate::contents::Filler;
use crate::job::Job;

/// A slot for one request.
#[derive(Default)]
pub(super) struct Slot {
    /// Destination of reads.
    pub(super) read: Option<Buf>,
    /// Source of writes.
    pub(super) write: Option<Buf>,
    pub(super) access: Access,
    pub(super) scheduled_ns: u64,
    pub(super) start_ns: u64,
    /// In the first slot of a split request: pieces that are not answered, and the first failure.
    pub(super) pieces_left: u32,
    pub(super) failure: Option<Status>,
}

impl Slot {
    /// The buffer of the slot's request.
    #[inline]
    fn buf(&mut self) -> &mut Option<Buf> {
        match self.access.direction {
            Direction::Read => &mut self.read,
            _ => &mut self.write,
        }
    }
}

impl Worker {
    /// Prepares a slot for a request and makes sure that it has a suitable buffer.
    #[inline]
    pub(super) fn prepare(
        &mut self,
        shard: &mut Shard,
        slot: u32,
        access: Access,
        scheduled_ns: u64,
    ) {
        let prepared = &mut self.slots[slot as usize];
        (prepared.access, prepared.scheduled_ns, prepared.start_ns) =
            (access, scheduled_ns, self.clock.now_ns());
        let bytes = match self.pieces.most {
            1 => self.bytes(access),
            _ => self.split(slot),
        };
        self.prepare_buffer(shard, slot, bytes);
    }

    /// Makes sure that a slot has a buffer, and gives a write of `bytes` its contents.
    #[inline]
    pub(super) fn prepare_buffer(&mut self, shard: &mut Shard, slot: u32, bytes: usize) {
        let from = self.piece_offset(slot);
        let slot = &mut self.slots[slot as usize];
        let access = slot.access;
        let writes = access.direction == Direction::Write;
        let longest = self.longest[usize::from(writes)];
        if access.direction == Direction::Trim {
            return;
        }
        if writes && self.verifier.is_none() {
            return prepare_write(shard, &mut self.filler, slot, longest, bytes);
        }
        // The buffer's content changes, so no disk may still send it for an earlier request. The
        // first read of a job that only writes has no buffer yet.
        let buf = slot.buf();
        if !buf.as_ref().is_some_and(Buf::is_unique) {
            *buf = shard.take_buf(longest);
        }
        if writes && let (Some(verifier), Some(buf)) = (&mut self.verifier, buf) {
            let bytes = &mut buf.bytes_mut()[..bytes];
            match self.pieces.most {
                1 => verifier.stamp(access.unit, bytes),
                _ => self.pieces.copy_stamped(from, bytes),
            }
        }
    }

    /// The buffer of a prepared slot. None if the shard had no memory for it.
    #[inline]
    pub(super) fn buffer(&mut self, slot: u32) -> Option<Buf> {
        self.slots[slot as usize].buf().take()
    }

    /// Takes a buffer back, unless the disk kept it.
    #[inline]
    pub(super) fn put_back(&mut self, slot: u32, loan: Loan) {
        if let Loan::Buf(buf) = loan {
            *self.slots[slot as usize].buf() = Some(buf);
        }
    }
}

/// Gives an unverified write its contents.
#[inline]
fn prepare_write(
    shard: &mut Shard,
    filler: &mut Filler,
    slot: &mut Slot,
    longest: usize,
    bytes: usize,
) {
    let may_change = slot.write.as_ref().is_some_and(Buf::is_unique);
    if !may_change && (filler.changes() || slot.write.is_none()) {
        slot.write = replacement(shard, filler, slot.write.take(), longest);
    }
    if filler.changes()
        && let Some(buf) = &mut slot.write
    {
        filler.next(&mut buf.bytes_mut()[..bytes]);
    }
}

/// Another filled buffer for a slot whose buffer a disk still holds. The old contents are copied,
/// which is faster than new random data.
#[cold]
fn replacement(
    shard: &mut Shard,
    filler: &mut Filler,
    held: Option<Buf>,
    longest: usize,
) -> Option<Buf> {
    let mut buf = shard.take_buf(longest)?;
    match held {
        Some(held) => buf.bytes_mut().copy_from_slice(held.bytes()),
        None => filler.fill(buf.bytes_mut()),
    }
    Some(buf)
}

/// The slots with their buffers. None without enough memory.
pub(super) fn take_buffers(
    shard: &mut Shard,
    job: &Job,
    pieces: &Pieces,
    filler: &mut Filler,
) -> Option<Vec<Slot>> {
    let slots = 0..job.iodepth * pieces.most;
    slots
        .map(|_| new_slot(shard, job, pieces.longest_bytes(), filler))
        .collect()
}

/// A slot with buffers of up to `most` bytes. Its buffer for writes is filled here, so that the
/// measurement includes neither page faults nor the generation of the first contents.
fn new_slot(shard: &mut Shard, job: &Job, most: usize, filler: &mut Filler) -> Option<Slot> {
    let mut slot = Slot::default();
    if job.percent_read() > 0 || job.verify.is_some() {
        slot.read = Some(shard.take_buf(longest(job, false).min(most))?);
    }
    if job.percent_read() < 100 && !job.rw.trims_only() {
        slot.write = Some(replacement(
            shard,
            filler,
            None,
            longest(job, true).min(most),
        )?);
    }
    Some(slot)
}

/// Length of the longest read or write in bytes. The first read of a job has one unit, even if the
/// job only writes.
pub(super) fn longest(job: &Job, write: bool) -> usize {
    job.sizes(write).longest_bytes().max(job.unit_bytes()) as usize
}
