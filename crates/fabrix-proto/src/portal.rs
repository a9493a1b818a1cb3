//! Addresses at which a target listens, and the address that a peer is told.
//!
//! The discovery log of NVMe and SendTargets of iSCSI both use this code, so that they report the
//! same addresses.

use core::net::{IpAddr, Ipv6Addr, SocketAddr};

/// An address at which a target listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Portal {
    /// The address of the socket; a wildcard (`0.0.0.0`, `::`) takes connections at every address
    /// of the machine.
    pub address: SocketAddr,
    /// Address that peers are told instead, for a network with address translation.
    pub announced: Option<SocketAddr>,
}

impl Portal {
    /// The address of this portal for a peer that is connected to this machine's address `here`.
    /// None: that peer cannot connect to this portal, or only a guess could say how.
    ///
    /// - An announced address is told to everybody.
    /// - A wildcard is told as `here`, if it takes addresses of that kind: `::` takes IPv4 too.
    /// - A loopback address is told to peers that are on this machine themselves.
    /// - A link-local address is told to peers on the same link. Their name of the link is their
    ///   own, so the zone is left out.
    #[must_use]
    pub fn seen_from(&self, here: SocketAddr) -> Option<SocketAddr> {
        if self.announced.is_some() {
            return self.announced;
        }
        let (address, here) = (canonical(self.address), canonical(here));
        let ip = address.ip();
        let (works, told) = match ip {
            _ if ip.is_unspecified() => (ip.is_ipv6() || here.is_ipv4(), here.ip()),
            _ if ip.is_loopback() => (here.ip().is_loopback(), ip),
            _ if is_link_local(ip) => (zone(here) == zone(address), ip),
            _ => (true, ip),
        };
        works.then(|| SocketAddr::new(told, address.port()))
    }

    /// Whether a socket at this portal takes all that a socket at `other` would take, so that there
    /// cannot be both.
    #[must_use]
    pub fn covers(&self, other: &Self) -> bool {
        let (ours, theirs) = (canonical(self.address), canonical(other.address));
        let is_wider = ours.ip().is_unspecified() && (ours.is_ipv6() || theirs.is_ipv4());
        let is_same = ours.ip() == theirs.ip() && zone(ours) == zone(theirs);
        ours.port() == theirs.port() && ours.port() != 0 && (is_same || is_wider)
    }
}

/// An IPv4 address that an IPv6 socket has written as its own (`::ffff:192.0.2.1`), as IPv4; others
/// stay as they are.
#[must_use]
pub fn canonical(address: SocketAddr) -> SocketAddr {
    match address.ip().to_canonical() {
        ip @ IpAddr::V4(_) => SocketAddr::new(ip, address.port()),
        IpAddr::V6(_) => address,
    }
}

/// Whether the address is valid only on one link.
#[must_use]
pub fn is_link_local(ip: IpAddr) -> bool {
    matches!(ip, IpAddr::V6(ip) if Ipv6Addr::is_unicast_link_local(&ip))
}

/// Zone of the address: the link that it belongs to. 0: no particular link.
#[must_use]
pub fn zone(address: SocketAddr) -> u32 {
    match address {
        SocketAddr::V6(address) => address.scope_id(),
        SocketAddr::V4(_) => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> SocketAddr {
        text.parse().expect("an address")
    }

    fn portal(text: &str) -> Portal {
        Portal {
            address: address(text),
            announced: None,
        }
    }

    #[track_caller]
    fn check(listens: &str, here: &str, told: Option<&str>) {
        let seen = portal(listens).seen_from(address(here));
        assert_eq!(seen, told.map(address), "{listens} from {here}");
    }

    #[test]
    fn a_wildcard_is_told_as_the_address_that_was_asked_at() {
        check("0.0.0.0:1", "192.0.2.1:9", Some("192.0.2.1:1"));
        check("[::]:1", "[2001:db8::1]:9", Some("[2001:db8::1]:1"));
        check("[::]:1", "192.0.2.1:9", Some("192.0.2.1:1"));
        check("[::]:1", "[::ffff:192.0.2.1]:9", Some("192.0.2.1:1"));
        check("0.0.0.0:1", "[::ffff:192.0.2.1]:9", Some("192.0.2.1:1"));
        check("[::]:1", "[fe80::1%3]:9", Some("[fe80::1]:1"));
    }

    #[test]
    fn an_address_that_cannot_work_is_told_to_nobody() {
        check("0.0.0.0:1", "[::1]:9", None);
        check("127.0.0.1:1", "192.0.2.1:9", None);
        check("127.0.0.1:1", "[::1]:9", Some("127.0.0.1:1"));
        check("[::1]:1", "127.0.0.1:9", Some("[::1]:1"));
        check("[fe80::1%3]:1", "[2001:db8::1]:9", None);
        check("[fe80::1%3]:1", "[fe80::1%4]:9", None);
        check("[fe80::1%3]:1", "[fe80::1%3]:9", Some("[fe80::1]:1"));
        check("192.0.2.2:1", "192.0.2.1:9", Some("192.0.2.2:1"));
    }

    #[test]
    fn an_announced_address_is_told_to_everybody() {
        let outside = address("198.51.100.7:14420");
        let portal = Portal {
            announced: Some(outside),
            ..portal("0.0.0.0:4420")
        };
        for here in ["127.0.0.1:4420", "[::1]:4420", "192.0.2.1:4420"] {
            assert_eq!(portal.seen_from(address(here)), Some(outside));
        }
    }

    #[test]
    fn a_wildcard_covers_what_it_takes() {
        let covers = |one, other| portal(one).covers(&portal(other));
        assert!(covers("[::]:1", "0.0.0.0:1") && !covers("0.0.0.0:1", "[::]:1"));
        assert!(covers("[::]:1", "127.0.0.1:1") && covers("0.0.0.0:1", "127.0.0.1:1"));
        assert!(covers("127.0.0.1:1", "127.0.0.1:1") && !covers("127.0.0.1:1", "127.0.0.1:2"));
        assert!(!covers("[fe80::1%3]:1", "[fe80::1%4]:1"));
        assert!(!covers("[::]:0", "[::]:0"), "the system chooses two ports");
    }
}
