//! A session without its controller: what is closed, what requests wait for and how long, and when the next try is.
//!
//! The second part of `session`. A request that was in progress goes back to waiting only when the kernel has given
//! its data back; it ends when the connection has been gone for `fast_io_fail`. See `docs/design/host.md`.

use std::time::Duration;

use fabrix_block::Status as DiskStatus;
use fabrix_rt::Shard;
use fabrix_transport::Ended;

use super::session::{Session, State};
use crate::probe::Outcome;
use crate::request::{Request, finish};
use crate::timers::Timer;
use crate::{ConnectError, PathEvent};

impl Session {
    /// The controller is lost: everything of it is closed, and requests wait for the next one.
    pub(crate) fn lose(&mut self, shard: &mut Shard, error: ConnectError) {
        if !matches!(self.state, State::Rising | State::Live) {
            return;
        }
        self.tell(shard, &error);
        self.tell_path(PathEvent::Lost);
        if matches!(self.outcome, Outcome::Waiting) {
            self.outcome = Outcome::Failed(error);
        }
        self.wait_for_connection(shard);
        self.fall(shard, State::Falling);
    }

    /// Tells the user of a disk why it has no connection; once for each reason.
    fn tell(&mut self, shard: &Shard, error: &ConnectError) {
        let news = self.outage.lost(shard.now(), error);
        if let Some(sentence) = news.filter(|_| self.plan.expected.is_some()) {
            (self.plan.options.notify)(&format!("{}: {sentence}; reconnecting", self.plan.address));
            self.outage.told(sentence);
        }
    }

    /// There is a connection.
    pub(crate) fn connected_again(&mut self, shard: &mut Shard) {
        self.timers.cancel(shard, Timer::Fail);
        self.tell_path(PathEvent::Connected);
        if self.outage.over() {
            (self.plan.options.notify)(&format!("{}: connected again", self.plan.address));
        }
    }

    fn fall(&mut self, shard: &mut Shard, to: State) {
        self.state = to;
        let of_this_controller = [Timer::Tick, Timer::Bringup, Timer::Step, Timer::Leave];
        for timer in of_this_controller.into_iter().chain([Timer::Reconnect]) {
            self.timers.cancel(shard, timer);
        }
        for (index, queue) in self.queues.iter_mut().enumerate() {
            if self.parting == Some(index) {
                queue.wire().part(shard);
            } else {
                queue.close();
            }
        }
        match self.parting {
            Some(index) if self.queues[index].wire().has_parted() => self.part_now(shard),
            Some(_) => self.set_timer(shard, Timer::Part, PARTING),
            None => {}
        }
        self.rest_when_quiet(shard);
    }

    /// An operation of a falling session has ended.
    pub(crate) fn fallen(
        &mut self,
        shard: &mut Shard,
        index: usize,
        completed: &Result<(), Ended>,
    ) {
        if self.parting == Some(index) {
            self.queues[index].wire().part(shard);
            if completed.is_err() || self.queues[index].wire().has_parted() {
                self.part_now(shard);
            }
        } else {
            // It may have connected just now.
            self.queues[index].close();
        }
        self.rest_when_quiet(shard);
    }

    /// A goodbye was said, or has had its time.
    pub(crate) fn part_now(&mut self, shard: &mut Shard) {
        self.timers.cancel(shard, Timer::Part);
        if let Some(index) = self.parting.take()
            && let Some(queue) = self.queues.get_mut(index)
        {
            queue.wire().shut();
        }
    }

    /// Nobody uses this session any more: what is still in progress is aborted, and the session goes.
    pub(crate) fn over(&mut self, shard: &mut Shard) {
        if self.state != State::Over {
            self.timers.cancel(shard, Timer::Fail);
            self.fall(shard, State::Over);
        }
    }

    /// Once the kernel has given everything back, requests are collected and the next try is arranged.
    fn rest_when_quiet(&mut self, shard: &mut Shard) {
        if self.parting.is_some() || !self.queues.iter().all(|queue| queue.is_quiet()) {
            return;
        }
        let mut queues = std::mem::take(&mut self.queues);
        for queue in &mut queues {
            while let Some((request, status)) = queue.abandon() {
                self.collect(shard, request, status);
            }
        }
        drop(queues);
        self.bringups.clear();
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
            let place = self.plan.address;
            (options.notify)(&format!("{place}: no connection for {most:?}: given up"));
            self.tell_path(PathEvent::GivenUp);
        }
    }

    /// Tells whoever watches the connections of the disk.
    pub(super) fn tell_path(&self, event: PathEvent) {
        if self.plan.expected.is_some() {
            (self.plan.options.watch)(self.plan.address, event);
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

    /// A request must wait for another controller: whether it first had to so long ago that it ends instead.
    pub(crate) fn has_lost_its_time(&self, shard: &Shard, request: &mut Request) -> bool {
        let most = self.plan.options.patience();
        self.outage.has_lost_its_time(shard.now(), request, most)
    }

    /// Sees to it that what waits for a connection does not wait longer than `fast_io_fail`.
    pub(crate) fn wait_for_connection(&mut self, shard: &mut Shard) {
        match self.outage.too_long_at(self.plan.options.patience()) {
            Some(at) if !self.lost_too_long(shard) => {
                self.timers.set(shard, self.task, Timer::Fail, at);
            }
            _ => self.fail_waiting(shard),
        }
    }

    /// True when the connection has been gone for longer than requests wait.
    pub(crate) fn lost_too_long(&self, shard: &Shard) -> bool {
        let most = self.plan.options.patience();
        self.outage.is_too_long(shard.now(), most)
    }

    /// Ends all that waits, if it has waited long enough; what the kernel still holds follows when it comes back.
    pub(crate) fn fail_waiting(&mut self, shard: &mut Shard) {
        if self.lost_too_long(shard) {
            while let Some(request) = self.waiting.pop_front() {
                finish(shard, request, DiskStatus::NotReady);
            }
        }
    }
}

/// A goodbye may take so long to leave.
const PARTING: Duration = Duration::from_millis(200);
