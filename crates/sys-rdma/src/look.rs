//! What the kernel tells about the RDMA devices of this machine, without any library.
//!
//! Source: Documentation/ABI/stable/sysfs-class-infiniband of the Linux kernel.

use std::fs;
use std::net::{IpAddr, Ipv6Addr};
use std::path::{Path, PathBuf};

use crate::EventChannel;
use crate::refused::Refused;

/// A port of an RDMA device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Port {
    /// Name of the device.
    pub device: String,
    /// Number of the port, from 1.
    pub number: u32,
    /// State, as the kernel names it: `ACTIVE`, `DOWN`.
    pub state: String,
    /// Speed, as the kernel names it: `100 Gb/sec (4X EDR)`.
    pub rate: String,
    /// `InfiniBand` or `Ethernet`.
    pub link_layer: String,
    /// Network devices of the port, each once. Their addresses are the port's.
    pub networks: Vec<String>,
    /// Addresses of an Ethernet port at which a target may listen, each once, without link-local
    /// ones.
    pub addresses: Vec<IpAddr>,
    /// Name of the device file for programs, and whether it can be opened. None: ib_uverbs is not
    /// loaded.
    pub(crate) uverbs: Option<(String, bool)>,
}

/// What there is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Facts {
    /// /sys/class/infiniband is there.
    pub(crate) has_driver: bool,
    /// /dev/infiniband/rdma_cm is there.
    pub(crate) has_manager: bool,
    pub(crate) ports: Vec<Port>,
}

/// The ports of this machine that RDMA connections can use. It opens the libraries and a channel of
/// the connection manager, as a connection does.
///
/// Errors: what is missing, and what to do.
pub fn look() -> Result<Vec<Port>, Refused> {
    let _channel = EventChannel::new()?;
    let facts = Facts::read(Path::new("/"));
    match facts.closed() {
        Some(refused) => Err(refused),
        None => Ok(facts.ports),
    }
}

/// Why no device can be opened, if none can.
pub(crate) fn closed() -> Option<Refused> {
    Facts::read(Path::new("/")).closed()
}

/// The IP addresses of all ports that pass data.
pub fn addresses() -> Vec<IpAddr> {
    let ports = Facts::read(Path::new("/")).ports.into_iter();
    let active = ports.filter(Port::is_active);
    active.flat_map(|port| port.addresses).collect()
}

impl Facts {
    /// Reads the facts of a machine whose files lie below `root`.
    pub(crate) fn read(root: &Path) -> Self {
        let devices = root.join("sys/class/infiniband");
        let mut ports = Vec::new();
        for device in names(&devices) {
            let uverbs = uverbs(root, &device);
            let folder = devices.join(&device).join("ports");
            for number in names(&folder) {
                let port = Port {
                    uverbs: uverbs.clone(),
                    ..Port::read(&device, &folder.join(&number))
                };
                ports.push(port);
            }
        }
        Self {
            has_driver: devices.is_dir(),
            has_manager: root.join("dev/infiniband/rdma_cm").exists(),
            ports,
        }
    }

    /// Why libibverbs finds no device, and what to do.
    pub(crate) fn no_device(&self) -> (String, String) {
        let add = "use a network adapter with RDMA and load its driver; without one, as root: \
                   modprobe rdma_rxe && rdma link add rxe0 type rxe netdev ETH, where ETH is your network \
                   interface"
            .to_owned();
        let Some(port) = self.ports.first() else {
            let found = match self.has_driver {
                true => "this machine has no RDMA device",
                false => "no RDMA driver is loaded",
            };
            return (found.to_owned(), add);
        };
        match port.uverbs {
            None => (
                "ib_uverbs is not loaded, so programs reach no RDMA device".to_owned(),
                "as root: modprobe ib_uverbs rdma_ucm".to_owned(),
            ),
            Some(_) => (
                format!("libibverbs has no provider for {}", port.device),
                "install the package ibverbs-providers (Debian) or rdma-core (other distributions)"
                    .to_owned(),
            ),
        }
    }

    /// Why no device can be opened, if none can.
    fn closed(&self) -> Option<Refused> {
        let (name, _) = self.ports.first()?.uverbs.as_ref()?;
        let is_open = |port: &Port| port.uverbs.as_ref().is_some_and(|(_, is_open)| *is_open);
        (!self.ports.iter().any(is_open)).then(|| Refused {
            found: format!("/dev/infiniband/{name} cannot be opened"),
            fix: "as root: chmod 666 /dev/infiniband/uverbs*, or allow the device in the container"
                .to_owned(),
        })
    }
}

impl Port {
    fn read(device: &str, folder: &Path) -> Self {
        let text = |name: &str| {
            let text = fs::read_to_string(folder.join(name)).unwrap_or_default();
            text.trim().to_owned()
        };
        let number = folder.file_name().unwrap_or_default().to_string_lossy();
        let mut networks: Vec<String> = names(&folder.join("gid_attrs/ndevs"))
            .into_iter()
            .map(|index| text(&format!("gid_attrs/ndevs/{index}")))
            .filter(|name| !name.is_empty())
            .collect();
        networks.sort();
        networks.dedup();
        let link_layer = text("link_layer");
        let gids = names(&folder.join("gids")).into_iter();
        let mut addresses: Vec<IpAddr> = gids
            .filter_map(|index| address(&text(&format!("gids/{index}"))))
            .filter(|_| link_layer == "Ethernet")
            .collect();
        addresses.sort();
        addresses.dedup();
        Self {
            device: device.to_owned(),
            number: number.parse().unwrap_or(0),
            // "4: ACTIVE"
            state: text("state")
                .rsplit(' ')
                .next()
                .unwrap_or_default()
                .to_owned(),
            rate: text("rate"),
            link_layer,
            networks,
            addresses,
            uverbs: None,
        }
    }

    /// Whether the port passes data.
    pub fn is_active(&self) -> bool {
        self.state == "ACTIVE"
    }
}

/// The IP address in a GID of RoCE. None: an unused entry of the table, or a link-local address.
///
/// Source: InfiniBand Architecture Specification, Annex A17 (RoCEv2): the GID is the IPv6 address,
/// or the IPv4-mapped one.
fn address(gid: &str) -> Option<IpAddr> {
    let address: Ipv6Addr = gid.parse().ok()?;
    let is_usable = !address.is_unspecified() && !address.is_unicast_link_local();
    is_usable.then(|| address.to_canonical())
}

/// The file by which programs use a device, and whether this process may open it.
fn uverbs(root: &Path, device: &str) -> Option<(String, bool)> {
    let folder = root.join("sys/class/infiniband_verbs");
    let is_of = |name: &String| {
        let text = fs::read_to_string(folder.join(name).join("ibdev"));
        text.is_ok_and(|text| text.trim() == device)
    };
    let name = names(&folder).into_iter().find(is_of)?;
    let path: PathBuf = root.join("dev/infiniband").join(&name);
    let opened = fs::File::options().read(true).write(true).open(path);
    Some((name, opened.is_ok()))
}

/// Names in a folder, sorted. A folder that is not there has none.
fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect();
    names.sort();
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(files: &[(&str, &str)]) -> (tempfile::TempDir, Facts) {
        let root = tempfile::tempdir().expect("a scratch folder");
        for (path, text) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().expect("it lies in a folder")).expect("room");
            fs::write(path, text).expect("room");
        }
        let facts = Facts::read(root.path());
        (root, facts)
    }

    const PORT: &str = "sys/class/infiniband/rxe0/ports/1";

    #[test]
    fn a_port_is_read_with_its_networks() {
        let (_root, facts) = machine(&[
            (&format!("{PORT}/state"), "4: ACTIVE\n"),
            (&format!("{PORT}/rate"), "100 Gb/sec (4X EDR)\n"),
            (&format!("{PORT}/link_layer"), "Ethernet\n"),
            (&format!("{PORT}/gid_attrs/ndevs/0"), "d0\n"),
            (&format!("{PORT}/gid_attrs/ndevs/1"), "d0\n"),
            (
                &format!("{PORT}/gids/0"),
                "fe80:0000:0000:0000:5054:00ff:fe12:3456\n",
            ),
            (
                &format!("{PORT}/gids/1"),
                "0000:0000:0000:0000:0000:ffff:0a08:0001\n",
            ),
            (
                &format!("{PORT}/gids/2"),
                "0000:0000:0000:0000:0000:0000:0000:0000\n",
            ),
            ("sys/class/infiniband_verbs/uverbs0/ibdev", "rxe0\n"),
            ("dev/infiniband/uverbs0", ""),
            ("dev/infiniband/rdma_cm", ""),
        ]);
        let [port] = &facts.ports[..] else {
            panic!("one port: {facts:?}");
        };
        assert_eq!((port.device.as_str(), port.number), ("rxe0", 1));
        assert!(port.is_active());
        assert_eq!(port.rate, "100 Gb/sec (4X EDR)");
        assert_eq!(port.networks, ["d0"]);
        let listen: IpAddr = "10.8.0.1".parse().expect("an address");
        assert_eq!(port.addresses, [listen]);
        assert!(facts.has_driver && facts.has_manager);
        assert_eq!(facts.closed(), None);
    }

    #[test]
    fn a_device_without_its_file_says_so() {
        let (_root, facts) = machine(&[
            (&format!("{PORT}/state"), "1: DOWN\n"),
            ("sys/class/infiniband_verbs/uverbs0/ibdev", "rxe0\n"),
        ]);
        assert!(!facts.ports[0].is_active());
        let refused = facts.closed().expect("nothing can be opened");
        assert!(refused.found.contains("uverbs0"), "{refused}");
        let (_root, nothing) = machine(&[]);
        assert_eq!(nothing, Facts::default());
        assert_eq!(nothing.closed(), None);
    }
}
