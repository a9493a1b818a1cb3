//! A session without its connection: what is closed, what requests wait for and how long, and when the next try is.
//!
//! The second part of `session`. A request that was in progress goes back to waiting only when the kernel has given
//! its data back; it ends when the connection has been gone for `fast_io_fail`. See `docs/design/host.md`. The mirror
//! of NVMe's `outage`.

use std::time::Duration;

use fabrix_block::Status as DiskStatus;
use fabrix_rt::Shard;
use fabrix_transport::Ended;

use super::connection::Connection;
use super::session::{Session, State};
use crate::probe::Outcome;
use crate::request::{Request, finish};
use crate::timers::Timer;
use crate::{ConnectError, PathEvent};

impl Session {
    /// The connection is lost: it is closed, and requests wait for the next one.
    pub(super) fn lose(&mut self, shard: &mut Shard, error: ConnectError) {
        if !matches!(self.state, State::Rising | State::Live) {
            return;
        }
        let news = self.outage.lost(shard.now(), &error);
        if let Some(sentence) = news.filter(|_| self.plan.expected.is_some()) {
            (self.plan.options.notify)(&format!("{}: {sentence}; reconnecting", self.place()));
            self.outage.told(sentence);
        }
        self.tell_path(PathEvent::Lost);
        if matches!(self.outcome, Outcome::Waiting) {
            self.outcome = Outcome::Failed(error);
        }
        self.wait_for_connection(shard);
        self.fall(shard, State::Falling);
    }

    /// There is a connection.
    pub(super) fn connected_again(&mut self, shard: &mut Shard) {
        self.timers.cancel(shard, Timer::Fail);
        self.tell_path(PathEvent::Connected);
        if self.outage.over() {
            (self.plan.options.notify)(&format!("{}: connected again", self.place()));
        }
    }

    /// The target asks for a logout: what it has it may finish, then a new session follows.
    pub(super) fn leave(&mut self, shard: &mut Shard) {
        if !std::mem::replace(&mut self.leaving, true) {
            self.set_timer(shard, Timer::Leave, LEAVING_MOST);
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
        if let Some((machine, mut out)) = connection.speak() {
            machine.logout(&mut out);
            shard.flush_later(self.task);
        }
    }

    fn fall(&mut self, shard: &mut Shard, to: State) {
        self.state = to;
        self.bringup = None;
        let of_this_connection = [
            Timer::Tick,
            Timer::Bringup,
            Timer::Step,
            Timer::Leave,
            Timer::Again,
            Timer::Reconnect,
        ];
        for timer in of_this_connection {
            self.timers.cancel(shard, timer);
        }
        if let Some(connection) = &mut self.connection {
            if self.parting {
                connection.wire().part(shard);
            } else {
                connection.close();
            }
        }
        if self.parting {
            self.set_timer(shard, Timer::Part, PARTING);
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
            connection.wire().part(shard);
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
        if connection.is_none_or(|connection| connection.wire().has_parted()) {
            self.part_now(shard);
        }
    }

    /// A goodbye was said, or has had its time.
    pub(super) fn part_now(&mut self, shard: &mut Shard) {
        self.timers.cancel(shard, Timer::Part);
        if std::mem::take(&mut self.parting)
            && let Some(connection) = &mut self.connection
        {
            connection.wire().shut();
        }
    }

    /// Nobody uses this session any more: what is still in progress is aborted, and the session goes, with a logout if
    /// nothing is.
    pub(super) fn over(&mut self, shard: &mut Shard) {
        if self.state == State::Over {
            return;
        }
        self.timers.cancel(shard, Timer::Fail);
        let idle = self
            .connection
            .as_mut()
            .filter(|connection| !connection.is_busy());
        if let Some((machine, mut out)) = idle.and_then(Connection::speak) {
            self.parting = machine.logout(&mut out);
        }
        self.fall(shard, State::Over);
    }

    /// Once the kernel has given everything back, requests are collected and the next try is arranged.
    fn rest_when_quiet(&mut self, shard: &mut Shard) {
        let connection = self.connection.as_mut();
        if self.parting || !connection.is_none_or(|connection| connection.wire().is_quiet()) {
            return;
        }
        if let Some(mut connection) = self.connection.take() {
            while let Some((request, status)) = connection.abandon() {
                self.collect(shard, request, status);
            }
        }
        if self.state == State::Over {
            while let Some(request) = self.waiting.pop_front() {
                finish(shard, request, DiskStatus::Aborted);
            }
            self.timers.cancel_all(shard);
            return shard.remove(self.task);
        }
        self.state = State::Resting;
        let options = &self.plan.options;
        let (fixed, most) = (options.reconnect_delay, options.ctrl_loss);
        match self.outage.next_pause(shard.now(), fixed, most) {
            Some(pause) => self.set_timer(shard, Timer::Reconnect, pause),
            None => self.give_up(),
        }
    }

    /// It has been tried for long enough. What waits has failed by then.
    fn give_up(&mut self) {
        let options = &self.plan.options;
        if let Some(most) = options.ctrl_loss.filter(|_| self.plan.expected.is_some()) {
            let place = self.place();
            (options.notify)(&format!("{place}: no connection for {most:?}: given up"));
            self.tell_path(PathEvent::GivenUp);
        }
    }

    /// Tells whoever watches the connections of the disk.
    pub(super) fn tell_path(&self, event: PathEvent) {
        if self.plan.expected.is_some() {
            (self.plan.options.watch)(self.place(), event);
        }
    }

    /// A request has lost its connection: it ended before that, or waits for the next, or has waited too long.
    fn collect(&mut self, shard: &mut Shard, mut request: Request, status: Option<DiskStatus>) {
        let is_too_late = self.has_lost_its_time(shard, &mut request);
        match status {
            Some(status) => finish(shard, request, status),
            None if self.state == State::Over => finish(shard, request, DiskStatus::Aborted),
            None if is_too_late => finish(shard, request, DiskStatus::NotReady),
            // Before those that came later.
            None => self.waiting.push_front(request),
        }
    }

    /// Whether a request first had to wait so long ago that it ends instead.
    pub(super) fn has_lost_its_time(&self, shard: &Shard, request: &mut Request) -> bool {
        let most = self.plan.options.patience();
        self.outage.has_lost_its_time(shard.now(), request, most)
    }

    /// Sees to it that what waits for a connection does not wait longer than `fast_io_fail`.
    pub(super) fn wait_for_connection(&mut self, shard: &mut Shard) {
        match self.outage.too_long_at(self.plan.options.patience()) {
            Some(at) if !self.lost_too_long(shard) => {
                self.timers.set(shard, self.task, Timer::Fail, at);
            }
            _ => self.fail_waiting(shard),
        }
    }

    /// True when the connection has been gone for longer than requests wait.
    pub(super) fn lost_too_long(&self, shard: &Shard) -> bool {
        let most = self.plan.options.patience();
        self.outage.is_too_long(shard.now(), most)
    }

    /// Ends all that waits, if it has waited long enough; what the kernel still holds follows when it comes back.
    pub(super) fn fail_waiting(&mut self, shard: &mut Shard) {
        if self.lost_too_long(shard) {
            while let Some(request) = self.waiting.pop_front() {
                finish(shard, request, DiskStatus::NotReady);
            }
        }
    }
}

/// How long what is in progress may take when a target wants us to leave.
const LEAVING_MOST: Duration = Duration::from_secs(5);
/// A goodbye may take so long to leave.
const PARTING: Duration = Duration::from_millis(200);
