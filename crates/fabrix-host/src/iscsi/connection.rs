//! One connection with a target, which is a session's only one, and the requests in its slots.
//!
//! Knows its transport ([`Link`]) and what each slot carries; does not know how a session comes up
//! (`session`) nor what is done with requests when the connection is lost (`outage`). All tables
//! are made when it is opened. The mirror of NVMe's `queue`.

use fabrix_block::{Operation, Status as DiskStatus};
use fabrix_proto::Slot;
use fabrix_proto::iscsi::framing::{Carrier, Framing};
use fabrix_proto::iscsi::initiator::{Event, Initiator, LoginConfig, Transfer};
use fabrix_proto::iscsi::pdu::Lun;
use fabrix_proto::scsi::cdb::build::Cdb;
use fabrix_rt::{Buf, Completion, Nanos, Shard, TaskId};
use fabrix_transport::{self as transport, Connection as _, Ended, Incoming, Outgoing};

use crate::request::Request;
use crate::wire::{OperationKind, Position, Route};

/// What a slot carries.
pub(crate) enum Carried {
    /// A request.
    Request(Request),
    /// A request that was done, and is being made durable: the disk has a cache and does not obey
    /// FUA.
    Flushing(Request),
    /// A request that was answered while its data is still being sent: it ends when the data is its
    /// caller's alone.
    Ended {
        request: Request,
        status: DiskStatus,
    },
    /// A command of the session itself: bring-up.
    Own,
    /// A look whether the disk has something to say.
    Look,
}

/// A command to be sent: to which logical unit, what, and how its data moves.
pub(crate) struct Command {
    pub(crate) lun: Lun,
    pub(crate) cdb: Cdb,
    pub(crate) transfer: Transfer,
}

/// The way to a target over some transport, from the first try to connect to the last operation.
pub(crate) trait Link: Sized + 'static {
    /// What carries PDUs once the transport has connected.
    type Stream: transport::Connection<Event = Event> + Carrier<Endpoint = Initiator>;

    /// Begins to connect.
    ///
    /// # Errors
    /// No socket, or what the transport has in its place, can be had.
    fn open(
        shard: &mut Shard,
        task: TaskId,
        position: Position,
        route: Route,
    ) -> std::io::Result<Self>;

    /// An operation has ended; true: the transport has just connected, and [`begin`](Self::begin)
    /// follows.
    ///
    /// # Errors
    /// The connection is over, or never came to be.
    fn completed(&mut self, ending: OperationKind, completion: Completion) -> Result<bool, Ended>;

    /// `initiator` speaks from now on, with so many slots.
    fn begin(&mut self, task: TaskId, initiator: Initiator, slots: usize) -> &mut Self::Stream;

    /// What carries PDUs, once the transport has connected.
    fn stream(&self) -> Option<&Self::Stream>;

    /// The same, to use it.
    fn stream_mut(&mut self) -> Option<&mut Self::Stream>;

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
}

pub(crate) struct Connection<L> {
    link: L,
    /// Until the transport has connected.
    login: Option<LoginConfig>,
    places: Vec<CommandEntry>,
    free: Vec<Slot>,
    /// How many places carry an ended request.
    ended: usize,
}

#[derive(Default)]
struct CommandEntry {
    carried: Option<Carried>,
    sent_at: Nanos,
}

impl<L: Link> Connection<L> {
    /// Opens a connection, to log in with `slots` commands in progress at most.
    ///
    /// # Errors
    /// No socket can be had.
    pub(crate) fn open(
        shard: &mut Shard,
        task: TaskId,
        position: Position,
        route: Route,
        (login, slots): (LoginConfig, u16),
    ) -> std::io::Result<Self> {
        Ok(Self {
            link: L::open(shard, task, position, route)?,
            login: Some(login),
            places: (0..slots).map(|_| CommandEntry::default()).collect(),
            free: (0..slots).rev().map(Slot).collect(),
            ended: 0,
        })
    }

    /// An operation of this connection has ended.
    ///
    /// # Errors
    /// The connection is over, or never came to be.
    pub(crate) fn completed(
        &mut self,
        task: TaskId,
        ending: OperationKind,
        completion: Completion,
    ) -> Result<(), Ended> {
        if self.link.completed(ending, completion)?
            && let Some(login) = self.login.take()
        {
            let slots = self.places.len();
            let most = u16::try_from(slots).unwrap_or(u16::MAX);
            let initiator = Initiator::new(most, login);
            let (initiator, mut out) = self.link.begin(task, initiator, slots).speak();
            initiator.start(&mut out);
        }
        Ok(())
    }

    /// The connection itself, to end it and to ask how far that is.
    pub(crate) fn link(&mut self) -> &mut L {
        &mut self.link
    }

    /// Sends what became ready, and receives.
    ///
    /// # Errors
    /// The connection is over.
    pub(crate) fn flush(&mut self, shard: &mut Shard) -> Result<(), Ended> {
        let stream = self.link.stream_mut();
        stream.map_or(Ok(()), |stream| stream.flush(shard))
    }

    /// The next event, if one is there.
    ///
    /// # Errors
    /// The connection is over.
    pub(crate) fn next(&mut self) -> Result<Option<Event>, Ended> {
        let stream = self.link.stream_mut();
        stream.map_or(Ok(None), transport::Connection::next)
    }

    /// The initiator and the framing that its calls need, once the transport has
    /// connected.
    pub(crate) fn speak(&mut self) -> Option<(&mut Initiator, impl Framing)> {
        Some(self.link.stream_mut()?.speak())
    }

    /// The initiator, to ask it.
    pub(crate) fn endpoint(&self) -> Option<&Initiator> {
        Some(self.link.stream()?.endpoint())
    }

    /// Ends the connection at once, with a reset when commands are in progress.
    pub(crate) fn close(&mut self) {
        let is_busy = self.is_busy();
        self.link.close(is_busy);
    }

    /// How many slots are free.
    pub(crate) fn room(&self) -> usize {
        self.free.len()
    }

    /// Whether anything is in progress.
    pub(crate) fn is_busy(&self) -> bool {
        self.free.len() < self.places.len()
    }

    /// Sends a command, with its data if it has any.
    ///
    /// # Errors
    /// There is no slot, no connection, or the target takes no command now: everything is given
    /// back.
    pub(crate) fn send(
        &mut self,
        now: Nanos,
        command: &Command,
        data: Option<Buf>,
        carried: Carried,
    ) -> Result<(), (Carried, Option<Buf>)> {
        let (Some(stream), Some(slot)) = (self.link.stream_mut(), self.free.pop()) else {
            return Err((carried, data));
        };
        match (data, &command.transfer) {
            (Some(buf), Transfer::Write { .. }) => stream.send_from(slot, Outgoing::Buf(buf, 0)),
            (Some(buf), _) => stream.receive_into(slot, Incoming::Buf(buf, 0)),
            (None, _) => {}
        }
        let (initiator, mut out) = stream.speak();
        let Command { lun, cdb, transfer } = command;
        let is_sent = initiator.command(slot, *lun, cdb, *transfer, &mut out);
        drop(out);
        if is_sent {
            let place = &mut self.places[usize::from(slot.0)];
            place.carried = Some(carried);
            place.sent_at = now;
            return Ok(());
        }
        let data = stream.release(slot);
        self.free.push(slot);
        Err((carried, data))
    }

    /// Takes what a slot carried, and its data; the slot is free only after [`free`](Self::free).
    pub(crate) fn take(&mut self, slot: Slot) -> (Option<Carried>, Option<Buf>) {
        let stream = self.link.stream_mut();
        let data = stream.and_then(|stream| stream.release(slot));
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

    /// Keeps a request that has ended in its slot, until its data is its caller's alone.
    pub(crate) fn keep_ended(&mut self, slot: Slot, request: Request, status: DiskStatus) {
        self.ended += 1;
        self.places[usize::from(slot.0)].carried = Some(Carried::Ended { request, status });
    }

    /// A request that has ended and whose data is its caller's alone by now.
    pub(crate) fn next_ended(&mut self) -> Option<(Request, DiskStatus)> {
        if self.ended == 0 {
            return None;
        }
        let is_over = |place: &CommandEntry| match &place.carried {
            Some(Carried::Ended { request, .. }) => !request.is_being_sent(),
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
        let waits =
            |place: &&CommandEntry| !matches!(&place.carried, None | Some(Carried::Ended { .. }));
        let sent = self.places.iter().filter(waits).map(|place| place.sent_at);
        sent.min()
    }

    /// Takes the next request out of a connection that has ended, with its data: to be tried again,
    /// or, with a status, to be ended. None: there is no more.
    ///
    /// What was answered has ended. A compare-and-write without an answer is not tried again: it
    /// may have happened, and then its comparison would fail.
    pub(crate) fn abandon(&mut self) -> Option<(Request, Option<DiskStatus>)> {
        for index in 0..self.places.len() {
            let (carried, data) = match &self.places[index].carried {
                None => continue,
                Some(_) => self.take(slot_at(index)),
            };
            let (mut request, status) = match carried {
                Some(Carried::Request(request) | Carried::Flushing(request)) => {
                    let once = matches!(request.operation, Operation::CompareAndWrite { .. });
                    (request, once.then_some(DiskStatus::Aborted))
                }
                Some(Carried::Ended { request, status }) => (request, Some(status)),
                Some(Carried::Own | Carried::Look) | None => continue,
            };
            request.data = request.data.or(data);
            return Some((request, status));
        }
        None
    }
}

fn slot_at(index: usize) -> Slot {
    Slot(u16::try_from(index).expect("a connection has at most 4096 slots"))
}
