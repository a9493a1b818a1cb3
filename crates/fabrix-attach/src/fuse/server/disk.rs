//! Submits requests to the disk, retries them while it is busy, and handles their completions.
//!
//! Third part of `server`.

use fabrix_block::{Geometry, Payload, Status};
use fabrix_proto::fuse::{self, Operation};
use fabrix_rt::{Buf, Completion, Shard, errno};

use super::plan::plan;
use super::{Call, DISK_SLOTS, Requester, Server};
use crate::disk_channel::Submitted;

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
        let payload = match (call.requester.entry, &message) {
            _ if call.job.reads() => Payload::Lend,
            _ if !call.job.writes() => Payload::None,
            (Some(entry), _) => self.data(&call, self.exchanges.written(entry)),
            (None, Some(buf)) => self.data(&call, &buf.bytes()[fuse::WRITE_HEAD_BYTES..]),
            (None, None) => Payload::None,
        };
        let token = self.token(DISK_SLOTS + u32::from(slot));
        // The data stays in the message or in the entry while the disk is busy.
        let keep = |_: &mut Shard, _| Ok(None);
        match (self.channel).submit(shard, &mut call.job, payload, token, keep) {
            Submitted::Ended(status, loan) => self.finish(shard, slot, &call, status, loan),
            Submitted::Pending => self.work.submitted(slot, call),
            Submitted::Stalled(_) => {
                let kept = message.take_if(|_| call.job.writes());
                self.work.stall(shard, slot, call, kept);
            }
        }
        message
    }

    /// The data of a write, which lies at the start of `all`.
    fn data<'a>(&self, call: &Call, all: &'a [u8]) -> Payload<'a> {
        let block = u64::from(self.channel.geometry().block_bytes);
        let bytes = usize::try_from(call.job.blocks() * block).unwrap_or(usize::MAX);
        Payload::Borrowed(&all[..bytes])
    }

    pub(super) fn disk_answered(&mut self, shard: &mut Shard, slot: u32, completion: Completion) {
        let slot = u16::try_from(slot - DISK_SLOTS).expect("the slot came from a slot");
        let Some(mut call) = self.work.answered(slot) else {
            return;
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
        while let Some((slot, call, data)) = self.work.next_stalled() {
            self.run(shard, slot, call, data);
        }
        self.continue_or_end(shard);
    }

    /// Answers all requests in progress with an error.
    pub(super) fn fail(&mut self, shard: &mut Shard) {
        self.failing = true;
        for slot in self.work.slots() {
            let requester = if let Some(call) = self.work.give_up(slot) {
                self.free.push(slot);
                call.requester
            } else if let Some(call) = self.work.at_disk(slot)
                && !call.answered
            {
                call.answered = true;
                call.requester
            } else {
                continue;
            };
            self.refuse(shard, requester, errno::EIO);
        }
        self.continue_or_end(shard);
    }
}
