//! What every kind of session has that can lose its connection: how long it has been lost, how
//! eagerly another one is sought, what its user has been told, and the requests that wait
//! meanwhile.
//!
//! A request that was in progress goes back to waiting only when the kernel has given its data
//! back; it ends when the connection has been gone for `fast_io_fail`. What is closed, and what is
//! said before, is the session's. See `docs/design/host.md`.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use fabrix_block::Status as DiskStatus;
use fabrix_rt::{Nanos, Shard, TaskId};

use crate::request::{Request, finish};
use crate::timers::{Timer, Timers, next_tick};
use crate::{ConnectError, Options, PathEvent, Weight};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum State {
    /// It connects, and learns what is there.
    Rising,
    /// Requests flow.
    Live,
    /// Lost: waiting for the kernel to give back what it holds.
    Falling,
    /// Lost: waiting for the next try.
    Resting,
    /// Nobody wants it any more: waiting for the kernel, then gone.
    Over,
}

/// The reconnection of a session through its connections.
pub(crate) struct Reconnection {
    pub(crate) task: TaskId,
    pub(crate) state: State,
    /// Requests without a connection or a slot; never more than there was room for at the start.
    pub(crate) waiting: VecDeque<Request>,
    /// How many requests may wait, and how many may be in progress.
    pub(crate) capacity: usize,
    pub(crate) timers: Timers,
    outage: Outage,
    options: Arc<Options>,
    /// Where the target is, for people.
    place: SocketAddr,
    /// It is a disk's: its user is told of outages. Who connects only once sees what became of it.
    tells: bool,
}

impl Reconnection {
    /// A session that has not begun to connect.
    pub(crate) fn new(
        task: TaskId,
        capacity: usize,
        (place, tells): (SocketAddr, bool),
        options: &Arc<Options>,
    ) -> Self {
        Self {
            task,
            state: State::Resting,
            // All that were in progress may join all that wait.
            waiting: VecDeque::with_capacity(capacity * 2),
            capacity,
            timers: Timers::default(),
            outage: Outage::begin(),
            options: Arc::clone(options),
            place,
            tells,
        }
    }

    /// Whether there is a connection, or one is being made.
    pub(crate) fn is_up(&self) -> bool {
        matches!(self.state, State::Rising | State::Live)
    }

    pub(crate) fn set_timer(&mut self, shard: &mut Shard, timer: Timer, after: Duration) {
        let at = shard.now() + after;
        self.timers.set(shard, self.task, timer, at);
    }

    /// Sets the timer that looks whether the target still answers.
    pub(crate) fn set_tick(&mut self, shard: &mut Shard, period: Duration) {
        let at = next_tick(shard.now(), period);
        self.timers.set(shard, self.task, Timer::Tick, at);
    }

    /// Tells the user something about the target.
    pub(crate) fn tell(&self, weight: Weight, sentence: &str) {
        (self.options.notify)(weight, &format!("{}: {sentence}", self.place));
    }

    /// Tells the user of a disk something about the connection. Who only asks once hears the
    /// outcome.
    pub(crate) fn tell_of_a_disk(&self, sentence: &str) {
        if self.tells {
            self.tell(Weight::Info, sentence);
        }
    }

    /// Tells whoever watches the connections of the disk.
    pub(crate) fn tell_path(&self, event: PathEvent) {
        if self.tells {
            (self.options.watch)(self.place, event);
        }
    }

    /// The connection is lost, of which the user is told once for each reason; requests wait for
    /// the next one. False: it was lost already.
    pub(crate) fn lose(&mut self, shard: &mut Shard, error: &ConnectError) -> bool {
        if !self.is_up() {
            return false;
        }
        let news = self.outage.lost(shard.now(), error);
        if let Some(sentence) = news.filter(|_| self.tells) {
            let weight = match error.is_lasting() {
                true => Weight::Error,
                false => Weight::Warning,
            };
            self.tell(weight, &format!("{sentence}; reconnecting"));
            self.outage.told(sentence);
        }
        self.tell_path(match error.is_lasting() {
            true => PathEvent::Unusable(error.to_string().into()),
            false => PathEvent::Lost,
        });
        self.wait_for_connection(shard);
        true
    }

    /// All is known and connected: requests flow.
    pub(crate) fn connected(&mut self, shard: &mut Shard) {
        self.state = State::Live;
        self.timers.cancel(shard, Timer::Bringup);
        self.timers.cancel(shard, Timer::Fail);
        self.tell_path(PathEvent::Connected);
        if self.outage.over() {
            self.tell(Weight::Info, "connected again");
        }
    }

    /// The target has done something useful: if it is lost, the first try comes soon again.
    pub(crate) fn has_lived(&mut self) {
        self.outage.has_lived();
    }

    /// Nothing of this connection is waited for any more.
    pub(crate) fn fall(&mut self, shard: &mut Shard, to: State) {
        self.state = to;
        for timer in OF_ONE_CONNECTION {
            self.timers.cancel(shard, timer);
        }
        if to == State::Over {
            self.timers.cancel(shard, Timer::Fail);
        }
    }

    /// The kernel has given everything back, and requests are collected: the next try is arranged,
    /// or the session goes.
    pub(crate) fn rest(&mut self, shard: &mut Shard) {
        if self.state == State::Over {
            while let Some(request) = self.waiting.pop_front() {
                finish(shard, request, DiskStatus::Aborted);
            }
            self.timers.cancel_all(shard);
            return shard.remove(self.task);
        }
        self.state = State::Resting;
        let (fixed, most) = (self.options.reconnect_delay, self.options.ctrl_loss);
        match self.outage.next_pause(shard.now(), fixed, most) {
            Some(pause) => self.set_timer(shard, Timer::Reconnect, pause),
            None => self.give_up(),
        }
    }

    /// It has been tried for long enough. What waits has failed by then.
    fn give_up(&self) {
        if let Some(most) = self.options.ctrl_loss.filter(|_| self.tells) {
            let sentence = format!("no connection for {most:?}: given up");
            self.tell(Weight::Error, &sentence);
            self.tell_path(PathEvent::GivenUp);
        }
    }

    /// A request has lost its connection: it ended before that, or waits for the next, or has
    /// waited too long.
    pub(crate) fn collect(
        &mut self,
        shard: &mut Shard,
        mut request: Request,
        status: Option<DiskStatus>,
    ) {
        let is_too_late = self.has_lost_its_time(shard, &mut request);
        match status {
            Some(status) => finish(shard, request, status),
            None if self.state == State::Over => finish(shard, request, DiskStatus::Aborted),
            None if is_too_late => finish(shard, request, DiskStatus::NotReady),
            // Before those that came later.
            None => self.waiting.push_front(request),
        }
    }

    /// A request must wait for another connection, or for the target's leave: whether it first had
    /// to so long ago that it ends instead.
    pub(crate) fn has_lost_its_time(&self, shard: &Shard, request: &mut Request) -> bool {
        let most = self.options.patience();
        self.outage.has_lost_its_time(shard.now(), request, most)
    }

    /// Sees to it that what waits for a connection does not wait longer than `fast_io_fail`.
    pub(crate) fn wait_for_connection(&mut self, shard: &mut Shard) {
        match self.outage.too_long_at(self.options.patience()) {
            Some(at) if !self.lost_too_long(shard) => {
                self.timers.set(shard, self.task, Timer::Fail, at);
            }
            _ => self.fail_waiting(shard),
        }
    }

    /// True when the connection has been gone for longer than requests wait.
    pub(crate) fn lost_too_long(&self, shard: &Shard) -> bool {
        let most = self.options.patience();
        self.outage.is_too_long(shard.now(), most)
    }

    /// Ends all that waits, if it has waited long enough; what the kernel still holds follows when
    /// it comes back.
    pub(crate) fn fail_waiting(&mut self, shard: &mut Shard) {
        if self.lost_too_long(shard) {
            while let Some(request) = self.waiting.pop_front() {
                finish(shard, request, DiskStatus::NotReady);
            }
        }
    }
}

/// How long there has been no connection.
struct Outage {
    /// When the connection was lost, or the first try failed. None: there is a connection, or the
    /// first one is being made.
    since: Option<Nanos>,
    /// The pause before the next try.
    pause: Duration,
    /// What the user was told last about this outage.
    told: Option<String>,
}

impl Outage {
    /// The state before the first connection: that connection is being made, so nothing is lost
    /// yet.
    fn begin() -> Self {
        Self {
            since: None,
            pause: FIRST_PAUSE,
            told: None,
        }
    }

    /// The connection is lost. Yields the sentence that the user has not been told yet.
    fn lost(&mut self, now: Nanos, error: &ConnectError) -> Option<String> {
        self.since.get_or_insert(now);
        if error.is_lasting() {
            self.pause = LAST_PAUSE;
        }
        let sentence = error.to_string();
        let is_news = self.told.as_ref() != Some(&sentence);
        is_news.then_some(sentence)
    }

    /// The user has been told.
    fn told(&mut self, sentence: String) {
        self.told = Some(sentence);
    }

    /// There is a connection; true when the user was told that there was none.
    fn over(&mut self) -> bool {
        self.since = None;
        self.told.take().is_some()
    }

    /// The target has done something useful: if it is lost, the first try comes soon again.
    fn has_lived(&mut self) {
        self.pause = FIRST_PAUSE;
    }

    /// How long to wait before the next try; None: no more of them. `fixed` is the pause that was
    /// asked for, `most` how long is tried at all.
    fn next_pause(
        &mut self,
        now: Nanos,
        fixed: Option<Duration>,
        most: Option<Duration>,
    ) -> Option<Duration> {
        let pause = self.pause;
        self.pause = (pause * 2).min(LAST_PAUSE);
        let pause = fixed.unwrap_or(pause);
        let (Some(most), Some(since)) = (most, self.since) else {
            return Some(pause);
        };
        let left = most.saturating_sub(now.since(since));
        (!left.is_zero()).then_some(pause.min(left))
    }

    /// True when the connection has been gone for longer than requests wait.
    fn is_too_long(&self, now: Nanos, most: Duration) -> bool {
        self.since.is_some_and(|at| now.since(at) >= most)
    }

    /// When it will have been gone for so long, if it is gone.
    fn too_long_at(&self, most: Duration) -> Option<Nanos> {
        self.since.map(|since| since + most)
    }

    /// Whether a request lost its connection for the first time so long ago that it waits no more.
    fn has_lost_its_time(&self, now: Nanos, request: &mut Request, most: Duration) -> bool {
        request.lost_at = request.lost_at.min(self.since.unwrap_or(now));
        now.since(request.lost_at) >= most
    }
}

/// A goodbye may take so long to leave.
pub(crate) const PARTING: Duration = Duration::from_millis(200);
/// How long what is in progress may take when a target wants us to leave.
pub(crate) const LEAVING_MOST: Duration = Duration::from_secs(5);
const OF_ONE_CONNECTION: [Timer; 6] = [
    Timer::Tick,
    Timer::Bringup,
    Timer::Step,
    Timer::Leave,
    Timer::Again,
    Timer::Reconnect,
];
/// The first try after a loss comes soon; then the pauses double up to the last.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LAST_PAUSE: Duration = Duration::from_secs(5);
