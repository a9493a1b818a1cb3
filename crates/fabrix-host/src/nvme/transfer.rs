//! Requests of a disk's user as NVMe commands, and answers as completions of requests.
//!
//! A part of `session`. Nothing is allocated for a request.

use fabrix_block::{Geometry, Operation, Request as BlockRequest, Status as DiskStatus};
use fabrix_proto::Slot;
use fabrix_proto::nvme::spec::CompletionEntry;
use fabrix_rt::{Buf, Shard};

use super::command;
use super::fused::is_fused;
use super::known_disk::KnownDisk;
use super::plan::Plan;
use super::queue::NvmeLink;
use super::session::{Answer, Nvme, Session};
use crate::connection::InFlight;
use crate::multipath::link::Fate;
use crate::request::{Data, Request, finish, hand_back};
use crate::session::CommandSet;

impl<L: NvmeLink> CommandSet<L> for Nvme {
    const FIRST_IO: usize = 1;

    #[inline(always)]
    fn geometry(plan: &Plan) -> Option<&Geometry> {
        Some(&plan.expected.as_ref()?.geometry)
    }

    #[inline(always)]
    fn is_supported(session: &Session<L>, request: &BlockRequest<'_>) -> bool {
        let disk = session.plan.expected.as_ref();
        let facts = session.protocol.facts.as_ref();
        let fits = !is_fused(request.operation) || disk.is_some_and(|it| it.compares_and_writes);
        fits && facts.is_none_or(|it| command::is_supported(request.operation, &it.controller))
    }

    #[inline(always)]
    fn slots_of(operation: Operation) -> usize {
        if is_fused(operation) { 2 } else { 1 }
    }

    #[inline(always)]
    fn take_data(
        session: &Session<L>,
        shard: &mut Shard,
        request: &mut BlockRequest<'_>,
    ) -> Option<Data> {
        let disk = session.plan.expected.as_ref()?;
        let range = match request.operation {
            Operation::Deallocate => {
                Some(command::range(shard, (request.lba, request.blocks), disk)?)
            }
            _ => None,
        };
        let mut data = Data::take(shard, request, &disk.geometry)?;
        if range.is_some() {
            data.moved = range;
        }
        if let Some(trace) = &session.plan.options.trace {
            trace.submitted();
        }
        Some(data)
    }

    /// Most requests take this way, so the request is built in its slot.
    #[inline(always)]
    fn send_new(
        session: &mut Session<L>,
        shard: &mut Shard,
        index: usize,
        new: &BlockRequest<'_>,
        mut data: Data,
    ) {
        let range = (new.lba, new.blocks);
        let sent = if is_fused(new.operation) {
            session.send_fused(shard, index, Request::new(new, data))
        } else {
            match session.command(shard, index, (new.operation, range), data.moved.take()) {
                Ok(slot) => {
                    let request = Request::new(new, data);
                    session.connections[index].carry(slot, InFlight::Request(request));
                    return;
                }
                Err(moved) => {
                    data.moved = moved;
                    Err(Request::new(new, data))
                }
            }
        };
        if let Err(request) = sent {
            session.reconnection.waiting.push_front(request);
        }
    }

    fn send(
        session: &mut Session<L>,
        shard: &mut Shard,
        index: usize,
        mut request: Request,
    ) -> Result<(), Request> {
        if is_fused(request.operation) {
            return session.send_fused(shard, index, request);
        }
        let range = (request.lba, request.blocks);
        match session.command(
            shard,
            index,
            (request.operation, range),
            request.data.take(),
        ) {
            Ok(slot) => {
                session.connections[index].carry(slot, InFlight::Request(request));
                Ok(())
            }
            Err(data) => {
                request.data = data;
                Err(request)
            }
        }
    }
}

impl<L: NvmeLink> Session<L> {
    /// Sends one command for as many blocks of a request as it can cover. Gives the data back
    /// without a connection. The caller sets the content of the slot.
    #[inline(always)]
    fn command(
        &mut self,
        shard: &mut Shard,
        index: usize,
        (operation, (lba, blocks)): (Operation, (u64, u32)),
        data: Option<Buf>,
    ) -> Result<Slot, Option<Buf>> {
        let Some(disk) = &self.plan.expected else {
            return Err(data);
        };
        let range = (lba, blocks.min(command::most_blocks(operation, disk)));
        let block_bytes = disk.geometry.block_bytes;
        let (mut entry, transfer) = command::entry(operation, disk.nsid, range, block_bytes);
        let data = data.map(|buf| (buf, 0));
        self.last_used = index;
        shard.flush_later(self.reconnection.task);
        self.connections[index].start(shard.now(), &mut entry, transfer, data)
    }

    /// Processes the answer to the command of a request. False, with nothing done: the slot has
    /// another content.
    #[inline(always)]
    pub(super) fn request_answered(
        &mut self,
        shard: &mut Shard,
        (index, slot): (usize, Slot),
        answer: Answer<'_>,
    ) -> bool {
        let Some(request) = self.connections[index].answered(slot) else {
            return false;
        };
        self.reconnection.is_useful();
        if let Some(trace) = &self.plan.options.trace {
            trace.received(shard.now());
        }
        let mut outcome = next_step(request, answer, self.plan.expected.as_deref());
        if command::is_queue_deleted(answer.0) {
            if self.reconnection.has_waited_too_long(shard, request) {
                outcome = Outcome::Complete(DiskStatus::NotReady);
            }
            self.quiesce(shard);
        }
        match outcome {
            Outcome::Complete(_) if self.is_refused_here(answer.0) => {
                self.refused_here(shard, (index, slot));
            }
            Outcome::Complete(status) => self.complete(shard, (index, slot), status),
            Outcome::Next => {
                let request = self.connections[index].withdraw(slot);
                self.continue_request(shard, request);
            }
            Outcome::Repeat => {
                let request = self.connections[index].withdraw(slot);
                self.reconnection.waiting.push_back(request);
            }
        }
        self.send_waiting(shard);
        true
    }

    /// Whether the pool has to send a request on another path: the controller has not executed its
    /// command. Earlier commands of the request may have been executed: the pool repeats them too.
    pub(super) fn is_refused_here(&self, entry: &CompletionEntry) -> bool {
        self.reconnection.path.is_some() && entry.status().is_path_related()
    }

    /// Gives the request in a slot back to the pool.
    pub(super) fn refused_here(&mut self, shard: &mut Shard, (index, slot): (usize, Slot)) {
        let request = self.connections[index].withdraw(slot);
        hand_back(shard, request, Fate::NotExecuted);
        self.read_states_again(shard);
    }

    /// A command has covered a part of its request. The next command goes ahead of later requests.
    fn continue_request(&mut self, shard: &mut Shard, mut request: Request) {
        if request.operation == Operation::Deallocate {
            // A send may still hold the buffer of the last range.
            let range = (request.lba, request.blocks);
            let disk = self.plan.expected.as_ref();
            request.data = disk.and_then(|disk| command::range(shard, range, disk));
            if request.data.is_none() {
                return finish(shard, request, DiskStatus::NotReady);
            }
        }
        self.reconnection.waiting.push_front(request);
    }

    /// Completes the request in a slot at once, or later when its data is still being sent.
    #[inline(always)]
    pub(super) fn complete(
        &mut self,
        shard: &mut Shard,
        (index, slot): (usize, Slot),
        status: DiskStatus,
    ) {
        if let Some((token, completion)) = self.connections[index].complete(slot, status) {
            if let Some(trace) = &self.plan.options.trace {
                trace.ended();
            }
            shard.complete(token, completion);
        }
    }
}

/// Consequence of an answer for its request.
enum Outcome {
    /// The request completes.
    Complete(DiskStatus),
    /// The command did not cover all blocks. The next one goes ahead of later requests.
    Next,
    /// The command is repeated, behind the requests that wait.
    Repeat,
}

/// The consequence of an answer. Moves the start of a request that continues.
fn next_step(request: &mut Request, answer: Answer<'_>, disk: Option<&KnownDisk>) -> Outcome {
    let (entry, _, intact) = answer;
    if command::is_queue_deleted(entry) {
        return Outcome::Repeat;
    }
    let is_transport_error = !intact || command::worth_retrying(entry);
    if is_transport_error && request.retries < RETRIES {
        request.retries += 1;
        return Outcome::Repeat;
    }
    let status = status(request, answer, disk);
    let most = disk.map_or(u32::MAX, |disk| {
        command::most_blocks(request.operation, disk)
    });
    if status.is_ok() && request.advance(most) {
        return Outcome::Next;
    }
    Outcome::Complete(status)
}

fn status(
    request: &Request,
    (entry, data_bytes, intact): Answer<'_>,
    disk: Option<&KnownDisk>,
) -> DiskStatus {
    let block_bytes = disk.map_or(0, |disk| disk.geometry.block_bytes);
    let bytes = u64::from(request.blocks) * u64::from(block_bytes);
    match command::disk_status(request.operation, entry) {
        DiskStatus::Ok if !intact => DiskStatus::MediaRead,
        // Success without all the data is an error: the rest of the buffer is old memory.
        DiskStatus::Ok
            if request.operation == Operation::Read && u64::from(data_bytes) != bytes =>
        {
            DiskStatus::MediaRead
        }
        status => status,
    }
}

/// Repetitions of a command after transport errors.
const RETRIES: u8 = 3;
