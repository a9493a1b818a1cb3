//! The gate between writes and those who need the disk alone for a moment. One lane per channel.
//!
//! Open gate: a write counts itself in its lane, sees the gate open, and goes. Whoever closes the
//! gate first closes it and then looks at all lanes. Both in the one total order of SeqCst, so
//! either the write sees the closed gate or the closer sees the write. Everything else is rare and
//! happens under a lock.
//!
//! Nobody starves: who must wait stands in one queue. When a holder is done, either the next holder
//! is called, or the gate opens for all writers that were waiting; until these have gone (`grants`)
//! nobody can close it again. A call is a message to the lane's task. Should a mailbox be full, the
//! lane finds out by its timer.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fabrix_rt::{Remote, TaskId};

/// One per disk.
pub(super) struct Gate {
    closed: AtomicBool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    lanes: Vec<LaneState>,
    next_id: u64,
    holder: Option<u64>,
    /// Lanes that were called to write and have not said that they have.
    grants: usize,
    waiters: VecDeque<Waiter>,
}

struct LaneState {
    lane: Arc<Lane>,
    granted: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct Waiter {
    lane: u64,
    want: Want,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Want {
    Write,
    Hold,
}

/// A lane's counter, alone in its cache lines, and how its task is called.
#[repr(align(128))]
struct Lane {
    writes: AtomicU32,
    id: u64,
    task: TaskId,
    remote: Remote,
}

/// A channel's own lane. Dropping it gives back whatever it had of the gate.
pub(super) struct LaneHandle {
    gate: Arc<Gate>,
    lane: Arc<Lane>,
}

/// The message of a call: look again what you have of the gate.
pub(super) struct Call;

/// What a lane has of the gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Position {
    /// It is alone.
    pub(super) holds: bool,
    /// It was called to write, and says so when it has.
    pub(super) granted: bool,
}

impl Gate {
    pub(super) fn new() -> Self {
        Self {
            closed: AtomicBool::new(false),
            state: Mutex::new(State::default()),
        }
    }

    /// Adds a lane for a channel's task.
    pub(super) fn lane(self: &Arc<Self>, task: TaskId, remote: Remote) -> LaneHandle {
        let mut state = self.state();
        let id = state.next_id;
        state.next_id += 1;
        let lane = Arc::new(Lane {
            writes: AtomicU32::new(0),
            id,
            task,
            remote,
        });
        state.lanes.push(LaneState {
            lane: Arc::clone(&lane),
            granted: false,
        });
        // A lane waits at most once for either.
        let room = 2 * state.lanes.len() - state.waiters.len();
        state.waiters.reserve(room);
        drop(state);
        LaneHandle {
            gate: Arc::clone(self),
            lane,
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The gate has neither holder nor grants: whoever has waited longest is next.
    fn hand_on(&self, state: &mut State) {
        debug_assert!(
            state.holder.is_none() && state.grants == 0,
            "the gate is still in use"
        );
        match state.waiters.front().copied() {
            None => self.closed.store(false, Ordering::SeqCst),
            Some(Waiter {
                lane,
                want: Want::Hold,
            }) => {
                state.waiters.pop_front();
                state.holder = Some(lane);
                self.closed.store(true, Ordering::SeqCst);
                state.call(lane);
            }
            Some(Waiter {
                want: Want::Write, ..
            }) => {
                self.closed.store(false, Ordering::SeqCst);
                state.call_writers();
            }
        }
    }
}

impl State {
    fn call_writers(&mut self) {
        let Self {
            lanes,
            waiters,
            grants,
            ..
        } = self;
        for lane in lanes {
            let waiter = Waiter {
                lane: lane.lane.id,
                want: Want::Write,
            };
            if waiters.contains(&waiter) {
                lane.granted = true;
                *grants += 1;
                lane.lane.call();
            }
        }
        waiters.retain(|waiter| waiter.want != Want::Write);
    }

    fn call(&self, id: u64) {
        if let Some(lane) = self.lanes.iter().find(|lane| lane.lane.id == id) {
            lane.lane.call();
        }
    }

    fn wait(&mut self, lane: u64, want: Want) {
        let waiter = Waiter { lane, want };
        if !self.waiters.contains(&waiter) {
            self.waiters.push_back(waiter);
        }
    }

    fn of(&mut self, id: u64) -> Option<&mut LaneState> {
        self.lanes.iter_mut().find(|lane| lane.lane.id == id)
    }
}

impl Lane {
    /// A boxed value of no size allocates nothing.
    fn call(&self) {
        let _ = self.remote.send(self.task, Box::new(Call));
    }
}

impl LaneHandle {
    /// Counts a write in. False: the gate is closed, the write must wait.
    pub(super) fn enter(&self) -> bool {
        self.lane.writes.fetch_add(1, Ordering::SeqCst);
        if !self.gate.closed.load(Ordering::SeqCst) {
            return true;
        }
        self.leave();
        false
    }

    /// Counts a write out, and calls the holder if that is what it waits for.
    pub(super) fn leave(&self) {
        // Nobody else changes the counter, so a plain store will do. A step in the one total order
        // would wait until all that was written past the caches is in memory. Without it, who
        // closes the gate at this moment may see the write still in progress, and not be called
        // when it is not: its timer finds out.
        let before = self.lane.writes.load(Ordering::Relaxed);
        debug_assert!(before > 0, "a write left that had not entered");
        self.lane.writes.store(before - 1, Ordering::Release);
        if before == 1 && self.gate.closed.load(Ordering::SeqCst) {
            let state = self.gate.state();
            if let Some(holder) = state.holder {
                state.call(holder);
            }
        }
    }

    /// Asks to write while the gate is, or was, closed. True: granted now; else a call will come.
    pub(super) fn want_write(&self) -> bool {
        let mut state = self.gate.state();
        if state.of(self.lane.id).is_some_and(|lane| lane.granted) {
            return true;
        }
        if state.holder.is_some() {
            state.wait(self.lane.id, Want::Write);
            return false;
        }
        if let Some(lane) = state.of(self.lane.id) {
            lane.granted = true;
            state.grants += 1;
        }
        true
    }

    /// The writes that were waiting have entered.
    pub(super) fn release_grant(&self) {
        let mut state = self.gate.state();
        let granted = state
            .of(self.lane.id)
            .is_some_and(|lane| std::mem::take(&mut lane.granted));
        if granted {
            state.grants -= 1;
            if state.grants == 0 && state.holder.is_none() {
                self.gate.hand_on(&mut state);
            }
        }
    }

    /// Asks to be alone. True: the gate is closed for this lane; else a call will come.
    pub(super) fn want_hold(&self) -> bool {
        let mut state = self.gate.state();
        if state.holder == Some(self.lane.id) {
            return true;
        }
        if state.holder.is_some() || state.grants > 0 {
            state.wait(self.lane.id, Want::Hold);
            return false;
        }
        state.holder = Some(self.lane.id);
        self.gate.closed.store(true, Ordering::SeqCst);
        true
    }

    /// Whether all writes that had entered have left.
    pub(super) fn is_alone(&self) -> bool {
        let state = self.gate.state();
        state
            .lanes
            .iter()
            .all(|lane| lane.lane.writes.load(Ordering::SeqCst) == 0)
    }

    /// Gives the gate to whoever is next.
    pub(super) fn release(&self) {
        let mut state = self.gate.state();
        if state.holder == Some(self.lane.id) {
            state.holder = None;
            self.gate.hand_on(&mut state);
        }
    }

    /// What this lane has of the gate.
    pub(super) fn position(&self) -> Position {
        let mut state = self.gate.state();
        let holds = state.holder == Some(self.lane.id);
        let granted = state.of(self.lane.id).is_some_and(|lane| lane.granted);
        Position { holds, granted }
    }
}

impl Drop for LaneHandle {
    fn drop(&mut self) {
        let id = self.lane.id;
        self.gate.state().waiters.retain(|waiter| waiter.lane != id);
        self.release_grant();
        self.release();
        let mut state = self.gate.state();
        state.lanes.retain(|lane| lane.lane.id != id);
        // A holder that waited for this lane's writes need not any more.
        if let Some(holder) = state.holder {
            state.call(holder);
        }
    }
}
