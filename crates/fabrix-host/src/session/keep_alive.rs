//! Supervision of a target: keep-alives that it answers, and commands that it does not leave
//! unanswered.
//!
//! A part of `session`. Protocols send the keep-alive.

use std::time::Duration;

use fabrix_rt::{Nanos, Shard};

use super::{Protocol, Session};
use crate::ConnectErrorKind;
use crate::link::Link;
use crate::reconnection::State;
use crate::timers::{Timer, is_over, next_tick};

/// State of the keep-alive.
#[derive(Default)]
pub(crate) struct KeepAlive {
    /// When the last keep-alive was sent, or the session connected. A protocol whose commands count
    /// as keep-alives moves it on.
    pub(crate) sent_at: Nanos,
    pub(crate) is_answered: bool,
}

impl KeepAlive {
    /// The state after the session has connected.
    pub(super) fn begin(now: Nanos) -> Self {
        Self {
            sent_at: now,
            is_answered: true,
        }
    }
}

impl<L: Link, P: Protocol<L>> Session<P, L> {
    /// Time between two keep-alives. None: there are none.
    pub(crate) fn keep_alive_period(&self) -> Option<Duration> {
        let period = self.reconnection.options.keep_alive / 2;
        let is_wanted = period >= SHORTEST_KEEP_ALIVE;
        (is_wanted && P::has_keep_alive(self)).then_some(period)
    }

    /// The time after which the target gives up a session that it does not hear of. A session
    /// without keep-alive assumes the default.
    pub(crate) fn keep_alive_timeout(&self) -> Duration {
        let period = self.keep_alive_period();
        period.map_or(ASSUMED_TIMEOUT, |period| period * 2)
    }

    /// Whether it is time for the next keep-alive.
    pub(crate) fn is_keep_alive_due(&self, now: Nanos) -> bool {
        let since = now.since(self.keep_alive.sent_at);
        let period = self.keep_alive_period();
        period.is_some_and(|period| is_over(since, period))
    }

    /// A keep-alive was sent.
    pub(crate) fn keep_alive_sent(&mut self, shard: &mut Shard) {
        self.keep_alive = KeepAlive {
            sent_at: shard.now(),
            is_answered: false,
        };
        shard.flush_later(self.reconnection.task);
    }

    /// A keep-alive was answered.
    pub(crate) fn keep_alive_answered(&mut self) {
        self.keep_alive.is_answered = true;
        self.reconnection.is_useful();
    }

    /// Sets the timer of the next tick.
    pub(super) fn arm_tick(&mut self, shard: &mut Shard) {
        let timeout = self.reconnection.options.io_timeout;
        let looks = (!timeout.is_zero()).then(|| (timeout / 4).max(SHORTEST_TICK));
        if let Some(period) = P::tick_period(self).into_iter().chain(looks).min() {
            let at = next_tick(shard.now(), period);
            let (task, timers) = (self.reconnection.task, &mut self.reconnection.timers);
            timers.set(shard, task, Timer::Tick, at);
        }
    }

    /// Checks whether the target still answers, and sends a keep-alive that is due.
    pub(super) fn tick(&mut self, shard: &mut Shard) {
        if self.reconnection.state != State::Connected {
            return;
        }
        if let Some(sentence) = self.overdue(shard.now()) {
            return self.disconnect_with(shard, ConnectErrorKind::Timeout, sentence);
        }
        P::keep_alive(self, shard);
        self.arm_tick(shard);
    }

    /// The answer that the target owes for too long, as a sentence.
    fn overdue(&self, now: Nanos) -> Option<String> {
        let options = &self.reconnection.options;
        let is_late = |sent_at: Option<Nanos>, most: Duration| {
            !most.is_zero() && sent_at.is_some_and(|at| now.since(at) >= most)
        };
        let sent_at = (!self.keep_alive.is_answered).then_some(self.keep_alive.sent_at);
        if is_late(sent_at, options.keep_alive) {
            let most = options.keep_alive;
            return Some(format!("no answer to {} for {most:?}", P::KEEP_ALIVE));
        }
        let most = options.io_timeout;
        let mut connections = (P::FIRST_IO..).zip(self.connections.iter().skip(P::FIRST_IO));
        let (index, _) = connections.find(|(_, it)| is_late(it.oldest(), most))?;
        let prefix = P::error_prefix(index);
        Some(format!("{prefix}no answer to a command for {most:?}"))
    }
}

/// The controller's timer counts in milliseconds: a shorter keep-alive is none.
const SHORTEST_KEEP_ALIVE: Duration = Duration::from_micros(500);
/// 5 s: the default of the options.
const ASSUMED_TIMEOUT: Duration = Duration::from_secs(5);
/// 1 ms: commands without an answer are not looked for more often.
const SHORTEST_TICK: Duration = Duration::from_millis(1);
