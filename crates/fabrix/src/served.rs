//! What a running `serve` serves, and how that changes: disks by namespace id, addresses, hosts.
//!
//! Joins the target with the opener of disks, and says of both what users are shown. Knows neither the command line
//! that started it nor the socket through which it is changed.

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fabrix_block::exclusive::Exclusive;
use fabrix_block::filter::stats::Stats;
use fabrix_block::spec::{Disk, Remote, Size, without_secrets};
use fabrix_block::{Device, Durability, Spec};
use fabrix_target::{Export, Listen, NAMESPACES_MAX, Protocol, Target};
use serde_json::{Value, json};

use crate::access::Allowed;
use crate::cli::terminal::say;
use crate::counters;
use crate::disks::Opener;
use crate::failure::{Failure, Kind};
use crate::state::State;

/// Opens disks for exporting.
pub(crate) struct Shelf {
    opener: Opener,
    read_only: bool,
    state: Option<Arc<State>>,
    /// What disks do, by their UUID; None: nobody can ask, and nothing is counted.
    counted: Option<Mutex<HashMap<[u8; 16], Arc<Stats>>>>,
}

impl Shelf {
    /// `counts`: somebody may ask what the disks do.
    pub(crate) fn new(
        opener: Opener,
        read_only: bool,
        state: Option<Arc<State>>,
        counts: bool,
    ) -> Self {
        Self {
            opener,
            read_only,
            state,
            counted: counts.then(Mutex::default),
        }
    }

    /// Opens a disk and puts in front of it what exporting needs; `copy` counts equal texts before it.
    pub(crate) fn open(&self, text: &str, copy: usize) -> Result<Arc<dyn Device>, Failure> {
        let device = self.opener.open(text, copy, self.read_only)?;
        if let (true, Some(state)) = (is_remote(text), &self.state) {
            state.is_remote(device.identity());
        }
        if device.geometry().durability == Durability::None && !is_remote(text) {
            say(format_args!(
                "{text}: what is written there is gone when this process ends"
            ));
        }
        Ok(Exclusive::wrap(self.counting(device)))
    }

    fn counting(&self, device: Arc<dyn Device>) -> Arc<dyn Device> {
        let Some(counted) = &self.counted else {
            return device;
        };
        let stats = Stats::new(device);
        let mut counted = counted.lock().unwrap_or_else(PoisonError::into_inner);
        counted.insert(stats.identity().uuid, Arc::clone(&stats));
        stats
    }

    /// What a disk has done since it was opened.
    fn counters(&self, device: &dyn Device) -> Value {
        let counted = self.counted.as_ref().map(Mutex::lock);
        let counted = counted.map(|lock| lock.unwrap_or_else(PoisonError::into_inner));
        let stats = counted
            .as_ref()
            .and_then(|all| all.get(&device.identity().uuid));
        stats.map_or(Value::Null, |stats| counters::detailed(stats))
    }

    /// A disk is exported no more.
    fn forget(&self, uuid: [u8; 16]) {
        if let Some(counted) = &self.counted {
            let mut counted = counted.lock().unwrap_or_else(PoisonError::into_inner);
            counted.remove(&uuid);
        }
    }
}

fn is_remote(text: &str) -> bool {
    matches!(Spec::parse(text).map(|spec| spec.disk), Ok(Disk::Remote(_)))
}

/// What is served now.
pub(crate) struct Served {
    pub(crate) target: Target,
    nqn: String,
    iqn: String,
    shelf: Shelf,
    state: Mutex<Now>,
}

/// What the target does not remember. Locked while something changes, so that changes come one after another.
struct Now {
    disks: BTreeMap<u32, String>,
    allowed: Allowed,
}

impl Served {
    /// `disks` are the texts of the namespaces that the target exports, from 1 on.
    pub(crate) fn new(
        target: Target,
        (nqn, iqn): (&str, &str),
        shelf: Shelf,
        disks: &[String],
        allowed: Allowed,
    ) -> Self {
        let disks = (1..).zip(disks.iter().cloned()).collect();
        Self {
            target,
            nqn: nqn.to_owned(),
            iqn: iqn.to_owned(),
            shelf,
            state: Mutex::new(Now { disks, allowed }),
        }
    }

    fn state(&self) -> MutexGuard<'_, Now> {
        // The state is changed after the target was: a thread that panicked has left it as it was.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens one more disk and exports it, under the id asked for or the lowest that is free. Gives its id.
    pub(crate) fn add(&self, text: &str, nsid: Option<u32>) -> Result<u32, Failure> {
        let mut state = self.state();
        let free = || (1..=NAMESPACES_MAX).find(|nsid| !state.disks.contains_key(nsid));
        let nsid = nsid.or_else(free).ok_or_else(|| {
            Failure::usage(format!("there are {NAMESPACES_MAX} namespaces already"))
        })?;
        if let Some(other) = state.disks.get(&nsid) {
            return Err(Failure::usage(format!(
                "namespace {nsid} is {other}; remove it first, or choose another id"
            )));
        }
        // What is kept is shown to whoever asks.
        let shown = without_secrets(text);
        let copy = state
            .disks
            .values()
            .filter(|other| **other == shown)
            .count();
        let device = self.shelf.open(text, copy)?;
        self.target.add(Export { nsid, device }).map_err(refused)?;
        state.disks.insert(nsid, shown);
        Ok(nsid)
    }

    /// Exports a disk no more, and closes it when its last request has ended.
    pub(crate) fn remove(&self, nsid: u32) -> Result<(), Failure> {
        let mut state = self.state();
        let exports = self.target.exports();
        let gone = exports.iter().find(|export| export.nsid == nsid);
        self.target.remove(nsid).map_err(refused)?;
        if let Some(gone) = gone {
            self.shelf.forget(gone.device.identity().uuid);
        }
        state.disks.remove(&nsid);
        Ok(())
    }

    /// Makes a disk so large, or finds out how large it has become.
    pub(crate) fn resize(&self, nsid: u32, bytes: Option<u64>) -> Result<(), Failure> {
        let _one_at_a_time = self.state();
        let exports = self.target.exports();
        let export = exports.iter().find(|export| export.nsid == nsid);
        let export =
            export.ok_or_else(|| Failure::usage(format!("there is no namespace {nsid}")))?;
        let device = export.device.remeasure(bytes)?;
        self.target
            .replace(Export { nsid, device })
            .map_err(refused)
    }

    /// Listens at one more address.
    pub(crate) fn listen(&self, text: &str) -> Result<SocketAddr, Failure> {
        let state = self.state();
        let listen = listen_address(text)?;
        state.allowed.check(listen)?;
        self.target
            .open_port(listen)
            .map_err(|error| start_failure(&error))
    }

    /// Listens at an address no more; connections that are there stay.
    pub(crate) fn unlisten(&self, text: &str) -> Result<(), Failure> {
        let _one_at_a_time = self.state();
        let address = listen_address(text)?.address;
        if self
            .listens()
            .iter()
            .all(|listen| listen.address == address)
        {
            return Err(Failure::usage(format!(
                "{text} is the only address: without one nobody could come back"
            )));
        }
        self.target.close_port(address).map_err(refused)
    }

    /// Says who may connect from now on, in the words of `--allow`; who is connected and may no more has to go.
    pub(crate) fn allow(&self, words: &[String]) -> Result<(), Failure> {
        let mut state = self.state();
        let allowed = state.allowed.changed(words)?;
        for listen in self.listens() {
            allowed.check(listen)?;
        }
        self.target.set_hosts(allowed.hosts()).map_err(refused)?;
        let initiators = allowed.initiators();
        self.target.set_initiators(initiators).map_err(refused)?;
        state.allowed = allowed;
        Ok(())
    }

    /// Where the target listens, for whatever.
    fn listens(&self) -> Vec<Listen> {
        let hosts = self.target.addresses().into_iter().map(Listen::nvme_tcp);
        let initiators = self.target.portals().into_iter().map(Listen::iscsi);
        hosts.chain(initiators).collect()
    }

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

/// A listening address, as `nvme+tcp://ADDR[:PORT]` or `iscsi://ADDR[:PORT]`; port 0 lets the system choose.
pub(crate) fn listen_address(text: &str) -> Result<Listen, Failure> {
    let wrong = |why: &str| {
        Failure::usage(format!(
            "--listen {text}: {why}; write nvme+tcp://ADDR[:PORT], like nvme+tcp://0.0.0.0, or iscsi://ADDR[:PORT]"
        ))
    };
    let (protocol, place, port) = match text.split_once("://") {
        Some(("nvme+tcp", place)) => (Protocol::NvmeTcp, place, fabrix_host::DEFAULT_PORT),
        Some(("iscsi", place)) => (Protocol::Iscsi, place, ISCSI_PORT),
        _ => return Err(wrong("not an nvme+tcp or iscsi address")),
    };
    let place = place.strip_suffix('/').unwrap_or(place);
    if let Ok(ip) = place.trim_matches(['[', ']']).parse::<IpAddr>() {
        let address = SocketAddr::new(ip, port);
        return Ok(Listen { protocol, address });
    }
    let with_port = if place.contains(':') {
        place.to_owned()
    } else {
        format!("{place}:{port}")
    };
    let found = with_port
        .to_socket_addrs()
        .map_err(|error| wrong(&error.to_string()))?
        .next();
    let address = found.ok_or_else(|| wrong("the name has no address"))?;
    Ok(Listen { protocol, address })
}

/// Where iSCSI targets listen. Source: RFC 7143, section 14 "IANA Considerations".
const ISCSI_PORT: u16 = 3260;

fn refused(error: fabrix_target::ChangeError) -> Failure {
    let kind = match error {
        fabrix_target::ChangeError::Refused(_) => Kind::Usage,
        fabrix_target::ChangeError::Shard => Kind::Io,
    };
    Failure::new(kind, error)
}

/// A target that does not start, or a port that does not open.
pub(crate) fn start_failure(error: &fabrix_target::StartError) -> Failure {
    let kind = match error {
        fabrix_target::StartError::Config(_) => Kind::Usage,
        fabrix_target::StartError::Listen(..) => Kind::Connect,
        fabrix_target::StartError::Shard => Kind::Io,
    };
    Failure::new(kind, error)
}
