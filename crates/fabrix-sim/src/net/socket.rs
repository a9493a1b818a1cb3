//! The handles that shards hold of ends and listeners.

use std::io;
use std::net::{Shutdown, SocketAddr};

use fabrix_rt::simulated::{SimulatedListener, SimulatedSocket};

use super::end::Stage;
use super::{EndId, Net};

/// A handle of one end of a connection.
#[derive(Debug)]
pub(crate) struct StreamSocket {
    net: Net,
    id: EndId,
}

impl StreamSocket {
    pub(super) fn new(net: &Net, id: EndId) -> Self {
        let net = net.clone();
        Self { net, id }
    }

    /// The end that a socket of this network stands for.
    ///
    /// # Panics
    /// With a socket of another network.
    pub(crate) fn id_of(socket: &dyn SimulatedSocket) -> EndId {
        let socket = socket as &dyn std::any::Any;
        socket
            .downcast_ref::<Self>()
            .expect("a socket of this network")
            .id
    }
}

impl SimulatedSocket for StreamSocket {
    fn shutdown(&self, how: Shutdown) {
        self.net.state().end_stream(self.id, how);
    }

    fn linger_zero(&self) {
        if let Some(end) = self.net.state().ends.get_mut(self.id) {
            end.lingers_zero = true;
        }
    }

    fn peer_addr(&self) -> io::Result<SocketAddr> {
        let state = self.net.state();
        let end = state.ends.get(self.id);
        let connected = end.filter(|end| end.stage == Stage::Connected);
        let remote = connected.and_then(|end| end.remote);
        remote.ok_or_else(|| io::ErrorKind::NotConnected.into())
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        let state = self.net.state();
        let end = state.ends.get(self.id);
        end.map(|end| end.local)
            .ok_or_else(|| io::ErrorKind::NotConnected.into())
    }
}

impl Drop for StreamSocket {
    fn drop(&mut self) {
        let mut state = self.net.state();
        let with_reset = state.ends.get(self.id).is_some_and(|end| end.lingers_zero);
        state.close(self.id, with_reset);
    }
}

/// A handle of a listener.
#[derive(Debug)]
pub(crate) struct ListeningSocket {
    net: Net,
    address: SocketAddr,
}

impl ListeningSocket {
    pub(super) fn new(net: &Net, address: SocketAddr) -> Self {
        let net = net.clone();
        Self { net, address }
    }
}

impl SimulatedListener for ListeningSocket {
    fn local_addr(&self) -> SocketAddr {
        self.address
    }

    fn shutdown(&self) {
        let mut state = self.net.state();
        let mut shard = None;
        if let Some(listening) = state.listeners.get_mut(&self.address) {
            listening.is_shut_down = true;
            shard = Some(listening.shard);
        }
        if let Some(shard) = shard {
            state.wake_shard(shard);
        }
    }
}

impl Drop for ListeningSocket {
    fn drop(&mut self) {
        self.net.state().close_listener(self.address);
    }
}
