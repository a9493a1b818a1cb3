//! Places for requests, and the buffers that travel with the requests.
//!
//! All buffers are taken before the first request. What a write sends is made here, and who may
//! change a buffer that a disk may still be looking at is decided here.

use fabrix_rt::{Buf, Loan, Shard};

use super::Worker;
use crate::access::Access;
use crate::job::Job;
use crate::random::fill;

/// One place for a request.
#[derive(Default)]
pub(super) struct Slot {
    /// What reads are received into.
    pub(super) read: Option<Buf>,
    /// What a write is sent from: the worker's source, or when verifying one of its own that is
    /// stamped each time.
    pub(super) write: Option<Buf>,
    pub(super) access: Access,
    pub(super) meant_ns: u64,
    pub(super) start_ns: u64,
}

impl Worker {
    /// Takes a free place for a request, with a buffer that the request may have.
    #[inline]
    pub(super) fn prepare(&mut self, shard: &mut Shard, slot: u32, access: Access, meant_ns: u64) {
        let bytes = self.bytes(access);
        let longest = self.longest[usize::from(access.write)];
        let slot = &mut self.slots[slot as usize];
        (slot.access, slot.meant_ns, slot.start_ns) = (access, meant_ns, self.clock.now_ns());
        if !access.write {
            // A read fills its buffer, so nobody else may look at it; the probe of a job that only
            // writes has none.
            replace_unless(&mut slot.read, Buf::is_unique, || shard.take_buf(longest));
            return;
        }
        let Some(verifier) = &mut self.verifier else {
            if slot.write.is_none() {
                slot.write.clone_from(&self.source);
            }
            return;
        };
        // A disk may still be sending what it has answered already: such a buffer can be sent
        // again, not changed.
        let another = || shard.take_buf(longest);
        replace_unless(&mut slot.write, Buf::is_unique, another);
        if let Some(buf) = &mut slot.write {
            verifier.stamp(access.unit, &mut buf.bytes_mut()[..bytes]);
        }
    }

    /// The buffer of a prepared slot, unless the shard had no memory for it.
    #[inline]
    pub(super) fn buffer(&mut self, slot: u32) -> Option<Buf> {
        let slot = &mut self.slots[slot as usize];
        if slot.access.write {
            slot.write.take()
        } else {
            slot.read.take()
        }
    }

    /// The buffer has come back, if the disk did not keep it.
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

/// The source of writes that are not verified, if there are any, and the slots; `None` without the
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

/// Bytes of the longest read or write.
pub(super) fn longest(job: &Job, write: bool) -> usize {
    job.sizes(write).longest_bytes() as usize
}

/// A buffer for writes. Touched here, once: the measured time pays neither for page faults nor for
/// contents.
fn filled(shard: &mut Shard, bytes: usize, seed: u64) -> Option<Buf> {
    let mut buf = shard.take_buf(bytes)?;
    fill(buf.bytes_mut(), seed);
    Some(buf)
}

/// Keeps a buffer that is there and fit, otherwise takes another one.
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
