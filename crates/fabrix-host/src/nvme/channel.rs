//! A remote namespace as a disk.
//!
//! Keeps the properties that the namespace had when it was opened. Each channel has a controller of
//! its own, so shards share nothing. See `docs/design/host.md`.

use std::sync::Arc;
use std::time::Duration;

use fabrix_block::{Channel, Device, Geometry, Identity, OpenError};
use fabrix_proto::nvme::bringup::{Facts, Found, Purpose};
use fabrix_proto::nvme::timing::TimingPage;
use fabrix_rt::Shard;

use super::known_disk::KnownDisk;
use super::plan::Plan;
use crate::multipath::{Link, PathChannel, PathDisk, PathLocation, Way};
use crate::resolve::Subsystem;
use crate::{Address, ConnectError, sizes};

/// A disk over NVMe over Fabrics.
pub struct RemoteDisk {
    plan: Plan,
    disk: Arc<KnownDisk>,
    identity: Identity,
}

impl RemoteDisk {
    /// The disk that a session with `plan` has found. `facts` are its properties.
    pub(crate) fn new(plan: Plan, facts: &Facts, address: &Address) -> Result<Self, ConnectError> {
        let disk = Arc::new(KnownDisk::new(&plan.options, facts)?);
        let name = Address {
            subsystem: Some(plan.subsystem.as_str().to_owned()),
            nsid: Some(disk.nsid),
            ..address.clone()
        };
        let identity = disk.identity(&name.to_string(), &plan.subsystem, facts);
        let purpose = Purpose::Io {
            nsid: Some(disk.nsid),
            queues: plan.options.nr_io_queues,
        };
        let plan = Plan {
            purpose,
            expected: Some(Arc::clone(&disk)),
            ..plan
        };
        Ok(Self {
            plan,
            disk,
            identity,
        })
    }
}

impl RemoteDisk {
    /// Switches the timing of commands at the target on for `seconds` (zero: off), and reads the
    /// sums. `None`: the target does not support it.
    ///
    /// # Errors
    /// The target cannot be reached, or refuses this host.
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
        &self.disk.geometry
    }

    fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Starts to connect and does not wait. Requests wait in the channel until the session has
    /// connected.
    fn open(&self, shard: &mut Shard) -> Result<Box<dyn Channel>, OpenError> {
        Ok(self.plan.open(shard, None))
    }

    fn compares_and_writes(&self) -> bool {
        self.disk.compares_and_writes
    }

    /// Reads the size from the controller, and waits for the answer.
    fn resize(&self, bytes: Option<u64>) -> Result<Arc<dyn Device>, OpenError> {
        match bytes {
            Some(_) => Err(sizes::resize_elsewhere(&self.identity)),
            None => Ok(Arc::new(self.measure()?)),
        }
    }
}

impl PathDisk for RemoteDisk {
    fn open_path(&self, shard: &mut Shard, link: Link) -> Result<Box<dyn PathChannel>, OpenError> {
        Ok(self.plan.open(shard, Some(link.0)))
    }

    fn elsewhere(&self, way: &Way<'_>) -> Result<Arc<dyn PathDisk>, ConnectError> {
        let address = way.first_portal()?;
        let subsystem = match way.target {
            Some(name) => Subsystem::named(name, Vec::new())?.name,
            None => self.plan.subsystem.clone(),
        };
        let nsid = way.unit.unwrap_or(self.disk.nsid);
        let mut disk = (*self.disk).clone();
        disk.nsid = nsid;
        let disk = Arc::new(disk);
        let name = Address {
            transport: way.transport,
            host: way.host.to_owned(),
            port: way.port,
            subsystem: Some(subsystem.as_str().to_owned()),
            nsid: Some(nsid),
        };
        let plan = Plan {
            transport: way.transport,
            address,
            subsystem,
            purpose: Purpose::Io {
                nsid: Some(nsid),
                queues: way.options.nr_io_queues,
            },
            options: Arc::new(way.options.clone()),
            expected: Some(Arc::clone(&disk)),
        };
        let identity = Identity {
            name: name.to_string(),
            ..self.identity.clone()
        };
        Ok(Arc::new(Self {
            plan,
            disk,
            identity,
        }))
    }

    fn remeasured(&self) -> Result<Arc<dyn PathDisk>, OpenError> {
        Ok(Arc::new(self.measure()?))
    }

    fn sized(&self, blocks: u64) -> Arc<dyn PathDisk> {
        let mut disk = (*self.disk).clone();
        disk.geometry.blocks = blocks;
        Arc::new(self.of(disk))
    }

    fn patience(&self) -> Duration {
        self.plan.options.patience()
    }

    fn location(&self) -> PathLocation {
        PathLocation {
            scheme: self.plan.transport.scheme(),
            address: self.plan.address,
            from: self.plan.options.local,
            target: self.plan.subsystem.as_str().to_owned(),
            unit: self.disk.nsid,
        }
    }
}

impl RemoteDisk {
    /// The same disk with the size that the controller says now.
    fn measure(&self) -> Result<Self, OpenError> {
        let failed = |error: ConnectError| error.of_disk(&self.identity.name);
        let probe = Plan {
            expected: None,
            ..self.plan.clone()
        };
        let facts = probe.probe(self.plan.address).map_err(failed)?;
        let disk = self.disk.remeasured(&self.plan.options, &facts);
        Ok(self.of(disk.map_err(failed)?))
    }

    /// The same way to a disk of other properties.
    fn of(&self, disk: KnownDisk) -> Self {
        let disk = Arc::new(disk);
        let plan = Plan {
            expected: Some(Arc::clone(&disk)),
            ..self.plan.clone()
        };
        Self {
            plan,
            disk,
            identity: self.identity.clone(),
        }
    }
}
