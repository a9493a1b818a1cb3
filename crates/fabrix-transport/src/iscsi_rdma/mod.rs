//! iSCSI over RDMA (iSER), on the target's side: a queue pair carries the PDUs of an endpoint.
//!
//! A message stays in its receive until it is processed, and its receive is handed to the device
//! again before the next flush. So an initiator that has an answer finds a receive for its next
//! command. Slots are those of the endpoint's tasks, and have no receive. Immediate data of a
//! command is used in the receive, or copied into the buffer of its slot. All other data is read
//! and written by RDMA.
//!
//! `accept` makes the queue pair. `outgoing` has the messages and data to the initiator.

mod accept;
mod outgoing;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::io;
use std::ops::Range;

use fabrix_proto::iscsi::framing::{Carrier, Endpoint, Framing, Segment};
use fabrix_proto::iscsi::iser::Iser;
use fabrix_proto::iscsi::iser::message::Message;
use fabrix_proto::iscsi::target::{Event, Target};
use fabrix_proto::{Slot, Violation};
use fabrix_rt::{Buf, Completion, Shard};
use sys_rdma::{Done, Memory};

use self::outgoing::Wire;
use crate::connection::Connection;
use crate::rdma::{Begin, Pair, RDMA_READY};
use crate::slot::{Incoming, Outgoing};
use crate::stream::Ended;

/// The target's end of one connection.
pub struct IserQueue<P> {
    machine: Iser<Target>,
    wire: Wire<P>,
    /// Receives with messages that were not processed, and the bytes of each.
    received: VecDeque<(u32, usize)>,
    /// Slots whose RDMA READ has ended.
    fetched: VecDeque<Slot>,
    /// The message that was processed last.
    current: Option<Current>,
    /// All receives have memory, and are with the device or have messages.
    has_all_receives: bool,
    /// Everything that arrives is dropped.
    discard: bool,
}

/// A message that is being processed.
struct Current {
    receive: u32,
    bytes: usize,
    data: Range<usize>,
    /// What is to be done with its data. None: it was done.
    segment: Option<Segment>,
}

impl<P: Pair> IserQueue<P> {
    /// The queue of a connection that was accepted. `slots` is the most commands that `target` can
    /// have in progress. The receives of `pair` that have memory are with the device.
    /// `invalidates`: messages may invalidate tags of the initiator.
    pub fn new(pair: P, target: Target, slots: u16, invalidates: bool) -> Self {
        Self {
            machine: Iser::new(target, slots, invalidates),
            wire: Wire::new(pair, slots),
            received: VecDeque::new(),
            fetched: VecDeque::with_capacity(slots.into()),
            current: None,
            has_all_receives: false,
            discard: false,
        }
    }

    /// Takes all news of the queue pair.
    fn take_news(&mut self) -> Result<(), Ended> {
        while let Some(done) = self.wire.pair.as_mut().and_then(P::next_done) {
            match done {
                Done::Received { slot, bytes, .. } => self.received.push_back((slot, bytes)),
                Done::Ended { token, memory, .. } => self.ended(token, memory),
                Done::Failed(failure) => return Err(Ended::request_failed(&failure)),
            }
        }
        self.wire.begin_waiting();
        Ok(())
    }

    /// A request has ended well: the connection would have failed before.
    fn ended(&mut self, token: u64, memory: Option<Memory>) {
        if let (Some(slot), Some(Memory::Buf(buf))) = (outgoing::fetched_slot(token), memory) {
            self.receive_into(slot, Incoming::Buf(buf, 0));
            self.fetched.push_back(slot);
        }
    }

    /// The next step: data of the current message, data that was read, or the next message. None:
    /// there is nothing to do.
    fn step(&mut self) -> Option<Result<Option<Event>, Violation>> {
        if let Some(segment) = self.current.as_mut().and_then(|it| it.segment.take()) {
            return Some(self.segment(segment));
        }
        self.release_current();
        if let Some(slot) = self.fetched.pop_front() {
            let piece = self.wire.take_fetched(slot)?;
            return Some(Ok(self.machine.fetched(piece, &mut self.wire)));
        }
        let (receive, bytes) = self.received.pop_front()?;
        Some(self.message(receive, bytes))
    }

    fn message(&mut self, receive: u32, bytes: usize) -> Result<Option<Event>, Violation> {
        let Some(pair) = &self.wire.pair else {
            return Ok(None);
        };
        let bytes_of = pair.message(receive, bytes);
        let message = Message::parse(bytes_of)?;
        let additional = bytes_of[message.additional.clone()].to_vec();
        let received = self
            .machine
            .message(&message, &additional, &mut self.wire)?;
        self.current = Some(Current {
            receive,
            bytes,
            data: message.data,
            segment: Some(received.segment),
        });
        Ok(received.event)
    }

    /// Processes the data of the current message.
    fn segment(&mut self, segment: Segment) -> Result<Option<Event>, Violation> {
        let whole = match segment {
            Segment::Whole => self.in_place().to_vec(),
            Segment::Skipped | Segment::Kept(_) | Segment::Dropped(_) => Vec::new(),
        };
        self.machine.segment(segment, &whole, &mut self.wire)
    }

    /// Hands the receive of the current message to the device, if its data was processed.
    fn release_current(&mut self) {
        if let Some(current) = self.current.take_if(|current| current.segment.is_none())
            && let Some(pair) = &mut self.wire.pair
        {
            pair.post_receive(current.receive);
        }
    }

    /// Copies immediate data of the current message into the buffer of its slot.
    fn copy_immediate(&self, slot: Slot, incoming: &mut Incoming) {
        if let (Incoming::Buf(buf, _) | Incoming::Awaited(buf, _), Some(current)) =
            (incoming, &self.current)
            && let Some(Segment::Kept(piece)) = current.segment
            && piece.slot == slot
        {
            let start = piece.offset as usize;
            let end = start + piece.bytes as usize;
            buf.bytes_mut()[start..end].copy_from_slice(self.in_place());
        }
    }

    /// A session needs receives for its whole command window, before its initiator learns that it
    /// has begun. A discovery session has enough.
    fn needs_receives(&self) -> bool {
        let session = self.machine.endpoint().session();
        !self.has_all_receives && session.is_some_and(|session| !session.leading.discovery)
    }

    fn try_flush(&mut self, shard: &mut Shard) -> io::Result<()> {
        let needs_receives = self.needs_receives();
        let Some(pair) = &mut self.wire.pair else {
            return Ok(());
        };
        if needs_receives {
            let first = pair.receives();
            pair.add_receives(shard)?;
            (first..pair.receives()).for_each(|slot| pair.post_receive(slot));
            self.has_all_receives = true;
        }
        pair.flush()
    }
}

impl<P: Pair> Connection for IserQueue<P> {
    type Event = Event;

    fn next(&mut self) -> Result<Option<Event>, Ended> {
        while !self.discard {
            self.wire.check()?;
            if self.machine.endpoint().is_closed() {
                return Err(Ended::Closed);
            }
            match self.step() {
                None => break,
                Some(Ok(None)) => {}
                Some(Ok(event)) => return Ok(event),
                Some(Err(violation)) => {
                    self.machine.terminate(&violation, &mut self.wire);
                    return Err(Ended::Violation(Box::new(violation)));
                }
            }
        }
        Ok(None)
    }

    /// Takes the word of the hub: there are completions, or the connection is over.
    fn completed(&mut self, _: u32, completion: Completion) -> Result<(), Ended> {
        match completion.result {
            RDMA_READY => self.take_news(),
            errno if errno < 0 => Err(Ended::Socket(errno)),
            _ => Err(Ended::Closed),
        }
    }

    fn flush(&mut self, shard: &mut Shard) -> Result<(), Ended> {
        self.release_current();
        self.wire.check()?;
        let flushed = self.try_flush(shard);
        flushed.map_err(|error| Ended::rdma(&error))
    }

    fn receive_into(&mut self, slot: Slot, mut incoming: Incoming) {
        self.copy_immediate(slot, &mut incoming);
        self.wire.payload(slot).incoming = incoming;
    }

    fn take_incoming(&mut self, slot: Slot) -> Incoming {
        std::mem::take(&mut self.wire.payload(slot).incoming)
    }

    fn send_from(&mut self, slot: Slot, outgoing: Outgoing) {
        self.wire.payload(slot).outgoing = Some(outgoing);
    }

    fn release(&mut self, slot: Slot) -> Option<Buf> {
        std::mem::take(self.wire.payload(slot)).into_buf()
    }

    /// The data in the message of the last event.
    fn in_place(&self) -> &[u8] {
        let (Some(current), Some(pair)) = (&self.current, &self.wire.pair) else {
            return &[];
        };
        let message = pair.message(current.receive, current.bytes);
        &message[current.data.clone()]
    }

    /// Commands bound the answers to commands. An initiator that sends other requests without end
    /// does not get their receives back meanwhile.
    fn backlogged(&self) -> bool {
        self.wire.is_backlogged()
    }

    fn is_quiet(&self) -> bool {
        self.wire.pair.is_none()
    }

    fn is_drained(&self) -> bool {
        let sent = |pair: &P| pair.sends_in_progress() == 0;
        self.wire.is_empty() && self.wire.pair.as_ref().is_none_or(sent)
    }

    fn has_unsent(&self) -> bool {
        !self.wire.is_empty()
    }

    fn discard(&mut self) {
        self.discard = true;
        self.received.clear();
    }

    /// RDMA connections have no direction that could end alone, so both end. The initiator has the
    /// last message: its send has ended.
    fn finish(&mut self) {
        if let Some(pair) = &mut self.wire.pair {
            pair.disconnect();
        }
    }

    /// Ends all access of the device at once, so that no memory waits for the peer.
    fn close(&mut self) {
        self.wire.close();
        self.received.clear();
        self.fetched.clear();
        self.current = None;
    }
}

impl<P: Pair> Carrier for IserQueue<P> {
    type Endpoint = Target;

    fn endpoint(&self) -> &Target {
        self.machine.endpoint()
    }

    fn speak(&mut self) -> (&mut Target, impl Framing) {
        self.machine.speak(&mut self.wire)
    }

    /// The device knows the buffers of the shard, and not the pages of disks.
    fn needs_buffers(&self) -> bool {
        true
    }
}
