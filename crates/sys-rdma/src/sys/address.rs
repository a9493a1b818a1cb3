//! Addresses in the form of C (`struct sockaddr_storage`).

use std::mem;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::ptr;

/// The form of C.
pub(super) fn storage(address: SocketAddr) -> libc::sockaddr_storage {
    // SAFETY: a sockaddr_storage is numbers; zero is valid for all of them.
    // WHY UNSAFE: its padding is private, so it cannot be written as a literal.
    let mut storage: libc::sockaddr_storage = unsafe { mem::zeroed() };
    let place = &raw mut storage;
    match address {
        SocketAddr::V4(address) => {
            let v4 = libc::sockaddr_in {
                sin_family: AF_INET,
                sin_port: address.port().to_be(),
                sin_addr: libc::in_addr {
                    s_addr: u32::from_ne_bytes(address.ip().octets()),
                },
                sin_zero: [0; 8],
            };
            // SAFETY: a sockaddr_storage has room and alignment for every address.
            // WHY UNSAFE: the union of C's socket addresses.
            unsafe { place.cast::<libc::sockaddr_in>().write(v4) }
        }
        SocketAddr::V6(address) => {
            let v6 = libc::sockaddr_in6 {
                sin6_family: AF_INET6,
                sin6_port: address.port().to_be(),
                sin6_flowinfo: address.flowinfo(),
                sin6_addr: libc::in6_addr {
                    s6_addr: address.ip().octets(),
                },
                sin6_scope_id: address.scope_id(),
            };
            // SAFETY: as above.
            // WHY UNSAFE: as above.
            unsafe { place.cast::<libc::sockaddr_in6>().write(v6) }
        }
    }
    storage
}

/// None: no address yet, or one of another family.
pub(super) fn address(storage: &libc::sockaddr_storage) -> Option<SocketAddr> {
    let place = ptr::from_ref(storage);
    match libc::c_int::from(storage.ss_family) {
        libc::AF_INET => {
            // SAFETY: the family says which address it is, and the storage is large enough.
            // WHY UNSAFE: the union of C's socket addresses.
            let v4 = unsafe { place.cast::<libc::sockaddr_in>().read() };
            let ip = Ipv4Addr::from(v4.sin_addr.s_addr.to_ne_bytes());
            Some(SocketAddrV4::new(ip, u16::from_be(v4.sin_port)).into())
        }
        libc::AF_INET6 => {
            // SAFETY: as above.
            // WHY UNSAFE: as above.
            let v6 = unsafe { place.cast::<libc::sockaddr_in6>().read() };
            let ip = Ipv6Addr::from(v6.sin6_addr.s6_addr);
            let port = u16::from_be(v6.sin6_port);
            Some(SocketAddrV6::new(ip, port, v6.sin6_flowinfo, v6.sin6_scope_id).into())
        }
        _ => None,
    }
}

/// Address families, in the width of an address.
#[expect(clippy::cast_possible_truncation, reason = "families are small")]
const AF_INET: libc::sa_family_t = libc::AF_INET as libc::sa_family_t;
#[expect(clippy::cast_possible_truncation, reason = "families are small")]
const AF_INET6: libc::sa_family_t = libc::AF_INET6 as libc::sa_family_t;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_survive_the_form_of_c() {
        for text in ["10.8.0.1:7174", "[fe80::1%3]:4420", "[::]:0"] {
            let given: SocketAddr = text.parse().expect("an address");
            assert_eq!(address(&storage(given)), Some(given));
        }
        // SAFETY: as in `storage`.
        // WHY UNSAFE: as in `storage`.
        assert_eq!(address(&unsafe { mem::zeroed() }), None);
    }
}
