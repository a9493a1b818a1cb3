//! What a running `serve` serves, and how that changes: disks by namespace id, addresses, hosts.
//!
//! Joins the target with the opener of disks (`export_opener`), reads addresses (`listen`), and
//! says what users are shown (`shown`). Knows neither the command line that started it nor the
//! socket through which it is changed.

mod export_opener;
mod listen;
mod shown;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use fabrix_block::spec::{Size, without_secrets};
use fabrix_target::{Export, NAMESPACES_MAX, Target};

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
        if let Some(other) = state.disks.get(&nsid) {
            return Err(Failure::usage(format!(
                "namespace {nsid} is {other}; remove it first, or choose another id"
            )));
        }
        // What is kept is shown to whoever asks.
        let shown = without_secrets(text);
        let device = self.opener.open(text)?;
        self.target.add(Export { nsid, device }).map_err(refused)?;
        state.disks.insert(nsid, shown);
        Ok(nsid)
    }

    /// Exports a disk no more, and closes it when its last request has ended.
    pub(crate) fn remove(&self, nsid: u32) -> Result<(), Failure> {
        let mut state = self.state();
        self.target.remove(nsid).map_err(refused)?;
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
        let exports = self.target.exports();
        let export = exports.iter().find(|export| export.nsid == nsid);
        let export =
            export.ok_or_else(|| Failure::usage(format!("there is no namespace {nsid}")))?;
        if let Some(bytes) = bytes.filter(|_| !shrink) {
            refuse_shrinking(export, bytes)?;
        }
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
        let address = listen_address(text)?.portal.address;
        let listens = self.target.listens();
        let mut others = listens
            .iter()
            .filter(|listen| listen.portal.address != address);
        if !others.any(serves_disks) {
            return Err(Failure::usage(format!(
                "{text} is the only address that serves disks: without one nobody could come back"
            )));
        }
        self.target.close_port(address).map_err(refused)
    }

    /// Says who may connect from now on, in the words of `--allow`; who is connected and may no
    /// more has to go.
    pub(crate) fn allow(&self, words: &[String]) -> Result<(), Failure> {
        let mut state = self.state();
        let allowed = state.allowed.changed(words)?;
        for listen in self.target.listens() {
            allowed.check(listen)?;
        }
        self.target.set_hosts(allowed.hosts()).map_err(refused)?;
        let initiators = allowed.initiators();
        self.target.set_initiators(initiators).map_err(refused)?;
        state.allowed = allowed;
        Ok(())
    }
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
        export.nsid,
        Size(served.max(has)),
        Size(bytes)
    )))
}

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
