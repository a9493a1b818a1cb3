//! Whether the controller is still there: keep-alives that it answers, and commands that it does
//! not leave unanswered.
//!
//! A part of `session`.

use std::time::Duration;

use fabrix_proto::nvme::queue::HostTransfer;
use fabrix_proto::nvme::spec::{CompletionEntry, SubmissionEntry};
use fabrix_rt::{Nanos, Shard};

use super::Session;
use crate::nvme::queue::{Carried, Link, Queue};
use crate::outage::State;
use crate::timers::is_over;
use crate::wire::is_overdue;
use crate::{ConnectError, ConnectErrorKind};

#[derive(Default)]
pub(super) struct KeepAlive {
    /// When the last one was sent, or the controller came up. With traffic-based keep-alive, also
    /// when a command was answered, at the earliest.
    sent_at: Nanos,
    is_answered: bool,
    /// The answers to requests until the last look, and when that was.
    seen: (u64, Nanos),
}

impl KeepAlive {
    /// The controller has come up, or answers: nothing is owed.
    pub(super) fn begin(now: Nanos) -> Self {
        Self {
            sent_at: now,
            is_answered: true,
            seen: (0, now),
        }
    }
}

impl<L: Link> Session<L> {
    /// How often a keep-alive is sent; none when we want none, or the controller has none (KAS 0).
    fn keep_alive_period(&self) -> Option<Duration> {
        let period = self.plan.options.keep_alive / 2;
        let has_one = self.facts.as_ref()?.controller.keep_alive_unit_ms.is_some();
        (has_one && period >= Duration::from_micros(500)).then_some(period)
    }

    pub(super) fn arm_tick(&mut self, shard: &mut Shard) {
        let timeout = self.plan.options.io_timeout;
        let looks = (!timeout.is_zero()).then(|| (timeout / 4).max(SHORTEST_TICK));
        // Answers are counted twice in a period: so a controller hears from us at least once in
        // each.
        let parts = if self.is_renewed_by_traffic() { 2 } else { 1 };
        let period = self.keep_alive_period().map(|period| period / parts);
        if let Some(period) = period.into_iter().chain(looks).min() {
            self.reconnection.set_tick(shard, period);
        }
    }

    /// Whether the controller takes every command for a sign of reconnection (TBKAS).
    fn is_renewed_by_traffic(&self) -> bool {
        let facts = self.facts.as_ref();
        facts.is_some_and(|facts| facts.controller.traffic_keep_alive)
    }

    /// Requests that were answered since the last look have renewed the controller's timer, if it
    /// is such a one.
    fn count_traffic(&mut self, now: Nanos) {
        let answers: u64 = self.queues.iter().map(Queue::answers).sum();
        let (before, looked_at) = std::mem::replace(&mut self.keep_alive.seen, (answers, now));
        if answers != before && self.keep_alive.is_answered && self.is_renewed_by_traffic() {
            self.keep_alive.sent_at = self.keep_alive.sent_at.max(looked_at);
        }
    }

    /// Time to look whether the controller still answers.
    pub(super) fn tick(&mut self, shard: &mut Shard) {
        if self.reconnection.state != State::Live {
            return;
        }
        if let Some(sentence) = self.silence(shard.now()) {
            return self.lose(
                shard,
                ConnectError::new(ConnectErrorKind::Timeout, sentence),
            );
        }
        self.count_traffic(shard.now());
        let since = shard.now().since(self.keep_alive.sent_at);
        let is_due = self
            .keep_alive_period()
            .is_some_and(|period| is_over(since, period));
        if is_due && self.keep_alive.is_answered {
            self.send_keep_alive(shard);
        }
        self.arm_tick(shard);
    }

    fn send_keep_alive(&mut self, shard: &mut Shard) {
        let (now, mut entry) = (shard.now(), SubmissionEntry::keep_alive());
        let admin = &mut self.queues[0];
        if admin
            .send(now, &mut entry, HostTransfer::None, None, Carried::Own)
            .is_some()
        {
            self.keep_alive.sent_at = now;
            self.keep_alive.is_answered = false;
            shard.flush_later(self.reconnection.task);
        }
    }

    pub(super) fn keep_alive_answered(&mut self, shard: &mut Shard, entry: &CompletionEntry) {
        let status = entry.status();
        if !status.is_success() {
            let sentence = format!("the controller answered Keep Alive with {status}");
            return self.lose(
                shard,
                ConnectError::new(ConnectErrorKind::Protocol, sentence),
            );
        }
        self.keep_alive.is_answered = true;
        self.reconnection.has_lived();
    }

    /// What the controller should have answered by now.
    fn silence(&self, now: Nanos) -> Option<String> {
        let options = &self.plan.options;
        let sent_at = (!self.keep_alive.is_answered).then_some(self.keep_alive.sent_at);
        if is_overdue(now, sent_at, options.keep_alive) {
            return Some(format!(
                "no answer to Keep Alive for {:?}",
                options.keep_alive
            ));
        }
        let late = |queue: &Queue<L>| is_overdue(now, queue.oldest(), options.io_timeout);
        let index = self.queues.iter().skip(1).position(late)? + 1;
        Some(format!(
            "I/O connection {index}: no answer to a command for {:?}",
            options.io_timeout
        ))
    }
}

/// Requests without an answer are looked for no more often.
const SHORTEST_TICK: Duration = Duration::from_millis(1);
