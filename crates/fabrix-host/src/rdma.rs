//! RDMA as a link: a connection of the shard's hub, and the queue that uses it.
//!
//! Does not know which protocol the queue speaks. The `rdma` files of `nvme` and `iscsi` begin the
//! connections.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use fabrix_rt::{Completion, Shard, TaskId, Token};
use fabrix_transport::{Connection, Ended};

use crate::ConnectError;
use crate::link::{Link, OperationKind, Position, Route};

/// An RDMA connection of a protocol that is not established yet.
pub(crate) trait Connecting: Sized + 'static {
    /// As [`Link::Setup`].
    type Setup;

    /// The connection once it is established.
    type Queue: Connection + 'static;

    /// Begins the connection with this index in its session. `token` is told of its news.
    ///
    /// # Errors
    /// What RDMA lacks on this machine, or what the connection manager says.
    fn begin(
        shard: &mut Shard,
        ends: (SocketAddr, Option<IpAddr>),
        index: usize,
        setup: (Self::Setup, u16),
        token: Token,
    ) -> io::Result<Self>;

    /// Processes a completion's `result`. Result: the queue, once the connection is established.
    ///
    /// # Errors
    /// Why the connection does not come about.
    fn completed(&mut self, shard: &mut Shard, result: i32) -> Result<Option<Self::Queue>, Ended>;

    /// As [`Link::not_a_target`].
    fn not_a_target(within: Duration) -> String;
}

/// One RDMA connection.
pub(crate) enum RdmaLink<C: Connecting> {
    Connecting(C),
    Connected(C::Queue),
    /// The attempt is over, and there was no connection.
    Closed,
}

impl<C: Connecting> Link for RdmaLink<C> {
    type Setup = C::Setup;
    type Stream = C::Queue;

    fn open(
        shard: &mut Shard,
        task: TaskId,
        position: Position,
        route: Route,
        setup: (C::Setup, u16),
    ) -> Result<Self, ConnectError> {
        let slot = position.task_slot(OperationKind::Receive);
        let (ends, token) = ((route.to, route.from), Token { task, slot });
        let begun = C::begin(shard, ends, position.index, setup, token);
        begun
            .map(Self::Connecting)
            .map_err(|error| ConnectError::no_rdma(&error))
    }

    #[inline(always)]
    fn completed(
        &mut self,
        shard: &mut Shard,
        _: TaskId,
        _: OperationKind,
        completion: Completion,
    ) -> Result<(), Ended> {
        match self {
            Self::Connected(queue) => queue.completed(0, completion),
            Self::Connecting(connecting) => {
                if let Some(queue) = connecting.completed(shard, completion.result)? {
                    *self = Self::Connected(queue);
                }
                Ok(())
            }
            Self::Closed => Ok(()),
        }
    }

    #[inline(always)]
    fn stream(&self) -> Option<&C::Queue> {
        match self {
            Self::Connected(queue) => Some(queue),
            Self::Connecting(_) | Self::Closed => None,
        }
    }

    #[inline(always)]
    fn stream_mut(&mut self) -> Option<&mut C::Queue> {
        match self {
            Self::Connected(queue) => Some(queue),
            Self::Connecting(_) | Self::Closed => None,
        }
    }

    /// Commands that the target has not taken yet reach it no more: their messages lie in this
    /// end's send queue, or in receives of a queue pair that is over.
    fn close(&mut self, _: bool) {
        self.shutdown();
    }

    fn shutdown(&mut self) {
        match self {
            Self::Connected(queue) => queue.close(),
            Self::Connecting(_) | Self::Closed => *self = Self::Closed,
        }
    }

    fn drain(&mut self, shard: &mut Shard) {
        if let Self::Connected(queue) = self {
            queue.discard();
            if queue.flush(shard).is_err() {
                queue.close();
            }
        }
    }

    fn is_drained(&self) -> bool {
        self.stream().is_none_or(Connection::is_drained)
    }

    fn is_quiet(&self) -> bool {
        self.stream().is_none_or(Connection::is_quiet)
    }

    fn not_a_target(within: Duration) -> String {
        C::not_a_target(within)
    }
}

/// 3 s for the address and for the route, as Linux waits.
pub(crate) const STEP_MOST: Duration = Duration::from_secs(3);
