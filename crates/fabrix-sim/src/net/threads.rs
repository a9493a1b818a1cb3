//! Threads of tests that use the network with blocking calls, beside the world's own thread.
//!
//! Time stands still while one of them runs. It passes when all of them wait for the network.

use std::collections::BTreeSet;
use std::sync::{Arc, Condvar};
use std::time::Duration;

use fabrix_rt::Nanos;

use super::state::{Event, State};
use super::{Net, ShardId};

/// The threads of tests.
#[derive(Debug, Default)]
pub(super) struct Threads {
    /// How many of them run.
    running: usize,
    /// The numbers for which the others wait.
    waiting: BTreeSet<ShardId>,
    /// A thread waits, or one may go on.
    changed: Arc<Condvar>,
}

impl Threads {
    /// Something has happened to the operations of this number: the thread that waits goes on.
    pub(super) fn wake(&mut self, number: ShardId) {
        if self.waiting.remove(&number) {
            self.running += 1;
            self.changed.notify_all();
        }
    }
}

impl Net {
    /// One more thread runs, until [`Net::thread_ends`].
    pub(crate) fn thread_begins(&self) {
        self.state().threads.running += 1;
    }

    /// A thread has ended.
    pub(crate) fn thread_ends(&self) {
        let mut state = self.state();
        state.threads.running -= 1;
        state.threads.changed.notify_all();
    }

    /// Waits until all threads of tests wait or have ended. False: none of them ran.
    ///
    /// # Panics
    /// A thread runs on and on.
    pub(crate) fn await_threads(&self) -> bool {
        let mut state = self.state();
        let ran = state.threads.running > 0;
        while state.threads.running > 0 {
            let changed = Arc::clone(&state.threads.changed);
            let (waited, over) = changed.wait_timeout(state, PATIENCE).expect("no panic");
            assert!(!over.timed_out(), "a thread of this test runs on and on");
            state = waited;
        }
        ran
    }

    /// Waits on a thread of a test until `attempt` brings something. None: `until` is over.
    pub(crate) fn wait_on_thread<T>(
        &self,
        number: ShardId,
        until: Nanos,
        mut attempt: impl FnMut(&mut State) -> Option<T>,
    ) -> Option<T> {
        let mut state = self.state();
        if until < Nanos::MAX {
            state.plan(until, Event::Wake(number));
        }
        loop {
            if let Some(result) = attempt(&mut state) {
                return Some(result);
            }
            if state.now >= until {
                return None;
            }
            if state.take_ready(number) {
                continue;
            }
            state.threads.running -= 1;
            state.threads.waiting.insert(number);
            let changed = Arc::clone(&state.threads.changed);
            changed.notify_all();
            while !state.take_ready(number) {
                state = changed.wait(state).expect("no panic");
            }
        }
    }
}

/// A thread of a test does not compute for so long.
const PATIENCE: Duration = Duration::from_secs(60);
