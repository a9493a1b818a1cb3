//! Output about the exports: URIs as peers reach them, commands that connect, and all exports as
//! text and as JSON. This module only reads.

use std::net::{IpAddr, SocketAddr};

use fabrix_block::spec::{Disk, Remote, Size};
use fabrix_block::{Durability, Spec};
use fabrix_target::{DISCOVERY_PORT, Export, Portal, Protocol};
use serde_json::{Value, json};

use super::Served;
use super::ana::groups_json;
use super::listen::listen_text;
use crate::cli::terminal::quoted;
use crate::counters;
use crate::disks::{host_text, lun_of_libiscsi};
use crate::locks::lock;

impl Served {
    /// First address of one of NVMe's protocols that serves disks, if there is one.
    fn nvme_portal(&self, protocol: Protocol) -> Option<Portal> {
        let portals = self.portals(protocol);
        let is_for_disks = |portal: &&Portal| portal.address.port() != DISCOVERY_PORT;
        portals.iter().find(is_for_disks).copied()
    }

    /// First address of one of the protocols of iSCSI.
    fn iscsi_portal(&self, protocol: Protocol) -> Option<Portal> {
        self.portals(protocol).first().copied()
    }

    /// All listening addresses of a protocol.
    fn portals(&self, protocol: Protocol) -> Vec<Portal> {
        let listens = self.target.catalog().listen.into_iter();
        let ours = listens.filter(|listen| listen.protocol == protocol);
        ours.map(|listen| listen.portal).collect()
    }

    /// The URI by which peers reach a namespace: nvme+tcp:// if NVMe/TCP serves disks, else
    /// iscsi://, else nvme+rdma://, else iser://.
    fn uri(&self, nsid: u32) -> String {
        self.uri_at(nsid, announced)
    }

    /// The URI for programs on this machine. It never uses an announced address, which may not be
    /// reachable from here.
    pub(crate) fn local_uri(&self, nsid: u32) -> String {
        self.uri_at(nsid, local)
    }

    fn uri_at(&self, nsid: u32, address_of: fn(Portal) -> SocketAddr) -> String {
        let over = |protocol| self.nvme_portal(protocol).map(address_of);
        if let Some(address) = over(Protocol::NvmeTcp) {
            return self.nvme_uri_at(nsid, "nvme+tcp", address);
        }
        if let Some(portal) = self.iscsi_portal(Protocol::Iscsi).map(address_of) {
            return self.iscsi_uri_at(nsid, "iscsi", portal);
        }
        if let Some(address) = over(Protocol::NvmeRdma) {
            return self.nvme_uri_at(nsid, "nvme+rdma", address);
        }
        let portal = self.iscsi_portal(Protocol::Iser).map(address_of);
        portal.map_or_else(String::new, |portal| {
            self.iscsi_uri_at(nsid, "iser", portal)
        })
    }

    fn nvme_uri_at(&self, nsid: u32, scheme: &str, address: SocketAddr) -> String {
        let remote = Remote {
            scheme: scheme.to_owned(),
            account: None,
            host: host_text(address),
            port: Some(address.port()),
            nqn: Some(self.nqn.clone()),
            nsid: Some(nsid),
            options: Vec::new(),
        };
        // `Spec` escapes special characters of the name.
        Spec::plain(Disk::Remote(remote)).to_string()
    }

    /// The iSCSI URI of a disk, in the form of libiscsi and QEMU. None without an iSCSI address.
    fn iscsi_uri(&self, nsid: u32) -> Option<String> {
        let portal = self.iscsi_portal(Protocol::Iscsi).map(announced);
        portal.map(|portal| self.iscsi_uri_at(nsid, "iscsi", portal))
    }

    fn iscsi_uri_at(&self, nsid: u32, scheme: &str, portal: SocketAddr) -> String {
        let lun = lun_of_libiscsi(nsid.saturating_sub(1));
        format!("{scheme}://{portal}/{}/{lun}", self.iqn)
    }

    /// The command of nvme-cli that connects over a transport (`tcp`, `rdma`).
    fn connect_command(&self, protocol: Protocol, transport: &str) -> Option<String> {
        let address = self.nvme_portal(protocol).map(announced)?;
        Some(format!(
            "nvme connect -t {transport} -a {} -s {} -n {}",
            host_text(address),
            address.port(),
            quoted(&self.nqn)
        ))
    }

    /// The commands over TCP and over RDMA.
    fn connect_commands(&self) -> [Option<String>; 2] {
        [
            self.connect_command(Protocol::NvmeTcp, "tcp"),
            self.connect_command(Protocol::NvmeRdma, "rdma"),
        ]
    }

    /// Commands of open-iscsi that discover the target and log in.
    ///
    /// With CHAP the first command adds the target without discovery, which would need the secret
    /// in a file. USER and SECRET stand for those of `--chap`.
    fn login_commands(&self, protocol: Protocol, chap: bool) -> Option<Vec<String>> {
        let portal = quoted(&self.iscsi_portal(protocol).map(announced)?.to_string());
        let interface = if protocol.is_rdma() { " -I iser" } else { "" };
        let node = format!("iscsiadm -m node -T {} -p {portal}{interface}", self.iqn);
        let login = format!("{node} --login");
        if !chap {
            let discovery = format!("iscsiadm -m discovery -t sendtargets -p {portal}{interface}");
            return Some(vec![discovery, login]);
        }
        let auth = [
            ("authmethod", "CHAP"),
            ("username", "USER"),
            ("password", "SECRET"),
        ];
        let update =
            |(name, value)| format!("{node} -o update -n node.session.auth.{name} -v {value}");
        let mut commands = vec![format!("{node} -o new")];
        commands.extend(auth.map(update));
        commands.push(login);
        Some(commands)
    }

    /// The exports as text: a line for each, and the commands by which Linux connects.
    pub(crate) fn text(&self) -> String {
        let state = lock(&self.state);
        let mut out = String::new();
        for export in self.exports() {
            let geometry = export.device.geometry();
            let size = Size(geometry.bytes());
            let read_only = if geometry.read_only {
                ", read-only"
            } else {
                ""
            };
            let uri = self.uri(export.number);
            let text = state.disks.get(&export.number).map_or("", String::as_str);
            out += &format!(
                "{}  {}  {size}, {}-byte blocks{read_only}\n",
                quoted(&uri),
                quoted(text),
                geometry.block_bytes
            );
            if let Some(iscsi) = self.iscsi_uri(export.number).filter(|other| *other != uri) {
                out += &format!("{}  the same disk\n", quoted(&iscsi));
            }
        }
        let commands = self.connect_commands();
        let commands = commands.into_iter().flatten();
        let chap = state.allowed.uses_chap();
        let logins = [Protocol::Iscsi, Protocol::Iser];
        let logins = logins.map(|protocol| self.login_commands(protocol, chap));
        for command in commands.chain(logins.into_iter().flatten().flatten()) {
            out += &format!("  {command}\n");
        }
        out
    }

    /// The exports as JSON.
    pub(crate) fn json(&self) -> Value {
        let state = lock(&self.state);
        let exports = self.exports();
        let ana_groups = groups_json(&self.target.catalog(), &exports);
        let exports = exports
            .iter()
            .map(|export| self.export_json(export, state.disks.get(&export.number)));
        let texts = |protocol| -> Vec<_> {
            let portals = self.portals(protocol);
            portals.iter().map(listen_text).collect()
        };
        let [over_tcp, over_rdma] = self.connect_commands();
        let chap = state.allowed.uses_chap();
        json!({
            "schema": 1,
            "nqn": self.nqn,
            "iqn": self.iqn,
            "portals": texts(Protocol::Iscsi),
            "iscsiadm": self.login_commands(Protocol::Iscsi, chap),
            "portals_rdma": texts(Protocol::Iser),
            "iscsiadm_rdma": self.login_commands(Protocol::Iser, chap),
            "listen": texts(Protocol::NvmeTcp),
            "allow": state.allowed.words(),
            "chap": chap,
            "listen_rdma": texts(Protocol::NvmeRdma),
            "nvme_connect": over_tcp,
            "nvme_connect_rdma": over_rdma,
            "exports": exports.collect::<Vec<_>>(),
            "ana_groups": ana_groups,
        })
    }

    /// Detailed statistics of each export since its start.
    pub(crate) fn counters(&self) -> Value {
        let state = lock(&self.state);
        let exports = self.exports();
        let export = |export: &Export| {
            json!({
                "nsid": export.number,
                "disk": state.disks.get(&export.number),
                "uuid": export.device.identity().uuid_text(),
                "counters": self.target.stats(&*export.device).map(|stats| counters::detailed(&stats)),
            })
        };
        json!({ "schema": 1, "exports": exports.iter().map(export).collect::<Vec<_>>() })
    }

    fn export_json(&self, export: &Export, disk: Option<&String>) -> Value {
        let (geometry, identity) = (export.device.geometry(), export.device.identity());
        json!({
            "nsid": export.number,
            "uri": self.uri(export.number),
            "iscsi_uri": self.iscsi_uri(export.number),
            "disk": disk,
            "ana_group": export.ana_group,
            "name": identity.name,
            "uuid": identity.uuid_text(),
            "size_bytes": geometry.bytes(),
            "block_bytes": geometry.block_bytes,
            "read_only": geometry.read_only,
            "volatile_cache": geometry.volatile_cache,
            "durable": geometry.durability == Durability::Device,
        })
    }
}

/// The address for other machines: the announced one, else the listening one.
fn announced(portal: Portal) -> SocketAddr {
    portal.announced.unwrap_or_else(|| local(portal))
}

/// The address for this machine. Loopback replaces the unspecified address.
fn local(Portal { mut address, .. }: Portal) -> SocketAddr {
    if address.ip().is_unspecified() {
        let loopback: IpAddr = if address.is_ipv4() {
            [127, 0, 0, 1].into()
        } else {
            std::net::Ipv6Addr::LOCALHOST.into()
        };
        address.set_ip(loopback);
    }
    address
}
