//! Plan of a session: address, subsystem, and the disk that it expects.

use std::net::SocketAddr;
use std::sync::Arc;

use fabrix_proto::nvme::bringup::{BringupConfig, Purpose};
use fabrix_proto::nvme::nqn::Nqn;

use super::known_disk::KnownDisk;
use crate::{Options, Transport};

/// Target, disk and options of a session.
#[derive(Clone)]
pub(crate) struct Plan {
    pub(crate) transport: Transport,
    pub(crate) address: SocketAddr,
    pub(crate) subsystem: Nqn,
    pub(crate) purpose: Purpose,
    pub(crate) options: Arc<Options>,
    /// The disk, once it is known. The session then connects I/O queues and refuses a controller
    /// with another disk. Without it the session only reads what the controller has.
    pub(crate) expected: Option<Arc<KnownDisk>>,
}

/// Names of host and subsystem, and limits of the session.
pub(super) fn config(plan: &Plan) -> BringupConfig {
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

/// Entries of the admin queue, as in Linux. It has one slot fewer.
const ADMIN_ENTRIES: u16 = 32;
pub(crate) const ADMIN_SLOTS: u16 = ADMIN_ENTRIES - 1;
