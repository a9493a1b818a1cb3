//! The end of a session's connections: after an error, at the target's request, or because the
//! channel is closed.
//!
//! A part of `session`. Requests are kept, and the next attempt is scheduled, in `reconnection`.

use std::time::Duration;

use fabrix_rt::Shard;

use super::{Protocol, Session};
use crate::connection::Connection;
use crate::link::Link;
use crate::reconnection::State;
use crate::timers::Timer;
use crate::{ConnectError, ConnectErrorKind};

impl<L: Link, P: Protocol<L>> Session<P, L> {
    /// The session has failed: closes all connections. Requests wait for the next ones.
    pub(crate) fn disconnect(&mut self, shard: &mut Shard, error: ConnectError) {
        let error = P::locate(self, error);
        if self.reconnection.lost(shard, &error) {
            self.outcome.fail(error);
            if let Some(path) = &self.reconnection.path {
                path.down(shard, P::quiet_within(self));
            }
            self.drain(shard, State::Draining);
        }
    }

    /// As [`disconnect`](Self::disconnect), with an error of this kind.
    pub(crate) fn disconnect_with(
        &mut self,
        shard: &mut Shard,
        kind: ConnectErrorKind,
        sentence: impl Into<String>,
    ) {
        self.disconnect(shard, ConnectError::new(kind, sentence));
    }

    /// The target ends the session: commands in progress may finish before the session disconnects.
    pub(crate) fn quiesce(&mut self, shard: &mut Shard) {
        if !std::mem::replace(&mut self.quiescing, true) {
            self.reconnection
                .set_timer(shard, Timer::Quiesce, QUIESCE_MOST);
            if let Some(path) = &self.reconnection.path {
                path.leaving(shard);
            }
        }
        P::log_out_if_idle(self, shard);
    }

    /// Ends the session: aborts the commands in progress and removes the task. The protocol may
    /// send a Logout first.
    pub(crate) fn close(&mut self, shard: &mut Shard) {
        if self.reconnection.state != State::Closing {
            self.terminating = P::log_out(self).or(self.terminating);
            self.drain(shard, State::Closing);
        }
    }

    /// The channel was dropped and its message could not be delivered: the next completion ends the
    /// session.
    pub(crate) fn channel_closed(&mut self) {
        self.channel_closed = true;
        self.connections.iter_mut().for_each(Connection::close);
    }

    /// Closes all connections, then waits until the kernel holds none of their memory.
    pub(crate) fn drain(&mut self, shard: &mut Shard, to: State) {
        self.reconnection.drain(shard, to);
        for (index, connection) in self.connections.iter_mut().enumerate() {
            if self.terminating == Some(index) {
                connection.link.drain(shard);
            } else {
                connection.close();
            }
        }
        match self.terminating {
            Some(index) if self.has_drained(index) => self.terminated(shard),
            Some(_) => self
                .reconnection
                .set_timer(shard, Timer::Terminate, TERMINATE_MOST),
            None => {}
        }
        self.back_off_when_quiet(shard);
    }

    /// An operation of a draining session has completed.
    pub(super) fn drain_further(&mut self, shard: &mut Shard, index: usize, failed: bool) {
        if self.terminating == Some(index) {
            self.connections[index].link.drain(shard);
            if failed || self.has_drained(index) {
                self.terminated(shard);
            }
        } else {
            // The connect operation may have completed just now.
            self.connections[index].close();
        }
        self.back_off_when_quiet(shard);
    }

    fn has_drained(&self, index: usize) -> bool {
        let connection = self.connections.get(index);
        connection.is_none_or(|connection| connection.link.is_drained())
    }

    /// The time for the last PDU is over. A connection over RDMA is quiet at once: no completion
    /// follows.
    pub(super) fn terminate_overdue(&mut self, shard: &mut Shard) {
        self.terminated(shard);
        self.back_off_when_quiet(shard);
    }

    /// The last PDU was sent, or its time is over.
    fn terminated(&mut self, shard: &mut Shard) {
        self.reconnection.timers.cancel(shard, Timer::Terminate);
        if let Some(index) = self.terminating.take()
            && let Some(connection) = self.connections.get_mut(index)
        {
            connection.link.shutdown();
        }
    }

    /// When the kernel holds no memory of the connections: collects their requests and schedules
    /// the next attempt.
    fn back_off_when_quiet(&mut self, shard: &mut Shard) {
        let is_quiet = |connection: &Connection<L, _>| connection.link.is_quiet();
        if self.terminating.is_some() || !self.connections.iter().all(is_quiet) {
            return;
        }
        for mut connection in std::mem::take(&mut self.connections) {
            while let Some((request, known)) = connection.abandon() {
                self.reconnection.collect(shard, request, known);
            }
        }
        if P::disconnected(self) {
            self.connect(shard);
        } else {
            self.reconnection.back_off(shard);
        }
    }
}

/// 200 ms to send a termination request or a Logout: more than a round trip.
const TERMINATE_MOST: Duration = Duration::from_millis(200);
/// 5 s for the commands in progress when a target ends the session.
const QUIESCE_MOST: Duration = Duration::from_secs(5);
