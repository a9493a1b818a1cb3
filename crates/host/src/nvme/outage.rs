//! A session without its controller: what is closed, what requests wait for and how long, and when the next try is.
//!
//! The second part of `session`. A request that was in progress goes back to waiting only when the kernel has given
//! its data back; it ends when the connection has been gone for `fast_io_fail`. See `docs/design/host.md`.

use std::time::Duration;

use fabrix_block::Status as DiskStatus;
use fabrix_rt::{Nanos, Shard};
use fabrix_transport::Ended;

use super::queue::Request;
use super::session::{Outcome, Session, State};
use super::timers::Timer;
use super::transfer::finish;
use crate::ConnectError;

/// How long there has been no connection, and how eagerly one is sought.
pub(crate) struct Outage {
    /// None while there is one.
    since: Option<Nanos>,
    /// The pause before the next try.
    pause: Duration,
    /// What the user was told last about this outage.
    told: Option<String>,
}

impl Outage {
    /// There is no connection yet.
    pub(crate) fn begin(now: Nanos) -> Self {
        Self {
            since: Some(now),
            pause: FIRST_PAUSE,
            told: None,
        }
    }

    /// The controller has done something useful: if it is lost, the first try comes soon again.
    pub(crate) fn has_lived(&mut self) {
        self.pause = FIRST_PAUSE;
    }

    fn next_pause(&mut self) -> Duration {
        let pause = self.pause;
        self.pause = (pause * 2).min(LAST_PAUSE);
        pause
    }
}

impl Session {
    /// The controller is lost: everything of it is closed, and requests wait for the next one.
    pub(crate) fn lose(&mut self, shard: &mut Shard, error: ConnectError) {
        if !matches!(self.state, State::Rising | State::Live) {
            return;
        }
        let now = shard.now();
        self.outage.since.get_or_insert(now);
        if error.is_lasting() {
            self.outage.pause = LAST_PAUSE;
        }
        self.tell(&error);
        if matches!(self.outcome, Outcome::Waiting) {
            self.outcome = Outcome::Failed(error);
        }
        self.wait_for_connection(shard);
        self.fall(shard, State::Falling);
    }

    /// Tells the user of a disk why it has no connection; once for each reason.
    fn tell(&mut self, error: &ConnectError) {
        let sentence = error.to_string();
        if self.plan.expected.is_some() && self.outage.told.as_ref() != Some(&sentence) {
            (self.plan.options.notify)(&format!("{}: {sentence}; reconnecting", self.plan.address));
            self.outage.told = Some(sentence);
        }
    }

    /// There is a connection.
    pub(crate) fn connected_again(&mut self, shard: &mut Shard) {
        self.outage.since = None;
        self.timers.cancel(shard, Timer::Fail);
        if self.outage.told.take().is_some() {
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
                queue.part(shard);
            } else {
                queue.close();
            }
        }
        match self.parting {
            Some(index) if self.queues[index].has_parted() => self.part_now(shard),
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
            self.queues[index].part(shard);
            if completed.is_err() || self.queues[index].has_parted() {
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
            queue.shut();
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
        let pause = self.outage.next_pause();
        self.set_timer(shard, Timer::Reconnect, pause);
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
        let since = self.outage.since.unwrap_or_else(|| shard.now());
        let lost_at = *request.lost_at.get_or_insert(since);
        shard.now().since(lost_at) >= self.plan.options.fast_io_fail
    }

    /// Sees to it that what waits for a connection does not wait longer than `fast_io_fail`.
    pub(crate) fn wait_for_connection(&mut self, shard: &mut Shard) {
        if let Some(since) = self.outage.since
            && !self.lost_too_long(shard)
        {
            let at = since + self.plan.options.fast_io_fail;
            self.timers.set(shard, self.task, Timer::Fail, at);
        } else {
            self.fail_waiting(shard);
        }
    }

    /// True when the connection has been gone for longer than requests wait.
    pub(crate) fn lost_too_long(&self, shard: &Shard) -> bool {
        let most = self.plan.options.fast_io_fail;
        self.outage
            .since
            .is_some_and(|at| shard.now().since(at) >= most)
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

/// The first try after a loss comes soon; then the pauses double up to the last.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LAST_PAUSE: Duration = Duration::from_secs(5);
/// A goodbye may take so long to leave.
const PARTING: Duration = Duration::from_millis(200);
