//! From a disk's text to a disk: the one place that knows every kind, remote ones included.
//!
//! Composes `block`, `raid0` over anything, and `host`; turns their errors into failures of the program. Identities
//! come from this machine's id and the disk's name, so that they survive a restart and differ between machines.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use fabrix_block::filter::named::Named;
use fabrix_block::raid0::Raid0;
use fabrix_block::spec::{Account, Disk, Remote};
use fabrix_block::{Device, Identity, OpenError, OpenErrorKind, Spec, dress, open_local_as};
use fabrix_host::iscsi::{self, Initiator};
use fabrix_host::{Address, ConnectError, ConnectErrorKind, Nqn, Options, PathEvent};

use crate::args::{RemoteArgs, parse_uuid};
use crate::cli::terminal::say;
use crate::failure::{Failure, Kind};

/// Hears what happens to the connections of disks; called on shards, so it must not wait.
pub(crate) type Watch = Arc<dyn Fn(SocketAddr, PathEvent) + Send + Sync>;

/// Opens disks by their text.
pub(crate) struct Opener {
    options: Options,
    initiator: String,
    /// What makes identities differ from those of other machines and other exports.
    scope: String,
}

impl Opener {
    /// `scope` distinguishes this use of disks from others on the same machine, a subsystem's name for instance.
    pub(crate) fn new(
        remote: &RemoteArgs,
        engine: fabrix_rt::Engine,
        scope: &str,
    ) -> Result<Self, Failure> {
        let mut options = host_options(remote.hostnqn.as_deref())?;
        if let Some(id) = remote.hostid {
            options.host_id = id.0;
        }
        options.keep_alive = remote.keep_alive_tmo;
        options.reconnect_delay = remote.reconnect_delay;
        options.ctrl_loss = remote.ctrl_loss_tmo.0;
        options.local = remote.host_traddr;
        options.header_digest = remote.hdr_digest;
        options.data_digest = remote.data_digest;
        options.nr_io_queues = remote.nr_io_queues;
        options.queue_size = remote.queue_size;
        options.fast_io_fail = remote.fast_io_fail_tmo;
        options.engine = engine;
        Ok(Self {
            options,
            initiator: initiator_name(remote.initiator_name.as_deref())?,
            scope: format!("{}/{scope}", machine_id()),
        })
    }

    /// The same, telling what happens to the connections of the disks that it opens.
    pub(crate) fn watched(mut self, watch: Watch) -> Self {
        self.options.watch = watch;
        self
    }

    /// How remote disks are reached.
    pub(crate) fn options(&self) -> &Options {
        &self.options
    }

    /// Opens a disk; `copy` counts equal texts before it, so that two equal RAM disks are two disks. `read_only` is the
    /// option `ro`, said for it: a file is then opened for reading only.
    pub(crate) fn open(
        &self,
        text: &str,
        copy: usize,
        read_only: bool,
    ) -> Result<Arc<dyn Device>, Failure> {
        let mut spec = Spec::parse(text).map_err(Failure::usage)?;
        spec.common.read_only |= read_only;
        let device = self.open_spec(&spec, copy)?;
        for note in device.notes() {
            say(note);
        }
        Ok(device)
    }

    fn open_spec(&self, spec: &Spec, copy: usize) -> Result<Arc<dyn Device>, Failure> {
        match &spec.disk {
            Disk::Remote(remote) => {
                let mut disk = self.open_remote(remote)?;
                // Unnamed it stays the disk that it is over there: hosts may reach it both ways.
                if let Some(name) = &spec.common.name {
                    let identity =
                        Identity::derive(name, &self.seed(spec, copy), "Fabrix remote disk");
                    disk = Named::new(disk, identity);
                }
                Ok(dress(disk, &spec.common))
            }
            Disk::Raid0 {
                chunk_bytes,
                members,
            } => {
                let opened = members
                    .iter()
                    .enumerate()
                    .map(|(index, member)| self.open_spec(member, index));
                let opened = opened.collect::<Result<Vec<_>, _>>()?;
                let name = spec.common.name.clone().unwrap_or_else(|| spec.to_string());
                let identity =
                    Identity::derive(&name, &self.seed(spec, copy), "Fabrix RAID0 array");
                let array = Raid0::new(*chunk_bytes, opened, identity).map_err(Failure::from)?;
                Ok(dress(array, &spec.common))
            }
            _ => open_local_as(spec, &self.seed(spec, copy)).map_err(Failure::from),
        }
    }

    fn seed(&self, spec: &Spec, copy: usize) -> String {
        let name = spec.common.name.clone().unwrap_or_else(|| place(spec));
        format!("{}/{name}/{copy}", self.scope)
    }

    fn open_remote(&self, remote: &Remote) -> Result<Arc<dyn Device>, Failure> {
        let (mut options, secrets) = self.remote_options(remote)?;
        options.notify = Arc::new(|sentence| say(sentence));
        if remote.scheme == ISCSI {
            if options.nr_io_queues > 1 {
                let sentence =
                    "a session of iSCSI has one connection here: leave out --nr-io-queues";
                return Err(Failure::usage(format!("{remote}: {sentence}")));
            }
            let initiator = initiator(&self.initiator, remote, secrets)?;
            let disk = iscsi::connect(&unit(remote)?, &initiator, &options);
            return Ok(Arc::new(disk.map_err(Failure::from)?));
        }
        let disk = fabrix_host::connect(&address(remote)?, &options).map_err(Failure::from)?;
        Ok(Arc::new(disk))
    }

    /// A disk over NVMe/TCP with what it takes to ask its target besides: where it is, and as whom. None for others.
    pub(crate) fn nvme(&self, text: &str) -> Result<Option<(Address, Options)>, Failure> {
        let spec = Spec::parse(text).map_err(Failure::usage)?;
        match &spec.disk {
            Disk::Remote(remote) if remote.scheme != ISCSI => {
                let (options, _) = self.remote_options(remote)?;
                Ok(Some((address(remote)?, options)))
            }
            _ => Ok(None),
        }
    }

    /// The options of one remote disk: those of the program, and what its text adds.
    fn remote_options(&self, remote: &Remote) -> Result<(Options, Secrets), Failure> {
        let mut options = self.options.clone();
        let mut secrets = Secrets::default();
        for (key, value) in &remote.options {
            match (key.as_str(), value.as_str()) {
                ("hdr-digest", "") => options.header_digest = true,
                ("data-digest", "") => options.data_digest = true,
                ("target_user", user) if remote.scheme == ISCSI => secrets.user = user.to_owned(),
                ("target_password", secret) if remote.scheme == ISCSI => {
                    secrets.secret = secret.to_owned();
                }
                _ => {
                    let more = if remote.scheme == ISCSI {
                        ", target_user and target_password"
                    } else {
                        ""
                    };
                    return Err(Failure::usage(format!(
                        "{remote}: `{key}` is not an option of a remote disk; there are hdr-digest, data-digest{more}"
                    )));
                }
            }
        }
        Ok((options, secrets))
    }
}

/// What an iSCSI target is to prove (mutual CHAP), as an address says it.
#[derive(Default)]
struct Secrets {
    user: String,
    secret: String,
}

/// Who we are to the target of an address.
fn initiator(name: &str, remote: &Remote, theirs: Secrets) -> Result<Initiator, Failure> {
    let ours = match &remote.account {
        Some(Account {
            user,
            secret: Some(secret),
        }) => Some(iscsi::Account {
            user: user.clone(),
            secret: secret.clone(),
        }),
        Some(account) => {
            return Err(Failure::usage(format!(
                "{remote}: the secret of {} is missing; write iscsi://USER%SECRET@HOST",
                account.user
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

/// Where a logical unit is, or a target to be asked.
pub(crate) fn unit(remote: &Remote) -> Result<iscsi::Address, Failure> {
    let lun = remote.nsid.map(u16::try_from).transpose();
    Ok(iscsi::Address {
        host: remote.host.clone(),
        port: remote.port.unwrap_or(iscsi::DEFAULT_PORT),
        target: remote.nqn.clone(),
        lun: lun.map_err(|_| Failure::usage(format!("{remote}: a LUN is at most 16383")))?,
    })
}

/// Asks the target of an address which targets there are.
pub(crate) fn discover_iscsi(
    remote: &Remote,
    name: Option<&str>,
    options: &Options,
) -> Result<Vec<iscsi::DiscoveredTarget>, Failure> {
    let initiator = initiator(&initiator_name(name)?, remote, Secrets::default())?;
    Ok(iscsi::discover(&unit(remote)?, &initiator, options)?)
}

/// The scheme of iSCSI's addresses.
pub(crate) const ISCSI: &str = "iscsi";

/// What an unnamed disk is recognised by: where it is, and not with which options it was opened this time.
fn place(spec: &Spec) -> String {
    match &spec.disk {
        Disk::File { path, .. } => {
            // The folder as it is, but not the file: of two links to a device, hosts may know the one that stays.
            let path = Path::new(path);
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
        Disk::Ram { .. } | Disk::Null { .. } | Disk::Remote(_) => spec.to_string(),
    }
}

/// The address of a remote disk or target.
pub(crate) fn address(remote: &Remote) -> Result<Address, Failure> {
    if remote.scheme != "nvme+tcp" {
        return Err(Failure::usage(format!(
            "{}://{}: this version reaches remote disks over nvme+tcp and iscsi only",
            remote.scheme, remote.host
        )));
    }
    Ok(Address {
        host: remote.host.clone(),
        port: remote.port.unwrap_or(fabrix_host::DEFAULT_PORT),
        subsystem: remote.nqn.clone(),
        nsid: remote.nsid,
    })
}

/// Who this machine says it is to targets: the name given, the system's, or one made from the machine's id.
pub(crate) fn host_options(name: Option<&str>) -> Result<Options, Failure> {
    let identity = Identity::derive("host", &format!("{}/host", machine_id()), "host");
    let system = std::fs::read_to_string("/etc/nvme/hostnqn")
        .ok()
        .map(|text| text.trim().to_owned());
    let made = format!("nqn.2014-08.org.nvmexpress:uuid:{}", identity.uuid_text());
    let name = name
        .map(str::to_owned)
        .or_else(|| system.filter(|text| !text.is_empty()))
        .unwrap_or(made);
    let host = Nqn::new(&name)
        .map_err(|error| Failure::usage(format!("the host NQN `{name}` is not one: {error}")))?;
    let id = std::fs::read_to_string("/etc/nvme/hostid").ok();
    let id = id.and_then(|text| parse_uuid(text.trim()).ok());
    Ok(Options::new(host, id.map_or(identity.uuid, |id| id.0)))
}

/// Who this machine says it is to iSCSI targets: the name given, the system's, or one made from the machine's id.
pub(crate) fn initiator_name(name: Option<&str>) -> Result<String, Failure> {
    let system = std::fs::read_to_string("/etc/iscsi/initiatorname.iscsi").ok();
    let system = system.as_deref().and_then(|text| {
        let mut lines = text.lines().map(str::trim);
        lines.find_map(|line| line.strip_prefix("InitiatorName="))
    });
    let made = || {
        let identity = Identity::derive("host", &format!("{}/initiator", machine_id()), "host");
        format!(
            "iqn.2026-01.io.fabrix:{}",
            identity.serial.to_ascii_lowercase()
        )
    };
    let name = name.or(system).map_or_else(made, str::to_owned);
    let has_form = ["iqn.", "eui.", "naa."]
        .iter()
        .any(|kind| name.starts_with(kind));
    if !has_form || name.len() > 223 || !name.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(Failure::usage(format!(
            "the initiator's name `{name}` is not one: write iqn.2026-01.com.example:me"
        )));
    }
    Ok(name)
}

/// What distinguishes this machine from others; the same after every start.
fn machine_id() -> String {
    let read = |path| {
        std::fs::read_to_string(path)
            .ok()
            .map(|text: String| text.trim().to_owned())
    };
    read("/etc/machine-id")
        .filter(|id| !id.is_empty())
        .or_else(|| read("/proc/sys/kernel/hostname"))
        .unwrap_or_default()
}

impl From<OpenError> for Failure {
    fn from(error: OpenError) -> Self {
        let kind = match error.kind {
            // What was named is not there, or is no disk: another try with the same words ends the same way.
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
            ConnectErrorKind::Local => Kind::Io,
            _ => Kind::Connect,
        };
        Self::new(kind, error)
    }
}
