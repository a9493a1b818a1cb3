//! Multipath: one disk over several sessions, so that it stays usable while one of them is left.
//!
//! [`connect`] joins remote disks that are the same disk. On each shard a `pool` divides requests
//! among their sessions by a [`Policy`], and repeats those that a lost session gives back. What is
//! repeated, and when, is described in `docs/design/host.md`.
//!
//! - `policy`: which path gets the next request.
//! - `switches`: what an administrator wants of paths.
//! - `pool`, `path`, `table`, `unsettled`: the requests of a shard.
//! - `proofs`: who is asked to prove that a lost association is over.
//! - `link`: what sessions and pools say to each other.

pub(crate) mod link;
mod path;
mod policy;
mod pool;
mod proofs;
mod switches;
mod table;
mod unsettled;

use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use fabrix_block::{Channel, Device, Geometry, Identity, OpenError, OpenErrorKind};
use fabrix_rt::nodes::{LOCAL_DISTANCE, distance_to_card};
use fabrix_rt::{Shard, Token};

use self::link::PathLink;
pub use self::link::{Access, AssociationName, PathChannel};
use self::path::Path;
pub use self::policy::Policy;
use self::policy::Selector;
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

    /// Address of the target, and the own address that connections are bound to.
    fn route(&self) -> (SocketAddr, Option<IpAddr>);
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
    paths: Vec<Arc<dyn PathDisk>>,
    policy: Policy,
    failover: Failover,
    switches: Arc<PathSwitches>,
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

/// Joins the paths of one disk.
///
/// # Errors
/// There are no paths or more than [`MOST_PATHS`], or two of them are not the same disk.
pub fn connect(
    name: &str,
    paths: Vec<Arc<dyn PathDisk>>,
    (policy, failover): (Policy, Failover),
) -> Result<Multipath, ConnectError> {
    let usage = |sentence: String| ConnectError::new(ConnectErrorKind::Usage, sentence);
    let Some(first) = paths.first() else {
        return Err(usage(
            "a disk over several paths needs at least one".to_owned(),
        ));
    };
    if paths.len() > MOST_PATHS {
        let sentence = format!("{} paths: a disk has at most {MOST_PATHS}", paths.len());
        return Err(usage(sentence));
    }
    if let Policy::Fixed(preferred) = policy
        && preferred >= paths.len()
    {
        let sentence = format!(
            "fixed:{preferred}: there are {} paths, counted from 0",
            paths.len()
        );
        return Err(usage(sentence));
    }
    for other in &paths[1..] {
        same_disk(&**first, &**other)?;
    }
    let geometry = common_geometry(&paths, first.geometry());
    let identity = Identity {
        name: name.to_owned(),
        ..first.identity().clone()
    };
    Ok(Multipath {
        notes: read_only_note(&paths).into_iter().collect(),
        paths,
        policy,
        failover,
        switches: Arc::default(),
        geometry,
        identity,
    })
}

/// Checks that two paths lead to the same disk.
fn same_disk(one: &dyn PathDisk, other: &dyn PathDisk) -> Result<(), ConnectError> {
    let refused = |what: String| {
        let names = (&one.identity().name, &other.identity().name);
        let sentence = format!("{} and {} are not the same disk: {what}", names.0, names.1);
        ConnectError::new(ConnectErrorKind::Refused, sentence)
    };
    let (ours, theirs) = (one.identity(), other.identity());
    if ours.uuid != theirs.uuid {
        let (ours, theirs) = (ours.uuid_text(), theirs.uuid_text());
        return Err(refused(format!("their UUIDs are {ours} and {theirs}")));
    }
    if ours.nguid != theirs.nguid {
        let sentence =
            "their identifiers differ; the paths of a disk are all of NVMe or all of iSCSI";
        return Err(refused(sentence.to_owned()));
    }
    let (ours, theirs) = (one.geometry(), other.geometry());
    if ours.block_bytes != theirs.block_bytes {
        let (ours, theirs) = (ours.block_bytes, theirs.block_bytes);
        return Err(refused(format!(
            "their blocks have {ours} and {theirs} bytes"
        )));
    }
    if ours.blocks != theirs.blocks {
        let (ours, theirs) = (ours.blocks, theirs.blocks);
        return Err(refused(format!("they have {ours} and {theirs} blocks")));
    }
    Ok(())
}

/// Which paths make a disk read-only that is not read-only over the others.
fn read_only_note(paths: &[Arc<dyn PathDisk>]) -> Option<String> {
    let closed = paths.iter().filter(|path| path.geometry().read_only);
    let names: Vec<&str> = closed.map(|path| path.identity().name.as_str()).collect();
    let some = !names.is_empty() && names.len() < paths.len();
    some.then(|| {
        let names = names.join(" and ");
        format!("the disk is read-only: it is so over {names}, though not over its other paths")
    })
}

/// The promises that all paths make.
fn common_geometry(paths: &[Arc<dyn PathDisk>], first: &Geometry) -> Geometry {
    paths.iter().fold(first.clone(), |common, path| {
        let path = path.geometry();
        Geometry {
            max_transfer_bytes: common.max_transfer_bytes.min(path.max_transfer_bytes),
            volatile_cache: common.volatile_cache || path.volatile_cache,
            durability: common.durability.min(path.durability),
            atomic_write_blocks: common.atomic_write_blocks.min(path.atomic_write_blocks),
            read_only: common.read_only || path.read_only,
            deallocate: common.deallocate.min(path.deallocate),
            ..common
        }
    })
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
        let patience = self.paths.iter().map(|path| path.patience()).max();
        let setup = pool::Setup {
            geometry: self.geometry.clone(),
            selector: Selector::new(self.policy),
            is_safe: self.failover == Failover::Safe,
            switches: Arc::clone(&self.switches),
            patience: patience.unwrap_or(Duration::MAX),
        };
        pool::open(shard, setup, |shard, token| self.open_paths(shard, token))
    }

    fn compares_and_writes(&self) -> bool {
        self.paths.iter().all(|path| path.compares_and_writes())
    }

    /// Reads the size over all paths. A path that cannot be asked gets the size of the others.
    fn resize(&self, bytes: Option<u64>) -> Result<Arc<dyn Device>, OpenError> {
        if bytes.is_some() {
            return Err(crate::sizes::resize_elsewhere(&self.identity));
        }
        let asked: Vec<_> = self.paths.iter().map(|path| path.remeasured()).collect();
        let answered = asked.iter().find_map(|path| path.as_ref().ok());
        let blocks = answered.map(|path| path.geometry().blocks);
        let paths = self.paths.iter().zip(asked);
        let paths = paths.map(|(path, asked)| match blocks {
            Some(blocks) => Ok(asked.unwrap_or_else(|_| path.sized(blocks))),
            None => asked,
        });
        let paths = paths.collect::<Result<Vec<_>, _>>()?;
        let name = &self.identity.name;
        let joined = connect(name, paths, (self.policy, self.failover));
        let wrong =
            |error: ConnectError| OpenError::new(OpenErrorKind::Unsupported, error.to_string());
        let joined = joined.map_err(wrong)?;
        Ok(Arc::new(joined.switched_by(Arc::clone(&self.switches))))
    }
}

impl Multipath {
    /// The same disk, whose paths are switched elsewhere.
    #[must_use]
    pub fn switched_by(self, switches: Arc<PathSwitches>) -> Self {
        Self { switches, ..self }
    }

    /// Distance of a path's card from the processor that opens the disk, if the policy asks for it.
    fn distance(&self, path: &dyn PathDisk) -> u8 {
        let (to, from) = path.route();
        match self.policy {
            Policy::Numa => distance_to_card(to.ip(), from),
            _ => LOCAL_DISTANCE,
        }
    }

    fn open_paths(&self, shard: &mut Shard, token: Token) -> Result<Vec<Path>, OpenError> {
        let mut paths = Vec::with_capacity(self.paths.len());
        for (index, path) in self.paths.iter().enumerate() {
            let link = Rc::new(PathLink::new(token));
            let channel = path.open_path(shard, Link(Rc::clone(&link)))?;
            paths.push(Path::new((index, self.distance(&**path)), channel, link));
        }
        Ok(paths)
    }
}
