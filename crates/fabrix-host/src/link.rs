//! Link: one connection of a session over some transport, from the connect call to the last
//! completion.
//!
//! Knows how the task slots of a session are divided among its connections. Does not know which
//! protocol the connection carries. TCP is in `tcp`, RDMA in `rdma`.

use std::net::{IpAddr, SocketAddr};

use fabrix_rt::{Completion, Shard, TaskId};
use fabrix_transport::{Connection, Ended};

use crate::ConnectError;

/// A connection to a target over some transport.
pub(crate) trait Link: Sized + 'static {
    /// Parameters that the protocol needs to start.
    type Setup;

    /// The connection once the transport has connected.
    type Stream: Connection;

    /// Starts to connect, for a connection of `slots` slots.
    ///
    /// # Errors
    /// The system has no socket, or no resource that the transport uses instead, in a sentence.
    fn open(
        shard: &mut Shard,
        task: TaskId,
        position: Position,
        route: Route,
        setup: (Self::Setup, u16),
    ) -> Result<Self, ConnectError>;

    /// Processes the completion of an operation. Starts the protocol when the transport has
    /// connected.
    ///
    /// # Errors
    /// The connection has ended, or the connect failed.
    fn completed(
        &mut self,
        shard: &mut Shard,
        task: TaskId,
        kind: OperationKind,
        completion: Completion,
    ) -> Result<(), Ended>;

    /// The connection, once the transport has connected.
    fn stream(&self) -> Option<&Self::Stream>;

    /// The same, mutable.
    fn stream_mut(&mut self) -> Option<&mut Self::Stream>;

    /// Ends the connection at once. With commands in progress (`is_busy`) the target must not
    /// continue them: they are sent again on another connection.
    fn close(&mut self, is_busy: bool);

    /// Ends the connection in order. Bytes that the kernel or adapter has accepted are still sent.
    fn shutdown(&mut self);

    /// Sends the bytes that are queued and drops all bytes that arrive.
    /// [`shutdown`](Self::shutdown) follows.
    fn drain(&mut self, shard: &mut Shard);

    /// True when the kernel or adapter has accepted every queued byte.
    fn is_drained(&self) -> bool;

    /// True when the kernel or adapter holds no memory of the connection.
    fn is_quiet(&self) -> bool;

    /// The sentence for a peer that accepts connections and does not answer in the protocol.
    fn not_a_target(within: std::time::Duration) -> String;
}

/// Operations of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum OperationKind {
    Connect,
    Receive,
    Send,
}

/// Position of a connection among all connections that its session has opened. Determines the task
/// slots of the connection's operations.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Position {
    /// Number of the attempt to connect. Completions of earlier attempts are ignored.
    pub(crate) attempt: u16,
    /// Index of the connection in its session. NVMe's admin queue is 0.
    pub(crate) index: usize,
}

/// Local and remote address of a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Route {
    pub(crate) to: SocketAddr,
    /// None: the system chooses.
    pub(crate) from: Option<IpAddr>,
}

impl Position {
    /// The connection and the operation of a task slot.
    pub(crate) fn locate(slot: u32) -> (Self, OperationKind) {
        let kind = match slot % SLOTS_EACH {
            0 => OperationKind::Connect,
            1 => OperationKind::Receive,
            _ => OperationKind::Send,
        };
        let attempt = u16::try_from(slot >> ATTEMPT_SHIFT & ATTEMPTS_MASK).unwrap_or(0);
        let index = ((slot & INDEX_MASK) / SLOTS_EACH) as usize;
        (Self { attempt, index }, kind)
    }

    /// The task slot of an operation.
    pub(crate) fn task_slot(self, kind: OperationKind) -> u32 {
        let index = u32::try_from(self.index).expect("a session has a few queues") * SLOTS_EACH;
        debug_assert!(
            index <= INDEX_MASK,
            "connection {} has no task slots",
            self.index
        );
        (u32::from(self.attempt) & ATTEMPTS_MASK) << ATTEMPT_SHIFT | index | kind as u32
    }

    /// The number of the attempt after `attempt`.
    pub(crate) fn next_attempt(attempt: u16) -> u16 {
        u16::try_from((u32::from(attempt) + 1) & ATTEMPTS_MASK).unwrap_or(0)
    }
}

/// Task slots of one connection: a power of two. Three are used.
const SLOTS_EACH: u32 = 4;
/// Bits of a task slot: 16 for the connection and its operation, 15 for the attempt. The top bit
/// marks timers.
const ATTEMPT_SHIFT: u32 = 16;
const INDEX_MASK: u32 = (1 << ATTEMPT_SHIFT) - 1;
const ATTEMPTS_MASK: u32 = (1 << 15) - 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_slot_leads_back_to_its_connection_and_attempt() {
        for (attempt, index) in [(0, 0), (1, 128), (0x7FFF, 5)] {
            for kind in [
                OperationKind::Connect,
                OperationKind::Receive,
                OperationKind::Send,
            ] {
                let position = Position { attempt, index };
                assert_eq!(Position::locate(position.task_slot(kind)), (position, kind));
            }
        }
        assert_eq!(Position::next_attempt(0x7FFF), 0);
    }
}
