//! Multipath: one disk over several sessions, so that it stays usable while one of them is left.
//!
//! [`connect`] joins remote disks that are the same disk. On each shard a `pool` divides requests
//! among their sessions by a [`Policy`], and repeats those that a lost session gives back. What is
//! repeated, and when, is described in `docs/design/host.md`.
//!
//! - `policy`: which path gets the next request.
//! - `roster`: the paths of a disk, which join and leave. `same`: whether they lead to one disk.
//! - `switches`: what an administrator wants of paths.
//! - `pool`, `path`, `table`, `unsettled`: the requests of a shard.
//! - `proofs`: who is asked to prove that a lost association is over.
//! - `link`: what sessions and pools say to each other.

pub(crate) mod link;
mod path;
mod policy;
mod pool;
mod proofs;
mod roster;
mod same;
mod switches;
mod table;
mod unsettled;

use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use fabrix_block::{Channel, Device, Geometry, Identity, OpenError, OpenErrorKind};
use fabrix_rt::Shard;

use self::link::PathLink;
pub use self::link::{Access, AssociationName, PathChannel};
pub use self::policy::Policy;
use self::policy::Selector;
use self::roster::is_number;
pub use self::roster::{Member, PathLocation, Roster};
use self::same::{common_geometry, read_only_note, same_disk};
pub use self::switches::PathSwitches;
use crate::iscsi::Initiator;
use crate::resolve::resolve;
use crate::{ConnectError, ConnectErrorKind, Options, Transport};

/// Most paths of one disk.
pub const MOST_PATHS: usize = 16;

/// A remote disk that can be a path.
pub trait PathDisk: Device {
    /// Opens the disk for one shard as a path. Requests come back when the connection is lost.
    ///
    /// # Errors
    /// As of [`Device::open`].
    #[doc(hidden)]
    fn open_path(&self, shard: &mut Shard, link: Link) -> Result<Box<dyn PathChannel>, OpenError>;

    /// The same disk at another address, which is not asked. The first session there checks that it
    /// is the same disk.
    ///
    /// # Errors
    /// The host is unknown, or an option is not supported there.
    fn elsewhere(&self, way: &Way<'_>) -> Result<Arc<dyn PathDisk>, ConnectError>;

    /// The same disk with its current size.
    ///
    /// # Errors
    /// As of [`Device::resize`].
    fn remeasured(&self) -> Result<Arc<dyn PathDisk>, OpenError>;

    /// The same disk with the size that it has on another path. This path is not asked: its next
    /// session checks the disk.
    fn sized(&self, blocks: u64) -> Arc<dyn PathDisk>;

    /// Most time that requests wait while no path can be used.
    fn patience(&self) -> Duration;

    /// Where the path leads.
    fn location(&self) -> PathLocation;
}

/// Where another path of a disk leads. The protocol is that of the disk.
pub struct Way<'a> {
    /// What carries the connections.
    pub transport: Transport,
    /// Host name or IP address.
    pub host: &'a str,
    /// Port.
    pub port: u16,
    /// Name of the subsystem or target. None: as on the other path.
    pub target: Option<&'a str>,
    /// Namespace id or logical unit number. None: as on the other path.
    pub unit: Option<u32>,
    /// Options of the path's sessions.
    pub options: &'a Options,
    /// Who logs in over iSCSI. None for NVMe.
    pub initiator: Option<&'a Initiator>,
}

/// A session's end of the seam to the pool of its disk.
pub struct Link(pub(crate) Rc<PathLink>);

/// When requests are repeated whose fate is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Failover {
    /// Changes of the disk wait until the lost path certainly executes nothing more.
    #[default]
    Safe,
    /// All requests are repeated at once, as Linux does. A lost path that executes a write late can
    /// overwrite newer data.
    Fast,
}

/// A disk over several paths.
#[derive(Clone)]
pub struct Multipath {
    roster: Arc<Roster>,
    policy: Policy,
    failover: Failover,
    geometry: Geometry,
    identity: Identity,
    notes: Vec<String>,
}

impl Way<'_> {
    /// The first address of the host.
    ///
    /// # Errors
    /// The host is unknown, or an option is not supported there.
    pub(crate) fn first_portal(&self) -> Result<SocketAddr, ConnectError> {
        self.options.check()?;
        self.options.check_transport(self.transport)?;
        let portals = self.options.reachable(resolve(self.host, self.port)?)?;
        let none = || ConnectError::new(ConnectErrorKind::Unreachable, "there is no address");
        portals.first().copied().ok_or_else(none)
    }
}

/// Joins the paths of one disk, which get the numbers from 0 on.
///
/// # Errors
/// There are no paths or more than [`MOST_PATHS`], two of them are the same path, or two are not
/// the same disk.
pub fn connect(
    name: &str,
    paths: Vec<Arc<dyn PathDisk>>,
    how: (Policy, Failover),
) -> Result<Multipath, ConnectError> {
    if let Policy::Fixed(preferred) = how.0
        && preferred >= paths.len()
    {
        let sentence = format!(
            "fixed:{preferred}: there are {} paths, counted from 0",
            paths.len()
        );
        return Err(ConnectError::new(ConnectErrorKind::Usage, sentence));
    }
    connect_numbered(name, paths.into_iter().enumerate().collect(), how)
}

/// As [`connect`], with the numbers of the paths. Some may be free: their paths have left.
///
/// # Errors
/// As of [`connect`].
pub fn connect_numbered(
    name: &str,
    paths: Vec<(usize, Arc<dyn PathDisk>)>,
    (policy, failover): (Policy, Failover),
) -> Result<Multipath, ConnectError> {
    let roster = Roster::new(paths)?;
    let members = roster.members();
    let identity = Identity {
        name: name.to_owned(),
        ..members[0].disk.identity().clone()
    };
    Ok(Multipath {
        notes: read_only_note(&members).into_iter().collect(),
        geometry: common_geometry(&members),
        roster: Arc::new(roster),
        policy,
        failover,
        identity,
    })
}

/// Checks the number of paths of a disk, before any of them is tried.
///
/// # Errors
/// A disk cannot have so many.
pub fn check_number(paths: usize) -> Result<(), ConnectError> {
    is_number(paths)
}

impl Device for Multipath {
    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn identity(&self) -> &Identity {
        &self.identity
    }

    fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Starts to connect all paths and does not wait.
    fn open(&self, shard: &mut Shard) -> Result<Box<dyn Channel>, OpenError> {
        let members = self.roster.members();
        let patience = members.iter().map(|path| path.disk.patience()).max();
        let setup = pool::Setup {
            geometry: self.geometry.clone(),
            selector: Selector::new(self.policy),
            is_safe: self.failover == Failover::Safe,
            roster: Arc::clone(&self.roster),
            patience: patience.unwrap_or(Duration::MAX),
        };
        pool::open(shard, setup)
    }

    fn compares_and_writes(&self) -> bool {
        let members = self.roster.members();
        members.iter().all(|path| path.disk.compares_and_writes())
    }

    /// Reads the size over all paths. A path that cannot be asked gets the size of the others.
    fn resize(&self, bytes: Option<u64>) -> Result<Arc<dyn Device>, OpenError> {
        if bytes.is_some() {
            return Err(crate::sizes::resize_elsewhere(&self.identity));
        }
        let mut members = self.roster.members();
        let asked: Vec<_> = members.iter().map(|path| path.disk.remeasured()).collect();
        let answered = asked.iter().find_map(|path| path.as_ref().ok());
        let blocks = answered.map(|path| path.geometry().blocks);
        for (member, asked) in members.iter_mut().zip(asked) {
            member.disk = match blocks {
                Some(blocks) => asked.unwrap_or_else(|_| member.disk.sized(blocks)),
                None => asked?,
            };
        }
        let (first, others) = members.split_first().expect("a disk has a path");
        let wrong =
            |error: ConnectError| OpenError::new(OpenErrorKind::Unsupported, error.to_string());
        for other in others {
            same_disk(&*first.disk, &*other.disk).map_err(wrong)?;
        }
        let geometry = common_geometry(&members);
        self.roster.remeasured(&members, &geometry);
        Ok(Arc::new(Self {
            geometry,
            ..self.clone()
        }))
    }
}

impl Multipath {
    /// The paths of the disk, which join and leave while it is open.
    #[must_use]
    pub fn roster(&self) -> &Arc<Roster> {
        &self.roster
    }
}
