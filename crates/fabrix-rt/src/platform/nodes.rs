//! Nodes of memory (NUMA): how far the calling thread's CPU is from a network card.
//!
//! Reads files of the kernel only: `/proc/net/route`, `/proc/net/ipv6_route`, and the folders of
//! CPUs, nodes and network interfaces in `/sys`.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};

/// Distance within a node, and distance where the kernel does not tell one. Source: ACPI 6.5,
/// section 5.2.17 (SLIT).
pub const LOCAL_DISTANCE: u8 = 10;

/// Distance from the CPU on which the calling thread runs now to the card over which it reaches an
/// address. `from` is the address that a connection is bound to. Policy routing is not seen.
///
/// [`LOCAL_DISTANCE`] if the kernel does not tell the card or its node.
#[must_use]
pub fn distance_to_card(to: IpAddr, from: Option<IpAddr>) -> u8 {
    Files::of(Path::new("/")).distance_to_card(to, from)
}

/// The files of the kernel.
struct Files {
    proc: PathBuf,
    sys: PathBuf,
}

impl Files {
    /// `/proc` and `/sys` below a folder.
    fn of(root: &Path) -> Self {
        Self {
            proc: root.join("proc"),
            sys: root.join("sys"),
        }
    }

    fn distance_to_card(&self, to: IpAddr, from: Option<IpAddr>) -> u8 {
        let address = from.unwrap_or(to);
        let card = || self.node_of_card(&self.interface_to(address)?, MOST_LAYERS);
        let here = || self.node_of_cpu(self.cpu()?);
        let distance = || self.distance(here()?, card()?);
        distance().unwrap_or(LOCAL_DISTANCE)
    }

    /// The CPU on which this thread was when the kernel wrote the file. Source: proc(5), field 39
    /// of `/proc/PID/stat`.
    fn cpu(&self) -> Option<usize> {
        let stat = fs::read_to_string(self.proc.join("thread-self/stat")).ok()?;
        let (_, behind_name) = stat.rsplit_once(") ")?;
        behind_name.split(' ').nth(39 - 3)?.trim().parse().ok()
    }

    fn node_of_cpu(&self, cpu: usize) -> Option<u32> {
        let folder = self.sys.join(format!("devices/system/cpu/cpu{cpu}"));
        let nodes = numbered(&folder, "node");
        nodes.first().copied()
    }

    /// The node of an interface's card. An interface on top of others, as a bond or a VLAN, is
    /// where the first of them is.
    fn node_of_card(&self, interface: &str, layers: usize) -> Option<u32> {
        let folder = self.sys.join("class/net").join(interface);
        if let Ok(node) = fs::read_to_string(folder.join("device/numa_node")) {
            // -1: the firmware does not tell.
            return node.trim().parse().ok();
        }
        let below = entries(&folder).into_iter();
        let mut below = below.filter_map(|name| name.strip_prefix("lower_").map(str::to_owned));
        let below = below.next().filter(|_| layers > 0)?;
        self.node_of_card(&below, layers - 1)
    }

    /// A line of distances has a number for each node that is there, in their order.
    fn distance(&self, from: u32, to: u32) -> Option<u8> {
        let nodes = self.sys.join("devices/system/node");
        let place = numbered(&nodes, "node")
            .iter()
            .position(|node| *node == to)?;
        let line = fs::read_to_string(nodes.join(format!("node{from}/distance"))).ok()?;
        line.split_whitespace().nth(place)?.parse().ok()
    }

    /// The interface of the most specific route to an address. None: the address is of this
    /// machine alone, or there is no route.
    fn interface_to(&self, address: IpAddr) -> Option<String> {
        if address.is_loopback() {
            return None;
        }
        let (name, read): (_, fn(&str) -> Option<Route>) = match address {
            IpAddr::V4(_) => ("route", route),
            IpAddr::V6(_) => ("ipv6_route", route_v6),
        };
        let table = fs::read_to_string(self.proc.join("net").join(name)).ok()?;
        let routes = table.lines().filter_map(read);
        let leads = routes.filter(|route| route.leads_to(address) && route.interface != "lo");
        let best = leads.max_by_key(|route| route.prefix)?;
        Some(best.interface)
    }
}

/// A route of the kernel.
struct Route {
    destination: IpAddr,
    /// Bits that the destination and an address have in common.
    prefix: u32,
    interface: String,
}

impl Route {
    fn leads_to(&self, address: IpAddr) -> bool {
        let same = |one: u128, other: u128, bits: u32| {
            let differing = one ^ other;
            self.prefix == 0 || differing >> (bits - self.prefix) == 0
        };
        match (self.destination, address) {
            (IpAddr::V4(one), IpAddr::V4(other)) => {
                same(u32::from(one).into(), u32::from(other).into(), 32)
            }
            (IpAddr::V6(one), IpAddr::V6(other)) => same(one.into(), other.into(), 128),
            _ => false,
        }
    }
}

/// Reads a line of `/proc/net/route`: interface, destination, gateway, flags, references, uses,
/// metric, mask. Addresses are hexadecimal in the byte order of the machine.
fn route(line: &str) -> Option<Route> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let number = |at: usize| u32::from_str_radix(words.get(at)?, 16).ok();
    Some(Route {
        destination: Ipv4Addr::from(number(1)?.to_ne_bytes()).into(),
        prefix: number(7)?.count_ones(),
        interface: (*words.first()?).to_owned(),
    })
}

/// Reads a line of `/proc/net/ipv6_route`: destination, its prefix, source, its prefix, next hop,
/// metric, references, uses, flags, interface.
fn route_v6(line: &str) -> Option<Route> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let destination = u128::from_str_radix(words.first()?, 16).ok()?;
    Some(Route {
        destination: Ipv6Addr::from(destination).into(),
        prefix: u32::from_str_radix(words.get(1)?, 16).ok()?.min(128),
        interface: (*words.get(9)?).to_owned(),
    })
}

/// Names in a folder, ascending.
fn entries(folder: &Path) -> Vec<String> {
    let found = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<String> = found
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect();
    names.sort_unstable();
    names
}

/// The numbers behind a prefix in the names of a folder, ascending.
fn numbered(folder: &Path, prefix: &str) -> Vec<u32> {
    let names = entries(folder);
    let number = |name: &String| name.strip_prefix(prefix)?.parse().ok();
    let mut numbers: Vec<u32> = names.iter().filter_map(number).collect();
    numbers.sort_unstable();
    numbers
}

/// Interfaces on top of each other that are followed.
const MOST_LAYERS: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;

    /// A machine with two nodes: CPU 5 and card `far` belong to node 1, card `near` to node 0,
    /// `bond` lies on `far`. The thread runs on CPU `cpu`.
    fn machine(cpu: usize) -> tempfile::TempDir {
        let root = tempfile::tempdir().expect("a scratch folder");
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().expect("a folder")).expect("it is ours");
            fs::write(path, text).expect("it is ours");
        };
        let fields = " 0".repeat(35);
        write(
            "proc/thread-self/stat",
            &format!("7 (a ) b) S{fields} {cpu} 0 0\n"),
        );
        let hex = |address: [u8; 4]| format!("{:08X}", u32::from_ne_bytes(address));
        let line = |card: &str, to: [u8; 4], mask: [u8; 4]| {
            format!(
                "{card}\t{}\t00000000\t0001\t0\t0\t0\t{}\t0\t0\t0\n",
                hex(to),
                hex(mask)
            )
        };
        let heading = "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\n";
        let routes = [
            line("near", [0; 4], [0; 4]),
            line("far", [10, 1, 0, 0], [255, 255, 0, 0]),
            line("near", [10, 1, 7, 0], [255, 255, 255, 0]),
            line("bond", [10, 2, 0, 0], [255, 255, 0, 0]),
        ];
        write("proc/net/route", &format!("{heading}{}", routes.concat()));
        let far = format!(
            "fd00{} 10 {} 00 {} 0 1 0 1 far\n",
            "0".repeat(28),
            "0".repeat(32),
            "0".repeat(32)
        );
        write("proc/net/ipv6_route", &far);
        write("sys/class/net/near/device/numa_node", "0\n");
        write("sys/class/net/far/device/numa_node", "1\n");
        write("sys/class/net/bond/lower_far/mtu", "1500\n");
        write("sys/devices/system/cpu/cpu0/node0/cpulist", "0-4\n");
        write("sys/devices/system/cpu/cpu5/node1/cpulist", "5-9\n");
        write("sys/devices/system/node/node0/distance", "10 21\n");
        write("sys/devices/system/node/node1/distance", "21 10\n");
        root
    }

    fn distance(cpu: usize, to: &str, from: Option<&str>) -> u8 {
        let address = |text: &str| text.parse().expect("an address");
        let root = machine(cpu);
        Files::of(root.path()).distance_to_card(address(to), from.map(address))
    }

    #[test]
    fn a_card_is_as_far_as_its_node_from_that_of_the_cpu() {
        let both = |to| [0, 5].map(|cpu| distance(cpu, to, None));
        assert_eq!(both("10.1.2.3"), [21, 10]);
        assert_eq!(both("10.1.7.3"), [10, 21], "the most specific route");
        assert_eq!(both("192.168.0.1"), [10, 21], "the default route");
        assert_eq!(both("10.2.0.1"), [21, 10], "the card below a bond");
        assert_eq!(both("fd00::1"), [21, 10]);
    }

    #[test]
    fn a_connection_that_is_bound_leaves_over_the_card_of_its_address() {
        assert_eq!(distance(0, "192.168.0.1", Some("10.1.0.9")), 21);
    }

    #[test]
    fn what_the_kernel_does_not_tell_counts_as_near() {
        assert_eq!(distance(5, "127.0.0.1", None), LOCAL_DISTANCE);
        assert_eq!(distance(5, "::1", None), LOCAL_DISTANCE);
        assert_eq!(distance(77, "10.1.2.3", None), LOCAL_DISTANCE);
        let nothing = tempfile::tempdir().expect("a scratch folder");
        let to = IpAddr::from([10, 1, 2, 3]);
        let found = Files::of(nothing.path()).distance_to_card(to, None);
        assert_eq!(found, LOCAL_DISTANCE);
    }
}
