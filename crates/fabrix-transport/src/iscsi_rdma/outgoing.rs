//! Messages to the initiator, and the data of its commands in both directions.

use fabrix_proto::Slot;
use fabrix_proto::iscsi::framing::Piece;
use fabrix_proto::iscsi::iser::REPLY_BYTES_MAX;
use fabrix_proto::iscsi::iser::framing::{Messages, Outgoing as Message, WrittenData};
use fabrix_proto::iscsi::iser::message::RemoteMemory;
use fabrix_rt::Buf;
use sys_rdma::{Memory, Part, Remote, Unsent, Why};

use crate::rdma::{Begin, Pair, Waiting};
use crate::slot::{Incoming, Outgoing, Payload};
use crate::stream::Ended;

/// The queue pair, and the data of all slots.
pub(super) struct Wire<P> {
    /// None: the connection is closed.
    pub(super) pair: Option<P>,
    slots: Vec<SlotState>,
    waiting: Waiting<Work>,
    /// Memory for the next message.
    message: Vec<u8>,
    /// Why the connection cannot go on.
    failure: Option<&'static str>,
}

/// What a slot has.
#[derive(Default)]
struct SlotState {
    payload: Payload,
    /// The piece of its data that is being read.
    fetching: Option<Piece>,
}

/// What is to be done.
pub(crate) enum Work {
    /// Read a piece of a slot's data into its buffer.
    Read { slot: Slot, buf: Buf, part: Part },
    /// Write the data of a read, and send a message.
    Answer {
        data: Option<(Memory, Part)>,
        message: Vec<u8>,
        invalidate: Option<u32>,
    },
}

impl<P: Pair> Wire<P> {
    pub(super) fn new(pair: P, slots: u16) -> Self {
        Self {
            pair: Some(pair),
            slots: (0..slots).map(|_| SlotState::default()).collect(),
            waiting: Waiting::new(slots),
            message: Vec::with_capacity(REPLY_BYTES_MAX),
            failure: None,
        }
    }

    /// The data of a slot.
    pub(super) fn payload(&mut self, slot: Slot) -> &mut Payload {
        &mut self.slots[usize::from(slot.0)].payload
    }

    /// The piece of a slot's data that has been read.
    pub(super) fn take_fetched(&mut self, slot: Slot) -> Option<Piece> {
        self.slots[usize::from(slot.0)].fetching.take()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Whether more answers wait than there are slots.
    pub(super) fn is_backlogged(&self) -> bool {
        self.waiting.answers() > self.slots.len()
    }

    pub(super) fn close(&mut self) {
        if let Some(mut pair) = self.pair.take() {
            pair.disconnect();
        }
        self.waiting.clear();
    }

    /// Errors: the connection cannot go on.
    pub(super) fn check(&self) -> Result<(), Ended> {
        match self.failure {
            None if self.pair.is_none() => Err(Ended::Closed),
            None => Ok(()),
            Some(why) => Err(Ended::rdma(&why)),
        }
    }

    /// Notes that a work was not begun. A closed connection needs no work.
    fn failed(&mut self, unsent: &Unsent) {
        if unsent.why != Why::Closed {
            self.failure = Some("the device does not know the memory of a command");
        }
    }

    fn try_read(&mut self, slot: Slot, buf: Buf, part: Part) -> Option<Work> {
        let token = FETCH + u64::from(slot.0);
        match self.pair.as_mut()?.read(buf, &[part], token) {
            Ok(()) => None,
            Err(Unsent {
                why: Why::Full,
                memory: Some(Memory::Buf(buf)),
            }) => Some(Work::Read { slot, buf, part }),
            Err(unsent) => {
                self.failed(&unsent);
                None
            }
        }
    }

    fn try_answer(
        &mut self,
        data: Option<(Memory, Part)>,
        message: Vec<u8>,
        invalidate: Option<u32>,
    ) -> Option<Work> {
        let pair = self.pair.as_mut()?;
        if pair.room() < 1 + usize::from(data.is_some()) {
            return Some(Work::Answer {
                data,
                message,
                invalidate,
            });
        }
        let written = data.map_or(Ok(()), |(memory, part)| pair.write(memory, &[part]));
        // Without its data the initiator must not have the answer.
        let sent = written.and_then(|()| pair.send(&message, invalidate, ANSWER));
        if let Err(unsent) = sent {
            self.failed(&unsent);
        }
        self.message = message;
        None
    }

    /// The data of a slot as the part of an RDMA WRITE.
    fn written(&mut self, data: WrittenData) -> Option<(Memory, Part)> {
        let (memory, start) = match self.payload(data.slot).outgoing.take() {
            Some(Outgoing::Buf(buf, start)) => (Memory::Buf(buf), start),
            Some(Outgoing::Lent(lent)) => (Memory::Lent(lent), 0),
            None => return None,
        };
        let part = Part {
            start,
            bytes: data.bytes,
            remote: remote(data.to),
        };
        Some((memory, part))
    }
}

impl<P: Pair> Begin for Wire<P> {
    type Work = Work;

    fn waiting(&mut self) -> &mut Waiting<Work> {
        &mut self.waiting
    }

    fn is_read(work: &Work) -> bool {
        matches!(work, Work::Read { .. })
    }

    fn try_begin(&mut self, work: Work) -> Option<Work> {
        match work {
            Work::Read { slot, buf, part } => self.try_read(slot, buf, part),
            Work::Answer {
                data,
                message,
                invalidate,
            } => self.try_answer(data, message, invalidate),
        }
    }
}

impl<P: Pair> Messages for &mut Wire<P> {
    fn send(&mut self, message: Message<'_>) {
        let data = message.data.and_then(|data| self.written(data));
        let mut bytes = std::mem::take(&mut self.message);
        bytes.clear();
        bytes.extend_from_slice(&message.headers);
        bytes.extend_from_slice(message.segment);
        if bytes.len() > REPLY_BYTES_MAX {
            self.failure = Some("an answer is longer than a message to the initiator may be");
            return;
        }
        self.begin(Work::Answer {
            data,
            message: bytes,
            invalidate: message.invalidate,
        });
    }

    fn read(&mut self, piece: Piece, from: RemoteMemory) {
        let slot = &mut self.slots[usize::from(piece.slot.0)];
        let incoming = std::mem::take(&mut slot.payload.incoming);
        let (Incoming::Buf(buf, _) | Incoming::Awaited(buf, _)) = incoming else {
            return debug_assert!(false, "{:?} has no buffer", piece.slot);
        };
        slot.fetching = Some(piece);
        let part = Part {
            start: piece.offset as usize,
            bytes: piece.bytes,
            remote: remote(from),
        };
        self.begin(Work::Read {
            slot: piece.slot,
            buf,
            part,
        });
    }
}

fn remote(memory: RemoteMemory) -> Remote {
    Remote {
        address: memory.address,
        key: memory.key,
    }
}

/// The slot whose RDMA READ has this token. None: it is a token of something else.
pub(super) fn fetched_slot(token: u64) -> Option<Slot> {
    let slot = token.checked_sub(FETCH)?;
    u16::try_from(slot).ok().map(Slot)
}

/// Token of everything of an answer. Nothing follows its end but the room that it leaves.
const ANSWER: u64 = 0;
/// Token of the RDMA READ of slot 0. Those of other slots follow.
const FETCH: u64 = 1;
