//! One TCP connection of ours and the machine that speaks on it, from the first try to connect to
//! the last operation.
//!
//! Knows its socket and the task slots of its operations; does not know what the machine says. What
//! a slot of the machine carries is its owner's business: a queue of NVMe, a session of iSCSI.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use fabrix_proto::Machine;
use fabrix_rt::{Completion, Nanos, Op, Shard, Socket, TaskId, Token, net};
use fabrix_transport::{Connection as _, Ended, Stream, StreamSlots};

/// Which operation of which connection a task slot belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum OperationKind {
    Connected,
    Received,
    Sent,
}

/// Where a connection is among all that its session ever opened; makes the task slots of its
/// operations.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Position {
    /// Which try to connect: an ending that comes after its try was given up is nobody's.
    pub(crate) attempt: u16,
    /// Which connection of the session; NVMe's admin queue is 0.
    pub(crate) index: usize,
}

/// From where to where a connection goes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Route {
    pub(crate) to: SocketAddr,
    /// None: the system chooses.
    pub(crate) from: Option<IpAddr>,
}

pub(crate) struct Wire<M> {
    pub(crate) stream: Option<Stream<M>>,
    socket: Socket,
    position: Position,
}

impl<M: Machine> Wire<M> {
    /// Opens a connection.
    ///
    /// # Errors
    /// No socket can be had.
    pub(crate) fn open(
        shard: &mut Shard,
        task: TaskId,
        position: Position,
        route: Route,
    ) -> std::io::Result<Self> {
        let address = route.to;
        let socket = match route.from {
            Some(local) => net::stream_from(&address, local)?,
            None => net::stream(&address)?,
        };
        let token = Token {
            task,
            slot: position.task_slot(OperationKind::Connected),
        };
        let op = Op::Connect {
            socket: socket.clone(),
            address,
        };
        shard.start(token, op);
        Ok(Self {
            stream: None,
            socket,
            position,
        })
    }

    /// An operation of this connection has ended; true: it has just connected, and
    /// [`begin`](Self::begin) follows.
    ///
    /// # Errors
    /// The connection is over, or never came to be.
    pub(crate) fn completed(
        &mut self,
        ending: OperationKind,
        completion: Completion,
    ) -> Result<bool, Ended> {
        match (ending, &mut self.stream) {
            (OperationKind::Connected, _) if completion.result < 0 => {
                Err(Ended::Socket(completion.result))
            }
            (OperationKind::Connected, _) => Ok(true),
            (OperationKind::Received, Some(stream)) => stream.received(completion).map(|()| false),
            (OperationKind::Sent, Some(stream)) => stream.sent(completion).map(|()| false),
            (OperationKind::Received | OperationKind::Sent, None) => Ok(false),
        }
    }

    /// TCP has connected: `machine` speaks from now on, with so many slots.
    pub(crate) fn begin(&mut self, task: TaskId, machine: M, slots: usize) -> &mut Stream<M> {
        let tokens = StreamSlots {
            receive: self.position.task_slot(OperationKind::Received),
            send: self.position.task_slot(OperationKind::Sent),
        };
        let stream = Stream::new(machine, self.socket.clone(), task, tokens, slots);
        self.stream.insert(stream)
    }

    /// Ends the connection at once.
    ///
    /// With commands in progress (`is_busy`) that is a reset: what the target has not read of them
    /// by then it should not read any more, because they will be sent again elsewhere.
    pub(crate) fn close(&mut self, is_busy: bool) {
        if is_busy {
            // Without it the connection just ends in order.
            let _best_effort = self.socket.linger_zero();
        }
        self.shut();
    }

    /// Ends the connection in order; what was handed over to the kernel is still sent.
    pub(crate) fn shut(&mut self) {
        match &mut self.stream {
            Some(stream) => stream.close(),
            None => self.socket.shutdown(),
        }
    }

    /// Begins a farewell: what waits to be sent is sent, what arrives is dropped. `shut` follows.
    pub(crate) fn part(&mut self, shard: &mut Shard) {
        if let Some(stream) = &mut self.stream {
            stream.discard();
            if stream.flush(shard).is_err() {
                stream.close();
            }
        }
    }

    /// True when a farewell has been said, as far as the kernel is concerned.
    pub(crate) fn has_parted(&self) -> bool {
        self.stream.as_ref().is_none_or(Stream::is_drained)
    }

    /// True when the kernel holds none of this connection's memory. A connect that goes on holds
    /// only its socket.
    pub(crate) fn is_quiet(&self) -> bool {
        self.stream.as_ref().is_none_or(Stream::is_quiet)
    }
}

impl Position {
    /// The queue and the operation that a task slot means.
    pub(crate) fn locate(slot: u32) -> (Self, OperationKind) {
        let ending = match slot % SLOTS_EACH {
            0 => OperationKind::Connected,
            1 => OperationKind::Received,
            _ => OperationKind::Sent,
        };
        let attempt = u16::try_from(slot >> ATTEMPT_SHIFT & ATTEMPTS_MASK).unwrap_or(0);
        let index = (slot & INDEX_MASK) / SLOTS_EACH;
        (
            Self {
                attempt,
                index: index as usize,
            },
            ending,
        )
    }

    fn task_slot(self, ending: OperationKind) -> u32 {
        let operation = match ending {
            OperationKind::Connected => 0,
            OperationKind::Received => 1,
            OperationKind::Sent => 2,
        };
        self.slot(operation)
    }

    fn slot(self, operation: u32) -> u32 {
        let index = u32::try_from(self.index).expect("a session has a few queues") * SLOTS_EACH;
        debug_assert!(
            index <= INDEX_MASK,
            "queue {} has no task slots",
            self.index
        );
        (u32::from(self.attempt) & ATTEMPTS_MASK) << ATTEMPT_SHIFT | index | operation
    }

    /// The attempt after this one.
    pub(crate) fn next_attempt(attempt: u16) -> u16 {
        u16::try_from((u32::from(attempt) + 1) & ATTEMPTS_MASK).unwrap_or(0)
    }
}

/// How long ago `sent_at` was is too long: an answer is overdue.
pub(crate) fn is_overdue(now: Nanos, sent_at: Option<Nanos>, most: Duration) -> bool {
    !most.is_zero() && sent_at.is_some_and(|at| now.since(at) >= most)
}

/// The task slots of one connection: a power of two, of which three are used.
const SLOTS_EACH: u32 = 4;
/// The low half of a task slot is the connection's, then come 15 bits for the attempt; the top bit
/// is for timers.
const ATTEMPT_SHIFT: u32 = 16;
const INDEX_MASK: u32 = (1 << ATTEMPT_SHIFT) - 1;
const ATTEMPTS_MASK: u32 = (1 << 15) - 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_slot_leads_back_to_its_connection_and_attempt() {
        for (attempt, index) in [(0, 0), (1, 128), (0x7FFF, 5)] {
            for ending in [
                OperationKind::Connected,
                OperationKind::Received,
                OperationKind::Sent,
            ] {
                let position = Position { attempt, index };
                assert_eq!(
                    Position::locate(position.task_slot(ending)),
                    (position, ending)
                );
            }
        }
        assert_eq!(Position::next_attempt(0x7FFF), 0);
    }
}
