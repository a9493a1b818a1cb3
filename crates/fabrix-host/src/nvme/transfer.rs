//! Requests of a disk's user through a session: out as commands, back as endings.
//!
//! The third part of `session`: what a request waits for and how it ends. Nothing is allocated for
//! a request; its data travels in the buffer it came with, or in one from the shard.

use fabrix_block::{Operation, Request as BlockRequest, Status as DiskStatus, Submit};
use fabrix_proto::Slot;
use fabrix_rt::{Buf, Shard};

use super::command;
use super::pair::is_pair;
use super::queue::{Carried, Link, Queue};
use super::seen::Seen;
use super::session::{Answer, Session};
use crate::channel::Carrier;
use crate::outage::{LEAVING_MOST, State};
use crate::request::{Data, Request, finish};
use crate::timers::Timer;

impl<L: Link> Carrier for Session<L> {
    fn submit<'a>(&mut self, shard: &mut Shard, request: BlockRequest<'a>) -> Submit<'a> {
        if let Some(status) = self.refusal(&request) {
            return request.done(status);
        }
        let flows = self.reconnection.state == State::Live
            && !self.leaving
            && self.reconnection.waiting.is_empty();
        let mut queue = None;
        let has_room = if flows {
            queue = self.queue_with_room(request.operation);
            queue.is_some()
        } else if self.reconnection.lost_too_long(shard) {
            return request.done(DiskStatus::NotReady);
        } else {
            self.reconnection.waiting.len() < self.reconnection.capacity
        };
        if !has_room {
            return Submit::Busy(request);
        }
        let mut theirs = request;
        let Some(data) = self.data_of(shard, &mut theirs) else {
            return self.later(theirs);
        };
        if let Some(trace) = &self.plan.options.trace {
            trace.submitted();
        }
        match queue {
            None => {
                let request = Request::new(&theirs, data);
                self.reconnection.waiting.push_back(request);
            }
            Some(queue) => self.send_new(shard, queue, &theirs, data),
        }
        Submit::Pending
    }

    fn forsake(&mut self) {
        self.forsaken = true;
        self.queues.iter_mut().for_each(Queue::close);
    }
}

impl<L: Link> Session<L> {
    /// The answer to a request that need not travel, if it is one.
    #[inline(always)]
    fn refusal(&self, request: &BlockRequest<'_>) -> Option<DiskStatus> {
        let Some(seen) = &self.plan.expected else {
            return Some(DiskStatus::Internal);
        };
        if let Some(status) = request.refusal(&seen.geometry) {
            return Some(status);
        }
        let pair = is_pair(request.operation);
        let lacks = |facts| !command::is_supported(request.operation, facts);
        if pair && !seen.compares_and_writes
            || self.facts().is_some_and(|facts| lacks(&facts.controller))
        {
            return Some(DiskStatus::Unsupported);
        }
        let nothing = request.blocks == 0 && request.operation != Operation::Flush;
        nothing.then_some(DiskStatus::Ok)
    }

    /// There is no memory for a request: `Busy`, if an ending of this channel will come to try
    /// again after.
    fn later<'a>(&self, request: BlockRequest<'a>) -> Submit<'a> {
        let room: usize = self.io_queues().map(Queue::room).sum();
        let all = self.io_queues().map(Queue::slots).sum();
        if self.reconnection.waiting.is_empty() && room == all {
            request.done(DiskStatus::NotReady)
        } else {
            Submit::Busy(request)
        }
    }

    /// The data of a request, in a buffer; None: there is no memory for one.
    #[inline(always)]
    fn data_of(&self, shard: &mut Shard, request: &mut BlockRequest<'_>) -> Option<Data> {
        let seen = self.seen();
        let range = match request.operation {
            Operation::Deallocate => {
                Some(command::range(shard, (request.lba, request.blocks), seen)?)
            }
            _ => None,
        };
        let mut data = Data::take(shard, request, &seen.geometry)?;
        if range.is_some() {
            data.moved = range;
        }
        Some(data)
    }

    fn seen(&self) -> &Seen {
        let seen = self.plan.expected.as_ref();
        seen.expect("only sessions of a disk take requests")
    }

    fn io_queues(&self) -> impl Iterator<Item = &Queue<L>> {
        self.queues.iter().skip(1)
    }

    /// The next I/O queue after the last one used that has room for what an operation sends.
    fn queue_with_room(&self, operation: Operation) -> Option<usize> {
        let slots = if is_pair(operation) { 2 } else { 1 };
        let count = self.queues.len();
        let next = (self.last_queue + 1).min(count);
        (next..count)
            .chain(1..next)
            .find(|index| self.queues[*index].room() >= slots)
    }

    /// Sends what waits, as far as there is room.
    pub(crate) fn send_waiting(&mut self, shard: &mut Shard) {
        while self.reconnection.state == State::Live
            && !self.leaving
            && let Some(request) = self.reconnection.waiting.front()
            && let Some(queue) = self.queue_with_room(request.operation)
            && let Some(request) = self.reconnection.waiting.pop_front()
        {
            if let Err(request) = self.send(shard, queue, request) {
                return self.reconnection.waiting.push_front(request);
            }
        }
    }

    /// Sends a request that has just come on an I/O queue that has room; without a connection it
    /// waits. Most requests go this way: ours is made where it stays.
    #[inline(always)]
    fn send_new(
        &mut self,
        shard: &mut Shard,
        index: usize,
        theirs: &BlockRequest<'_>,
        mut data: Data,
    ) {
        let what = (theirs.operation, theirs.lba, theirs.blocks);
        let sent = if is_pair(theirs.operation) {
            let request = Request::new(theirs, data);
            self.send_pair(shard, index, request)
        } else {
            match self.command(shard, index, what, data.moved.take()) {
                Ok(slot) => {
                    let request = Request::new(theirs, data);
                    self.queues[index].carry(slot, Carried::Request(request));
                    return;
                }
                Err(moved) => {
                    data.moved = moved;
                    Err(Request::new(theirs, data))
                }
            }
        };
        if let Err(request) = sent {
            self.reconnection.waiting.push_front(request);
        }
    }

    /// Sends a request that has waited on an I/O queue that has room; gives it back when there is
    /// no connection.
    fn send(
        &mut self,
        shard: &mut Shard,
        index: usize,
        mut request: Request,
    ) -> Result<(), Request> {
        if is_pair(request.operation) {
            return self.send_pair(shard, index, request);
        }
        let what = (request.operation, request.lba, request.blocks);
        match self.command(shard, index, what, request.data.take()) {
            Ok(slot) => {
                self.queues[index].carry(slot, Carried::Request(request));
                Ok(())
            }
            Err(data) => {
                request.data = data;
                Err(request)
            }
        }
    }

    /// Sends the command of a request, as much of it as one command covers; gives the data back
    /// when there is no connection. What the slot carries is the caller's to say.
    #[inline(always)]
    fn command(
        &mut self,
        shard: &mut Shard,
        index: usize,
        (operation, lba, blocks): (Operation, u64, u32),
        data: Option<Buf>,
    ) -> Result<Slot, Option<Buf>> {
        let Some(seen) = &self.plan.expected else {
            return Err(data);
        };
        let at = (lba, blocks.min(command::most_blocks(operation, seen)));
        let block_bytes = seen.geometry.block_bytes;
        let (mut entry, transfer) = command::entry(operation, seen.nsid, at, block_bytes);
        let data = data.map(|buf| (buf, 0));
        self.last_queue = index;
        shard.flush_later(self.reconnection.task);
        self.queues[index].start(shard.now(), &mut entry, transfer, data)
    }

    /// The command in a slot of a queue was answered; false, and nothing done: it is not that of a
    /// request.
    #[inline(always)]
    pub(super) fn request_answered(
        &mut self,
        shard: &mut Shard,
        (index, slot): (usize, Slot),
        answer: Answer<'_>,
    ) -> bool {
        let Some(request) = self.queues[index].answered(slot) else {
            return false;
        };
        self.reconnection.has_lived();
        if let Some(trace) = &self.plan.options.trace {
            trace.received(shard.now());
        }
        let mut next = next_step(request, answer, self.plan.expected.as_deref());
        if command::is_leaving(answer.0) {
            if self.reconnection.has_lost_its_time(shard, request) {
                next = Next::End(DiskStatus::NotReady);
            }
            self.leave(shard);
        }
        match next {
            Next::End(status) => self.end(shard, (index, slot), status),
            Next::First => {
                let request = self.queues[index].withdraw(slot);
                self.go_on(shard, request);
            }
            Next::Behind => {
                let request = self.queues[index].withdraw(slot);
                self.reconnection.waiting.push_back(request);
            }
        }
        self.send_waiting(shard);
        true
    }

    /// A command has covered a part of its request: the next part is sent before what came later.
    fn go_on(&mut self, shard: &mut Shard, mut request: Request) {
        if request.operation == Operation::Deallocate {
            // The buffer of the last range may still be part of a send.
            request.data = command::range(shard, (request.lba, request.blocks), self.seen());
            if request.data.is_none() {
                return finish(shard, request, DiskStatus::NotReady);
            }
        }
        self.reconnection.waiting.push_front(request);
    }

    /// The controller ends its queues: it has so long to close them.
    fn leave(&mut self, shard: &mut Shard) {
        if !std::mem::replace(&mut self.leaving, true) {
            self.reconnection
                .set_timer(shard, Timer::Leave, LEAVING_MOST);
        }
    }

    /// Ends the request in a slot; at once, unless its data is still being sent.
    #[inline(always)]
    pub(super) fn end(
        &mut self,
        shard: &mut Shard,
        (index, slot): (usize, Slot),
        status: DiskStatus,
    ) {
        if let Some((token, completion)) = self.queues[index].end(slot, status) {
            if let Some(trace) = &self.plan.options.trace {
                trace.ended();
            }
            shard.complete(token, completion);
        }
    }

    /// A send of a queue has ended: so have the requests whose data it held.
    pub(crate) fn finish_ended(&mut self, shard: &mut Shard, index: usize) {
        let mut has_room = false;
        while let Some((request, status)) = self.queues[index].next_ended() {
            if let Some(trace) = &self.plan.options.trace {
                trace.ended();
            }
            finish(shard, request, status);
            has_room = true;
        }
        if has_room {
            self.send_waiting(shard);
        }
    }
}

/// What becomes of a request whose command was answered.
enum Next {
    /// It has ended.
    End(DiskStatus),
    /// It is sent again, before those that came later: its command did not cover all blocks.
    First,
    /// It is sent again behind what waits already.
    Behind,
}

/// What an answer means for its request, which goes on from there.
fn next_step(request: &mut Request, answer: Answer<'_>, seen: Option<&Seen>) -> Next {
    let (entry, _, intact) = answer;
    if command::is_leaving(entry) {
        return Next::Behind;
    }
    let is_spoiled = !intact || command::worth_retrying(entry);
    if is_spoiled && request.retries < RETRIES {
        request.retries += 1;
        return Next::Behind;
    }
    let status = status(request, answer, seen);
    let most = seen.map_or(u32::MAX, |seen| {
        command::most_blocks(request.operation, seen)
    });
    if status.is_ok() && request.blocks > most {
        request.lba += u64::from(most);
        request.blocks -= most;
        return Next::First;
    }
    Next::End(status)
}

fn status(
    request: &Request,
    (entry, data_bytes, intact): Answer<'_>,
    seen: Option<&Seen>,
) -> DiskStatus {
    let block_bytes = seen.map_or(0, |seen| seen.geometry.block_bytes);
    let bytes = u64::from(request.blocks) * u64::from(block_bytes);
    match command::disk_status(request.operation, entry) {
        DiskStatus::Ok if !intact => DiskStatus::MediaRead,
        // Success without all the data is no success: the rest of the buffer is old memory.
        DiskStatus::Ok
            if request.operation == Operation::Read && u64::from(data_bytes) != bytes =>
        {
            DiskStatus::MediaRead
        }
        status => status,
    }
}

/// How often a command is sent again that the transport spoiled.
const RETRIES: u8 = 3;
