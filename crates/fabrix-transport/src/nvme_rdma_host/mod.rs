//! NVMe/RDMA as a transport of NVMe's queues, on the host's side.
//!
//! A command leaves as one message. Short data of a write follows it in the message. Other data
//! stays where it is: a window in front of the message lets the controller read or write exactly
//! these bytes, until its response invalidates the key of the window. Where the controller does not
//! invalidate the key, this end does it before the command completes. So nobody uses the data of a
//! command that is complete, and after [`Connection::close`] nobody uses any.
//!
//! `connect` makes the queue pair. Knows messages and data; does not know what a command means.

mod connect;
#[cfg(test)]
mod tests;

use fabrix_proto::Slot;
use fabrix_proto::nvme::queue::{HostEvent, HostQueue, HostTransfer};
use fabrix_proto::nvme::rdma::host::{Carriage, Host, Responded, WindowAddress};
use fabrix_proto::nvme::spec::{CompletionEntry, SubmissionEntry};
use fabrix_rt::{Buf, Completion, Shard};
use sys_rdma::{Access, Data, Done, Memory, Unsent, Why};
use zerocopy::IntoBytes;

pub use self::connect::ConnectingRdma;
use crate::connection::Connection;
use crate::rdma::{Exposed, HostPair, RDMA_READY, UNREGISTERED};
use crate::slot::{Incoming, Outgoing};
use crate::stream::Ended;

/// The host's end of one queue.
pub struct RdmaHostQueue<P> {
    /// None: the connection is closed.
    pair: Option<P>,
    machine: Host,
    slots: Vec<Exposed>,
    /// The owner knows that commands may be submitted.
    is_announced: bool,
    /// Why the connection cannot go on. Told with the next flush.
    failure: Option<String>,
    /// Everything that arrives is dropped.
    discard: bool,
}

impl<P: HostPair> RdmaHostQueue<P> {
    /// The queue of a connection that is established. The queue pair has `slots` windows, at least
    /// as many receives, all handed to the device, and room for [`REQUESTS_OF_A_COMMAND`] requests
    /// for each slot.
    pub fn new(pair: P, slots: u16) -> Self {
        Self {
            pair: Some(pair),
            machine: Host::new(slots),
            slots: (0..slots).map(|_| Exposed::default()).collect(),
            is_announced: false,
            failure: None,
            discard: false,
        }
    }

    /// Begins a command. None: the connection is over, or the device does not know the memory.
    fn begin(&mut self, slot: Slot, entry: &mut SubmissionEntry, carriage: Carriage) -> Option<()> {
        if self.pair.as_ref()?.room() < REQUESTS_OF_A_COMMAND as usize {
            return None;
        }
        let begun = match carriage {
            Carriage::None => self.send(slot, entry, (carriage, None), None),
            Carriage::InCapsule { bytes } => {
                let data = self.slot(slot).outgoing(0, bytes)?;
                self.send(slot, entry, (carriage, None), Some(data))
            }
            Carriage::Read { bytes } => {
                let data = self.slot(slot).outgoing(0, bytes)?;
                self.send_with_window(slot, entry, (carriage, Access::Read), data)
            }
            Carriage::Write { bytes } => {
                let data = self.slot(slot).incoming(bytes)?;
                self.send_with_window(slot, entry, (carriage, Access::Write), data)
            }
        };
        begun.map_err(|unsent| self.not_begun(slot, unsent)).ok()
    }

    fn send(
        &mut self,
        slot: Slot,
        entry: &mut SubmissionEntry,
        carriage: (Carriage, Option<WindowAddress>),
        data: Option<Data>,
    ) -> Result<(), Unsent> {
        let Some(pair) = &mut self.pair else {
            let (why, memory) = (Why::Closed, None);
            return Err(Unsent { why, memory });
        };
        self.machine.begin(slot, entry, carriage);
        let token = message_token(slot);
        match data {
            Some(data) => pair.send_with(entry.as_bytes(), data, token),
            None => pair.send(entry.as_bytes(), None, token),
        }
    }

    fn send_with_window(
        &mut self,
        slot: Slot,
        entry: &mut SubmissionEntry,
        (carriage, access): (Carriage, Access),
        data: Data,
    ) -> Result<(), Unsent> {
        let Some(pair) = &mut self.pair else {
            let (why, memory) = (Why::Closed, Some(data.memory));
            return Err(Unsent { why, memory });
        };
        let remote = pair.open_window(slot.0.into(), data, access)?;
        let window = WindowAddress {
            address: remote.address,
            key: remote.key,
        };
        self.send(slot, entry, (carriage, Some(window)), None)
    }

    fn slot(&mut self, slot: Slot) -> &mut Exposed {
        &mut self.slots[usize::from(slot.0)]
    }

    /// A command was not begun. Its slot has its buffer again.
    fn not_begun(&mut self, slot: Slot, unsent: Unsent) {
        if unsent.why == Why::Unregistered {
            self.failure = Some(UNREGISTERED.to_owned());
        }
        self.slot(slot).give_back(unsent.memory);
    }

    /// What one news of the queue pair means.
    fn done(&mut self, done: Done) -> Result<Option<HostEvent>, Ended> {
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
    ) -> Result<Option<HostEvent>, Ended> {
        let Some(pair) = &mut self.pair else {
            return Ok(None);
        };
        let message = pair.message(receive, bytes);
        let responded = self.machine.response(message, invalidated);
        pair.post_receive(receive);
        match responded.map_err(|violation| Ended::Violation(Box::new(violation)))? {
            Responded::Completed(event) => Ok(Some(event)),
            Responded::Waiting => Ok(None),
            Responded::Close(slot) => {
                // A connection that is over gives all memory back when it is closed.
                let closed = pair.close_window(slot.0.into(), close_token(slot));
                Ok(match closed {
                    Ok(Some(memory)) => self.closed(slot, Some(memory)),
                    Ok(None) | Err(_) => None,
                })
            }
        }
    }

    /// A message has left, or a request has closed a window.
    fn ended(&mut self, token: u64, memory: Option<Memory>) -> Option<HostEvent> {
        let slot = slot_of(token);
        if token == close_token(slot) {
            return self.closed(slot, memory);
        }
        // The data that went with the message: the slot has it, too, and nobody else may.
        drop(memory);
        self.machine.sent(slot)
    }

    fn closed(&mut self, slot: Slot, memory: Option<Memory>) -> Option<HostEvent> {
        self.slot(slot).give_back(memory);
        self.machine.closed(slot)
    }
}

impl<P: HostPair> Connection for RdmaHostQueue<P> {
    type Event = HostEvent;

    fn next(&mut self) -> Result<Option<HostEvent>, Ended> {
        if !std::mem::replace(&mut self.is_announced, true) {
            return Ok(Some(HostEvent::Ready));
        }
        loop {
            let pair = self.pair.as_mut().ok_or(Ended::Closed)?;
            let Some(done) = pair.next_done() else {
                return Ok(None);
            };
            match self.done(done) {
                Ok(None) => {}
                _ if self.discard => {}
                news => return news,
            }
        }
    }

    /// Takes the word of the hub: there are completions, or the connection is over.
    fn completed(&mut self, _: u32, completion: Completion) -> Result<(), Ended> {
        match completion.result {
            RDMA_READY => Ok(()),
            errno if errno < 0 => Err(Ended::Socket(errno)),
            _ => Err(Ended::Closed),
        }
    }

    fn flush(&mut self, _: &mut Shard) -> Result<(), Ended> {
        if let Some(why) = &self.failure {
            return Err(Ended::rdma(why));
        }
        let Some(pair) = &mut self.pair else {
            return Ok(());
        };
        pair.flush().map_err(|error| Ended::rdma(&error))
    }

    fn receive_into(&mut self, slot: Slot, incoming: Incoming) {
        self.slot(slot).payload.incoming = incoming;
    }

    fn take_incoming(&mut self, slot: Slot) -> Incoming {
        std::mem::take(&mut self.slot(slot).payload.incoming)
    }

    fn send_from(&mut self, slot: Slot, outgoing: Outgoing) {
        self.slot(slot).payload.outgoing = Some(outgoing);
    }

    fn release(&mut self, slot: Slot) -> Option<Buf> {
        std::mem::take(&mut self.slot(slot).payload).into_buf()
    }

    /// No response has data.
    fn in_place(&self) -> &[u8] {
        &[]
    }

    fn backlogged(&self) -> bool {
        false
    }

    fn is_quiet(&self) -> bool {
        self.pair.is_none()
    }

    /// NVMe/RDMA has no termination request that would have to leave.
    fn is_drained(&self) -> bool {
        true
    }

    fn has_unsent(&self) -> bool {
        false
    }

    fn discard(&mut self) {
        self.discard = true;
        if let Some(pair) = &mut self.pair {
            pair.disconnect();
        }
    }

    fn finish(&mut self) {}

    /// Ends all access of the controller at once. Every slot has its buffer again.
    fn close(&mut self) {
        if let Some(pair) = self.pair.take() {
            Exposed::close_all(&mut self.slots, pair);
        }
    }
}

impl<P: HostPair> HostQueue for RdmaHostQueue<P> {
    fn submit(&mut self, slot: Slot, entry: &mut SubmissionEntry, transfer: HostTransfer) -> bool {
        let carriage = self.machine.carriage(slot, transfer);
        carriage.is_some_and(|carriage| self.begin(slot, entry, carriage).is_some())
    }

    fn entry(&self) -> &CompletionEntry {
        self.machine.entry()
    }

    fn set_in_capsule(&mut self, bytes: u32) {
        self.machine.set_in_capsule(bytes);
    }

    fn is_ready(&self) -> bool {
        self.is_announced && self.pair.is_some()
    }

    /// A controller says nothing when it ends a connection.
    fn termination(&self) -> Option<String> {
        None
    }
}

/// Token of the message of a slot's command.
fn message_token(slot: Slot) -> u64 {
    u64::from(slot.0) << 1
}

/// Token of the request that closes a slot's window.
fn close_token(slot: Slot) -> u64 {
    message_token(slot) | 1
}

fn slot_of(token: u64) -> Slot {
    Slot(u16::try_from(token >> 1).expect("a token of ours"))
}

/// Requests of a command: a window is opened, the message leaves, and the window is closed where
/// the controller does not do it. A slot has no other command before all have ended.
pub(crate) const REQUESTS_OF_A_COMMAND: u32 = 3;
