//! What concerns the disk: a request of the kernel goes there, waits while it is busy, and ends.
//!
//! The third part of `server`.

use fabrix_block::{Geometry, Payload, Request, Status, Submit};
use fabrix_proto::fuse::{self, Asked};
use fabrix_rt::{Buf, Completion, Loan, Shard, errno};

use super::plan::plan;
use super::{Call, DISK_SLOTS, RETRY, SLOTS, Server, Work};
use crate::job::{PIECES_AT_ONCE, RETRY_AFTER};

impl Server {
    /// What concerns the disk. Gives the message back when its data is needed no more.
    pub(super) fn io(
        &mut self,
        shard: &mut Shard,
        unique: u64,
        asked: Asked,
        geometry: &Geometry,
        buf: Buf,
    ) -> Option<Buf> {
        let planned = if self.failing {
            Err(errno::EIO)
        } else {
            plan(asked, geometry, self.transfer_bytes)
        };
        match planned {
            Err(errno) => self.refuse(shard, unique, errno),
            Ok(None) => self.answer(shard, unique, &[]),
            Ok(Some((job, reply))) => {
                let call = Call {
                    unique,
                    job,
                    reply,
                    answered: false,
                };
                let slot = self.free.pop();
                let slot = slot.expect("no message is taken without a free slot");
                if matches!(asked, Asked::Write { .. }) {
                    return self.run(shard, slot, call, Some(buf));
                }
                self.run(shard, slot, call, None);
            }
        }
        Some(buf)
    }

    /// Goes on with a call until the disk takes its time, or it has ended. Gives the message back when its data is
    /// needed no more.
    fn run(
        &mut self,
        shard: &mut Shard,
        slot: u16,
        mut call: Call,
        mut data: Option<Buf>,
    ) -> Option<Buf> {
        if !call.job.fits(&self.lane.geometry()) {
            self.finish(shard, slot, &call, Status::OutOfRange, Loan::None);
            return data;
        }
        for _ in 0..PIECES_AT_ONCE {
            let (operation, lba, blocks) = call.job.next();
            let payload = match &data {
                _ if call.job.reads() => Payload::Lend,
                Some(buf) if call.job.writes() => {
                    let bytes = blocks as usize * self.lane.geometry().block_bytes as usize;
                    Payload::Borrowed(&buf.bytes()[fuse::WRITE_HEAD_BYTES..][..bytes])
                }
                _ => Payload::None,
            };
            let token = self.token(DISK_SLOTS + u32::from(slot));
            let request = Request {
                operation,
                lba,
                blocks,
                payload,
                token,
            };
            let (status, loan) = match self.lane.submit(shard, request) {
                Submit::Done(status, loan) => (status, loan),
                Submit::Pending => {
                    self.work[usize::from(slot)] = Work::AtDisk(call);
                    return data;
                }
                Submit::Busy(_) => {
                    self.stalled += 1;
                    self.arrange_retry(shard);
                    let kept = if call.job.writes() { data.take() } else { None };
                    self.work[usize::from(slot)] = Work::Stalled(call, kept);
                    return data;
                }
            };
            if let Some(status) = call.job.ended(status) {
                self.finish(shard, slot, &call, status, loan);
                return data;
            }
        }
        self.stalled += 1;
        self.arrange_retry(shard);
        self.work[usize::from(slot)] = Work::Stalled(call, None);
        data
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
        for slot in 0..SLOTS {
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
        for slot in 0..SLOTS {
            let unique = match &mut self.work[usize::from(slot)] {
                Work::AtDisk(call) if !call.answered => {
                    call.answered = true;
                    call.unique
                }
                Work::Stalled(call, _) => {
                    let unique = call.unique;
                    self.work[usize::from(slot)] = Work::Nothing;
                    self.stalled -= 1;
                    self.free.push(slot);
                    unique
                }
                _ => continue,
            };
            self.refuse(shard, unique, errno::EIO);
        }
        self.leave_or_go_on(shard);
    }
}
