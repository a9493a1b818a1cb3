//! The connections of initiators: iSCSI's part of a connection. Each connection is a session.
//!
//! A connection logs in (`login`), then has a session with commands or a discovery session, until
//! it ends (`ending`). `session` has the commands. An unauthenticated peer has a deadline, a small
//! buffer, and no disk.

mod ending;
mod login;

use std::num::NonZeroU16;

use fabrix_proto::Nanos;
use fabrix_proto::iscsi::keys::Wishes;
use fabrix_proto::iscsi::pdu::AsyncEvent;
use fabrix_proto::iscsi::target::{Event, TargetLimits};
use fabrix_rt::Shard;

use super::context::SessionCarrier;
use super::session::{Session, Work};
use crate::Notice;
use crate::command_table::CommandTable;
use crate::connection::{Connection, Protocol};
use crate::context::CommandContext;
use crate::disk::Stop;
use crate::lifecycle::Stage;
use crate::local::Local;
use crate::registry::ConnectionOrder;

/// iSCSI's part of a connection.
pub(super) struct Iscsi {
    /// What carries the connection. Initiators learn of the addresses of the same protocol.
    over: crate::Protocol,
    session: Option<Box<Session>>,
    /// Name that the initiator gives itself, for the log.
    initiator: Option<Box<str>>,
    /// The session's number, from the moment the login may succeed.
    tsih: Option<NonZeroU16>,
    /// True after a Logout request, which is answered when no command is in progress.
    leaving: bool,
}

impl Iscsi {
    /// A connection that was accepted at an address of this protocol.
    pub(super) fn new(over: crate::Protocol) -> Self {
        Self {
            over,
            session: None,
            initiator: None,
            tsih: None,
            leaving: false,
        }
    }
}

impl<C: SessionCarrier> Connection<C, Iscsi> {
    /// Handles the events of commands.
    fn session_event(&mut self, shard: &mut Shard, event: Event) {
        let draining = self.lifecycle.stage == Stage::Draining;
        let Some((session, mut context)) = self.at_work(shard) else {
            return debug_assert!(false, "only sessions have commands");
        };
        let context = &mut context;
        match event {
            Event::Command { claim, .. } if draining => drop(session.refuse(context, claim)),
            Event::Command {
                claim,
                cdb,
                lun,
                transfer,
                intact,
                ..
            } => drop(session.command(context, claim, (&cdb, lun), transfer, intact)),
            Event::Fetched { slot, intact } => session.fetched(context, slot, intact),
            Event::Released { slot } => {
                session.released(context, slot);
                self.leave_if_asked(shard);
            }
            Event::TaskManagement {
                id,
                function,
                lun,
                referenced,
            } => {
                session.manage(context, id, (function, lun), referenced);
                self.leave_if_asked(shard);
            }
            _ => {}
        }
    }

    /// The session, and the context of its commands.
    fn at_work<'a>(
        &'a mut self,
        shard: &'a mut Shard,
    ) -> Option<(&'a mut Session, CommandContext<'a, C>)> {
        let (iscsi, context) = self.work(shard);
        Some((iscsi.session.as_deref_mut()?, context))
    }

    /// Sets the deadline of the machine. A connection that ends has another deadline.
    fn watch(&mut self, shard: &mut Shard) {
        if self.lifecycle.stage == Stage::Open {
            let at = self.stream.endpoint().deadline();
            self.lifecycle.set_deadline(shard, fabrix_rt::Nanos(at.0));
        }
    }
}

impl<C: SessionCarrier> Protocol<C> for Iscsi {
    type Commands = Session;

    fn begin(connection: &mut Connection<C, Self>, shard: &mut Shard) {
        connection.watch(shard);
    }

    fn event(connection: &mut Connection<C, Self>, shard: &mut Shard, event: Event) {
        match event {
            Event::Authorize => connection.authorize(shard),
            Event::Proved => connection.enter(shard),
            Event::LoginFailed(refusal) => {
                connection.notice(&Notice::Refused {
                    peer: connection.accepted.peer,
                    who: connection.protocol.initiator.as_deref().map(str::to_owned),
                    why: refusal.sentence.to_string(),
                });
                connection.lifecycle.part(shard, &mut connection.stream);
            }
            Event::LoggedIn => connection.logged_in(shard),
            Event::Silent => {
                let lifecycle = &mut connection.lifecycle;
                lifecycle.ends_because("it did not answer a ping (NOP-In)");
                connection.end(shard);
            }
            Event::SendTargets(scope) => connection.name_targets(&scope),
            Event::Logout(_) => {
                connection.protocol.leaving = true;
                connection.lifecycle.ends_well("it logged out");
                if let Some((session, mut context)) = connection.at_work(shard) {
                    session.abort_all(&mut context);
                }
                connection.leave_if_asked(shard);
            }
            event => connection.session_event(shard, event),
        }
    }

    fn order(connection: &mut Connection<C, Self>, shard: &mut Shard, order: ConnectionOrder) {
        match (order, &mut connection.protocol.session) {
            (ConnectionOrder::Served, _) => connection.serve(shard),
            (ConnectionOrder::AwaitRefused(done), Some(session)) => session.await_refused(done),
            _ => {}
        }
    }

    /// The machine's time has come: a login took too long, or the initiator needs a ping.
    fn overdue(connection: &mut Connection<C, Self>, shard: &mut Shard) {
        let now = Nanos(shard.now().0);
        let (target, mut out) = connection.stream.speak();
        let event = target.tick(now, &mut out);
        drop(out);
        if let Some(event) = event {
            Self::event(connection, shard, event);
        }
        connection.watch(shard);
        shard.flush_later(connection.lifecycle.task);
    }

    /// A login that waits for an older session to end tries again.
    fn expired(connection: &mut Connection<C, Self>, shard: &mut Shard) {
        if connection.lifecycle.stage == Stage::Open && connection.protocol.tsih.is_none() {
            connection.enter(shard);
            shard.flush_later(connection.lifecycle.task);
        }
    }

    fn violated(connection: &mut Connection<C, Self>, _shard: &mut Shard, what: String) {
        // The operator learns of a session's violation with the end of the session.
        if connection.accepted.unauthenticated_peer.is_some() {
            let peer = connection.accepted.peer;
            connection.notice(&Notice::Violation { peer, what });
        }
    }

    /// Asks the initiator to log out.
    fn drain(connection: &mut Connection<C, Self>, _shard: &mut Shard) {
        if connection.protocol.session.is_some() {
            let within = connection.local.shared.deadlines.parting.as_secs().max(1);
            let within_s = u16::try_from(within).unwrap_or(u16::MAX);
            let (target, mut out) = connection.stream.speak();
            target.say(AsyncEvent::LogoutRequested { within_s }, &mut out);
        }
    }

    fn commands_ended(connection: &mut Connection<C, Self>, shard: &mut Shard) {
        if let Some(session) = &mut connection.protocol.session {
            session.tell_drained();
        }
        connection.leave_if_asked(shard);
    }

    fn flushed(connection: &mut Connection<C, Self>) {
        if connection.lifecycle.stage == Stage::Parting && connection.stream.is_drained() {
            connection.stream.finish();
            connection.lifecycle.stage = Stage::Parted;
        }
    }

    fn leave(connection: &mut Connection<C, Self>, _shard: &mut Shard) -> bool {
        connection.leave_session();
        true
    }

    fn commands(&mut self) -> Option<&mut Session> {
        self.session.as_deref_mut()
    }

    fn table(&self) -> Option<&CommandTable<Work>> {
        self.session.as_ref().map(|session| &session.commands)
    }

    fn stop(&mut self, context: &mut CommandContext<'_, C>, stop: Stop) {
        if let Some(session) = &mut self.session {
            session.stop(context, stop);
        }
    }

    fn run_pending_changes(&mut self, context: &mut CommandContext<'_, C>) {
        if let Some(session) = &mut self.session {
            session.run_pending_changes(context);
        }
    }

    fn has_pending_changes(&self) -> bool {
        let session = self.session.as_ref();
        session.is_some_and(|session| session.has_pending_changes())
    }

    /// A session ends with its logout.
    fn is_busy(&self, _carrier: &C) -> bool {
        self.session.is_some()
    }
}

/// The limits of a connection's machine.
pub(super) fn limits(local: &Local, wishes: Wishes) -> TargetLimits {
    let login = local.shared.deadlines.connect.as_millis();
    TargetLimits {
        max_write_bytes: WRITE_BYTES_MAX,
        max_inline_bytes: INLINE_BYTES_MAX,
        wishes,
        login_ms: u64::try_from(login).unwrap_or(u64::MAX),
        ..TargetLimits::default()
    }
}

/// Data of one write: twice the longest transfer, because COMPARE AND WRITE has two halves.
const WRITE_BYTES_MAX: u32 = 2 << 20;
/// Writes that came whole and are not longer are handed out where they were received.
const INLINE_BYTES_MAX: u32 = 8 << 10;
