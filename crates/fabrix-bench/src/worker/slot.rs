//! Slots for requests, and the buffers that travel with the requests.
//!
//! All buffers are allocated before the first request. This file fills the buffers of writes, and
//! makes sure that a buffer is not changed while a disk may still read it.

use fabrix_rt::{Buf, Loan, Shard};

use super::Worker;
use crate::access::Access;
use crate::job::Job;
use crate::random::fill;

/// A slot for one request.
#[derive(Default)]
pub(super) struct Slot {
    /// Destination of reads.
    pub(super) read: Option<Buf>,
    /// Source of a write: the worker's shared source, or a separate buffer that is stamped for each
    /// verified write.
    pub(super) write: Option<Buf>,
    pub(super) access: Access,
    pub(super) scheduled_ns: u64,
    pub(super) start_ns: u64,
}

impl Slot {
    /// The buffer of the slot's request.
    #[inline]
    fn buf(&mut self) -> &mut Option<Buf> {
        if self.access.write {
            &mut self.write
        } else {
            &mut self.read
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
        let bytes = self.bytes(access);
        let longest = self.longest[usize::from(access.write)];
        let slot = &mut self.slots[slot as usize];
        (slot.access, slot.scheduled_ns, slot.start_ns) =
            (access, scheduled_ns, self.clock.now_ns());
        if access.write && self.verifier.is_none() {
            if slot.write.is_none() {
                slot.write.clone_from(&self.source);
            }
            return;
        }
        // The buffer's content changes, so no disk may still send it for an earlier request. The
        // first read of a job that only writes has no buffer yet.
        let buf = slot.buf();
        if !buf.as_ref().is_some_and(Buf::is_unique) {
            *buf = shard.take_buf(longest);
        }
        if access.write
            && let (Some(verifier), Some(buf)) = (&mut self.verifier, buf)
        {
            verifier.stamp(access.unit, &mut buf.bytes_mut()[..bytes]);
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

/// The shared source of unverified writes, if the job has any, and the slots. None without enough
/// memory.
pub(super) fn take_buffers(
    shard: &mut Shard,
    job: &Job,
    seed: u64,
) -> Option<(Option<Buf>, Vec<Slot>)> {
    let source = match job.percent_read() < 100 && !job.verify {
        true => Some(filled(shard, longest(job, true), seed)?),
        false => None,
    };
    let slots = (0..job.iodepth).map(|slot| new_slot(shard, job, seed ^ u64::from(slot)));
    Some((source, slots.collect::<Option<_>>()?))
}

fn new_slot(shard: &mut Shard, job: &Job, seed: u64) -> Option<Slot> {
    let mut slot = Slot::default();
    if job.percent_read() > 0 || job.verify {
        slot.read = Some(shard.take_buf(longest(job, false))?);
    }
    if job.percent_read() < 100 && job.verify {
        slot.write = Some(filled(shard, longest(job, true), seed)?);
    }
    Some(slot)
}

/// Length of the longest read or write in bytes.
pub(super) fn longest(job: &Job, write: bool) -> usize {
    job.sizes(write).longest_bytes() as usize
}

/// A filled buffer for writes. It is touched here once, so that the measurement includes neither
/// page faults nor the generation of contents.
fn filled(shard: &mut Shard, bytes: usize, seed: u64) -> Option<Buf> {
    let mut buf = shard.take_buf(bytes)?;
    fill(buf.bytes_mut(), seed);
    Some(buf)
}
