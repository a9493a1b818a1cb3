//! The contract between a connection and the task that owns it, for every kind of transport.
//!
//! The protocol's side of a connection (answering a command, submitting one) is a trait of `proto`
//! beside this one.

use fabrix_proto::Slot;
use fabrix_rt::{Buf, Completion, Shard};

use crate::{Ended, Incoming, Outgoing};

/// A connection, seen from the task that owns it.
pub trait Connection {
    /// An event of the connection's protocol machine.
    type Event;

    /// Runs the machine over the received bytes up to its next event. None: the machine needs more
    /// bytes.
    ///
    /// # Errors
    /// The peer broke the protocol or ended the connection. No event follows.
    fn next(&mut self) -> Result<Option<Self::Event>, Ended>;

    /// Takes the completion of an operation of the connection. `task_slot` is the operation's token
    /// number.
    ///
    /// # Errors
    /// The connection is over: closed by the peer, or failed.
    fn completed(&mut self, task_slot: u32, completion: Completion) -> Result<(), Ended>;

    /// Starts the next send and the next receive, where none is in flight. A receive starts only
    /// after [`next`](Self::next) has given None.
    ///
    /// # Errors
    /// The shard has no memory for a receive buffer: the connection cannot continue.
    fn flush(&mut self, shard: &mut Shard) -> Result<(), Ended>;

    /// Says where the payload that arrives for a slot is put.
    fn receive_into(&mut self, slot: Slot, incoming: Incoming);

    /// Where the payload that has arrived for a slot lies. Payload that arrives next stays in the
    /// receive buffer.
    fn take_incoming(&mut self, slot: Slot) -> Incoming;

    /// Says where the payload that is sent for a slot lies.
    fn send_from(&mut self, slot: Slot, outgoing: Outgoing);

    /// Forgets the payload of a slot in both directions. Gives back its buffer, if it had one.
    /// Sends that the kernel still has keep their own reference to it.
    fn release(&mut self, slot: Slot) -> Option<Buf>;

    /// The payload of the last event, in the receive buffer. Valid until the next call of
    /// [`next`](Self::next) or [`flush`](Self::flush).
    fn in_place(&self) -> &[u8];

    /// True while the peer leaves its answers unread. The owner then takes no further events;
    /// received bytes stay in the receive buffer. The owner calls [`next`](Self::next) again when
    /// this is over.
    fn backlogged(&self) -> bool;

    /// True when no operation of the connection is in the kernel or the adapter.
    fn is_quiet(&self) -> bool;

    /// True when everything has been sent.
    fn is_drained(&self) -> bool;

    /// True while something waits that was not handed to the kernel or the adapter yet.
    fn has_unsent(&self) -> bool;

    /// Drops every byte that arrives from now on: only the termination request is still sent.
    fn discard(&mut self);

    /// Ends our direction, after everything has been sent.
    fn finish(&mut self);

    /// Ends the connection at once, in both directions.
    fn close(&mut self);
}
