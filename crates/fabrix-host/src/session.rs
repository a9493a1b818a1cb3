//! A session with a target, whichever protocol it speaks: its connections, its events and timers,
//! and the task of the shard that runs it.
//!
//! A session belongs to one shard and one channel, so nothing is locked. It connects, sends
//! requests, and connects again after a loss. The parts are: `requests` (submission and
//! completion), `keep_alive`, and `disconnect`. A protocol implements [`Protocol`].

mod disconnect;
mod keep_alive;
mod requests;

use std::any::Any;
use std::net::SocketAddr;
use std::sync::Arc;

use fabrix_proto::Nanos as ProtoNanos;
use fabrix_rt::{Completion, Nanos, Shard, Task, TaskId, Token};
use fabrix_transport::Ended;

pub(crate) use self::disconnect::LastWords;
pub(crate) use self::keep_alive::KeepAlive;
pub(crate) use self::requests::CommandSet;
use crate::connection::{Connection, OtherCommand};
use crate::link::{Link, OperationKind, Position, Route};
use crate::multipath::link::AssociationName;
use crate::reconnection::{Reconnection, State};
use crate::timers::Timer;
use crate::{ConnectError, ConnectErrorKind, Options};

/// Message to a session whose channel was dropped.
pub(crate) struct ChannelClosed;

/// Result of the first attempt to connect.
#[derive(Default)]
pub(crate) enum Outcome<Found> {
    #[default]
    Waiting,
    Ready(Found),
    Failed(ConnectError),
}

impl<Found> Outcome<Found> {
    /// Notes why the first attempt has failed.
    pub(crate) fn fail(&mut self, error: ConnectError) {
        if matches!(self, Self::Waiting) {
            *self = Self::Failed(error);
        }
    }
}

/// Types of a protocol, whatever its link.
pub(crate) trait Types: Sized + 'static {
    /// Target, disk and options of a session.
    type Plan: 'static;
    /// What a session learns about the target.
    type Found: 'static;
    /// Commands that only this protocol has.
    type Command: OtherCommand + 'static;
}

/// A protocol that a session speaks over links of type `L`.
///
/// The functions take the whole session: [`Session::protocol`] is the protocol's own state.
pub(crate) trait Protocol<L: Link>: CommandSet<L> {
    /// The command that proves that the target lives, as error messages name it.
    const KEEP_ALIVE: &'static str;
    /// The error when a quiescing target does not end the connection.
    const QUIESCE_TIMEOUT: &'static str;

    /// Opens the first connection.
    fn open(session: &mut Session<Self, L>, shard: &mut Shard) -> Result<(), ConnectError>;

    /// Processes an event of a connection.
    fn event(
        session: &mut Session<Self, L>,
        shard: &mut Shard,
        index: usize,
        event: <L::Stream as fabrix_transport::Connection>::Event,
    );

    /// Takes the next step of the bring-up, after a pause that the target needed.
    fn step(session: &mut Session<Self, L>, shard: &mut Shard);

    /// The error when the bring-up takes too long.
    fn too_slow(session: &Session<Self, L>, within: std::time::Duration) -> ConnectError;

    /// Prefix of errors about a connection that carries requests.
    fn error_prefix(index: usize) -> String;

    /// The error when the target has ended a connection.
    fn end_error(session: &mut Session<Self, L>, index: usize, ended: &Ended) -> ConnectError;

    /// Adds to an error where the session was redirected.
    fn locate(_: &Session<Self, L>, error: ConnectError) -> ConnectError {
        error
    }

    /// The longest time between two ticks. None: the keep-alive needs no tick.
    fn tick_period(session: &Session<Self, L>) -> Option<std::time::Duration>;

    /// Whether the target supports the keep-alive.
    fn has_keep_alive(_: &Session<Self, L>) -> bool {
        true
    }

    /// After the loss of a connection that the target does not hear of: the longest time until it
    /// executes nothing more of the association.
    fn quiet_within(session: &Session<Self, L>) -> std::time::Duration;

    /// Whether the target ends a lost association before it accepts the next one of this session.
    const REPLACES: bool;

    /// The name of the association, by which other sessions can end it. None: they cannot.
    fn association(_: &Session<Self, L>) -> Option<AssociationName> {
        None
    }

    /// Asks the target to end another association, see
    /// [`PathChannel::end_association`](crate::multipath::link::PathChannel::end_association).
    fn end_association(
        _: &mut Session<Self, L>,
        _: &mut Shard,
        _lost: &AssociationName,
        _answer: Token,
    ) -> bool {
        false
    }

    /// Looks at the keep-alive, which is due or not, at each tick.
    fn keep_alive(session: &mut Session<Self, L>, shard: &mut Shard);

    /// Starts a Logout on a connection of a session that ends. Yields the connection's index.
    fn log_out(_: &mut Session<Self, L>) -> Option<usize> {
        None
    }

    /// Leaves a quiescing target when no command is in progress.
    fn log_out_if_idle(_: &mut Session<Self, L>, _: &mut Shard) {}

    /// The session has no connection any more. True: it connects again at once.
    fn disconnected(session: &mut Session<Self, L>) -> bool;
}

/// A session with one target.
pub(crate) struct Session<P: Types, L> {
    pub(crate) reconnection: Reconnection,
    pub(crate) plan: P::Plan,
    /// State of the protocol.
    pub(crate) protocol: P,
    /// Empty while the session backs off. NVMe's admin queue comes first.
    pub(crate) connections: Vec<Connection<L, P::Command>>,
    /// Connection that sent the last request.
    pub(crate) last_used: usize,
    /// Number of the attempt to connect.
    attempt: u16,
    pub(crate) keep_alive: KeepAlive,
    /// Connection on which something is still said before it is closed.
    pub(crate) terminating: Option<(usize, LastWords)>,
    /// The target ends the session: commands in progress finish, new requests wait for the next
    /// connection.
    pub(crate) quiescing: bool,
    /// The target or this machine has no room: no command is sent until [`Timer::Resume`].
    paused: bool,
    /// The channel was dropped while the shard's mailbox was full.
    channel_closed: bool,
    pub(crate) outcome: Outcome<P::Found>,
}

impl<L: Link, P: Protocol<L>> Session<P, L> {
    /// A session that starts to connect with [`connect`](Self::connect). It carries at most
    /// `capacity` requests: none when it only asks.
    pub(crate) fn new(
        (task, capacity): (TaskId, usize),
        (address, reports): (SocketAddr, bool),
        options: &Arc<Options>,
        (plan, protocol): (P::Plan, P),
    ) -> Self {
        Self {
            reconnection: Reconnection::new(task, capacity, (address, reports), options),
            plan,
            protocol,
            connections: Vec::new(),
            last_used: 0,
            attempt: 0,
            keep_alive: KeepAlive::default(),
            terminating: None,
            quiescing: false,
            paused: false,
            channel_closed: false,
            outcome: Outcome::Waiting,
        }
    }

    /// Starts to connect.
    pub(crate) fn connect(&mut self, shard: &mut Shard) {
        self.reconnection.state = State::Connecting;
        (self.quiescing, self.paused) = (false, false);
        self.attempt = Position::next_attempt(self.attempt);
        let most = self.reconnection.options.bringup_timeout;
        self.reconnection.set_timer(shard, Timer::Bringup, most);
        self.reconnection.wait_for_connection(shard);
        if let Err(error) = P::open(self, shard) {
            self.disconnect(shard, error);
        }
    }

    /// Opens one more connection to `address`.
    pub(crate) fn open_connection(
        &mut self,
        shard: &mut Shard,
        address: SocketAddr,
        setup: (L::Setup, u16),
    ) -> Result<(), ConnectError> {
        let position = Position {
            attempt: self.attempt,
            index: self.connections.len(),
        };
        let route = Route {
            to: address,
            from: self.reconnection.options.local,
        };
        let opened = Connection::open(shard, self.reconnection.task, position, route, setup);
        self.connections.push(opened?);
        Ok(())
    }

    /// The bring-up is complete: requests are sent from now on.
    pub(crate) fn connected(&mut self, shard: &mut Shard, found: P::Found) {
        self.reconnection.connected(shard);
        self.outcome = Outcome::Ready(found);
        if let Some(path) = &self.reconnection.path {
            path.up(shard, P::REPLACES, P::association(self));
        }
        self.keep_alive = KeepAlive::begin(shard.now());
        self.arm_tick(shard);
    }

    /// Sets the timer of the next step of the bring-up.
    pub(crate) fn step_at(&mut self, shard: &mut Shard, at: ProtoNanos) {
        if at.0 < u64::MAX {
            let (task, timers) = (self.reconnection.task, &mut self.reconnection.timers);
            timers.set(shard, task, Timer::Step, Nanos(at.0));
        }
    }

    /// Processes the events of a connection until none is left.
    fn take_events(&mut self, shard: &mut Shard, index: usize) {
        while self.reconnection.is_up() {
            match self.connections[index].next() {
                Ok(Some(event)) => P::event(self, shard, index, event),
                Ok(None) => break,
                Err(ended) => return self.ended(shard, index, &ended),
            }
        }
    }

    /// A connection has ended.
    fn ended(&mut self, shard: &mut Shard, index: usize, ended: &Ended) {
        let error = P::end_error(self, index, ended);
        self.disconnect(shard, error);
    }
}

/// The time, in the unit of the protocol machines.
pub(crate) fn now(shard: &Shard) -> ProtoNanos {
    ProtoNanos(shard.now().0)
}

impl<L: Link, P: Protocol<L>> Task for Session<P, L> {
    fn completed(&mut self, shard: &mut Shard, slot: u32, completion: Completion) {
        if self.channel_closed {
            self.close(shard);
        }
        let (position, kind) = Position::locate(slot);
        let index = position.index;
        if position.attempt != self.attempt || index >= self.connections.len() {
            return; // an earlier attempt to connect
        }
        let task = self.reconnection.task;
        let completed = self.connections[index].completed(shard, task, (kind, completion));
        if !self.reconnection.is_up() {
            return self.drain_further(shard, index, completed.is_err());
        }
        if kind == OperationKind::Send {
            self.finish_answered(shard, index);
        }
        match completed {
            Ok(()) => self.take_events(shard, index),
            Err(ended) => self.ended(shard, index, &ended),
        }
        shard.flush_later(self.reconnection.task);
    }

    fn expired(&mut self, shard: &mut Shard, slot: u32) {
        let timer = self.reconnection.timers.expired(slot);
        if self.channel_closed {
            return self.close(shard);
        }
        let state = self.reconnection.state;
        match timer {
            Some(Timer::Tick) => self.tick(shard),
            Some(Timer::Reconnect) if state == State::BackingOff => self.connect(shard),
            Some(Timer::Bringup) if state == State::Connecting => {
                let error = P::too_slow(self, self.reconnection.options.bringup_timeout);
                self.disconnect(shard, error);
            }
            Some(Timer::Step) if state == State::Connecting => {
                P::step(self, shard);
                shard.flush_later(self.reconnection.task);
            }
            Some(Timer::Resume) => {
                self.paused = false;
                self.send_waiting(shard);
            }
            Some(Timer::FastIoFail) => self.reconnection.fail_waiting(shard),
            Some(Timer::Terminate) => self.terminate_overdue(shard),
            Some(Timer::Quiesce) => {
                self.disconnect_with(shard, ConnectErrorKind::Closed, P::QUIESCE_TIMEOUT);
            }
            Some(Timer::Reconnect | Timer::Bringup | Timer::Step) | None => {}
        }
    }

    fn flush(&mut self, shard: &mut Shard) {
        for index in 0..self.connections.len() {
            if !self.reconnection.is_up() {
                return;
            }
            if let Err(ended) = self.connections[index].flush(shard) {
                self.ended(shard, index, &ended);
            } else if let Some(trace) = &self.reconnection.options.trace {
                trace.sent(self.connections[index].take_sent());
            }
        }
    }

    fn stopping(&mut self, shard: &mut Shard) {
        self.close(shard);
    }

    fn message(&mut self, shard: &mut Shard, message: Box<dyn Any + Send>) {
        if message.is::<ChannelClosed>() {
            self.close(shard);
        }
    }
}
