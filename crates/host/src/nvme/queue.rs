//! One connection to a controller: an admin queue or an I/O queue, with the requests in its slots.
//!
//! Knows its socket, its machine and what each slot carries; does not know how a controller is brought up (`session`)
//! nor what is done with requests when the connection is lost (`outage`). All tables are made when it is opened.

use std::net::SocketAddr;
use std::time::Duration;

use fabrix_block::{Operation, Status as DiskStatus};
use fabrix_proto::Slot;
use fabrix_proto::nvme::spec::SubmissionEntry;
use fabrix_proto::nvme::tcp::host::{Event, Host, HostLimits, HostTransfer};
use fabrix_rt::{Buf, Completion, Nanos, Op, Shard, Socket, TaskId, Token, net};
use fabrix_transport::{Ended, Held, Stream, StreamSlots, pass};

use super::command;

/// A request of a disk's user on its way through a connection, or waiting for one.
pub(crate) struct Request {
    pub(crate) operation: Operation,
    /// The first block that is not done yet.
    pub(crate) lba: u64,
    /// How many are left; one command may cover fewer.
    pub(crate) blocks: u32,
    pub(crate) token: Token,
    /// What its command moves: a write's source, a read's destination, a range; in the slot meanwhile.
    pub(crate) data: Option<Buf>,
    /// The data goes back to the caller with the ending.
    pub(crate) returns_data: bool,
    /// The data has no holder but us: it goes back as it came, with no holder but the caller.
    pub(crate) is_sole: bool,
    /// A buffer that came with an operation that moves none.
    pub(crate) kept: Option<Buf>,
    /// How often the transport spoiled it.
    pub(crate) retries: u8,
    /// When it first lost its connection.
    pub(crate) lost_at: Option<Nanos>,
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
    /// A request that was answered while its data is still being sent: it ends when the data is its caller's alone.
    Ended {
        request: Request,
        status: DiskStatus,
    },
    /// A command of the session itself: bring-up, keep-alive.
    Own,
}

/// Which operation of which queue a task slot belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ending {
    Connected,
    Received,
    Sent,
}

/// Where a queue is among all that its session ever opened; makes the task slots of its operations.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Position {
    /// Which try to connect: an ending that comes after its try was given up is nobody's.
    pub(crate) attempt: u16,
    /// The admin queue is 0.
    pub(crate) index: usize,
}

pub(crate) struct Queue {
    stream: Option<Stream<Host>>,
    socket: Socket,
    position: Position,
    limits: HostLimits,
    places: Vec<Place>,
    free: Vec<Slot>,
    /// How many places carry an ended request.
    ended: usize,
}

#[derive(Default)]
struct Place {
    carried: Option<Carried>,
    sent_at: Nanos,
}

impl Queue {
    /// Opens a connection.
    ///
    /// # Errors
    /// No socket can be had.
    pub(crate) fn open(
        shard: &mut Shard,
        task: TaskId,
        position: Position,
        address: SocketAddr,
        limits: HostLimits,
    ) -> std::io::Result<Self> {
        let socket = net::stream(&address)?;
        let token = Token {
            task,
            slot: position.task_slot(Ending::Connected),
        };
        let op = Op::Connect {
            socket: socket.clone(),
            address,
        };
        shard.start(token, op);
        let slots = limits.max_slots;
        Ok(Self {
            stream: None,
            socket,
            position,
            limits,
            places: (0..slots).map(|_| Place::default()).collect(),
            free: (0..slots).rev().map(Slot).collect(),
            ended: 0,
        })
    }

    /// An operation of this queue has ended.
    ///
    /// # Errors
    /// The connection is over, or never came to be.
    pub(crate) fn completed(
        &mut self,
        task: TaskId,
        ending: Ending,
        completion: Completion,
    ) -> Result<(), Ended> {
        match (ending, &mut self.stream) {
            (Ending::Connected, _) if completion.result < 0 => {
                Err(Ended::Socket(completion.result))
            }
            (Ending::Connected, _) => {
                self.connected(task);
                Ok(())
            }
            (Ending::Received, Some(stream)) => stream.received(completion),
            (Ending::Sent, Some(stream)) => stream.sent(completion),
            (Ending::Received | Ending::Sent, None) => Ok(()),
        }
    }

    fn connected(&mut self, task: TaskId) {
        let tokens = StreamSlots {
            receive: self.position.task_slot(Ending::Received),
            send: self.position.task_slot(Ending::Sent),
        };
        let machine = Host::new(self.limits, pass::crc32c);
        let slots = usize::from(self.limits.max_slots);
        let stream = Stream::new(machine, self.socket.clone(), task, tokens, slots);
        let (machine, mut out) = self.stream.insert(stream).speak();
        machine.start(&mut out);
    }

    /// The next event, if one is there.
    ///
    /// # Errors
    /// The connection is over.
    pub(crate) fn next(&mut self) -> Result<Option<Event>, Ended> {
        self.stream.as_mut().map_or(Ok(None), Stream::next)
    }

    /// Sends what became ready, and receives.
    ///
    /// # Errors
    /// The connection is over.
    pub(crate) fn flush(&mut self, shard: &mut Shard) -> Result<(), Ended> {
        self.stream
            .as_mut()
            .map_or(Ok(()), |stream| stream.flush(shard))
    }

    /// Ends the connection at once.
    ///
    /// With commands in progress that is a reset: what the controller has not read of them by then it should not read
    /// any more, because they will be sent again elsewhere.
    pub(crate) fn close(&mut self) {
        if self.is_busy() {
            // Without it the connection just ends in order.
            let _best_effort = self.socket.linger_zero();
        }
        self.shut();
    }

    /// Ends the connection in order; what was handed over to the kernel is still sent.
    pub(crate) fn shut(&mut self) {
        match &mut self.stream {
            Some(stream) => stream.close(),
            None => self.socket.shutdown(),
        }
    }

    /// Begins a farewell: what waits to be sent is sent, what arrives is dropped. `shut` follows.
    pub(crate) fn part(&mut self, shard: &mut Shard) {
        if let Some(stream) = &mut self.stream {
            stream.discard();
            if stream.flush(shard).is_err() {
                stream.close();
            }
        }
    }

    /// True when a farewell has been said, as far as the kernel is concerned.
    pub(crate) fn has_parted(&self) -> bool {
        self.stream.as_ref().is_none_or(Stream::is_drained)
    }

    /// True when the kernel holds none of this queue's memory. A connect that goes on holds only its socket.
    pub(crate) fn is_quiet(&self) -> bool {
        self.stream.as_ref().is_none_or(Stream::is_quiet)
    }

    /// True once TCP has connected.
    pub(crate) fn is_connected(&self) -> bool {
        self.stream.is_some()
    }

    /// True once the controller has agreed to speak NVMe/TCP.
    pub(crate) fn is_initialized(&self) -> bool {
        self.stream
            .as_ref()
            .is_some_and(|stream| stream.machine().is_ready())
    }

    /// From now on writes travel in their capsules when they fit so many bytes.
    pub(crate) fn set_in_capsule(&mut self, bytes: u32) {
        if let Some(stream) = &mut self.stream {
            stream.speak().0.set_in_capsule(bytes);
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

    fn is_busy(&self) -> bool {
        self.free.len() < self.places.len()
    }

    /// Sends a command, with its data if it has any; with the data comes where in it the command's part begins.
    ///
    /// # Errors
    /// There is no slot, or no connection: everything is given back.
    pub(crate) fn send(
        &mut self,
        now: Nanos,
        entry: &mut SubmissionEntry,
        transfer: HostTransfer,
        data: Option<(Buf, usize)>,
        carried: Carried,
    ) -> Result<Slot, (Carried, Option<Buf>)> {
        let (Some(stream), Some(slot)) = (&mut self.stream, self.free.pop()) else {
            return Err((carried, data.map(|(buf, _)| buf)));
        };
        let held = data.map_or(Held::Nothing, |(buf, start)| Held::Buf(buf, start));
        stream.hold(slot, held);
        let (machine, mut out) = stream.speak();
        if machine.command(slot, entry, transfer, &mut out) {
            let place = &mut self.places[usize::from(slot.0)];
            place.carried = Some(carried);
            place.sent_at = now;
            return Ok(slot);
        }
        let data = held_buf(stream.release(slot));
        self.free.push(slot);
        Err((carried, data))
    }

    /// Takes what a slot carried, and its data; the slot is free only after [`free`](Self::free).
    pub(crate) fn take(&mut self, slot: Slot) -> (Option<Carried>, Option<Buf>) {
        let data = self
            .stream
            .as_mut()
            .and_then(|stream| held_buf(stream.release(slot)));
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

    /// The compare of a pair has ended. The write's request, if that is all that was missing, and how the write ended.
    pub(crate) fn compare_ended(
        &mut self,
        slot: Slot,
        status: DiskStatus,
    ) -> Option<(Request, DiskStatus)> {
        let carried = &mut self.places[usize::from(slot.0)].carried;
        match carried.take() {
            Some(Carried::Write {
                request,
                write: Some(write),
                ..
            }) => Some((request, write)),
            Some(Carried::Write { request, .. }) => {
                let compare = Some(status);
                *carried = Some(Carried::Write {
                    request,
                    compare,
                    write: None,
                });
                None
            }
            other => {
                debug_assert!(
                    false,
                    "the write of a pair keeps its slot until both have ended"
                );
                *carried = other;
                None
            }
        }
    }

    /// A request that has ended and whose data is its caller's alone by now.
    pub(crate) fn next_ended(&mut self) -> Option<(Request, DiskStatus)> {
        if self.ended == 0 {
            return None;
        }
        let is_over = |place: &Place| match &place.carried {
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
        let waits = |place: &&Place| match &place.carried {
            None | Some(Carried::Ended { .. } | Carried::Write { write: Some(_), .. }) => false,
            Some(_) => true,
        };
        self.places
            .iter()
            .filter(waits)
            .map(|place| place.sent_at)
            .min()
    }

    /// Takes the next request out of a connection that has ended, with its data: to be tried again, or, with a
    /// status, to be ended. None: there is no more.
    ///
    /// What was answered has ended. A pair without an answer is not tried again: its write may have happened, and then
    /// its comparison would fail.
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
                Some(Carried::Compare { .. } | Carried::Own) | None => continue,
            };
            request.data = request.data.or(data);
            return Some((request, status));
        }
        None
    }

    /// Why the controller ended the connection, as a sentence.
    pub(crate) fn goodbye(&self) -> String {
        match self
            .stream
            .as_ref()
            .and_then(|stream| stream.machine().goodbye())
        {
            Some(why) => format!(
                "the target ended the connection: fatal error status {}, field offset {}",
                why.status, why.information
            ),
            None => "the target ended the connection".to_owned(),
        }
    }
}

impl Position {
    /// The queue and the operation that a task slot means.
    pub(crate) fn locate(slot: u32) -> (Self, Ending) {
        let ending = match slot % SLOTS_EACH {
            0 => Ending::Connected,
            1 => Ending::Received,
            _ => Ending::Sent,
        };
        let attempt = u16::try_from(slot >> ATTEMPT_SHIFT & ATTEMPTS_MASK).unwrap_or(0);
        let index = (slot & INDEX_MASK) / SLOTS_EACH;
        (
            Self {
                attempt,
                index: index as usize,
            },
            ending,
        )
    }

    fn task_slot(self, ending: Ending) -> u32 {
        let index = u32::try_from(self.index).expect("a session has a few queues") * SLOTS_EACH;
        debug_assert!(
            index <= INDEX_MASK,
            "queue {} has no task slots",
            self.index
        );
        let operation = match ending {
            Ending::Connected => 0,
            Ending::Received => 1,
            Ending::Sent => 2,
        };
        (u32::from(self.attempt) & ATTEMPTS_MASK) << ATTEMPT_SHIFT | index | operation
    }

    /// The attempt after this one.
    pub(crate) fn next_attempt(attempt: u16) -> u16 {
        u16::try_from((u32::from(attempt) + 1) & ATTEMPTS_MASK).unwrap_or(0)
    }
}

/// How long ago `sent_at` was is too long: an answer is overdue.
pub(crate) fn is_overdue(now: Nanos, sent_at: Option<Nanos>, most: Duration) -> bool {
    !most.is_zero() && sent_at.is_some_and(|at| now.since(at) >= most)
}

fn slot_at(index: usize) -> Slot {
    Slot(u16::try_from(index).expect("a queue has at most 4096 slots"))
}

fn held_buf(held: Held) -> Option<Buf> {
    match held {
        Held::Buf(buf, _) => Some(buf),
        Held::Nothing | Held::Awaited(..) | Held::Stayed(_) | Held::Lent(_) => None,
    }
}

/// The task slots of one queue.
const SLOTS_EACH: u32 = 4;
/// The low half of a task slot is the queue's, then come 15 bits for the attempt; the top bit is for timers.
const ATTEMPT_SHIFT: u32 = 16;
const INDEX_MASK: u32 = (1 << ATTEMPT_SHIFT) - 1;
const ATTEMPTS_MASK: u32 = (1 << 15) - 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_slot_leads_back_to_its_queue_and_attempt() {
        for (attempt, index) in [(0, 0), (1, 128), (0x7FFF, 5)] {
            for ending in [Ending::Connected, Ending::Received, Ending::Sent] {
                let position = Position { attempt, index };
                assert_eq!(
                    Position::locate(position.task_slot(ending)),
                    (position, ending)
                );
            }
        }
        assert_eq!(Position::next_attempt(0x7FFF), 0);
    }
}
