//! iSCSI over RDMA (iSER), on the initiator's side: a queue pair carries the PDUs of an initiator.
//!
//! A command leaves as one message. The first bytes of a write follow it in the message. Other data
//! stays where it is: a window in front of the message lets the target read or write exactly these
//! bytes, until its response invalidates the key of the window. Where the target does not
//! invalidate the key, this end does it before the command ends. So nobody uses the data of a
//! command that has ended, and after [`Connection::close`] nobody uses any.
//!
//! `connect` makes the queue pair. `wire` has the messages to the target, and the data of commands.

mod connect;
#[cfg(test)]
mod tests;
mod wire;

use fabrix_proto::Slot;
use fabrix_proto::iscsi::framing::{Carrier, Endpoint, Framing};
use fabrix_proto::iscsi::initiator::{Event, Initiator};
use fabrix_proto::iscsi::iser::initiator::IserInitiator;
use fabrix_proto::iscsi::iser::message::Message;
use fabrix_rt::{Buf, Completion, Shard};
use sys_rdma::{Done, Memory};

pub use self::connect::ConnectingIser;
use self::wire::{Ends, Wire, ends_of};
use crate::connection::Connection;
use crate::rdma::{HostPair, RDMA_LOST};
use crate::slot::{Incoming, Outgoing};
use crate::stream::Ended;

/// The initiator's end of one connection.
pub struct IserInitiatorQueue<P> {
    machine: IserInitiator,
    wire: Wire<P>,
    /// The target has ended the connection. What it has sent before is processed first.
    is_lost: bool,
}

impl<P: HostPair> IserInitiatorQueue<P> {
    /// The queue of a connection that is established. The queue pair has `slots` windows, all its
    /// receives are handed to the device, and it has room for the requests of `slots` commands and
    /// of some messages more.
    pub fn new(pair: P, initiator: Initiator, slots: u16) -> Self {
        Self {
            machine: IserInitiator::new(initiator, slots),
            wire: Wire::new(pair, slots),
            is_lost: false,
        }
    }

    /// Prepares the first Login Request.
    pub fn start(&mut self) {
        let (initiator, mut out) = self.machine.speak(&mut self.wire);
        initiator.start(&mut out);
    }

    /// What one news of the queue pair means.
    fn done(&mut self, done: Done) -> Result<Option<Event>, Ended> {
        match done {
            Done::Received {
                slot,
                bytes,
                invalidated,
            } => self.received(slot, bytes, invalidated),
            Done::Ended {
                token,
                is_ok: true,
                memory,
            } => Ok(self.ended(token, memory)),
            // The failure has been told before.
            Done::Ended { .. } => Ok(None),
            Done::Failed(failure) => Err(Ended::request_failed(&failure)),
        }
    }

    fn received(
        &mut self,
        receive: u32,
        bytes: usize,
        invalidated: Option<u32>,
    ) -> Result<Option<Event>, Ended> {
        let Some(pair) = &mut self.wire.pair else {
            return Ok(None);
        };
        let received = pair.message(receive, bytes);
        let parsed = Message::parse(received).map(|message| {
            // Sense data and texts: most messages have none.
            let data = received[message.data.clone()].to_vec();
            (message, data)
        });
        pair.post_receive(receive);
        let event = parsed.and_then(|(message, data)| {
            let out = &mut self.wire;
            self.machine.message(&message, &data, invalidated, out)
        });
        event.map_err(|violation| Ended::Violation(Box::new(violation)))
    }

    /// A message has left, or a request has closed a window.
    fn ended(&mut self, token: u64, memory: Option<Memory>) -> Option<Event> {
        match ends_of(token) {
            Ends::Message => {
                self.wire.others -= 1;
                None
            }
            // The data that went with the message: the slot has it, too, and nobody else may.
            Ends::Command(slot) => {
                drop(memory);
                self.machine.sent(slot)
            }
            Ends::Window(slot) => {
                self.wire.slot(slot).give_back(memory);
                self.machine.closed(slot)
            }
        }
    }
}

impl<P: HostPair> Connection for IserInitiatorQueue<P> {
    type Event = Event;

    fn next(&mut self) -> Result<Option<Event>, Ended> {
        loop {
            if let Some(event) = self.machine.take_event() {
                return Ok(Some(event));
            }
            self.wire.check()?;
            if self.machine.initiator().is_closed() {
                return Err(Ended::Closed);
            }
            let pair = self.wire.pair.as_mut().ok_or(Ended::Closed)?;
            match pair.next_done() {
                None if self.is_lost => return Err(Ended::Closed),
                None => return Ok(None),
                Some(done) => {
                    if let Some(event) = self.done(done)? {
                        return Ok(Some(event));
                    }
                }
            }
        }
    }

    /// Takes the word of the hub: there are completions, or the connection is over.
    fn completed(&mut self, _: u32, completion: Completion) -> Result<(), Ended> {
        self.is_lost |= completion.result >= RDMA_LOST;
        match completion.result {
            errno if errno < 0 => Err(Ended::Socket(errno)),
            _ => Ok(()),
        }
    }

    fn flush(&mut self, _: &mut Shard) -> Result<(), Ended> {
        self.wire.flush()
    }

    fn receive_into(&mut self, slot: Slot, incoming: Incoming) {
        self.wire.slot(slot).payload.incoming = incoming;
    }

    fn take_incoming(&mut self, slot: Slot) -> Incoming {
        std::mem::take(&mut self.wire.slot(slot).payload.incoming)
    }

    fn send_from(&mut self, slot: Slot, outgoing: Outgoing) {
        self.wire.slot(slot).payload.outgoing = Some(outgoing);
    }

    fn release(&mut self, slot: Slot) -> Option<Buf> {
        std::mem::take(&mut self.wire.slot(slot).payload).into_buf()
    }

    /// No message has data of a slot.
    fn in_place(&self) -> &[u8] {
        &[]
    }

    fn backlogged(&self) -> bool {
        false
    }

    fn is_quiet(&self) -> bool {
        self.wire.pair.is_none()
    }

    /// The last message is a Logout. The target ends the connection after it. The end of an RDMA
    /// connection overtakes messages: Linux' target ignores a Logout of a connection that is gone.
    fn is_drained(&self) -> bool {
        self.is_lost || self.wire.pair.is_none()
    }

    fn has_unsent(&self) -> bool {
        false
    }

    /// What arrives stays in its receives: nobody asks for events any more.
    fn discard(&mut self) {}

    fn finish(&mut self) {}

    /// Ends all access of the target at once. Every slot has its buffer again.
    fn close(&mut self) {
        self.wire.close();
    }
}

impl<P: HostPair> Carrier for IserInitiatorQueue<P> {
    type Endpoint = Initiator;

    fn endpoint(&self) -> &Initiator {
        self.machine.initiator()
    }

    fn speak(&mut self) -> (&mut Initiator, impl Framing) {
        self.machine.speak(&mut self.wire)
    }

    /// The device knows the buffers of the shard, and not the pages of disks.
    fn needs_buffers(&self) -> bool {
        true
    }
}
