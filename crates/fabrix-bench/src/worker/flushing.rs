//! Flushes of a job: after every Nth write, and at its end.
//!
//! A flush occupies a slot. While it is in flight, no other request starts, as with fio's
//! synchronous engines and with libaio. Requests in flight go on. The flush at the end belongs to
//! the measured time, but not to the statistics of flushes.

use fabrix_block::{Operation, Payload, Request, Status, Submit};
use fabrix_rt::{Loan, Shard, Token};

use super::Worker;
use crate::job::Job;

/// State of a job's flushes.
pub(super) struct Flushing {
    /// Writes from one flush to the next. 0: no flushes.
    every: u32,
    /// Writes since the last flush.
    writes: u32,
    /// Whether the next request is a flush.
    pub(super) is_due: bool,
    /// Slot of the flush in flight.
    pub(super) slot: Option<u32>,
    /// Whether the job still has to flush at its end.
    pub(super) is_due_at_end: bool,
    /// Whether a due flush follows the last write too. fio looks for a flush before it looks for
    /// the next request, and a size that is no multiple of the request leaves a rest to look for.
    pub(super) follows_last: bool,
}

impl Flushing {
    pub(super) fn new(job: &Job) -> Self {
        let unit = u64::from(job.unit_bytes()).max(1);
        Self {
            every: job.flushes.every,
            writes: 0,
            is_due: false,
            slot: None,
            is_due_at_end: job.flushes.at_end && job.percent_read() < 100,
            follows_last: job.size.is_some_and(|size| !size.is_multiple_of(unit)),
        }
    }

    /// Counts a started request.
    #[inline]
    pub(super) fn count(&mut self, write: bool) {
        if write && self.every > 0 {
            self.writes += 1;
            if self.writes == self.every {
                (self.writes, self.is_due) = (0, true);
            }
        }
    }
}

impl Worker {
    /// The slot of the due flush. None while it is in flight.
    pub(super) fn next_flush(&mut self) -> Option<u32> {
        match self.flushing.slot {
            Some(_) => None,
            None => self.begin_flush(),
        }
    }

    /// Gives the first free slot to a flush.
    fn begin_flush(&mut self) -> Option<u32> {
        let slot = self.idle.pop_front()?;
        self.slots[slot as usize].start_ns = self.clock.now_ns();
        self.flushing.slot = Some(slot);
        Some(slot)
    }

    /// Submits the flush. False: the disk is busy.
    pub(super) fn submit_flush(&mut self, shard: &mut Shard, slot: u32) -> bool {
        let request = Request {
            operation: Operation::Flush,
            lba: 0,
            blocks: 0,
            payload: Payload::None,
            token: Token {
                task: self.id,
                slot,
            },
        };
        let channel = self.channel.as_mut();
        let channel = channel.expect("the channel is open until the job has ended");
        self.in_flight += 1;
        match channel.submit(shard, request) {
            Submit::Pending => true,
            Submit::Done(status, _) => {
                self.clock.read();
                self.finish(shard, slot, status, Loan::None);
                true
            }
            Submit::Busy(_) => {
                self.in_flight -= 1;
                self.tally.busy += 1;
                self.flushing.slot = None;
                self.idle.push_front(slot);
                false
            }
        }
    }

    /// Completes the flush.
    pub(super) fn flushed(&mut self, shard: &mut Shard, slot: u32, status: Status) {
        self.flushing.slot = None;
        self.idle.push_back(slot);
        let is_last = !std::mem::replace(&mut self.flushing.is_due, false);
        if is_last {
            self.flushing.is_due_at_end = false;
        }
        if !status.is_ok() {
            let index = self.setup.index;
            let sentence = || format!("job {index}: a flush was answered {status:?}");
            return self.fail(shard, status, true, sentence);
        }
        let ns = self.clock.now_ns() - self.slots[slot as usize].start_ns;
        if let (true, false, Some(sync)) = (self.lifecycle.counts, is_last, &mut self.tally.sync) {
            sync.record(ns);
        }
    }

    /// Flushes at the end of the job, when all requests are answered.
    pub(super) fn flush_at_end(&mut self, shard: &mut Shard) {
        self.flushing.is_due = false;
        let slot = self.begin_flush().expect("no request is in flight");
        if !self.submit_flush(shard, slot) {
            return self.wait_for_room(shard);
        }
        self.check_phase_complete(shard);
    }
}
