//! One request of a guest: submitted to the disk in pieces, and answered.

use fabrix_block::{Payload, Status};
use fabrix_proto::virtio::blk::{Answer, ID_BYTES};
use fabrix_proto::virtio::{Broken, Segment, gather, pieces, scatter, total};
use fabrix_rt::{Buf, Loan, Shard};

use super::{DISK_SLOTS, Ring};
use crate::disk_channel::Submitted;
use crate::job::{Action, Job, PIECES_AT_ONCE};
use crate::vhost::memory::GuestMemory;
use crate::vhost::request::{Plan, plan};

#[derive(Clone, Copy)]
pub(super) struct Call {
    head: u16,
    pub(super) job: Job,
    /// Rest behind the current job: next block, and number of bytes.
    next: (u64, u64),
    action: Action,
    /// Bytes moved by completed jobs.
    moved: u64,
    /// Bytes of the current job.
    piece: usize,
}

impl Ring {
    pub(super) fn request(
        &mut self,
        shard: &mut Shard,
        memory: &GuestMemory,
        slot: u16,
        head: u16,
    ) -> Result<(), Broken> {
        let chain = &self.chains[usize::from(slot)];
        let durable = !self.common.is_writeback();
        let plan = plan(memory, chain, &self.common.channel.geometry(), durable)?;
        let call = |job, action, next| Call {
            head,
            job,
            next,
            action,
            moved: 0,
            piece: 0,
        };
        match plan {
            Plan::Data { action, lba, bytes } => {
                // This empty job is a placeholder. `advance` makes all real ones.
                let mut call = call(Job::new(action, lba, 0), action, (lba, bytes));
                self.advance(&mut call);
                self.run(shard, memory, slot, call)
            }
            Plan::Job(job) => self.run(shard, memory, slot, call(job, Action::Flush, (0, 0))),
            Plan::Identity => {
                let room = usize::try_from(total(&chain.writable) - 1).unwrap_or(usize::MAX);
                let identity = self.common.identity();
                let returned = &identity[..room.min(ID_BYTES)];
                if !scatter(memory, &chain.writable, 0, returned) {
                    return Err(GONE);
                }
                self.finish(memory, slot, head, Answer::Ok, returned.len() as u64)
            }
            Plan::Nothing => self.finish(memory, slot, head, Answer::Ok, 0),
            Plan::Wrong => self.finish(memory, slot, head, Answer::IoError, 0),
            Plan::Unsupported => self.finish(memory, slot, head, Answer::Unsupported, 0),
        }
    }

    /// Creates the next job of a data transfer, no longer than the disk's longest transfer.
    fn advance(&self, call: &mut Call) {
        let geometry = self.common.channel.geometry();
        let block = u64::from(geometry.block_bytes);
        let most = u64::from(geometry.max_transfer_bytes) / block * block;
        let (lba, left) = call.next;
        let bytes = left.min(most);
        call.job = Job::new(call.action, lba, bytes / block);
        call.piece = usize::try_from(bytes).unwrap_or(usize::MAX);
        call.next = (lba + bytes / block, left - bytes);
    }

    /// Submits the pieces of a request until one is pending or the request has ended.
    pub(super) fn run(
        &mut self,
        shard: &mut Shard,
        memory: &GuestMemory,
        slot: u16,
        mut call: Call,
    ) -> Result<(), Broken> {
        for _ in 0..PIECES_AT_ONCE {
            let payload = if call.job.reads() {
                Payload::Lend
            } else if call.job.writes() {
                match self.copy_of_data(shard, memory, slot, &call)? {
                    Some(buf) => Payload::Owned(buf),
                    None => break,
                }
            } else {
                Payload::None
            };
            let token = self.token(DISK_SLOTS + u32::from(slot));
            // A retry copies the write's data again. That is correct, because the guest has no
            // answer yet.
            let keep = |_: &mut Shard, _| Ok(None);
            let channel = &self.common.channel;
            match channel.submit(shard, &mut call.job, payload, token, keep) {
                Submitted::Ended(status, loan) => {
                    if self.ended(memory, slot, &mut call, status, &loan)? {
                        return Ok(());
                    }
                }
                Submitted::Pending => {
                    self.common.request_kept();
                    self.work.submitted(slot, call);
                    return Ok(());
                }
                Submitted::Stalled(_) => break,
            }
        }
        self.common.request_kept();
        self.work.stall(shard, slot, call, None);
        Ok(())
    }

    /// A copy of the write's data. None: no buffer is free.
    fn copy_of_data(
        &self,
        shard: &mut Shard,
        memory: &GuestMemory,
        slot: u16,
        call: &Call,
    ) -> Result<Option<Buf>, Broken> {
        let Some(mut buf) = shard.take_buf(call.piece) else {
            return Ok(None);
        };
        let skip = HEAD_BYTES + call.moved;
        let segments = &self.chains[usize::from(slot)].readable;
        match gather(memory, segments, skip, buf.bytes_mut()) {
            true => Ok(Some(buf)),
            false => Err(GONE),
        }
    }

    /// Handles the end of a job. True: the guest's request has ended too.
    pub(super) fn ended(
        &mut self,
        memory: &GuestMemory,
        slot: u16,
        call: &mut Call,
        mut status: Status,
        loan: &Loan,
    ) -> Result<bool, Broken> {
        if status.is_ok() && call.job.reads() {
            let segments = &self.chains[usize::from(slot)].writable;
            match copy_to_guest(memory, segments, call.moved, call.piece, loan) {
                Some(true) => {}
                Some(false) => return Err(GONE),
                None => status = Status::Internal,
            }
        }
        call.moved += call.piece as u64;
        if status.is_ok() && call.next.1 > 0 {
            self.advance(call);
            return Ok(false);
        }
        self.end(memory, slot, call, status)?;
        Ok(true)
    }

    fn end(
        &mut self,
        memory: &GuestMemory,
        slot: u16,
        call: &Call,
        status: Status,
    ) -> Result<(), Broken> {
        let answer = match status {
            Status::Ok => Answer::Ok,
            Status::Unsupported => Answer::Unsupported,
            _ => Answer::IoError,
        };
        let read = if call.job.reads() { call.moved } else { 0 };
        self.finish(memory, slot, call.head, answer, read)
    }

    /// Answers a request: writes its status byte, the last byte of its memory.
    fn finish(
        &mut self,
        memory: &GuestMemory,
        slot: u16,
        head: u16,
        answer: Answer,
        read: u64,
    ) -> Result<(), Broken> {
        let segments = &self.chains[usize::from(slot)].writable;
        let last = total(segments) - 1;
        self.free.push(slot);
        if !scatter(memory, segments, last, &[answer as u8]) {
            return Err(GONE);
        }
        // Bytes written. Guests use this number only for requests that succeeded entirely.
        let written = u32::try_from(read + 1).unwrap_or(u32::MAX);
        self.give(memory, head, written)
    }
}

/// Copies read data into guest memory. None: the disk returned too few bytes. False: the memory is
/// not mapped.
fn copy_to_guest(
    memory: &GuestMemory,
    segments: &[Segment],
    skip: u64,
    bytes: usize,
    loan: &Loan,
) -> Option<bool> {
    match loan {
        Loan::Buf(buf) => {
            let source = buf.bytes().get(..bytes)?;
            Some(scatter(memory, segments, skip, source))
        }
        Loan::Lent(lent) if lent.len() >= bytes => {
            Some(pieces(segments, skip, bytes, |address, at, bytes| {
                memory.write_lent(address, &lent.slice(at, bytes))
            }))
        }
        _ => None,
    }
}

const HEAD_BYTES: u64 = fabrix_proto::virtio::blk::HEAD_BYTES as u64;
const GONE: Broken = Broken("a request's memory has gone");
