//! A transport of NVMe by messages in memory. It behaves like RDMA without hardware.
//!
//! Whole capsules arrive as messages, and completions leave as messages. Data moves by slot, offset
//! and length between a buffer of the target and keyed memory of the host. There is no byte stream.

use std::cell::{RefCell, RefMut};
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

use fabrix_proto::nvme::queue::{ControllerEvent, ControllerQueue, Transfer};
use fabrix_proto::nvme::spec::{
    CompletionEntry, Direction, KeyedSglDescriptor, SglKind, SubmissionEntry,
};
use fabrix_proto::{Claim, Settled, Slot};
use fabrix_rt::{Buf, Completion, Lent, Shard};
use fabrix_transport::{Connection, Ended, Incoming, Outgoing};

/// A command capsule: the entry, and data that travels with it.
pub(super) type Capsule = ([u8; 64], Vec<u8>);

/// One movement of data: slot, offset and length.
pub(super) type Move = (u16, usize, usize);

/// State between a host and its queue at the target.
#[derive(Default)]
pub(super) struct Wire {
    pub(super) capsules: VecDeque<Capsule>,
    /// Completions, and the keys that they invalidate.
    pub(super) completions: VecDeque<(CompletionEntry, Option<u32>)>,
    /// The host's memory, by key.
    pub(super) memory: BTreeMap<u32, Vec<u8>>,
    pub(super) fetched: Vec<Move>,
    pub(super) sent: Vec<Move>,
}

/// One slot of the queue.
#[derive(Default)]
struct SlotState {
    /// The command in it, if there is one.
    entry: Option<SubmissionEntry>,
    incoming: Incoming,
    outgoing: Option<Outgoing>,
}

/// The target's end of a queue.
pub(super) struct Messages {
    wire: Rc<RefCell<Wire>>,
    slots: Vec<SlotState>,
    entry: SubmissionEntry,
    inline: Vec<u8>,
    fetched: VecDeque<Slot>,
    is_admin: bool,
    entries: u32,
    sq_head: u32,
    stable: bool,
    closed: bool,
}

impl Messages {
    /// A queue without a capsule so far. `stable`: data to send must not change before it is sent.
    pub(super) fn new(wire: &Rc<RefCell<Wire>>, slots: usize, stable: bool) -> Self {
        Self {
            wire: Rc::clone(wire),
            slots: (0..slots).map(|_| SlotState::default()).collect(),
            entry: SubmissionEntry::new(0),
            inline: Vec::new(),
            fetched: VecDeque::new(),
            is_admin: true,
            entries: 1 << 16,
            sq_head: 0,
            stable,
            closed: false,
        }
    }

    fn wire(&self) -> RefMut<'_, Wire> {
        self.wire.borrow_mut()
    }

    /// Takes a whole command, with the data in its capsule.
    fn command(&mut self, (entry, inline): Capsule) -> ControllerEvent {
        let index = self.slots.iter().position(|slot| slot.entry.is_none());
        let index = index.expect("the host keeps to the queue's size");
        self.entry = SubmissionEntry::from_array(entry);
        self.inline = inline;
        self.slots[index].entry = Some(self.entry);
        let keyed = self.entry.sgl.keyed();
        let bytes = keyed.length_bytes();
        let transfer = match (self.entry.direction(), keyed.kind) {
            (Direction::HostToController, SglKind::IN_CAPSULE) => Transfer::Inline { bytes },
            (_, kind) if !is_keyed(kind) || bytes == 0 => Transfer::None,
            (Direction::HostToController, _) => Transfer::Fetch { bytes },
            (Direction::ControllerToHost, _) => Transfer::Send { bytes },
            _ => Transfer::None,
        };
        ControllerEvent::Command {
            claim: Claim::new(Slot(u16::try_from(index).expect("few slots"))),
            transfer,
            intact: true,
        }
    }

    fn keyed(&self, slot: Slot) -> KeyedSglDescriptor {
        let entry = self.slots[usize::from(slot.0)].entry.as_ref();
        entry.expect("a command is in the slot").sgl.keyed()
    }

    /// RDMA WRITE, in pieces: the payload of a slot into the memory of the host.
    fn send(&self, slot: Slot, payload: &[u8]) {
        let keyed = self.keyed(slot);
        let start = usize::try_from(keyed.address.get()).expect("small");
        let mut wire = self.wire();
        for (index, piece) in payload.chunks(PIECE).enumerate() {
            let offset = index * PIECE;
            let memory = wire.memory.get_mut(&keyed.key.get());
            let memory = memory.expect("the host has given this key");
            memory[start + offset..][..piece.len()].copy_from_slice(piece);
            wire.sent.push((slot.0, offset, piece.len()));
        }
    }
}

impl Connection for Messages {
    type Event = ControllerEvent;

    fn next(&mut self) -> Result<Option<ControllerEvent>, Ended> {
        if self.closed {
            return Err(Ended::Closed);
        }
        if let Some(slot) = self.fetched.pop_front() {
            return Ok(Some(ControllerEvent::Fetched { slot, intact: true }));
        }
        let capsule = self.wire().capsules.pop_front();
        Ok(capsule.map(|capsule| self.command(capsule)))
    }

    fn completed(&mut self, _: u32, _: Completion) -> Result<(), Ended> {
        Ok(())
    }

    fn flush(&mut self, _: &mut Shard) -> Result<(), Ended> {
        Ok(())
    }

    fn receive_into(&mut self, slot: Slot, incoming: Incoming) {
        self.slots[usize::from(slot.0)].incoming = incoming;
    }

    fn take_incoming(&mut self, slot: Slot) -> Incoming {
        std::mem::take(&mut self.slots[usize::from(slot.0)].incoming)
    }

    fn send_from(&mut self, slot: Slot, outgoing: Outgoing) {
        self.slots[usize::from(slot.0)].outgoing = Some(outgoing);
    }

    fn release(&mut self, slot: Slot) -> Option<Buf> {
        self.take_incoming(slot).into_buf()
    }

    fn in_place(&self) -> &[u8] {
        &self.inline
    }

    fn backlogged(&self) -> bool {
        false
    }

    fn is_quiet(&self) -> bool {
        true
    }

    fn is_drained(&self) -> bool {
        true
    }

    fn has_unsent(&self) -> bool {
        false
    }

    fn discard(&mut self) {
        self.closed = true;
    }

    fn finish(&mut self) {}

    fn close(&mut self) {
        self.closed = true;
    }
}

impl ControllerQueue for Messages {
    type Lent = Lent;

    fn entry(&self) -> &SubmissionEntry {
        &self.entry
    }

    fn set_queue(&mut self, is_admin: bool, entries: u32, _: bool) {
        (self.is_admin, self.entries) = (is_admin, entries);
    }

    fn is_admin(&self) -> bool {
        self.is_admin
    }

    fn needs_buffers(&self) -> bool {
        self.stable
    }

    /// RDMA READ, in pieces: the memory of the host into the buffer of the slot.
    fn fetch(&mut self, slot: Slot) {
        let keyed = self.keyed(slot);
        let (start, key) = (keyed.address.get(), keyed.key.get());
        let start = usize::try_from(start).expect("small");
        let Incoming::Awaited(mut buf, bytes) = self.take_incoming(slot) else {
            panic!("data is fetched into a buffer");
        };
        let mut wire = self.wire();
        for offset in (0..bytes).step_by(PIECE) {
            let length = PIECE.min(bytes - offset);
            let memory = &wire.memory[&key][start + offset..][..length];
            buf.bytes_mut()[offset..][..length].copy_from_slice(memory);
            wire.fetched.push((slot.0, offset, length));
        }
        drop(wire);
        self.receive_into(slot, Incoming::Buf(buf, 0));
        self.fetched.push_back(slot);
    }

    /// Data first, then SEND: with invalidate where the host asks for it.
    fn answer(
        &mut self,
        claim: Claim,
        mut entry: CompletionEntry,
        data_bytes: u32,
        lent: Option<Lent>,
    ) -> Settled {
        let slot = claim.slot();
        let bytes = data_bytes as usize;
        let outgoing = self.slots[usize::from(slot.0)].outgoing.take();
        match lent.map(Outgoing::Lent).or(outgoing) {
            _ if bytes == 0 => {}
            Some(Outgoing::Lent(lent)) => {
                let mut payload = vec![0; bytes];
                lent.copy_to(&mut payload);
                self.send(slot, &payload);
            }
            Some(Outgoing::Buf(buf, start)) => self.send(slot, &buf.bytes()[start..][..bytes]),
            None => panic!("an answer sends data that nobody gave"),
        }
        self.release(slot);
        let command = self.slots[usize::from(slot.0)].entry.take();
        let command = command.expect("a claim is on a command");
        self.sq_head = (self.sq_head + 1) % self.entries;
        entry.command_id = command.command_id;
        entry
            .sq_head
            .set(u16::try_from(self.sq_head).expect("an index"));
        let keyed = command.sgl.keyed();
        let invalidates = keyed.kind == SglKind::KEYED_INVALIDATE;
        let key = invalidates.then(|| keyed.key.get());
        self.wire().completions.push_back((entry, key));
        claim.answered()
    }

    fn forget_event_requests(&mut self) {}

    fn slots_in_use(&self) -> usize {
        let in_use = |slot: &&SlotState| slot.entry.is_some();
        self.slots.iter().filter(in_use).count()
    }

    fn termination(&self) -> Option<String> {
        None
    }
}

fn is_keyed(kind: SglKind) -> bool {
    matches!(kind, SglKind::KEYED | SglKind::KEYED_INVALIDATE)
}

/// Most bytes that move at once.
const PIECE: usize = 4096;
