//! Host and initiator: a remote disk as a [`fabrix_block::Device`] of this machine.
//!
//! Knows sessions with targets, reconnection, and the commands of requests. Uses sockets through
//! `transport` and `rt` only. Does not know the crate `target`.
//!
//! [`connect`] reads the properties of a namespace once and returns it as a device. Each channel of
//! the device has a session of its own, which reconnects for ever. [`discover`] reads a discovery
//! log. The guarantees after a lost connection are in `docs/design/host.md`.
//!
//! - `session`: a session of any protocol. `connection` holds its commands, `reconnection` its
//!   waiting requests.
//! - `link`, `tcp`, `rdma`: one connection over a transport.
//! - `nvme`, `iscsi`: the protocols.
//! - [`multipath`]: one disk over several sessions.

mod address;
mod channel;
mod connection;
mod error;
pub mod iscsi;
mod link;
pub mod multipath;
mod nvme;
mod options;
mod probe;
mod rdma;
mod reconnection;
mod request;
mod resolve;
mod session;
mod sizes;
mod tcp;
mod timers;
mod timing;

use std::sync::Arc;
use std::time::Duration;

use fabrix_proto::nvme::bringup::{Found, Purpose};

pub use address::{Address, DEFAULT_PORT, Transport};
pub use error::{ConnectError, ConnectErrorKind};
pub use fabrix_proto::nvme::bringup::{
    DiscoveredFamily, DiscoveredRecord, DiscoveredSubtype, DiscoveredTransport, DiscoveryLog,
    UnreadableRecord,
};
pub use fabrix_proto::nvme::nqn::Nqn;
pub use nvme::RemoteDisk;
pub use options::{Notify, Options, PathEvent, Weight};
pub use timing::Trace;

use nvme::Plan;
use resolve::{Subsystem, first_that_answers, only_subsystem, resolve};

pub use resolve::host_text;

/// Connects once, reads the properties of the namespace, and returns it as a disk.
///
/// # Errors
/// The host is unknown or unreachable, the target refuses this host, or the disk is not supported.
pub fn connect(address: &Address, options: &Options) -> Result<RemoteDisk, ConnectError> {
    options.check()?;
    options.check_transport(address.transport)?;
    match &address.subsystem {
        Some(name) => {
            let subsystem = Subsystem::named(name, resolve(&address.host, address.port)?)?;
            connect_to(address, subsystem, options)
        }
        None => connect_listed(address, &discover(address, options)?, options),
    }
}

/// As [`connect`], where the discovery log of the address says. Without a name in the address it
/// leads to the only subsystem of the log.
///
/// # Errors
/// As of [`connect`], or the log has several subsystems.
pub fn connect_listed(
    address: &Address,
    log: &DiscoveryLog,
    options: &Options,
) -> Result<RemoteDisk, ConnectError> {
    connect_to(address, only_subsystem(address, log)?, options)
}

/// The ports of the subsystem of an address that the discovery log there has over TCP and RDMA,
/// each once and in its order. Without a name in the address it is the only subsystem of the log.
///
/// # Errors
/// The log has several subsystems or none, or the host is unknown.
pub fn listed_ports(address: &Address, log: &DiscoveryLog) -> Result<Vec<Address>, ConnectError> {
    let subsystem = only_subsystem(address, log)?;
    let service = resolve(&address.host, address.port)?;
    let ports = resolve::ports(&service, &subsystem.name, log).into_iter();
    let port = |(transport, portal)| Address {
        transport,
        host: host_text(portal),
        port: portal.port(),
        subsystem: Some(subsystem.name.as_str().to_owned()),
        nsid: address.nsid,
    };
    Ok(ports.map(port).collect())
}

/// Connects once to a subsystem of an address, and returns its namespace as a disk.
fn connect_to(
    address: &Address,
    subsystem: Subsystem,
    options: &Options,
) -> Result<RemoteDisk, ConnectError> {
    let portals = options.reachable(subsystem.portals)?;
    let options = Arc::new(options.clone());
    let plan = Plan {
        transport: address.transport,
        address: portals[0],
        subsystem: subsystem.name.clone(),
        purpose: Purpose::Io {
            nsid: address.nsid,
            queues: options.nr_io_queues,
        },
        options: Arc::clone(&options),
        expected: None,
    };
    let (portal, facts) = first_that_answers(address, &portals, |portal| plan.probe(portal))?;
    RemoteDisk::new(
        Plan {
            address: portal,
            ..plan
        },
        &facts,
        address,
    )
    .map_err(|error| error.at(address))
}

/// Reads the discovery log of a target.
///
/// # Errors
/// The host is unknown or unreachable, or the target is not a discovery service.
pub fn discover(address: &Address, options: &Options) -> Result<DiscoveryLog, ConnectError> {
    options.check()?;
    options.check_transport(address.transport)?;
    let portals = options.reachable(resolve(&address.host, address.port)?)?;
    let plan = Plan {
        transport: address.transport,
        address: portals[0],
        subsystem: Nqn::discovery(),
        purpose: Purpose::Discovery,
        options: Arc::new(Options {
            keep_alive: Duration::ZERO,
            ..options.clone()
        }),
        expected: None,
    };
    let (_, facts) = first_that_answers(address, &portals, |portal| plan.probe(portal))?;
    match &facts.found {
        Found::Discovery(log) => Ok(log.clone()),
        Found::Io { .. } | Found::Queue { .. } | Found::Timing(_) => {
            let sentence = format!("{address}: this is not a discovery service");
            Err(ConnectError::new(ConnectErrorKind::Unsupported, sentence))
        }
    }
}
