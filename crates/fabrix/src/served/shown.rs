//! What users are shown of what is served: addresses as others reach them, commands that connect,
//! and everything as text and as JSON. It changes nothing.

use std::net::{IpAddr, SocketAddr};

use fabrix_block::spec::{Disk, Remote, Size};
use fabrix_block::{Durability, Spec};
use fabrix_target::{DISCOVERY_PORT, Export, Portal, Protocol};
use serde_json::{Value, json};

use super::Served;
use super::listen::listen_text;
use crate::cli::terminal::quoted;
use crate::counters;
use crate::disks::{host_text, lun_of_libiscsi};

impl Served {
    /// Where hosts find the disks; none if there is nothing for them.
    fn reachable(&self) -> Option<Portal> {
        let portals = self.listens(Protocol::NvmeTcp);
        let is_for_disks = |portal: &&Portal| portal.address.port() != DISCOVERY_PORT;
        portals.iter().find(is_for_disks).copied()
    }

    /// The same for initiators.
    fn portal(&self) -> Option<Portal> {
        self.listens(Protocol::Iscsi).first().copied()
    }

    fn listens(&self, protocol: Protocol) -> Vec<Portal> {
        let listens = self.target.catalog().listen.into_iter();
        let ours = listens.filter(|listen| listen.protocol == protocol);
        ours.map(|listen| listen.portal).collect()
    }

    /// The URI by which others reach a namespace: our own, where hosts are listened for, or that of
    /// initiators.
    fn uri(&self, nsid: u32) -> String {
        self.uri_at(nsid, announced)
    }

    /// The same for programs on this machine, to which an announced address may mean nothing.
    pub(crate) fn uri_here(&self, nsid: u32) -> String {
        self.uri_at(nsid, reached)
    }

    fn uri_at(&self, nsid: u32, told: fn(Portal) -> SocketAddr) -> String {
        let Some(address) = self.reachable().map(told) else {
            let portal = self.portal().map(told);
            return portal.map_or_else(String::new, |portal| self.iscsi_uri_at(nsid, portal));
        };
        let remote = Remote {
            scheme: "nvme+tcp".to_owned(),
            account: None,
            host: host_text(address),
            port: Some(address.port()),
            nqn: Some(self.nqn.clone()),
            nsid: Some(nsid),
            options: Vec::new(),
        };
        // The text form of a disk knows which characters of a name must be written otherwise.
        Spec::plain(Disk::Remote(remote)).to_string()
    }

    /// The URI by which initiators reach the same disk, as libiscsi and QEMU write it.
    fn iscsi_uri(&self, nsid: u32) -> Option<String> {
        let portal = self.portal().map(announced);
        portal.map(|portal| self.iscsi_uri_at(nsid, portal))
    }

    fn iscsi_uri_at(&self, nsid: u32, portal: SocketAddr) -> String {
        let lun = lun_of_libiscsi(nsid.saturating_sub(1));
        format!("iscsi://{portal}/{}/{lun}", self.iqn)
    }

    fn connect_command(&self) -> Option<String> {
        let address = self.reachable().map(announced)?;
        Some(format!(
            "nvme connect -t tcp -a {} -s {} -n {}",
            host_text(address),
            address.port(),
            quoted(&self.nqn)
        ))
    }

    /// How open-iscsi finds the target, and logs in.
    fn login_commands(&self) -> Option<[String; 2]> {
        let portal = quoted(&self.portal().map(announced)?.to_string());
        Some([
            format!("iscsiadm -m discovery -t sendtargets -p {portal}"),
            format!("iscsiadm -m node -T {} -p {portal} --login", self.iqn),
        ])
    }

    /// One line per export, and how Linux connects.
    pub(crate) fn text(&self) -> String {
        let state = self.state();
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
        let commands = self.connect_command().into_iter();
        for command in commands.chain(self.login_commands().into_iter().flatten()) {
            out += &format!("  {command}\n");
        }
        out
    }

    /// The same for programs.
    pub(crate) fn json(&self) -> Value {
        let state = self.state();
        let exports = self.exports();
        let exports = exports
            .iter()
            .map(|export| self.export_json(export, state.disks.get(&export.number)));
        let texts = |protocol| -> Vec<_> {
            let portals = self.listens(protocol);
            portals.iter().map(listen_text).collect()
        };
        json!({
            "schema": 1,
            "nqn": self.nqn,
            "iqn": self.iqn,
            "portals": texts(Protocol::Iscsi),
            "iscsiadm": self.login_commands(),
            "listen": texts(Protocol::NvmeTcp),
            "allow": state.allowed.words(),
            "chap": state.allowed.is_proved(),
            "nvme_connect": self.connect_command(),
            "exports": exports.collect::<Vec<_>>(),
        })
    }

    /// What each export has done so far, in detail.
    pub(crate) fn counters(&self) -> Value {
        let state = self.state();
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

/// The address that others are told.
fn announced(portal: Portal) -> SocketAddr {
    portal.announced.unwrap_or_else(|| reached(portal))
}

/// The address as this machine reaches it: one that means all is replaced by loopback.
fn reached(Portal { mut address, .. }: Portal) -> SocketAddr {
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
