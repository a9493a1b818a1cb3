//! One session with one target, over one connection: what happens on it, and when it is given up.
//!
//! Knows the events of a connection and the pings. A session belongs to one shard and one channel:
//! shards share nothing, so nothing is locked. Which bytes travel is `connection`'s business, how a
//! session comes up is in `bring`, how requests become commands in `transfer`, what becomes of them
//! without a connection in `parting` and `outage`. The mirror of NVMe's `session`.

use std::any::Any;
use std::net::SocketAddr;
use std::time::Duration;

use fabrix_proto::iscsi::initiator::{Event, LoginFailure, TaskOutcome};
use fabrix_proto::iscsi::pdu::AsyncEvent;
use fabrix_proto::scsi::bringup::Bringup;
use fabrix_proto::scsi::sense::Sense;
use fabrix_rt::{Completion, Nanos, Shard, Task, TaskId};
use fabrix_transport::Ended;

use super::connection::{Carried, Connection, Link};
use super::plan::{Found, Plan, slots};
use crate::channel::Forsaken;
use crate::outage::{Reconnection, State};
use crate::probe::{self, Outcome};
use crate::resolve::on_the_link_of;
use crate::timers::{Timer, is_over};
use crate::wire::{OperationKind, Position, Route, is_overdue};
use crate::{ConnectError, ConnectErrorKind};

pub(crate) struct Session<L> {
    pub(super) reconnection: Reconnection,
    pub(super) plan: Plan,
    /// There is one but while it rests.
    pub(super) connection: Option<Connection<L>>,
    /// None when all is known, or nothing can be asked yet.
    pub(super) bringup: Option<Bringup>,
    attempt: u16,
    /// Where this session is: the plan's portal, or where the target has redirected it.
    portal: SocketAddr,
    /// How often the target has redirected this login.
    redirections: u8,
    /// The next portal, once the kernel has given back what it holds of the redirected connection.
    pub(super) redirected_to: Option<SocketAddr>,
    pub(super) pinged: Pinged,
    /// A goodbye is being said.
    pub(super) parting: bool,
    /// The target wants us to leave: what it has it finishes, what is new waits for the next
    /// session.
    pub(super) leaving: bool,
    /// The target, or this machine, had no room: nothing is sent before the timer.
    pub(super) pausing: bool,
    /// The disk has said, while it was asked what it is, that this changes.
    pub(super) unsettled: bool,
    /// The user was told that the disk is reserved.
    pub(super) told_reserved: bool,
    pub(super) forsaken: bool,
    pub(super) outcome: Outcome<Found>,
}

#[derive(Default)]
pub(super) struct Pinged {
    /// When the last ping was sent, or the session came up.
    pub(super) sent_at: Nanos,
    pub(super) is_answered: bool,
}

impl<L: Link> Session<L> {
    /// A session that begins to connect with its first `rise`.
    pub(super) fn new(task: TaskId, plan: Plan) -> Self {
        let capacity = match plan.expected {
            Some(_) => usize::from(slots(&plan.options)),
            None => 0,
        };
        let is_a_disks = plan.expected.is_some();
        let place = (plan.portal, is_a_disks);
        Self {
            reconnection: Reconnection::new(task, capacity, place, &plan.options),
            portal: plan.portal,
            redirections: 0,
            redirected_to: None,
            plan,
            connection: None,
            bringup: None,
            attempt: 0,
            pinged: Pinged::default(),
            parting: false,
            leaving: false,
            pausing: false,
            unsettled: false,
            told_reserved: false,
            forsaken: false,
            outcome: Outcome::Waiting,
        }
    }

    /// Begins to connect, at the plan's portal: a target that redirects for now is asked again each
    /// time.
    pub(super) fn rise(&mut self, shard: &mut Shard) {
        self.redirections = 0;
        self.rise_at(shard, self.plan.portal);
    }

    /// Begins to connect to a portal.
    pub(super) fn rise_at(&mut self, shard: &mut Shard, portal: SocketAddr) {
        self.portal = portal;
        self.reconnection.state = State::Rising;
        (self.leaving, self.pausing, self.unsettled) = (false, false, false);
        self.attempt = Position::next_attempt(self.attempt);
        self.reconnection
            .set_timer(shard, Timer::Bringup, self.plan.options.bringup_timeout);
        self.reconnection.wait_for_connection(shard);
        if let Err(error) = self.open(shard) {
            self.lose(shard, error);
        }
    }

    fn open(&mut self, shard: &mut Shard) -> Result<(), ConnectError> {
        let login = self.plan.login()?;
        let position = Position {
            attempt: self.attempt,
            index: 0,
        };
        let machine = (login, slots(&self.plan.options));
        let route = Route {
            to: self.portal,
            from: self.plan.options.local,
        };
        let opened = Connection::open(shard, self.reconnection.task, position, route, machine);
        self.connection = Some(opened.map_err(|error| ConnectError::no_socket(&error))?);
        Ok(())
    }

    /// Takes events until none is left.
    fn take_events(&mut self, shard: &mut Shard) {
        while self.reconnection.is_up() {
            let Some(connection) = &mut self.connection else {
                return;
            };
            match connection.next() {
                Ok(Some(event)) => self.event(shard, event),
                Ok(None) => break,
                Err(ended) => return self.ended(shard, &ended),
            }
        }
    }

    fn event(&mut self, shard: &mut Shard, event: Event) {
        match event {
            Event::LoggedIn => self.logged_in(shard),
            Event::LoginFailed(failure) => self.refused(shard, *failure),
            Event::Completed { slot, outcome } => self.completed(shard, slot, outcome),
            Event::WindowOpened => self.send_waiting(shard),
            Event::Pong => {
                self.pinged.is_answered = true;
                self.reconnection.has_lived();
            }
            Event::Text => self.listed(shard),
            Event::Said(AsyncEvent::LogoutRequested { .. }) => self.leave(shard),
            Event::Said(
                AsyncEvent::ConnectionDropped { .. } | AsyncEvent::SessionDropped { .. },
            ) => {
                self.lose_with(
                    shard,
                    ConnectErrorKind::Closed,
                    "the target drops the connection",
                );
            }
            Event::TasksEnded => {
                let sentence = "the target has ended all commands in progress";
                self.lose_with(shard, ConnectErrorKind::Closed, sentence);
            }
            Event::Rejected(reason) => {
                let sentence = format!("the target rejected a PDU of ours (reason {reason:02X}h)");
                self.lose_with(shard, ConnectErrorKind::Protocol, &sentence);
            }
            Event::LoggedOut => {
                let sentence = "the target wanted us to log out and come again";
                self.lose_with(shard, ConnectErrorKind::Closed, sentence);
            }
        }
    }

    /// The login has failed, or the target redirects it.
    fn refused(&mut self, shard: &mut Shard, failure: LoginFailure) {
        let LoginFailure::Moved {
            permanently,
            portal,
        } = &failure
        else {
            return self.lose(shard, ConnectError::from(failure));
        };
        if self.redirections == REDIRECTIONS_MAX {
            let sentence = format!(
                "the target has redirected the login {REDIRECTIONS_MAX} times, does it redirect in a circle?"
            );
            return self.lose_with(shard, ConnectErrorKind::Refused, &sentence);
        }
        // A name is not looked up: this thread must not wait for an answer.
        let Ok(ip) = portal.address.parse() else {
            return self.lose(shard, ConnectError::from(failure));
        };
        let to = on_the_link_of(&[self.portal], SocketAddr::new(ip, portal.port));
        self.redirections += 1;
        if *permanently {
            self.plan.portal = to;
        }
        self.redirect(shard, to);
    }

    /// What went wrong, with the portal where that was if the user has named another one.
    pub(super) fn located(&self, error: ConnectError) -> ConnectError {
        match self.redirections {
            0 => error,
            _ => error.at(&format_args!("redirected to {}", self.portal)),
        }
    }

    pub(super) fn lose_with(&mut self, shard: &mut Shard, kind: ConnectErrorKind, sentence: &str) {
        self.lose(shard, ConnectError::new(kind, sentence));
    }

    /// A command was answered.
    fn completed(&mut self, shard: &mut Shard, slot: fabrix_proto::Slot, outcome: TaskOutcome) {
        let Some(connection) = &mut self.connection else {
            return;
        };
        let sense = connection
            .endpoint()
            .and_then(|initiator| Sense::parse(initiator.sense()));
        match connection.take(slot) {
            (Some(Carried::Own), data) => {
                connection.free(slot);
                let data = data.as_ref().map_or(&[][..], |buf| buf.bytes());
                let data = data.get(..outcome.data_bytes as usize).unwrap_or(data);
                self.own_answer(shard, outcome, sense, data);
            }
            (Some(Carried::Look), _) => {
                connection.free(slot);
                self.look_for_changes(sense);
                self.send_waiting(shard);
            }
            (Some(carried), data) => self.answered(shard, slot, carried, data, (outcome, sense)),
            (None, _) => debug_assert!(false, "the machine completes only what was sent"),
        }
    }

    /// How often the target is pinged; never when we want no keep-alive.
    fn ping_period(&self) -> Option<Duration> {
        let period = self.plan.options.keep_alive / 2;
        (period >= Duration::from_micros(500)).then_some(period)
    }

    pub(super) fn arm_tick(&mut self, shard: &mut Shard) {
        let timeout = self.plan.options.io_timeout;
        let looks = (!timeout.is_zero()).then(|| (timeout / 4).max(SHORTEST_TICK));
        let ticks = self.ping_period().into_iter().chain(looks);
        let period = ticks.chain([LONGEST_TICK]).min().unwrap_or(LONGEST_TICK);
        self.reconnection.set_tick(shard, period);
    }

    /// Time to look whether the target still answers.
    fn tick(&mut self, shard: &mut Shard) {
        if self.reconnection.state != State::Live {
            return;
        }
        if let Some(sentence) = self.silence(shard.now()) {
            return self.lose_with(shard, ConnectErrorKind::Timeout, &sentence);
        }
        let since = shard.now().since(self.pinged.sent_at);
        let is_due = self
            .ping_period()
            .is_some_and(|period| is_over(since, period));
        if let Some((initiator, mut out)) = self.connection.as_mut().and_then(Connection::speak) {
            initiator.renew();
            if is_due && self.pinged.is_answered && initiator.ping(&mut out) {
                self.pinged = Pinged {
                    sent_at: shard.now(),
                    is_answered: false,
                };
                shard.flush_later(self.reconnection.task);
            }
        }
        if is_due && !self.leaving {
            self.look(shard);
            shard.flush_later(self.reconnection.task);
        }
        self.arm_tick(shard);
    }

    /// What the target should have answered by now.
    fn silence(&self, now: Nanos) -> Option<String> {
        let options = &self.plan.options;
        let sent_at = (!self.pinged.is_answered).then_some(self.pinged.sent_at);
        if is_overdue(now, sent_at, options.keep_alive) {
            return Some(format!("no answer to a ping for {:?}", options.keep_alive));
        }
        let oldest = self.connection.as_ref().and_then(Connection::oldest);
        is_overdue(now, oldest, options.io_timeout)
            .then(|| format!("no answer to a command for {:?}", options.io_timeout))
    }

    fn ended(&mut self, shard: &mut Shard, ended: &Ended) {
        let error = match ended {
            Ended::Closed => ConnectError::new(ConnectErrorKind::Closed, self.closed()),
            Ended::Socket(errno) => ConnectError::socket("the connection", -errno),
            Ended::Violation(violation) => {
                let sentence = format!("the target broke the rules: {}", violation.sentence());
                ConnectError::new(ConnectErrorKind::Protocol, sentence)
            }
        };
        self.lose(shard, error);
    }

    /// What to say when the target has closed the connection. During the login LIO does so, without
    /// a word, to who has no secret where it wants one.
    fn closed(&self) -> &'static str {
        let machine = self.connection.as_ref().and_then(Connection::endpoint);
        let logs_in =
            self.reconnection.state == State::Rising && machine.is_some_and(|it| !it.is_ready());
        match (logs_in, self.plan.has_secret()) {
            (true, false) => {
                "the target closed the connection during the login: does it want a secret, iscsi://USER%SECRET@HOST?"
            }
            (true, true) => "the target closed the connection during the login",
            (false, _) => "the connection was closed by the target",
        }
    }
}

impl<L: Link> probe::Session for Session<L> {
    type Found = Found;

    fn rise(&mut self, shard: &mut Shard) {
        self.rise(shard);
    }

    fn outcome(&mut self) -> Outcome<Found> {
        std::mem::take(&mut self.outcome)
    }

    fn over(&mut self, shard: &mut Shard) {
        self.over(shard);
    }
}

impl<L: Link> Task for Session<L> {
    fn completed(&mut self, shard: &mut Shard, slot: u32, completion: Completion) {
        if self.forsaken {
            self.over(shard);
        }
        let (position, ending) = Position::locate(slot);
        let Some(connection) = &mut self.connection else {
            return;
        };
        if position.attempt != self.attempt {
            return; // of a connection that was given up before it was made
        }
        let completed = connection.completed(self.reconnection.task, ending, completion);
        if !self.reconnection.is_up() {
            return self.fallen(shard, &completed);
        }
        if ending == OperationKind::Sent {
            self.finish_ended(shard);
        }
        match completed {
            Ok(()) => self.take_events(shard),
            Err(ended) => self.ended(shard, &ended),
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
                self.step(shard);
                shard.flush_later(self.reconnection.task);
            }
            Some(Timer::Again) => {
                self.pausing = false;
                self.send_waiting(shard);
            }
            Some(Timer::Fail) => self.reconnection.fail_waiting(shard),
            Some(Timer::Part) => self.part_now(shard),
            Some(Timer::Leave) => {
                let sentence = "the target wants us to leave, and does not end what is in progress";
                self.lose_with(shard, ConnectErrorKind::Closed, sentence);
            }
            Some(Timer::Reconnect | Timer::Bringup | Timer::Step) | None => {}
        }
    }

    fn flush(&mut self, shard: &mut Shard) {
        if !self.reconnection.is_up() {
            return;
        }
        let Some(connection) = &mut self.connection else {
            return;
        };
        if let Err(ended) = connection.flush(shard) {
            self.ended(shard, &ended);
        }
    }

    fn message(&mut self, shard: &mut Shard, message: Box<dyn Any + Send>) {
        if message.is::<Forsaken>() {
            self.over(shard);
        }
    }
}

/// A login follows so many redirections.
const REDIRECTIONS_MAX: u8 = 4;
/// Requests without an answer are looked for no more often.
const SHORTEST_TICK: Duration = Duration::from_millis(1);
/// And no more seldom: pings of the target are answered for so long.
const LONGEST_TICK: Duration = Duration::from_secs(5);
