//! The driver over io_uring: one system call submits all operations of a turn, and waits.
//!
//! This file is policy: when to enter the kernel, when to spin, how to continue a short send, what
//! to do with a full ring. `sys/uring.rs` owns the operations in progress and all raw memory.

#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::io;
use std::mem;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use super::in_place::{is_a_copy, run_on_file};
use super::now::{Tried, attempt, count, ended};
use super::pollers::Pollers;
use super::warm::{self, Warm};
use crate::bell::Bell;
use crate::driver::{Completed, Driver, Submission, Until};
use crate::spin::Spin;
use crate::sys::entry::Form;
use crate::sys::uring::{NotTaken, Reaped, Ring, readable};
use crate::{Completion, Loan, Nanos, Op, Poller, Socket, TaskId, Token};

pub(crate) struct UringDriver<E: Form> {
    ring: Ring<E>,
    spin: Spin,
    bell: Arc<Bell>,
    pollers: Pollers,
    /// Operations that did not fit into the ring. They go first in the next turn.
    again: Vec<Submission>,
    /// Partially sent gathers. They continue in the next turn, after new sends, so that short
    /// answers overtake long ones.
    rest: Vec<Submission>,
    /// Reads and writes of files in memory. Some of them run in place in each turn.
    copies: VecDeque<Submission>,
    /// Receives that stay out of the ring while the shard spins.
    warm: Warm,
    /// Receives that were in `warm` and go into the ring in the next turn.
    cold: Vec<Submission>,
    /// Removed tasks some of whose operations are not cancelled yet.
    forgotten: Vec<TaskId>,
    /// Operations of files in the ring that are not submitted yet.
    files_queued: usize,
}

impl<E: Form> UringDriver<E> {
    pub(crate) fn new(entries: u32, spin: Spin, bell: Arc<Bell>) -> io::Result<Self> {
        let ring = Ring::new(entries, Arc::clone(&bell))?;
        Ok(Self {
            ring,
            spin,
            bell,
            pollers: Pollers::default(),
            again: Vec::with_capacity(entries as usize),
            rest: Vec::with_capacity(entries as usize),
            copies: VecDeque::with_capacity(entries as usize),
            warm: Warm::new(),
            cold: Vec::with_capacity(warm::MOST),
            forgotten: Vec::new(),
            files_queued: 0,
        })
    }
}

impl<E: Form> Driver for UringDriver<E> {
    fn turn(
        &mut self,
        submissions: &mut Vec<Submission>,
        endings: &mut Vec<Completed>,
        until: Until,
    ) -> Nanos {
        self.ring.arm_wake();
        self.forgotten.retain(|task| !self.ring.cancel(*task));
        let window = self.spin.window();
        self.queue(submissions, endings, !window.is_zero());
        self.copy(endings);
        self.reap(endings);
        self.warm.attempt(endings, &mut self.cold);
        self.pollers.look(endings);
        let may_wait = |this: &Self, endings: &Vec<Completed>| {
            endings.is_empty()
                && !this.has_more()
                && this.copies.is_empty()
                && until != Until::Now
                && !this.bell.is_rung()
        };
        if !may_wait(self, endings) || !window.is_zero() {
            // The shard does not sleep, so it submits apart. Often that alone ends an operation,
            // for instance a send.
            if self.ring.has_work_for_the_kernel() {
                self.enter(None);
                self.reap(endings);
            }
            if !may_wait(self, endings) {
                return Nanos::now();
            }
        }
        self.wait(endings, until, window)
    }

    fn make_table(&mut self, places: u16) -> io::Result<()> {
        self.ring.make_table(places)
    }

    fn add_poller(&mut self, token: Token, poller: Rc<dyn Poller>) -> io::Result<()> {
        self.pollers.add(token, poller);
        Ok(())
    }

    fn forget(&mut self, task: TaskId) {
        self.pollers.forget(task);
        for later in [&mut self.again, &mut self.rest, &mut self.cold] {
            later.retain(|(token, op)| token.task != task || !op.waits_for_a_peer());
        }
        self.warm.forget(task);
        if !self.ring.cancel(task) {
            self.forgotten.push(task);
        }
    }

    fn in_flight(&self) -> usize {
        let later = self.again.len() + self.rest.len() + self.cold.len() + self.copies.len();
        self.ring.in_flight() + later + self.warm.len()
    }
}

impl<E: Form> UringDriver<E> {
    /// Whether operations wait to be begun or continued in the next turn.
    fn has_more(&self) -> bool {
        !self.again.is_empty() || !self.rest.is_empty() || !self.cold.is_empty()
    }

    /// Spins, then sleeps, and records the time until the next completion.
    fn wait(&mut self, endings: &mut Vec<Completed>, until: Until, window: Duration) -> Nanos {
        let began = Nanos::now();
        if !window.is_zero() {
            self.spin(endings, until, began, window);
        }
        if endings.is_empty() && !self.has_more() {
            self.cool(endings);
            if endings.is_empty() && !self.has_more() {
                self.sleep(endings, until);
                self.reap(endings);
            }
        }
        let now = Nanos::now();
        if !endings.is_empty() {
            self.spin.record(now - began);
        }
        now
    }

    /// Looks at the tail of the completion queue and the flags of the kernel, which lie in memory.
    /// Makes no system call until there is work.
    fn spin(&mut self, endings: &mut Vec<Completed>, until: Until, began: Nanos, window: Duration) {
        let window_end = began + window;
        loop {
            for _ in 0..self.looks_per_clock() {
                if self.ring.something_happened() {
                    if self.ring.has_work_for_the_kernel() {
                        self.enter(None);
                    }
                    self.reap(endings);
                }
                self.warm.attempt(endings, &mut self.cold);
                self.pollers.look(endings);
                if !endings.is_empty() || self.has_more() {
                    return;
                }
                if self.bell.is_rung() {
                    return;
                }
                std::hint::spin_loop();
            }
            let now = Nanos::now();
            if now >= window_end || until.is_over(now) {
                return;
            }
        }
    }

    /// Looks between two readings of the clock. A receive of `warm` is a system call, so with one
    /// the clock is read after every look, and deadlines are kept.
    fn looks_per_clock(&self) -> u32 {
        match self.warm.len() {
            0 => LOOKS_PER_CLOCK,
            _ => 1,
        }
    }

    /// Waits in the kernel, unless the time is over or something came during the preparations.
    fn sleep(&mut self, endings: &mut Vec<Completed>, until: Until) {
        let now = Nanos::now();
        // The wake-up may have fired while the shard spun. It must be armed again before a sleep.
        if until.is_over(now)
            || !self.ring.arm_wake()
            || !self.arm_pollers(endings)
            || !self.bell.fall_asleep()
        {
            return self.enter(None);
        }
        self.enter(Some(until.left(now)));
        self.bell.wake_up();
        self.pollers.look(endings);
    }

    /// Makes every poller wake the shard. False: the shard must not sleep.
    fn arm_pollers(&mut self, endings: &mut Vec<Completed>) -> bool {
        let ring = &mut self.ring;
        let watch = |number, task, poller: &Rc<dyn Poller>| Ok(ring.watch(number, task, poller));
        self.pollers.arm(endings, watch)
    }

    /// Enters the kernel once: to submit only (`None`), or also to wait, at most for the time
    /// given.
    fn enter(&mut self, wait: Option<Option<Duration>>) {
        self.files_queued = 0;
        let entered = match wait {
            None => self.ring.submit(),
            Some(timeout) => self.ring.submit_and_wait(timeout),
        };
        let Err(error) = entered else { return };
        match error.raw_os_error() {
            // A signal, the timeout, too many unreaped completions, or no memory: the next turn
            // tries again.
            Some(libc::EINTR | libc::ETIME | libc::EAGAIN | libc::EBUSY | libc::ENOMEM) => {}
            _ => panic!("io_uring_enter refuses our ring: {error}"),
        }
    }

    /// Moves the receives of `warm` into the ring, because a sleeping shard waits for the ring
    /// only.
    fn cool(&mut self, endings: &mut Vec<Completed>) {
        while let Some((token, op)) = self.warm.take() {
            self.push(token, op, endings);
        }
    }

    /// Begins all operations. A spinning shard makes few sends and receives by direct system calls,
    /// which is faster. All others go into the ring, with submissions in between if it is full.
    fn queue(
        &mut self,
        submissions: &mut Vec<Submission>,
        endings: &mut Vec<Completed>,
        spinning: bool,
    ) {
        if !self.again.is_empty() {
            self.again.append(submissions);
            mem::swap(&mut self.again, submissions);
        }
        submissions.append(&mut self.rest);
        while let Some((token, op)) = self.cold.pop() {
            self.push(token, op, endings);
        }
        let of_sockets = submissions.iter().filter(|(_, op)| !op.is_of_a_file());
        let few = spinning && of_sockets.count() <= FEW;
        for (token, op) in submissions.drain(..) {
            match op {
                Op::Receive { .. } if few && self.warm.has_room() => self.warm.keep((token, op)),
                Op::Send { .. } if few && self.again.is_empty() => match attempt(op) {
                    Tried::Ended(completion) => endings.push((token, completion)),
                    Tried::InPart(op) => self.rest.push((token, op)),
                    Tried::WouldWait(op) => self.push(token, op, endings),
                },
                op if is_a_copy(&op) => self.copies.push_back((token, op)),
                op => self.push(token, op, endings),
            }
        }
    }

    /// Runs some of the operations that only copy memory.
    fn copy(&mut self, endings: &mut Vec<Completed>) {
        let most = (self.copies.len() / 2).clamp(BITE, COPIES);
        let mut bytes = 0;
        for _ in 0..most {
            if bytes >= COPIED_BYTES {
                return;
            }
            let Some((token, mut op)) = self.copies.pop_front() else {
                return;
            };
            let result = run_on_file(&mut op);
            bytes += usize::try_from(result).unwrap_or(0);
            endings.push((token, ended(result, op)));
        }
    }

    fn push(&mut self, token: Token, op: Op, endings: &mut Vec<Completed>) {
        if !self.again.is_empty() {
            return self.again.push((token, op)); // behind those that did not fit: the order is kept
        }
        if let Op::Send { gather, .. } = &op
            && gather.unsent_bytes() == 0
        {
            return endings.push((token, ended(0, op)));
        }
        if self.ring.is_full() {
            self.enter(None);
            if self.ring.is_full() {
                self.reap(endings); // a full completion queue keeps the kernel from taking more
                self.enter(None);
            }
        }
        self.files_queued += usize::from(op.is_of_a_file());
        match self.ring.push(token, op) {
            Ok(()) if self.files_queued >= BITE => self.enter(None),
            Ok(()) => {}
            Err(NotTaken::Full(token, op)) => self.again.push((token, op)),
            Err(NotTaken::Invalid(token, op, errno)) => {
                endings.push((token, ended(errno, op)));
            }
        }
    }

    /// Takes the completions, at most [`BITE`] of files. Partial sends continue in the next turn.
    fn reap(&mut self, endings: &mut Vec<Completed>) {
        let mut room = BITE;
        while room > 0
            && let Some(reaped) = self.ring.reap()
        {
            match reaped {
                Reaped::Ended {
                    token,
                    op,
                    result,
                    accepted,
                } => {
                    if op.is_of_a_file() {
                        room -= 1;
                    }
                    match settle(op, result, accepted) {
                        Ok(completion) => endings.push((token, completion)),
                        Err(op) => self.rest.push((token, op)),
                    }
                }
                Reaped::Watched { number, result } => {
                    self.pollers.reported(number, result, endings);
                }
                Reaped::Wake | Reaped::Cancel => {}
            }
        }
    }
}

/// The end of an operation. Err: the operation continues in the next turn.
fn settle(mut op: Op, result: i32, accepted: Option<Socket>) -> Result<Completion, Op> {
    if result == -libc::EINTR {
        return Err(op); // a signal has interrupted a worker before it did anything
    }
    if let Op::Send { gather, .. } = &mut op {
        return match usize::try_from(result) {
            Ok(sent) if sent > 0 => {
                gather.advance(sent);
                match gather.unsent_bytes() {
                    0 => Ok(ended(count(gather.total_bytes()), op)),
                    _ => Err(op),
                }
            }
            // The kernel sends at least one byte or reports an error.
            Ok(_) => Ok(ended(-libc::EIO, op)),
            Err(_) => Ok(ended(result, op)),
        };
    }
    if matches!(op, Op::Readable { .. }) {
        let result = readable(result).err().unwrap_or(0);
        return Ok(ended(result, op));
    }
    match accepted {
        Some(socket) => Ok(Completion {
            result: 0,
            loan: Loan::Socket(socket),
        }),
        None => Ok(ended(result, op)),
    }
}

/// Operations of files per submission, and completions of files per turn. Small batches let the
/// disk, the shard and the peer work at the same time. With large ones each would wait while
/// another works through a whole batch.
const BITE: usize = 4;
/// Most operations of files that run in place in one turn; half of those that wait, if that is
/// fewer. More than [`BITE`], because a turn costs much compared with a copy.
const COPIES: usize = 12;
/// Bytes after which a turn runs no more operations in place: other tasks of the shard wait.
const COPIED_BYTES: usize = 512 << 10;
/// Most operations of sockets in a turn that are made by direct system calls. More are cheaper
/// together in one call of the ring.
const FEW: usize = 4;
/// Looks between two readings of the clock, which costs as much as several looks.
const LOOKS_PER_CLOCK: u32 = 16;
