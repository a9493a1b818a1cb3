//! Reconnection state shared by NVMe and iSCSI sessions: time of loss, back-off, events reported to
//! the user, and queued requests.
//!
//! A request in progress returns to the queue when the kernel has given its data back. It fails
//! when the connection has been lost for `fast_io_fail`. The session closes the connections. See
//! `docs/design/host.md`.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use fabrix_block::Status as DiskStatus;
use fabrix_rt::{Nanos, Shard, TaskId};

use crate::connection::Abandoned;
use crate::multipath::link::{Fate, PathLink};
use crate::request::{Request, finish, hand_back};
use crate::timers::{Timer, Timers};
use crate::{ConnectError, Options, PathEvent, Weight};

/// State of a session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum State {
    /// The session connects, logs in and reads what the target has.
    Connecting,
    /// Requests are sent.
    Connected,
    /// The connection is lost. The kernel still holds memory of it.
    Draining,
    /// The connection is lost. The session waits for the next attempt.
    BackingOff,
    /// The session ends when the kernel holds no memory of its connections.
    Closing,
}

/// Reconnection state of a session.
pub(crate) struct Reconnection {
    pub(crate) task: TaskId,
    pub(crate) state: State,
    /// Requests without a connection or a slot. Never grows: it is allocated for twice `capacity`.
    pub(crate) waiting: VecDeque<Request>,
    /// Most requests that may wait, and most that may be in progress.
    pub(crate) capacity: usize,
    pub(crate) timers: Timers,
    pub(crate) options: Arc<Options>,
    /// The pool of which this session is a path. It gets requests back when the connection is lost.
    pub(crate) path: Option<Rc<PathLink>>,
    outage: Outage,
    /// Address of the target, for messages.
    address: SocketAddr,
    /// True for the session of a disk, whose user hears of outages. A session that only asks
    /// returns its outcome instead.
    reports: bool,
}

impl Reconnection {
    /// The state of a session that has not started to connect.
    pub(crate) fn new(
        task: TaskId,
        capacity: usize,
        (address, reports): (SocketAddr, bool),
        options: &Arc<Options>,
    ) -> Self {
        Self {
            task,
            state: State::BackingOff,
            // All requests in progress may join all that wait.
            waiting: VecDeque::with_capacity(capacity * 2),
            capacity,
            timers: Timers::default(),
            options: Arc::clone(options),
            path: None,
            outage: Outage::new(),
            address,
            reports,
        }
    }

    /// Whether the session has a connection or makes one.
    #[inline(always)]
    pub(crate) fn is_up(&self) -> bool {
        matches!(self.state, State::Connecting | State::Connected)
    }

    /// Sets a timer that expires after some time.
    pub(crate) fn set_timer(&mut self, shard: &mut Shard, timer: Timer, after: Duration) {
        let at = shard.now() + after;
        self.timers.set(shard, self.task, timer, at);
    }

    /// Reports a sentence about the target to the user.
    pub(crate) fn report(&self, weight: Weight, sentence: &str) {
        (self.options.notify)(weight, &format!("{}: {sentence}", self.address));
    }

    /// As [`report`](Self::report), for the session of a disk only.
    pub(crate) fn report_info(&self, sentence: &str) {
        if self.reports {
            self.report(Weight::Info, sentence);
        }
    }

    /// Reports an event of the disk's connection to the program that watches it.
    pub(crate) fn report_event(&self, event: PathEvent) {
        if self.reports {
            (self.options.watch)(self.address, event);
        }
    }

    /// The connection is lost: reports each new reason once. Requests wait for the next connection.
    /// False: the connection was lost before.
    pub(crate) fn lost(&mut self, shard: &mut Shard, error: &ConnectError) -> bool {
        if !self.is_up() {
            return false;
        }
        let is_lasting = error.is_lasting();
        let news = self.outage.lost(shard.now(), error);
        if let Some(sentence) = news.filter(|_| self.reports) {
            let weight = if is_lasting {
                Weight::Error
            } else {
                Weight::Warning
            };
            self.report(weight, &format!("{sentence}; reconnecting"));
            self.outage.reported = Some(sentence);
        }
        self.report_event(match is_lasting {
            true => PathEvent::Unusable(error.to_string().into()),
            false => PathEvent::Lost,
        });
        self.wait_for_connection(shard);
        true
    }

    /// The bring-up is complete: requests are sent from now on.
    pub(crate) fn connected(&mut self, shard: &mut Shard) {
        self.state = State::Connected;
        self.timers.cancel(shard, Timer::Bringup);
        self.timers.cancel(shard, Timer::FastIoFail);
        self.report_event(PathEvent::Connected);
        if self.outage.ended() {
            self.report(Weight::Info, "connected again");
        }
    }

    /// The target has answered a command: after a loss, the first attempt follows soon.
    #[inline(always)]
    pub(crate) fn is_useful(&mut self) {
        self.outage.pause = FIRST_PAUSE;
    }

    /// Enters `Draining` or `Closing`: cancels the timers of the connection.
    pub(crate) fn drain(&mut self, shard: &mut Shard, to: State) {
        self.state = to;
        for timer in OF_ONE_CONNECTION {
            self.timers.cancel(shard, timer);
        }
        if to == State::Closing {
            self.timers.cancel(shard, Timer::FastIoFail);
        }
    }

    /// The connections are gone and their requests collected: schedules the next attempt, or
    /// removes the task of a closing session.
    pub(crate) fn back_off(&mut self, shard: &mut Shard) {
        if self.state == State::Closing {
            self.finish_waiting(shard, DiskStatus::Aborted);
            self.timers.cancel_all(shard);
            return shard.remove(self.task);
        }
        self.state = State::BackingOff;
        let (fixed, most) = (self.options.reconnect_delay, self.options.ctrl_loss);
        match self.outage.next_pause(shard.now(), fixed, most) {
            Some(pause) => self.set_timer(shard, Timer::Reconnect, pause),
            None => self.report_given_up(),
        }
    }

    /// No attempt follows. All waiting requests have failed before.
    fn report_given_up(&self) {
        if let Some(most) = self.options.ctrl_loss.filter(|_| self.reports) {
            let sentence = format!("no connection for {most:?}: given up");
            self.report(Weight::Error, &sentence);
            self.report_event(PathEvent::GivenUp);
        }
    }

    /// Takes back a request whose connection is gone. The request completes with its status if it
    /// has one. Otherwise it goes back to the pool, or it waits for the next connection, or fails
    /// when it has waited too long.
    pub(crate) fn collect(
        &mut self,
        shard: &mut Shard,
        mut request: Request,
        known: Option<Abandoned>,
    ) {
        let is_too_late = self.has_waited_too_long(shard, &mut request);
        match known {
            Some(Abandoned::Ended(status)) => finish(shard, request, status),
            _ if self.state == State::Closing => finish(shard, request, DiskStatus::Aborted),
            Some(Abandoned::Refused) => hand_back(shard, request, Fate::NotExecuted),
            None if self.path.is_some() => hand_back(shard, request, Fate::Unknown),
            None if is_too_late => finish(shard, request, DiskStatus::NotReady),
            // Ahead of later requests.
            None => self.waiting.push_front(request),
        }
    }

    /// Notes that a request must wait. True: it first had to so long ago that it fails.
    pub(crate) fn has_waited_too_long(&self, shard: &Shard, request: &mut Request) -> bool {
        let now = shard.now();
        request.lost_at = request.lost_at.min(self.outage.since.unwrap_or(now));
        now.since(request.lost_at) >= self.options.patience()
    }

    /// Sets the timer by which waiting requests fail after `fast_io_fail`. The pool of a path takes
    /// them back at once.
    pub(crate) fn wait_for_connection(&mut self, shard: &mut Shard) {
        if self.path.is_some() {
            while let Some(request) = self.waiting.pop_front() {
                hand_back(shard, request, Fate::NotExecuted);
            }
            return;
        }
        match self.outage.since {
            Some(since) if !self.lost_too_long(shard) => {
                let at = since + self.options.patience();
                self.timers.set(shard, self.task, Timer::FastIoFail, at);
            }
            _ => self.fail_waiting(shard),
        }
    }

    /// True when the connection has been lost for longer than requests wait.
    pub(crate) fn lost_too_long(&self, shard: &Shard) -> bool {
        let since = self.outage.since;
        since.is_some_and(|at| shard.now().since(at) >= self.options.patience())
    }

    /// Fails all waiting requests if the connection has been lost for too long. Requests whose data
    /// the kernel still holds fail when the kernel returns it.
    pub(crate) fn fail_waiting(&mut self, shard: &mut Shard) {
        if self.lost_too_long(shard) {
            self.finish_waiting(shard, DiskStatus::NotReady);
        }
    }

    fn finish_waiting(&mut self, shard: &mut Shard, status: DiskStatus) {
        while let Some(request) = self.waiting.pop_front() {
            finish(shard, request, status);
        }
    }
}

/// Time without a connection.
struct Outage {
    /// When the connection was lost, or the first attempt failed. None: a connection exists, or the
    /// first one is being made.
    since: Option<Nanos>,
    /// Pause before the next attempt.
    pause: Duration,
    /// Last sentence reported about this outage.
    reported: Option<String>,
}

impl Outage {
    /// The state before the first connection, which counts as not lost.
    fn new() -> Self {
        Self {
            since: None,
            pause: FIRST_PAUSE,
            reported: None,
        }
    }

    /// The connection is lost. Yields the reason unless it was reported last.
    fn lost(&mut self, now: Nanos, error: &ConnectError) -> Option<String> {
        self.since.get_or_insert(now);
        if error.is_lasting() {
            self.pause = LAST_PAUSE;
        }
        let sentence = error.to_string();
        let is_news = self.reported.as_ref() != Some(&sentence);
        is_news.then_some(sentence)
    }

    /// The session has connected. True: the outage was reported.
    fn ended(&mut self) -> bool {
        self.since = None;
        self.reported.take().is_some()
    }

    /// The pause before the next attempt. None: no attempt follows. `fixed` is the pause that the
    /// user chose, `most` the time after which attempts end.
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
}

/// Timers that end with their connection.
const OF_ONE_CONNECTION: [Timer; 6] = [
    Timer::Tick,
    Timer::Bringup,
    Timer::Step,
    Timer::Quiesce,
    Timer::Resume,
    Timer::Reconnect,
];
/// 50 ms: the first attempt after a loss follows soon. The pauses then double up to 5 s.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LAST_PAUSE: Duration = Duration::from_secs(5);
