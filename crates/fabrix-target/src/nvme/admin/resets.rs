//! Cross-Controller Reset: a host ends a controller whose connections it has lost, over another
//! one.
//!
//! A part of `admin`. Every connection of the other controller gets an order to end, and keeps a
//! reference to the reset as long as its task exists. A task exists until the disks have ended all
//! of its requests, abandoned ones included. So the last reference goes when nothing of the
//! controller is at a disk, and only then the command is answered. The answer is thus always an
//! immediate reset: the log page of resets has no entry, and no event follows.
//!
//! A controller of another gateway is reset by the storage, which shuts that gateway out when it is
//! dead ([`Gateways::shut_out`](crate::Gateways::shut_out)). The command waits for that, for some
//! seconds, because the host often learns first that the gateway is dead.
//!
//! A disk that does not answer delays the answer without limit. The host then relies on its timers,
//! as without the command.
//!
//! Source: NVM Express Base Specification 2.3, "Cross-Controller Reset command"; TP8028.

use std::sync::Arc;
use std::time::Duration;

use fabrix_proto::nvme::instance::{
    CROSS_CONTROLLER_RESETS_MOST, ControllerInstance, IMMEDIATE_RESET_SUCCESSFUL,
};
use fabrix_proto::nvme::spec::{CompletionEntry, Status};
use fabrix_proto::{Claim, Settled};
use fabrix_rt::Nanos;

use super::Admin;
use crate::catalog::Elsewhere;
use crate::context::CommandContext;
use crate::nvme::context::Queue;
use crate::registry::{ConnectionAddress, ConnectionOrder, ResetError};

/// The reset of another controller.
pub(super) enum PendingReset {
    Here(ResetHere),
    /// A controller of another gateway, which is shut out until this time, or else may be alive.
    Elsewhere(u16, Nanos),
}

/// The reset of a controller of this target.
pub(super) struct ResetHere {
    /// Connections whose mailboxes had no room for the order.
    untold: Vec<ConnectionAddress>,
    /// Each connection that was told keeps a reference.
    hold: Arc<()>,
}

impl ResetHere {
    /// Orders the connections that were not told yet to end. True: all of them are gone.
    fn is_over(&mut self) -> bool {
        let order = ConnectionOrder::Reset(Arc::clone(&self.hold));
        self.untold
            .retain(|connection| connection.send(order.clone()).is_err());
        drop(order);
        // Exclusive access also makes visible what the connections did before their end.
        self.untold.is_empty() && Arc::get_mut(&mut self.hold).is_some()
    }
}

impl PendingReset {
    /// The answer, once there is one.
    fn answer(&mut self, context: &CommandContext<'_, impl Queue>) -> Option<CompletionEntry> {
        let is_over = match self {
            Self::Here(reset) => reset.is_over(),
            Self::Elsewhere(id, until) => {
                let catalog = context.local.announced();
                match catalog.desired.gateways.controller_elsewhere(*id) {
                    Elsewhere::ShutOut => true,
                    Elsewhere::MayBeShutOut if context.shard.now() < *until => false,
                    _ => return Some(CompletionEntry::new(Status::INVALID_FIELD, 0)),
                }
            }
        };
        is_over.then(|| CompletionEntry::new(Status::SUCCESS, IMMEDIATE_RESET_SUCCESSFUL))
    }
}

impl Admin {
    /// Notes the instance that has begun, if one has.
    pub(crate) fn begin_instance(&mut self, begun: Option<ControllerInstance>) {
        self.instance = begun.unwrap_or(self.instance);
    }

    /// Begins the reset of another controller of the host.
    pub(super) fn reset_other(
        &mut self,
        context: &mut CommandContext<'_, impl Queue>,
        claim: Claim,
        impacted: ControllerInstance,
    ) -> Settled {
        if self.resetting.len() >= usize::from(CROSS_CONTROLLER_RESETS_MOST) {
            return context.answer(claim, Status::CROSS_RESET_LIMIT_EXCEEDED);
        }
        let reset = match context.local.shared.registry.reset(self.id(), impacted) {
            Err(ResetError::InProgress) => {
                return context.answer(claim, Status::CROSS_RESET_IN_PROGRESS);
            }
            // Success would say that nothing of the controller is executed any more. It may be one
            // of another process that serves the same subsystem.
            Err(ResetError::Unknown) => {
                let until = context.shard.now() + SHUT_OUT_WITHIN;
                PendingReset::Elsewhere(impacted.controller_id, until)
            }
            Ok(untold) => PendingReset::Here(ResetHere {
                untold,
                hold: Arc::default(),
            }),
        };
        let kept = claim.keep_in(&mut self.resetting, reset);
        self.answer_resets(context);
        kept
    }

    /// Answers the commands whose resets are over.
    pub(super) fn answer_resets(&mut self, context: &mut CommandContext<'_, impl Queue>) {
        let mut at = 0;
        while let Some((_, reset)) = self.resetting.get_mut(at) {
            let Some(answer) = reset.answer(context) else {
                at += 1;
                continue;
            };
            let (claim, _) = self.resetting.remove(at);
            context.complete(claim, answer, 0);
        }
    }
}

/// Time in which a gateway that is dead is shut out.
const SHUT_OUT_WITHIN: Duration = Duration::from_secs(15);
