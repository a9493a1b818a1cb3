//! A session with one target over one connection.
//!
//! Implements [`Protocol`] for iSCSI. The parts are: `bringup`, which follows the login, `access`
//! and `transfer`.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use fabrix_proto::Slot;
use fabrix_proto::iscsi::initiator::{Event, LoginFailure, TaskOutcome};
use fabrix_proto::iscsi::pdu::AsyncEvent;
use fabrix_proto::scsi::bringup::Bringup;
use fabrix_proto::scsi::sense::Sense;
use fabrix_rt::{Shard, TaskId};
use fabrix_transport::Ended;

use super::access::PortGroup;
use super::connection::{Connection, IscsiLink, OwnCommand};
use super::plan::{Found, Plan};
use crate::connection::InFlight;
use crate::reconnection::State;
use crate::resolve::on_the_link_of;
use crate::session::{self, Protocol, Types};
use crate::{ConnectError, ConnectErrorKind};

/// State of an iSCSI session.
pub(crate) struct Iscsi {
    /// None: the bring-up is complete, or the login is not.
    pub(super) bringup: Option<Bringup>,
    /// Portal of the connection: the plan's, or the one to which the target has redirected the
    /// login.
    portal: SocketAddr,
    /// Number of redirections of this login.
    redirections: u8,
    /// Portal to connect to when the connection to the redirecting portal has ended.
    redirected_to: Option<SocketAddr>,
    pub(super) port_group: PortGroup,
    /// The disk has reported a change of its size during the bring-up.
    pub(super) has_changed: bool,
    /// The target has said last that it has no such disk.
    pub(super) is_gone: bool,
    /// The user has been warned that another initiator has reserved the disk.
    pub(super) reservation_reported: bool,
}

/// A session with a target.
pub(crate) type Session<L> = session::Session<Iscsi, L>;

impl Types for Iscsi {
    type Plan = Plan;
    type Found = Found;
    type Command = OwnCommand;
}

impl<L: IscsiLink> Protocol<L> for Iscsi {
    const KEEP_ALIVE: &'static str = "a ping";
    const QUIESCE_TIMEOUT: &'static str =
        "the target wants us to leave, and does not end what is in progress";

    fn open(session: &mut Session<L>, shard: &mut Shard) -> Result<(), ConnectError> {
        session.protocol.has_changed = false;
        let setup = (session.plan.login()?, session.plan.slots());
        session.open_connection(shard, session.protocol.portal, setup)
    }

    fn event(session: &mut Session<L>, shard: &mut Shard, _: usize, event: Event) {
        let (kind, sentence) = match event {
            Event::LoggedIn => return session.logged_in(shard),
            Event::LoginFailed(failure) => return session.login_failed(shard, *failure),
            Event::Completed { slot, outcome } => return session.completed(shard, slot, outcome),
            Event::WindowOpened => return session.send_waiting(shard),
            Event::Pong => return session.keep_alive_answered(),
            Event::Text => return session.targets_received(shard),
            Event::Said(AsyncEvent::LogoutRequested { .. }) => return session.quiesce(shard),
            Event::Said(
                AsyncEvent::ConnectionDropped { .. } | AsyncEvent::SessionDropped { .. },
            ) => (ConnectErrorKind::Closed, "the target drops the connection"),
            Event::TasksEnded => (
                ConnectErrorKind::Closed,
                "the target has ended all commands in progress",
            ),
            Event::Rejected(reason) => {
                let sentence = format!("the target rejected a PDU of ours (reason {reason:02X}h)");
                return session.disconnect_with(shard, ConnectErrorKind::Protocol, sentence);
            }
            Event::LoggedOut => (
                ConnectErrorKind::Closed,
                "the target wanted us to log out and come again",
            ),
        };
        session.disconnect_with(shard, kind, sentence);
    }

    fn step(session: &mut Session<L>, shard: &mut Shard) {
        session.step(shard);
    }

    fn too_slow(session: &Session<L>, within: Duration) -> ConnectError {
        if !session.is_connected() {
            return ConnectError::no_connection(within);
        }
        let sentence = match &session.protocol.bringup {
            None => L::not_a_target(within),
            Some(_) => format!("the disk was not ready within {within:?}"),
        };
        ConnectError::new(ConnectErrorKind::Timeout, sentence)
    }

    fn error_prefix(_: usize) -> String {
        String::new()
    }

    fn end_error(session: &mut Session<L>, _: usize, ended: &Ended) -> ConnectError {
        match ended {
            Ended::Closed => ConnectError::new(ConnectErrorKind::Closed, session.close_reason()),
            Ended::Socket(errno) => ConnectError::socket("the connection", -errno),
            Ended::Rdma(failure) if !session.is_connected() => {
                ConnectError::rdma_not_connected(failure)
            }
            Ended::Rdma(failure) => ConnectError::rdma_lost("the connection", failure),
            Ended::Violation(violation) => {
                let sentence = format!("the target broke the rules: {}", violation.sentence());
                ConnectError::new(ConnectErrorKind::Protocol, sentence)
            }
        }
    }

    /// The user named another portal than the one that a redirected login failed at.
    fn locate(session: &Session<L>, error: ConnectError) -> ConnectError {
        match session.protocol.redirections {
            0 => error,
            _ => error.at(&format_args!("redirected to {}", session.protocol.portal)),
        }
    }

    fn tick_period(session: &Session<L>) -> Option<Duration> {
        let period = session.keep_alive_period().unwrap_or(LONGEST_TICK);
        Some(period.min(LONGEST_TICK))
    }

    /// The target pings an initiator that it does not hear of, and ends the session if there is no
    /// answer. Nothing says how long it waits.
    fn quiet_within(session: &Session<L>) -> Duration {
        TARGET_WAITS.max(session.keep_alive_timeout() * 2)
    }

    /// A login with the same ISID reinstates the session. Source: RFC 7143, section 6.3.5.
    const REPLACES: bool = true;

    fn keep_alive(session: &mut Session<L>, shard: &mut Shard) {
        let is_due = session.is_keep_alive_due(shard.now());
        let is_answered = session.keep_alive.is_answered;
        let connection = session.connections.first_mut();
        let is_sent = connection
            .and_then(Connection::speak)
            .is_some_and(|(initiator, mut out)| {
                initiator.renew();
                is_due && is_answered && initiator.ping(&mut out)
            });
        if is_sent {
            session.keep_alive_sent(shard);
        }
        if session.protocol.port_group.refuses() && !session.quiescing {
            session.read_states(shard);
        }
        if is_due && !session.quiescing {
            session.poll(shard);
            shard.flush_later(session.reconnection.task);
        }
    }

    fn log_out(session: &mut Session<L>) -> Option<usize> {
        let connection = session.connections.first_mut();
        let idle = connection.filter(|connection| connection.is_idle());
        let (initiator, mut out) = idle?.speak()?;
        initiator.logout(&mut out).then_some(0)
    }

    fn log_out_if_idle(session: &mut Session<L>, shard: &mut Shard) {
        if session.quiescing && Self::log_out(session).is_some() {
            shard.flush_later(session.reconnection.task);
        }
    }

    /// A target that redirects logins is asked again at the plan's portal after each loss.
    fn disconnected(session: &mut Session<L>) -> bool {
        let (own, state) = (&mut session.protocol, session.reconnection.state);
        own.bringup = None;
        own.port_group.disconnected();
        let redirected_to = own.redirected_to.take();
        let redirected_to = redirected_to.filter(|_| state != State::Closing);
        own.portal = redirected_to.unwrap_or(session.plan.portal);
        if redirected_to.is_none() {
            own.redirections = 0;
        }
        redirected_to.is_some()
    }
}

impl<L: IscsiLink> Session<L> {
    /// A session that carries out a plan.
    pub(super) fn from_plan(task: TaskId, plan: Plan) -> Self {
        let is_for_disk = plan.expected.is_some();
        let capacity = if is_for_disk { plan.slots() } else { 0 };
        let target = (plan.portal, is_for_disk);
        let options = Arc::clone(&plan.options);
        let protocol = Iscsi {
            bringup: None,
            portal: plan.portal,
            redirections: 0,
            redirected_to: None,
            port_group: PortGroup::default(),
            has_changed: false,
            is_gone: false,
            reservation_reported: false,
        };
        Self::new((task, capacity.into()), target, &options, (plan, protocol))
    }

    /// Whether the transport has connected.
    fn is_connected(&self) -> bool {
        let connection = self.connections.first();
        connection.is_some_and(Connection::is_connected)
    }

    /// The login has failed, or the target redirects it.
    fn login_failed(&mut self, shard: &mut Shard, failure: LoginFailure) {
        let LoginFailure::Moved {
            permanently,
            portal,
        } = &failure
        else {
            return self.disconnect(shard, ConnectError::from(failure));
        };
        if self.protocol.redirections == REDIRECTIONS_MAX {
            let sentence = format!(
                "the target has redirected the login {REDIRECTIONS_MAX} times, does it redirect in a circle?"
            );
            return self.disconnect_with(shard, ConnectErrorKind::Refused, sentence);
        }
        // Only addresses are followed: a lookup of a name would block this thread.
        let Ok(ip) = portal.address.parse() else {
            return self.disconnect(shard, ConnectError::from(failure));
        };
        let to = on_the_link_of(&[self.protocol.portal], SocketAddr::new(ip, portal.port));
        self.protocol.redirections += 1;
        if *permanently {
            self.plan.portal = to;
        }
        self.reconnection
            .report_info(&format!("the target redirects us to {to}"));
        self.protocol.redirected_to = Some(to);
        self.drain(shard, State::Draining);
    }

    /// Processes the answer of a command.
    fn completed(&mut self, shard: &mut Shard, slot: Slot, outcome: TaskOutcome) {
        let Some(connection) = self.connections.first_mut() else {
            return;
        };
        let initiator = connection.endpoint();
        let sense = initiator.and_then(|initiator| Sense::parse(initiator.sense()));
        match connection.take(slot) {
            (Some(InFlight::Other(OwnCommand::Bringup)), data) => {
                connection.free(slot);
                let data = data.as_ref().map_or(&[][..], |buf| buf.bytes());
                let data = data.get(..outcome.data_bytes as usize).unwrap_or(data);
                self.bringup_answered(shard, outcome, sense, data);
            }
            (Some(InFlight::Other(OwnCommand::Poll)), _) => {
                connection.free(slot);
                self.report_change(sense);
                self.read_states_after(shard, sense);
                self.send_waiting(shard);
            }
            (Some(InFlight::Other(OwnCommand::States)), data) => {
                connection.free(slot);
                let data = data.as_ref().map_or(&[][..], |buf| buf.bytes());
                let data = data.get(..outcome.data_bytes as usize).unwrap_or(data);
                self.report_change(sense);
                self.states_answered(shard, outcome, sense, data);
                self.send_waiting(shard);
            }
            (Some(content), data) => self.answered(shard, slot, content, data, (outcome, sense)),
            (None, _) => debug_assert!(false, "the machine completes only commands that were sent"),
        }
    }

    /// The error when the target has closed the connection. LIO closes it during the login, without
    /// a status, when it wants a secret and the initiator has none. Over RDMA its status is lost
    /// when it ends the connection before the status has left.
    fn close_reason(&self) -> &'static str {
        let initiator = self.connections.first().and_then(Connection::endpoint);
        let logs_in = self.reconnection.state == State::Connecting
            && initiator.is_some_and(|initiator| !initiator.is_ready());
        match (logs_in, self.plan.has_secret()) {
            (true, false) => {
                "the target closed the connection during the login: is its name right, and does it want a secret, \
                 USER%SECRET@HOST?"
            }
            (true, true) => {
                "the target closed the connection during the login: are its name, the user and the secret right?"
            }
            (false, _) => "the connection was closed by the target",
        }
    }
}

/// Redirections that one login follows.
const REDIRECTIONS_MAX: u8 = 4;
/// 5 s: a tick also renews the initiator's permission to answer pings of the target.
const LONGEST_TICK: Duration = Duration::from_secs(5);
/// 65 s: longest time for which a target keeps a session that it does not hear of, and may receive
/// old commands of it. Linux's target and ours ping after 15 s and wait 30 s for the answer. Ours
/// looks every 15 s.
const TARGET_WAITS: Duration = Duration::from_secs(65);
