//! Requests of a disk's user in a session: submission, waiting, and completion.
//!
//! A part of `session`. The `transfer` files of the protocols turn requests into commands. Nothing
//! is allocated for a request: its data stays in the buffer it came with, or in one of the shard.

use std::time::Duration;

use fabrix_block::{Geometry, Operation, Request as BlockRequest, Status as DiskStatus, Submit};
use fabrix_rt::Shard;

use super::{Protocol, Session, Types};
use crate::connection::Connection;
use crate::link::Link;
use crate::reconnection::State;
use crate::request::{Data, Request, finish};
use crate::timers::Timer;

/// Requests as commands of a protocol.
pub(crate) trait CommandSet<L: Link>: Types {
    /// Index of the first connection that carries requests.
    const FIRST_IO: usize;

    /// Geometry of the session's disk. None: the session is not for a disk.
    fn geometry(plan: &Self::Plan) -> Option<&Geometry>;

    /// Whether the target supports the operation of a request.
    fn is_supported(session: &Session<Self, L>, request: &BlockRequest<'_>) -> bool;

    /// Number of slots that an operation needs.
    #[inline(always)]
    fn slots_of(_: Operation) -> usize {
        1
    }

    /// The data of a new request, in a buffer. None: the shard has no memory for one.
    #[inline(always)]
    fn take_data(
        session: &Session<Self, L>,
        shard: &mut Shard,
        request: &mut BlockRequest<'_>,
    ) -> Option<Data> {
        Data::take(shard, request, Self::geometry(&session.plan)?)
    }

    /// Sends a new request on a connection that has room. Without a connection the request waits.
    fn send_new(
        session: &mut Session<Self, L>,
        shard: &mut Shard,
        index: usize,
        request: &BlockRequest<'_>,
        data: Data,
    ) {
        if let Err(request) = Self::send(session, shard, index, Request::new(request, data)) {
            session.reconnection.waiting.push_front(request);
        }
    }

    /// Sends a request that has waited. Gives it back when the connection cannot take it.
    fn send(
        session: &mut Session<Self, L>,
        shard: &mut Shard,
        index: usize,
        request: Request,
    ) -> Result<(), Request>;
}

impl<L: Link, P: Protocol<L>> Session<P, L> {
    /// Submits a request of the disk's user.
    pub(crate) fn submit<'a>(
        &mut self,
        shard: &mut Shard,
        mut request: BlockRequest<'a>,
    ) -> Submit<'a> {
        if let Some(status) = self.refusal(&request) {
            return request.done(status);
        }
        let mut connection = None;
        let has_room = if self.is_sending() && self.reconnection.waiting.is_empty() {
            connection = self.connection_with_room(request.operation);
            connection.is_some()
        } else if self.reconnection.path.is_some() {
            false
        } else if self.reconnection.lost_too_long(shard) {
            return request.done(DiskStatus::NotReady);
        } else {
            self.reconnection.waiting.len() < self.reconnection.capacity
        };
        if !has_room {
            return Submit::Busy(request);
        }
        let Some(data) = P::take_data(self, shard, &mut request) else {
            return self.without_memory(request);
        };
        match connection {
            None => {
                let request = Request::new(&request, data);
                self.reconnection.waiting.push_back(request);
            }
            Some(index) => P::send_new(self, shard, index, &request, data),
        }
        Submit::Pending
    }

    /// The status of a request that needs no command.
    #[inline(always)]
    fn refusal(&self, request: &BlockRequest<'_>) -> Option<DiskStatus> {
        let Some(geometry) = P::geometry(&self.plan) else {
            return Some(DiskStatus::Internal);
        };
        if let Some(status) = request.refusal(geometry) {
            return Some(status);
        }
        if !P::is_supported(self, request) {
            return Some(DiskStatus::Unsupported);
        }
        let is_empty = request.blocks == 0 && request.operation != Operation::Flush;
        is_empty.then_some(DiskStatus::Ok)
    }

    /// Whether requests are sent at once.
    #[inline(always)]
    fn is_sending(&self) -> bool {
        self.reconnection.state == State::Connected && !self.quiescing && !self.paused
    }

    /// The shard has no memory for a request. `Busy`, if a completion of this channel follows,
    /// after which the caller tries again.
    fn without_memory<'a>(&self, request: BlockRequest<'a>) -> Submit<'a> {
        let mut connections = self.connections.iter().skip(P::FIRST_IO);
        if self.reconnection.waiting.is_empty() && connections.all(Connection::is_idle) {
            request.done(DiskStatus::NotReady)
        } else {
            Submit::Busy(request)
        }
    }

    /// The next connection after the last used one that has room for a request.
    #[inline(always)]
    fn connection_with_room(&self, operation: Operation) -> Option<usize> {
        let slots = P::slots_of(operation);
        let count = self.connections.len();
        let next = (self.last_used + 1).min(count);
        (next..count)
            .chain(P::FIRST_IO..next)
            .find(|index| self.connections[*index].room() >= slots)
    }

    /// Sends the waiting requests for which there is room.
    pub(crate) fn send_waiting(&mut self, shard: &mut Shard) {
        while self.is_sending()
            && let Some(request) = self.reconnection.waiting.front()
            && let Some(index) = self.connection_with_room(request.operation)
            && let Some(request) = self.reconnection.waiting.pop_front()
        {
            if let Err(request) = P::send(self, shard, index, request) {
                return self.reconnection.waiting.push_front(request);
            }
        }
    }

    /// Sends no command for a while.
    pub(crate) fn pause(&mut self, shard: &mut Shard) {
        self.paused = true;
        self.reconnection.set_timer(shard, Timer::Resume, PAUSE);
    }

    /// A send has completed: completes the answered requests whose data it held.
    pub(super) fn finish_answered(&mut self, shard: &mut Shard, index: usize) {
        let mut has_room = false;
        while let Some((request, status)) = self.connections[index].next_answered() {
            if let Some(trace) = &self.reconnection.options.trace {
                trace.ended();
            }
            finish(shard, request, status);
            has_room = true;
        }
        if has_room {
            self.send_waiting(shard);
            P::log_out_if_idle(self, shard);
        }
    }
}

/// 20 ms: a target without room gets no command for so long.
const PAUSE: Duration = Duration::from_millis(20);
