//! The initiator: a disk that another machine exports, as a disk of this one.
//!
//! Knows sessions with targets, reconnection, and what a request is on the wire; touches sockets
//! through `transport` and `rt` only. Never knows the target (`target`): the two meet over a
//! network, or in the program.
//!
//! [`connect`] asks a controller once what it has and gives a [`fabrix_block::Device`]; every
//! channel of it keeps a session of its own and reconnects for ever. [`discover`] reads a discovery
//! log. What is promised when a connection is lost, and what is not, stands in
//! `docs/design/host.md`.

mod address;
mod channel;
mod error;
pub mod iscsi;
mod nvme;
mod options;
mod outage;
mod probe;
mod request;
mod resolve;
mod sizes;
mod timers;
mod timing;
mod wire;

use std::sync::Arc;
use std::time::Duration;

use fabrix_proto::nvme::bringup::{Found, Purpose};

pub use address::{Address, DEFAULT_PORT};
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

/// Connects once, learns what the namespace is, and gives it as a disk.
///
/// # Errors
/// No such host, nobody listens, not let in, or not a disk we can use: each as a sentence.
pub fn connect(address: &Address, options: &Options) -> Result<RemoteDisk, ConnectError> {
    options.check()?;
    let subsystem = match &address.subsystem {
        Some(name) => Subsystem::named(name, resolve(&address.host, address.port)?)?,
        None => only_subsystem(address, &discover(address, options)?)?,
    };
    let portals = options.reachable(subsystem.portals)?;
    let options = Arc::new(options.clone());
    let plan = Plan {
        address: portals[0],
        subsystem: subsystem.name.clone(),
        purpose: Purpose::Io {
            nsid: address.nsid,
            queues: options.nr_io_queues,
        },
        options: Arc::clone(&options),
        expected: None,
    };
    let asked = first_that_answers(&portals, |address| plan.probe(address));
    let (portal, facts) = asked.map_err(|error| error.at(address))?;
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
/// No such host, nobody listens, or not a discovery service.
pub fn discover(address: &Address, options: &Options) -> Result<DiscoveryLog, ConnectError> {
    options.check()?;
    let portals = options.reachable(resolve(&address.host, address.port)?)?;
    let plan = Plan {
        address: portals[0],
        subsystem: Nqn::discovery(),
        purpose: Purpose::Discovery,
        options: Arc::new(Options {
            keep_alive: Duration::ZERO,
            ..options.clone()
        }),
        expected: None,
    };
    let asked = first_that_answers(&portals, |address| plan.probe(address));
    let (_, facts) = asked.map_err(|error| error.at(address))?;
    match &facts.found {
        Found::Discovery(log) => Ok(log.clone()),
        Found::Io { .. } | Found::Queue { .. } | Found::Timing(_) => {
            let sentence = format!("{address}: this is not a discovery service");
            Err(ConnectError::new(ConnectErrorKind::Unsupported, sentence))
        }
    }
}
