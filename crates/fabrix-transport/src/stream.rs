//! A TCP connection and the machine that speaks on it.
//!
//! One receive in flight into a large buffer, as many PDUs taken out of it as are there, one send
//! in flight for everything that became ready. Payload that a slot has a buffer for goes there,
//! large payload without passing through the receive buffer; payload of a slot without a buffer is
//! handed out where it lies. What arrives is in `arriving`. Does not know what a command means.

mod arriving;
#[cfg(test)]
mod tests;

use fabrix_proto::{Machine, Slot, Violation};
use fabrix_rt::{Buf, Completion, Lent, Loan, Op, Shard, Socket, TaskId, Token};

use crate::inbox::Inbox;
use crate::outbox::{Out, Outbox};
use crate::slot::{Incoming, Outgoing, Payload};

/// Which slots of its task a stream uses for its own operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamSlots {
    /// Endings of receives.
    pub receive: u32,
    /// Endings of sends.
    pub send: u32,
}

/// Why nothing more comes from a stream.
#[derive(Clone, Debug)]
pub enum Ended {
    /// The peer has closed, or the machine has said goodbye.
    Closed,
    /// The socket failed: a negative `errno`.
    Socket(i32),
    /// The peer broke the protocol; the goodbye that its standard asks for is in the outbox.
    Violation(Box<Violation>),
}

/// What the receive in flight fills.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Receiving {
    Nothing,
    Inbox,
    /// The payload of a slot, whose buffer starts there.
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
    /// How much of the payload that the machine wants now is in its slot's buffer.
    filled: usize,
    in_place: (usize, usize),
    /// True after long payload was received directly into its slot's buffer.
    last_payload_direct: bool,
    slots: Vec<Payload>,
    outbox: Outbox,
    ended: bool,
    discard: bool,
    /// This is the side that answers.
    answers: bool,
    /// The machine has taken all that arrived. Until then the receive buffer is not lent to the
    /// kernel: what is in it could not be taken before more arrives, and nothing more may ever
    /// come.
    hungry: bool,
}

impl<M: Machine> Stream<M> {
    /// A stream over a connected socket; `slots` is how many commands the machine can have in
    /// progress.
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
            hungry: true,
        }
    }

    /// This is the side that answers.
    ///
    /// From now on nothing is received while the peer does not take what is sent: what waits for it
    /// is then bounded by what it has asked for before. The side that asks must go on reading, or
    /// both could wait for each other.
    pub fn set_answering(&mut self) {
        self.answers = true;
    }

    /// The machine, to ask it.
    pub fn machine(&self) -> &M {
        &self.machine
    }

    /// The machine and where it puts what is to be sent.
    pub fn speak(&mut self) -> (&mut M, Out<'_>) {
        self.speak_of(None)
    }

    /// The same to answer a slot with a disk's pages that are at hand: they are sent, or let go,
    /// and no table has to keep them meanwhile.
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

    /// Says where the payload that arrives for a slot is put.
    #[inline(always)]
    pub fn receive_into(&mut self, slot: Slot, incoming: Incoming) {
        self.slots[usize::from(slot.0)].incoming = incoming;
    }

    /// Where the payload that has arrived for a slot lies. What arrives next stays in the receive
    /// buffer.
    #[inline(always)]
    pub fn take_incoming(&mut self, slot: Slot) -> Incoming {
        std::mem::take(&mut self.slots[usize::from(slot.0)].incoming)
    }

    /// Says where the payload that is sent for a slot lies.
    #[inline(always)]
    pub fn send_from(&mut self, slot: Slot, outgoing: Outgoing) {
        self.slots[usize::from(slot.0)].outgoing = Some(outgoing);
    }

    /// Forgets the payload of a slot in both directions. Gives back its buffer, if it had one.
    /// Sends that the kernel still has keep their own reference to it.
    #[inline(always)]
    pub fn release(&mut self, slot: Slot) -> Option<Buf> {
        let payload = &mut self.slots[usize::from(slot.0)];
        let incoming = std::mem::take(&mut payload.incoming);
        match payload.outgoing.take() {
            Some(Outgoing::Buf(buf, _)) => return Some(buf),
            Some(Outgoing::Lent(_)) | None => {}
        }
        incoming.into_buf()
    }

    /// The payload that came with the last event, where it lies; only until the next call of `next`
    /// or `flush`.
    pub fn in_place(&self) -> &[u8] {
        self.inbox.consumed(self.in_place.0, self.in_place.1)
    }

    /// True while the peer does not take its answers: no further commands should be taken from it.
    /// What has arrived meanwhile stays where it is; the owner calls `next` again when this is
    /// over.
    pub fn backlogged(&self) -> bool {
        self.answers && self.outbox.backlogged()
    }

    /// True when no operation of the stream is in the kernel.
    pub fn is_quiet(&self) -> bool {
        self.receiving == Receiving::Nothing && !self.outbox.in_flight()
    }

    /// True when everything that was to be said has been sent.
    pub fn is_drained(&self) -> bool {
        self.outbox.is_empty() && !self.outbox.in_flight()
    }

    /// True while something is to be said that was not handed to the kernel yet.
    pub fn has_unsent(&self) -> bool {
        !self.outbox.is_empty()
    }

    /// From now on what arrives is dropped unread: the connection is being closed, politely.
    pub fn discard(&mut self) {
        (self.discard, self.hungry) = (true, true);
        self.inbox.consume(self.inbox.bytes().len());
    }

    /// Ends both directions at once.
    pub fn close(&mut self) {
        self.ended = true;
        self.socket.shutdown();
    }

    /// A send has ended.
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

    /// Starts the send of what became ready and the next receive, where none is in flight. Nothing
    /// is received before `next` has given None.
    ///
    /// # Errors
    /// The shard has no memory for a receive buffer: the connection cannot go on.
    pub fn flush(&mut self, shard: &mut Shard) -> Result<(), Ended> {
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
        let is_ready = self.receiving == Receiving::Nothing && self.hungry;
        if is_ready && !self.ended && !self.backlogged() {
            self.receive(shard)?;
        }
        Ok(())
    }

    /// What the peer has asked for goes behind all that is new, and only as much of it as one call
    /// sends, in whole PDUs: the next commands wait for no more than that, and the peer has them
    /// before it has taken the data of those before.
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

/// Two blocks of 128 KiB: with one at a time there are too many calls, and with all of them a peer
/// that is full has at one moment all data and no command, and at the next all commands and no
/// data.
const DATA_AT_ONCE: usize = 256 << 10;
