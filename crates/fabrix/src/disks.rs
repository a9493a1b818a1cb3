//! Opens disks from their text form. This is the only place that knows every kind of disk,
//! including remote ones.
//!
//! It combines `block`, `raid0` over any disks, and `host`, and converts their errors. Identities
//! are derived from this machine's id and the disk's name or location, so they survive a restart
//! and differ between machines. A RAM or null disk is a different disk in every process, so its
//! identity also depends on its use.

mod discovered;
mod opened;
mod paths;
#[cfg(test)]
mod tests;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use fabrix_block::filter::keeping::Keeping;
use fabrix_block::filter::named::Named;
use fabrix_block::geometry::DEFAULT_BLOCK_BYTES;
use fabrix_block::raid0::Raid0;
use fabrix_block::spec::{Account, Disk, Rbd, Remote, Secret, without_secrets};
use fabrix_block::{
    Device, Identity, OpenError, OpenErrorKind, Spec, apply_common_options, open_local_as,
};
use fabrix_host::iscsi::{self, Initiator};
use fabrix_host::multipath::{PathDisk, Policy, Roster};
use fabrix_host::{Address, ConnectError, ConnectErrorKind, Options, PathEvent, Transport, Weight};
use fabrix_target::DISCOVERY_PORT;

use self::discovered::Discovered;
pub(crate) use self::discovered::leads_to_discovery;
pub(crate) use self::opened::kernel_folder;
use self::opened::{Name, Opened};
use self::paths::Origin;
pub(crate) use self::paths::{NumberedPath, path};
use crate::args::RemoteArgs;
use crate::cli::terminal::say;
use crate::failure::{Failure, Kind};
use crate::host_names::{host_options_or_why, initiator_name};
use crate::log::{self, Level};
use crate::machine;
use crate::secrets;

/// Handler for connection events of remote disks. It runs on shards, so it must not block.
pub(crate) type Watch = Arc<dyn Fn(PathName, PathEvent) + Send + Sync>;

/// Handler that gets the paths of a disk with several, when it is opened.
pub(crate) type OnRoster = Arc<dyn Fn(&Arc<Roster>) + Send + Sync>;

/// A way to a remote disk. Targets listen for several transports at one address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PathName {
    /// Its number among the paths of a disk.
    pub(crate) index: usize,
    /// Scheme of the URI.
    pub(crate) scheme: Arc<str>,
    pub(crate) address: SocketAddr,
}

/// Opens disks by their text. The same disk under two URIs is refused.
#[derive(Clone)]
pub(crate) struct Opener {
    options: Options,
    /// The reason why this machine has no host name for NVMe targets.
    nameless: Option<String>,
    initiator: String,
    /// Distinguishes this process's RAM disks from those of other processes on the machine.
    scope: String,
    opened: Arc<Opened>,
    watch: Option<Watch>,
    on_roster: Option<OnRoster>,
    /// The paths that a disk had when it was left, whatever its text says. Empty: those of the
    /// text.
    left_over: Vec<NumberedPath>,
    /// Policy of disks with several paths, whatever their text says.
    policy: Option<Policy>,
    /// A disk that discovery finds has one path, whatever is listed.
    has_one_path: bool,
}

impl Opener {
    /// `scope` distinguishes this use of disks from others on the same machine, for example by an
    /// address.
    pub(crate) fn new(
        remote: &RemoteArgs,
        engine: fabrix_rt::Engine,
        scope: &str,
    ) -> Result<Self, Failure> {
        let (mut options, nameless) =
            host_options_or_why(remote.hostnqn.as_deref(), remote.hostid)?;
        options.keep_alive = remote.keep_alive_tmo;
        options.reconnect_delay = remote.reconnect_delay;
        options.ctrl_loss = remote.ctrl_loss_tmo.0;
        options.local = remote.host_traddr;
        options.header_digest = remote.hdr_digest;
        options.data_digest = remote.data_digest;
        options.nr_io_queues = remote.nr_io_queues;
        options.queue_size = remote.queue_size;
        options.fast_io_fail = remote.fast_io_fail_tmo.0;
        options.engine = engine;
        Ok(Self {
            options,
            nameless,
            initiator: initiator_name(remote.initiator_name.as_deref())?,
            scope: scope.to_owned(),
            opened: Arc::default(),
            watch: None,
            on_roster: None,
            left_over: Vec::new(),
            policy: None,
            has_one_path: false,
        })
    }

    /// An opener with the same options and no open disks.
    pub(crate) fn apart(&self) -> Self {
        Self {
            opened: Arc::default(),
            ..self.clone()
        }
    }

    /// The same opener with a handler for connection events.
    pub(crate) fn watched(mut self, watch: Watch) -> Self {
        self.watch = Some(watch);
        self
    }

    /// The same opener with a handler for the paths of a disk with several.
    pub(crate) fn telling_paths(mut self, on_roster: OnRoster) -> Self {
        self.on_roster = Some(on_roster);
        self
    }

    /// The same opener, whose disk with several paths has these. None: those of its text.
    pub(crate) fn over(mut self, paths: &[NumberedPath]) -> Self {
        self.left_over = paths.to_vec();
        self
    }

    /// An opener for members of an array, whose paths are not those of the whole disk.
    fn of_members(&self) -> Self {
        Self {
            on_roster: None,
            left_over: Vec::new(),
            ..self.clone()
        }
    }

    /// The same opener, whose disks with several paths have this policy.
    pub(crate) fn under(mut self, policy: Policy) -> Self {
        self.policy = Some(policy);
        self
    }

    /// The same opener, for which a disk that discovery finds has one path.
    pub(crate) fn over_one_path(mut self) -> Self {
        self.has_one_path = true;
        self
    }

    /// Options for remote disks.
    pub(crate) fn options(&self) -> &Options {
        &self.options
    }

    /// Opens a disk. `read_only` adds the option `ro`: a file is then opened for reading only.
    ///
    /// Errors: also a disk with blocks of 1 byte, which hosts do not know.
    pub(crate) fn open(&self, text: &str, read_only: bool) -> Result<Arc<dyn Device>, Failure> {
        let device = self.open_for_load(text, read_only)?;
        with_whole_blocks(text, device)
    }

    /// Opens a disk as [`open`](Self::open) does, for export. Returns the ANA group in its text,
    /// too. The group is no property of the disk: its identity does not depend on it.
    pub(crate) fn open_export(
        &self,
        text: &str,
        read_only: bool,
    ) -> Result<(Arc<dyn Device>, Option<u32>), Failure> {
        let mut spec = Spec::parse(text).map_err(Failure::usage)?;
        let group = spec.common.ana_group.take();
        spec.common.read_only |= read_only;
        let device = with_whole_blocks(text, self.open_parsed(&spec)?)?;
        Ok((device, group))
    }

    /// Opens a disk for the load generator, which can use blocks of 1 byte.
    pub(crate) fn open_for_load(
        &self,
        text: &str,
        read_only: bool,
    ) -> Result<Arc<dyn Device>, Failure> {
        let mut spec = Spec::parse(text).map_err(Failure::usage)?;
        if spec.common.ana_group.is_some() {
            return Err(Failure::usage(format!(
                "{}: only `fabrix serve` has ANA groups; leave out ana=",
                without_secrets(text)
            )));
        }
        spec.common.read_only |= read_only;
        self.open_parsed(&spec)
    }

    /// Opens a disk, and prints its notes.
    fn open_parsed(&self, spec: &Spec) -> Result<Arc<dyn Device>, Failure> {
        let device = self.open_spec(spec)?;
        for note in device.notes() {
            say(note);
        }
        Ok(device)
    }

    fn open_spec(&self, spec: &Spec) -> Result<Arc<dyn Device>, Failure> {
        match &spec.disk {
            Disk::Remote(remote) => match self.discovered(remote)? {
                Discovered::Disk(disk) => self.named(spec, disk),
                Discovered::Paths(several) => {
                    let several = Spec {
                        disk: several,
                        common: spec.common.clone(),
                    };
                    self.named(&several, self.open_paths(&several, Origin::Listed)?)
                }
            },
            Disk::Multipath { .. } => self.named(spec, self.open_paths(spec, Origin::Given)?),
            Disk::Raid0 {
                chunk_bytes,
                members,
            } => {
                let opener = self.of_members();
                let opened = members.iter().map(|member| opener.open_spec(member));
                let opened = opened.collect::<Result<Vec<_>, _>>()?;
                let name = spec.common.name.clone().unwrap_or_else(|| spec.to_string());
                let identity = Identity::derive(&name, &self.seed(spec), "Fabrix RAID0 array");
                let names = opened::names(&identity);
                let array = Raid0::new(*chunk_bytes, opened, identity).map_err(Failure::from)?;
                let array = self.claimed(spec, array, names)?;
                Ok(apply_common_options(array, &spec.common))
            }
            Disk::Rbd(rbd) => {
                let text = spec.to_string();
                let disk = fabrix_rbd::open(&text, &access(rbd), &image(rbd), &spec.common);
                let disk: Arc<dyn Device> = Arc::new(disk.map_err(Failure::from)?);
                let names = opened::names(disk.identity());
                let disk = self.claimed(spec, disk, names)?;
                Ok(apply_common_options(disk, &spec.common))
            }
            disk => {
                let local = open_local_as(spec, &self.seed(spec)).map_err(Failure::from)?;
                let mut names = opened::names(local.identity());
                if let Disk::File { path, .. } = disk {
                    names.extend(opened::kernel_names(Path::new(path)));
                }
                self.claimed(spec, local, names)
            }
        }
    }

    /// Registers a disk as open until its last user is gone.
    ///
    /// Errors: the same disk is already open.
    fn claimed(
        &self,
        spec: &Spec,
        disk: Arc<dyn Device>,
        names: Vec<Name>,
    ) -> Result<Arc<dyn Device>, Failure> {
        // Local disks may be opened several times for reading, as far as their locks allow.
        let is_far = matches!(
            spec.disk,
            Disk::Rbd(_) | Disk::Remote(_) | Disk::Multipath { .. }
        );
        let shared = !is_far && spec.common.read_only;
        let claim = self.opened.claim(spec.to_string(), names, shared)?;
        Ok(Keeping::new(disk, claim))
    }

    /// Seed of a disk's identity. Equal texts are numbered, because each is a separate disk.
    fn seed(&self, spec: &Spec) -> String {
        let name = spec.common.name.clone().unwrap_or_else(|| place(spec));
        let machine = machine::id();
        let one = match is_in_memory(spec) {
            // A disk in memory is a different disk in every process.
            true => format!("{machine}/{}/{name}", self.scope),
            false => format!("{machine}/{name}"),
        };
        let seeds = (0_usize..).map(|copy| format!("{one}/{copy}"));
        let is_free = |seed: &String| !self.opened.has(&Identity::derive("", seed, ""));
        seeds.into_iter().find(is_free).unwrap_or(one)
    }

    /// A disk on another machine with the options of its text.
    fn named(&self, spec: &Spec, disk: Arc<dyn Device>) -> Result<Arc<dyn Device>, Failure> {
        let names = opened::names(disk.identity());
        let mut disk = self.claimed(spec, disk, names)?;
        // An unnamed remote disk keeps its remote identity, because hosts may reach it both
        // ways.
        if let Some(name) = &spec.common.name {
            let identity = Identity::derive(name, &self.seed(spec), "Fabrix remote disk");
            disk = Named::new(disk, identity);
            let names = opened::names(disk.identity());
            disk = self.claimed(spec, disk, names)?;
        }
        Ok(apply_common_options(disk, &spec.common))
    }

    fn open_remote(&self, remote: &Remote) -> Result<Arc<dyn PathDisk>, Failure> {
        self.try_remote(remote, 0)?.map_err(not_reached(remote))
    }

    /// Options of the sessions with a remote disk, which report where they belong.
    fn path_options(&self, remote: &Remote, index: usize) -> Result<(Options, Theirs), Failure> {
        let (mut options, theirs) = self.remote_options(remote)?;
        let scheme: Arc<str> = remote.scheme.as_str().into();
        let transport = Arc::clone(&scheme);
        options.notify = Arc::new(move |weight, sentence| {
            log::say(level(weight), format_args!("{transport}://{sentence}"));
        });
        if let Some(watch) = self.watch.clone() {
            options.watch = Arc::new(move |address, event| {
                let scheme = Arc::clone(&scheme);
                let name = PathName {
                    index,
                    scheme,
                    address,
                };
                watch(name, event);
            });
        }
        Ok((options, theirs))
    }

    /// Connects once. The inner error: the target was not reached, or has refused.
    fn try_remote(
        &self,
        remote: &Remote,
        index: usize,
    ) -> Result<Result<Arc<dyn PathDisk>, ConnectError>, Failure> {
        let (options, theirs) = self.path_options(remote, index)?;
        if is_iscsi(remote) {
            if options.nr_io_queues > 1 {
                let sentence =
                    "a session of iSCSI has one connection here: leave out --nr-io-queues";
                return Err(Failure::usage(format!("{remote}: {sentence}")));
            }
            let initiator = initiator(&self.initiator, remote, theirs)?;
            let disk = iscsi::connect(&unit(remote)?, &initiator, &options);
            return Ok(disk.map(|disk| Arc::new(disk) as Arc<dyn PathDisk>));
        }
        if let Some(why) = &self.nameless {
            return Err(Failure::usage(why));
        }
        let disk = fabrix_host::connect(&address(remote)?, &options);
        Ok(disk.map(|disk| Arc::new(disk) as Arc<dyn PathDisk>))
    }

    /// Address and connection options of an NVMe disk. None for other disks.
    pub(crate) fn nvme(&self, text: &str) -> Result<Option<(Address, Options)>, Failure> {
        let spec = Spec::parse(text).map_err(Failure::usage)?;
        match &spec.disk {
            Disk::Remote(remote) if !is_iscsi(remote) => {
                let (options, _) = self.remote_options(remote)?;
                Ok(Some((address(remote)?, options)))
            }
            _ => Ok(None),
        }
    }

    /// Options of one remote disk: those of the program plus those in its text.
    fn remote_options(&self, remote: &Remote) -> Result<(Options, Theirs), Failure> {
        let mut options = self.options.clone();
        let mut theirs = Theirs::default();
        for (key, value) in &remote.options {
            match (key.as_str(), value.as_str()) {
                ("hdr-digest", "") => options.header_digest = true,
                ("data-digest", "") => options.data_digest = true,
                ("target_user", user) if is_iscsi(remote) => theirs.user = user.to_owned(),
                ("target_password", secret) if is_iscsi(remote) => {
                    let secret = Secret::of_value(secret).map_err(Failure::usage)?;
                    theirs.secret = secrets::read(&secret, remote)?;
                }
                (key, value) => {
                    let is_host = value.is_empty() && key.contains(['.', ':']);
                    return Err(not_an_option(remote, key, is_host));
                }
            }
        }
        Ok((options, theirs))
    }
}

/// How the client of an image of Ceph proves who it is.
fn access(rbd: &Rbd) -> fabrix_rbd::Access {
    let path = |text: &Option<String>| text.as_ref().map(PathBuf::from);
    fabrix_rbd::Access {
        user: rbd.user.clone(),
        conf: path(&rbd.conf),
        keyring: path(&rbd.keyring),
    }
}

/// The names of an image of Ceph.
fn image(rbd: &Rbd) -> fabrix_rbd::Name {
    fabrix_rbd::Name {
        pool: rbd.pool.clone(),
        namespace: rbd.namespace.clone(),
        image: rbd.image.clone(),
        snapshot: rbd.snapshot.clone(),
    }
}

fn not_an_option(remote: &Remote, key: &str, is_host: bool) -> Failure {
    // The value may be a secret, so no option is shown.
    let mut place = remote.clone();
    place.options.clear();
    let more = match (is_host, is_iscsi(remote)) {
        (true, _) => "several hosts have a slash behind the last one: SCHEME://HOST,HOST/",
        (false, true) => "there are hdr-digest, data-digest, target_user and target_password",
        (false, false) => "there are hdr-digest, data-digest",
    };
    Failure::usage(format!(
        "{place}: `{key}` is not an option of a remote disk; {more}"
    ))
}

/// Refuses a disk with blocks of 1 byte.
fn with_whole_blocks(text: &str, device: Arc<dyn Device>) -> Result<Arc<dyn Device>, Failure> {
    if device.geometry().block_bytes >= DEFAULT_BLOCK_BYTES {
        return Ok(device);
    }
    Err(Failure::usage(format!(
        "{}: only `fabrix bench` can use block=1; leave it out",
        without_secrets(text)
    )))
}

fn level(weight: Weight) -> Level {
    match weight {
        Weight::Info => Level::Info,
        Weight::Warning => Level::Warning,
        Weight::Error => Level::Error,
    }
}

/// The account that an iSCSI target must prove (mutual CHAP), from the disk's address.
#[derive(Default)]
struct Theirs {
    user: String,
    secret: String,
}

/// The initiator's name and accounts for the target of an address.
fn initiator(name: &str, remote: &Remote, theirs: Theirs) -> Result<Initiator, Failure> {
    let ours = match &remote.account {
        Some(Account {
            user,
            secret: Some(secret),
        }) => Some(iscsi::Account {
            user: user.clone(),
            secret: secrets::read(secret, remote)?,
        }),
        Some(account) => {
            return Err(Failure::usage(format!(
                "{remote}: the secret of {user} is missing; write {scheme}://USER%SECRET@HOST, or USER%@FILE@HOST",
                user = account.user,
                scheme = remote.scheme,
            )));
        }
        None => None,
    };
    let theirs = match (theirs.user.is_empty(), theirs.secret.is_empty()) {
        (true, true) => None,
        (false, false) => Some(iscsi::Account {
            user: theirs.user,
            secret: theirs.secret,
        }),
        _ => {
            return Err(Failure::usage(format!(
                "{remote}: target_user and target_password go together"
            )));
        }
    };
    Ok(Initiator {
        name: name.to_owned(),
        ours,
        theirs,
    })
}

/// Address of a logical unit, or of a target without one.
pub(crate) fn unit(remote: &Remote) -> Result<iscsi::Address, Failure> {
    let lun = remote.nsid.map(lun).transpose();
    Ok(iscsi::Address {
        transport: iscsi::Address::transport_of(&remote.scheme).unwrap_or(Transport::Tcp),
        host: remote.host.clone(),
        port: remote.port.unwrap_or(iscsi::DEFAULT_PORT),
        target: remote.nqn.clone(),
        lun: lun.map_err(|_| Failure::usage(format!("{remote}: a LUN is at most 16383")))?,
    })
}

/// The LUN of an address: the number itself, or its flat form from 16384 on, which libiscsi needs
/// for LUNs from 256 on.
fn lun(said: u32) -> Result<u16, std::num::TryFromIntError> {
    let flat = FLAT_LUN..2 * FLAT_LUN;
    u16::try_from(if flat.contains(&said) {
        said - FLAT_LUN
    } else {
        said
    })
}

/// The number that libiscsi and QEMU need for a LUN. They send the number unchanged as the first
/// two bytes. From 256 on, its upper two bits must select the flat addressing method.
///
/// Source: SAM-5, section 4.7.7 "Flat space addressing method"; `iscsi_pdu_set_lun` of libiscsi
/// 1.19.
pub(crate) fn lun_of_libiscsi(lun: u32) -> u32 {
    if lun < 256 { lun } else { FLAT_LUN + lun }
}

/// Bit of the flat space addressing method in the first two bytes of a LUN.
const FLAT_LUN: u32 = 0x4000;

/// Asks a target for its list of targets.
pub(crate) fn discover_iscsi(
    remote: &Remote,
    name: Option<&str>,
    options: &Options,
) -> Result<Vec<iscsi::DiscoveredTarget>, Failure> {
    let initiator = initiator(&initiator_name(name)?, remote, Theirs::default())?;
    iscsi::discover(&unit(remote)?, &initiator, options).map_err(not_reached(remote))
}

/// The failure to reach a target, with the address that its user may have meant.
pub(crate) fn not_reached(remote: &Remote) -> impl Fn(ConnectError) -> Failure {
    let remote = remote.clone();
    move |error| {
        let hint = other_address(&remote, error.kind());
        let failure = Failure::from(error);
        match hint {
            Some(hint) => Failure::new(failure.kind(), format!("{failure} ({hint})")),
            None => failure,
        }
    }
}

/// The other protocol at a usual port of that protocol, over the same transport. Otherwise TCP for
/// a target that is not reached over RDMA.
fn other_address(remote: &Remote, kind: ConnectErrorKind) -> Option<String> {
    let transport = transport(remote)?;
    let meant = |scheme: &str| Remote {
        scheme: scheme.to_owned(),
        account: None,
        host: remote.host.clone(),
        port: remote.port,
        nqn: None,
        nsid: None,
        options: Vec::new(),
    };
    let is_iscsi = is_iscsi(remote);
    let (nvme, iscsi) = (transport.scheme(), iscsi::Address::scheme(transport));
    let other = match remote.port {
        Some(iscsi::DEFAULT_PORT) if !is_iscsi => Some(iscsi),
        Some(fabrix_host::DEFAULT_PORT | DISCOVERY_PORT) if is_iscsi => Some(nvme),
        _ => None,
    };
    match (kind, other) {
        (ConnectErrorKind::Usage | ConnectErrorKind::Local, _) => None,
        (_, Some(scheme)) => {
            let port = remote.port?;
            let meant = meant(scheme);
            Some(format!(
                "{port} is a usual port of {scheme}://: do you mean {meant}?"
            ))
        }
        (ConnectErrorKind::Unreachable, None) if transport == Transport::Rdma => {
            let scheme = match is_iscsi {
                true => iscsi::Address::scheme(Transport::Tcp),
                false => Transport::Tcp.scheme(),
            };
            Some(format!("over TCP: {}", meant(scheme)))
        }
        _ => None,
    }
}

/// What carries the connections to a target. None: no protocol of ours.
pub(crate) fn transport(remote: &Remote) -> Option<Transport> {
    let scheme = &remote.scheme;
    Transport::of_scheme(scheme).or_else(|| iscsi::Address::transport_of(scheme))
}

/// Whether an address is one of iSCSI, over TCP or RDMA.
pub(crate) fn is_iscsi(remote: &Remote) -> bool {
    iscsi::Address::transport_of(&remote.scheme).is_some()
}

/// Location of an unnamed disk, from which its identity is derived. It does not depend on the
/// options.
fn place(spec: &Spec) -> String {
    match &spec.disk {
        Disk::File { path, .. } => {
            let path = Path::new(path);
            if path.is_file() {
                let there = path.canonicalize();
                return there.map_or_else(|_| spec.to_string(), |path| path.display().to_string());
            }
            // Resolves the folder but not the file itself: for devices, hosts may know the link
            // rather than its changing target.
            let folder = path.parent().map(|folder| Path::new(".").join(folder));
            let folder = folder.and_then(|folder| folder.canonicalize().ok());
            let file = path.file_name().unwrap_or(path.as_os_str());
            folder
                .map_or_else(|| path.to_owned(), |folder| folder.join(file))
                .display()
                .to_string()
        }
        Disk::Raid0 {
            chunk_bytes,
            members,
        } => {
            let members: Vec<String> = members.iter().map(place).collect();
            format!("raid0:chunk={chunk_bytes},({})", members.join(","))
        }
        _ => spec.to_string(),
    }
}

/// Whether the disk or a member of it is memory of this process.
pub(crate) fn is_in_memory(spec: &Spec) -> bool {
    match &spec.disk {
        Disk::Ram { .. } | Disk::Null { .. } => true,
        Disk::Raid0 { members, .. } => members.iter().any(is_in_memory),
        Disk::File { .. } | Disk::Rbd(_) | Disk::Remote(_) | Disk::Multipath { .. } => false,
    }
}

/// Whether the disk or a member of it is an image of Ceph.
pub(crate) fn is_of_ceph(spec: &Spec) -> bool {
    match &spec.disk {
        Disk::Rbd(_) => true,
        Disk::Raid0 { members, .. } => members.iter().any(is_of_ceph),
        _ => false,
    }
}

/// Whether the disk or a member of it is remote.
pub(crate) fn is_far(spec: &Spec) -> bool {
    match &spec.disk {
        Disk::Remote(_) | Disk::Multipath { .. } => true,
        Disk::Raid0 { members, .. } => members.iter().any(is_far),
        Disk::Ram { .. } | Disk::Null { .. } | Disk::File { .. } | Disk::Rbd(_) => false,
    }
}

/// Address of a remote disk or target.
pub(crate) fn address(remote: &Remote) -> Result<Address, Failure> {
    let Some(transport) = Transport::of_scheme(&remote.scheme) else {
        return Err(Failure::usage(format!(
            "{}://{}: this version reaches remote disks over nvme+tcp, nvme+rdma, iscsi and iser only",
            remote.scheme, remote.host
        )));
    };
    Ok(Address {
        transport,
        host: remote.host.clone(),
        port: remote.port.unwrap_or(fabrix_host::DEFAULT_PORT),
        subsystem: remote.nqn.clone(),
        nsid: remote.nsid,
    })
}

impl From<OpenError> for Failure {
    fn from(error: OpenError) -> Self {
        let kind = match error.kind {
            // The named object is missing or unsuitable. A retry with the same text would fail
            // again.
            OpenErrorKind::Usage | OpenErrorKind::NotFound | OpenErrorKind::Unsupported => {
                Kind::Usage
            }
            OpenErrorKind::Unreachable | OpenErrorKind::Authentication => Kind::Connect,
            _ => Kind::Io,
        };
        Self::new(kind, error)
    }
}

impl From<ConnectError> for Failure {
    fn from(error: ConnectError) -> Self {
        let kind = match error.kind() {
            ConnectErrorKind::Usage => Kind::Usage,
            // Whatever is missing, at this machine or at the other: there is no connection.
            _ => Kind::Connect,
        };
        Self::new(kind, error)
    }
}
