//! iSCSI as an initiator: a remote logical unit as a disk.
//!
//! Read downwards: `channel` is the disk; each of its channels has a `session`, one connection with
//! one target, which follows a `plan`, comes up in `bring` and leaves in `parting`, and whose
//! requests are `transfer`'s; `connection` holds its slots. `command` and `seen` are tables:
//! requests to commands, and what the disk said to its geometry. The mirror of `nvme`, with the
//! same outline.

mod bring;
mod channel;
mod command;
mod connection;
mod parting;
mod plan;
mod seen;
mod session;
mod tcp;
mod transfer;

use std::fmt;

pub use fabrix_proto::iscsi::initiator::{DiscoveredPortal, DiscoveredTarget};

pub use channel::RemoteUnit;

use crate::resolve::{first_that_answers, resolve};
use crate::{ConnectError, ConnectErrorKind, Options};
use plan::{Found, Plan};

/// Where a remote logical unit is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// Name or address of the machine.
    pub host: String,
    /// TCP port.
    pub port: u16,
    /// The target's name; found by discovery when there is just one.
    pub target: Option<String>,
    /// The logical unit; the first that is a disk when not given.
    pub lun: Option<u16>,
}

/// The port of iSCSI.
pub const DEFAULT_PORT: u16 = 3260;

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let brackets = self.host.contains(':');
        let (open, close) = if brackets { ("[", "]") } else { ("", "") };
        write!(f, "iscsi://{open}{}{close}:{}", self.host, self.port)?;
        if let Some(target) = &self.target {
            write!(f, "/{target}")?;
            if let Some(lun) = self.lun {
                write!(f, "/{lun}")?;
            }
        }
        Ok(())
    }
}

/// A name, and the secret that proves it (CHAP). Never printed.
#[derive(Clone)]
pub struct Account {
    /// CHAP_N.
    pub user: String,
    /// 12 to 255 bytes.
    pub secret: String,
}

/// Who we are to targets.
#[derive(Clone)]
pub struct Initiator {
    /// Our name: an IQN, an EUI or an NAA name.
    pub name: String,
    /// What we prove to a target that asks for it.
    pub ours: Option<Account>,
    /// What the target must prove (mutual CHAP).
    pub theirs: Option<Account>,
}

/// Connects once, learns what the logical unit is, and gives it as a disk.
///
/// # Errors
/// No such host, nobody listens, not let in, or not a disk we can use: each as a sentence.
pub fn connect(
    address: &Address,
    initiator: &Initiator,
    options: &Options,
) -> Result<RemoteUnit, ConnectError> {
    options.check()?;
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
    let asked = first_that_answers(&portals, |portal| plan.probe(portal));
    let (portal, found) = asked.map_err(|error| error.at(&address))?;
    let Found::Unit(facts) = found else {
        unreachable!("a session with a target finds a logical unit")
    };
    RemoteUnit::new(&plan.at(portal), &facts, &address).map_err(|error| error.at(&address))
}

/// Asks which targets there are.
///
/// # Errors
/// No such host, nobody listens, or not let in.
pub fn discover(
    address: &Address,
    initiator: &Initiator,
    options: &Options,
) -> Result<Vec<DiscoveredTarget>, ConnectError> {
    options.check()?;
    let everything = Address {
        target: None,
        lun: None,
        ..address.clone()
    };
    let portals = options.reachable(resolve(&address.host, address.port)?)?;
    let plan = Plan::new(&everything, portals[0], initiator, options)?;
    let asked = first_that_answers(&portals, |portal| plan.probe(portal));
    match asked.map_err(|error| error.at(&everything))? {
        (_, Found::Targets(targets)) => Ok(targets),
        (_, Found::Unit(_)) => unreachable!("a discovery session finds targets"),
    }
}

/// The one target that a list offers.
fn only_target(address: &Address, targets: &[DiscoveredTarget]) -> Result<String, ConnectError> {
    match targets {
        [one] => Ok(one.name.clone()),
        [] => Err(ConnectError::new(
            ConnectErrorKind::Refused,
            format!(
                "{address} offers no target to this initiator; ask for this initiator's name to be allowed there"
            ),
        )),
        several => {
            let shown = several
                .iter()
                .take(SHOWN)
                .map(|target| target.name.as_str());
            let list = shown.collect::<Vec<_>>().join(", ");
            let sentence = format!("{address} offers several targets, name one in the URI: {list}");
            Err(ConnectError::new(ConnectErrorKind::Usage, sentence))
        }
    }
}

/// So many names of a long list are shown.
const SHOWN: usize = 16;
