//! Options of sessions, and events of connections.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use fabrix_proto::nvme::nqn::Nqn;
use fabrix_rt::{Control, ControlThread, Engine};

use crate::multipath::Access;
use crate::{ConnectError, ConnectErrorKind, Trace, Transport};

/// Parameters of sessions, of NVMe and iSCSI alike.
#[derive(Clone)]
pub struct Options {
    /// NQN of this host.
    pub host: Nqn,
    /// Host identifier: as stable as the NQN, and not zero.
    pub host_id: [u8; 16],
    /// Request header digests (CRC32C).
    pub header_digest: bool,
    /// Request data digests (CRC32C).
    pub data_digest: bool,
    /// I/O queues of each channel: 1 to 128. The target may grant fewer.
    pub nr_io_queues: u16,
    /// Entries of each I/O queue: 2 to 4097. The target may allow fewer.
    pub queue_size: u16,
    /// Keep-alive timeout (KATO). Below 1 ms there is no keep-alive.
    pub keep_alive: Duration,
    /// Time without a connection after which requests fail, while attempts to connect continue.
    /// None: requests wait for ever. The time starts with the loss of a connection, or with the
    /// failure of the first attempt.
    pub fast_io_fail: Option<Duration>,
    /// Pause between attempts to connect. None: 50 ms, then the pauses double up to 5 s.
    pub reconnect_delay: Option<Duration>,
    /// Time without a connection after which attempts end and all requests fail. None: never.
    pub ctrl_loss: Option<Duration>,
    /// Local address of connections. None: the system chooses.
    pub local: Option<IpAddr>,
    /// Most time for one attempt to connect, including the bring-up.
    pub bringup_timeout: Duration,
    /// Most time for the answer to a command. The session then reconnects. Zero: no limit.
    pub io_timeout: Duration,
    /// Engine of the shard that makes the first connection.
    pub engine: Engine,
    /// The threads that make first connections and read sizes.
    pub control: Arc<dyn Control>,
    /// Sums of the times at which requests pass the host. None: nothing is measured.
    pub trace: Option<Arc<Trace>>,
    /// Receives sentences about lost and restored connections. Runs on the shard's thread, so it
    /// must not block.
    pub notify: Notify,
    /// Receives the events of a disk's connections, with the target's address. Must not block.
    pub watch: Arc<dyn Fn(SocketAddr, PathEvent) + Send + Sync>,
}

/// Receiver of sentences about connections, with their severity.
pub type Notify = Arc<dyn Fn(Weight, &str) + Send + Sync>;

/// Severity of a sentence about a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weight {
    /// The connection works again.
    Info,
    /// Requests wait.
    Warning,
    /// Requests fail, or will fail unless somebody changes something.
    Error,
}

/// Event of a disk's connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PathEvent {
    /// The session has connected.
    Connected,
    /// The connection is lost, or an attempt has failed. Reported for each attempt.
    Lost,
    /// The target refuses the disk, or has another disk in its place, with the reason as a
    /// sentence. Reported for each attempt.
    Unusable(Arc<str>),
    /// The target has told how it serves the disk over this path.
    Access(Access),
    /// The connection is lost, and no attempt follows.
    GivenUp,
    /// The disk has changed its size. [`Device::resize`](fabrix_block::Device::resize) reads
    /// the new one.
    Changed,
}

impl Options {
    /// The default options: one queue of 128 entries, no digests, a keep-alive of 5 s. Requests
    /// wait up to 60 s for a connection and 30 s for an answer. Nothing is reported.
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
            control: Arc::new(ControlThread),
            trace: None,
            notify: Arc::new(|_, _| {}),
            watch: Arc::new(|_, _| {}),
        }
    }

    /// Most time that requests wait for a connection.
    pub(crate) fn patience(&self) -> Duration {
        let limits = [self.fast_io_fail, self.ctrl_loss];
        limits.into_iter().flatten().min().unwrap_or(Duration::MAX)
    }

    /// The portals of the local address's IP version, at least one.
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

    /// Checks the options that not every transport has.
    ///
    /// # Errors
    /// `Usage`: the sentence names the option.
    pub(crate) fn check_transport(&self, transport: Transport) -> Result<(), ConnectError> {
        let digests = self.header_digest || self.data_digest;
        if transport == Transport::Rdma && digests {
            let sentence =
                "RDMA has no digests (hdr-digest, data-digest): the device checks what it carries";
            return Err(ConnectError::new(ConnectErrorKind::Usage, sentence));
        }
        Ok(())
    }

    /// Checks the options.
    ///
    /// # Errors
    /// `Usage`: the sentence names the option.
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
