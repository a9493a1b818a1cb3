//! The few timers of a session: one of each kind, so that setting one again moves it.

use std::time::Duration;

use fabrix_rt::{Nanos, Shard, TaskId, TimerId, Token};

/// What a session waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Timer {
    /// Time to look at the keep-alive and at requests without an answer.
    Tick,
    /// The next try to connect.
    Reconnect,
    /// Bring-up takes too long.
    Bringup,
    /// The target is to be asked again whether it is ready.
    Step,
    /// Requests have waited long enough for a connection.
    Fail,
    /// A goodbye has had its time.
    Part,
    /// A target that wants us to leave has had time to end what is in progress.
    Leave,
    /// A target that was busy may be asked again.
    Again,
}

const KINDS: [Timer; 8] = [
    Timer::Tick,
    Timer::Reconnect,
    Timer::Bringup,
    Timer::Step,
    Timer::Fail,
    Timer::Part,
    Timer::Leave,
    Timer::Again,
];

/// Task slots of timers have this bit, those of connections do not.
const TIMER_SLOTS: u32 = 1 << 31;

#[derive(Default)]
pub(crate) struct Timers {
    set: [Option<TimerId>; KINDS.len()],
}

impl Timers {
    /// Sets a timer, in place of the one of its kind that may be set.
    pub(crate) fn set(&mut self, shard: &mut Shard, task: TaskId, timer: Timer, at: Nanos) {
        self.cancel(shard, timer);
        let slot = TIMER_SLOTS | timer as u32;
        self.set[timer as usize] = Some(shard.set_timer(Token { task, slot }, at));
    }

    pub(crate) fn cancel(&mut self, shard: &mut Shard, timer: Timer) {
        if let Some(id) = self.set[timer as usize].take() {
            shard.cancel_timer(id);
        }
    }

    pub(crate) fn cancel_all(&mut self, shard: &mut Shard) {
        for timer in KINDS {
            self.cancel(shard, timer);
        }
    }

    /// Which timer a task slot belongs to; it is set no longer.
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

/// A tick may come by this part of its period early.
const EARLY_PART: u32 = 8;

/// The moment of the next tick: the last one before the end of the period that all ticks of such a
/// period share. So a host with many connections wakes once for them all, and so does the target
/// that it asks.
pub(crate) fn next_tick(now: Nanos, period: Duration) -> Nanos {
    let apart = u64::try_from((period / EARLY_PART).as_nanos()).unwrap_or(u64::MAX);
    let end = now + period;
    Nanos(end.0 - end.0 % apart.max(1))
}

/// Whether a period is over for a tick that comes so long after its beginning.
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
