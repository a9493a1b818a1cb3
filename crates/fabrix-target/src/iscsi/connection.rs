//! One connection of an initiator, from accept to the last byte; it is a session of its own.
//!
//! Knows the lifecycle of a connection: a login (`login`), then a session with commands or a
//! discovery session, then ending (`ending`). What commands do is in `session`. An unknown peer has
//! a deadline, a small buffer, and no disk.

mod ending;
mod login;

use std::any::Any;
use std::cell::RefCell;
use std::net::SocketAddr;
use std::num::NonZeroU16;
use std::rc::Rc;

use fabrix_proto::Nanos;
use fabrix_proto::iscsi::target::Event;
use fabrix_rt::{Completion, Shard, Task, TaskId};

use super::context::SessionCarrier;
use super::session::Session;
use crate::Notice;
use crate::command_table::Waiting;
use crate::context::CommandContext;
use crate::disk::Stop;
use crate::lifecycle::{EVENTS_AT_ONCE, Lifecycle, OWN_SLOTS, PENDING_CHANGES, RETRY, Stage};
use crate::local::Local;
use crate::registry::ConnectionOrder;
use crate::requests::{DISK_SLOTS, Requests};
use crate::unauthenticated_peers::UnauthenticatedPeer;

/// The connection's timer of a login that waits for an older session to end.
const ENTER: u32 = OWN_SLOTS;
/// What a transport knows of a connection that was accepted.
pub(super) struct Ends {
    /// Address of the initiator.
    pub(super) peer: SocketAddr,
    /// Address of ours to which the initiator has connected, if the system tells it.
    pub(super) address: Option<SocketAddr>,
}

/// The task of one connection.
pub(super) struct Connection<C> {
    lifecycle: Lifecycle,
    stream: C,
    local: Rc<Local>,
    session: Option<Box<Session>>,
    requests: Requests,
    /// Who it says it is, for the log.
    claim: Option<Box<str>>,
    /// The session's number, from the moment the login may succeed.
    tsih: Option<NonZeroU16>,
    ends: Ends,
    /// There until it has said who it is.
    unauthenticated_peer: Option<UnauthenticatedPeer>,
    leaving: bool,
    /// Events may be waiting in the stream that were not taken yet.
    has_more: bool,
}

impl<C: SessionCarrier> Connection<C> {
    /// Begins the lifecycle of an accepted connection, as `task`.
    pub(super) fn begin(
        shard: &mut Shard,
        task: TaskId,
        stream: C,
        ends: Ends,
        unauthenticated_peer: UnauthenticatedPeer,
        local: &Rc<Local>,
    ) {
        let connection = Rc::new(RefCell::new(Self {
            lifecycle: Lifecycle::new(task, local),
            stream,
            local: Rc::clone(local),
            session: None,
            requests: Requests::default(),
            claim: None,
            tsih: None,
            ends,
            unauthenticated_peer: Some(unauthenticated_peer),
            leaving: false,
            has_more: false,
        }));
        local.joined(task);
        shard.install(task, Rc::clone(&connection) as Rc<RefCell<dyn Task>>);
        let mut connection = connection.borrow_mut();
        connection.watch(shard);
        connection.flush(shard);
    }

    /// Takes events until none is left, the peer does not read its answers, or others should have
    /// their turn.
    fn take_events(&mut self, shard: &mut Shard) {
        self.has_more = false;
        for _ in 0..EVENTS_AT_ONCE {
            if self.lifecycle.phase >= Stage::Parting {
                return;
            }
            if self.stream.backlogged() {
                break;
            }
            match self.stream.next() {
                Ok(Some(event)) => self.event(shard, event),
                Ok(None) => return,
                Err(ended) => return self.ended(shard, ended),
            }
        }
        self.has_more = true;
    }

    fn event(&mut self, shard: &mut Shard, event: Event) {
        match event {
            Event::Authorize => self.authorize(shard),
            Event::Proved => self.enter(shard),
            Event::LoginFailed(refusal) => {
                self.local.shared.notice(&Notice::Refused {
                    peer: self.ends.peer,
                    who: self.claim.as_deref().map(str::to_owned),
                    why: refusal.sentence.to_string(),
                });
                self.lifecycle.part(shard, &mut self.stream);
            }
            Event::LoggedIn => self.logged_in(shard),
            Event::Silent => {
                self.lifecycle
                    .ends_because("it did not answer a ping (NOP-In)");
                self.end(shard);
            }
            Event::SendTargets(scope) => self.name_targets(&scope),
            Event::Logout(_) => {
                self.leaving = true;
                self.lifecycle.ends_well("it logged out");
                if let Some((session, mut context)) = self.at_work(shard) {
                    session.abort_all(&mut context);
                }
                self.leave_if_asked(shard);
            }
            event => self.session_event(shard, event),
        }
    }

    /// What concerns commands.
    fn session_event(&mut self, shard: &mut Shard, event: Event) {
        let draining = self.lifecycle.phase == Stage::Draining;
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

    /// The session, and what it works with.
    fn at_work<'a>(
        &'a mut self,
        shard: &'a mut Shard,
    ) -> Option<(&'a mut Session, CommandContext<'a, C>)> {
        let session = self.session.as_deref_mut()?;
        let context = CommandContext {
            shard,
            stream: &mut self.stream,
            local: &self.local,
            task: self.lifecycle.task,
            requests: &mut self.requests,
        };
        Some((session, context))
    }

    /// Sets the deadline that the machine asks for; one that is ending has another.
    fn watch(&mut self, shard: &mut Shard) {
        if self.lifecycle.phase == Stage::Open {
            let at = self.stream.endpoint().deadline();
            self.lifecycle.set_deadline(shard, fabrix_rt::Nanos(at.0));
        }
    }

    fn disk_answered(&mut self, shard: &mut Shard, number: u32, completion: Completion) {
        let Some(slot) = self.requests.ended(number) else {
            return;
        };
        if let Some((session, mut context)) = self.at_work(shard) {
            session.disk_answered(&mut context, slot, completion);
        }
        if self.lifecycle.phase == Stage::Draining {
            // The initiator's part, to read the answer, begins only now.
            self.lifecycle.await_parting(shard);
        }
        self.leave_if_asked(shard);
    }

    /// Tries again what a busy disk refused, unless nobody waits for it any more.
    fn retry(&mut self, shard: &mut Shard) {
        if self.lifecycle.phase >= Stage::Parting {
            return;
        }
        if let Some((session, mut context)) = self.at_work(shard) {
            session.retry(&mut context);
        }
        shard.flush_later(self.lifecycle.task);
    }

    /// Goes on with what pauses, unless nobody waits for it any more.
    fn go_on(&mut self, shard: &mut Shard) {
        if self.lifecycle.phase >= Stage::Parting {
            return;
        }
        if let Some((session, mut context)) = self.at_work(shard) {
            session.go_on(&mut context);
        }
    }

    /// Looks at what takes more than one turn, unless nobody waits for it any more.
    fn run_pending_changes(&mut self, shard: &mut Shard) {
        if self.lifecycle.phase >= Stage::Parting {
            return;
        }
        if let Some((session, mut context)) = self.at_work(shard) {
            session.run_pending_changes(&mut context);
        }
        self.leave_if_asked(shard);
        shard.flush_later(self.lifecycle.task);
    }

    /// Another connection wants commands of this one to end.
    fn stop(&mut self, shard: &mut Shard, stop: Stop) {
        if let Some((session, mut context)) = self.at_work(shard) {
            session.stop(&mut context, stop);
        }
        self.leave_if_asked(shard);
        if self.lifecycle.phase < Stage::Ending {
            shard.flush_later(self.lifecycle.task);
        }
    }

    /// The machine's time has come: a login took too long, or an initiator is to be pinged.
    fn tick(&mut self, shard: &mut Shard) {
        let now = Nanos(shard.now().0);
        let (target, mut out) = self.stream.speak();
        let event = target.tick(now, &mut out);
        drop(out);
        if let Some(event) = event {
            self.event(shard, event);
        }
        self.watch(shard);
        shard.flush_later(self.lifecycle.task);
    }
}

impl<C: SessionCarrier> Task for Connection<C> {
    fn completed(&mut self, shard: &mut Shard, slot: u32, completion: Completion) {
        let outcome = if slot < DISK_SLOTS {
            self.stream.completed(slot, completion)
        } else {
            self.disk_answered(shard, slot, completion);
            Ok(())
        };
        match outcome {
            Ok(()) if self.has_more => {}
            Ok(()) => self.take_events(shard),
            Err(ended) => {
                self.lifecycle.ends_with_stream(&ended);
                self.end(shard);
            }
        }
        if self.lifecycle.phase >= Stage::Ending {
            self.leave_when_quiet(shard);
        } else {
            shard.flush_later(self.lifecycle.task);
        }
    }

    fn expired(&mut self, shard: &mut Shard, slot: u32) {
        self.lifecycle.passed(slot);
        match slot {
            RETRY => self.retry(shard),
            PENDING_CHANGES => self.run_pending_changes(shard),
            ENTER if self.lifecycle.phase == Stage::Open && self.tsih.is_none() => {
                self.enter(shard);
                shard.flush_later(self.lifecycle.task);
            }
            ENTER => {}
            _ => match self.lifecycle.phase {
                Stage::Open => self.tick(shard),
                Stage::Draining if self.waits_for_others() => self.lifecycle.await_parting(shard),
                Stage::Ending => self.abandon(shard),
                _ => self.end(shard),
            },
        }
    }

    fn flush(&mut self, shard: &mut Shard) {
        if self.has_more {
            self.take_events(shard);
        }
        if self.lifecycle.goes_on() {
            self.go_on(shard);
        }
        if self.lifecycle.phase >= Stage::Ending {
            return;
        }
        if let Err(ended) = self.stream.flush(shard) {
            self.lifecycle.ends_with_stream(&ended);
            return self.end(shard);
        }
        if self.has_more && !self.stream.backlogged() {
            shard.flush_later(self.lifecycle.task);
        }
        if self.lifecycle.phase == Stage::Parting && self.stream.is_drained() {
            self.stream.finish();
            self.lifecycle.phase = Stage::Parted;
        }
        let is_paused = self
            .session
            .as_ref()
            .is_some_and(|it| it.commands.is_paused());
        if is_paused && self.lifecycle.phase < Stage::Parting {
            self.lifecycle.go_on_next_turn(shard);
        }
        if self
            .session
            .as_ref()
            .is_some_and(|it| it.commands.is_stalled())
        {
            self.lifecycle.retry_soon(shard);
        }
        if self
            .session
            .as_ref()
            .is_some_and(|it| it.has_pending_changes())
        {
            self.lifecycle.look_again_soon(shard);
        }
        // A session ends with its logout.
        if self.lifecycle.phase == Stage::Draining
            && self.session.is_none()
            && self.stream.is_drained()
        {
            self.end(shard);
        }
    }

    fn message(&mut self, shard: &mut Shard, message: Box<dyn Any + Send>) {
        let message = match message.downcast::<Stop>() {
            Ok(stop) => return self.stop(shard, *stop),
            Err(other) => other,
        };
        match message.downcast_ref() {
            Some(ConnectionOrder::Drain) => self.drain(shard),
            Some(ConnectionOrder::Close(why)) => {
                self.lifecycle.ends_because(*why);
                self.end(shard);
            }
            Some(ConnectionOrder::Served) => self.serve(shard),
            Some(
                ConnectionOrder::Quiesced | ConnectionOrder::Announced | ConnectionOrder::Noticed,
            ) => {}
            None => debug_assert!(false, "connections are told these things only"),
        }
    }
}
