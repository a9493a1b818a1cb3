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

/// What is still said on a connection before it is closed.
#[derive(Clone, Copy)]
pub(crate) enum LastWords {
    /// A termination request. The connection is closed once it is sent.
    Termination,
    /// A Logout. The connection is closed once the target has answered it, over RDMA once the
    /// target has ended it: a target needs the connection for its answer.
    Logout,
}

impl LastWords {
    /// Most time for them.
    fn most(self) -> Duration {
        match self {
            Self::Termination => TERMINATION_MOST,
            Self::Logout => LOGOUT_MOST,
        }
    }
}

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
            let logout = P::log_out(self).map(|index| (index, LastWords::Logout));
            self.terminating = logout.or(self.terminating);
            shard.stop_after(self.reconnection.task);
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
            if self.terminating.is_none_or(|(last, _)| last != index) {
                connection.close();
            }
        }
        if let Some((index, words)) = self.terminating {
            let timer = Timer::Terminate;
            self.reconnection.set_timer(shard, timer, words.most());
            self.terminate_further(shard, (index, words));
        }
        self.back_off_when_quiet(shard);
    }

    /// An operation of a draining session has completed.
    pub(super) fn drain_further(&mut self, shard: &mut Shard, index: usize, failed: bool) {
        match self.terminating {
            Some((last, _)) if last == index && failed => self.terminated(shard),
            Some((last, words)) if last == index => self.terminate_further(shard, (index, words)),
            // The connect operation may have completed just now.
            _ => self.connections[index].close(),
        }
        self.back_off_when_quiet(shard);
    }

    /// Sends what is left of the last words, and listens for their answer if there is one.
    fn terminate_further(&mut self, shard: &mut Shard, (index, words): (usize, LastWords)) {
        let is_over = match (self.connections.get_mut(index), words) {
            (None, _) => true,
            (Some(connection), LastWords::Termination) => {
                connection.link.drain(shard);
                connection.link.is_drained()
            }
            (Some(connection), LastWords::Logout) => loop {
                match connection.next() {
                    Ok(Some(_)) => {}
                    Ok(None) => break connection.flush(shard).is_err(),
                    // The machine is over once the Logout is answered. A connection over RDMA is
                    // drained when the target has ended it.
                    Err(_) => break connection.link.is_drained(),
                }
            },
        };
        if is_over {
            self.terminated(shard);
        }
    }

    /// The time for the last PDU is over. A connection over RDMA is quiet at once: no completion
    /// follows.
    pub(super) fn terminate_overdue(&mut self, shard: &mut Shard) {
        self.terminated(shard);
        self.back_off_when_quiet(shard);
    }

    /// The last words were said, or their time is over.
    fn terminated(&mut self, shard: &mut Shard) {
        self.reconnection.timers.cancel(shard, Timer::Terminate);
        if let Some((index, _)) = self.terminating.take()
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

/// 200 ms to send a termination request: more than a round trip.
const TERMINATION_MOST: Duration = Duration::from_millis(200);
/// 1 s for the answer to a Logout. A target that is busy for longer, or gone, is left without it.
const LOGOUT_MOST: Duration = Duration::from_secs(1);
/// 5 s for the commands in progress when a target ends the session.
const QUIESCE_MOST: Duration = Duration::from_secs(5);
