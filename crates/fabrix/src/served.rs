//! What a running `serve` serves, and how that changes: disks by namespace id, addresses, hosts.
//!
//! Joins the target with the opener of disks (`export_opener`), makes the target's catalog
//! (`catalog`), reads addresses (`listen`), and says what users are shown (`shown`). Knows neither
//! the command line that started it nor the socket through which it is changed.

mod catalog;
mod export_opener;
mod listen;
mod shown;

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use fabrix_block::spec::{Size, without_secrets};
use fabrix_target::{Catalog, Export, Listen, NAMESPACES_MAX, Target, TargetError};

pub(crate) use self::catalog::catalog;
pub(crate) use self::export_opener::ExportOpener;
use self::listen::serves_disks;
pub(crate) use self::listen::{check_addresses, listen_address, socket_address};
use crate::access::Allowed;
use crate::failure::{Failure, Kind};

/// What is served now.
pub(crate) struct Served {
    pub(crate) target: Target,
    nqn: String,
    iqn: String,
    opener: ExportOpener,
    state: Mutex<Now>,
}

/// What the target does not remember. Locked while something changes, so that changes come one
/// after another.
struct Now {
    disks: BTreeMap<u32, String>,
    allowed: Allowed,
}

impl Served {
    /// `disks` are the texts of the namespaces that the target exports, from 1 on.
    pub(crate) fn new(
        target: Target,
        (nqn, iqn): (&str, &str),
        opener: ExportOpener,
        disks: &[String],
        allowed: Allowed,
    ) -> Self {
        // What is kept is shown to whoever asks.
        let shown = disks.iter().map(|text| without_secrets(text));
        let disks = (1..).zip(shown).collect();
        Self {
            target,
            nqn: nqn.to_owned(),
            iqn: iqn.to_owned(),
            opener,
            state: Mutex::new(Now { disks, allowed }),
        }
    }

    fn state(&self) -> MutexGuard<'_, Now> {
        // The state is changed after the target was: a thread that panicked has left it as it was.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens one more disk and exports it, under the id asked for or the lowest that is free. Gives
    /// its id.
    pub(crate) fn add(&self, text: &str, nsid: Option<u32>) -> Result<u32, Failure> {
        let mut state = self.state();
        let free = || (1..=NAMESPACES_MAX).find(|nsid| !state.disks.contains_key(nsid));
        let nsid = nsid.or_else(free).ok_or_else(|| {
            Failure::usage(format!("there are {NAMESPACES_MAX} namespaces already"))
        })?;
        if !(1..=NAMESPACES_MAX).contains(&nsid) {
            return Err(Failure::usage(format!(
                "namespace {nsid}: the id must be between 1 and {NAMESPACES_MAX}"
            )));
        }
        if let Some(other) = state.disks.get(&nsid) {
            return Err(Failure::usage(format!(
                "namespace {nsid} is {other}; remove it first, or choose another id"
            )));
        }
        // What is kept is shown to whoever asks.
        let shown = without_secrets(text);
        let device = self.opener.open(text)?;
        self.change_disks(|disks| {
            disks.push(Export {
                number: nsid,
                device,
            });
            Ok(())
        })?;
        state.disks.insert(nsid, shown);
        Ok(nsid)
    }

    /// Exports a disk no more, and closes it when its last request has ended.
    pub(crate) fn remove(&self, nsid: u32) -> Result<(), Failure> {
        let mut state = self.state();
        self.change_disks(|disks| {
            let at = position(disks, nsid)?;
            disks.remove(at);
            Ok(())
        })?;
        state.disks.remove(&nsid);
        Ok(())
    }

    /// Makes a disk so large, or finds out how large it has become. It becomes smaller only where
    /// `shrink` says so.
    pub(crate) fn resize(
        &self,
        nsid: u32,
        bytes: Option<u64>,
        shrink: bool,
    ) -> Result<(), Failure> {
        let _one_at_a_time = self.state();
        let exports = self.exports();
        let export = &exports[position(&exports, nsid).map_err(Failure::usage)?];
        if let Some(bytes) = bytes.filter(|_| !shrink) {
            refuse_shrinking(export, bytes)?;
        }
        let device = export.device.remeasure(bytes)?;
        self.change_disks(|disks| {
            let at = position(disks, nsid)?;
            disks[at].device = device;
            Ok(())
        })
    }

    /// Listens at one more address.
    pub(crate) fn listen(&self, text: &str) -> Result<(), Failure> {
        let state = self.state();
        let listen = listen_address(text)?;
        state.allowed.check(listen)?;
        self.change(|catalog| {
            catalog.listen.push(listen);
            Ok(())
        })
    }

    /// Listens at an address no more; connections that are there stay.
    pub(crate) fn unlisten(&self, text: &str) -> Result<(), Failure> {
        let _one_at_a_time = self.state();
        let address = listen_address(text)?.portal.address;
        let is_other = |listen: &Listen| listen.portal.address != address;
        let listens = self.target.catalog().listen;
        if !listens.iter().filter(|it| is_other(it)).any(serves_disks) {
            return Err(Failure::usage(format!(
                "{text} is the only address that serves disks: without one nobody could come back"
            )));
        }
        if listens.iter().all(is_other) {
            let sentence = format!("the target does not listen on {address}");
            return Err(Failure::usage(sentence));
        }
        self.change(|catalog| {
            catalog.listen.retain(is_other);
            Ok(())
        })
    }

    /// Says who may connect from now on, in the words of `--allow`; who is connected and may no
    /// more has to go.
    pub(crate) fn allow(&self, words: &[String]) -> Result<(), Failure> {
        let mut state = self.state();
        let allowed = state.allowed.changed(words)?;
        for listen in self.target.catalog().listen {
            allowed.check(listen)?;
        }
        self.change(|catalog| {
            for subsystem in &mut catalog.subsystems {
                subsystem.hosts = allowed.hosts();
            }
            for target in &mut catalog.iscsi_targets {
                target.initiators.names = allowed.initiators();
            }
            Ok(())
        })?;
        state.allowed = allowed;
        Ok(())
    }

    /// The disks by namespace id.
    fn exports(&self) -> Vec<Export> {
        catalog::disks(&self.target.catalog()).to_vec()
    }

    /// Exports other disks, in the subsystem and in the iSCSI target.
    fn change_disks(
        &self,
        edit: impl FnOnce(&mut Vec<Export>) -> Result<(), String>,
    ) -> Result<(), Failure> {
        self.change(|catalog| {
            let mut disks = catalog::disks(catalog).to_vec();
            edit(&mut disks)?;
            catalog::set_disks(catalog, disks);
            Ok(())
        })
    }

    fn change(&self, edit: impl FnOnce(&mut Catalog) -> Result<(), String>) -> Result<(), Failure> {
        self.target.change(edit).map_err(|error| failure(&error))
    }
}

fn position(disks: &[Export], nsid: u32) -> Result<usize, String> {
    let at = disks.iter().position(|export| export.number == nsid);
    at.ok_or_else(|| format!("there is no namespace {nsid}"))
}

/// What lies behind a nearer end is lost, so it has to be asked for. A file may have become larger
/// than what is served.
fn refuse_shrinking(export: &Export, bytes: u64) -> Result<(), Failure> {
    let served = export.device.geometry().bytes();
    let has = export.device.remeasure(None)?.geometry().bytes();
    if bytes >= served.max(has) {
        return Ok(());
    }
    Err(Failure::usage(format!(
        "namespace {} has {}: with {} it loses what lies behind; add --shrink (`\"shrink\": true`) if that is meant",
        export.number,
        Size(served.max(has)),
        Size(bytes)
    )))
}

/// A target that does not start, or a catalog that does not change.
pub(crate) fn failure(error: &TargetError) -> Failure {
    let kind = match error {
        TargetError::Refused(_) => Kind::Usage,
        TargetError::Listen(..) => Kind::Connect,
        TargetError::Stopped | TargetError::Late => Kind::Io,
    };
    Failure::new(kind, error)
}
