//! Opens single remote disks: their options, accounts and addresses, and what is said when a target
//! is not reached.

use std::sync::Arc;

use fabrix_block::spec::{Account, Remote, Secret};

use fabrix_block::Spec;
use fabrix_block::spec::Disk;
use fabrix_host::iscsi::{self, Initiator};
use fabrix_host::multipath::PathDisk;
use fabrix_host::{Address, ConnectError, ConnectErrorKind, Options, Transport, Weight};
use fabrix_target::DISCOVERY_PORT;

use super::{Opener, PathName};
use crate::failure::{Failure, Kind};
use crate::host_names::initiator_name;
use crate::log::{self, Level};
use crate::secrets;

impl Opener {
    pub(super) fn open_remote(&self, remote: &Remote) -> Result<Arc<dyn PathDisk>, Failure> {
        self.try_remote(remote, 0)?.map_err(not_reached(remote))
    }

    /// Options of the sessions with a remote disk, which report where they belong.
    pub(super) fn path_options(
        &self,
        remote: &Remote,
        index: usize,
    ) -> Result<(Options, Theirs), Failure> {
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
    pub(super) fn try_remote(
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
    pub(super) fn remote_options(&self, remote: &Remote) -> Result<(Options, Theirs), Failure> {
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

fn not_an_option(remote: &Remote, key: &str, is_host: bool) -> Failure {
    // The value may be a secret, so no option is shown.
    let mut place = remote.clone();
    place.options.clear();
    match key {
        "hdr-digest" | "data-digest" => {
            return Failure::usage(format!("{place}: `{key}` has no value: write {key} alone"));
        }
        "policy" | "failover" => {
            return Failure::usage(format!(
                "{place}: `{key}` is an option of a disk with several paths: multipath:(URI,URI),{key}=..."
            ));
        }
        _ => {}
    }
    let more = match (is_host, is_iscsi(remote)) {
        (true, _) => "several hosts have a slash behind the last one: SCHEME://HOST,HOST/",
        (false, true) => "there are hdr-digest, data-digest, target_user and target_password",
        (false, false) => "there are hdr-digest, data-digest",
    };
    Failure::usage(format!(
        "{place}: `{key}` is not an option of a remote disk; {more}"
    ))
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
pub(super) struct Theirs {
    user: String,
    secret: String,
}

/// The initiator's name and accounts for the target of an address.
pub(super) fn initiator(name: &str, remote: &Remote, theirs: Theirs) -> Result<Initiator, Failure> {
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
pub(super) fn other_address(remote: &Remote, kind: ConnectErrorKind) -> Option<String> {
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
