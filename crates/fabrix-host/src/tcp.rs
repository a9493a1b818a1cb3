//! TCP as a link: a socket, and the protocol machine that uses it.
//!
//! Does not know which protocol the machine speaks. The `tcp` files of `nvme` and `iscsi` make the
//! machines.

use std::time::Duration;

use fabrix_proto::Machine;
use fabrix_rt::{Completion, Op, Shard, Socket, TaskId, Token};
use fabrix_transport::{Connection as _, Ended, Stream, StreamSlots};

use crate::ConnectError;
use crate::link::{Link, OperationKind, Position, Route};

/// A protocol machine of a host that runs on a TCP connection.
pub(crate) trait HostMachine: Machine + Sized + 'static {
    /// As [`Link::Setup`].
    type Setup;

    /// The machine of a connection with `slots` slots.
    fn new(setup: Self::Setup, slots: u16) -> Self;

    /// Sends the first PDU.
    fn start(stream: &mut Stream<Self>);

    /// As [`Link::not_a_target`].
    fn not_a_target(within: Duration) -> String;
}

/// One TCP connection.
pub(crate) struct TcpLink<M: HostMachine> {
    stream: Option<Stream<M>>,
    /// Set until TCP has connected.
    setup: Option<(M::Setup, u16)>,
    socket: Socket,
    position: Position,
}

impl<M: HostMachine> TcpLink<M> {
    /// TCP has connected: creates the machine and sends the first PDU.
    fn start(&mut self, task: TaskId) {
        let Some((setup, slots)) = self.setup.take() else {
            return;
        };
        let tokens = StreamSlots {
            receive: self.position.task_slot(OperationKind::Receive),
            send: self.position.task_slot(OperationKind::Send),
        };
        let machine = M::new(setup, slots);
        let stream = Stream::new(machine, self.socket.clone(), task, tokens, slots.into());
        M::start(self.stream.insert(stream));
    }
}

impl<M: HostMachine> Link for TcpLink<M> {
    type Setup = M::Setup;
    type Stream = Stream<M>;

    fn open(
        shard: &mut Shard,
        task: TaskId,
        position: Position,
        route: Route,
        setup: (M::Setup, u16),
    ) -> Result<Self, ConnectError> {
        let address = route.to;
        let socket = shard.stream(&address, route.from);
        let socket = socket.map_err(|error| ConnectError::no_socket(&error))?;
        let slot = position.task_slot(OperationKind::Connect);
        let op = Op::Connect {
            socket: socket.clone(),
            address,
        };
        shard.start(Token { task, slot }, op);
        Ok(Self {
            stream: None,
            setup: Some(setup),
            socket,
            position,
        })
    }

    #[inline(always)]
    fn completed(
        &mut self,
        _: &mut Shard,
        task: TaskId,
        kind: OperationKind,
        completion: Completion,
    ) -> Result<(), Ended> {
        match (kind, &mut self.stream) {
            (OperationKind::Connect, _) if completion.result < 0 => {
                return Err(Ended::Socket(completion.result));
            }
            (OperationKind::Connect, _) => self.start(task),
            (OperationKind::Receive, Some(stream)) => stream.received(completion)?,
            (OperationKind::Send, Some(stream)) => stream.sent(completion)?,
            (OperationKind::Receive | OperationKind::Send, None) => {}
        }
        Ok(())
    }

    #[inline(always)]
    fn stream(&self) -> Option<&Stream<M>> {
        self.stream.as_ref()
    }

    #[inline(always)]
    fn stream_mut(&mut self) -> Option<&mut Stream<M>> {
        self.stream.as_mut()
    }

    /// With commands in progress the connection ends with a reset, so that the target drops what it
    /// has not read yet.
    fn close(&mut self, is_busy: bool) {
        if is_busy {
            // On failure the connection ends in order.
            let _best_effort = self.socket.linger_zero();
        }
        self.shutdown();
    }

    fn shutdown(&mut self) {
        match &mut self.stream {
            Some(stream) => stream.close(),
            None => self.socket.shutdown(),
        }
    }

    fn drain(&mut self, shard: &mut Shard) {
        if let Some(stream) = &mut self.stream {
            stream.discard();
            if stream.flush(shard).is_err() {
                stream.close();
            }
        }
    }

    fn is_drained(&self) -> bool {
        self.stream.as_ref().is_none_or(Stream::is_drained)
    }

    /// A connect operation holds the socket and no memory.
    fn is_quiet(&self) -> bool {
        self.stream.as_ref().is_none_or(Stream::is_quiet)
    }

    fn not_a_target(within: Duration) -> String {
        M::not_a_target(within)
    }
}
