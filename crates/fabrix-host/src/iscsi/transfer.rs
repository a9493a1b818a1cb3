//! Requests of a disk's user as SCSI commands, and answers as completions of requests.
//!
//! A part of `session`. Nothing is allocated for a request.

use fabrix_block::{Geometry, Operation, Request as BlockRequest, Status as DiskStatus};
use fabrix_proto::Slot;
use fabrix_proto::iscsi::initiator::{TaskOutcome, Transfer};
use fabrix_proto::iscsi::pdu::Lun;
use fabrix_proto::scsi::alua::AccessState;
use fabrix_proto::scsi::cdb::{Extent, build};
use fabrix_proto::scsi::sense::Sense;
use fabrix_proto::scsi::spec::Status;
use fabrix_rt::{Buf, Shard};

use super::command::{self, Verdict};
use super::connection::{Command, IscsiLink, OwnCommand};
use super::known_disk::KnownDisk;
use super::plan::Plan;
use super::session::{Iscsi, Session};
use crate::Weight;
use crate::connection::InFlight;
use crate::multipath::link::Fate;
use crate::request::{Request, finish, hand_back, moves_payload};
use crate::session::{CommandSet, Protocol};

impl<L: IscsiLink> CommandSet<L> for Iscsi {
    const FIRST_IO: usize = 0;

    fn geometry(plan: &Plan) -> Option<&Geometry> {
        Some(&plan.expected.as_ref()?.geometry)
    }

    fn is_supported(session: &Session<L>, request: &BlockRequest<'_>) -> bool {
        let disk = session.plan.expected.as_ref();
        disk.is_some_and(|disk| command::is_supported(request.operation, request.blocks, disk))
    }

    fn send(
        session: &mut Session<L>,
        shard: &mut Shard,
        _: usize,
        mut request: Request,
    ) -> Result<(), Request> {
        let Some(disk) = &session.plan.expected else {
            return Err(request);
        };
        let extent = Extent {
            lba: request.lba,
            blocks: request
                .blocks
                .min(command::most_blocks(request.operation, disk)),
        };
        let Some((cdb, transfer)) = command::cdb(request.operation, extent, disk) else {
            finish(shard, request, DiskStatus::Unsupported);
            return Ok(());
        };
        let lun = Lun::flat(disk.facts.lun);
        let data = match request.operation {
            Operation::WriteZeroes { .. } | Operation::Deallocate => {
                let Some(buf) = parameters(shard, request.operation, extent, disk) else {
                    session.pause(shard);
                    return Err(request);
                };
                Some(buf)
            }
            _ => request.data.take(),
        };
        let command = Command { lun, cdb, transfer };
        session.send_command(shard, &command, data, InFlight::Request(request))
    }
}

impl<L: IscsiLink> Session<L> {
    /// Sends a command. Gives its request back when the connection cannot take it.
    fn send_command(
        &mut self,
        shard: &mut Shard,
        command: &Command,
        data: Option<Buf>,
        content: InFlight<OwnCommand>,
    ) -> Result<(), Request> {
        let now = shard.now();
        let sent = match self.connections.first_mut() {
            Some(connection) => connection.send(now, command, data, content),
            None => Err((content, data)),
        };
        match sent {
            Ok(()) => {
                shard.flush_later(self.reconnection.task);
                Ok(())
            }
            Err((
                InFlight::Request(mut request) | InFlight::Other(OwnCommand::Flush(mut request)),
                data,
            )) => {
                if moves_payload(request.operation) {
                    request.data = data;
                }
                Err(request)
            }
            Err(_) => unreachable!("the content comes back"),
        }
    }

    /// Processes the answer to a command of a request.
    pub(super) fn answered(
        &mut self,
        shard: &mut Shard,
        slot: Slot,
        content: InFlight<OwnCommand>,
        data: Option<Buf>,
        (outcome, sense): (TaskOutcome, Option<Sense>),
    ) {
        self.reconnection.is_useful();
        self.report_change(sense);
        self.read_states_after(shard, sense);
        match content {
            InFlight::Request(mut request) => {
                let operation = request.operation;
                if moves_payload(operation) {
                    request.data = data;
                }
                self.process(shard, slot, request, operation, (outcome, sense));
            }
            InFlight::Other(OwnCommand::Flush(mut request)) => {
                request.data = data;
                self.process(shard, slot, request, Operation::Flush, (outcome, sense));
            }
            InFlight::Other(OwnCommand::Bringup | OwnCommand::States | OwnCommand::Poll)
            | InFlight::Answered { .. } => {
                debug_assert!(false, "these commands belong to no request");
            }
        }
        self.send_waiting(shard);
        Iscsi::log_out_if_idle(self, shard);
    }

    /// Completes, repeats or continues a request. `operation` is that of the answered command.
    fn process(
        &mut self,
        shard: &mut Shard,
        slot: Slot,
        mut request: Request,
        operation: Operation,
        (outcome, sense): (TaskOutcome, Option<Sense>),
    ) {
        let Some(disk) = &self.plan.expected else {
            return;
        };
        if self.is_refused_here(&request, operation, (outcome, sense)) {
            self.free(slot);
            return hand_back(shard, request, Fate::NotExecuted);
        }
        let verdict = match outcome {
            TaskOutcome { intact: false, .. } => Verdict::Repeat(DiskStatus::MediaRead),
            TaskOutcome {
                delivered: false, ..
            } => Verdict::Repeat(DiskStatus::NotReady),
            _ => command::verdict(operation, Status(outcome.status), sense, disk),
        };
        match verdict {
            Verdict::Complete(DiskStatus::Ok) => {
                self.succeeded(shard, slot, request, operation, outcome.data_bytes);
            }
            Verdict::Complete(status) => self.complete(shard, slot, request, status),
            // The target may have carried out a compare-and-write that was aborted.
            Verdict::Repeat(status) if request.retries >= RETRIES || is_once(&request, status) => {
                self.complete(shard, slot, request, status);
            }
            Verdict::Repeat(_) => {
                request.retries += 1;
                self.free(slot);
                self.reconnection.waiting.push_back(request);
            }
            Verdict::Later if self.reconnection.has_waited_too_long(shard, &mut request) => {
                self.complete(shard, slot, request, DiskStatus::NotReady);
            }
            Verdict::Later => {
                self.free(slot);
                self.reconnection.waiting.push_front(request);
                self.pause(shard);
            }
            Verdict::Reserved => {
                self.report_reservation();
                self.complete(shard, slot, request, DiskStatus::Aborted);
            }
        }
    }

    /// Whether the pool has to send a request on another path: the access state of this one has
    /// refused its command. Earlier commands of the request may have been executed: the pool
    /// repeats them too, unless the request is a compare-and-write.
    fn is_refused_here(
        &self,
        request: &Request,
        operation: Operation,
        (outcome, sense): (TaskOutcome, Option<Sense>),
    ) -> bool {
        let is_repeatable = request.operation == operation
            || !matches!(request.operation, Operation::CompareAndWrite { .. });
        self.reconnection.path.is_some()
            && is_repeatable
            && outcome.status == Status::CHECK_CONDITION.0
            && sense.and_then(AccessState::from_sense).is_some()
    }

    /// A command has succeeded. The request completes, unless blocks or a flush are missing.
    fn succeeded(
        &mut self,
        shard: &mut Shard,
        slot: Slot,
        mut request: Request,
        operation: Operation,
        data_bytes: u32,
    ) {
        let Some(disk) = &self.plan.expected else {
            return;
        };
        if let Some(status) = missing_data(&request, operation, data_bytes, disk) {
            return self.complete(shard, slot, request, status);
        }
        if operation != Operation::Flush && command::needs_flush(operation, disk) {
            let lun = Lun::flat(disk.facts.lun);
            self.free(slot);
            return self.flush_cache(shard, request, lun);
        }
        let most = command::most_blocks(request.operation, disk);
        if request.advance(most) {
            self.free(slot);
            return self.reconnection.waiting.push_front(request);
        }
        self.complete(shard, slot, request, DiskStatus::Ok);
    }

    /// Flushes the cache behind a durable write. When that command cannot be sent, the request is
    /// repeated.
    fn flush_cache(&mut self, shard: &mut Shard, mut request: Request, lun: Lun) {
        let command = Command {
            lun,
            cdb: build::synchronize_cache(),
            transfer: Transfer::None,
        };
        let data = request.data.take();
        let flush = InFlight::Other(OwnCommand::Flush(request));
        if let Err(request) = self.send_command(shard, &command, data, flush) {
            if matches!(request.operation, Operation::CompareAndWrite { .. }) {
                return finish(shard, request, DiskStatus::Aborted);
            }
            self.reconnection.waiting.push_front(request);
        }
    }

    /// Completes a request at once, or later when its data is still being sent.
    fn complete(&mut self, shard: &mut Shard, slot: Slot, request: Request, status: DiskStatus) {
        if request.is_being_sent()
            && let Some(connection) = self.connections.first_mut()
        {
            return connection.keep(slot, request, status);
        }
        self.free(slot);
        finish(shard, request, status);
    }

    fn free(&mut self, slot: Slot) {
        if let Some(connection) = self.connections.first_mut() {
            connection.free(slot);
        }
    }

    fn report_reservation(&mut self) {
        if !std::mem::replace(&mut self.protocol.reservation_reported, true) {
            let sentence = "the disk is reserved by another initiator: release it there";
            self.reconnection.report(Weight::Warning, sentence);
        }
    }
}

/// Data of a command without payload: one block of zeroes for WRITE SAME, or a list with one range
/// for UNMAP.
fn parameters(
    shard: &mut Shard,
    operation: Operation,
    extent: Extent,
    disk: &KnownDisk,
) -> Option<Buf> {
    if operation == Operation::Deallocate {
        let list = build::unmap_list(extent);
        let mut buf = shard.take_buf(list.len())?;
        buf.bytes_mut()[..list.len()].copy_from_slice(&list);
        return Some(buf);
    }
    let bytes = disk.geometry.block_bytes as usize;
    let mut buf = shard.take_buf(bytes)?;
    buf.bytes_mut()[..bytes].fill(0);
    Some(buf)
}

/// The error of a command that succeeded without all its data: the rest of a read's buffer is old
/// memory, the rest of a write is lost.
fn missing_data(
    request: &Request,
    operation: Operation,
    data_bytes: u32,
    disk: &KnownDisk,
) -> Option<DiskStatus> {
    let blocks = u64::from(request.blocks) * u64::from(disk.geometry.block_bytes);
    let (bytes, status) = match operation {
        Operation::Read => (blocks, DiskStatus::MediaRead),
        Operation::Write { .. } => (blocks, DiskStatus::MediaWrite),
        Operation::CompareAndWrite { .. } => (blocks * 2, DiskStatus::MediaWrite),
        _ => return None,
    };
    (u64::from(data_bytes) != bytes).then_some(status)
}

/// Whether a request must not be repeated: the target may have carried it out.
fn is_once(request: &Request, status: DiskStatus) -> bool {
    matches!(request.operation, Operation::CompareAndWrite { .. }) && status != DiskStatus::NotReady
}

/// Repetitions of a command after transport errors and unit attentions.
const RETRIES: u8 = 8;
