//! Limits, listeners and deadlines of a target, and why it does not start or change: plain values,
//! and the sentences of its errors. What is exported is not known here.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use fabrix_proto::nvme::ana::AnaListener;
use fabrix_proto::nvme::subsystem::Transport;
use fabrix_proto::portal::Portal;

use crate::nvme::DISCOVERY_PORT;

/// The limits of one controller, queue or command. They bound the memory of a connection. Hosts
/// read them once when they connect, so they do not change.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Most I/O queues of a controller.
    pub max_io_queues: u16,
    /// Most entries of a queue.
    pub max_queue_entries: u16,
    /// Most data of one command in bytes. A disk with a smaller limit cannot be an NVMe namespace.
    pub max_transfer_bytes: u32,
}

/// The protocol of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Protocol {
    /// NVMe/TCP.
    NvmeTcp,
    /// NVMe/RDMA.
    NvmeRdma,
    /// iSCSI over TCP.
    Iscsi,
    /// iSCSI over RDMA (iSER).
    Iser,
}

impl Protocol {
    /// Whether NVMe hosts connect by this protocol.
    #[must_use]
    pub const fn is_nvme(self) -> bool {
        matches!(self, Self::NvmeTcp | Self::NvmeRdma)
    }

    /// Whether the ports of this protocol are those of the RDMA connection manager, which are apart
    /// from those of TCP.
    #[must_use]
    pub const fn is_rdma(self) -> bool {
        matches!(self, Self::NvmeRdma | Self::Iser)
    }
}

/// A listener: its protocol and address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listen {
    /// Protocol of the listener.
    pub protocol: Protocol,
    /// The address to bind, and the address to announce to hosts. Port 0 lets the system choose. An
    /// announced port 0 becomes the chosen one.
    pub portal: Portal,
}

impl Listen {
    /// For hosts.
    #[must_use]
    pub const fn nvme_tcp(address: SocketAddr) -> Self {
        Self::at(Protocol::NvmeTcp, address)
    }

    /// For hosts, over RDMA.
    #[must_use]
    pub const fn nvme_rdma(address: SocketAddr) -> Self {
        Self::at(Protocol::NvmeRdma, address)
    }

    /// For initiators.
    #[must_use]
    pub const fn iscsi(address: SocketAddr) -> Self {
        Self::at(Protocol::Iscsi, address)
    }

    /// For initiators, over RDMA.
    #[must_use]
    pub const fn iser(address: SocketAddr) -> Self {
        Self::at(Protocol::Iser, address)
    }

    const fn at(protocol: Protocol, address: SocketAddr) -> Self {
        let portal = Portal {
            address,
            announced: None,
        };
        Self { protocol, portal }
    }

    /// The name of the listener in states of ANA groups. iSCSI over TCP and over RDMA at one
    /// address are one portal group, so they have one state, under the name of TCP.
    #[must_use]
    pub const fn ana_listener(&self) -> AnaListener {
        let transport = match self.protocol {
            Protocol::NvmeRdma => Transport::Rdma,
            Protocol::NvmeTcp | Protocol::Iscsi | Protocol::Iser => Transport::Tcp,
        };
        (transport, self.portal.address)
    }

    /// Whether ANA groups have a state at the listener: hosts or initiators reach disks there.
    #[must_use]
    pub const fn has_ana_states(&self) -> bool {
        !self.protocol.is_nvme() || self.serves_namespaces()
    }

    /// Whether NVMe hosts reach disks there.
    pub(crate) const fn serves_namespaces(&self) -> bool {
        self.protocol.is_nvme() && self.portal.address.port() != DISCOVERY_PORT
    }

    /// The same listener with the port that the system has chosen.
    pub(crate) fn bound(self, address: SocketAddr) -> Self {
        let mut announced = self.portal.announced;
        if let Some(announced) = announced.as_mut().filter(|it| it.port() == 0) {
            announced.set_port(address.port());
        }
        let portal = Portal { address, announced };
        Self { portal, ..self }
    }

    /// The reason why sockets for `self` and `other` cannot exist side by side. `None`: they can.
    pub(crate) fn conflict(&self, other: &Self) -> Option<String> {
        if self.protocol.is_rdma() != other.protocol.is_rdma() {
            return None;
        }
        let (address, taken) = (self.portal.address, other.portal.address);
        if !other.portal.covers(&self.portal) {
            let is_reverse = self.portal.covers(&other.portal);
            return is_reverse.then(|| already_covers(address, taken));
        }
        Some(if address != taken {
            already_covers(taken, address)
        } else if self.protocol == other.protocol {
            format!("{address} is listened on twice; say it once")
        } else {
            format!("{address} cannot be for NVMe and for iSCSI; give one of them another port")
        })
    }
}

fn already_covers(wide: SocketAddr, narrow: SocketAddr) -> String {
    format!("{wide} already covers {narrow}; leave out one of them, or give it another port")
}

/// Checks that a socket for `new` can exist beside those for `others`.
pub(crate) fn check_free(others: &[Listen], new: &Listen) -> Result<(), String> {
    let conflict = others.iter().find_map(|other| new.conflict(other));
    conflict.map_or(Ok(()), Err)
}

/// Deadlines of hosts and disks. The defaults suit a network.
#[derive(Clone, Copy, Debug)]
pub struct Deadlines {
    /// Time from accept to a successful Connect or login.
    pub connect: Duration,
    /// Time for the peer's part at the end: reading the last PDU, or during a drain sending data
    /// and reading answers.
    pub parting: Duration,
    /// Time in which a disk has to end requests whose commands were aborted, or whose connection
    /// has ended. Then they are abandoned: the abort is answered, and the disk gets no new request
    /// before it has ended them.
    pub quiet: Duration,
}

impl Default for Deadlines {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(10),
            parting: Duration::from_secs(2),
            quiet: Duration::from_secs(3),
        }
    }
}

/// The error of starting a target, or of changing its catalog.
#[derive(Debug)]
pub enum TargetError {
    /// The catalog is invalid: a sentence that says why. Nothing has changed.
    Refused(String),
    /// The target cannot listen on an address. Nothing has changed.
    Listen(Listen, io::Error),
    /// The state of an ANA group is set, but commands that came before it are still at a disk.
    NotDrained,
    /// A shard has stopped. Nothing has changed.
    Stopped,
    /// A shard has not answered in time. The change is in force. The late shard serves it as soon
    /// as it takes an order or a connection. Its hosts learn of it then, or with the next change.
    Late,
}

/// Why the target cannot listen on an address. A port of RDMA is another one than that of TCP.
fn not_listening(f: &mut fmt::Formatter<'_>, listen: &Listen, error: &io::Error) -> fmt::Result {
    let address = listen.portal.address;
    let place = match listen.protocol.is_rdma() {
        true => format!("{address} over RDMA"),
        false => address.to_string(),
    };
    match error.kind() {
        io::ErrorKind::AddrInUse => write!(
            f,
            "{place} is in use by another program; choose another port with --listen"
        ),
        io::ErrorKind::PermissionDenied => write!(
            f,
            "no permission to listen on {place}; ports below 1024 need a privilege"
        ),
        io::ErrorKind::AddrNotAvailable => {
            write!(f, "{address} is not an address of this machine")
        }
        _ => write!(f, "cannot listen on {place}: {error}"),
    }
}

impl fmt::Display for TargetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Listen(listen, error) => not_listening(f, listen, error),
            Self::Refused(sentence) => f.write_str(sentence),
            Self::NotDrained => f.write_str(
                "the state is set, but a disk has not ended the commands that came before: another target must not \
                 serve the group yet",
            ),
            Self::Stopped => f.write_str("a shard of the data path has stopped"),
            Self::Late => f.write_str(
                "a shard of the data path has not answered: the change is made, and hosts may be told later",
            ),
        }
    }
}

impl std::error::Error for TargetError {}
