//! Submits a client's requests to the disk, retries them while it is busy, and handles their
//! completions.
//!
//! Second part of `connection`.

use fabrix_block::{Payload, Status};
use fabrix_proto::Slot;
use fabrix_proto::nbd::server::Command;
use fabrix_proto::nbd::spec::Error;
use fabrix_rt::{Completion, Loan, Shard, Token, errno};
use fabrix_transport::{Connection as _, Incoming, Outgoing};

use super::{Connection, ConnectionState, DISK_SLOTS};
use crate::disk_channel::{Submitted, keep_data};
use crate::job::{Action, Job, errno_of};
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
        self.work.receive(slot.0, job);
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
        if let Some(job) = self.work.received(slot.0) {
            self.run(shard, slot, job, Some(data));
        }
    }

    /// Submits the pieces of a job until one is pending or the job has ended.
    fn run(&mut self, shard: &mut Shard, slot: Slot, mut job: Job, data: Option<Incoming>) {
        let payload = match data.map(Incoming::into_buf) {
            _ if job.reads() => Payload::Lend,
            Some(Some(buf)) => Payload::Owned(buf),
            Some(None) => Payload::Borrowed(self.stream.in_place()),
            None => Payload::None,
        };
        let token = Token {
            task: self.task,
            slot: DISK_SLOTS + u32::from(slot.0),
        };
        let channel = &self.common.channel;
        match channel.submit(shard, &mut job, payload, token, keep_data) {
            Submitted::Ended(status, loan) => self.finish(slot, job, status, loan),
            Submitted::Pending => self.work.submitted(slot.0, job),
            Submitted::Stalled(data) => self.work.stall(shard, slot.0, job, data),
        }
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
        let Some(mut job) = self.work.answered(slot.0) else {
            return;
        };
        match job.ended(Status::from_result(completion.result)) {
            Some(status) => self.finish(slot, job, status, completion.loan),
            // The client is gone, and the rest of the range may be as long as the disk.
            None if self.state >= ConnectionState::Draining => {}
            None => self.run(shard, slot, job, None),
        }
    }

    /// Submits all stalled requests again.
    pub(super) fn retry(&mut self, shard: &mut Shard) {
        while let Some((slot, job, data)) = self.work.next_stalled() {
            let data = data.map(|buf| Incoming::Buf(buf, 0));
            self.run(shard, Slot(slot), job, data);
        }
    }
}

/// The NBD error of a status. None: success.
fn error(status: Status) -> Option<Error> {
    Some(match errno_of(status)? {
        errno::EINVAL => Error::Invalid,
        errno::EOPNOTSUPP => Error::NotSupported,
        errno::EROFS => Error::NotPermitted,
        errno::ENOSPC => Error::NoSpace,
        _ => Error::Io,
    })
}
