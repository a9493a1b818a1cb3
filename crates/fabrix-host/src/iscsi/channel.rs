//! A remote logical unit as a disk.
//!
//! Knows what the disk promised when it was first seen. Each channel has a session of its own, so
//! shards share nothing; see `docs/design/host.md`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

use fabrix_block::{Channel, Device, Geometry, Identity, OpenError};
use fabrix_proto::scsi::bringup::UnitFacts;
use fabrix_rt::Shard;

use super::Address;
use super::plan::{Found, Plan};
use super::seen::Seen;
use crate::nvme::sized_elsewhere;
use crate::{ConnectError, ConnectErrorKind};

/// A disk that another machine exports over iSCSI.
pub struct RemoteUnit {
    plan: Plan,
    seen: Arc<Seen>,
    identity: Identity,
    /// Each session has an ISID of its own, those of the disk in another size included.
    sessions: Arc<AtomicU16>,
}

impl RemoteUnit {
    /// The disk that `facts` were learned about by following `plan`.
    pub(super) fn new(
        plan: &Plan,
        facts: &UnitFacts,
        asked: &Address,
    ) -> Result<Self, ConnectError> {
        let seen = Arc::new(Seen::new(facts)?);
        let name = Address {
            lun: Some(facts.lun),
            ..asked.clone()
        };
        let place = format!("{}/{}", asked.target.as_deref().unwrap_or(""), facts.lun);
        let identity = seen.identity(&name.to_string(), &place);
        let plan = plan.expecting(&seen);
        Ok(Self {
            plan,
            seen,
            identity,
            sessions: Arc::new(AtomicU16::new(1)),
        })
    }
}

impl Device for RemoteUnit {
    fn geometry(&self) -> &Geometry {
        &self.seen.geometry
    }

    fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Begins to connect and does not wait for it: requests that come before the connection wait in
    /// the channel.
    fn open(&self, shard: &mut Shard) -> Result<Box<dyn Channel>, OpenError> {
        let number = self.sessions.fetch_add(1, Ordering::Relaxed);
        Ok(self.plan.session(number).open(shard))
    }

    fn compares_and_writes(&self) -> bool {
        self.seen.compare_and_write_blocks > 0
    }

    /// Asks the target again, and waits for the answer.
    fn resize(&self, bytes: Option<u64>) -> Result<Arc<dyn Device>, OpenError> {
        let cannot = |error: ConnectError| error.of_disk(&self.identity.name);
        if bytes.is_some() {
            return Err(sized_elsewhere(&self.identity));
        }
        let number = self.sessions.fetch_add(1, Ordering::Relaxed);
        let found = self.plan.session(number).ask().map_err(cannot)?;
        let Found::Unit(facts) = found else {
            let sentence = "the target has no disk there any more";
            let gone = ConnectError::new(ConnectErrorKind::Refused, sentence);
            return Err(cannot(gone));
        };
        let seen = Arc::new(self.seen.again(&facts).map_err(cannot)?);
        Ok(Arc::new(Self {
            plan: self.plan.expecting(&seen),
            seen,
            identity: self.identity.clone(),
            sessions: Arc::clone(&self.sessions),
        }))
    }
}
