//! What concerns the disk: a request of the kernel goes there, waits while it is busy, and ends.
//!
//! The third part of `server`.

use fabrix_block::{Geometry, Payload, Request, Status, Submit};
use fabrix_proto::fuse::{self, Asked};
use fabrix_rt::{Buf, Completion, Loan, Shard, errno};

use super::plan::plan;
use super::{Asker, Call, DISK_SLOTS, RETRY, Server, Work};
use crate::job::{PIECES_AT_ONCE, RETRY_AFTER};

/// What a disk says to a request.
enum Said {
    Done(Status, Loan),
    Pending,
    Busy,
}

impl Server {
    /// What concerns the disk. Gives the message back when its data is needed no more.
    pub(super) fn io(
        &mut self,
        shard: &mut Shard,
        asker: Asker,
        asked: Asked,
        geometry: &Geometry,
        message: Option<Buf>,
    ) -> Option<Buf> {
        let planned = if self.failing {
            Err(errno::EIO)
        } else {
            plan(asked, geometry, self.transfer_bytes)
        };
        match planned {
            Err(errno) => self.refuse(shard, asker, errno),
            Ok(None) => self.answer(shard, asker, &[]),
            Ok(Some((job, reply))) => {
                let call = Call {
                    asker,
                    job,
                    reply,
                    answered: false,
                };
                let slot = self.free.pop();
                let slot = slot.expect("no message is taken without a free slot");
                if matches!(asked, Asked::Write { .. }) {
                    return self.run(shard, slot, call, message);
                }
                self.run(shard, slot, call, None);
            }
        }
        message
    }

    /// Goes on with a call until the disk takes its time, or it has ended. Gives the message back
    /// when its data is needed no more.
    fn run(
        &mut self,
        shard: &mut Shard,
        slot: u16,
        mut call: Call,
        mut message: Option<Buf>,
    ) -> Option<Buf> {
        if !call.job.fits(&self.lane.geometry()) {
            self.finish(shard, slot, &call, Status::OutOfRange, Loan::None);
            return message;
        }
        for _ in 0..PIECES_AT_ONCE {
            let (status, loan) = match self.submit(shard, slot, &mut call, message.as_ref()) {
                Said::Done(status, loan) => (status, loan),
                Said::Pending => {
                    self.work[usize::from(slot)] = Work::AtDisk(call);
                    return message;
                }
                Said::Busy => {
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

    /// Asks the disk for the next piece of a call.
    fn submit(&self, shard: &mut Shard, slot: u16, call: &mut Call, message: Option<&Buf>) -> Said {
        let (operation, lba, blocks) = call.job.next();
        let payload = match (call.asker.place, message) {
            _ if call.job.reads() => Payload::Lend,
            _ if !call.job.writes() => Payload::None,
            (Some(place), _) => Payload::Borrowed(self.exchanges.written(place)),
            (None, Some(buf)) => Payload::Borrowed(&buf.bytes()[fuse::WRITE_HEAD_BYTES..]),
            (None, None) => Payload::None,
        };
        let bytes = blocks as usize * self.lane.geometry().block_bytes as usize;
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
        match self.lane.submit(shard, request) {
            Submit::Done(status, loan) => Said::Done(status, loan),
            Submit::Pending => Said::Pending,
            Submit::Busy(_) => Said::Busy,
        }
    }

    /// The call goes on later; the message with a write's data is kept.
    fn stall(&mut self, shard: &mut Shard, slot: u16, call: Call, kept: Option<Buf>) {
        self.stalled += 1;
        self.arrange_retry(shard);
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
        self.leave_or_go_on(shard);
    }

    /// Asks the disk again for all that it was too busy for.
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
                    break; // it is still busy
                }
            }
        }
        self.leave_or_go_on(shard);
    }

    fn slots(&self) -> std::ops::Range<u16> {
        0..u16::try_from(self.work.len()).expect("some hundreds")
    }

    pub(super) fn arrange_retry(&mut self, shard: &mut Shard) {
        if !self.retrying {
            self.retrying = true;
            let at = shard.now() + RETRY_AFTER;
            shard.set_timer(self.token(RETRY), at);
        }
    }

    /// Everything in progress is answered now, with an error.
    pub(super) fn fail(&mut self, shard: &mut Shard) {
        self.failing = true;
        for slot in self.slots() {
            let asker = match &mut self.work[usize::from(slot)] {
                Work::AtDisk(call) if !call.answered => {
                    call.answered = true;
                    call.asker
                }
                Work::Stalled(call, _) => {
                    let asker = call.asker;
                    self.work[usize::from(slot)] = Work::Nothing;
                    self.stalled -= 1;
                    self.free.push(slot);
                    asker
                }
                _ => continue,
            };
            self.refuse(shard, asker, errno::EIO);
        }
        self.leave_or_go_on(shard);
    }
}
