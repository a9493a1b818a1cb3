//! iSCSI as an initiator: a remote logical unit as a disk.
//!
//! - `channel`: the disk. Each of its channels has a session.
//! - `session`: one session with one target, which carries out a `plan`. `bringup` reads the
//!   properties of the logical unit.
//! - `transfer`: requests as commands. `access`: how the target serves the disk over this path.
//! - `connection`: the session's only connection. `tcp` and `rdma` begin it, `transport` chooses.
//! - `command`, `known_disk`: tables from requests to commands, and from INQUIRY data to a disk.

mod access;
mod bringup;
mod channel;
mod command;
mod connection;
mod known_disk;
mod plan;
mod rdma;
mod session;
mod tcp;
mod transfer;
mod transport;

use std::fmt;
use std::net::SocketAddr;

pub use fabrix_proto::iscsi::initiator::{DiscoveredPortal, DiscoveredTarget};

pub use channel::RemoteUnit;

use crate::address::write_uri;
use crate::resolve::{first_that_answers, host_text, on_the_link_of, only_name, resolve};
use crate::{ConnectError, ConnectErrorKind, Options, Transport};
use plan::{Found, Plan};

/// Address of a remote logical unit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// What carries the connections.
    pub transport: Transport,
    /// Host name or IP address.
    pub host: String,
    /// Port, of TCP or of RDMA's connection manager.
    pub port: u16,
    /// Name of the target. None: discovery finds it, if there is only one.
    pub target: Option<String>,
    /// Logical unit number. None: the first disk.
    pub lun: Option<u16>,
}

impl Address {
    /// Scheme of the URIs of iSCSI over a transport.
    #[must_use]
    pub const fn scheme(transport: Transport) -> &'static str {
        match transport {
            Transport::Tcp => "iscsi",
            Transport::Rdma => "iser",
        }
    }

    /// The transport of a URI's scheme. None: the scheme is of another protocol.
    #[must_use]
    pub fn transport_of(scheme: &str) -> Option<Transport> {
        let mut all = [Transport::Tcp, Transport::Rdma].into_iter();
        all.find(|it| Self::scheme(*it) == scheme)
    }
}

/// Port of iSCSI over TCP and over RDMA.
pub const DEFAULT_PORT: u16 = 3260;

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = (self.target.as_deref(), self.lun.map(u32::from));
        let scheme = Self::scheme(self.transport);
        write_uri(f, scheme, (&self.host, self.port), path)
    }
}

/// CHAP user name and secret. Never printed.
#[derive(Clone)]
pub struct Account {
    /// User name (CHAP_N).
    pub user: String,
    /// Secret of 12 to 255 bytes.
    pub secret: String,
}

/// Identity of this initiator.
#[derive(Clone)]
pub struct Initiator {
    /// Initiator name: an IQN, EUI or NAA name.
    pub name: String,
    /// Credentials that the initiator proves to the target.
    pub ours: Option<Account>,
    /// Credentials that the target must prove (mutual CHAP).
    pub theirs: Option<Account>,
}

/// Connects once, reads the properties of the logical unit, and returns it as a disk.
///
/// # Errors
/// The host is unknown or unreachable, the target refuses this initiator, or the disk is not
/// supported.
pub fn connect(
    address: &Address,
    initiator: &Initiator,
    options: &Options,
) -> Result<RemoteUnit, ConnectError> {
    options.check()?;
    options.check_transport(address.transport)?;
    let target = match &address.target {
        Some(name) => name.clone(),
        None => only_target(address, &discover(address, initiator, options)?)?,
    };
    let address = Address {
        target: Some(target),
        ..address.clone()
    };
    let portals = options.reachable(resolve(&address.host, address.port)?)?;
    let plan = Plan::new(&address, portals[0], initiator, options)?;
    let (portal, found) = first_that_answers(&address, &portals, |portal| plan.probe(portal))?;
    let Found::Unit(facts) = found else {
        unreachable!("a session with a target finds a logical unit")
    };
    RemoteUnit::new(&plan.at(portal), &facts, &address).map_err(|error| error.at(&address))
}

/// Reads the list of targets (SendTargets).
///
/// # Errors
/// The host is unknown or unreachable, or the target refuses this initiator.
pub fn discover(
    address: &Address,
    initiator: &Initiator,
    options: &Options,
) -> Result<Vec<DiscoveredTarget>, ConnectError> {
    options.check()?;
    options.check_transport(address.transport)?;
    let everything = Address {
        target: None,
        lun: None,
        ..address.clone()
    };
    let portals = options.reachable(resolve(&address.host, address.port)?)?;
    let plan = Plan::new(&everything, portals[0], initiator, options)?;
    match first_that_answers(&everything, &portals, |portal| plan.probe(portal))? {
        (_, Found::Targets(targets)) => Ok(targets),
        (_, Found::Unit(_)) => unreachable!("a discovery session finds targets"),
    }
}

/// The portals of the target of an address that a list has, each once and in its order. Without a
/// name in the address it is the only target of the list. The portal that gave the list is among
/// them, or the address itself is the only one: what a target that is reached by other addresses
/// than its own lists is of no use here.
///
/// # Errors
/// The list has several targets or none, or the host is unknown.
pub fn listed_portals(
    address: &Address,
    targets: &[DiscoveredTarget],
) -> Result<Vec<Address>, ConnectError> {
    let name = match &address.target {
        Some(name) => name.clone(),
        None => only_target(address, targets)?,
    };
    let service = resolve(&address.host, address.port)?;
    let listed = targets.iter().filter(|target| target.name == name);
    let mut portals: Vec<SocketAddr> = Vec::new();
    for portal in listed.flat_map(|target| &target.portals) {
        let found = resolve(&portal.address, portal.port).unwrap_or_default();
        let found = found.first().map(|found| on_the_link_of(&service, *found));
        portals.extend(found.filter(|found| !portals.contains(found)));
    }
    let at = |host, port| Address {
        host,
        port,
        target: Some(name.clone()),
        ..address.clone()
    };
    if !portals.iter().any(|portal| service.contains(portal)) {
        return Ok(vec![at(address.host.clone(), address.port)]);
    }
    let portals = portals.into_iter();
    Ok(portals
        .map(|portal| at(host_text(portal), portal.port()))
        .collect())
}

/// The only target of a list.
fn only_target(address: &Address, targets: &[DiscoveredTarget]) -> Result<String, ConnectError> {
    let names: Vec<&str> = targets.iter().map(|target| target.name.as_str()).collect();
    let none = || {
        format!(
            "{address} offers no target to this initiator; ask for this initiator's name to be allowed there"
        )
    };
    only_name(&address, "targets", &names)?
        .map(str::to_owned)
        .ok_or_else(|| ConnectError::new(ConnectErrorKind::Refused, none()))
}
