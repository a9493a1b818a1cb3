//! Output about the exports: URIs as peers reach them, commands that connect, and all exports as
//! text and as JSON. This module only reads.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use fabrix_block::spec::{Disk, Remote, Size};
use fabrix_block::{Durability, Spec};
use fabrix_host::host_text;
use fabrix_target::{DISCOVERY_PORT, Export, Listen, Portal, Protocol};
use serde_json::{Value, json};

use super::Served;
use super::ana::groups_json;
use super::group::group_json;
use super::listen::{listen_text, scheme};
use crate::cli::terminal::quoted;
use crate::counters;
use crate::disks::lun_of_libiscsi;
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

    /// The URI by which peers reach a namespace: the first of all.
    fn uri(&self, nsid: u32) -> String {
        self.uris(nsid, announced)
            .into_iter()
            .next()
            .unwrap_or_default()
    }

    /// The URI for programs on this machine. It never uses an announced address, which may not be
    /// reachable from here.
    pub(crate) fn local_uri(&self, nsid: u32) -> String {
        self.uris(nsid, local)
            .into_iter()
            .next()
            .unwrap_or_default()
    }

    /// The URIs of a namespace, one for each protocol that serves disks: nvme+tcp, iscsi,
    /// nvme+rdma, iser.
    fn uris(&self, nsid: u32, address_of: fn(Protocol, Portal) -> SocketAddr) -> Vec<String> {
        let uri = |protocol: Protocol| match protocol.is_nvme() {
            true => self.nvme_portal(protocol).map(|portal| {
                self.nvme_uri_at(nsid, scheme(protocol), address_of(protocol, portal))
            }),
            false => self.iscsi_portal(protocol).map(|portal| {
                self.iscsi_uri_at(nsid, scheme(protocol), address_of(protocol, portal))
            }),
        };
        let protocols = [
            Protocol::NvmeTcp,
            Protocol::Iscsi,
            Protocol::NvmeRdma,
            Protocol::Iser,
        ];
        protocols.into_iter().filter_map(uri).collect()
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
        let over = Protocol::Iscsi;
        let portal = self.iscsi_portal(over)?;
        Some(self.iscsi_uri_at(nsid, scheme(over), announced(over, portal)))
    }

    fn iscsi_uri_at(&self, nsid: u32, scheme: &str, portal: SocketAddr) -> String {
        let lun = lun_of_libiscsi(nsid.saturating_sub(1));
        format!("{scheme}://{portal}/{}/{lun}", self.iqn)
    }

    /// The command of nvme-cli that connects over a transport (`tcp`, `rdma`).
    fn connect_command(&self, protocol: Protocol, transport: &str) -> Option<String> {
        let address = announced(protocol, self.nvme_portal(protocol)?);
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
        let portal = announced(protocol, self.iscsi_portal(protocol)?);
        let portal = quoted(&portal.to_string());
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
            let mut uris = self.uris(export.number, announced).into_iter();
            let uri = uris.next().unwrap_or_default();
            let text = state.disks.get(&export.number).map_or("", String::as_str);
            out += &format!(
                "{}  {}  {size}, {}-byte blocks{read_only}\n",
                quoted(&uri),
                quoted(text),
                geometry.block_bytes
            );
            for other in uris {
                out += &format!("{}  the same disk\n", quoted(&other));
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
        let group = state.group.as_ref().map(group_json);
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
            "gateways": self.gateways_json(group.as_ref()),
        })
    }

    /// `group` are the gateways of the group of this one, if it is in one.
    fn gateways_json(&self, group: Option<&Value>) -> Value {
        let gateways = self.target.catalog().gateways;
        let uri = |listen: &Listen| {
            let portal = Portal {
                announced: None,
                ..listen.portal
            };
            format!("{}://{}", scheme(listen.protocol), listen_text(&portal))
        };
        let uris = |listens: &[Listen]| listens.iter().map(uri).collect::<Vec<_>>();
        json!({
            "cntlid_min": gateways.controller_ids.start(),
            "cntlid_max": gateways.controller_ids.end(),
            "repeats_s": gateways.repeats.as_secs_f64(),
            "others": uris(&gateways.others),
            "referrals": uris(&gateways.referrals),
            "group": group,
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
            "uris": self.uris(export.number, announced),
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
fn announced(protocol: Protocol, portal: Portal) -> SocketAddr {
    portal.announced.unwrap_or_else(|| local(protocol, portal))
}

/// The address for this machine. For the unspecified address it is loopback, or the first address
/// of an RDMA device.
fn local(protocol: Protocol, Portal { mut address, .. }: Portal) -> SocketAddr {
    let loopback: IpAddr = match address {
        SocketAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
        SocketAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
    };
    if address.ip().is_unspecified() {
        address.set_ip(match protocol.is_rdma() {
            true => of_rdma_device(address.is_ipv4()).unwrap_or(loopback),
            false => loopback,
        });
    }
    address
}

fn of_rdma_device(is_ipv4: bool) -> Option<IpAddr> {
    let mut addresses = sys_rdma::addresses().into_iter();
    addresses.find(|address| address.is_ipv4() == is_ipv4)
}
