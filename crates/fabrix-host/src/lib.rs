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

mod channel;
mod error;
pub mod iscsi;
mod nvme;
mod outage;
mod probe;
mod request;
mod resolve;
mod sizes;
mod timers;
mod timing;
mod wire;

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use fabrix_proto::nvme::bringup::{Found, Purpose};
use fabrix_rt::Engine;

pub use error::{ConnectError, ConnectErrorKind};
pub use fabrix_proto::nvme::bringup::{
    DiscoveredFamily, DiscoveredRecord, DiscoveredSubtype, DiscoveredTransport, DiscoveryLog,
    UnreadableRecord,
};
pub use fabrix_proto::nvme::nqn::Nqn;
pub use nvme::RemoteDisk;
pub use timing::Trace;

use nvme::Plan;
use resolve::{Subsystem, first_that_answers, only_subsystem, resolve};

/// Where a remote disk is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// Name or address of the machine.
    pub host: String,
    /// TCP port.
    pub port: u16,
    /// The subsystem; found by discovery when there is just one.
    pub subsystem: Option<String>,
    /// The namespace; the first there is when not given.
    pub nsid: Option<u32>,
}

/// The port of NVMe/TCP.
pub const DEFAULT_PORT: u16 = 4420;

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let brackets = self.host.contains(':');
        let (open, close) = if brackets { ("[", "]") } else { ("", "") };
        write!(f, "nvme+tcp://{open}{}{close}:{}", self.host, self.port)?;
        if let Some(subsystem) = &self.subsystem {
            write!(f, "/{subsystem}")?;
            if let Some(nsid) = self.nsid {
                write!(f, "/{nsid}")?;
            }
        }
        Ok(())
    }
}

/// How to connect, and how long to hold on.
#[derive(Clone)]
pub struct Options {
    /// Our name, a qualified one.
    pub host: Nqn,
    /// Our id, stable as the name is, and not zero.
    pub host_id: [u8; 16],
    /// CRC32C over headers.
    pub header_digest: bool,
    /// CRC32C over data.
    pub data_digest: bool,
    /// I/O queues of each channel, at least 1; the target may grant fewer, and no more than 128 are
    /// used.
    pub nr_io_queues: u16,
    /// Entries of each I/O queue, at least 2; the target may allow fewer, and no more than 4097 are
    /// used.
    pub queue_size: u16,
    /// How long either side may be silent (KATO); below a millisecond there is no keep-alive.
    pub keep_alive: Duration,
    /// Requests fail when the connection has been gone for so long, and reconnecting goes on; None:
    /// they wait. The first try to connect is not counted: a connection is gone once it was lost,
    /// or once that try has failed.
    pub fast_io_fail: Option<Duration>,
    /// The pause between tries to connect again; None: the first comes at once, then pauses double
    /// up to 5 s.
    pub reconnect_delay: Option<Duration>,
    /// When the connection has been gone for so long, nobody tries any more and everything fails;
    /// None: never.
    pub ctrl_loss: Option<Duration>,
    /// The address of this machine that connections come from; None: the system chooses.
    pub local: Option<IpAddr>,
    /// Connecting and asking what there is may take so long, the first time and every time.
    pub bringup_timeout: Duration,
    /// A connection on which a request is not answered for so long is given up; zero: the request
    /// waits for ever.
    pub io_timeout: Duration,
    /// How to talk to the kernel while connecting.
    pub engine: Engine,
    /// Told when requests pass us, for as long as somebody wants to know where their time goes.
    pub trace: Option<Arc<Trace>>,
    /// Told when a connection is lost and when it is back; called on the shard's thread, so it must
    /// not wait.
    pub notify: Notify,
    /// Told the same for programs, for each connection of a disk, by the address it goes to; must
    /// not wait either.
    pub watch: Arc<dyn Fn(SocketAddr, PathEvent) + Send + Sync>,
}

/// Hears sentences about connections, and how much they matter.
pub type Notify = Arc<dyn Fn(Weight, &str) + Send + Sync>;

/// How much something that is told of a connection matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weight {
    /// All is well again.
    Info,
    /// Requests wait.
    Warning,
    /// Requests fail, or will unless somebody does something.
    Error,
}

/// What happens to a disk's connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PathEvent {
    /// There is one.
    Connected,
    /// It is lost, or could not be made; told again for every try.
    Lost,
    /// The target was reached, and does not give the disk or has another one in its place: why, as
    /// a sentence. Told again for every try.
    Unusable(Arc<str>),
    /// It is lost, and nobody tries any more.
    GivenUp,
    /// The disk has another size over there: [`Device::remeasure`](fabrix_block::Device::remeasure)
    /// takes it over.
    Changed,
}

impl Options {
    /// The usual: one queue of 128, no digests, a keep-alive of 5 s, requests that wait up to a
    /// minute for a connection and half a minute for an answer, silence.
    #[must_use]
    pub fn new(host: Nqn, host_id: [u8; 16]) -> Self {
        Self {
            host,
            host_id,
            header_digest: false,
            data_digest: false,
            nr_io_queues: 1,
            queue_size: 128,
            keep_alive: Duration::from_secs(5),
            fast_io_fail: Some(Duration::from_secs(60)),
            reconnect_delay: None,
            ctrl_loss: None,
            local: None,
            bringup_timeout: Duration::from_secs(10),
            io_timeout: Duration::from_secs(30),
            engine: Engine::Auto,
            trace: None,
            notify: Arc::new(|_, _| {}),
            watch: Arc::new(|_, _| {}),
        }
    }

    /// How long requests wait for a connection that is gone.
    pub(crate) fn patience(&self) -> Duration {
        let limits = [self.fast_io_fail, self.ctrl_loss];
        limits.into_iter().flatten().min().unwrap_or(Duration::MAX)
    }

    /// The portals that can be reached from the local address, at least one.
    pub(crate) fn reachable(
        &self,
        mut portals: Vec<SocketAddr>,
    ) -> Result<Vec<SocketAddr>, ConnectError> {
        if let Some(local) = self.local {
            portals.retain(|portal| portal.is_ipv4() == local.is_ipv4());
        }
        match (self.local, portals.is_empty()) {
            (Some(local), true) => Err(ConnectError::new(
                ConnectErrorKind::Usage,
                format!(
                    "from {local} the target cannot be reached: it has no address of that kind"
                ),
            )),
            _ => Ok(portals),
        }
    }

    fn check(&self) -> Result<(), ConnectError> {
        let sentence = if self.host_id == [0; 16] {
            "a host id of zeroes names no host (host_id is 0)"
        } else if !self.host.is_qualified() {
            "the host's name is no NQN: write nqn.2014-08.org.nvmexpress:uuid:UUID"
        } else if self.nr_io_queues == 0 {
            "a remote disk needs at least one I/O queue (nr_io_queues is 0)"
        } else if self.queue_size < 2 {
            "a queue has at least 2 entries (queue_size is too small)"
        } else if self.bringup_timeout.is_zero() {
            "connecting takes time (bringup_timeout is 0)"
        } else {
            return Ok(());
        };
        Err(ConnectError::new(ConnectErrorKind::Usage, sentence))
    }
}

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
