//! Submits a client's requests to the disk, retries them while it is busy, and handles their
//! completions.
//!
//! Second part of `connection`.

use fabrix_block::{Payload, Request, Status, Submit};
use fabrix_proto::Slot;
use fabrix_proto::nbd::server::Command;
use fabrix_proto::nbd::spec::Error;
use fabrix_rt::{Buf, Completion, Loan, Shard, Token};
use fabrix_transport::{Incoming, Outgoing};

use super::{Connection, ConnectionState, DISK_SLOTS, RETRY, SLOTS, Work};
use crate::job::{Action, Job, PIECES_AT_ONCE, RETRY_AFTER};
use crate::nbd::extents::Extents;

/// Longest write, in bytes, that the disk reads directly from the receive buffer.
const INLINE_BYTES_MAX: usize = 8 << 10;

impl Connection {
    pub(super) fn command(
        &mut self,
        shard: &mut Shard,
        slot: Slot,
        command: Command,
        offset: u64,
        bytes: u64,
    ) {
        let block = u64::from(self.common.channel.geometry().block_bytes);
        let range = (offset / block, bytes / block);
        let action = match command {
            // No disk implements the prefetch that NBD_CMD_CACHE asks for.
            Command::Cache => return self.succeed_empty(slot),
            Command::BlockStatus { one } => return self.send_extents(slot, range, one),
            command if bytes == 0 && command != Command::Flush => {
                return self.succeed_empty(slot);
            }
            Command::Read => Action::Read,
            Command::Write { durable } => Action::Write { durable },
            Command::Flush => Action::Flush,
            Command::Trim { durable } => Action::Trim { durable },
            Command::WriteZeroes { may_trim, durable } => Action::Zeroes {
                deallocate: may_trim,
                durable,
            },
        };
        let job = Job::new(action, range.0, range.1);
        if !job.writes() {
            return self.run(shard, slot, job, None);
        }
        // The conversion succeeds: a write is not longer than the disk's longest transfer.
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        if bytes > INLINE_BYTES_MAX
            && let Some(buf) = shard.take_buf(bytes)
        {
            self.stream
                .receive_into(slot, Incoming::Awaited(buf, bytes));
        }
        self.set(slot, Work::Receiving(job));
    }

    fn succeed_empty(&mut self, slot: Slot) {
        let (machine, mut out) = self.stream.speak();
        machine.succeed_empty(slot, &mut out);
    }

    fn send_extents(&mut self, slot: Slot, range: (u64, u64), one: bool) {
        let extents = Extents::find(&self.common.channel, range, one);
        let (machine, mut out) = self.stream.speak();
        machine.tell_extents(slot, extents.list(), &mut out);
    }

    pub(super) fn data(&mut self, shard: &mut Shard, slot: Slot) {
        let data = self.stream.take_incoming(slot);
        if let Work::Receiving(job) = self.take(slot) {
            self.run(shard, slot, job, Some(data));
        }
    }

    /// Submits the pieces of a job until one is pending or the job has ended.
    fn run(&mut self, shard: &mut Shard, slot: Slot, mut job: Job, mut data: Option<Incoming>) {
        if !job.fits(&self.common.channel.geometry()) {
            return self.finish(slot, job, Status::OutOfRange, Loan::None);
        }
        for _ in 0..PIECES_AT_ONCE {
            let (operation, lba, blocks) = job.next();
            let payload = match data.take().map(Incoming::into_buf) {
                _ if job.reads() => Payload::Lend,
                Some(Some(buf)) => Payload::Owned(buf),
                Some(None) => Payload::Borrowed(self.stream.in_place()),
                None => Payload::None,
            };
            let request = Request {
                operation,
                lba,
                blocks,
                payload,
                token: Token {
                    task: self.task,
                    slot: DISK_SLOTS + u32::from(slot.0),
                },
            };
            let (status, loan) = match self.common.channel.submit(shard, request) {
                Submit::Done(status, loan) => (status, loan),
                Submit::Pending => {
                    self.at_disk += 1;
                    return self.set(slot, Work::AtDisk(job));
                }
                Submit::Busy(request) => {
                    let kept = keep_data(shard, request.payload);
                    return match kept {
                        Ok(kept) => self.stall(slot, job, kept),
                        Err(status) => self.finish(slot, job, status, Loan::None),
                    };
                }
            };
            if let Some(status) = job.ended(status) {
                return self.finish(slot, job, status, loan);
            }
        }
        self.stall(slot, job, None);
    }

    fn stall(&mut self, slot: Slot, job: Job, kept: Option<Buf>) {
        self.stalled += 1;
        self.set(slot, Work::Stalled(job, kept));
    }

    fn finish(&mut self, slot: Slot, job: Job, status: Status, loan: Loan) {
        let error = error(status);
        let outgoing = match loan {
            Loan::Lent(lent) => Some(Outgoing::Lent(lent)),
            Loan::Buf(buf) => Some(Outgoing::Buf(buf, 0)),
            _ => None,
        };
        let has_data = outgoing.is_some();
        if let Some(outgoing) = outgoing.filter(|_| job.reads()) {
            self.stream.send_from(slot, outgoing);
        }
        let (machine, mut out) = self.stream.speak();
        match error {
            None if job.reads() && has_data => machine.succeed(slot, &mut out),
            None if job.reads() => machine.fail(slot, Error::Io, &mut out),
            None => machine.succeed_empty(slot, &mut out),
            Some(error) => machine.fail(slot, error, &mut out),
        }
        self.stream.release(slot);
    }

    pub(super) fn disk_answered(&mut self, shard: &mut Shard, slot: u32, completion: Completion) {
        let slot = Slot(u16::try_from(slot - DISK_SLOTS).expect("the slot came from a slot"));
        let Work::AtDisk(mut job) = self.take(slot) else {
            return debug_assert!(false, "an ending for a slot that asked for none");
        };
        self.at_disk -= 1;
        match job.ended(Status::from_result(completion.result)) {
            Some(status) => self.finish(slot, job, status, completion.loan),
            // The client is gone, and the rest of the range may be as long as the disk.
            None if self.state >= ConnectionState::Draining => {}
            None => self.run(shard, slot, job, None),
        }
    }

    /// Submits all stalled requests again, beginning behind the last retried slot. A request of
    /// many pieces therefore lets the others continue.
    pub(super) fn retry(&mut self, shard: &mut Shard) {
        for _ in 0..SLOTS {
            if self.stalled == 0 {
                return;
            }
            let slot = Slot(self.retry_from);
            self.retry_from = (self.retry_from + 1) % SLOTS;
            match self.take(slot) {
                Work::Stalled(job, kept) => {
                    self.stalled -= 1;
                    let before = self.stalled;
                    self.run(shard, slot, job, kept.map(|buf| Incoming::Buf(buf, 0)));
                    if self.stalled > before {
                        return; // the disk is still busy, or this request has used its turn
                    }
                }
                other => self.set(slot, other),
            }
        }
    }

    pub(super) fn schedule_retry(&mut self, shard: &mut Shard) {
        if self.stalled > 0 && !self.retrying {
            self.retrying = true;
            let token = Token {
                task: self.task,
                slot: RETRY,
            };
            let at = shard.now() + RETRY_AFTER;
            shard.set_timer(token, at);
        }
    }
}

/// Copies a write's data out of the receive buffer while the disk is busy.
fn keep_data(shard: &mut Shard, payload: Payload<'_>) -> Result<Option<Buf>, Status> {
    match payload {
        Payload::Borrowed(bytes) => {
            let mut buf = shard.take_buf(bytes.len()).ok_or(Status::NotReady)?;
            buf.bytes_mut()[..bytes.len()].copy_from_slice(bytes);
            Ok(Some(buf))
        }
        Payload::Owned(buf) => Ok(Some(buf)),
        Payload::None | Payload::Lend | Payload::Registered(_) => Ok(None),
    }
}

/// The NBD error of a status. None: success.
fn error(status: Status) -> Option<Error> {
    Some(match status {
        Status::Ok => return None,
        Status::OutOfRange => Error::Invalid,
        Status::Unsupported => Error::NotSupported,
        Status::ReadOnly => Error::NotPermitted,
        Status::NoSpace => Error::NoSpace,
        Status::NotReady
        | Status::MediaRead
        | Status::MediaWrite
        | Status::CompareFailed
        | Status::Aborted
        | Status::Degraded
        | Status::Internal => Error::Io,
    })
}
