//! Cross-Controller Reset: proves that a controller which another path has lost executes nothing
//! more.
//!
//! A part of `session`. The answer says so only with the bit of an immediate reset. A controller
//! that answers before the reset is complete proves nothing: the pool then waits for its timers.
//! Source: NVM Express Base Specification 2.3, "Cross-Controller Reset command"; TP8028.

use std::rc::Rc;

use fabrix_proto::nvme::instance::{ControllerInstance, is_reset_complete};
use fabrix_proto::nvme::nqn::Nqn;
use fabrix_proto::nvme::queue::HostTransfer;
use fabrix_proto::nvme::spec::{CompletionEntry, SubmissionEntry};
use fabrix_rt::{Shard, Token};

use super::queue::{Command, NvmeLink};
use super::session::Session;
use crate::multipath::link::{AssociationName, tell_of_proof};
use crate::reconnection::State;

/// The controller of an association.
struct Controller {
    subsystem: Nqn,
    instance: ControllerInstance,
}

impl<L: NvmeLink> Session<L> {
    /// The controller of the association, for sessions that are to reset it. None: the controller
    /// does not say which instance it is.
    pub(super) fn controller_name(&self) -> Option<AssociationName> {
        let facts = self.protocol.facts.as_ref()?;
        let instance = facts.controller.instance;
        let subsystem = self.plan.subsystem.clone();
        let name = Controller {
            subsystem,
            instance,
        };
        (instance.random != 0).then(|| AssociationName(Rc::new(name)))
    }

    /// Asks the controller to reset a lost one of the same subsystem. False: it cannot be asked
    /// now.
    pub(super) fn reset_other(
        &mut self,
        shard: &mut Shard,
        lost: &AssociationName,
        answer: Token,
    ) -> bool {
        let facts = self.protocol.facts.as_ref();
        let most = facts.map_or(0, |facts| facts.controller.cross_controller_resets);
        let is_ready = self.reconnection.state == State::Connected && !self.quiescing;
        let Some(lost) = lost.0.downcast_ref::<Controller>() else {
            return false;
        };
        if !is_ready || self.protocol.resets >= most || lost.subsystem != self.plan.subsystem {
            return false;
        }
        let mut entry = SubmissionEntry::cross_controller_reset(lost.instance);
        let (now, admin) = (shard.now(), &mut self.connections[0]);
        let command = Command::Reset(answer);
        let sent = admin.send(now, &mut entry, HostTransfer::None, None, command);
        if sent.is_some() {
            self.protocol.resets += 1;
            shard.flush_later(self.reconnection.task);
        }
        sent.is_some()
    }

    /// Processes the answer.
    pub(super) fn reset_answered(
        &mut self,
        shard: &mut Shard,
        answer: Token,
        entry: &CompletionEntry,
    ) {
        self.protocol.resets = self.protocol.resets.saturating_sub(1);
        tell_of_proof(shard, answer, is_reset_complete(entry));
    }
}
