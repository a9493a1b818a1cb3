//! One connection to a controller: an admin queue or an I/O queue, with the requests in its slots.
//!
//! Knows its transport ([`Link`]) and what each slot carries; does not know how a controller is
//! brought up (`session`) nor what is done with requests when the connection is lost (`outage`).
//! All tables are made when it is opened.

use std::time::Duration;

use fabrix_block::Status as DiskStatus;
use fabrix_proto::Slot;
use fabrix_proto::nvme::queue::{HostEvent, HostQueue, HostTransfer};
use fabrix_proto::nvme::spec::{CompletionEntry, SubmissionEntry};
use fabrix_rt::{Buf, Completion, Nanos, Shard, TaskId, Token};
use fabrix_transport::{Connection, Ended, Incoming, Outgoing};

use super::command;
use crate::Options;
use crate::request::Request;
use crate::wire::{OperationKind, Position, Route};

/// One connection to a controller over some transport, from the first try to connect to the last
/// operation.
pub(crate) trait Link: Sized + 'static {
    /// What carries commands once the transport has connected.
    type Queue: Connection<Event = HostEvent> + HostQueue;

    /// Begins to connect, for a queue of so many slots.
    ///
    /// # Errors
    /// No socket, or what the transport has in its place, can be had.
    fn open(
        shard: &mut Shard,
        task: TaskId,
        position: Position,
        route: Route,
        what: (&Options, u16),
    ) -> std::io::Result<Self>;

    /// An operation of this connection has ended.
    ///
    /// # Errors
    /// The connection is over, or never came to be.
    fn completed(
        &mut self,
        task: TaskId,
        ending: OperationKind,
        completion: Completion,
    ) -> Result<(), Ended>;

    /// The queue, once the transport has connected.
    fn queue(&self) -> Option<&Self::Queue>;

    /// The same, to use it.
    fn queue_mut(&mut self) -> Option<&mut Self::Queue>;

    /// Ends the connection at once; with commands in progress (`is_busy`) in a way that keeps the
    /// target from going on with them.
    fn close(&mut self, is_busy: bool);

    /// Ends the connection in order; what was handed over is still sent.
    fn shut(&mut self);

    /// Begins a farewell: what waits to be sent is sent, what arrives is dropped. `shut` follows.
    fn part(&mut self, shard: &mut Shard);

    /// True when a farewell has been handed over.
    fn has_parted(&self) -> bool;

    /// True when the kernel or the adapter holds none of the connection's memory.
    fn is_quiet(&self) -> bool;

    /// The sentence for a peer that takes connections and does not speak the transport's protocol.
    fn not_a_target(within: Duration) -> String;
}

/// What a slot carries.
pub(crate) enum Carried {
    /// A request.
    Request(Request),
    /// The compare of a pair, and which slot its write has.
    Compare { write: Slot },
    /// The write of a pair, and how the halves ended that have.
    Write {
        request: Request,
        compare: Option<DiskStatus>,
        write: Option<DiskStatus>,
    },
    /// A request that was answered while its data is still being sent: it ends when the data is its
    /// caller's alone.
    Ended {
        request: Request,
        status: DiskStatus,
    },
    /// A command of the session itself: bring-up, keep-alive.
    Own,
    /// One of the commands by which the session hears of changes; the request for an event may wait
    /// for ever.
    Watch(Watch),
}

/// A command by which a session hears of changes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Watch {
    /// Events are switched on.
    Enable,
    /// Answered when something happens.
    Event,
    /// Which namespaces have changed.
    List,
}

pub(crate) struct Queue<L> {
    link: L,
    places: Vec<CommandEntry>,
    free: Vec<Slot>,
    /// How many places carry an ended request.
    ended: usize,
    /// Commands of requests that were not handed to the kernel yet.
    unsent: u64,
    /// Answers to requests, so far.
    answers: u64,
}

#[derive(Default)]
struct CommandEntry {
    carried: Option<Carried>,
    sent_at: Nanos,
}

impl<L: Link> Queue<L> {
    /// Opens a connection.
    ///
    /// # Errors
    /// No socket can be had.
    pub(crate) fn open(
        shard: &mut Shard,
        task: TaskId,
        position: Position,
        route: Route,
        (options, slots): (&Options, u16),
    ) -> std::io::Result<Self> {
        Ok(Self {
            link: L::open(shard, task, position, route, (options, slots))?,
            places: (0..slots).map(|_| CommandEntry::default()).collect(),
            free: (0..slots).rev().map(Slot).collect(),
            ended: 0,
            unsent: 0,
            answers: 0,
        })
    }

    /// An operation of this queue has ended.
    ///
    /// # Errors
    /// The connection is over, or never came to be.
    pub(crate) fn completed(
        &mut self,
        task: TaskId,
        ending: OperationKind,
        completion: Completion,
    ) -> Result<(), Ended> {
        self.link.completed(task, ending, completion)
    }

    /// The answer that was the last event.
    ///
    /// # Panics
    /// There was none: there is no connection.
    #[inline(always)]
    pub(crate) fn entry(&self) -> CompletionEntry {
        *self.link.queue().expect("an answer came").entry()
    }

    /// The next event, if one is there.
    ///
    /// # Errors
    /// The connection is over.
    #[inline(always)]
    pub(crate) fn next(&mut self) -> Result<Option<HostEvent>, Ended> {
        self.link.queue_mut().map_or(Ok(None), Connection::next)
    }

    /// Answers to requests, so far.
    pub(crate) fn answers(&self) -> u64 {
        self.answers
    }

    /// Sends what became ready, and receives.
    ///
    /// # Errors
    /// The connection is over.
    pub(crate) fn flush(&mut self, shard: &mut Shard) -> Result<(), Ended> {
        let queue = self.link.queue_mut();
        queue.map_or(Ok(()), |queue| queue.flush(shard))
    }

    /// How many commands of requests were handed to the kernel since this was asked last; all of
    /// them, or none while something waits to be sent.
    pub(crate) fn handed_over(&mut self) -> u64 {
        if self.link.queue().is_some_and(Connection::has_unsent) {
            return 0;
        }
        std::mem::take(&mut self.unsent)
    }

    /// Ends the connection at once, with a reset when commands are in progress.
    pub(crate) fn close(&mut self) {
        let is_busy = self.is_busy();
        self.link.close(is_busy);
    }

    /// The connection itself, to end it and to ask how far that is.
    pub(crate) fn link(&mut self) -> &mut L {
        &mut self.link
    }

    /// True when the kernel holds none of this queue's memory.
    pub(crate) fn is_quiet(&self) -> bool {
        self.link.is_quiet()
    }

    /// True once the transport has connected.
    pub(crate) fn is_connected(&self) -> bool {
        self.link.queue().is_some()
    }

    /// True once the controller has agreed to speak the transport's protocol.
    pub(crate) fn is_initialized(&self) -> bool {
        self.link.queue().is_some_and(HostQueue::is_ready)
    }

    /// From now on writes travel in their capsules when they fit so many bytes.
    pub(crate) fn set_in_capsule(&mut self, bytes: u32) {
        if let Some(queue) = self.link.queue_mut() {
            queue.set_in_capsule(bytes);
        }
    }

    /// How many slots are free.
    pub(crate) fn room(&self) -> usize {
        self.free.len()
    }

    /// How many slots there are.
    pub(crate) fn slots(&self) -> usize {
        self.places.len()
    }

    /// Whether anything is in progress that the target should not go on with.
    fn is_busy(&self) -> bool {
        let works = |place: &CommandEntry| !matches!(place.carried, None | Some(Carried::Watch(_)));
        self.places.iter().any(works)
    }

    /// Sends a command of the session itself; None, and nothing sent: as [`start`](Self::start).
    pub(crate) fn send(
        &mut self,
        now: Nanos,
        entry: &mut SubmissionEntry,
        transfer: HostTransfer,
        data: Option<(Buf, usize)>,
        own: Carried,
    ) -> Option<Slot> {
        let slot = self.start(now, entry, transfer, data).ok()?;
        self.put(slot, own);
        Some(slot)
    }

    /// Sends a command, with its data if it has any; with the data comes where in it the command's
    /// part begins. What its slot carries follows: nothing that large is moved through here.
    ///
    /// # Errors
    /// There is no slot, or no connection: the data is given back.
    #[inline(always)]
    pub(crate) fn start(
        &mut self,
        now: Nanos,
        entry: &mut SubmissionEntry,
        transfer: HostTransfer,
        data: Option<(Buf, usize)>,
    ) -> Result<Slot, Option<Buf>> {
        let (Some(queue), Some(slot)) = (self.link.queue_mut(), self.free.pop()) else {
            return Err(data.map(|(buf, _)| buf));
        };
        match (data, transfer) {
            (Some((buf, start)), HostTransfer::Write { .. }) => {
                queue.send_from(slot, Outgoing::Buf(buf, start));
            }
            (Some((buf, start)), _) => queue.receive_into(slot, Incoming::Buf(buf, start)),
            (None, _) => {}
        }
        if queue.submit(slot, entry, transfer) {
            self.places[usize::from(slot.0)].sent_at = now;
            return Ok(slot);
        }
        let data = queue.release(slot);
        self.free.push(slot);
        Err(data)
    }

    /// The command just started in a slot is that of a request, or its last.
    #[inline(always)]
    pub(crate) fn carry(&mut self, slot: Slot, request: Carried) {
        self.unsent += 1;
        let carried = &mut self.places[usize::from(slot.0)].carried;
        debug_assert!(carried.is_none(), "{slot:?} is in use");
        // There is nothing to drop: said so, it is made where it stays.
        if carried.is_none() {
            *carried = Some(request);
        }
    }

    /// The request in a slot whose command was answered, with its data; it stays there. None: the
    /// slot carries something else, or nothing.
    #[inline(always)]
    pub(crate) fn answered(&mut self, slot: Slot) -> Option<&mut Request> {
        let place = &mut self.places[usize::from(slot.0)];
        let Some(Carried::Request(request)) = &mut place.carried else {
            return None;
        };
        self.answers += 1;
        if let Some(queue) = self.link.queue_mut() {
            request.data = queue.release(slot);
        }
        Some(request)
    }

    /// Ends the request in a slot: who is to be told, and what. None: its data is still being sent,
    /// it ends after that.
    #[inline(always)]
    pub(crate) fn end(&mut self, slot: Slot, status: DiskStatus) -> Option<(Token, Completion)> {
        let carried = &mut self.places[usize::from(slot.0)].carried;
        if let Some(Carried::Request(request)) = carried
            && !request.is_being_sent()
        {
            let ending = request.ending(status);
            *carried = None;
            self.free.push(slot);
            return Some(ending);
        }
        if let Some(Carried::Request(request)) = carried.take() {
            self.put(slot, Carried::Ended { request, status });
        }
        None
    }

    /// Takes the request out of a slot, which is free then.
    pub(crate) fn withdraw(&mut self, slot: Slot) -> Request {
        let Some(Carried::Request(request)) = self.places[usize::from(slot.0)].carried.take()
        else {
            unreachable!("who withdraws a request has just looked at it");
        };
        self.free.push(slot);
        request
    }

    /// Takes what a slot carried, and its data; the slot is free only after [`free`](Self::free).
    pub(crate) fn take(&mut self, slot: Slot) -> (Option<Carried>, Option<Buf>) {
        let queue = self.link.queue_mut();
        let data = queue.and_then(|queue| queue.release(slot));
        (self.places[usize::from(slot.0)].carried.take(), data)
    }

    /// Gives a slot away whose content was taken.
    pub(crate) fn free(&mut self, slot: Slot) {
        debug_assert!(
            self.places[usize::from(slot.0)].carried.is_none(),
            "{slot:?} is in use"
        );
        self.free.push(slot);
    }

    /// Puts what a slot carries back, or something else in its place.
    pub(crate) fn put(&mut self, slot: Slot, carried: Carried) {
        self.ended += usize::from(matches!(carried, Carried::Ended { .. }));
        self.places[usize::from(slot.0)].carried = Some(carried);
    }

    /// What a slot carries, to look at and to change.
    pub(crate) fn carried(&mut self, slot: Slot) -> &mut Option<Carried> {
        &mut self.places[usize::from(slot.0)].carried
    }

    /// A request that has ended and whose data is its caller's alone by now.
    pub(crate) fn next_ended(&mut self) -> Option<(Request, DiskStatus)> {
        if self.ended == 0 {
            return None;
        }
        let is_over = |place: &CommandEntry| match &place.carried {
            Some(Carried::Ended { request, .. }) => {
                request.data.as_ref().is_none_or(Buf::is_unique)
            }
            _ => false,
        };
        let index = self.places.iter().position(is_over)?;
        let Some(Carried::Ended { request, status }) = self.places[index].carried.take() else {
            return None;
        };
        self.ended -= 1;
        self.free.push(slot_at(index));
        Some((request, status))
    }

    /// When the command was sent that has waited longest for its answer.
    pub(crate) fn oldest(&self) -> Option<Nanos> {
        let waits = |place: &&CommandEntry| match &place.carried {
            None | Some(Carried::Ended { .. } | Carried::Write { write: Some(_), .. }) => false,
            Some(_) => true,
        };
        self.places
            .iter()
            .filter(waits)
            .map(|place| place.sent_at)
            .min()
    }

    /// Takes the next request out of a connection that has ended, with its data: to be tried again,
    /// or, with a status, to be ended. None: there is no more.
    ///
    /// What was answered has ended. A pair without an answer is not tried again: its write may have
    /// happened, and then its comparison would fail.
    pub(crate) fn abandon(&mut self) -> Option<(Request, Option<DiskStatus>)> {
        for index in 0..self.places.len() {
            let (carried, data) = match &self.places[index].carried {
                None => continue,
                Some(_) => self.take(slot_at(index)),
            };
            let (mut request, status) = match carried {
                Some(Carried::Request(request)) => (request, None),
                Some(Carried::Write {
                    request,
                    compare,
                    write,
                }) => (request, Some(command::pair_status(compare, write))),
                Some(Carried::Ended { request, status }) => (request, Some(status)),
                Some(Carried::Compare { .. } | Carried::Own | Carried::Watch(_)) | None => continue,
            };
            request.data = request.data.or(data);
            return Some((request, status));
        }
        None
    }

    /// Why the controller ended the connection, as a sentence.
    pub(crate) fn goodbye(&self) -> String {
        match self.link.queue().and_then(HostQueue::termination) {
            Some(why) => format!("the target ended the connection: {why}"),
            None => "the target ended the connection".to_owned(),
        }
    }
}

fn slot_at(index: usize) -> Slot {
    Slot(u16::try_from(index).expect("a queue has at most 4096 slots"))
}

#[cfg(test)]
mod tests;
