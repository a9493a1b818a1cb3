//! NVMe/RDMA as a link to a controller: a connection of the shard's hub, and the queue that uses
//! it.

use std::sync::Arc;
use std::time::Duration;

use fabrix_rt::{Completion, Shard, TaskId, Token};
use fabrix_transport::rdma::Member;
use fabrix_transport::{ConnectingRdma, Connection as _, Ended, RdmaHostQueue};

use crate::link::{Link, OperationKind, Position, Route};
use crate::{ConnectError, ConnectErrorKind, Options};

/// One RDMA connection.
pub(crate) enum RdmaLink {
    Connecting(ConnectingRdma),
    Connected(RdmaHostQueue<Member>),
    /// The attempt is over, and there was no connection.
    Closed,
}

impl Link for RdmaLink {
    type Setup = Arc<Options>;
    type Stream = RdmaHostQueue<Member>;

    /// Index of the connection in its session: the queue's id.
    fn open(
        shard: &mut Shard,
        task: TaskId,
        position: Position,
        route: Route,
        (options, slots): (Arc<Options>, u16),
    ) -> Result<Self, ConnectError> {
        let slot = position.task_slot(OperationKind::Receive);
        let queue_id = u16::try_from(position.index).expect("a session has a few queues");
        let step = STEP_MOST.min(options.bringup_timeout);
        let (ends, queue) = ((route.to, route.from), (queue_id, slots));
        let token = Token { task, slot };
        let begun = ConnectingRdma::begin(shard, ends, queue, step, token);
        begun.map(Self::Connecting).map_err(|error| {
            ConnectError::new(
                ConnectErrorKind::Local,
                format!("no RDMA connection: {error}"),
            )
        })
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
    fn stream(&self) -> Option<&RdmaHostQueue<Member>> {
        match self {
            Self::Connected(queue) => Some(queue),
            Self::Connecting(_) | Self::Closed => None,
        }
    }

    #[inline(always)]
    fn stream_mut(&mut self) -> Option<&mut RdmaHostQueue<Member>> {
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

    fn drain(&mut self, _: &mut Shard) {
        if let Self::Connected(queue) = self {
            queue.discard();
        }
    }

    fn is_drained(&self) -> bool {
        true
    }

    fn is_quiet(&self) -> bool {
        self.stream().is_none_or(RdmaHostQueue::is_quiet)
    }

    fn not_a_target(within: Duration) -> String {
        format!(
            "something accepts RDMA connections and did not answer within {within:?}: is it an NVMe/RDMA target?"
        )
    }
}

/// 3 s for the address and for the route, as Linux waits.
const STEP_MOST: Duration = Duration::from_secs(3);
