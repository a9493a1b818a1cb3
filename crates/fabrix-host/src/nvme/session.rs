//! One controller as seen from one shard: its admin queue, its I/O queues, and how they come up.
//!
//! Knows the order of bring-up, the keep-alive, and when a controller is given up. A session
//! belongs to one shard and one channel: shards share nothing, so nothing is locked. How its queues
//! come up is in `rising`, how it is seen to be there in `keep_alive`. Which bytes travel is
//! `queue`'s business, how requests become commands is in `transfer`, what becomes of them without
//! a connection in `parting` and `outage`.

mod keep_alive;
mod rising;

use std::any::Any;
use std::sync::Arc;

use fabrix_proto::Slot;
use fabrix_proto::nvme::bringup::{Bringup, Facts};
use fabrix_proto::nvme::queue::HostEvent;
use fabrix_proto::nvme::spec::CompletionEntry;
use fabrix_rt::{Completion, Shard, Task, TaskId};
use fabrix_transport::Ended;

use self::keep_alive::KeepAlive;
use super::bring;
use super::plan::{self, Plan};
use super::queue::{Carried, Link, Queue};
use crate::channel::Forsaken;
use crate::outage::{Reconnection, State};
use crate::probe::{self, Outcome};
use crate::timers::Timer;
use crate::wire::{OperationKind, Position};
use crate::{ConnectError, ConnectErrorKind};

/// An answer to a command: its entry, how many bytes of data came, and whether they came as they
/// were sent.
pub(super) type Answer<'a> = (&'a CompletionEntry, u32, bool);

impl<L: Link> probe::Session for Session<L> {
    type Found = Arc<Facts>;

    fn rise(&mut self, shard: &mut Shard) {
        self.rise(shard);
    }

    fn outcome(&mut self) -> Outcome<Arc<Facts>> {
        std::mem::take(&mut self.outcome)
    }

    fn over(&mut self, shard: &mut Shard) {
        self.over(shard);
    }
}

pub(crate) struct Session<L> {
    pub(crate) reconnection: Reconnection,
    pub(crate) plan: Plan,
    /// The admin queue first.
    pub(crate) queues: Vec<Queue<L>>,
    /// One per queue; none when it is up.
    pub(crate) bringups: Vec<Option<Bringup>>,
    pub(crate) facts: Option<Arc<Facts>>,
    /// The I/O queue that had the last request.
    pub(crate) last_queue: usize,
    attempt: u16,
    keep_alive: KeepAlive,
    /// The queue on which a goodbye is being said.
    pub(crate) parting: Option<usize>,
    /// The controller ends its queues: what it has begun it finishes, what is new waits for the
    /// next connection.
    pub(crate) leaving: bool,
    pub(crate) forsaken: bool,
    pub(crate) outcome: Outcome<Arc<Facts>>,
}

impl<L: Link> Session<L> {
    /// A session that begins to connect with its first `rise`.
    pub(crate) fn new(task: TaskId, plan: Plan) -> Self {
        let expected = plan.expected.as_ref();
        let capacity =
            expected.map_or(0, |seen| usize::from(seen.queues) * usize::from(seen.slots));
        let is_a_disks = plan.expected.is_some();
        let place = (plan.address, is_a_disks);
        Self {
            reconnection: Reconnection::new(task, capacity, place, &plan.options),
            plan,
            queues: Vec::new(),
            bringups: Vec::new(),
            facts: None,
            last_queue: 0,
            attempt: 0,
            keep_alive: KeepAlive::default(),
            parting: None,
            leaving: false,
            forsaken: false,
            outcome: Outcome::Waiting,
        }
    }

    /// Begins to connect: the admin queue first.
    pub(crate) fn rise(&mut self, shard: &mut Shard) {
        self.reconnection.state = State::Rising;
        self.leaving = false;
        self.attempt = Position::next_attempt(self.attempt);
        self.reconnection
            .set_timer(shard, Timer::Bringup, self.plan.options.bringup_timeout);
        self.reconnection.wait_for_connection(shard);
        let admin = Bringup::new(plan::config(&self.plan));
        self.open_queue(shard, admin, plan::ADMIN_SLOTS);
    }

    /// Takes events of a queue until none is left.
    fn take_events(&mut self, shard: &mut Shard, index: usize) {
        while self.reconnection.is_up() {
            match self.queues[index].next() {
                Ok(Some(event)) => self.event(shard, index, event),
                Ok(None) => break,
                Err(ended) => return self.ended(shard, index, &ended),
            }
        }
    }

    #[inline(always)]
    fn event(&mut self, shard: &mut Shard, index: usize, event: HostEvent) {
        match event {
            HostEvent::Ready => self.step(shard, index),
            HostEvent::Completed {
                slot,
                data_bytes,
                intact,
            } => {
                let entry = self.queues[index].entry();
                self.answered(shard, (index, slot), (&entry, data_bytes, intact));
            }
            HostEvent::Terminated => {
                let said = self.queues[index].goodbye();
                self.lose(shard, ConnectError::new(ConnectErrorKind::Protocol, said));
            }
        }
    }

    /// A command in progress was answered: a request's, nearly always.
    #[inline(always)]
    fn answered(&mut self, shard: &mut Shard, at: (usize, Slot), answer: Answer<'_>) {
        if !self.request_answered(shard, at, answer) {
            self.other_answered(shard, at, answer);
        }
    }

    #[inline(never)]
    fn other_answered(&mut self, shard: &mut Shard, at: (usize, Slot), answer: Answer<'_>) {
        let ((index, slot), (entry, data_bytes, intact)) = (at, answer);
        let (carried, data) = self.queues[index].take(slot);
        let bytes = data.as_ref().map_or(&[][..], |buf| buf.bytes());
        let bytes = bytes.get(..data_bytes as usize).unwrap_or(bytes);
        match carried {
            Some(Carried::Own) => {
                self.queues[index].free(slot);
                self.own_answer(shard, index, entry, bytes, intact);
            }
            Some(Carried::Watch(watch)) => {
                self.queues[index].free(slot);
                self.watched(shard, watch, entry, bytes);
            }
            Some(carried) => self.half_answered(shard, at, carried, data, entry),
            None => debug_assert!(false, "the machine completes only what was sent"),
        }
    }

    /// A command of our own was answered: a step of the bring-up, or a keep-alive.
    fn own_answer(
        &mut self,
        shard: &mut Shard,
        index: usize,
        entry: &CompletionEntry,
        data: &[u8],
        intact: bool,
    ) {
        if !intact {
            let sentence = "data of the controller does not match its digest";
            return self.lose(
                shard,
                ConnectError::new(ConnectErrorKind::Protocol, sentence),
            );
        }
        let Some(bringup) = &mut self.bringups[index] else {
            return self.keep_alive_answered(shard, entry);
        };
        match bringup.answered(*entry, data, bring::now(shard)) {
            Ok(()) => self.step(shard, index),
            Err(error) => self.lose(shard, ConnectError::from(error)),
        }
    }

    pub(crate) fn ended(&mut self, shard: &mut Shard, index: usize, ended: &Ended) {
        let queue = match index {
            0 => "the admin connection".to_owned(),
            index => format!("I/O connection {index}"),
        };
        let error = match ended {
            Ended::Closed => ConnectError::new(
                ConnectErrorKind::Closed,
                format!("{queue} was closed by the target"),
            ),
            Ended::Socket(errno) => ConnectError::socket(&queue, -errno),
            Ended::Violation(violation) => {
                self.parting = Some(index);
                let sentence = format!("{queue}: the target sent {violation}");
                ConnectError::new(ConnectErrorKind::Protocol, sentence)
            }
        };
        self.lose(shard, error);
    }

    /// What the controller can do: as it says now, or as it said when there was one.
    pub(crate) fn facts(&self) -> Option<&Facts> {
        self.facts.as_deref()
    }
}

impl<L: Link> Task for Session<L> {
    fn completed(&mut self, shard: &mut Shard, slot: u32, completion: Completion) {
        if self.forsaken {
            self.over(shard);
        }
        let (position, ending) = Position::locate(slot);
        let index = position.index;
        if position.attempt != self.attempt || index >= self.queues.len() {
            return; // of a connection that was given up before it was made
        }
        let completed = self.queues[index].completed(self.reconnection.task, ending, completion);
        if !self.reconnection.is_up() {
            return self.fallen(shard, index, &completed);
        }
        if ending == OperationKind::Sent {
            self.finish_ended(shard, index);
        }
        match completed {
            Ok(()) => self.take_events(shard, index),
            Err(ended) => self.ended(shard, index, &ended),
        }
        shard.flush_later(self.reconnection.task);
    }

    fn expired(&mut self, shard: &mut Shard, slot: u32) {
        let timer = self.reconnection.timers.expired(slot);
        if self.forsaken {
            return self.over(shard);
        }
        match timer {
            Some(Timer::Tick) => self.tick(shard),
            Some(Timer::Reconnect) if self.reconnection.state == State::Resting => self.rise(shard),
            Some(Timer::Bringup) if self.reconnection.state == State::Rising => {
                self.too_slow(shard)
            }
            Some(Timer::Step) if self.reconnection.state == State::Rising => {
                self.step(shard, 0);
                shard.flush_later(self.reconnection.task);
            }
            Some(Timer::Fail) => self.reconnection.fail_waiting(shard),
            Some(Timer::Part) => self.part_now(shard),
            Some(Timer::Leave) => {
                let sentence = "the target ends its queues and does not close them";
                self.lose(shard, ConnectError::new(ConnectErrorKind::Closed, sentence));
            }
            Some(Timer::Reconnect | Timer::Bringup | Timer::Step | Timer::Again) | None => {}
        }
    }

    fn flush(&mut self, shard: &mut Shard) {
        for index in 0..self.queues.len() {
            if !self.reconnection.is_up() {
                return;
            }
            if let Err(ended) = self.queues[index].flush(shard) {
                self.ended(shard, index, &ended);
            } else if let Some(trace) = &self.plan.options.trace {
                trace.sent(self.queues[index].handed_over());
            }
        }
    }

    fn message(&mut self, shard: &mut Shard, message: Box<dyn Any + Send>) {
        if message.is::<Forsaken>() {
            self.over(shard);
        }
    }
}
