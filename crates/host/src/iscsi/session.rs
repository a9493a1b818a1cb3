//! One session with one target, over one connection: how it comes up, and when it is given up.
//!
//! Knows the order of bring-up and the pings. A session belongs to one shard and one channel: shards share nothing, so
//! nothing is locked. Which bytes travel is `connection`'s business, how requests become commands is in `transfer`,
//! what becomes of them without a connection in `outage`. The mirror of NVMe's `session`.

use std::any::Any;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use fabrix_proto::iscsi::auth::{Challenges, ChapProof, Credentials, PolicyError, Secret};
use fabrix_proto::iscsi::initiator::Transfer;
use fabrix_proto::iscsi::initiator::{DiscoveredTarget, Ending as TaskEnding, Event, LoginConfig};
use fabrix_proto::iscsi::pdu::{AsyncEvent, Lun};
use fabrix_proto::scsi::additional::AdditionalSense;
use fabrix_proto::scsi::bringup::{Answer, Bringup, Step, UnitFacts};
use fabrix_proto::scsi::cdb::build;
use fabrix_proto::scsi::sense::Sense;
use fabrix_proto::scsi::spec::Status;
use fabrix_rt::{Completion, Nanos, Shard, Task, TaskId, random};
use fabrix_transport::Ended;

use super::connection::{Carried, Command, Connection};
use super::seen::Seen;
use super::{Account, Address, Initiator};
use crate::outage::Outage;
use crate::probe::{self, Outcome};
use crate::request::Request;
use crate::timers::{Timer, Timers};
use crate::wire::{Ending, Position, Route, is_overdue};
use crate::{ConnectError, ConnectErrorKind, Options, PathEvent};

/// What a session connects to and expects there.
#[derive(Clone)]
pub(crate) struct Plan {
    portal: SocketAddr,
    /// None: a discovery session.
    target: Option<Box<str>>,
    lun: Option<u16>,
    initiator: Arc<Initiator>,
    isid: [u8; 6],
    pub(super) options: Arc<Options>,
    /// Set once the disk is known: a target that shows another disk is refused.
    pub(super) expected: Option<Arc<Seen>>,
}

impl Plan {
    pub(super) fn new(
        address: &Address,
        portal: SocketAddr,
        initiator: &Initiator,
        options: &Options,
    ) -> Result<Self, ConnectError> {
        let mut isid = [ISID_RANDOM, 0, 0, 0, 0, 0];
        random::fill(&mut isid[1..4]).map_err(|error| no_random(&error))?;
        let plan = Self {
            portal,
            target: address.target.as_deref().map(Into::into),
            lun: address.lun,
            initiator: Arc::new(initiator.clone()),
            isid,
            options: Arc::new(options.clone()),
            expected: None,
        };
        // What is wrong with the secrets is better said now.
        plan.login().map(|_| plan)
    }

    /// The same, at another portal.
    pub(super) fn at(&self, portal: SocketAddr) -> Self {
        Self {
            portal,
            ..self.clone()
        }
    }

    /// The same for a disk that is known.
    pub(super) fn expecting(&self, seen: &Arc<Seen>) -> Self {
        Self {
            lun: Some(seen.facts.lun),
            expected: Some(Arc::clone(seen)),
            ..self.clone()
        }
    }

    /// The same for a session of its own: the target takes another ISID for another initiator port.
    pub(super) fn session(&self, number: u16) -> Self {
        let mut plan = self.clone();
        plan.isid[4..].copy_from_slice(&number.to_be_bytes());
        plan
    }

    /// Connects to `portal`, learns what is there, disconnects.
    ///
    /// # Errors
    /// Why not, as a sentence. It comes within `bringup_timeout`, whatever the target does.
    pub(super) fn probe(&self, portal: SocketAddr) -> Result<Found, ConnectError> {
        let plan = self.at(portal);
        probe::probe(self.options.engine, |shard, task| {
            Session::new(shard, task, plan)
        })
    }

    /// Connects where the disk was found, learns what it is now, disconnects.
    ///
    /// # Errors
    /// As [`probe`](Self::probe).
    pub(super) fn ask(&self) -> Result<Found, ConnectError> {
        let plan = Self {
            expected: None,
            ..self.clone()
        };
        plan.probe(self.portal)
    }

    /// Who logs in where, with a challenge that was never used.
    fn login(&self) -> Result<LoginConfig, ConnectError> {
        let auth = match &self.initiator.ours {
            Some(ours) => Some(Box::new(proof(ours, self.initiator.theirs.as_ref())?)),
            None if self.initiator.theirs.is_some() => {
                let sentence =
                    "a target proves who it is only to who proves it too: give a user and a secret";
                return Err(ConnectError::new(ConnectErrorKind::Usage, sentence));
            }
            None => None,
        };
        Ok(LoginConfig {
            initiator: self.initiator.name.as_str().into(),
            target: self.target.clone(),
            isid: self.isid,
            auth,
            header_digest: self.options.header_digest,
            data_digest: self.options.data_digest,
        })
    }
}

fn proof(ours: &Account, theirs: Option<&Account>) -> Result<ChapProof, ConnectError> {
    let wrong = |error: PolicyError| ConnectError::new(ConnectErrorKind::Usage, error.to_string());
    let credentials = |account: &Account| {
        let secret = Secret::new(account.secret.as_bytes())?;
        Credentials::new(&account.user, secret)
    };
    let target = match theirs {
        Some(theirs) => {
            let mut bytes = [0; 1 + CHALLENGE_BYTES];
            random::fill(&mut bytes).map_err(|error| no_random(&error))?;
            let (identifier, challenge) = (bytes[0], &bytes[1..]);
            let issued = Challenges::default().issue(identifier, challenge);
            let challenge = issued.map_err(wrong)?;
            Some((credentials(theirs).map_err(wrong)?, challenge))
        }
        None => None,
    };
    let initiator = credentials(ours).map_err(wrong)?;
    ChapProof::new(initiator, target).map_err(wrong)
}

fn no_random(error: &std::io::Error) -> ConnectError {
    let sentence = format!("the kernel gives no random bytes: {error}");
    ConnectError::new(ConnectErrorKind::Local, sentence)
}

/// What a session finds.
pub(crate) enum Found {
    Unit(Arc<UnitFacts>),
    Targets(Vec<DiscoveredTarget>),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum State {
    /// It connects, logs in, and asks.
    Rising,
    /// Requests flow.
    Live,
    /// Lost: waiting for the kernel to give back what it holds.
    Falling,
    /// Lost: waiting for the next try.
    Resting,
    /// Nobody wants it any more: waiting for the kernel, then gone.
    Over,
}

/// The message of a channel that is gone.
pub(super) struct Forsaken;

pub(crate) struct Session {
    pub(super) task: TaskId,
    pub(super) plan: Plan,
    pub(super) state: State,
    /// There is one but while it rests.
    pub(super) connection: Option<Connection>,
    /// None when all is known, or nothing can be asked yet.
    pub(super) bringup: Option<Bringup>,
    /// Requests without a connection or a slot; never more than there was room for at the start.
    pub(super) waiting: VecDeque<Request>,
    /// How many requests may wait, and how many may be in progress.
    pub(super) capacity: usize,
    pub(super) outage: Outage,
    pub(super) timers: Timers,
    attempt: u16,
    pinged: Pinged,
    /// A goodbye is being said.
    pub(super) parting: bool,
    /// The target wants us to leave: what it has it finishes, what is new waits for the next session.
    pub(super) leaving: bool,
    /// The target, or this machine, had no room: nothing is sent before the timer.
    pub(super) pausing: bool,
    /// The disk has said, while it was asked what it is, that this changes.
    pub(super) unsettled: bool,
    /// The user was told that the disk is reserved.
    pub(super) told_reserved: bool,
    forsaken: bool,
    pub(super) outcome: Outcome<Found>,
}

#[derive(Default)]
struct Pinged {
    /// When the last ping was sent, or the session came up.
    sent_at: Nanos,
    is_answered: bool,
}

impl Session {
    /// A session that begins to connect with its first `rise`.
    pub(super) fn new(shard: &Shard, task: TaskId, plan: Plan) -> Self {
        let capacity = match plan.expected {
            Some(_) => usize::from(slots(&plan.options)),
            None => 0,
        };
        Self {
            task,
            plan,
            state: State::Resting,
            connection: None,
            bringup: None,
            // All that were in progress may join all that wait.
            waiting: VecDeque::with_capacity(capacity * 2),
            capacity,
            outage: Outage::begin(shard.now()),
            timers: Timers::default(),
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

    /// Begins to connect.
    pub(super) fn rise(&mut self, shard: &mut Shard) {
        self.state = State::Rising;
        (self.leaving, self.pausing, self.unsettled) = (false, false, false);
        self.attempt = Position::next_attempt(self.attempt);
        self.set_timer(shard, Timer::Bringup, self.plan.options.bringup_timeout);
        self.wait_for_connection(shard);
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
            to: self.plan.portal,
            from: self.plan.options.local,
        };
        let opened = Connection::open(shard, self.task, position, route, machine);
        self.connection = Some(opened.map_err(|error| ConnectError::no_socket(&error))?);
        Ok(())
    }

    pub(super) fn set_timer(&mut self, shard: &mut Shard, timer: Timer, after: Duration) {
        let at = shard.now() + after;
        self.timers.set(shard, self.task, timer, at);
    }

    /// Takes events until none is left.
    fn take_events(&mut self, shard: &mut Shard) {
        while matches!(self.state, State::Rising | State::Live) {
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
            Event::LoginFailed(failure) => self.lose(shard, ConnectError::from(*failure)),
            Event::Completed { slot, ending } => self.completed(shard, slot, ending),
            Event::WindowOpened => self.send_waiting(shard),
            Event::Pong => {
                self.pinged.is_answered = true;
                self.outage.has_lived();
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

    fn lose_with(&mut self, shard: &mut Shard, kind: ConnectErrorKind, sentence: &str) {
        self.lose(shard, ConnectError::new(kind, sentence));
    }

    fn logged_in(&mut self, shard: &mut Shard) {
        if self.plan.target.is_some() {
            match Bringup::new(self.plan.lun) {
                Ok(bringup) => {
                    self.bringup = Some(bringup);
                    self.step(shard);
                }
                Err(error) => self.lose(shard, ConnectError::from(error)),
            }
            return;
        }
        let speak = self.connection.as_mut().and_then(Connection::speak);
        let asked = speak.is_some_and(|(machine, mut out)| machine.send_targets(&mut out));
        if !asked {
            let sentence = "the target takes no request in a discovery session";
            self.lose_with(shard, ConnectErrorKind::Protocol, sentence);
        }
    }

    /// The list of targets has come.
    fn listed(&mut self, shard: &mut Shard) {
        let machine = self.connection.as_ref().and_then(Connection::machine);
        match machine.map(|machine| machine.targets()) {
            Some(Ok(targets)) => self.outcome = Outcome::Ready(Found::Targets(targets)),
            Some(Err(error)) => {
                let sentence = format!("the list of targets is {error}");
                self.lose_with(shard, ConnectErrorKind::Protocol, &sentence);
            }
            None => {}
        }
    }

    /// A command was answered.
    fn completed(&mut self, shard: &mut Shard, slot: fabrix_proto::Slot, ending: TaskEnding) {
        let Some(connection) = &mut self.connection else {
            return;
        };
        let sense = connection
            .machine()
            .and_then(|machine| Sense::parse(machine.sense()));
        match connection.take(slot) {
            (Some(Carried::Own), data) => {
                connection.free(slot);
                let data = data.as_ref().map_or(&[][..], |buf| buf.bytes());
                let data = data.get(..ending.data_bytes as usize).unwrap_or(data);
                self.own_answer(shard, ending, sense, data);
            }
            (Some(Carried::Look), _) => {
                connection.free(slot);
                self.look_for_changes(sense);
                self.send_waiting(shard);
            }
            (Some(carried), data) => self.answered(shard, slot, carried, data, (ending, sense)),
            (None, _) => debug_assert!(false, "the machine completes only what was sent"),
        }
    }

    /// A command of the bring-up was answered.
    fn own_answer(
        &mut self,
        shard: &mut Shard,
        ending: TaskEnding,
        sense: Option<Sense>,
        data: &[u8],
    ) {
        if !ending.intact || !ending.delivered {
            let sentence =
                "data of the target does not match its digest, or it could not carry out a command";
            return self.lose_with(shard, ConnectErrorKind::Protocol, sentence);
        }
        self.unsettled |= sense.is_some_and(is_of_capacity);
        let Some(bringup) = &mut self.bringup else {
            return;
        };
        let answer = Answer {
            status: Status(ending.status),
            sense,
            data,
        };
        match bringup.answered(&answer, now(shard)) {
            Ok(()) => self.step(shard),
            Err(error) => self.lose(shard, ConnectError::from(error)),
        }
    }

    /// Takes the next step of the bring-up.
    fn step(&mut self, shard: &mut Shard) {
        let now = now(shard);
        let Some(step) = self.bringup.as_mut().map(|bringup| bringup.next(now)) else {
            return;
        };
        match step {
            Step::Send {
                lun,
                cdb,
                data_in_bytes: bytes,
            } => {
                let command = Command {
                    lun: Lun::flat(lun),
                    cdb,
                    transfer: Transfer::Read { bytes },
                };
                if !self.send_own(shard, &command, bytes) {
                    let sentence =
                        "no room for a command: the target takes none, or this shard has no memory";
                    self.lose_with(shard, ConnectErrorKind::Local, sentence);
                }
            }
            Step::Wait { until } if until.0 < u64::MAX => {
                let at = Nanos(until.0);
                self.timers.set(shard, self.task, Timer::Step, at);
            }
            Step::Wait { .. } => {}
            Step::Ready(facts) => self.up(shard, *facts),
        }
    }

    fn send_own(&mut self, shard: &mut Shard, command: &Command, bytes: u32) -> bool {
        let data = match bytes {
            0 => None,
            _ => match shard.take_buf(bytes as usize) {
                Some(buf) => Some(buf),
                None => return false,
            },
        };
        let Some(connection) = &mut self.connection else {
            return false;
        };
        let sent = connection.send(shard.now(), command, data, Carried::Own);
        sent.is_ok()
    }

    /// All is known of the disk.
    fn up(&mut self, shard: &mut Shard, facts: UnitFacts) {
        self.bringup = None;
        let expected = self.plan.expected.clone();
        let has_changed = expected
            .as_ref()
            .is_some_and(|seen| self.unsettled || seen.geometry.blocks != facts.blocks);
        if let Some(Err(error)) = expected.as_ref().map(|seen| seen.check(&facts)) {
            // A disk that became smaller is not used as it was; whoever watches may take it as it is.
            if expected.is_some_and(|seen| seen.again(&facts).is_ok()) {
                self.tell_path(PathEvent::Changed);
            }
            return self.lose(shard, error);
        }
        self.state = State::Live;
        self.timers.cancel(shard, Timer::Bringup);
        self.connected_again(shard);
        self.outcome = Outcome::Ready(Found::Unit(Arc::new(facts)));
        self.pinged = Pinged {
            sent_at: shard.now(),
            is_answered: true,
        };
        self.arm_tick(shard);
        if has_changed {
            self.tell_path(PathEvent::Changed);
        }
        self.send_waiting(shard);
    }

    /// Whoever has asked, the disk says once that its capacity has changed.
    pub(super) fn look_for_changes(&self, sense: Option<Sense>) {
        if sense.is_some_and(is_of_capacity) {
            self.tell_path(PathEvent::Changed);
        }
    }

    /// Asks a disk that nobody asks anything whether it has something to say: targets tell changes with an answer only.
    fn look(&mut self, shard: &mut Shard) {
        let (Some(seen), Some(connection)) = (&self.plan.expected, &mut self.connection) else {
            return;
        };
        if connection.is_busy() {
            return;
        }
        let command = Command {
            lun: Lun::flat(seen.facts.lun),
            cdb: build::test_unit_ready(),
            transfer: Transfer::None,
        };
        // Where there is no room, something else is asked.
        let _sent = connection.send(shard.now(), &command, None, Carried::Look);
    }

    /// How often the target is pinged; never when we want no keep-alive.
    fn ping_period(&self) -> Option<Duration> {
        let period = self.plan.options.keep_alive / 2;
        (period >= Duration::from_micros(500)).then_some(period)
    }

    fn arm_tick(&mut self, shard: &mut Shard) {
        let timeout = self.plan.options.io_timeout;
        let looks = (!timeout.is_zero()).then(|| (timeout / 4).max(SHORTEST_TICK));
        let ticks = self.ping_period().into_iter().chain(looks);
        let period = ticks.chain([LONGEST_TICK]).min().unwrap_or(LONGEST_TICK);
        self.set_timer(shard, Timer::Tick, period);
    }

    /// Time to look whether the target still answers.
    fn tick(&mut self, shard: &mut Shard) {
        if self.state != State::Live {
            return;
        }
        if let Some(sentence) = self.silence(shard.now()) {
            return self.lose_with(shard, ConnectErrorKind::Timeout, &sentence);
        }
        let since = shard.now().since(self.pinged.sent_at);
        let is_due = self.ping_period().is_some_and(|period| since >= period);
        if let Some((machine, mut out)) = self.connection.as_mut().and_then(Connection::speak) {
            machine.renew();
            if is_due && self.pinged.is_answered && machine.ping(&mut out) {
                self.pinged = Pinged {
                    sent_at: shard.now(),
                    is_answered: false,
                };
                shard.flush_later(self.task);
            }
        }
        if is_due && !self.leaving {
            self.look(shard);
            shard.flush_later(self.task);
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

    /// Bring-up has had its time: who has not answered what.
    fn too_slow(&mut self, shard: &mut Shard) {
        let most = self.plan.options.bringup_timeout;
        let is_connected = self
            .connection
            .as_mut()
            .is_some_and(|connection| connection.wire().is_connected());
        let sentence = match (&self.bringup, is_connected) {
            (_, false) => format!(
                "no connection within {most:?}: check the address, the network and firewalls in between"
            ),
            (None, true) => format!(
                "something accepts connections and did not let us log in within {most:?}: is it an iSCSI target?"
            ),
            (Some(_), true) => format!("the disk was not ready within {most:?}"),
        };
        self.lose_with(shard, ConnectErrorKind::Timeout, &sentence);
    }

    fn ended(&mut self, shard: &mut Shard, ended: &Ended) {
        let error = match ended {
            Ended::Closed => ConnectError::new(
                ConnectErrorKind::Closed,
                "the connection was closed by the target",
            ),
            Ended::Socket(errno) => ConnectError::socket("the connection", -errno),
            Ended::Violation(violation) => {
                let sentence = format!("the target broke the rules: {}", violation.sentence());
                ConnectError::new(ConnectErrorKind::Protocol, sentence)
            }
        };
        self.lose(shard, error);
    }

    /// Where the disk is, for people.
    pub(super) fn place(&self) -> SocketAddr {
        self.plan.portal
    }

    /// Its channel is gone, and the shard could not be told: the endings of the socket will.
    pub(super) fn forsake(&mut self) {
        self.forsaken = true;
        if let Some(connection) = &mut self.connection {
            connection.close();
        }
    }
}

impl probe::Session for Session {
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

impl Task for Session {
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
        let completed = connection.completed(self.task, ending, completion);
        if matches!(self.state, State::Falling | State::Over) {
            return self.fallen(shard, &completed);
        }
        if ending == Ending::Sent {
            self.finish_ended(shard);
        }
        match completed {
            Ok(()) => self.take_events(shard),
            Err(ended) => self.ended(shard, &ended),
        }
        shard.flush_later(self.task);
    }

    fn expired(&mut self, shard: &mut Shard, slot: u32) {
        let timer = self.timers.expired(slot);
        if self.forsaken {
            return self.over(shard);
        }
        match timer {
            Some(Timer::Tick) => self.tick(shard),
            Some(Timer::Reconnect) if self.state == State::Resting => self.rise(shard),
            Some(Timer::Bringup) if self.state == State::Rising => self.too_slow(shard),
            Some(Timer::Step) if self.state == State::Rising => {
                self.step(shard);
                shard.flush_later(self.task);
            }
            Some(Timer::Again) => {
                self.pausing = false;
                self.send_waiting(shard);
            }
            Some(Timer::Fail) => self.fail_waiting(shard),
            Some(Timer::Part) => self.part_now(shard),
            Some(Timer::Leave) => {
                let sentence = "the target wants us to leave, and does not end what is in progress";
                self.lose_with(shard, ConnectErrorKind::Closed, sentence);
            }
            Some(Timer::Reconnect | Timer::Bringup | Timer::Step) | None => {}
        }
    }

    fn flush(&mut self, shard: &mut Shard) {
        if !matches!(self.state, State::Rising | State::Live) {
            return;
        }
        let Some(connection) = &mut self.connection else {
            return;
        };
        if let Err(ended) = connection.wire().flush(shard) {
            self.ended(shard, &ended);
        }
    }

    fn message(&mut self, shard: &mut Shard, message: Box<dyn Any + Send>) {
        if message.is::<Forsaken>() {
            self.over(shard);
        }
    }
}

/// Whether a disk says that it has another size.
fn is_of_capacity(sense: Sense) -> bool {
    sense.code == AdditionalSense::CAPACITY_DATA_CHANGED
}

/// The time, as machines have it.
fn now(shard: &Shard) -> fabrix_proto::Nanos {
    fabrix_proto::Nanos(shard.now().0)
}

/// Commands in progress: as many as a queue is to have entries.
fn slots(options: &Options) -> u16 {
    options.queue_size.min(MOST_SLOTS)
}

/// The machine tells so many commands apart.
const MOST_SLOTS: u16 = 4096;
/// An ISID of the kind that is made of random bytes. Source: RFC 7143, section 11.12.5.
const ISID_RANDOM: u8 = 0x80;
/// Bytes of our challenge to a target.
const CHALLENGE_BYTES: usize = 16;
/// Requests without an answer are looked for no more often.
const SHORTEST_TICK: Duration = Duration::from_millis(1);
/// And no more seldom: pings of the target are answered for so long.
const LONGEST_TICK: Duration = Duration::from_secs(5);
