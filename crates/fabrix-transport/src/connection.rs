//! What a connection gives the task that owns it, however its bytes travel.
//!
//! The protocol's side of a connection (answering a command, submitting one) is a trait of `proto`
//! beside this one.

use fabrix_proto::{Machine, Slot};
use fabrix_rt::{Buf, Completion, Shard};

use crate::{Ended, Incoming, Outgoing, Stream};

/// A connection, seen from the task that owns it.
pub trait Connection {
    /// What the connection tells its owner.
    type Event;

    /// The next event; None: more must arrive.
    ///
    /// # Errors
    /// Nothing more comes: the peer broke the protocol or said goodbye.
    fn next(&mut self) -> Result<Option<Self::Event>, Ended>;

    /// An operation of the connection has ended, which had this slot of the owner's task.
    ///
    /// # Errors
    /// The connection is over: closed by the peer, or failed.
    fn completed(&mut self, task_slot: u32, completion: Completion) -> Result<(), Ended>;

    /// Starts what became ready: sending what was said, and receiving once [`next`](Self::next)
    /// has given None.
    ///
    /// # Errors
    /// The shard has no memory for it: the connection cannot go on.
    fn flush(&mut self, shard: &mut Shard) -> Result<(), Ended>;

    /// Says where the payload that arrives for a slot is put.
    fn receive_into(&mut self, slot: Slot, incoming: Incoming);

    /// Where the payload that has arrived for a slot lies.
    fn take_incoming(&mut self, slot: Slot) -> Incoming;

    /// Says where the payload that is sent for a slot lies.
    fn send_from(&mut self, slot: Slot, outgoing: Outgoing);

    /// Forgets the payload of a slot in both directions. Gives back its buffer, if it had one.
    fn release(&mut self, slot: Slot) -> Option<Buf>;

    /// The payload that came with the last event and has no buffer, until the next call of
    /// [`next`](Self::next) or [`flush`](Self::flush).
    fn in_place(&self) -> &[u8];

    /// True while the peer does not take its answers: no further events are to be taken.
    fn backlogged(&self) -> bool;

    /// True when the kernel or the adapter holds no memory of the connection.
    fn is_quiet(&self) -> bool;

    /// True when everything that was said has been sent.
    fn is_drained(&self) -> bool;

    /// True while something that was said was not handed to the kernel or the adapter yet.
    fn has_unsent(&self) -> bool;

    /// Drops what arrives from now on: only the goodbye is still sent.
    fn discard(&mut self);

    /// Ends our direction: everything that was said has been sent.
    fn finish(&mut self);

    /// Ends the connection at once, in both directions.
    fn close(&mut self);
}

impl<M: Machine> Connection for Stream<M> {
    type Event = M::Event;

    #[inline(always)]
    fn next(&mut self) -> Result<Option<M::Event>, Ended> {
        self.next()
    }

    #[inline(always)]
    fn completed(&mut self, task_slot: u32, completion: Completion) -> Result<(), Ended> {
        self.completed(task_slot, completion)
    }

    fn flush(&mut self, shard: &mut Shard) -> Result<(), Ended> {
        self.flush(shard)
    }

    #[inline(always)]
    fn receive_into(&mut self, slot: Slot, incoming: Incoming) {
        self.receive_into(slot, incoming);
    }

    #[inline(always)]
    fn take_incoming(&mut self, slot: Slot) -> Incoming {
        self.take_incoming(slot)
    }

    #[inline(always)]
    fn send_from(&mut self, slot: Slot, outgoing: Outgoing) {
        self.send_from(slot, outgoing);
    }

    #[inline(always)]
    fn release(&mut self, slot: Slot) -> Option<Buf> {
        self.release(slot)
    }

    fn in_place(&self) -> &[u8] {
        self.in_place()
    }

    fn backlogged(&self) -> bool {
        self.backlogged()
    }

    fn is_quiet(&self) -> bool {
        self.is_quiet()
    }

    fn is_drained(&self) -> bool {
        self.is_drained()
    }

    fn has_unsent(&self) -> bool {
        self.has_unsent()
    }

    fn discard(&mut self) {
        self.discard();
    }

    fn finish(&mut self) {
        self.socket().shutdown_send();
    }

    fn close(&mut self) {
        self.close();
    }
}
