//! One queue of a controller: the connection of an admin queue or an I/O queue.
//!
//! Adds the calls of NVMe to [`Connection`].

use std::sync::Arc;

use fabrix_block::Status as DiskStatus;
use fabrix_proto::Slot;
use fabrix_proto::nvme::queue::{HostEvent, HostQueue, HostTransfer};
use fabrix_proto::nvme::spec::{CompletionEntry, SubmissionEntry};
use fabrix_rt::{Buf, Nanos, Token};
use fabrix_transport::{self as transport, Incoming, Outgoing};

use super::command;
use crate::Options;
use crate::connection::{Abandoned, Connection, InFlight, OtherCommand};
use crate::link::Link;
use crate::request::Request;

/// A link that carries NVMe queues.
pub(crate) trait NvmeLink:
    Link<Setup = Arc<Options>, Stream: transport::Connection<Event = HostEvent> + HostQueue>
{
}

impl<L> NvmeLink for L where
    L: Link<Setup = Arc<Options>, Stream: transport::Connection<Event = HostEvent> + HostQueue>
{
}

/// Commands that are not simply the command of a request.
pub(crate) enum Command {
    /// The Compare of a Compare and Write, and the slot of its Write.
    Compare { write: Slot },
    /// The Write of a Compare and Write, and the status of each half that was answered.
    /// `is_refused`: one of them was refused on this path.
    Write {
        request: Request,
        compare: Option<DiskStatus>,
        write: Option<DiskStatus>,
        is_refused: bool,
    },
    /// A command of the bring-up, or a Keep Alive.
    Session,
    /// Cross-Controller Reset. The token gets the answer.
    Reset(Token),
    /// A command that asks for events. An Asynchronous Event Request may wait for ever.
    Event(EventStep),
}

/// Commands that ask for events.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum EventStep {
    /// Set Features: switches events on.
    Enable,
    /// Asynchronous Event Request: answered when an event occurs.
    Event,
    /// Get Log Page: reads the Changed Namespace List.
    List,
    /// Get Log Page: reads the states of ANA groups. `then_waits`: an Asynchronous Event Request
    /// follows.
    States { then_waits: bool },
}

impl OtherCommand for Command {
    fn is_work(&self) -> bool {
        !matches!(self, Self::Event(_) | Self::Reset(_))
    }

    fn awaits_answer(&self) -> bool {
        !matches!(self, Self::Write { write: Some(_), .. })
    }

    /// A Compare and Write without an answer is not sent again: the controller may have written,
    /// and the comparison would then fail.
    fn into_request(self) -> Option<(Request, Option<Abandoned>)> {
        match self {
            // A pair of which one half is refused is not executed.
            Self::Write {
                request,
                is_refused: true,
                ..
            } => Some((request, Some(Abandoned::Refused))),
            Self::Write {
                request,
                compare,
                write,
                ..
            } => {
                let status = command::fused_status(compare, write);
                Some((request, Some(Abandoned::Ended(status))))
            }
            Self::Compare { .. } | Self::Session | Self::Reset(_) | Self::Event(_) => None,
        }
    }
}

/// The connection of one queue.
pub(crate) type Queue<L> = Connection<L, Command>;

impl<L: NvmeLink> Queue<L> {
    /// The completion entry of the last event.
    ///
    /// # Panics
    /// The transport has not connected, so there was no event.
    #[inline(always)]
    pub(crate) fn entry(&self) -> CompletionEntry {
        *self.link.stream().expect("an answer came").entry()
    }

    /// True once the controller speaks the transport's protocol.
    pub(crate) fn is_initialized(&self) -> bool {
        self.link.stream().is_some_and(HostQueue::is_ready)
    }

    /// Sends writes of at most so many bytes in their capsules from now on.
    pub(crate) fn set_in_capsule(&mut self, bytes: u32) {
        if let Some(queue) = self.link.stream_mut() {
            queue.set_in_capsule(bytes);
        }
    }

    /// Sends a command of the session. None: nothing was sent, as in [`start`](Self::start).
    pub(crate) fn send(
        &mut self,
        now: Nanos,
        entry: &mut SubmissionEntry,
        transfer: HostTransfer,
        data: Option<(Buf, usize)>,
        command: Command,
    ) -> Option<Slot> {
        let slot = self.start(now, entry, transfer, data).ok()?;
        self.put(slot, InFlight::Other(command));
        Some(slot)
    }

    /// Sends a command with its data. The number beside the buffer is the offset of the command's
    /// data. The caller sets the content of the slot afterwards, which saves a move of that struct.
    ///
    /// # Errors
    /// No slot is free, or the queue is not connected. The data is given back.
    #[inline(always)]
    pub(crate) fn start(
        &mut self,
        now: Nanos,
        entry: &mut SubmissionEntry,
        transfer: HostTransfer,
        data: Option<(Buf, usize)>,
    ) -> Result<Slot, Option<Buf>> {
        let Some((slot, queue)) = self.reserve() else {
            return Err(data.map(|(buf, _)| buf));
        };
        match (data, transfer) {
            (Some((buf, start)), HostTransfer::Write { .. }) => {
                transport::Connection::send_from(queue, slot, Outgoing::Buf(buf, start));
            }
            (Some((buf, start)), _) => {
                transport::Connection::receive_into(queue, slot, Incoming::Buf(buf, start));
            }
            (None, _) => {}
        }
        if queue.submit(slot, entry, transfer) {
            self.sent(slot, now);
            return Ok(slot);
        }
        let data = transport::Connection::release(queue, slot);
        self.free(slot);
        Err(data)
    }

    /// Sets the content of a slot to the request whose last or only command was just started.
    #[inline(always)]
    pub(crate) fn carry(&mut self, slot: Slot, request: InFlight<Command>) {
        self.unsent += 1;
        let content = self.content(slot);
        debug_assert!(content.is_none(), "{slot:?} is in use");
        // The check tells the compiler that nothing is dropped: it builds the request in place.
        if content.is_none() {
            *content = Some(request);
        }
    }

    /// The request in a slot whose command was answered, with its data. It stays in the slot. None:
    /// the slot has another content.
    #[inline(always)]
    pub(crate) fn answered(&mut self, slot: Slot) -> Option<&mut Request> {
        let (link, content) = self.link_and_content(slot);
        let Some(InFlight::Request(request)) = content else {
            return None;
        };
        if let Some(queue) = link.stream_mut() {
            request.data = transport::Connection::release(queue, slot);
        }
        Some(request)
    }

    /// Takes the request out of a slot and frees the slot.
    pub(crate) fn withdraw(&mut self, slot: Slot) -> Request {
        let Some(InFlight::Request(request)) = self.content(slot).take() else {
            unreachable!("the caller has just looked at the request");
        };
        self.free(slot);
        request
    }

    /// Why the controller has ended the connection, as a sentence.
    pub(crate) fn termination(&self) -> String {
        match self.link.stream().and_then(HostQueue::termination) {
            Some(why) => format!("the target ended the connection: {why}"),
            None => "the target ended the connection".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests;
