//! A limit of unauthenticated connections for each address.
//!
//! The number of connections is limited, and a silent connection stays until its deadline. The
//! limit keeps one address from using up all connections. It is checked when a connection begins,
//! authenticates or ends, never for an I/O.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};

use crate::lock::lock;

/// The unauthenticated peers of a target.
#[derive(Debug)]
pub(crate) struct UnauthenticatedPeers {
    /// Counts of the addresses that have unauthenticated connections. At most one entry per
    /// connection.
    counts: Mutex<BTreeMap<IpAddr, usize>>,
    most: usize,
}

/// The share of one unauthenticated connection. It is dropped when the connection authenticates or
/// ends.
#[derive(Debug)]
pub(crate) struct UnauthenticatedPeer {
    unauthenticated_peers: Arc<UnauthenticatedPeers>,
    origin: IpAddr,
}

impl UnauthenticatedPeers {
    /// A limit of `most` connections for each address.
    pub(crate) fn new(most: usize) -> Arc<Self> {
        Arc::new(Self {
            counts: Mutex::default(),
            most,
        })
    }

    /// Counts a connection from `address`. None: the address is at its limit.
    pub(crate) fn admit(self: &Arc<Self>, address: IpAddr) -> Option<UnauthenticatedPeer> {
        let origin = origin(address);
        let mut counts = lock(&self.counts);
        let count = counts.entry(origin).or_default();
        if *count >= self.most {
            return None;
        }
        *count += 1;
        drop(counts);
        let unauthenticated_peers = Arc::clone(self);
        Some(UnauthenticatedPeer {
            unauthenticated_peers,
            origin,
        })
    }
}

impl Drop for UnauthenticatedPeer {
    fn drop(&mut self) {
        let mut counts = lock(&self.unauthenticated_peers.counts);
        if let Some(count) = counts.get_mut(&self.origin) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.origin);
            }
        }
    }
}

/// The origin of an address, for the limit. For IPv6 it is the network of 64 bits, because a peer
/// with one address there has them all.
#[must_use]
pub fn origin(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => address.into(),
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            [a, b, c, d, 0, 0, 0, 0].into()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn each_address_has_its_own_places_and_gets_them_back() {
        let unauthenticated_peers = UnauthenticatedPeers::new(2);
        let one = unauthenticated_peers
            .admit(ip("192.0.2.1"))
            .expect("the first");
        let two = unauthenticated_peers
            .admit(ip("::ffff:192.0.2.1"))
            .expect("the second");
        assert!(unauthenticated_peers.admit(ip("192.0.2.1")).is_none());
        assert!(unauthenticated_peers.admit(ip("192.0.2.2")).is_some());
        drop(one);
        assert!(unauthenticated_peers.admit(ip("192.0.2.1")).is_some());
        drop(two);
        assert!(
            lock(&unauthenticated_peers.counts).is_empty(),
            "nothing is remembered"
        );
    }

    #[test]
    fn a_network_of_ipv6_counts_as_one() {
        let unauthenticated_peers = UnauthenticatedPeers::new(1);
        let _one = unauthenticated_peers
            .admit(ip("2001:db8::1"))
            .expect("the first");
        assert!(
            unauthenticated_peers
                .admit(ip("2001:db8::ffff:2"))
                .is_none()
        );
        assert!(unauthenticated_peers.admit(ip("2001:db8:0:1::1")).is_some());
    }
}
