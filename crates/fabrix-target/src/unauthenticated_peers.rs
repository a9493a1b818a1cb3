//! How many connections of each address have not said yet who they are.
//!
//! Connections are limited, and one that says nothing keeps its place until its time is over. So
//! that one address cannot take all places in this way, it may have only so many such connections
//! at once. Knows addresses and counts; touched when a connection comes and when it has said who it
//! is, never for an I/O.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};

use crate::lock::lock;

/// The unauthenticated_peers of a target.
#[derive(Debug)]
pub(crate) struct UnauthenticatedPeers {
    /// Only addresses that have some: as many entries as connections at most.
    counts: Mutex<HashMap<IpAddr, usize>>,
    most: usize,
}

/// One connection that has not said who it is. Dropped when it has, or when it is over.
#[derive(Debug)]
pub(crate) struct UnauthenticatedPeer {
    unauthenticated_peers: Arc<UnauthenticatedPeers>,
    origin: IpAddr,
}

impl UnauthenticatedPeers {
    /// At most so many of one address.
    pub(crate) fn new(most: usize) -> Arc<Self> {
        Arc::new(Self {
            counts: Mutex::default(),
            most,
        })
    }

    /// A connection has come from `address`; nothing: there are enough that say nothing.
    pub(crate) fn meet(self: &Arc<Self>, address: IpAddr) -> Option<UnauthenticatedPeer> {
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

/// Whose address it is: of IPv6 the network of 64 bits, for whoever has one address there has them
/// all.
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
            .meet(ip("192.0.2.1"))
            .expect("the first");
        let two = unauthenticated_peers
            .meet(ip("::ffff:192.0.2.1"))
            .expect("the second");
        assert!(unauthenticated_peers.meet(ip("192.0.2.1")).is_none());
        assert!(unauthenticated_peers.meet(ip("192.0.2.2")).is_some());
        drop(one);
        assert!(unauthenticated_peers.meet(ip("192.0.2.1")).is_some());
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
            .meet(ip("2001:db8::1"))
            .expect("the first");
        assert!(unauthenticated_peers.meet(ip("2001:db8::ffff:2")).is_none());
        assert!(unauthenticated_peers.meet(ip("2001:db8:0:1::1")).is_some());
    }
}
