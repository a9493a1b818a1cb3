//! A remote namespace as a disk.
//!
//! Knows what the namespace promised when it was first seen. Each channel has a controller of its
//! own, so shards share nothing; see `docs/design/host.md`.

use std::sync::Arc;

use fabrix_block::{Channel, Device, Geometry, Identity, OpenError, OpenErrorKind};
use fabrix_proto::nvme::bringup::{Facts, Found, Purpose};
use fabrix_proto::nvme::timing::TimingPage;
use fabrix_rt::Shard;

use super::plan::Plan;
use super::seen::Seen;
use crate::{Address, ConnectError};

/// A disk that another machine exports over NVMe/TCP.
pub struct RemoteDisk {
    plan: Plan,
    seen: Arc<Seen>,
    identity: Identity,
}

impl RemoteDisk {
    /// The disk that `facts` were learned about by following `plan`.
    pub(crate) fn new(plan: Plan, facts: &Facts, asked: &Address) -> Result<Self, ConnectError> {
        let seen = Arc::new(Seen::new(&plan.options, facts)?);
        let name = Address {
            subsystem: Some(plan.subsystem.as_str().to_owned()),
            nsid: Some(seen.nsid),
            ..asked.clone()
        };
        let identity = seen.identity(&name.to_string(), &plan.subsystem, facts);
        let purpose = Purpose::Io {
            nsid: Some(seen.nsid),
            queues: plan.options.nr_io_queues,
        };
        let plan = Plan {
            purpose,
            expected: Some(Arc::clone(&seen)),
            ..plan
        };
        Ok(Self {
            plan,
            seen,
            identity,
        })
    }
}

impl RemoteDisk {
    /// Has the target time its commands for so many seconds (zero: not any more), and reads what it
    /// has added up. `None`: it is not one that does so, and nothing was changed there.
    ///
    /// # Errors
    /// It cannot be reached, or does not let us in.
    pub fn time_commands(&self, seconds: u32) -> Result<Option<TimingPage>, ConnectError> {
        let plan = Plan {
            purpose: Purpose::Timing { seconds },
            expected: None,
            ..self.plan.clone()
        };
        match plan.probe(plan.address)?.found {
            Found::Timing(page) => Ok(page),
            Found::Io { .. } | Found::Queue { .. } | Found::Discovery(_) => Ok(None),
        }
    }
}

impl Device for RemoteDisk {
    fn geometry(&self) -> &Geometry {
        &self.seen.geometry
    }

    fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Begins to connect and does not wait for it: requests that come before the connection wait in
    /// the channel.
    fn open(&self, shard: &mut Shard) -> Result<Box<dyn Channel>, OpenError> {
        Ok(self.plan.open(shard))
    }

    fn compares_and_writes(&self) -> bool {
        self.seen.compares_and_writes
    }

    /// Asks the controller again, and waits for the answer.
    fn resize(&self, bytes: Option<u64>) -> Result<Arc<dyn Device>, OpenError> {
        let cannot = |error: ConnectError| error.of_disk(&self.identity.name);
        if bytes.is_some() {
            return Err(sized_elsewhere(&self.identity));
        }
        let asking = Plan {
            expected: None,
            ..self.plan.clone()
        };
        let facts = asking.probe(self.plan.address).map_err(cannot)?;
        let seen = self.seen.again(&self.plan.options, &facts);
        let seen = Arc::new(seen.map_err(cannot)?);
        let plan = Plan {
            expected: Some(Arc::clone(&seen)),
            ..self.plan.clone()
        };
        Ok(Arc::new(Self {
            plan,
            seen,
            identity: self.identity.clone(),
        }))
    }
}

/// What is said to who wants to give a remote disk a size.
pub(crate) fn sized_elsewhere(identity: &Identity) -> OpenError {
    let sentence = format!(
        "{}: its size is changed where it is served, and taken over here",
        identity.name
    );
    OpenError::new(OpenErrorKind::Unsupported, sentence)
}
