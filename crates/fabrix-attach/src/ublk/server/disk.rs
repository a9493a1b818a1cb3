//! Submits requests to the disk, retries them while it is busy, and handles their completions.
//!
//! If the driver registers the pages of a request with the shard's ring and the disk accepts
//! registered memory, the kernel moves the data. Otherwise the data is copied: a write's data from
//! the character device before the submission, and a read's data to it before the answer. These
//! copies do not block.
//!
//! Second part of `server`.

use std::os::unix::fs::FileExt;
use std::sync::atomic::Ordering;

use fabrix_block::{Payload, Status};
use fabrix_proto::ublk::spec;
use fabrix_rt::{Buf, Completion, Loan, Registered, Shard, errno};

use super::{DISK_SLOTS, Server};
use crate::disk_channel::{Submitted, keep_data};
use crate::job::errno_of;
use crate::ublk::request::Call;

impl Server {
    /// Starts a request. A write's data is copied first, unless its pages are registered.
    pub(super) fn begin(&mut self, shard: &mut Shard, tag: u16, call: Call) {
        match self.copy_from_kernel(shard, tag, &call) {
            Ok(data) => self.run(shard, tag, call, data),
            Err(errno) => self.answer(shard, tag, -errno),
        }
    }

    /// Copies a write's data from the kernel.
    fn copy_from_kernel(
        &self,
        shard: &mut Shard,
        tag: u16,
        call: &Call,
    ) -> Result<Option<Buf>, i32> {
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

    /// Submits the pieces of a request until one is pending or the request has ended.
    fn run(&mut self, shard: &mut Shard, tag: u16, mut call: Call, data: Option<Buf>) {
        let payload = match data {
            Some(buf) => Payload::Owned(buf),
            None if call.lent => Payload::Registered(Registered {
                place: tag,
                bytes: call.bytes,
            }),
            None if call.job.reads() => Payload::Lend,
            None => Payload::None,
        };
        let token = self.token(DISK_SLOTS + u32::from(tag));
        match (self.channel).submit(shard, &mut call.job, payload, token, keep_data) {
            Submitted::Ended(status, loan) => self.ended(shard, tag, call, status, loan),
            Submitted::Pending => self.work.submitted(tag, call),
            Submitted::Stalled(data) => self.work.stall(shard, tag, call, data),
        }
    }

    /// Handles the end of a request at the disk. If the disk could not use the registered pages,
    /// the request is submitted again with a copy.
    fn ended(&mut self, shard: &mut Shard, tag: u16, mut call: Call, status: Status, loan: Loan) {
        if call.lent && status == Status::Unsupported {
            call.lent = false;
            return self.begin(shard, tag, call);
        }
        self.finish(shard, tag, &call, status, loan);
    }

    /// Answers a request, with the data of a read.
    fn finish(&mut self, shard: &mut Shard, tag: u16, call: &Call, status: Status, loan: Loan) {
        let result = match errno_of(status) {
            Some(errno) => -errno,
            None if call.lent => {
                // This thread is the only writer of the counter, so load and store suffice.
                let uncopied = self.uncopied.load(Ordering::Relaxed);
                self.uncopied.store(uncopied + 1, Ordering::Relaxed);
                call.bytes.cast_signed()
            }
            None if call.job.reads() => self.copy_to_kernel(tag, call.bytes, loan),
            None => call.bytes.cast_signed(),
        };
        self.answer(shard, tag, result);
    }

    /// Copies a read's data to the kernel. Returns the result: the number of bytes, or a negative
    /// errno.
    fn copy_to_kernel(&mut self, tag: u16, bytes: u32, loan: Loan) -> i32 {
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
        let Some(mut call) = self.work.answered(tag) else {
            return;
        };
        if !self.failing {
            match call.job.ended(Status::from_result(completion.result)) {
                Some(status) => self.ended(shard, tag, call, status, completion.loan),
                None => self.run(shard, tag, call, None),
            }
        } else if self.queue.has_request(tag) {
            self.answer(shard, tag, -errno::EIO);
        } // the request was answered early, so the completion is ignored
        self.close_or_end(shard);
    }

    /// Submits all stalled requests again.
    pub(super) fn retry(&mut self, shard: &mut Shard) {
        while let Some((tag, call, data)) = self.work.next_stalled() {
            self.run(shard, tag, call, data);
        }
    }
}
