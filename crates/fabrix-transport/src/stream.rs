//! A TCP connection and the protocol machine that speaks on it.
//!
//! A stream keeps one receive and one send in flight. A receive fills a large buffer, and the
//! machine takes all PDUs that are in it. A send carries everything that became ready meanwhile.
//! Payload goes into the buffer of its slot; long payload is received there directly. Payload of a
//! slot without a buffer stays in the receive buffer. `arriving` has the receiving half. A stream
//! does not know what a command means.

mod arriving;
#[cfg(test)]
mod tests;

use fabrix_proto::{Machine, Slot, Violation};
use fabrix_rt::{Buf, Completion, Lent, Loan, Op, Shard, Socket, TaskId, Token};
use sys_rdma::WorkFailure;

use crate::connection::Connection;
use crate::inbox::Inbox;
use crate::outbox::{Out, Outbox};
use crate::slot::{Incoming, Outgoing, Payload};

/// Which slots of its task a stream uses for its own operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamSlots {
    /// Completions of receives.
    pub receive: u32,
    /// Completions of sends.
    pub send: u32,
}

/// Why a connection has ended.
#[derive(Clone, Debug)]
pub enum Ended {
    /// The peer has closed the connection, or the machine has ended it.
    Closed,
    /// The socket or its device failed with this negative `errno`.
    Socket(i32),
    /// A request of the RDMA connection failed.
    Rdma(Box<RdmaFailure>),
    /// The peer broke the protocol. The termination PDU of the standard is in the outbox.
    Violation(Box<Violation>),
}

impl Ended {
    /// The end of an RDMA connection, whose failure `why` describes.
    pub(crate) fn rdma(why: &impl ToString) -> Self {
        let why = why.to_string();
        Self::Rdma(Box::new(RdmaFailure { why }))
    }

    /// The end of an RDMA connection whose request has failed. A flushed request says that either
    /// end has closed the connection.
    pub(crate) fn request_failed(failure: &WorkFailure) -> Self {
        if failure.is_flush() {
            return Self::Closed;
        }
        Self::rdma(failure)
    }
}

/// The failure of an RDMA connection. It stays behind a pointer: each event of a connection is
/// returned beside an [`Ended`], which is therefore small.
#[derive(Clone, Debug)]
pub struct RdmaFailure {
    /// What failed, in words for the operator.
    pub why: String,
}

/// Destination of the receive in flight.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Receiving {
    Nothing,
    Inbox,
    /// The buffer of a slot, in which the payload starts at this offset.
    Slot(Slot, usize),
}

/// One connection: a socket, its machine, and the payload of the commands in progress.
pub struct Stream<M> {
    machine: M,
    socket: Socket,
    task: TaskId,
    tokens: StreamSlots,
    inbox: Inbox,
    receiving: Receiving,
    /// Bytes of the wanted payload that are in the slot's buffer already.
    filled: usize,
    /// Position and length, in the receive buffer, of the payload of the last event.
    in_place: (usize, usize),
    /// True after long payload was received directly into its slot's buffer.
    last_payload_direct: bool,
    slots: Vec<Payload>,
    outbox: Outbox,
    ended: bool,
    discard: bool,
    /// True on the side that answers commands.
    answers: bool,
    /// True once the machine has consumed every received byte. While false, no receive is posted:
    /// the unconsumed bytes must be offered to the machine again first.
    may_receive: bool,
}

impl<M: Machine> Stream<M> {
    /// Makes a stream over a connected socket. `slots` is the most commands that the machine can
    /// have in progress.
    pub fn new(
        machine: M,
        socket: Socket,
        task: TaskId,
        tokens: StreamSlots,
        slots: usize,
    ) -> Self {
        Self {
            machine,
            socket,
            task,
            tokens,
            inbox: Inbox::new(),
            receiving: Receiving::Nothing,
            filled: 0,
            in_place: (0, 0),
            last_payload_direct: false,
            slots: (0..slots).map(|_| Payload::default()).collect(),
            outbox: Outbox::new(slots, M::PAYLOAD_UNIT),
            ended: false,
            discard: false,
            answers: false,
            may_receive: true,
        }
    }

    /// Marks this as the side that answers commands.
    ///
    /// The stream then receives nothing while the peer leaves its answers unread. So the waiting
    /// answers are bounded by the commands that were received before. The side that sends commands
    /// must go on reading, or both sides could wait for each other.
    pub fn set_answering(&mut self) {
        self.answers = true;
    }

    /// The machine.
    pub fn machine(&self) -> &M {
        &self.machine
    }

    /// The machine, and the sink for what it sends.
    pub fn speak(&mut self) -> (&mut M, Out<'_>) {
        self.speak_of(None)
    }

    /// As [`speak`](Self::speak), with a disk's own pages as the payload of the slot that is
    /// answered now. The pages are sent or dropped; no table keeps them.
    #[inline(always)]
    pub fn speak_of(&mut self, at_hand: Option<Lent>) -> (&mut M, Out<'_>) {
        (
            &mut self.machine,
            Out {
                outbox: &mut self.outbox,
                slots: &self.slots,
                at_hand,
            },
        )
    }

    /// The socket under the stream.
    pub fn socket(&self) -> &Socket {
        &self.socket
    }

    /// Takes the completion of a send.
    ///
    /// # Errors
    /// The connection failed.
    pub fn sent(&mut self, completion: Completion) -> Result<(), Ended> {
        let Loan::Gather(gather) = completion.loan else {
            unreachable!("a send gives its gather back")
        };
        self.outbox.give_back(gather);
        if completion.result < 0 {
            Err(Ended::Socket(completion.result))
        } else {
            Ok(())
        }
    }

    /// Appends data that the peer has asked for, behind everything new, up to [`DATA_AT_ONCE`] and
    /// in whole PDUs. So a new command waits for no more than that, and the peer has new commands
    /// before it has taken the data of the older ones.
    fn hand_out_data(&mut self) {
        let (machine, mut out) = self.speak();
        let mut bytes = 0;
        while bytes < DATA_AT_ONCE {
            match machine.send_data(&mut out) {
                0 => return,
                more => bytes += more as usize,
            }
        }
    }
}

impl<M: Machine> Connection for Stream<M> {
    type Event = M::Event;

    #[inline(always)]
    fn next(&mut self) -> Result<Option<M::Event>, Ended> {
        let event = self.step();
        self.may_receive |= matches!(event, Ok(None));
        event
    }

    #[inline(always)]
    fn completed(&mut self, task_slot: u32, completion: Completion) -> Result<(), Ended> {
        if task_slot == self.tokens.receive {
            self.received(completion)
        } else {
            self.sent(completion)
        }
    }

    fn flush(&mut self, shard: &mut Shard) -> Result<(), Ended> {
        if !self.outbox.in_flight() && !self.discard {
            self.hand_out_data();
        }
        if let Some(gather) = self.outbox.take() {
            let token = Token {
                task: self.task,
                slot: self.tokens.send,
            };
            shard.start(
                token,
                Op::Send {
                    socket: self.socket.clone(),
                    gather,
                },
            );
        }
        let is_ready = self.receiving == Receiving::Nothing && self.may_receive;
        if is_ready && !self.ended && !self.backlogged() {
            self.receive(shard)?;
        }
        Ok(())
    }

    #[inline(always)]
    fn receive_into(&mut self, slot: Slot, incoming: Incoming) {
        self.slots[usize::from(slot.0)].incoming = incoming;
    }

    #[inline(always)]
    fn take_incoming(&mut self, slot: Slot) -> Incoming {
        std::mem::take(&mut self.slots[usize::from(slot.0)].incoming)
    }

    #[inline(always)]
    fn send_from(&mut self, slot: Slot, outgoing: Outgoing) {
        self.slots[usize::from(slot.0)].outgoing = Some(outgoing);
    }

    #[inline(always)]
    fn release(&mut self, slot: Slot) -> Option<Buf> {
        let payload = &mut self.slots[usize::from(slot.0)];
        if payload.is_empty() {
            return None;
        }
        std::mem::take(payload).into_buf()
    }

    fn in_place(&self) -> &[u8] {
        self.inbox.consumed(self.in_place.0, self.in_place.1)
    }

    fn backlogged(&self) -> bool {
        self.answers && self.outbox.backlogged()
    }

    fn is_quiet(&self) -> bool {
        self.receiving == Receiving::Nothing && !self.outbox.in_flight()
    }

    fn is_drained(&self) -> bool {
        self.outbox.is_empty() && !self.outbox.in_flight()
    }

    fn has_unsent(&self) -> bool {
        !self.outbox.is_empty()
    }

    fn discard(&mut self) {
        (self.discard, self.may_receive) = (true, true);
        self.inbox.consume(self.inbox.bytes().len());
    }

    fn finish(&mut self) {
        self.socket.shutdown_send();
    }

    fn close(&mut self) {
        self.ended = true;
        self.socket.shutdown();
    }
}

/// Two blocks of 128 KiB. One block a send takes too many system calls. All blocks at once leave a
/// busy peer with data and no commands, and then with commands and no data.
const DATA_AT_ONCE: usize = 256 << 10;
