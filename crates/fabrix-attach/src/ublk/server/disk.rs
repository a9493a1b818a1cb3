//! What concerns the disk: a request of the kernel goes there, waits while it is busy, and ends.
//!
//! Where the driver lends the pages of a request to the shard's ring, and the disk takes what is
//! lent, the kernel moves the data between the two. Else a write's data is copied from the
//! character device before the disk sees it, a read's data to it before the answer: copies of
//! memory by the kernel, nothing that waits.
//!
//! The second part of `server`.

use std::os::unix::fs::FileExt;
use std::sync::atomic::Ordering;

use fabrix_block::{Operation, Payload, Request, Status, Submit};
use fabrix_proto::ublk::spec;
use fabrix_rt::{Buf, Completion, Loan, Registered, Shard, errno};

use super::{DISK_SLOTS, RETRY, Server, Work};
use crate::job::{PIECES_AT_ONCE, RETRY_AFTER, errno_of};
use crate::ublk::request::Call;

impl Server {
    /// Brings a call to the disk, with a write's data if that is not lent.
    pub(super) fn begin(&mut self, shard: &mut Shard, tag: u16, call: Call) {
        match self.data(shard, tag, &call) {
            Ok(data) => self.run(shard, tag, call, data),
            Err(errno) => self.answer(shard, tag, -errno),
        }
    }

    /// A write's data, from the kernel.
    fn data(&self, shard: &mut Shard, tag: u16, call: &Call) -> Result<Option<Buf>, i32> {
        if !call.job.writes() || call.lent {
            return Ok(None);
        }
        let open = self.open.as_ref().ok_or(errno::EIO)?;
        let mut buf = shard.take_buf(call.bytes as usize).ok_or(errno::ENOMEM)?;
        let read = open
            .file
            .file()
            .read_exact_at(buf.bytes_mut(), spec::data_position(tag));
        read.map_err(|_| errno::EIO)?;
        Ok(Some(buf))
    }

    /// Goes on with a call until the disk takes its time, or it has ended.
    fn run(&mut self, shard: &mut Shard, tag: u16, mut call: Call, mut data: Option<Buf>) {
        if !call.job.fits(&self.lane.geometry()) {
            return self.finish(shard, tag, &call, Status::OutOfRange, Loan::None);
        }
        for _ in 0..PIECES_AT_ONCE {
            let (operation, lba, blocks) = call.job.next();
            let payload = match data.take() {
                Some(buf) => Payload::Owned(buf),
                None if call.lent => Payload::Registered(Registered {
                    place: tag,
                    bytes: call.bytes,
                }),
                None if operation == Operation::Read => Payload::Lend,
                None => Payload::None,
            };
            let request = Request {
                operation,
                lba,
                blocks,
                payload,
                token: self.token(DISK_SLOTS + u32::from(tag)),
            };
            let (status, loan) = match self.lane.submit(shard, request) {
                Submit::Done(status, loan) => (status, loan),
                Submit::Pending => {
                    self.at_disk += 1;
                    self.work[usize::from(tag)] = Work::AtDisk(call);
                    return;
                }
                Submit::Busy(request) => {
                    let kept = match request.payload {
                        Payload::Owned(buf) => Some(buf),
                        _ => None,
                    };
                    return self.stall(shard, tag, call, kept);
                }
            };
            if let Some(status) = call.job.ended(status) {
                return self.ended(shard, tag, call, status, loan);
            }
        }
        self.stall(shard, tag, call, None);
    }

    fn stall(&mut self, shard: &mut Shard, tag: u16, call: Call, kept: Option<Buf>) {
        self.stalled += 1;
        self.work[usize::from(tag)] = Work::Stalled(call, kept);
        if !self.retrying {
            self.retrying = true;
            let at = shard.now() + RETRY_AFTER;
            shard.set_timer(self.token(RETRY), at);
        }
    }

    /// The disk has done its part of a call. One that it could not do with the pages of the request
    /// is asked of it again, with a copy.
    fn ended(&mut self, shard: &mut Shard, tag: u16, mut call: Call, status: Status, loan: Loan) {
        if call.lent && status == Status::Unsupported {
            call.lent = false;
            return self.begin(shard, tag, call);
        }
        self.finish(shard, tag, &call, status, loan);
    }

    /// Answers a call, with a read's data.
    fn finish(&mut self, shard: &mut Shard, tag: u16, call: &Call, status: Status, loan: Loan) {
        let result = match errno_of(status) {
            Some(errno) => -errno,
            None if call.lent => {
                // Nobody else writes it, so nothing can come between.
                let uncopied = self.uncopied.load(Ordering::Relaxed);
                self.uncopied.store(uncopied + 1, Ordering::Relaxed);
                call.bytes.cast_signed()
            }
            None if call.job.reads() => self.give(tag, call.bytes, loan),
            None => call.bytes.cast_signed(),
        };
        self.answer(shard, tag, result);
    }

    /// Gives the kernel what was read. What it is told: all the bytes, or an error.
    fn give(&mut self, tag: u16, bytes: u32, loan: Loan) -> i32 {
        let Some(open) = &self.open else {
            return -errno::EIO;
        };
        let length = bytes as usize;
        match loan {
            Loan::Lent(lent) if lent.len() >= length => self.copy.push_lent(lent.slice(0, length)),
            Loan::Buf(buf) if buf.len() >= length => self.copy.push_buf(buf, 0, length),
            _ => return -errno::EIO,
        }
        let given = open.file.give_at(&mut self.copy, spec::data_position(tag));
        self.copy.clear();
        match given {
            Ok(given) if given == length => bytes.cast_signed(),
            _ => -errno::EIO,
        }
    }

    pub(super) fn disk_answered(&mut self, shard: &mut Shard, tag: u16, completion: Completion) {
        let work = std::mem::take(&mut self.work[usize::from(tag)]);
        let Work::AtDisk(mut call) = work else {
            return debug_assert!(false, "an ending for a tag that asked for none");
        };
        self.at_disk -= 1;
        if !self.failing {
            match call.job.ended(Status::from_result(completion.result)) {
                Some(status) => self.ended(shard, tag, call, status, completion.loan),
                None => self.run(shard, tag, call, None),
            }
        } else if self.queue.is_asked(tag) {
            self.answer(shard, tag, -errno::EIO);
        } // else it was answered before its time: the ending is for nobody
        self.close_or_leave(shard);
    }

    /// Asks the disk again for all that it was too busy for.
    pub(super) fn retry(&mut self, shard: &mut Shard) {
        for tag in 0..self.queue.depth() {
            if self.stalled == 0 {
                break;
            }
            let work = &mut self.work[usize::from(tag)];
            if !matches!(work, Work::Stalled(..)) {
                continue;
            }
            if let Work::Stalled(call, kept) = std::mem::take(work) {
                self.stalled -= 1;
                let before = self.stalled;
                self.run(shard, tag, call, kept);
                if self.stalled > before {
                    break; // it is still busy
                }
            }
        }
    }
}
