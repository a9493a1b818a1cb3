//! The end of an iSCSI connection: by a Logout, a drain, a violation, or its socket.
//!
//! A part of `connection`. The parts of a connection leave in this order: the last PDU, the socket,
//! the session, the task. The session leaves when its commands have ended at their disks or were
//! abandoned there. The task leaves when the kernel and the disks have given back everything. So a
//! disk that does not answer does not keep its initiator from logging in again.

use fabrix_rt::Shard;

use super::{Connection, Iscsi};
use crate::Notice;
use crate::iscsi::context::SessionCarrier;
use crate::iscsi::management::COLD_RESET;
use crate::lifecycle::Stage;

impl<C: SessionCarrier> Connection<C, Iscsi> {
    /// Answers a Logout when no command is in progress. Leaves after a cold reset, which ends all
    /// sessions.
    pub(super) fn leave_if_asked(&mut self, shard: &mut Shard) {
        let dismissed = self
            .protocol
            .session
            .as_ref()
            .is_some_and(|it| it.dismissed);
        if dismissed && self.lifecycle.stage < Stage::Parting {
            self.lifecycle.ends_well(COLD_RESET);
            return self.lifecycle.part(shard, &mut self.stream);
        }
        if !self.protocol.leaving
            || self.lifecycle.stage >= Stage::Parting
            || self.stream.endpoint().slots_in_use() > 0
        {
            return;
        }
        let (target, mut out) = self.stream.speak();
        target.answer_logout(&mut out);
        drop(out);
        self.lifecycle.part(shard, &mut self.stream);
    }

    /// Takes the session out of the state of its disks and out of the list of sessions, once.
    pub(super) fn leave_session(&mut self) {
        if let Some(mut session) = self.protocol.session.take() {
            session.leave();
        }
        if let Some(tsih) = self.protocol.tsih.take() {
            self.local.shared.sessions.leave(tsih);
            if self.accepted.unauthenticated_peer.is_none() {
                self.notice_end(tsih.get());
            }
        }
    }

    /// Tells the operator that a session has ended, and why.
    fn notice_end(&self, session: u16) {
        self.notice(&Notice::LoggedOut {
            initiator: self
                .protocol
                .initiator
                .as_deref()
                .unwrap_or_default()
                .to_owned(),
            session,
            peer: self.accepted.peer,
            end: self.lifecycle.end(),
        });
    }
}
