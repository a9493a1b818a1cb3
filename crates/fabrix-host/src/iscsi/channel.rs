//! A remote logical unit as a disk.
//!
//! Keeps the properties that the disk had when it was opened. Each channel has its own session, so
//! shards share nothing. See `docs/design/host.md`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use fabrix_block::{Channel, Device, Geometry, Identity, OpenError};
use fabrix_proto::scsi::bringup::UnitFacts;
use fabrix_rt::Shard;

use super::Address;
use super::known_disk::KnownDisk;
use super::plan::{Found, Plan};
use crate::multipath::{Link, PathChannel, PathDisk, PathLocation, Way};
use crate::{ConnectError, ConnectErrorKind, sizes};

/// A disk over iSCSI.
pub struct RemoteUnit {
    plan: Plan,
    disk: Arc<KnownDisk>,
    identity: Identity,
    /// Number of the next session. It makes the ISID unique, also after a change of the size.
    sessions: Arc<AtomicU16>,
}

impl RemoteUnit {
    /// The disk that a session with `plan` has found. `facts` are its properties.
    pub(super) fn new(
        plan: &Plan,
        facts: &UnitFacts,
        address: &Address,
    ) -> Result<Self, ConnectError> {
        let disk = Arc::new(KnownDisk::new(facts)?);
        let name = Address {
            lun: Some(facts.lun),
            ..address.clone()
        };
        let location = format!("{}/{}", address.target.as_deref().unwrap_or(""), facts.lun);
        let identity = disk.identity(&name.to_string(), &location);
        let plan = plan.expecting(&disk);
        Ok(Self {
            plan,
            disk,
            identity,
            sessions: Arc::new(AtomicU16::new(1)),
        })
    }
}

impl Device for RemoteUnit {
    fn geometry(&self) -> &Geometry {
        &self.disk.geometry
    }

    fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Starts to connect and does not wait. Requests wait in the channel until the session has
    /// connected.
    fn open(&self, shard: &mut Shard) -> Result<Box<dyn Channel>, OpenError> {
        let number = self.sessions.fetch_add(1, Ordering::Relaxed);
        Ok(self.plan.session(number).open(shard, None))
    }

    fn compares_and_writes(&self) -> bool {
        self.disk.compare_and_write_blocks > 0
    }

    /// Reads the size from the target, and waits for the answer.
    fn resize(&self, bytes: Option<u64>) -> Result<Arc<dyn Device>, OpenError> {
        match bytes {
            Some(_) => Err(sizes::resize_elsewhere(&self.identity)),
            None => Ok(Arc::new(self.measure()?)),
        }
    }
}

impl PathDisk for RemoteUnit {
    fn open_path(&self, shard: &mut Shard, link: Link) -> Result<Box<dyn PathChannel>, OpenError> {
        let number = self.sessions.fetch_add(1, Ordering::Relaxed);
        Ok(self.plan.session(number).open(shard, Some(link.0)))
    }

    fn elsewhere(&self, way: &Way<'_>) -> Result<Arc<dyn PathDisk>, ConnectError> {
        let portal = way.first_portal()?;
        let lun = way.unit.and_then(|unit| u16::try_from(unit).ok());
        let address = Address {
            transport: way.transport,
            host: way.host.to_owned(),
            port: way.port,
            target: way
                .target
                .or(self.plan.target.as_deref())
                .map(str::to_owned),
            lun: lun.or(self.plan.lun),
        };
        let initiator = way.initiator.unwrap_or(&self.plan.initiator);
        let plan = Plan::new(&address, portal, initiator, way.options)?;
        let mut plan = plan.expecting(&self.disk);
        plan.lun = address.lun;
        let identity = Identity {
            name: address.to_string(),
            ..self.identity.clone()
        };
        Ok(Arc::new(Self {
            plan,
            disk: Arc::clone(&self.disk),
            identity,
            sessions: Arc::new(AtomicU16::new(1)),
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
            scheme: Address::scheme(self.plan.transport),
            address: self.plan.portal,
            from: self.plan.options.local,
            target: self.plan.target.as_deref().unwrap_or_default().to_owned(),
            unit: self.plan.lun.unwrap_or_default().into(),
        }
    }
}

impl RemoteUnit {
    /// The same disk with the size that the target says now.
    fn measure(&self) -> Result<Self, OpenError> {
        let failed = |error: ConnectError| error.of_disk(&self.identity.name);
        let number = self.sessions.fetch_add(1, Ordering::Relaxed);
        let found = self.plan.session(number).ask().map_err(failed)?;
        let Found::Unit(facts) = found else {
            let sentence = "the target has no disk there any more";
            let gone = ConnectError::new(ConnectErrorKind::Refused, sentence);
            return Err(failed(gone));
        };
        Ok(self.of(self.disk.remeasured(&facts).map_err(failed)?))
    }

    /// The same way to a disk of other properties.
    fn of(&self, disk: KnownDisk) -> Self {
        let disk = Arc::new(disk);
        Self {
            plan: self.plan.expecting(&disk),
            disk,
            identity: self.identity.clone(),
            sessions: Arc::clone(&self.sessions),
        }
    }
}
