//! What a session connects to, who it says it is there, and what it expects to find.

use std::net::SocketAddr;
use std::sync::Arc;

use fabrix_proto::nvme::bringup::{BringupConfig, Purpose};
use fabrix_proto::nvme::nqn::Nqn;

use super::seen::Seen;
use crate::Options;

/// What a session connects to and expects there.
#[derive(Clone)]
pub(crate) struct Plan {
    pub(crate) address: SocketAddr,
    pub(crate) subsystem: Nqn,
    pub(crate) purpose: Purpose,
    pub(crate) options: Arc<Options>,
    /// Set once the disk is known: I/O queues are connected, and a controller that shows another
    /// disk is refused. Without it the controller is asked what it has, and that is all.
    pub(crate) expected: Option<Arc<Seen>>,
}

/// Who we say we are and what we want.
pub(crate) fn config(plan: &Plan) -> BringupConfig {
    BringupConfig {
        host: plan.options.host.clone(),
        host_id: plan.options.host_id,
        subsystem: plan.subsystem.clone(),
        purpose: plan.purpose,
        admin_queue_entries: ADMIN_ENTRIES,
        keep_alive_ms: u32::try_from(plan.options.keep_alive.as_millis()).unwrap_or(u32::MAX),
        disable_sq_flow_control: true,
    }
}

/// Entries of the admin queue, as Linux has it; its slots are one fewer.
const ADMIN_ENTRIES: u16 = 32;
pub(crate) const ADMIN_SLOTS: u16 = ADMIN_ENTRIES - 1;
