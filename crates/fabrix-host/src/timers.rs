//! Timers of a session: at most one of each kind.

use std::time::Duration;

use fabrix_rt::{Nanos, Shard, TaskId, TimerId, Token};

/// Kinds of timers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Timer {
    /// Checks the keep-alive and commands without an answer.
    Tick,
    /// Starts the next attempt to connect.
    Reconnect,
    /// Ends a bring-up that takes too long.
    Bringup,
    /// Takes the next step of the bring-up: the target was not ready.
    Step,
    /// Fails requests that wait for a connection.
    FastIoFail,
    /// Ends the time for a termination request or for the answer to a Logout.
    Terminate,
    /// Disconnects from a target that ends the session and does not finish.
    Quiesce,
    /// Resumes sending after the target was busy.
    Resume,
}

const KINDS: [Timer; 8] = [
    Timer::Tick,
    Timer::Reconnect,
    Timer::Bringup,
    Timer::Step,
    Timer::FastIoFail,
    Timer::Terminate,
    Timer::Quiesce,
    Timer::Resume,
];

/// Bit that only the task slots of timers have.
const TIMER_SLOTS: u32 = 1 << 31;

/// The timers of one session.
#[derive(Default)]
pub(crate) struct Timers {
    set: [Option<TimerId>; KINDS.len()],
}

impl Timers {
    /// Sets a timer. Replaces a timer of the same kind.
    pub(crate) fn set(&mut self, shard: &mut Shard, task: TaskId, timer: Timer, at: Nanos) {
        self.cancel(shard, timer);
        let slot = TIMER_SLOTS | timer as u32;
        self.set[timer as usize] = Some(shard.set_timer(Token { task, slot }, at));
    }

    /// Cancels the timer of a kind, if it is set.
    pub(crate) fn cancel(&mut self, shard: &mut Shard, timer: Timer) {
        if let Some(id) = self.set[timer as usize].take() {
            shard.cancel_timer(id);
        }
    }

    /// Cancels all timers.
    pub(crate) fn cancel_all(&mut self, shard: &mut Shard) {
        for timer in KINDS {
            self.cancel(shard, timer);
        }
    }

    /// The timer of a task slot, which has expired.
    pub(crate) fn expired(&mut self, slot: u32) -> Option<Timer> {
        let index = (slot & !TIMER_SLOTS) as usize;
        let timer = KINDS
            .get(index)
            .copied()
            .filter(|_| slot & TIMER_SLOTS != 0)?;
        self.set[index] = None;
        Some(timer)
    }
}

/// An eighth of its period: a tick may come so much too early.
const EARLY_PART: u32 = 8;

/// Time of the next tick: the last multiple of an eighth of the period before the period ends. All
/// connections share these times, so that host and target wake up once for all of them.
pub(crate) fn next_tick(now: Nanos, period: Duration) -> Nanos {
    let apart = u64::try_from((period / EARLY_PART).as_nanos()).unwrap_or(u64::MAX);
    let end = now + period;
    Nanos(end.0 - end.0 % apart.max(1))
}

/// Whether a period has ended `since` after its start, for ticks that come too early.
pub(crate) fn is_over(since: Duration, period: Duration) -> bool {
    since >= period - period / EARLY_PART
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_of_connections_that_began_at_different_times_come_together_and_never_late() {
        let period = Duration::from_millis(2500);
        let began = [1_000_000_000, 1_100_000_000, 1_249_999_999].map(Nanos);
        let ticks = began.map(|began| next_tick(began, period));
        assert!(ticks.iter().all(|tick| *tick == ticks[0]), "{ticks:?}");
        for (began, tick) in began.into_iter().zip(ticks) {
            assert!(tick <= began + period);
            assert!(is_over(tick.since(began), period));
        }
        assert!(!is_over(Duration::from_secs(2), period), "too early");
    }

    #[test]
    fn a_tick_lies_ahead_however_short_its_period() {
        for period in [Duration::from_nanos(1), Duration::from_micros(500)] {
            assert!(next_tick(Nanos(77), period) > Nanos(77), "{period:?}");
        }
    }
}
