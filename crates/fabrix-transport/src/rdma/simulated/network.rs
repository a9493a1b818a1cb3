//! What a simulated network does for the hub of a shard: ids, their events, and the work of queue
//! pairs in memory.

use std::io;
use std::net::{IpAddr, SocketAddr};

use fabrix_rt::Poller;
use sys_rdma::{EventKind, Limits, Parameters};

use super::SimulatedPair;

/// The network as one shard sees it. It is ready when there are events or completions.
pub trait SimulatedNetwork: Poller {
    /// An id that is nothing yet. Its events carry `key`.
    fn id(&self, key: usize) -> Box<dyn SimulatedId>;

    /// The id belongs to this shard from now on, and its events carry `key`.
    fn attach(&self, id: &dyn SimulatedId, key: usize);

    /// The next event, with the key of its id.
    fn next_event(&self) -> Option<(usize, SimulatedEvent)>;

    /// Key of a connection that has completions to take.
    fn next_ready(&self) -> Option<usize>;
}

/// What a simulated network tells about an id.
pub enum SimulatedEvent {
    /// A peer asks a listener for a connection.
    Request(Box<dyn SimulatedId>, Parameters),
    /// Anything else.
    Other(EventKind),
}

/// A listener or one end of a connection in a simulated network. Dropping it ends it.
/// [`sys_rdma::Id`] and [`sys_rdma::QueuePair`] say what each method means.
pub trait SimulatedId: Send + Sync {
    /// Number of the id in its network.
    fn number(&self) -> u64;

    /// Listens at an address.
    ///
    /// # Errors
    /// The port is in use, or the device is gone.
    fn listen(&self, address: SocketAddr) -> io::Result<()>;

    /// Resolves the address of a peer.
    fn resolve(&self, to: SocketAddr, from: Option<IpAddr>);

    /// Resolves the route.
    fn resolve_route(&self);

    /// Refuses the peer.
    fn reject(&self, private_data: &[u8]);

    /// Address of this end.
    fn local_addr(&self) -> Option<SocketAddr>;

    /// Address of the peer.
    fn peer_addr(&self) -> Option<SocketAddr>;

    /// What the device can do.
    fn limits(&self) -> Limits;

    /// The network carries out the work of this queue pair from now on.
    fn has_pair(&self, pair: &SimulatedPair);

    /// Asks the peer for the connection.
    fn connect(&self, parameters: &Parameters);

    /// Accepts the connection.
    fn accept(&self, parameters: &Parameters);

    /// Work was handed to the device.
    fn posted(&self);

    /// This end ends the connection. Its queue pair has failed already.
    fn disconnect(&self);
}
