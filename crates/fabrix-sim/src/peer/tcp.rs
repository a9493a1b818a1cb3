//! A TCP connection of a peer, with the protocol machine on it.

use std::net::SocketAddr;

use fabrix_proto::Machine;
use fabrix_rt::{Completion, Op, Shard, Socket, TaskId, Token};
use fabrix_transport::{Connection as _, Stream, StreamSlots};

use super::Lost;

/// A connection.
pub(super) struct Tcp<M> {
    socket: Socket,
    /// None: it connects.
    pub(super) stream: Option<Stream<M>>,
    task: TaskId,
    base: u32,
}

impl<M: Machine> Tcp<M> {
    /// Begins to connect. The connection uses the task slots from `base`.
    pub(super) fn open(shard: &mut Shard, task: TaskId, address: SocketAddr, base: u32) -> Self {
        let socket = shard.stream(&address, None).expect("a socket");
        let op = Op::Connect {
            socket: socket.clone(),
            address,
        };
        shard.start(Token { task, slot: base }, op);
        Self {
            socket,
            stream: None,
            task,
            base,
        }
    }

    /// Whether a task slot is one of this connection's.
    pub(super) fn has(&self, slot: u32) -> bool {
        (self.base..self.base + SLOTS_EACH).contains(&slot)
    }

    /// Takes the completion of an operation. True: the connection has just been made, and its
    /// machine can start.
    pub(super) fn completed(
        &mut self,
        slot: u32,
        completion: Completion,
        machine: impl FnOnce() -> (M, usize),
    ) -> Result<bool, Lost> {
        match &mut self.stream {
            None if completion.result < 0 => Err(Lost),
            None => {
                let (machine, slots) = machine();
                let tokens = StreamSlots {
                    receive: self.base + 1,
                    send: self.base + 2,
                };
                let socket = self.socket.clone();
                self.stream = Some(Stream::new(machine, socket, self.task, tokens, slots));
                Ok(true)
            }
            Some(stream) => {
                let taken = stream.completed(slot, completion);
                taken.map(|()| false).map_err(|_| Lost)
            }
        }
    }

    pub(super) fn flush(&mut self, shard: &mut Shard) -> Result<(), Lost> {
        let stream = self.stream.as_mut();
        stream
            .map_or(Ok(()), |stream| stream.flush(shard))
            .map_err(|_| Lost)
    }

    /// The next event of the machine.
    pub(super) fn next(&mut self) -> Result<Option<M::Event>, Lost> {
        let stream = self.stream.as_mut();
        stream.map_or(Ok(None), Stream::next).map_err(|_| Lost)
    }
}

impl<M> Drop for Tcp<M> {
    /// Ends with a reset, so that the target drops what it has not read.
    fn drop(&mut self) {
        let _best_effort = self.socket.linger_zero();
        self.socket.shutdown();
    }
}

/// Task slots of one connection.
pub(super) const SLOTS_EACH: u32 = 3;
