//! Connections as a shard makes them: by the connection manager of this machine, or in a simulated
//! network.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::time::Duration;

use fabrix_rt::{File, Op, Poller, Shard, Token};
use sys_rdma::{DetachedId, EventChannel, EventKind, Id, Parameters};

use super::simulated::{SimulatedEvent, SimulatedId, SimulatedNetwork};

/// What makes the connections of a shard.
pub(super) enum Manager {
    Verbs {
        channel: EventChannel,
        /// The channel once more, to wait for.
        readable: File,
    },
    Simulated(Rc<dyn SimulatedNetwork>),
}

/// A listener, or one end of a connection.
pub(super) enum CmId {
    Verbs(Id),
    Simulated(Box<dyn SimulatedId>),
}

/// One end of a connection on its way to another shard.
pub(crate) enum DetachedCmId {
    Verbs(DetachedId),
    Simulated(Box<dyn SimulatedId>),
}

/// What the manager tells about an id.
pub(super) enum CmEvent {
    /// A peer asks a listener for a connection.
    Request(CmId, Parameters),
    /// Anything else.
    Other(EventKind),
}

impl Manager {
    /// The connection manager of this machine.
    ///
    /// Errors: what RDMA lacks on this machine, in a sentence.
    pub(super) fn verbs() -> io::Result<Self> {
        let channel = EventChannel::new().map_err(io::Error::other)?;
        let readable = std::fs::File::from(channel.descriptor()?);
        let readable = File::from(readable);
        Ok(Self::Verbs { channel, readable })
    }

    /// Asks for one completion when events have come. A simulated network reports every time.
    pub(super) fn wait(&self, shard: &mut Shard, token: Token) {
        if let Self::Verbs { readable, .. } = self {
            let file = readable.clone();
            shard.start(token, Op::Readable { file });
        }
    }

    /// The reports of a simulated network about events and completions.
    pub(super) fn poller(&self) -> Option<Rc<dyn Poller>> {
        match self {
            Self::Verbs { .. } => None,
            Self::Simulated(network) => Some(Rc::clone(network) as Rc<dyn Poller>),
        }
    }

    /// An id that is nothing yet. Its events carry `key`.
    pub(super) fn id(&self, key: usize) -> io::Result<CmId> {
        Ok(match self {
            Self::Verbs { channel, .. } => CmId::Verbs(Id::new(channel, key)?),
            Self::Simulated(network) => CmId::Simulated(network.id(key)),
        })
    }

    /// Takes over an id of another shard.
    pub(super) fn attach(&self, id: DetachedCmId, key: usize) -> io::Result<CmId> {
        match (self, id) {
            (Self::Verbs { channel, .. }, DetachedCmId::Verbs(id)) => {
                Ok(CmId::Verbs(id.attach(channel, key)?))
            }
            (Self::Simulated(network), DetachedCmId::Simulated(id)) => {
                network.attach(&*id, key);
                Ok(CmId::Simulated(id))
            }
            _ => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// The channel of the connection manager, for ids that watch devices.
    pub(super) fn channel(&self) -> io::Result<&EventChannel> {
        match self {
            Self::Verbs { channel, .. } => Ok(channel),
            Self::Simulated(_) => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// The next event, with the key of its id.
    pub(super) fn next_event(&self) -> io::Result<Option<(usize, CmEvent)>> {
        Ok(match self {
            Self::Verbs { channel, .. } => channel.take()?.map(|event| match event.kind {
                EventKind::ConnectRequest(id, parameters) => {
                    (event.key, CmEvent::Request(CmId::Verbs(id), parameters))
                }
                kind => (event.key, CmEvent::Other(kind)),
            }),
            Self::Simulated(network) => network.next_event().map(|(key, event)| match event {
                SimulatedEvent::Request(id, parameters) => {
                    (key, CmEvent::Request(CmId::Simulated(id), parameters))
                }
                SimulatedEvent::Other(kind) => (key, CmEvent::Other(kind)),
            }),
        })
    }

    /// Key of a simulated connection that has completions to take.
    pub(super) fn next_ready(&self) -> Option<usize> {
        match self {
            Self::Verbs { .. } => None,
            Self::Simulated(network) => network.next_ready(),
        }
    }
}

impl CmId {
    pub(super) fn listen(&self, address: SocketAddr, backlog: u16) -> io::Result<()> {
        match self {
            // The kernel would let it listen, but nobody could connect.
            Self::Verbs(_) if address.ip().is_loopback() => {
                let sentence = "RDMA does not run over loopback; use the address of an RDMA device: see \
                                `fabrix doctor`";
                Err(io::Error::new(io::ErrorKind::Unsupported, sentence))
            }
            Self::Verbs(id) => id.listen(address, backlog),
            Self::Simulated(id) => id.listen(address),
        }
    }

    pub(super) fn resolve(
        &self,
        to: SocketAddr,
        from: Option<IpAddr>,
        timeout: Duration,
    ) -> io::Result<()> {
        match self {
            Self::Verbs(id) => id.resolve(to, from, timeout),
            Self::Simulated(id) => {
                id.resolve(to, from);
                Ok(())
            }
        }
    }

    pub(super) fn resolve_route(&self, timeout: Duration) -> io::Result<()> {
        match self {
            Self::Verbs(id) => id.resolve_route(timeout),
            Self::Simulated(id) => {
                id.resolve_route();
                Ok(())
            }
        }
    }

    pub(super) fn reject(self, private_data: &[u8]) -> io::Result<()> {
        match self {
            Self::Verbs(id) => id.reject(private_data),
            Self::Simulated(id) => {
                id.reject(private_data);
                Ok(())
            }
        }
    }

    pub(super) fn local_addr(&self) -> Option<SocketAddr> {
        match self {
            Self::Verbs(id) => id.local_addr(),
            Self::Simulated(id) => id.local_addr(),
        }
    }

    pub(super) fn peer_addr(&self) -> Option<SocketAddr> {
        match self {
            Self::Verbs(id) => id.peer_addr(),
            Self::Simulated(id) => id.peer_addr(),
        }
    }

    pub(super) fn detach(self) -> DetachedCmId {
        match self {
            Self::Verbs(id) => DetachedCmId::Verbs(id.detach()),
            Self::Simulated(id) => DetachedCmId::Simulated(id),
        }
    }
}
