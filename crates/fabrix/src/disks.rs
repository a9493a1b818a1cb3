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
mod rbd;
mod remote;
#[cfg(test)]
mod tests;

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use fabrix_block::filter::keeping::Keeping;
use fabrix_block::filter::named::Named;
use fabrix_block::geometry::DEFAULT_BLOCK_BYTES;
use fabrix_block::raid0::Raid0;
use fabrix_block::spec::{Disk, without_secrets};
use fabrix_block::{
    Device, Identity, OpenError, OpenErrorKind, Spec, apply_common_options, open_local_as,
};
use fabrix_host::multipath::{Policy, Roster};
use fabrix_host::{Options, PathEvent};

use self::discovered::Discovered;
pub(crate) use self::discovered::leads_to_discovery;
pub(crate) use self::opened::kernel_folder;
use self::opened::{Name, Opened};
use self::paths::Origin;
pub(crate) use self::paths::{NumberedPath, path};
pub(crate) use self::rbd::{access, image};
use self::remote::initiator;
pub(crate) use self::remote::{
    address, discover_iscsi, is_iscsi, lun_of_libiscsi, not_reached, transport, unit,
};
use crate::args::RemoteArgs;
use crate::cli::terminal::say;
use crate::failure::{Failure, Kind};
use crate::host_names::{host_options_or_why, initiator_name};
use crate::machine;

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
            Disk::Rbd(rbd) => self.open_rbd(spec, rbd),
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
