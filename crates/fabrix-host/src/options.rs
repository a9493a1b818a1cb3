//! How a remote disk is connected, and what its user is told of its connections.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use fabrix_proto::nvme::nqn::Nqn;
use fabrix_rt::Engine;

use crate::{ConnectError, ConnectErrorKind, Trace};

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
    /// The disk has another size over there: [`Device::resize`](fabrix_block::Device::resize)
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

    pub(crate) fn check(&self) -> Result<(), ConnectError> {
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
