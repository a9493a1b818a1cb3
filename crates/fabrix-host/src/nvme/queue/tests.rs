//! A queue over a link of messages in memory, in place of TCP. A command is one message and its
//! answer another. The controller reads and writes the memory of a slot by key, offset and length.

use std::collections::VecDeque;

use fabrix_block::{Geometry, Operation, Payload, Request as BlockRequest};
use fabrix_proto::nvme::nqn::Nqn;
use fabrix_proto::nvme::spec::{KeyedSglDescriptor, SglDescriptor, SglKind, Status};
use fabrix_rt::{Completion, Shard, ShardConfig, TaskId, Token};
use fabrix_transport::Ended;
use zerocopy::transmute;

use super::*;
use crate::ConnectError;
use crate::connection::slot_at;
use crate::link::{OperationKind, Position, Route};
use crate::request::Data;

/// One slot: id and transfer of its command, and the memory of its key.
#[derive(Default)]
struct SlotState {
    command: Option<(u16, HostTransfer)>,
    incoming: Incoming,
    outgoing: Option<Outgoing>,
}

/// The host's end of the link.
struct Messages {
    slots: Vec<SlotState>,
    capsules: VecDeque<SubmissionEntry>,
    completions: VecDeque<CompletionEntry>,
    entry: CompletionEntry,
    closed: bool,
}

impl Messages {
    /// Bytes that an RDMA READ of the controller returns.
    fn read(&self, key: u32, offset: usize, length: usize) -> &[u8] {
        match &self.slots[key as usize].outgoing {
            Some(Outgoing::Buf(buf, start)) => &buf.bytes()[start + offset..][..length],
            _ => panic!("nothing is to be read by key {key}"),
        }
    }

    /// An RDMA WRITE of the controller.
    fn write(&mut self, key: u32, offset: usize, bytes: &[u8]) {
        match &mut self.slots[key as usize].incoming {
            Incoming::Buf(buf, start) => {
                buf.bytes_mut()[*start + offset..][..bytes.len()].copy_from_slice(bytes);
            }
            _ => panic!("nothing is to be written by key {key}"),
        }
    }

    /// The next command that the controller receives, and its data descriptor.
    fn receive(&mut self) -> (SubmissionEntry, KeyedSglDescriptor) {
        let entry = self.capsules.pop_front().expect("a command was sent");
        (entry, entry.sgl.keyed())
    }
}

impl transport::Connection for Messages {
    type Event = HostEvent;

    fn next(&mut self) -> Result<Option<HostEvent>, Ended> {
        let Some(entry) = self.completions.pop_front() else {
            return if self.closed {
                Err(Ended::Closed)
            } else {
                Ok(None)
            };
        };
        self.entry = entry;
        let id = entry.command_id.get();
        let is_its = |slot: &SlotState| slot.command.is_some_and(|(its, _)| its == id);
        let index = self.slots.iter().position(is_its);
        let index = index.expect("the controller answers commands in progress");
        let data_bytes = match self.slots[index].command.take() {
            Some((_, HostTransfer::Read { bytes } | HostTransfer::Write { bytes })) => bytes,
            _ => 0,
        };
        Ok(Some(HostEvent::Completed {
            slot: slot_at(index),
            data_bytes,
            intact: true,
        }))
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
        let incoming = self.take_incoming(slot);
        match self.slots[usize::from(slot.0)].outgoing.take() {
            Some(Outgoing::Buf(buf, _)) => Some(buf),
            _ => incoming.into_buf(),
        }
    }

    fn in_place(&self) -> &[u8] {
        &[]
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
        self.completions.clear();
    }

    fn finish(&mut self) {}

    fn close(&mut self) {
        self.closed = true;
    }
}

impl HostQueue for Messages {
    /// The key of a slot's memory is the slot's number.
    fn submit(&mut self, slot: Slot, entry: &mut SubmissionEntry, transfer: HostTransfer) -> bool {
        let (HostTransfer::Write { bytes } | HostTransfer::Read { bytes }) = transfer else {
            return false;
        };
        let length = bytes.to_le_bytes();
        let keyed = KeyedSglDescriptor {
            address: 0.into(),
            length: [length[0], length[1], length[2]],
            key: u32::from(slot.0).into(),
            kind: SglKind::KEYED_INVALIDATE,
        };
        let sgl: SglDescriptor = transmute!(keyed);
        let id = 0x100 + slot.0;
        (entry.command_id, entry.sgl) = (id.into(), sgl);
        self.slots[usize::from(slot.0)].command = Some((id, transfer));
        self.capsules.push_back(*entry);
        true
    }

    fn entry(&self) -> &CompletionEntry {
        &self.entry
    }

    fn set_in_capsule(&mut self, _: u32) {}

    fn is_ready(&self) -> bool {
        !self.closed
    }

    fn termination(&self) -> Option<String> {
        None
    }
}

impl Link for Messages {
    type Setup = Arc<Options>;
    type Stream = Self;

    fn open(
        _: &mut Shard,
        _: TaskId,
        _: Position,
        _: Route,
        (_, slots): (Arc<Options>, u16),
    ) -> Result<Self, ConnectError> {
        Ok(Self {
            slots: (0..slots).map(|_| SlotState::default()).collect(),
            capsules: VecDeque::new(),
            completions: VecDeque::new(),
            entry: CompletionEntry::new(Status::SUCCESS, 0),
            closed: false,
        })
    }

    fn completed(
        &mut self,
        _: &mut Shard,
        _: TaskId,
        _: OperationKind,
        _: Completion,
    ) -> Result<(), Ended> {
        Ok(())
    }

    fn stream(&self) -> Option<&Self> {
        Some(self)
    }

    fn stream_mut(&mut self) -> Option<&mut Self> {
        Some(self)
    }

    fn close(&mut self, _: bool) {
        self.closed = true;
    }

    fn shutdown(&mut self) {
        self.closed = true;
    }

    fn drain(&mut self, _: &mut Shard) {}

    fn is_drained(&self) -> bool {
        true
    }

    fn is_quiet(&self) -> bool {
        true
    }

    fn not_a_target(within: std::time::Duration) -> String {
        format!("no answer within {within:?}")
    }
}

fn opened(shard: &mut Shard) -> Queue<Messages> {
    let name = "nqn.2014-08.org.nvmexpress:uuid:00000000-0000-4000-8000-000000000001";
    let options = Options::new(Nqn::new(name).expect("an NQN"), [7; 16]);
    let position = Position {
        attempt: 0,
        index: 1,
    };
    let route = Route {
        to: ([192, 0, 2, 1], 4420).into(),
        from: None,
    };
    let task = shard.reserve();
    Queue::open(shard, task, position, route, (Arc::new(options), 4)).expect("it needs no socket")
}

/// Answers the last command. Returns its data.
fn answered(queue: &mut Queue<Messages>, id: u16, slot: Slot, bytes: u32) -> Buf {
    let mut answer = CompletionEntry::new(Status::SUCCESS, 0);
    answer.command_id = id.into();
    queue.link.completions.push_back(answer);
    let expected = HostEvent::Completed {
        slot,
        data_bytes: bytes,
        intact: true,
    };
    assert_eq!(queue.next().expect("it lives"), Some(expected));
    assert_eq!(queue.entry().command_id.get(), id);
    let (_, data) = queue.take(slot);
    queue.free(slot);
    data.expect("the data comes back")
}

#[test]
fn the_controller_reads_and_writes_data_by_key() {
    let mut shard = Shard::new(ShardConfig::default()).expect("a shard");
    let mut queue = opened(&mut shard);
    let bytes = 8192;
    let data: Vec<u8> = (0..bytes).map(|at| (at % 251) as u8).collect();

    let mut buf = shard.take_buf(16 + data.len()).expect("memory");
    buf.bytes_mut()[16..][..data.len()].copy_from_slice(&data);
    let transfer = HostTransfer::Write { bytes };
    let mut write = SubmissionEntry::write(1, 0, 16, false);
    let slot = queue.start(shard.now(), &mut write, transfer, Some((buf, 16)));
    let slot = slot.unwrap_or_else(|_| panic!("there is room"));
    let (entry, keyed) = queue.link.receive();
    assert_eq!(keyed.length_bytes(), bytes);
    let key = keyed.key.get();
    let halves = [(0, 4096), (4096, 4096)];
    let read = halves.map(|(offset, length)| queue.link.read(key, offset, length).to_vec());
    assert!(read.concat() == data);
    answered(&mut queue, entry.command_id.get(), slot, bytes);

    let buf = shard.take_buf(data.len()).expect("memory");
    let transfer = HostTransfer::Read { bytes };
    let mut read = SubmissionEntry::read(1, 0, 16);
    let slot = queue.start(shard.now(), &mut read, transfer, Some((buf, 0)));
    let slot = slot.unwrap_or_else(|_| panic!("there is room"));
    let (entry, keyed) = queue.link.receive();
    for (offset, length) in halves {
        let piece = &data[offset..][..length];
        queue.link.write(keyed.key.get(), offset, piece);
    }
    let read = answered(&mut queue, entry.command_id.get(), slot, bytes);
    assert!(read.bytes()[..data.len()] == data);
    assert_eq!(queue.room(), 4);
}

/// A Compare and Write of one block.
fn compare_and_write(shard: &mut Shard) -> Request {
    let mut request = BlockRequest {
        operation: Operation::CompareAndWrite { durable: false },
        lba: 0,
        blocks: 1,
        payload: Payload::Owned(shard.take_buf(1024).expect("memory")),
        token: Token {
            task: TaskId::NOBODY,
            slot: 0,
        },
    };
    let data = Data::take(shard, &mut request, &Geometry::new(512, 100));
    Request::new(&request, data.expect("it has a buffer"))
}

#[test]
fn a_lost_pair_of_which_one_half_was_refused_is_not_executed() {
    let mut shard = Shard::new(ShardConfig::default()).expect("a shard");
    let half = Some(DiskStatus::NotReady);
    for (compare, write) in [(half, None), (None, half)] {
        for (is_refused, expected) in [
            (true, Abandoned::Refused),
            (false, Abandoned::Ended(DiskStatus::NotReady)),
        ] {
            let pair = Command::Write {
                request: compare_and_write(&mut shard),
                compare,
                write,
                is_refused,
            };
            let (_request, known) = pair.into_request().expect("the request of both");
            assert_eq!(known, Some(expected));
        }
    }
}
