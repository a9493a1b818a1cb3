//! What users are shown of what is served: addresses as others reach them, commands that connect, and everything as
//! text and as JSON. It changes nothing.

use std::net::{IpAddr, SocketAddr};

use fabrix_block::spec::{Disk, Remote, Size};
use fabrix_block::{Durability, Spec};
use fabrix_target::Export;
use serde_json::{Value, json};

use super::Served;

impl Served {
    /// The address that hosts are told; none if there is none for them.
    fn reachable(&self) -> Option<SocketAddr> {
        let addresses = self.target.addresses();
        let discovery = fabrix_target::DISCOVERY_PORT;
        let first = addresses.iter().find(|address| address.port() != discovery);
        first.or_else(|| addresses.first()).copied().map(reached)
    }

    /// The same for initiators.
    fn portal(&self) -> Option<SocketAddr> {
        self.target.portals().first().copied().map(reached)
    }

    /// The URI by which programs reach a namespace: our own, where hosts are listened for, or others.
    pub(crate) fn uri(&self, nsid: u32) -> String {
        let Some(address) = self.reachable() else {
            return self.iscsi_uri(nsid).unwrap_or_default();
        };
        let remote = Remote {
            scheme: "nvme+tcp".to_owned(),
            account: None,
            host: address.ip().to_string(),
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
        let lun = nsid.saturating_sub(1);
        let uri = |portal| format!("iscsi://{portal}/{}/{lun}", self.iqn);
        self.portal().map(uri)
    }

    fn connect_command(&self) -> Option<String> {
        let address = self.reachable()?;
        Some(format!(
            "nvme connect -t tcp -a {} -s {} -n {}",
            address.ip(),
            address.port(),
            self.nqn
        ))
    }

    /// How open-iscsi finds the target, and logs in.
    fn login_commands(&self) -> Option<[String; 2]> {
        let portal = self.portal()?;
        Some([
            format!("iscsiadm -m discovery -t sendtargets -p {portal}"),
            format!("iscsiadm -m node -T {} -p {portal} --login", self.iqn),
        ])
    }

    /// One line per export, and how Linux connects.
    pub(crate) fn text(&self) -> String {
        let state = self.state();
        let mut out = String::new();
        for export in self.target.exports() {
            let geometry = export.device.geometry();
            let size = Size(geometry.bytes());
            let read_only = if geometry.read_only {
                ", read-only"
            } else {
                ""
            };
            let uri = self.uri(export.nsid);
            let text = state.disks.get(&export.nsid).map_or("", String::as_str);
            out += &format!(
                "{uri}  {text}  {size}, {}-byte blocks{read_only}\n",
                geometry.block_bytes
            );
            if let Some(iscsi) = self.iscsi_uri(export.nsid).filter(|other| *other != uri) {
                out += &format!("{iscsi}  the same disk\n");
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
        let exports = self.target.exports();
        let exports = exports
            .iter()
            .map(|export| self.export_json(export, state.disks.get(&export.nsid)));
        let listen = self.target.addresses();
        json!({
            "schema": 1,
            "nqn": self.nqn,
            "iqn": self.iqn,
            "portals": self.target.portals().iter().map(ToString::to_string).collect::<Vec<_>>(),
            "iscsiadm": self.login_commands(),
            "listen": listen.iter().map(ToString::to_string).collect::<Vec<_>>(),
            "allow": state.allowed.words(),
            "chap": state.allowed.is_proved(),
            "nvme_connect": self.connect_command(),
            "exports": exports.collect::<Vec<_>>(),
        })
    }

    /// What each export has done so far, in detail.
    pub(crate) fn counters(&self) -> Value {
        let state = self.state();
        let exports = self.target.exports();
        let export = |export: &Export| {
            json!({
                "nsid": export.nsid,
                "disk": state.disks.get(&export.nsid),
                "uuid": export.device.identity().uuid_text(),
                "counters": self.shelf.counters(&*export.device),
            })
        };
        json!({ "schema": 1, "exports": exports.iter().map(export).collect::<Vec<_>>() })
    }

    fn export_json(&self, export: &Export, disk: Option<&String>) -> Value {
        let (geometry, identity) = (export.device.geometry(), export.device.identity());
        json!({
            "nsid": export.nsid,
            "uri": self.uri(export.nsid),
            "iscsi_uri": self.iscsi_uri(export.nsid),
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

/// An address as others reach it: one that means all is replaced by this machine's loopback.
fn reached(mut address: SocketAddr) -> SocketAddr {
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
