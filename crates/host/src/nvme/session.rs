//! One controller as seen from one shard: its admin queue, its I/O queues, and how they come up.
//!
//! Knows the order of bring-up, the keep-alive, and when a controller is given up. A session belongs to one shard and
//! one channel: shards share nothing, so nothing is locked. Which bytes travel is `queue`'s business, how requests
//! become commands is in `transfer`, what becomes of them without a connection in `parting` and `outage`.

use std::any::Any;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use fabrix_proto::nvme::bringup::{Bringup, Facts, Purpose, Step};
use fabrix_proto::nvme::nqn::Nqn;
use fabrix_proto::nvme::spec::{CompletionEntry, SubmissionEntry};
use fabrix_proto::nvme::tcp::host::{Event, HostTransfer};
use fabrix_rt::{Completion, Nanos, Shard, Task, TaskId};
use fabrix_transport::Ended;

use super::bring;
use super::queue::{Carried, Queue};
use super::seen::Seen;
use crate::channel::Forsaken;
use crate::outage::{Life, State};
use crate::probe::{self, Outcome};
use crate::timers::Timer;
use crate::wire::{Ending, Position, Route, is_overdue};
use crate::{ConnectError, ConnectErrorKind, Options};

/// What a session connects to and expects there.
#[derive(Clone)]
pub(crate) struct Plan {
    pub(crate) address: SocketAddr,
    pub(crate) subsystem: Nqn,
    pub(crate) purpose: Purpose,
    pub(crate) options: Arc<Options>,
    /// Set once the disk is known: I/O queues are connected, and a controller that shows another disk is refused.
    /// Without it the controller is asked what it has, and that is all.
    pub(crate) expected: Option<Arc<Seen>>,
}

impl Plan {
    /// Connects to `address`, learns what is there, disconnects.
    ///
    /// # Errors
    /// Why not, as a sentence. It comes within `bringup_timeout`, whatever the target does.
    pub(crate) fn probe(&self, address: SocketAddr) -> Result<Arc<Facts>, ConnectError> {
        let plan = Self {
            address,
            ..self.clone()
        };
        probe::probe(self.options.engine, |shard, task| {
            Session::new(shard, task, plan)
        })
    }
}

impl probe::Session for Session {
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

pub(crate) struct Session {
    pub(crate) life: Life,
    pub(crate) plan: Plan,
    /// The admin queue first.
    pub(crate) queues: Vec<Queue>,
    /// One per queue; none when it is up.
    pub(crate) bringups: Vec<Option<Bringup>>,
    pub(crate) facts: Option<Arc<Facts>>,
    /// The I/O queue that had the last request.
    pub(crate) last_queue: usize,
    attempt: u16,
    keep_alive: KeepAlive,
    /// The queue on which a goodbye is being said.
    pub(crate) parting: Option<usize>,
    /// The controller ends its queues: what it has begun it finishes, what is new waits for the next connection.
    pub(crate) leaving: bool,
    pub(crate) forsaken: bool,
    pub(crate) outcome: Outcome<Arc<Facts>>,
}

#[derive(Default)]
struct KeepAlive {
    /// When the last one was sent, or the controller came up.
    sent_at: Nanos,
    is_answered: bool,
}

impl Session {
    /// A session that begins to connect with its first `rise`.
    pub(crate) fn new(shard: &Shard, task: TaskId, plan: Plan) -> Self {
        let expected = plan.expected.as_ref();
        let capacity =
            expected.map_or(0, |seen| usize::from(seen.queues) * usize::from(seen.slots));
        let is_a_disks = plan.expected.is_some();
        let place = (plan.address, is_a_disks);
        Self {
            life: Life::new(shard, task, capacity, place, &plan.options),
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
        self.life.state = State::Rising;
        self.leaving = false;
        self.attempt = Position::next_attempt(self.attempt);
        self.life
            .set_timer(shard, Timer::Bringup, self.plan.options.bringup_timeout);
        self.life.wait_for_connection(shard);
        let admin = Bringup::new(bring::config(&self.plan));
        self.open_queue(shard, admin, bring::ADMIN_SLOTS);
    }

    /// Opens one more connection; false: the session is lost.
    fn open_queue(&mut self, shard: &mut Shard, bringup: Bringup, slots: u16) -> bool {
        let limits = bring::limits(&self.plan.options, slots);
        let position = Position {
            attempt: self.attempt,
            index: self.queues.len(),
        };
        let route = Route {
            to: self.plan.address,
            from: self.plan.options.local,
        };
        match Queue::open(shard, self.life.task, position, route, limits) {
            Ok(queue) => {
                self.queues.push(queue);
                self.bringups.push(Some(bringup));
                true
            }
            Err(error) => {
                self.lose(shard, ConnectError::no_socket(&error));
                false
            }
        }
    }

    /// Takes events of a queue until none is left.
    fn take_events(&mut self, shard: &mut Shard, index: usize) {
        while self.life.is_up() {
            match self.queues[index].next() {
                Ok(Some(event)) => self.event(shard, index, event),
                Ok(None) => break,
                Err(ended) => return self.ended(shard, index, &ended),
            }
        }
    }

    fn event(&mut self, shard: &mut Shard, index: usize, event: Event) {
        match event {
            Event::Ready { .. } => self.step(shard, index),
            Event::Completed {
                slot,
                entry,
                data_bytes,
                intact,
            } => match self.queues[index].take(slot) {
                (Some(Carried::Own), data) => {
                    self.queues[index].free(slot);
                    let data = data.as_ref().map_or(&[][..], |buf| buf.bytes());
                    let data = data.get(..data_bytes as usize).unwrap_or(data);
                    self.own_answer(shard, index, &entry, data, intact);
                }
                (Some(Carried::Watch(watch)), data) => {
                    self.queues[index].free(slot);
                    let data = data.as_ref().map_or(&[][..], |buf| buf.bytes());
                    let data = data.get(..data_bytes as usize).unwrap_or(data);
                    self.watched(shard, watch, &entry, data);
                }
                (Some(carried), data) => {
                    if let Some(trace) = &self.plan.options.trace {
                        trace.received(shard.now());
                    }
                    let answer = (&entry, data_bytes, intact);
                    self.answered(shard, (index, slot), carried, data, answer);
                }
                (None, _) => debug_assert!(false, "the machine completes only what was sent"),
            },
            Event::Goodbye => {
                let said = self.queues[index].goodbye();
                self.lose(shard, ConnectError::new(ConnectErrorKind::Protocol, said));
            }
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

    /// Takes the next step of a queue's bring-up.
    fn step(&mut self, shard: &mut Shard, index: usize) {
        let now = bring::now(shard);
        let Some(step) = self.bringups[index]
            .as_mut()
            .map(|bringup| bringup.next(now))
        else {
            return;
        };
        match step {
            Step::Send {
                mut entry,
                data_out,
                data_in_bytes,
            } => {
                let data = data_out.as_deref().map(<[u8; 1024]>::as_slice);
                let queue = &mut self.queues[index];
                if !bring::send(shard, queue, &mut entry, data, data_in_bytes) {
                    let sentence = "this shard has no memory for a command";
                    self.lose(shard, ConnectError::new(ConnectErrorKind::Local, sentence));
                }
            }
            Step::Wait { until } if until.0 < u64::MAX => {
                self.life
                    .timers
                    .set(shard, self.life.task, Timer::Step, Nanos(until.0));
            }
            Step::Wait { .. } => {}
            Step::Ready(facts) => self.up(shard, index, *facts),
        }
    }

    /// A queue is up: the admin queue brings the others, the last of them makes the session live.
    fn up(&mut self, shard: &mut Shard, index: usize, facts: Facts) {
        self.bringups[index] = None;
        if index == 0 {
            let expected = self.plan.expected.clone();
            let checked = expected.map_or(Ok(()), |seen| seen.check(&self.plan.options, &facts));
            if let Err(error) = checked {
                self.tell_if_smaller(&facts);
                return self.lose(shard, error);
            }
            let facts = Arc::new(facts);
            self.facts = Some(Arc::clone(&facts));
            if self.plan.expected.is_some() && !self.open_io_queues(shard, &facts) {
                return;
            }
        } else {
            self.queues[index].set_in_capsule(facts.controller.in_capsule_bytes);
        }
        if self.life.state == State::Rising && self.bringups.iter().all(Option::is_none) {
            self.live(shard);
        }
    }

    /// Connects the I/O queues; false: the session is lost.
    fn open_io_queues(&mut self, shard: &mut Shard, facts: &Facts) -> bool {
        let options = Arc::clone(&self.plan.options);
        let slots = bring::io_slots(&options, facts);
        (1..=bring::io_queues(&options, facts)).all(|queue_id| {
            let entries = u32::from(slots) + 1;
            let config = bring::config(&self.plan);
            let bringup = Bringup::io_queue(config, facts.controller.clone(), queue_id, entries);
            self.open_queue(shard, bringup, slots)
        })
    }

    fn live(&mut self, shard: &mut Shard) {
        self.life.connected(shard);
        if let Some(facts) = &self.facts {
            self.outcome = Outcome::Ready(Arc::clone(facts));
        }
        self.keep_alive = KeepAlive {
            sent_at: shard.now(),
            is_answered: true,
        };
        self.arm_tick(shard);
        self.watch(shard);
        self.send_waiting(shard);
    }

    /// How often a keep-alive is sent; none when we want none, or the controller has none (KAS 0).
    fn keep_alive_period(&self) -> Option<Duration> {
        let period = self.plan.options.keep_alive / 2;
        let has_one = self.facts.as_ref()?.controller.keep_alive_unit_ms.is_some();
        (has_one && period >= Duration::from_micros(500)).then_some(period)
    }

    fn arm_tick(&mut self, shard: &mut Shard) {
        let timeout = self.plan.options.io_timeout;
        let looks = (!timeout.is_zero()).then(|| (timeout / 4).max(SHORTEST_TICK));
        if let Some(period) = self.keep_alive_period().into_iter().chain(looks).min() {
            self.life.set_timer(shard, Timer::Tick, period);
        }
    }

    /// Time to look whether the controller still answers.
    fn tick(&mut self, shard: &mut Shard) {
        if self.life.state != State::Live {
            return;
        }
        if let Some(sentence) = self.silence(shard.now()) {
            return self.lose(
                shard,
                ConnectError::new(ConnectErrorKind::Timeout, sentence),
            );
        }
        let is_due = self
            .keep_alive_period()
            .is_some_and(|period| shard.now().since(self.keep_alive.sent_at) >= period);
        if is_due && self.keep_alive.is_answered {
            self.send_keep_alive(shard);
        }
        self.arm_tick(shard);
    }

    fn send_keep_alive(&mut self, shard: &mut Shard) {
        let (now, mut entry) = (shard.now(), SubmissionEntry::keep_alive());
        let admin = &mut self.queues[0];
        if admin
            .send(now, &mut entry, HostTransfer::None, None, Carried::Own)
            .is_ok()
        {
            self.keep_alive = KeepAlive {
                sent_at: now,
                is_answered: false,
            };
            shard.flush_later(self.life.task);
        }
    }

    fn keep_alive_answered(&mut self, shard: &mut Shard, entry: &CompletionEntry) {
        let status = entry.status();
        if !status.is_success() {
            let sentence = format!("the controller answered Keep Alive with {status}");
            return self.lose(
                shard,
                ConnectError::new(ConnectErrorKind::Protocol, sentence),
            );
        }
        self.keep_alive.is_answered = true;
        self.life.has_lived();
    }

    /// What the controller should have answered by now.
    fn silence(&self, now: Nanos) -> Option<String> {
        let options = &self.plan.options;
        let sent_at = (!self.keep_alive.is_answered).then_some(self.keep_alive.sent_at);
        if is_overdue(now, sent_at, options.keep_alive) {
            return Some(format!(
                "no answer to Keep Alive for {:?}",
                options.keep_alive
            ));
        }
        let late = |queue: &Queue| is_overdue(now, queue.oldest(), options.io_timeout);
        let index = self.queues.iter().skip(1).position(late)? + 1;
        Some(format!(
            "I/O connection {index}: no answer to a command for {:?}",
            options.io_timeout
        ))
    }

    /// Bring-up has had its time: who has not answered what.
    fn too_slow(&mut self, shard: &mut Shard) {
        let most = self.plan.options.bringup_timeout;
        let index = self.bringups.iter().position(Option::is_some).unwrap_or(0);
        let (queue, bringup) = (&self.queues[index], &self.bringups[index]);
        let error = match bringup {
            _ if !queue.is_connected() => ConnectError::new(
                ConnectErrorKind::Timeout,
                format!(
                    "no connection within {most:?}: check the address, the network and firewalls in between"
                ),
            ),
            Some(bringup) if queue.is_initialized() => ConnectError::from(bringup.no_answer()),
            _ => ConnectError::new(
                ConnectErrorKind::Timeout,
                format!(
                    "something accepts connections and did not answer ICReq within {most:?}: is it an NVMe/TCP target?"
                ),
            ),
        };
        self.lose(shard, error);
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

impl Task for Session {
    fn completed(&mut self, shard: &mut Shard, slot: u32, completion: Completion) {
        if self.forsaken {
            self.over(shard);
        }
        let (position, ending) = Position::locate(slot);
        let index = position.index;
        if position.attempt != self.attempt || index >= self.queues.len() {
            return; // of a connection that was given up before it was made
        }
        let completed = self.queues[index].completed(self.life.task, ending, completion);
        if !self.life.is_up() {
            return self.fallen(shard, index, &completed);
        }
        if ending == Ending::Sent {
            self.finish_ended(shard, index);
        }
        match completed {
            Ok(()) => self.take_events(shard, index),
            Err(ended) => self.ended(shard, index, &ended),
        }
        shard.flush_later(self.life.task);
    }

    fn expired(&mut self, shard: &mut Shard, slot: u32) {
        let timer = self.life.timers.expired(slot);
        if self.forsaken {
            return self.over(shard);
        }
        match timer {
            Some(Timer::Tick) => self.tick(shard),
            Some(Timer::Reconnect) if self.life.state == State::Resting => self.rise(shard),
            Some(Timer::Bringup) if self.life.state == State::Rising => self.too_slow(shard),
            Some(Timer::Step) if self.life.state == State::Rising => {
                self.step(shard, 0);
                shard.flush_later(self.life.task);
            }
            Some(Timer::Fail) => self.life.fail_waiting(shard),
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
            if !self.life.is_up() {
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

/// Requests without an answer are looked for no more often.
const SHORTEST_TICK: Duration = Duration::from_millis(1);
