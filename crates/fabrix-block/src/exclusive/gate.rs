//! The gate between ordinary writes and a comparison that needs the disk alone. Every channel is
//! one participant.
//!
//! While the gate is open, a write increments its participant's counter, sees the open gate, and
//! continues. A comparison first closes the gate and then reads all counters. Both use the total
//! order of SeqCst, so either the write sees the closed gate or the comparison sees the write. All
//! other transitions are rare and take a lock.
//!
//! Waiting participants stand in one queue, so none starves. When a holder releases the gate, the
//! first in the queue decides: either the next holder is woken, or the gate opens for all waiting
//! writers. Until these writers have entered (`grants`), no participant can close the gate. A
//! wake-up is a message to the participant's task. If its mailbox is full, the task's timer notices
//! the change.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fabrix_rt::{Remote, TaskId};

/// The gate of one disk.
pub(super) struct Gate {
    closed: AtomicBool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    participants: Vec<ParticipantState>,
    next_id: u64,
    holder: Option<u64>,
    /// Participants that were granted to write and have not yet entered all their writes.
    grants: usize,
    waiters: VecDeque<Waiter>,
}

struct ParticipantState {
    participant: Arc<Participant>,
    granted: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct Waiter {
    participant: u64,
    want: Want,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Want {
    Write,
    Hold,
}

/// A participant's counter, alone in its cache lines, and the address of its task.
#[repr(align(128))]
struct Participant {
    writes: AtomicU32,
    id: u64,
    task: TaskId,
    remote: Remote,
}

/// A channel's membership in the gate. Dropping it returns its grant and its hold.
pub(super) struct GateHandle {
    gate: Arc<Gate>,
    participant: Arc<Participant>,
}

/// The wake-up message: check your access to the gate again.
pub(super) struct WakeUp;

/// A participant's current access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct GateAccess {
    /// The participant holds the gate alone.
    pub(super) holds: bool,
    /// The participant may write, and returns the grant when its waiting writes have entered.
    pub(super) granted: bool,
}

impl Gate {
    pub(super) fn new() -> Self {
        Self {
            closed: AtomicBool::new(false),
            state: Mutex::new(State::default()),
        }
    }

    /// Adds a participant for a channel's task.
    pub(super) fn join(self: &Arc<Self>, task: TaskId, remote: Remote) -> GateHandle {
        let mut state = self.state();
        let id = state.next_id;
        state.next_id += 1;
        let participant = Arc::new(Participant {
            writes: AtomicU32::new(0),
            id,
            task,
            remote,
        });
        state.participants.push(ParticipantState {
            participant: Arc::clone(&participant),
            granted: false,
        });
        // A participant stands in the queue at most once per kind of request.
        let room = 2 * state.participants.len() - state.waiters.len();
        state.waiters.reserve(room);
        drop(state);
        GateHandle {
            gate: Arc::clone(self),
            participant,
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives the gate to the first in the queue. It has neither a holder nor grants.
    fn grant_next(&self, state: &mut State) {
        debug_assert!(
            state.holder.is_none() && state.grants == 0,
            "the gate is still in use"
        );
        match state.waiters.front().copied() {
            None => self.closed.store(false, Ordering::SeqCst),
            Some(Waiter {
                participant,
                want: Want::Hold,
            }) => {
                state.waiters.pop_front();
                state.holder = Some(participant);
                self.closed.store(true, Ordering::SeqCst);
                state.wake(participant);
            }
            Some(Waiter {
                want: Want::Write, ..
            }) => {
                self.closed.store(false, Ordering::SeqCst);
                state.wake_writers();
            }
        }
    }
}

impl State {
    fn wake_writers(&mut self) {
        let Self {
            participants,
            waiters,
            grants,
            ..
        } = self;
        for participant in participants {
            let waiter = Waiter {
                participant: participant.participant.id,
                want: Want::Write,
            };
            if waiters.contains(&waiter) {
                participant.granted = true;
                *grants += 1;
                participant.participant.wake();
            }
        }
        waiters.retain(|waiter| waiter.want != Want::Write);
    }

    fn wake(&mut self, id: u64) {
        if let Some(participant) = self.find(id) {
            participant.participant.wake();
        }
    }

    fn wait(&mut self, participant: u64, want: Want) {
        let waiter = Waiter { participant, want };
        if !self.waiters.contains(&waiter) {
            self.waiters.push_back(waiter);
        }
    }

    fn find(&mut self, id: u64) -> Option<&mut ParticipantState> {
        self.participants
            .iter_mut()
            .find(|participant| participant.participant.id == id)
    }
}

impl Participant {
    /// Boxing a zero-sized value does not allocate.
    fn wake(&self) {
        let _ = self.remote.send(self.task, Box::new(WakeUp));
    }
}

impl GateHandle {
    /// Counts a write in. False: the gate is closed and the write must wait.
    pub(super) fn enter(&self) -> bool {
        self.participant.writes.fetch_add(1, Ordering::SeqCst);
        if !self.gate.closed.load(Ordering::SeqCst) {
            return true;
        }
        self.leave();
        false
    }

    /// Counts a write out. Wakes a holder that waits for the last write.
    pub(super) fn leave(&self) {
        // Only this channel changes the counter, so a plain store suffices. A SeqCst operation
        // would wait until all non-temporal stores have reached memory. The cost: a participant
        // that closes the gate at this moment may still see the write, and receives no wake-up when
        // it ends. Its timer notices.
        let before = self.participant.writes.load(Ordering::Relaxed);
        debug_assert!(before > 0, "a write left that had not entered");
        self.participant.writes.store(before - 1, Ordering::Release);
        if before == 1 && self.gate.closed.load(Ordering::SeqCst) {
            let mut state = self.gate.state();
            if let Some(holder) = state.holder {
                state.wake(holder);
            }
        }
    }

    /// Requests permission to write while the gate is or was closed. True: granted now. False: a
    /// wake-up follows.
    pub(super) fn request_write(&self) -> bool {
        let mut state = self.gate.state();
        if state
            .find(self.participant.id)
            .is_some_and(|participant| participant.granted)
        {
            return true;
        }
        if state.holder.is_some() {
            state.wait(self.participant.id, Want::Write);
            return false;
        }
        if let Some(participant) = state.find(self.participant.id) {
            participant.granted = true;
            state.grants += 1;
        }
        true
    }

    /// Returns the grant: the waiting writes have entered.
    pub(super) fn release_grant(&self) {
        let mut state = self.gate.state();
        let granted = state
            .find(self.participant.id)
            .is_some_and(|participant| std::mem::take(&mut participant.granted));
        if granted {
            state.grants -= 1;
            if state.grants == 0 && state.holder.is_none() {
                self.gate.grant_next(&mut state);
            }
        }
    }

    /// Requests the gate alone. True: the gate is closed for this participant. False: a wake-up
    /// follows.
    pub(super) fn request_hold(&self) -> bool {
        let mut state = self.gate.state();
        if state.holder == Some(self.participant.id) {
            return true;
        }
        if state.holder.is_some() || state.grants > 0 {
            state.wait(self.participant.id, Want::Hold);
            return false;
        }
        state.holder = Some(self.participant.id);
        self.gate.closed.store(true, Ordering::SeqCst);
        true
    }

    /// Whether no write is in progress in any channel.
    pub(super) fn writes_have_ended(&self) -> bool {
        let state = self.gate.state();
        state
            .participants
            .iter()
            .all(|participant| participant.participant.writes.load(Ordering::SeqCst) == 0)
    }

    /// Releases the gate for the next in the queue.
    pub(super) fn release(&self) {
        let mut state = self.gate.state();
        if state.holder == Some(self.participant.id) {
            state.holder = None;
            self.gate.grant_next(&mut state);
        }
    }

    /// This participant's current access.
    pub(super) fn access(&self) -> GateAccess {
        let mut state = self.gate.state();
        let holds = state.holder == Some(self.participant.id);
        let granted = state
            .find(self.participant.id)
            .is_some_and(|participant| participant.granted);
        GateAccess { holds, granted }
    }
}

impl Drop for GateHandle {
    fn drop(&mut self) {
        let id = self.participant.id;
        self.gate
            .state()
            .waiters
            .retain(|waiter| waiter.participant != id);
        self.release_grant();
        self.release();
        let mut state = self.gate.state();
        state
            .participants
            .retain(|participant| participant.participant.id != id);
        // A holder that waited for this participant's writes no longer has to.
        if let Some(holder) = state.holder {
            state.wake(holder);
        }
    }
}
