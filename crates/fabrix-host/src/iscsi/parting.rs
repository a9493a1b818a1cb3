//! How a session leaves its connection: lost, asked to go by the target, or wanted by nobody any
//! more.
//!
//! The second part of `session`. What becomes of requests meanwhile, and when the next try is, is
//! `outage`'s. The mirror of NVMe's `parting`.

use std::net::SocketAddr;

use fabrix_rt::Shard;
use fabrix_transport::Ended;

use super::connection::{Connection, Link};
use super::session::Session;
use crate::ConnectError;
use crate::outage::{LEAVING_MOST, PARTING, State};
use crate::timers::Timer;

impl<L: Link> Session<L> {
    /// The connection is lost: it is closed, and requests wait for the next one.
    pub(super) fn lose(&mut self, shard: &mut Shard, error: ConnectError) {
        let error = self.located(error);
        if self.reconnection.lose(shard, &error) {
            self.outcome.fail(error);
            self.fall(shard, State::Falling);
        }
    }

    /// The target redirects the login: this connection is closed, and the login begins anew at
    /// another portal.
    pub(super) fn redirect(&mut self, shard: &mut Shard, to: SocketAddr) {
        self.reconnection
            .tell_of_a_disk(&format!("the target redirects us to {to}"));
        self.redirected_to = Some(to);
        self.fall(shard, State::Falling);
    }

    /// The target asks for a logout: what it has it may finish, then a new session follows.
    pub(super) fn leave(&mut self, shard: &mut Shard) {
        if !std::mem::replace(&mut self.leaving, true) {
            self.reconnection
                .set_timer(shard, Timer::Leave, LEAVING_MOST);
        }
        self.log_out_when_idle(shard);
    }

    /// Leaves a target that asked for it, once nothing is in progress.
    pub(super) fn log_out_when_idle(&mut self, shard: &mut Shard) {
        let Some(connection) = self.connection.as_mut().filter(|_| self.leaving) else {
            return;
        };
        if connection.is_busy() {
            return;
        }
        if let Some((initiator, mut out)) = connection.speak() {
            initiator.logout(&mut out);
            shard.flush_later(self.reconnection.task);
        }
    }

    fn fall(&mut self, shard: &mut Shard, to: State) {
        self.reconnection.fall(shard, to);
        self.bringup = None;
        if let Some(connection) = &mut self.connection {
            if self.parting {
                connection.link().part(shard);
            } else {
                connection.close();
            }
        }
        if self.parting {
            self.reconnection.set_timer(shard, Timer::Part, PARTING);
            self.part_when_drained(shard);
        }
        self.rest_when_quiet(shard);
    }

    /// An operation of a falling session has ended.
    pub(super) fn fallen(&mut self, shard: &mut Shard, completed: &Result<(), Ended>) {
        let Some(connection) = &mut self.connection else {
            return;
        };
        if self.parting {
            connection.link().part(shard);
            if completed.is_err() {
                self.part_now(shard);
            }
            self.part_when_drained(shard);
        } else {
            // It may have connected just now.
            connection.close();
        }
        self.rest_when_quiet(shard);
    }

    fn part_when_drained(&mut self, shard: &mut Shard) {
        let connection = self.connection.as_mut();
        if connection.is_none_or(|connection| connection.link().has_parted()) {
            self.part_now(shard);
        }
    }

    /// A goodbye was said, or has had its time.
    pub(super) fn part_now(&mut self, shard: &mut Shard) {
        self.reconnection.timers.cancel(shard, Timer::Part);
        if std::mem::take(&mut self.parting)
            && let Some(connection) = &mut self.connection
        {
            connection.link().shut();
        }
    }

    /// Nobody uses this session any more: what is still in progress is aborted, and the session
    /// goes, with a logout if nothing is.
    pub(super) fn over(&mut self, shard: &mut Shard) {
        if self.reconnection.state == State::Over {
            return;
        }
        let idle = self
            .connection
            .as_mut()
            .filter(|connection| !connection.is_busy());
        if let Some((initiator, mut out)) = idle.and_then(Connection::speak) {
            self.parting = initiator.logout(&mut out);
        }
        self.fall(shard, State::Over);
    }

    /// Once the kernel has given everything back, requests are collected and the next try is
    /// arranged.
    fn rest_when_quiet(&mut self, shard: &mut Shard) {
        let connection = self.connection.as_mut();
        if self.parting || !connection.is_none_or(|connection| connection.link().is_quiet()) {
            return;
        }
        if let Some(mut connection) = self.connection.take() {
            while let Some((request, status)) = connection.abandon() {
                self.reconnection.collect(shard, request, status);
            }
        }
        match self
            .redirected_to
            .take()
            .filter(|_| self.reconnection.state != State::Over)
        {
            Some(portal) => self.rise_at(shard, portal),
            None => self.reconnection.rest(shard),
        }
    }
}
