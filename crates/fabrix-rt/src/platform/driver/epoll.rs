//! The driver over epoll, for containers that forbid io_uring.
//!
//! Every operation is tried at once. An operation that would wait is queued at its descriptor,
//! until epoll reports the descriptor and it is tried again. Operations of files run in place and
//! stop the whole shard meanwhile; that is the price of this driver.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::rc::Rc;
use std::sync::Arc;

use super::in_place::run_on_file;
use super::now::{Tried, attempt, ended, errno};
use super::pollers::Pollers;
use crate::bell::Bell;
use crate::driver::{Completed, Driver, Submission, Until};
use crate::spin::Spin;
use crate::sys::epoll::Epoll;
use crate::{Nanos, Op, Poller, TaskId, Token};

pub(crate) struct EpollDriver {
    epoll: Epoll,
    spin: Spin,
    bell: Arc<Bell>,
    pollers: Pollers,
    /// Waiting operations by descriptor number.
    waiting: Vec<Waiting>,
    in_flight: usize,
}

/// The operations that wait at one descriptor, in their order.
#[derive(Default)]
struct Waiting {
    readers: VecDeque<Submission>,
    writers: VecDeque<Submission>,
}

impl EpollDriver {
    pub(crate) fn new(spin: Spin, bell: Arc<Bell>) -> io::Result<Self> {
        let epoll = Epoll::new()?;
        epoll.arm(bell.event().as_fd(), BELL, true, false)?;
        Ok(Self {
            epoll,
            spin,
            bell,
            pollers: Pollers::default(),
            waiting: Vec::new(),
            in_flight: 0,
        })
    }
}

impl Driver for EpollDriver {
    fn turn(
        &mut self,
        submissions: &mut Vec<Submission>,
        endings: &mut Vec<Completed>,
        until: Until,
    ) -> Nanos {
        for (token, op) in submissions.drain(..) {
            self.begin(token, op, endings);
        }
        self.pollers.look(endings);
        if !endings.is_empty() || until == Until::Now || self.bell.is_rung() {
            if self.in_flight > 0 {
                self.look(Until::Now, endings);
            }
            return Nanos::now();
        }
        let began = Nanos::now();
        self.spin(endings, until, began);
        if endings.is_empty() {
            self.sleep(endings, until);
        }
        let now = Nanos::now();
        if !endings.is_empty() {
            self.spin.record(now - began);
        }
        now
    }

    fn add_poller(&mut self, token: Token, poller: Rc<dyn Poller>) -> io::Result<()> {
        self.pollers.add(token, poller);
        Ok(())
    }

    fn forget(&mut self, task: TaskId) {
        self.pollers.forget(task);
        let mut left = 0;
        for waiting in &mut self.waiting {
            for queue in [&mut waiting.readers, &mut waiting.writers] {
                queue.retain(|(token, op)| token.task != task || !op.waits_for_a_peer());
                left += queue.len();
            }
        }
        self.in_flight = left;
    }

    fn in_flight(&self) -> usize {
        self.in_flight
    }
}

impl EpollDriver {
    fn begin(&mut self, token: Token, mut op: Op, endings: &mut Vec<Completed>) {
        let Some((descriptor, side)) = side(&op) else {
            let result = run_on_file(&mut op);
            return endings.push((token, ended(result, op)));
        };
        let descriptor = descriptor.as_raw_fd();
        let waiting = self.waiting_at(descriptor);
        if waiting.queue(side).is_empty() {
            match attempt(op) {
                Tried::Ended(completion) => return endings.push((token, completion)),
                Tried::InPart(back) | Tried::WouldWait(back) => op = back,
            }
        }
        let waiting = self.waiting_at(descriptor);
        waiting.queue(side).push_back((token, op));
        self.in_flight += 1;
        self.arm(descriptor, endings);
    }

    /// Asks epoll to report a descriptor for the operations that wait at it. If epoll refuses, they
    /// end with its error.
    fn arm(&mut self, descriptor: RawFd, endings: &mut Vec<Completed>) {
        let waiting = &mut self.waiting[index(descriptor)];
        let (read, write) = (!waiting.readers.is_empty(), !waiting.writers.is_empty());
        let Some((_, op)) = waiting.readers.front().or_else(|| waiting.writers.front()) else {
            return;
        };
        let (handle, _) = side(op).expect("only such operations wait");
        let Err(error) = self.epoll.arm(handle, key(descriptor), read, write) else {
            return;
        };
        for (token, op) in waiting.readers.drain(..).chain(waiting.writers.drain(..)) {
            self.in_flight -= 1;
            endings.push((token, ended(errno(&error), op)));
        }
    }

    /// Waits in the kernel, unless something came during the preparations.
    fn sleep(&mut self, endings: &mut Vec<Completed>, until: Until) {
        if self.arm_pollers(endings) && self.bell.fall_asleep() {
            self.look(until, endings);
            self.bell.wake_up();
            self.pollers.look(endings);
        }
    }

    /// Makes every poller wake the shard. False: the shard must not sleep.
    fn arm_pollers(&mut self, endings: &mut Vec<Completed>) -> bool {
        let epoll = &self.epoll;
        let watch = |number, _task, poller: &Rc<dyn Poller>| {
            let key = POLLERS + u64::from(number);
            let armed = epoll.arm(poller.waitable(), key, true, false);
            armed.map(|()| true).map_err(|error| errno(&error))
        };
        self.pollers.arm(endings, watch)
    }

    /// Looks again and again without waiting, for the spin window.
    fn spin(&mut self, endings: &mut Vec<Completed>, until: Until, began: Nanos) {
        let window = self.spin.window();
        let mut now = began;
        while endings.is_empty()
            && now - began < window
            && !until.is_over(now)
            && !self.bell.is_rung()
        {
            self.look(Until::Now, endings);
            self.pollers.look(endings);
            now = Nanos::now();
        }
    }

    /// Waits once, and tries the operations of all reported descriptors.
    fn look(&mut self, until: Until, endings: &mut Vec<Completed>) {
        let timeout = until.left(Nanos::now());
        let count = self
            .epoll
            .wait(timeout)
            .unwrap_or_else(|error| panic!("epoll refuses our set: {error}"));
        for event in 0..count {
            let ready = self.epoll.ready(event);
            if ready.key == BELL {
                self.take_bell();
                continue;
            }
            if let Some(number) = ready.key.checked_sub(POLLERS) {
                let number = u32::try_from(number).expect("pollers are numbered so");
                let result = if ready.has_failed {
                    Err(-libc::EIO)
                } else {
                    Ok(())
                };
                self.pollers.reported(number, result, endings);
                continue;
            }
            let descriptor = RawFd::try_from(ready.key).expect("every other key is a descriptor");
            if ready.readable {
                self.attempt_waiting(descriptor, Side::Read, endings);
            }
            if ready.writable {
                self.attempt_waiting(descriptor, Side::Write, endings);
            }
            self.arm(descriptor, endings);
        }
    }

    fn attempt_waiting(&mut self, descriptor: RawFd, side: Side, endings: &mut Vec<Completed>) {
        let queue = self.waiting[index(descriptor)].queue(side);
        while let Some((token, op)) = queue.pop_front() {
            match attempt(op) {
                Tried::Ended(completion) => {
                    self.in_flight -= 1;
                    endings.push((token, completion));
                }
                Tried::InPart(op) | Tried::WouldWait(op) => {
                    return queue.push_front((token, op));
                }
            }
        }
    }

    fn take_bell(&mut self) {
        // The event is readable, so this does not wait.
        self.bell.event().clear();
        let armed = self.epoll.arm(self.bell.event().as_fd(), BELL, true, false);
        armed.expect("it was armed before, so the kernel has room for it");
    }

    fn waiting_at(&mut self, descriptor: RawFd) -> &mut Waiting {
        let index = index(descriptor);
        if self.waiting.len() <= index {
            self.waiting.resize_with(index + 1, Waiting::default);
        }
        &mut self.waiting[index]
    }
}

impl Waiting {
    fn queue(&mut self, side: Side) -> &mut VecDeque<Submission> {
        match side {
            Side::Read => &mut self.readers,
            Side::Write => &mut self.writers,
        }
    }
}

#[derive(Clone, Copy)]
enum Side {
    Read,
    Write,
}

/// The descriptor and direction an operation waits for. None: it is of a file and runs in place.
fn side(op: &Op) -> Option<(BorrowedFd<'_>, Side)> {
    match op {
        Op::Accept { listener } => Some((listener.as_fd(), Side::Read)),
        Op::Receive { socket, .. } => Some((socket.as_fd(), Side::Read)),
        Op::TakeMessage { file, .. } | Op::Readable { file } => Some((file.as_fd(), Side::Read)),
        Op::Connect { socket, .. } | Op::Send { socket, .. } => Some((socket.as_fd(), Side::Write)),
        Op::Read { .. }
        | Op::Write { .. }
        | Op::ReadRegistered { .. }
        | Op::WriteRegistered { .. }
        | Op::Sync { .. }
        | Op::Allocate { .. }
        | Op::GiveMessage { .. }
        | Op::DeviceCommand { .. }
        | Op::Exchange { .. } => None,
    }
}

fn index(descriptor: RawFd) -> usize {
    usize::try_from(descriptor).expect("an open descriptor is not negative")
}

fn key(descriptor: RawFd) -> u64 {
    u64::try_from(descriptor).expect("an open descriptor is not negative")
}

const BELL: u64 = u64::MAX;
/// Key of the first poller: above every descriptor.
const POLLERS: u64 = 1 << 32;
