//! Handles the kernel's result of an operation: continue, fall back to another operation,
//! flush, or answer the caller. `outcome` interprets the result. This file decides when a failure
//! degrades the whole disk.

use fabrix_rt::{Buf, Loan, Shard};

use super::{FileTask, Step};
use crate::Status;
use crate::file::outcome::Outcome;
use crate::task::complete;

impl FileTask {
    pub(super) fn ended(&mut self, shard: &mut Shard, slot: u32, result: i32, buf: Option<Buf>) {
        let Some(file_request) = self.requests.get_mut(slot) else {
            return;
        };
        let wanted = file_request.bytes - file_request.done;
        match file_request
            .step
            .judge(result, wanted, self.geometry.block_bytes)
        {
            Outcome::Progress(bytes) => {
                file_request.done += bytes;
                file_request.retries = 0;
                self.proceed(shard, slot, buf);
            }
            Outcome::Retry if file_request.retries < RETRIES_MAX => {
                file_request.retries += 1;
                self.advance(shard, slot, buf);
            }
            Outcome::Retry => self.fail(shard, slot, buf, Status::NotReady),
            Outcome::Unsupported => self.write_zeroes_instead(shard, slot),
            Outcome::Failed(status) => self.fail(shard, slot, buf, status),
        }
    }

    /// After progress: the rest of the bytes, the flush that makes zeroes durable, or the end of
    /// the request.
    fn proceed(&mut self, shard: &mut Shard, slot: u32, buf: Option<Buf>) {
        let Some(file_request) = self.requests.get_mut(slot) else {
            return;
        };
        if file_request.done < file_request.bytes {
            return self.advance(shard, slot, buf);
        }
        if file_request.durable && matches!(file_request.step, Step::Allocate(_)) {
            file_request.step = Step::Sync;
            return self.advance(shard, slot, None);
        }
        // A flush on another shard may have failed meanwhile and consumed the kernel's report about
        // a write of this channel.
        let status = if file_request.durable && self.state.is_degraded() {
            Status::Degraded
        } else {
            Status::Ok
        };
        self.finish(shard, slot, buf, status);
    }

    fn write_zeroes_instead(&mut self, shard: &mut Shard, slot: u32) {
        let Some(file_request) = self.requests.get_mut(slot) else {
            return;
        };
        if let Step::Allocate(how) = file_request.step {
            self.state.cannot(how);
        }
        file_request.step = Step::WriteZeroes;
        match self.zeroes(shard) {
            Some(zeroes) => self.advance(shard, slot, Some(zeroes)),
            None => self.finish(shard, slot, None, Status::NotReady),
        }
    }

    fn fail(&mut self, shard: &mut Shard, slot: u32, buf: Option<Buf>, status: Status) {
        let Some(file_request) = self.requests.get_mut(slot) else {
            return;
        };
        let lost = match file_request.step {
            Step::Sync => true,
            // The error may belong to an earlier write. No flush will report it again.
            Step::Write | Step::WriteRegistered(_) | Step::WriteZeroes => {
                let late = self.state.through_page_cache && status == Status::NoSpace;
                file_request.durable && (late || status == Status::MediaWrite)
            }
            Step::Read | Step::ReadRegistered(_) | Step::Allocate(_) => false,
        };
        if lost {
            self.state.degrade();
        }
        let status = if file_request.step == Step::Sync {
            Status::Degraded
        } else {
            status
        };
        self.finish(shard, slot, buf, status);
    }

    pub(super) fn finish(
        &mut self,
        shard: &mut Shard,
        slot: u32,
        buf: Option<Buf>,
        status: Status,
    ) {
        let Some(file_request) = self.requests.take(slot) else {
            return;
        };
        let was_read = file_request.step == Step::Read && status.is_ok();
        let loan = match buf {
            Some(buf) if file_request.callers_buf || was_read => Loan::Buf(buf),
            _ => Loan::None,
        };
        complete(shard, file_request.caller, status, loan);
    }
}

/// Largest number of consecutive EAGAIN or EINTR results before the request fails with `NotReady`.
const RETRIES_MAX: u16 = 100;
