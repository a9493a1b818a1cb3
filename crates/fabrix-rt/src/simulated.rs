//! Sockets of a simulated network, which a simulator's driver makes in place of the kernel's.
//!
//! A [`Socket`](crate::Socket) or [`Listener`](crate::Listener) over one of them behaves like one
//! over a descriptor: clones are cheap, and dropping the last one closes it. Only drivers of the
//! simulator may carry out its operations.

use std::any::Any;
use std::fmt::Debug;
use std::io;
use std::net::{Shutdown, SocketAddr};

/// One end of a simulated connection, or a socket to be connected. Dropping it closes it.
pub trait SimulatedSocket: Any + Debug + Send + Sync {
    /// Ends one direction or both, as shutdown(2).
    fn shutdown(&self, how: Shutdown);

    /// Makes the close reset the connection and drop the queued bytes (SO_LINGER with zero).
    fn linger_zero(&self);

    /// Address of the peer.
    ///
    /// Errors: `NotConnected`.
    fn peer_addr(&self) -> io::Result<SocketAddr>;

    /// Address of this end.
    ///
    /// Errors: `NotConnected`.
    fn local_addr(&self) -> io::Result<SocketAddr>;
}

/// A listening socket of a simulated network. Dropping it closes it.
pub trait SimulatedListener: Any + Debug + Send + Sync {
    /// The address, with the port that the network has chosen.
    fn local_addr(&self) -> SocketAddr;

    /// Stops listening. A waiting accept ends with an error.
    fn shutdown(&self);
}
