//! Requests of a disk's user through a session: out as commands, back as endings.
//!
//! The third part of `session`: what a request waits for and how it ends. Nothing is allocated for
//! a request; its data travels in the buffer it came with, or in one from the shard. The mirror of
//! NVMe's `transfer`.

use std::time::Duration;

use fabrix_block::{Operation, Request as BlockRequest, Status as DiskStatus, Submit};
use fabrix_proto::Slot;
use fabrix_proto::iscsi::initiator::{TaskOutcome, Transfer};
use fabrix_proto::iscsi::pdu::Lun;
use fabrix_proto::scsi::cdb::{Extent, build};
use fabrix_proto::scsi::sense::Sense;
use fabrix_proto::scsi::spec::Status;
use fabrix_rt::{Buf, Shard};

use super::command::{self, Verdict};
use super::connection::{Carried, Command, Connection, Link};
use super::seen::Seen;
use super::session::Session;
use crate::Weight;
use crate::channel::Carrier;
use crate::outage::State;
use crate::request::{Data, Request, finish, moves_payload};
use crate::timers::Timer;

impl<L: Link> Carrier for Session<L> {
    fn submit<'a>(&mut self, shard: &mut Shard, request: BlockRequest<'a>) -> Submit<'a> {
        let Some(seen) = &self.plan.expected else {
            return request.done(DiskStatus::Internal);
        };
        if let Some(status) = refusal(&request, seen) {
            return request.done(status);
        }
        let flows = self.flows() && self.reconnection.waiting.is_empty();
        let has_room = if flows {
            self.connection.as_ref().is_some_and(|it| it.room() > 0)
        } else if self.reconnection.lost_too_long(shard) {
            return request.done(DiskStatus::NotReady);
        } else {
            self.reconnection.waiting.len() < self.reconnection.capacity
        };
        if !has_room {
            return Submit::Busy(request);
        }
        let mut theirs = request;
        let Some(data) = Data::take(shard, &mut theirs, &seen.geometry) else {
            return self.later(theirs);
        };
        let request = Request::new(&theirs, data);
        if !flows {
            self.reconnection.waiting.push_back(request);
        } else if let Err(request) = self.send(shard, request) {
            self.reconnection.waiting.push_front(request);
        }
        Submit::Pending
    }

    fn forsake(&mut self) {
        self.forsaken = true;
        if let Some(connection) = &mut self.connection {
            connection.close();
        }
    }
}

impl<L: Link> Session<L> {
    /// Whether requests are sent at all.
    fn flows(&self) -> bool {
        self.reconnection.state == State::Live && !self.leaving && !self.pausing
    }

    /// There is no memory for a request: `Busy`, if an ending of this channel will come to try
    /// again after.
    fn later<'a>(&self, request: BlockRequest<'a>) -> Submit<'a> {
        let is_busy = self.connection.as_ref().is_some_and(Connection::is_busy);
        if is_busy || !self.reconnection.waiting.is_empty() {
            Submit::Busy(request)
        } else {
            request.done(DiskStatus::NotReady)
        }
    }

    /// Sends what waits, as far as there is room.
    pub(super) fn send_waiting(&mut self, shard: &mut Shard) {
        while self.flows()
            && let Some(request) = self.reconnection.waiting.pop_front()
        {
            if let Err(request) = self.send(shard, request) {
                return self.reconnection.waiting.push_front(request);
            }
        }
    }

    /// Sends a request; gives it back when there is no room.
    fn send(&mut self, shard: &mut Shard, mut request: Request) -> Result<(), Request> {
        let Some(seen) = &self.plan.expected else {
            return Err(request);
        };
        let extent = Extent {
            lba: request.lba,
            blocks: request
                .blocks
                .min(command::most_blocks(request.operation, seen)),
        };
        let Some((cdb, transfer)) = command::cdb(request.operation, extent, seen) else {
            finish(shard, request, DiskStatus::Unsupported);
            return Ok(());
        };
        let lun = Lun::flat(seen.facts.lun);
        let data = match request.operation {
            Operation::WriteZeroes { .. } | Operation::Deallocate => {
                let Some(buf) = parameters(shard, request.operation, extent, seen) else {
                    self.pause(shard);
                    return Err(request);
                };
                Some(buf)
            }
            _ => request.data.take(),
        };
        let command = Command { lun, cdb, transfer };
        self.put(shard, &command, data, Carried::Request(request))
    }

    /// Hands a command to the connection, or its request back.
    fn put(
        &mut self,
        shard: &mut Shard,
        command: &Command,
        data: Option<Buf>,
        carried: Carried,
    ) -> Result<(), Request> {
        let now = shard.now();
        let sent = match &mut self.connection {
            Some(connection) => connection.send(now, command, data, carried),
            None => Err((carried, data)),
        };
        match sent {
            Ok(()) => {
                shard.flush_later(self.reconnection.task);
                Ok(())
            }
            Err((Carried::Request(mut request) | Carried::Flushing(mut request), data)) => {
                if moves_payload(request.operation) {
                    request.data = data;
                }
                Err(request)
            }
            Err(_) => unreachable!("what was given comes back"),
        }
    }

    /// The command in `slot` was answered.
    pub(super) fn answered(
        &mut self,
        shard: &mut Shard,
        slot: Slot,
        carried: Carried,
        data: Option<Buf>,
        (outcome, sense): (TaskOutcome, Option<Sense>),
    ) {
        self.reconnection.has_lived();
        self.look_for_changes(sense);
        match carried {
            Carried::Request(mut request) => {
                let operation = request.operation;
                if moves_payload(operation) {
                    request.data = data;
                }
                self.judge(shard, slot, request, operation, (outcome, sense));
            }
            Carried::Flushing(mut request) => {
                request.data = data;
                self.judge(shard, slot, request, Operation::Flush, (outcome, sense));
            }
            Carried::Own | Carried::Look | Carried::Ended { .. } => {
                debug_assert!(false, "neither waits for an answer to a request");
            }
        }
        self.send_waiting(shard);
        self.log_out_when_idle(shard);
    }

    /// What becomes of a request whose command, for `operation`, was answered so.
    fn judge(
        &mut self,
        shard: &mut Shard,
        slot: Slot,
        mut request: Request,
        operation: Operation,
        (outcome, sense): (TaskOutcome, Option<Sense>),
    ) {
        let Some(seen) = &self.plan.expected else {
            return;
        };
        let verdict = match outcome {
            TaskOutcome { intact: false, .. } => Verdict::Again(DiskStatus::MediaRead),
            TaskOutcome {
                delivered: false, ..
            } => Verdict::Again(DiskStatus::NotReady),
            _ => command::verdict(operation, Status(outcome.status), sense, seen),
        };
        match verdict {
            Verdict::Ends(DiskStatus::Ok) => {
                self.done(shard, slot, request, operation, outcome.data_bytes);
            }
            Verdict::Ends(status) => self.end(shard, slot, request, status),
            // A pair that was aborted on its way may have happened.
            Verdict::Again(status) if request.retries >= RETRIES || is_once(&request, status) => {
                self.end(shard, slot, request, status);
            }
            Verdict::Again(_) => {
                request.retries += 1;
                self.free(slot);
                self.reconnection.waiting.push_back(request);
            }
            Verdict::Later if self.reconnection.has_lost_its_time(shard, &mut request) => {
                self.end(shard, slot, request, DiskStatus::NotReady);
            }
            Verdict::Later => {
                self.free(slot);
                self.reconnection.waiting.push_front(request);
                self.pause(shard);
            }
            Verdict::Reserved => {
                self.tell_reserved();
                self.end(shard, slot, request, DiskStatus::Aborted);
            }
        }
    }

    /// A command has ended well: the request may have more blocks, or be still to be made durable.
    fn done(
        &mut self,
        shard: &mut Shard,
        slot: Slot,
        mut request: Request,
        operation: Operation,
        data_bytes: u32,
    ) {
        let Some(seen) = &self.plan.expected else {
            return;
        };
        if let Some(status) = shortage(&request, operation, data_bytes, seen) {
            return self.end(shard, slot, request, status);
        }
        if operation != Operation::Flush && command::needs_flush(operation, seen) {
            let lun = Lun::flat(seen.facts.lun);
            self.free(slot);
            return self.flush_behind(shard, request, lun);
        }
        let most = command::most_blocks(request.operation, seen);
        if request.blocks > most {
            request.lba += u64::from(most);
            request.blocks -= most;
            self.free(slot);
            return self.reconnection.waiting.push_front(request);
        }
        self.end(shard, slot, request, DiskStatus::Ok);
    }

    /// Makes durable what a request has written; where that cannot be begun, the request begins
    /// anew.
    fn flush_behind(&mut self, shard: &mut Shard, mut request: Request, lun: Lun) {
        let command = Command {
            lun,
            cdb: build::synchronize_cache(),
            transfer: Transfer::None,
        };
        let data = request.data.take();
        if let Err(request) = self.put(shard, &command, data, Carried::Flushing(request)) {
            if matches!(request.operation, Operation::CompareAndWrite { .. }) {
                return finish(shard, request, DiskStatus::Aborted);
            }
            self.reconnection.waiting.push_front(request);
        }
    }

    /// Ends a request; at once, unless its data is still being sent.
    fn end(&mut self, shard: &mut Shard, slot: Slot, request: Request, status: DiskStatus) {
        if request.is_being_sent()
            && let Some(connection) = &mut self.connection
        {
            return connection.keep_ended(slot, request, status);
        }
        self.free(slot);
        finish(shard, request, status);
    }

    fn free(&mut self, slot: Slot) {
        if let Some(connection) = &mut self.connection {
            connection.free(slot);
        }
    }

    /// A send has ended: so have the requests whose data it held.
    pub(super) fn finish_ended(&mut self, shard: &mut Shard) {
        let mut has_room = false;
        while let Some((request, status)) =
            self.connection.as_mut().and_then(Connection::next_ended)
        {
            finish(shard, request, status);
            has_room = true;
        }
        if has_room {
            self.send_waiting(shard);
            self.log_out_when_idle(shard);
        }
    }

    /// Sends nothing for a while.
    fn pause(&mut self, shard: &mut Shard) {
        self.pausing = true;
        self.reconnection.set_timer(shard, Timer::Again, PAUSE);
    }

    fn tell_reserved(&mut self) {
        if !std::mem::replace(&mut self.told_reserved, true) {
            let sentence = "the disk is reserved by another initiator: release it there";
            self.reconnection.tell(Weight::Warning, sentence);
        }
    }
}

/// The answer to a request that need not travel, if it is one.
fn refusal(request: &BlockRequest<'_>, seen: &Seen) -> Option<DiskStatus> {
    if let Some(status) = request.refusal(&seen.geometry) {
        return Some(status);
    }
    if !command::is_supported(request.operation, request.blocks, seen) {
        return Some(DiskStatus::Unsupported);
    }
    let nothing = request.blocks == 0 && request.operation != Operation::Flush;
    nothing.then_some(DiskStatus::Ok)
}

/// What travels with a command that has parameters instead of a payload: a block of zeroes, or a
/// list of one range.
fn parameters(shard: &mut Shard, operation: Operation, extent: Extent, seen: &Seen) -> Option<Buf> {
    if operation == Operation::Deallocate {
        let list = build::unmap_list(extent);
        let mut buf = shard.take_buf(list.len())?;
        buf.bytes_mut()[..list.len()].copy_from_slice(&list);
        return Some(buf);
    }
    let bytes = seen.geometry.block_bytes as usize;
    let mut buf = shard.take_buf(bytes)?;
    buf.bytes_mut()[..bytes].fill(0);
    Some(buf)
}

/// Success without all the data is no success: the rest of a read's buffer is old memory, the rest
/// of a write is lost.
fn shortage(
    request: &Request,
    operation: Operation,
    data_bytes: u32,
    seen: &Seen,
) -> Option<DiskStatus> {
    let blocks = u64::from(request.blocks) * u64::from(seen.geometry.block_bytes);
    let (bytes, status) = match operation {
        Operation::Read => (blocks, DiskStatus::MediaRead),
        Operation::Write { .. } => (blocks, DiskStatus::MediaWrite),
        Operation::CompareAndWrite { .. } => (blocks * 2, DiskStatus::MediaWrite),
        _ => return None,
    };
    (u64::from(data_bytes) != bytes).then_some(status)
}

/// Whether a request must not be sent twice, because it may have been carried out.
fn is_once(request: &Request, status: DiskStatus) -> bool {
    matches!(request.operation, Operation::CompareAndWrite { .. }) && status != DiskStatus::NotReady
}

/// How often a command is sent again that was spoiled, or had to wait for a unit attention.
const RETRIES: u8 = 8;
/// How long a target without room is left alone.
const PAUSE: Duration = Duration::from_millis(20);
