//! Submits requests to the disk, retries them while it is busy, and handles their completions.
//!
//! Third part of `server`.

use fabrix_block::{Geometry, Payload, Request, Status, Submit};
use fabrix_proto::fuse::{self, Operation};
use fabrix_rt::{Buf, Completion, Loan, Shard, errno};

use super::plan::plan;
use super::{Call, DISK_SLOTS, RETRY, Requester, Server, Work};
use crate::job::{PIECES_AT_ONCE, RETRY_AFTER};

/// Result of a submission.
enum Submitted {
    Done(Status, Loan),
    Pending,
    Busy,
}

impl Server {
    /// Handles requests that involve the disk. Returns the message if its data is no longer needed.
    pub(super) fn io(
        &mut self,
        shard: &mut Shard,
        requester: Requester,
        operation: Operation,
        geometry: &Geometry,
        message: Option<Buf>,
    ) -> Option<Buf> {
        let planned = if self.failing {
            Err(errno::EIO)
        } else {
            plan(operation, geometry, self.transfer_bytes)
        };
        match planned {
            Err(errno) => self.refuse(shard, requester, errno),
            Ok(None) => self.answer(shard, requester, &[]),
            Ok(Some((job, reply))) => {
                let call = Call {
                    requester,
                    job,
                    reply,
                    answered: false,
                };
                let slot = self.free.pop();
                let slot = slot.expect("no message is taken without a free slot");
                if matches!(operation, Operation::Write { .. }) {
                    return self.run(shard, slot, call, message);
                }
                self.run(shard, slot, call, None);
            }
        }
        message
    }

    /// Submits the pieces of a request until one is pending or the request has ended. Returns the
    /// message if its data is no longer needed.
    fn run(
        &mut self,
        shard: &mut Shard,
        slot: u16,
        mut call: Call,
        mut message: Option<Buf>,
    ) -> Option<Buf> {
        if !call.job.fits(&self.channel.geometry()) {
            self.finish(shard, slot, &call, Status::OutOfRange, Loan::None);
            return message;
        }
        for _ in 0..PIECES_AT_ONCE {
            let (status, loan) = match self.submit(shard, slot, &mut call, message.as_ref()) {
                Submitted::Done(status, loan) => (status, loan),
                Submitted::Pending => {
                    self.work[usize::from(slot)] = Work::AtDisk(call);
                    return message;
                }
                Submitted::Busy => {
                    let kept = message.take_if(|_| call.job.writes());
                    self.stall(shard, slot, call, kept);
                    return message;
                }
            };
            if let Some(status) = call.job.ended(status) {
                self.finish(shard, slot, &call, status, loan);
                return message;
            }
        }
        self.stall(shard, slot, call, None);
        message
    }

    /// Submits the next piece of a request.
    fn submit(
        &self,
        shard: &mut Shard,
        slot: u16,
        call: &mut Call,
        message: Option<&Buf>,
    ) -> Submitted {
        let (operation, lba, blocks) = call.job.next();
        let payload = match (call.requester.entry, message) {
            _ if call.job.reads() => Payload::Lend,
            _ if !call.job.writes() => Payload::None,
            (Some(entry), _) => Payload::Borrowed(self.exchanges.written(entry)),
            (None, Some(buf)) => Payload::Borrowed(&buf.bytes()[fuse::WRITE_HEAD_BYTES..]),
            (None, None) => Payload::None,
        };
        let bytes = blocks as usize * self.channel.geometry().block_bytes as usize;
        let payload = match payload {
            Payload::Borrowed(all) => Payload::Borrowed(&all[..bytes]),
            payload => payload,
        };
        let request = Request {
            operation,
            lba,
            blocks,
            payload,
            token: self.token(DISK_SLOTS + u32::from(slot)),
        };
        match self.channel.submit(shard, request) {
            Submit::Done(status, loan) => Submitted::Done(status, loan),
            Submit::Pending => Submitted::Pending,
            Submit::Busy(_) => Submitted::Busy,
        }
    }

    /// Parks a request for a retry. `kept` is the message with a write's data.
    fn stall(&mut self, shard: &mut Shard, slot: u16, call: Call, kept: Option<Buf>) {
        self.stalled += 1;
        self.schedule_retry(shard);
        self.work[usize::from(slot)] = Work::Stalled(call, kept);
    }

    pub(super) fn disk_answered(&mut self, shard: &mut Shard, slot: u32, completion: Completion) {
        let slot = u16::try_from(slot - DISK_SLOTS).expect("the slot came from a slot");
        let work = std::mem::take(&mut self.work[usize::from(slot)]);
        let Work::AtDisk(mut call) = work else {
            return debug_assert!(false, "an ending for a slot that asked for none");
        };
        match call.job.ended(Status::from_result(completion.result)) {
            Some(status) => self.finish(shard, slot, &call, status, completion.loan),
            None => {
                self.run(shard, slot, call, None);
            }
        }
        self.continue_or_end(shard);
    }

    /// Submits all stalled requests again.
    pub(super) fn retry(&mut self, shard: &mut Shard) {
        for slot in self.slots() {
            if self.stalled == 0 {
                break;
            }
            let work = &mut self.work[usize::from(slot)];
            if !matches!(work, Work::Stalled(..)) {
                continue;
            }
            if let Work::Stalled(call, kept) = std::mem::take(work) {
                self.stalled -= 1;
                let before = self.stalled;
                self.run(shard, slot, call, kept);
                if self.stalled > before {
                    break; // the disk is still busy
                }
            }
        }
        self.continue_or_end(shard);
    }

    fn slots(&self) -> std::ops::Range<u16> {
        0..u16::try_from(self.work.len()).expect("some hundreds")
    }

    pub(super) fn schedule_retry(&mut self, shard: &mut Shard) {
        if !self.retrying {
            self.retrying = true;
            let at = shard.now() + RETRY_AFTER;
            shard.set_timer(self.token(RETRY), at);
        }
    }

    /// Answers all requests in progress with an error.
    pub(super) fn fail(&mut self, shard: &mut Shard) {
        self.failing = true;
        for slot in self.slots() {
            let requester = match &mut self.work[usize::from(slot)] {
                Work::AtDisk(call) if !call.answered => {
                    call.answered = true;
                    call.requester
                }
                Work::Stalled(call, _) => {
                    let requester = call.requester;
                    self.work[usize::from(slot)] = Work::Nothing;
                    self.stalled -= 1;
                    self.free.push(slot);
                    requester
                }
                _ => continue,
            };
            self.refuse(shard, requester, errno::EIO);
        }
        self.continue_or_end(shard);
    }
}
