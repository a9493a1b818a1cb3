//! Peers on this machine, and a fault of its kernel that ends threads which receive from them.
//!
//! The NVMe/TCP host of Linux sends the pages of its users by reference. Over loopback the receiver
//! copies out of these very pages. Before Linux 6.5 two large pages that lie side by side in memory
//! travel as one piece. From Linux 5.18 on, the check of copies to user memory
//! (CONFIG_HARDENED_USERCOPY) takes a copy across their border for a leak: "usercopy: Kernel memory
//! exposure attempt detected". The kernel then ends the thread that receives. The iSCSI initiator
//! of the same kernels sends page by page.
//!
//! A piece never reaches beyond the data of one PDU, because the next PDU's header comes from other
//! memory. Data that fit a page, and lie in one, cross no border.
//!
//! Source: mm/usercopy.c, net/core/datagram.c and net/ipv4/tcp.c of the Linux kernel.

use std::net::{IpAddr, UdpSocket};
use std::sync::LazyLock;

use crate::Socket;
use crate::engine::parse_kernel;

/// Most data that the peer of a socket should send in one PDU, in bytes. `u32::MAX`: there is no
/// limit. The socket of a simulated network has none, whatever the machine.
pub fn most_pdu_bytes(socket: &Socket, peer: IpAddr) -> u32 {
    if socket.simulated().is_none() && ends_receivers() && is_local(peer) {
        PAGE_BYTES
    } else {
        u32::MAX
    }
}

/// Whether this kernel ends threads that receive long pieces from a host on this machine.
pub fn ends_receivers() -> bool {
    *ENDS_RECEIVERS
}

static ENDS_RECEIVERS: LazyLock<bool> = LazyLock::new(|| {
    let text = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    has_fault(&text("/proc/sys/kernel/osrelease"), &text("/proc/cmdline"))
});

fn has_fault(release: &str, command_line: &str) -> bool {
    let mut words = command_line.split_ascii_whitespace();
    let unchecked = words.any(|word| UNCHECKED.contains(&word));
    (CHECKS_LARGE_PAGES..SENDS_PAGE_BY_PAGE).contains(&parse_kernel(release)) && !unchecked
}

/// Whether an address belongs to this machine: only such an address can be bound.
fn is_local(address: IpAddr) -> bool {
    let address = address.to_canonical();
    address.is_loopback() || UdpSocket::bind((address, 0)).is_ok()
}

const PAGE_BYTES: u32 = 4096;
const CHECKS_LARGE_PAGES: (u32, u32) = (5, 18);
const SENDS_PAGE_BY_PAGE: (u32, u32) = (6, 5);
/// Words of the kernel's command line that switch the check off.
const UNCHECKED: [&str; 3] = [
    "hardened_usercopy=off",
    "hardened_usercopy=0",
    "hardened_usercopy=n",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_with_the_fault_are_known_by_their_release_unless_the_check_is_off() {
        let quiet = "BOOT_IMAGE=/vmlinuz quiet";
        for (release, expected) in [
            ("5.15.0-100-generic", false),
            ("5.18.0", true),
            ("6.1.0-56-amd64", true),
            ("6.4.16", true),
            ("6.5.0", false),
            ("6.12.95+deb12-amd64", false),
            ("", false),
        ] {
            assert_eq!(has_fault(release, quiet), expected, "{release}");
        }
        assert!(!has_fault("6.1.0", "quiet hardened_usercopy=off"));
        assert!(has_fault("6.1.0", "hardened_usercopy=on"));
    }

    #[test]
    fn addresses_of_this_machine_are_local_and_others_are_not() {
        for (address, expected) in [
            ("127.0.0.1", true),
            ("127.9.9.9", true),
            ("::1", true),
            ("::ffff:127.0.0.1", true),
            ("192.0.2.1", false),
            ("2001:db8::1", false),
        ] {
            let address: IpAddr = address.parse().expect("an address");
            assert_eq!(is_local(address), expected, "{address}");
        }
    }
}
