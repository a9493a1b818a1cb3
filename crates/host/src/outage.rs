//! How long a session has had no connection, how eagerly one is sought, and what its user has been told about it.
//!
//! A value, for every kind of remote disk; what is closed and what waits meanwhile is the session's. See
//! `docs/design/host.md`.

use std::time::Duration;

use fabrix_rt::Nanos;

use crate::ConnectError;
use crate::request::Request;

/// How long there has been no connection.
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

    /// The connection is lost. Yields the sentence that the user has not been told yet.
    pub(crate) fn lost(&mut self, now: Nanos, error: &ConnectError) -> Option<String> {
        self.since.get_or_insert(now);
        if error.is_lasting() {
            self.pause = LAST_PAUSE;
        }
        let sentence = error.to_string();
        let is_news = self.told.as_ref() != Some(&sentence);
        is_news.then_some(sentence)
    }

    /// The user has been told.
    pub(crate) fn told(&mut self, sentence: String) {
        self.told = Some(sentence);
    }

    /// There is a connection; true when the user was told that there was none.
    pub(crate) fn over(&mut self) -> bool {
        self.since = None;
        self.told.take().is_some()
    }

    /// The target has done something useful: if it is lost, the first try comes soon again.
    pub(crate) fn has_lived(&mut self) {
        self.pause = FIRST_PAUSE;
    }

    /// How long to wait before the next try; None: no more of them. `fixed` is the pause that was asked for, `most` how
    /// long is tried at all.
    pub(crate) fn next_pause(
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
    pub(crate) fn is_too_long(&self, now: Nanos, most: Duration) -> bool {
        self.since.is_some_and(|at| now.since(at) >= most)
    }

    /// When it will have been gone for so long, if it is gone.
    pub(crate) fn too_long_at(&self, most: Duration) -> Option<Nanos> {
        self.since.map(|since| since + most)
    }

    /// A request must wait for another connection, or for the target's leave: whether it first had to so long ago that
    /// it ends instead.
    pub(crate) fn has_lost_its_time(
        &self,
        now: Nanos,
        request: &mut Request,
        most: Duration,
    ) -> bool {
        let lost_at = *request
            .lost_at
            .get_or_insert_with(|| self.since.unwrap_or(now));
        now.since(lost_at) >= most
    }
}

/// The first try after a loss comes soon; then the pauses double up to the last.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LAST_PAUSE: Duration = Duration::from_secs(5);
