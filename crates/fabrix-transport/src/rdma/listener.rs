//! Listeners for RDMA connections.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Weak;

use super::hub::Inner;
use super::manager::CmId;
use super::request::RdmaRequest;

/// A listener. Its requests wait in the hub, and its task is told of them.
pub struct RdmaListener {
    id: Option<CmId>,
    key: usize,
    hub: Weak<RefCell<Inner>>,
}

impl RdmaListener {
    pub(super) fn new(id: CmId, key: usize, hub: Weak<RefCell<Inner>>) -> Self {
        Self {
            id: Some(id),
            key,
            hub,
        }
    }

    /// Address at which it listens.
    #[must_use]
    pub fn local_addr(&self) -> Option<SocketAddr> {
        self.id.as_ref().and_then(CmId::local_addr)
    }

    /// The next request for a connection. None: there is none.
    pub fn take(&mut self) -> Option<RdmaRequest> {
        let hub = self.hub.upgrade()?;
        hub.borrow_mut().next_request(self.key)
    }
}

impl Drop for RdmaListener {
    fn drop(&mut self) {
        // The id goes first: a request that comes meanwhile finds the listener in the hub.
        self.id = None;
        if let Some(hub) = self.hub.upgrade() {
            hub.borrow_mut().forget(self.key);
        }
    }
}
