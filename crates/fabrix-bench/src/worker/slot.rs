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
        if !access.write {
            // A read overwrites its buffer, so the buffer must not be shared. The first read of a
            // job that only writes has no buffer yet.
            replace_unless(&mut slot.read, Buf::is_unique, || shard.take_buf(longest));
            return;
        }
        let Some(verifier) = &mut self.verifier else {
            if slot.write.is_none() {
                slot.write.clone_from(&self.source);
            }
            return;
        };
        // A disk may still send an answered write's buffer. Such a buffer may be sent again, but
        // not changed.
        let another = || shard.take_buf(longest);
        replace_unless(&mut slot.write, Buf::is_unique, another);
        if let Some(buf) = &mut slot.write {
            verifier.stamp(access.unit, &mut buf.bytes_mut()[..bytes]);
        }
    }

    /// The buffer of a prepared slot. None if the shard had no memory for it.
    #[inline]
    pub(super) fn buffer(&mut self, slot: u32) -> Option<Buf> {
        let slot = &mut self.slots[slot as usize];
        if slot.access.write {
            slot.write.take()
        } else {
            slot.read.take()
        }
    }

    /// Takes a buffer back, unless the disk kept it.
    #[inline]
    pub(super) fn put_back(&mut self, slot: u32, loan: Loan) {
        let slot = &mut self.slots[slot as usize];
        let place = if slot.access.write {
            &mut slot.write
        } else {
            &mut slot.read
        };
        if let Loan::Buf(buf) = loan {
            *place = Some(buf);
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

/// Keeps a suitable buffer, otherwise replaces it.
#[inline]
fn replace_unless(
    buf: &mut Option<Buf>,
    fit: impl FnOnce(&Buf) -> bool,
    another: impl FnOnce() -> Option<Buf>,
) {
    if !buf.as_ref().is_some_and(fit) {
        *buf = another();
    }
}
