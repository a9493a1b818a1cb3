//! NVMe/RDMA as a transport of NVMe's queues, on the controller's side.
//!
//! Each receive of the queue pair is a slot. A capsule stays in its receive until the command is
//! answered, and then the receive is handed to the device again, before the response: the host may
//! send its next command as soon as it has the response. Data that goes to the host leaves by RDMA
//! WRITE in front of its response. Data of the host is read by RDMA READ.
//!
//! `accept` makes the queue pair. `work` begins requests at it, and keeps those for which it has no
//! room. Knows messages and data; does not know what a command means.

mod accept;
#[cfg(test)]
mod tests;
mod work;

use std::collections::VecDeque;
use std::io;

use fabrix_proto::nvme::queue::{ControllerEvent, ControllerQueue, Transfer};
use fabrix_proto::nvme::rdma::capsule::ENTRY_BYTES;
use fabrix_proto::nvme::rdma::target::{Answered, Arrived, Fetched, Target};
use fabrix_proto::nvme::spec::{CompletionEntry, SubmissionEntry};
use fabrix_proto::{Claim, Settled, Slot};
use fabrix_rt::{Buf, Completion, Lent, Shard};
use sys_rdma::{Done, Memory, Part};

use self::work::{PARTS_MOST, Work};
use crate::connection::Connection;
use crate::rdma::{Begin, Pair, RDMA_READY, Waiting};
use crate::slot::{Incoming, Outgoing, Payload};
use crate::stream::Ended;

/// The controller's end of one queue.
pub struct RdmaQueue<P> {
    /// None: the connection is closed.
    pair: Option<P>,
    machine: Target,
    slots: Vec<SlotState>,
    /// The slot of the command that was the last event.
    current: Option<Slot>,
    waiting: Waiting<Work>,
    /// Parts of the transfer that begins: one allocation for all.
    parts: Vec<Part>,
    /// Slots whose data could not be read. Their commands are told so with the next event.
    unfetched: VecDeque<Slot>,
    /// The host is known: all receives get memory with the next flush.
    is_known: bool,
    /// Everything that arrives is dropped.
    discard: bool,
}

/// What a slot has.
#[derive(Default)]
struct SlotState {
    /// Bytes of the capsule in the slot's receive, without what follows the data in it.
    capsule_bytes: usize,
    payload: Payload,
}

impl<P: Pair> RdmaQueue<P> {
    /// The queue of a connection that was accepted. The queue pair has `slots` receives, numbered
    /// from 0. Those that have memory are with the device. `max_data_bytes` is the most data of a
    /// command (MDTS).
    pub fn new(pair: P, slots: u16, max_data_bytes: u32, can_invalidate: bool) -> Self {
        Self {
            pair: Some(pair),
            machine: Target::new(slots, max_data_bytes, can_invalidate),
            slots: (0..slots).map(|_| SlotState::default()).collect(),
            current: None,
            waiting: Waiting::new(slots),
            parts: Vec::with_capacity(PARTS_MOST),
            unfetched: VecDeque::with_capacity(slots.into()),
            is_known: false,
            discard: false,
        }
    }

    /// The capsule in a slot. Empty when the connection is closed.
    fn capsule(&self, slot: Slot) -> &[u8] {
        let bytes = self.slots[usize::from(slot.0)].capsule_bytes;
        let pair = self.pair.as_ref();
        pair.map_or(&[], |pair| pair.message(slot.0.into(), bytes))
    }

    /// What one news of the queue pair means.
    fn done(&mut self, done: Done) -> Result<Option<ControllerEvent>, Ended> {
        match done {
            Done::Received { slot, bytes, .. } => self.received(slot, bytes),
            Done::Ended {
                token,
                is_ok,
                memory,
            } => Ok(self.ended(token, is_ok, memory)),
            Done::Failed(failure) => Err(Ended::request_failed(&failure)),
        }
    }

    fn received(&mut self, slot: u32, bytes: usize) -> Result<Option<ControllerEvent>, Ended> {
        let (Ok(number), Some(pair)) = (u16::try_from(slot), &self.pair) else {
            return Ok(None);
        };
        let slot = Slot(number);
        self.slots[usize::from(number)].capsule_bytes = bytes;
        let capsule = pair.message(number.into(), bytes);
        let arrived = self.machine.capsule(slot, capsule);
        match arrived.map_err(|violation| Ended::Violation(Box::new(violation)))? {
            Arrived::Command(event) => {
                if let ControllerEvent::Command {
                    transfer: Transfer::Inline { bytes },
                    ..
                } = event
                {
                    let end = ENTRY_BYTES + bytes;
                    self.slots[usize::from(number)].capsule_bytes = end as usize;
                }
                self.current = Some(slot);
                Ok(Some(event))
            }
            Arrived::Refused(answer) => {
                self.begin(Work::answer(slot, answer, None));
                Ok(None)
            }
        }
    }

    fn ended(
        &mut self,
        token: u64,
        is_ok: bool,
        memory: Option<Memory>,
    ) -> Option<ControllerEvent> {
        let event = match Work::fetched_slot(token) {
            Some(slot) => self.fetched(slot, is_ok, memory),
            None => None,
        };
        self.begin_waiting();
        event
    }

    fn fetched(
        &mut self,
        slot: Slot,
        is_ok: bool,
        memory: Option<Memory>,
    ) -> Option<ControllerEvent> {
        match self.machine.fetched(slot)? {
            Fetched::Command(mut event) => {
                if let ControllerEvent::Fetched { intact, .. } = &mut event {
                    *intact = is_ok;
                }
                if let Some(Memory::Buf(buf)) = memory {
                    self.receive_into(slot, Incoming::Buf(buf, 0));
                }
                Some(event)
            }
            Fetched::Answer(answer) => {
                self.begin(Work::answer(slot, answer, None));
                Some(ControllerEvent::Released { slot })
            }
        }
    }
}

impl<P: Pair> Connection for RdmaQueue<P> {
    type Event = ControllerEvent;

    fn next(&mut self) -> Result<Option<ControllerEvent>, Ended> {
        loop {
            let pair = self.pair.as_mut().ok_or(Ended::Closed)?;
            let news = match self.unfetched.pop_front() {
                Some(slot) => Ok(self.fetched(slot, false, None)),
                None => match pair.next_done() {
                    Some(done) => self.done(done),
                    None => return Ok(None),
                },
            };
            match news {
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

    fn flush(&mut self, shard: &mut Shard) -> Result<(), Ended> {
        let Some(pair) = &mut self.pair else {
            return Ok(());
        };
        let flushed = match std::mem::take(&mut self.is_known) {
            true => add_receives(pair, shard),
            false => Ok(()),
        };
        let flushed = flushed.and_then(|()| pair.flush());
        flushed.map_err(|error| Ended::rdma(&error))
    }

    fn receive_into(&mut self, slot: Slot, incoming: Incoming) {
        self.slots[usize::from(slot.0)].payload.incoming = incoming;
    }

    fn take_incoming(&mut self, slot: Slot) -> Incoming {
        std::mem::take(&mut self.slots[usize::from(slot.0)].payload.incoming)
    }

    fn send_from(&mut self, slot: Slot, outgoing: Outgoing) {
        self.slots[usize::from(slot.0)].payload.outgoing = Some(outgoing);
    }

    fn release(&mut self, slot: Slot) -> Option<Buf> {
        std::mem::take(&mut self.slots[usize::from(slot.0)].payload).into_buf()
    }

    /// The data in the capsule of the last event.
    fn in_place(&self) -> &[u8] {
        let capsule = self.current.map_or(&[][..], |slot| self.capsule(slot));
        capsule.get(ENTRY_BYTES as usize..).unwrap_or_default()
    }

    /// Answers that wait are bounded by the slots: a command whose answer waits keeps its receive.
    fn backlogged(&self) -> bool {
        false
    }

    fn is_quiet(&self) -> bool {
        self.pair.is_none()
    }

    fn is_drained(&self) -> bool {
        let sent = |pair: &P| pair.sends_in_progress() == 0;
        self.waiting.is_empty() && self.pair.as_ref().is_none_or(sent)
    }

    fn has_unsent(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// NVMe/RDMA has no termination request: the connection ends, and the host learns of it.
    fn discard(&mut self) {
        self.discard = true;
        if let Some(pair) = &mut self.pair {
            pair.disconnect();
        }
    }

    fn finish(&mut self) {}

    /// Ends all access of the device at once, so that no memory waits for the peer.
    fn close(&mut self) {
        if let Some(mut pair) = self.pair.take() {
            pair.disconnect();
        }
        self.waiting.clear();
        self.unfetched.clear();
    }
}

impl<P: Pair> ControllerQueue for RdmaQueue<P> {
    type Lent = Lent;

    fn entry(&self) -> &SubmissionEntry {
        self.machine.entry()
    }

    fn set_queue(&mut self, is_admin: bool, entries: u32, flow_control: bool) {
        self.machine.set_queue(is_admin, entries, flow_control);
        self.is_known = true;
    }

    fn is_admin(&self) -> bool {
        self.machine.is_admin()
    }

    /// The device knows the buffers of the shard, and not the pages of disks.
    fn needs_buffers(&self) -> bool {
        true
    }

    fn fetch(&mut self, slot: Slot) {
        if self.machine.fetch(slot)
            && let Incoming::Buf(buf, _) | Incoming::Awaited(buf, _) = self.take_incoming(slot)
        {
            self.begin(Work::Fetch { slot, buf });
        }
    }

    fn answer(
        &mut self,
        claim: Claim,
        entry: CompletionEntry,
        data_bytes: u32,
        lent: Option<Lent>,
    ) -> Settled {
        let slot = claim.slot();
        debug_assert!(lent.is_none(), "the device does not know lent pages");
        match self.machine.answer(slot, entry, data_bytes) {
            Answered::Now(answer) => {
                let payload = std::mem::take(&mut self.slots[usize::from(slot.0)].payload);
                self.begin(Work::answer(slot, answer, payload.outgoing));
            }
            Answered::Forgotten => {
                self.release(slot);
                self.begin(Work::Forget { slot });
            }
            Answered::Later | Answered::Unknown => {}
        }
        claim.answered()
    }

    fn forget_event_requests(&mut self) {
        self.machine.forget_event_requests();
    }

    fn slots_in_use(&self) -> usize {
        self.machine.slots_in_use()
    }

    /// A host says nothing when it ends a connection.
    fn termination(&self) -> Option<String> {
        None
    }
}

/// Hands all receives to the device. It has some already: a host that nobody knows yet has those
/// that one buffer holds.
fn add_receives<P: Pair>(pair: &mut P, shard: &mut Shard) -> io::Result<()> {
    let first = pair.receives();
    pair.add_receives(shard)?;
    (first..pair.receives()).for_each(|slot| pair.post_receive(slot));
    Ok(())
}
