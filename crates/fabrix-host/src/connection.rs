//! One connection of a session: its link, and the commands in its slots.
//!
//! Knows what each slot carries. Does not know how a session connects (`session`), nor how requests
//! wait for the next connection (`reconnection`). All tables are allocated when the connection is
//! opened. `nvme::queue` and `iscsi::connection` add the calls of their protocols.

use fabrix_block::{Operation, Status as DiskStatus};
use fabrix_proto::Slot;
use fabrix_rt::{Buf, Completion, Nanos, Shard, TaskId, Token};
use fabrix_transport::{Connection as _, Ended};

use crate::ConnectError;
use crate::link::{Link, OperationKind, Position, Route};
use crate::request::Request;

/// Content of a slot.
pub(crate) enum InFlight<C> {
    /// The command of a request.
    Request(Request),
    /// A request whose command was answered while its data is still being sent. The request
    /// completes when only the caller holds the buffer.
    Answered {
        request: Request,
        status: DiskStatus,
    },
    /// A command that only this protocol has.
    Other(C),
}

/// A command that only one protocol has: of the bring-up, of the keep-alive, or a part of a
/// request.
pub(crate) trait OtherCommand: Sized {
    /// Whether the target works on the command. False for a command that waits for an event.
    fn is_work(&self) -> bool {
        true
    }

    /// Whether the target owes an answer.
    fn awaits_answer(&self) -> bool {
        true
    }

    /// The request that the command belongs to, and what is known of it.
    fn into_request(self) -> Option<(Request, Option<Abandoned>)>;
}

/// What is known of a request whose connection has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Abandoned {
    /// Its status. The request must not be sent again.
    Ended(DiskStatus),
    /// The target has refused it on this path, and has not executed it.
    Refused,
}

/// One connection of a session.
pub(crate) struct Connection<L, C> {
    pub(crate) link: L,
    entries: Vec<SlotEntry<C>>,
    free: Vec<Slot>,
    /// Number of slots with an answered request whose data is still being sent.
    answered: usize,
    /// Commands of requests that the kernel has not accepted yet.
    pub(crate) unsent: u64,
    /// Number of requests answered since the connection was opened.
    pub(crate) answers: u64,
}

struct SlotEntry<C> {
    content: Option<InFlight<C>>,
    sent_at: Nanos,
}

impl<L: Link, C: OtherCommand> Connection<L, C> {
    /// Opens a connection with as many slots as `setup` names.
    ///
    /// # Errors
    /// As [`Link::open`].
    pub(crate) fn open(
        shard: &mut Shard,
        task: TaskId,
        position: Position,
        route: Route,
        setup: (L::Setup, u16),
    ) -> Result<Self, ConnectError> {
        let slots = setup.1;
        let empty = |_| SlotEntry {
            content: None,
            sent_at: Nanos::default(),
        };
        Ok(Self {
            link: L::open(shard, task, position, route, setup)?,
            entries: (0..slots).map(empty).collect(),
            free: (0..slots).rev().map(Slot).collect(),
            answered: 0,
            unsent: 0,
            answers: 0,
        })
    }

    /// Processes the completion of an operation.
    ///
    /// # Errors
    /// The connection has ended, or the connect failed.
    pub(crate) fn completed(
        &mut self,
        shard: &mut Shard,
        task: TaskId,
        (kind, completion): (OperationKind, Completion),
    ) -> Result<(), Ended> {
        self.link.completed(shard, task, kind, completion)
    }

    /// The next event.
    ///
    /// # Errors
    /// The connection has ended.
    #[inline(always)]
    pub(crate) fn next(
        &mut self,
    ) -> Result<Option<<L::Stream as fabrix_transport::Connection>::Event>, Ended> {
        let stream = self.link.stream_mut();
        stream.map_or(Ok(None), fabrix_transport::Connection::next)
    }

    /// Sends what is queued, and receives.
    ///
    /// # Errors
    /// The connection has ended.
    pub(crate) fn flush(&mut self, shard: &mut Shard) -> Result<(), Ended> {
        let stream = self.link.stream_mut();
        stream.map_or(Ok(()), |stream| stream.flush(shard))
    }

    /// Number of commands that the kernel has accepted since the last call. Zero while bytes wait
    /// to be sent.
    pub(crate) fn take_sent(&mut self) -> u64 {
        let stream = self.link.stream();
        if stream.is_some_and(fabrix_transport::Connection::has_unsent) {
            return 0;
        }
        std::mem::take(&mut self.unsent)
    }

    /// Ends the connection at once.
    pub(crate) fn close(&mut self) {
        let is_busy = self.is_busy();
        self.link.close(is_busy);
    }

    /// True once the transport has connected.
    pub(crate) fn is_connected(&self) -> bool {
        self.link.stream().is_some()
    }

    /// Number of free slots.
    pub(crate) fn room(&self) -> usize {
        self.free.len()
    }

    /// Whether every slot is free.
    pub(crate) fn is_idle(&self) -> bool {
        self.free.len() == self.entries.len()
    }

    /// Whether the target works on a command.
    fn is_busy(&self) -> bool {
        let works = |entry: &SlotEntry<C>| match &entry.content {
            None => false,
            Some(InFlight::Other(command)) => command.is_work(),
            Some(_) => true,
        };
        self.entries.iter().any(works)
    }

    /// A free slot and the stream. None: all slots are used, or the transport has not connected.
    #[inline(always)]
    pub(crate) fn reserve(&mut self) -> Option<(Slot, &mut L::Stream)> {
        let stream = self.link.stream_mut()?;
        Some((self.free.pop()?, stream))
    }

    /// Notes when the command in a slot was sent.
    #[inline(always)]
    pub(crate) fn sent(&mut self, slot: Slot, now: Nanos) {
        self.entries[usize::from(slot.0)].sent_at = now;
    }

    /// Content of a slot.
    #[inline(always)]
    pub(crate) fn content(&mut self, slot: Slot) -> &mut Option<InFlight<C>> {
        &mut self.entries[usize::from(slot.0)].content
    }

    /// The link, and the content of a slot whose command was answered. Counts answered requests.
    #[inline(always)]
    pub(crate) fn link_and_content(&mut self, slot: Slot) -> (&mut L, &mut Option<InFlight<C>>) {
        let content = &mut self.entries[usize::from(slot.0)].content;
        self.answers += u64::from(matches!(content, Some(InFlight::Request(_))));
        (&mut self.link, content)
    }

    /// Takes the content of a slot, and its buffer. The slot stays reserved until
    /// [`free`](Self::free).
    pub(crate) fn take(&mut self, slot: Slot) -> (Option<InFlight<C>>, Option<Buf>) {
        let stream = self.link.stream_mut();
        let data = stream.and_then(|stream| stream.release(slot));
        (self.content(slot).take(), data)
    }

    /// Frees a slot that has no content.
    pub(crate) fn free(&mut self, slot: Slot) {
        debug_assert!(self.content(slot).is_none(), "{slot:?} is in use");
        self.free.push(slot);
    }

    /// Replaces the content of a slot.
    pub(crate) fn put(&mut self, slot: Slot, content: InFlight<C>) {
        self.answered += usize::from(matches!(content, InFlight::Answered { .. }));
        *self.content(slot) = Some(content);
    }

    /// Completes the request in a slot: the token and the completion for the caller. None: the data
    /// is still being sent, and the request completes later.
    #[inline(always)]
    pub(crate) fn complete(
        &mut self,
        slot: Slot,
        status: DiskStatus,
    ) -> Option<(Token, Completion)> {
        let content = &mut self.entries[usize::from(slot.0)].content;
        if let Some(InFlight::Request(request)) = content
            && !request.is_being_sent()
        {
            let completion = request.completion(status);
            *content = None;
            self.free.push(slot);
            return Some(completion);
        }
        if let Some(InFlight::Request(request)) = content.take() {
            self.put(slot, InFlight::Answered { request, status });
        }
        None
    }

    /// Takes the next answered request whose buffer only the caller holds by now, and frees its
    /// slot.
    pub(crate) fn next_answered(&mut self) -> Option<(Request, DiskStatus)> {
        if self.answered == 0 {
            return None;
        }
        let is_sent = |entry: &SlotEntry<C>| match &entry.content {
            Some(InFlight::Answered { request, .. }) => !request.is_being_sent(),
            _ => false,
        };
        let index = self.entries.iter().position(is_sent)?;
        let Some(InFlight::Answered { request, status }) = self.entries[index].content.take()
        else {
            return None;
        };
        self.answered -= 1;
        self.free.push(slot_at(index));
        Some((request, status))
    }

    /// When the oldest command without an answer was sent.
    pub(crate) fn oldest(&self) -> Option<Nanos> {
        let waits = |entry: &&SlotEntry<C>| match &entry.content {
            None | Some(InFlight::Answered { .. }) => false,
            Some(InFlight::Other(command)) => command.awaits_answer(),
            Some(InFlight::Request(_)) => true,
        };
        let waiting = self.entries.iter().filter(waits);
        waiting.map(|entry| entry.sent_at).min()
    }

    /// Takes the next request of a connection that has ended, with its data. With a status the
    /// request completes, without one it is sent again. None: no request is left.
    ///
    /// A compare-and-write without an answer is not sent again: the target may have written, and
    /// the comparison would then fail.
    pub(crate) fn abandon(&mut self) -> Option<(Request, Option<Abandoned>)> {
        for index in 0..self.entries.len() {
            let (content, data) = match &self.entries[index].content {
                None => continue,
                Some(_) => self.take(slot_at(index)),
            };
            let found = match content? {
                InFlight::Request(request) => Some((request, None)),
                InFlight::Answered { request, status } => {
                    Some((request, Some(Abandoned::Ended(status))))
                }
                InFlight::Other(command) => command.into_request(),
            };
            let Some((mut request, known)) = found else {
                continue;
            };
            request.data = request.data.or(data);
            let once = matches!(request.operation, Operation::CompareAndWrite { .. });
            let aborted = once.then_some(Abandoned::Ended(DiskStatus::Aborted));
            return Some((request, known.or(aborted)));
        }
        None
    }
}

pub(crate) fn slot_at(index: usize) -> Slot {
    Slot(u16::try_from(index).expect("a connection has at most 4096 slots"))
}
