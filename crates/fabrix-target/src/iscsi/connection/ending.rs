//! How a connection ends: by a logout, by a drain, by a violation, or because its socket does.
//!
//! A part of `connection`. It leaves in this order: a goodbye, the socket, the session when its
//! commands have ended at their disks or were abandoned there, and when the kernel and the disks
//! have given back what is theirs, the task. So a disk that does not answer does not keep its
//! initiator from logging in again.

use fabrix_proto::iscsi::pdu::AsyncEvent;
use fabrix_rt::Shard;
use fabrix_transport::Ended;

use super::Connection;
use crate::Notice;
use crate::iscsi::context::SessionCarrier;
use crate::iscsi::management::COLD_RESET;
use crate::lifecycle::{SHUTTING_DOWN, Stage};

impl<C: SessionCarrier> Connection<C> {
    /// Answers a logout when nothing is in progress any more; leaves when all sessions are to end.
    pub(super) fn leave_if_asked(&mut self, shard: &mut Shard) {
        let dismissed = self.session.as_ref().is_some_and(|it| it.dismissed);
        if dismissed && self.lifecycle.phase < Stage::Parting {
            self.lifecycle.ends_well(COLD_RESET);
            return self.lifecycle.part(shard, &mut self.stream);
        }
        if !self.leaving
            || self.lifecycle.phase >= Stage::Parting
            || self.stream.endpoint().slots_in_use() > 0
        {
            return;
        }
        let (target, mut out) = self.stream.speak();
        target.answer_logout(&mut out);
        drop(out);
        self.lifecycle.part(shard, &mut self.stream);
    }

    /// Nothing more comes from the stream.
    pub(super) fn ended(&mut self, shard: &mut Shard, ended: Ended) {
        self.lifecycle.ends_with_stream(&ended);
        match ended {
            Ended::Closed | Ended::Socket(_) => self.end(shard),
            Ended::Violation(violation) => {
                // The end of a session is told with its reason.
                if self.unauthenticated_peer.is_some() {
                    self.local.shared.notice(&Notice::Violation {
                        peer: self.ends.peer,
                        what: violation.to_string(),
                    });
                }
                self.lifecycle.part(shard, &mut self.stream);
            }
        }
    }

    /// Finishes what has begun, asks the initiator to leave, and closes when it has or its time is
    /// over.
    pub(super) fn drain(&mut self, shard: &mut Shard) {
        if self.lifecycle.phase != Stage::Open {
            return;
        }
        self.lifecycle.phase = Stage::Draining;
        self.lifecycle.ends_well(SHUTTING_DOWN);
        if self.session.is_some() {
            let within = self.local.shared.deadlines.parting.as_secs().max(1);
            let within_s = u16::try_from(within).unwrap_or(u16::MAX);
            let (target, mut out) = self.stream.speak();
            target.say(AsyncEvent::LogoutRequested { within_s }, &mut out);
        }
        self.lifecycle.await_parting(shard);
        shard.flush_later(self.lifecycle.task);
    }

    /// Whether what a draining connection waits for is not its initiator's part.
    pub(super) fn waits_for_others(&self) -> bool {
        let session = self.session.as_ref();
        session.is_some_and(|it| it.waits_for_others())
    }

    /// Closes; the task goes when the kernel and the disks have given back what is theirs.
    pub(super) fn end(&mut self, shard: &mut Shard) {
        if self.lifecycle.phase < Stage::Ending {
            self.lifecycle.phase = Stage::Ending;
            self.stream.close();
            if let Some(session) = &mut self.session {
                session.close();
            }
            self.lifecycle.await_disks(shard);
        }
        self.leave_when_quiet(shard);
    }

    /// Disks have had their time to end the commands of the session: it does not wait for them any
    /// longer.
    pub(super) fn abandon(&mut self, shard: &mut Shard) {
        if let Some(session) = &mut self.session {
            session.abandon_all(&self.local, &mut self.requests);
        }
        self.leave_when_quiet(shard);
    }

    pub(super) fn leave_when_quiet(&mut self, shard: &mut Shard) {
        let at_disk = self.session.as_ref().map_or(0, |it| it.commands.at_disk());
        if self.lifecycle.phase != Stage::Ending || !self.stream.is_quiet() || at_disk > 0 {
            return;
        }
        if let Some(mut session) = self.session.take() {
            session.leave();
        }
        if let Some(tsih) = self.tsih.take() {
            self.local.shared.sessions.leave(tsih);
            if self.unauthenticated_peer.is_none() {
                self.tell_end(tsih.get());
            }
        }
        if !self.requests.are_abandoned() {
            self.lifecycle.go(shard, &self.local);
        }
    }

    /// Tells the operator that a session has ended, and why.
    fn tell_end(&self, session: u16) {
        self.local.shared.notice(&Notice::LoggedOut {
            initiator: self.claim.as_deref().unwrap_or_default().to_owned(),
            session,
            peer: self.ends.peer,
            end: self.lifecycle.end(),
        });
    }
}
