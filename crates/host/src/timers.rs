//! The few timers of a session: one of each kind, so that setting one again moves it.

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
