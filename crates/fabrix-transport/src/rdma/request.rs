//! A request of a peer for a connection.

use std::io;
use std::net::SocketAddr;

use sys_rdma::Parameters;

use super::manager::{CmId, DetachedCmId};

/// A request at a listener. Dropping it refuses the peer.
pub struct RdmaRequest {
    id: CmId,
    parameters: Parameters,
}

/// A request on its way to the shard that answers it.
pub struct DetachedRequest {
    pub(crate) id: DetachedCmId,
    pub(crate) parameters: Parameters,
}

impl RdmaRequest {
    pub(super) fn new(id: CmId, parameters: Parameters) -> Self {
        Self { id, parameters }
    }

    /// Address of the peer.
    #[must_use]
    pub fn peer_addr(&self) -> Option<SocketAddr> {
        self.id.peer_addr()
    }

    /// What the peer has said. Zeroes may follow.
    #[must_use]
    pub fn private_data(&self) -> &[u8] {
        &self.parameters.private_data
    }

    /// RDMA READs that the peer answers at the same time.
    #[must_use]
    pub fn reads(&self) -> u8 {
        self.parameters.initiator_depth
    }

    /// Refuses the peer, with private data that says why.
    ///
    /// # Errors
    /// What the connection manager says: the peer may be gone.
    pub fn reject(self, private_data: &[u8]) -> io::Result<()> {
        self.id.reject(private_data)
    }

    /// The request without its thread.
    #[must_use]
    pub fn detach(self) -> DetachedRequest {
        DetachedRequest {
            id: self.id.detach(),
            parameters: self.parameters,
        }
    }
}
