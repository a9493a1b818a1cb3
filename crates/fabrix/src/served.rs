//! The exports of a running `serve` and their changes: disks by namespace id, listening addresses
//! and allowed hosts.
//!
//! Joins the target with the opener of disks (`export_opener`), builds the target's catalog
//! (`catalog`), parses addresses (`listen`), and formats the output for users (`shown`). This
//! module depends neither on the command line of `serve` nor on the control socket that requests
//! changes.

mod ana;
mod catalog;
mod export_opener;
mod group;
mod listen;
mod shown;
mod sizes;

use std::collections::BTreeMap;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, OnceLock};

use fabrix_block::Watching;
use fabrix_block::spec::{Size, without_secrets};
use fabrix_target::{Catalog, Export, Listen, NAMESPACES_MAX, Target, TargetError};

pub(crate) use self::catalog::catalog;
pub(crate) use self::export_opener::ExportOpener;
pub(crate) use self::group::{gateways_of, refuse_all};
use self::listen::serves_disks;
pub(crate) use self::listen::{
    check_addresses, elsewhere, listen_address, listen_uri, scheme, socket_address,
};
use crate::access::Allowed;
use crate::failure::{Failure, Kind};
use crate::locks::lock;

/// A running target with the texts that describe its exports.
pub(crate) struct Served {
    pub(crate) target: Target,
    nqn: String,
    iqn: String,
    opener: ExportOpener,
    state: Mutex<ServedState>,
    /// Takes the ids of namespaces whose disks may have another size. Empty: nobody follows.
    changed: OnceLock<Sender<u32>>,
    /// Asks the other gateways of the group for an ANA group. Empty: there is no group.
    asks: OnceLock<Asks>,
}

/// Asks for an ANA group.
type Asks = Box<dyn Fn(u32) + Send + Sync>;

/// State that the target itself does not store. The lock is held during a change, so that changes
/// happen one after another.
struct ServedState {
    /// Texts of the disks by namespace id, without secrets.
    disks: BTreeMap<u32, String>,
    allowed: Allowed,
    /// What tells of new sizes, by namespace id. Most disks do not tell.
    watches: BTreeMap<u32, Watching>,
    /// The state of the gateway group, and the number of this gateway. None: there is no group.
    group: Option<(fabrix_gateways::State, fabrix_gateways::GatewayNumber)>,
}

impl Served {
    /// `disks` are the texts of the exported namespaces, starting with namespace 1.
    pub(crate) fn new(
        target: Target,
        (nqn, iqn): (&str, &str),
        opener: ExportOpener,
        disks: &[String],
        allowed: Allowed,
    ) -> Self {
        // The stored texts are shown to users, so they contain no secrets.
        let shown = disks.iter().map(|text| without_secrets(text));
        let disks = (1..).zip(shown).collect();
        Self {
            target,
            nqn: nqn.to_owned(),
            iqn: iqn.to_owned(),
            opener,
            state: Mutex::new(ServedState {
                disks,
                allowed,
                watches: BTreeMap::new(),
                group: None,
            }),
            changed: OnceLock::new(),
            asks: OnceLock::new(),
        }
    }

    /// Opens an additional disk and exports it under `nsid`, or under the lowest free id. Returns
    /// its id.
    pub(crate) fn add(&self, text: &str, nsid: Option<u32>) -> Result<u32, Failure> {
        self.refuse_in_group(SAME_DISKS)?;
        let mut state = lock(&self.state);
        let free = || (1..=NAMESPACES_MAX).find(|nsid| !state.disks.contains_key(nsid));
        let nsid = nsid.or_else(free).ok_or_else(|| {
            Failure::usage(format!(
                "there are {NAMESPACES_MAX} namespaces already; remove one first"
            ))
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
        let shown = without_secrets(text);
        let export = self.opener.open(nsid, text)?;
        let watching = self.watch(&export);
        self.change_disks(|disks| {
            disks.push(export);
            Ok(())
        })?;
        state.disks.insert(nsid, shown);
        state
            .watches
            .extend(watching.map(|watching| (nsid, watching)));
        Ok(nsid)
    }

    /// Removes a disk from the exports. It is closed when its last request has completed.
    pub(crate) fn remove(&self, nsid: u32) -> Result<(), Failure> {
        self.refuse_in_group(SAME_DISKS)?;
        let mut state = lock(&self.state);
        self.change_disks(|disks| {
            let at = position(disks, nsid)?;
            disks.remove(at);
            Ok(())
        })?;
        state.disks.remove(&nsid);
        state.watches.remove(&nsid);
        Ok(())
    }

    /// Resizes a disk to `bytes`, or reads its current size if `bytes` is None. A smaller size
    /// needs `shrink`. Nobody waits for the storage meanwhile but the caller. If the disk has
    /// changed meanwhile, for instance because it tells of the new size itself, this begins again.
    pub(crate) fn resize(
        &self,
        nsid: u32,
        bytes: Option<u64>,
        shrink: bool,
    ) -> Result<(), Failure> {
        let mut wanted = bytes;
        for _ in 0..RESIZES_MOST {
            let export = self.to_resize(nsid)?;
            if wanted.is_some() {
                self.refuse_elsewhere(export.ana_group)?;
            }
            if let Some(bytes) = wanted.filter(|_| !shrink) {
                refuse_shrinking(&export, bytes)?;
            }
            // The second time the disk has its size already.
            let device = export.device.resize(wanted.take())?;
            let _one_at_a_time = lock(&self.state);
            // Else the result may be open by a client of which the group does not know.
            self.refuse_shut_out()?;
            let is_same = |now: &Export| Arc::ptr_eq(&now.device, &export.device);
            if self.exports().iter().any(is_same) {
                return self.change_disks(|disks| {
                    let at = position(disks, nsid)?;
                    disks[at].device = device;
                    Ok(())
                });
            }
        }
        Err(Failure::io(format!(
            "namespace {nsid} changes all the time; try again"
        )))
    }

    /// The export that is to be resized.
    fn to_resize(&self, nsid: u32) -> Result<Export, Failure> {
        let exports = self.exports();
        let at = position(&exports, nsid).map_err(Failure::usage)?;
        self.refuse_shut_out()?;
        Ok(exports[at].clone())
    }

    /// Listens on an additional address.
    pub(crate) fn listen(&self, text: &str) -> Result<(), Failure> {
        self.refuse_in_group(SAME_ADDRESSES)?;
        let state = lock(&self.state);
        let listen = listen_address(text)?;
        state.allowed.check(listen)?;
        self.change(|catalog| {
            catalog.listen.push(listen);
            Ok(())
        })
    }

    /// Stops listening on an address. Existing connections stay.
    pub(crate) fn unlisten(&self, text: &str) -> Result<(), Failure> {
        self.refuse_in_group(SAME_ADDRESSES)?;
        let _one_at_a_time = lock(&self.state);
        let address = listen_address(text)?.portal.address;
        let is_other = |listen: &Listen| listen.portal.address != address;
        let listens = self.target.catalog().listen;
        if !listens.iter().filter(|it| is_other(it)).any(serves_disks) {
            return Err(Failure::usage(format!(
                "{text} is the only address that serves disks: without it no host could connect again; \
                 add another one first"
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

    /// Replaces the allowed hosts and initiators by `words`, in the form of `--allow`. Connected
    /// ones that are no longer allowed are disconnected.
    pub(crate) fn allow(&self, words: &[String]) -> Result<(), Failure> {
        let mut state = lock(&self.state);
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

    /// Edits the list of disks of the subsystem and of the iSCSI target.
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

/// How often a resize begins again.
const RESIZES_MOST: u32 = 8;

const SAME_DISKS: &str =
    "all gateways of a group have the same disks: end them, and start them with other ones";
const SAME_ADDRESSES: &str =
    "a gateway of a group keeps its addresses: end it, and start it with other ones";

fn position(disks: &[Export], nsid: u32) -> Result<usize, String> {
    let at = disks.iter().position(|export| export.number == nsid);
    at.ok_or_else(|| format!("there is no namespace {nsid}"))
}

/// Refuses a size smaller than the disk, because the data beyond the new end would be lost. The
/// size of the disk is the larger of the exported size and the current size of its file.
fn refuse_shrinking(export: &Export, bytes: u64) -> Result<(), Failure> {
    let exported = export.device.geometry().bytes();
    let current = export.device.resize(None)?.geometry().bytes();
    let size = exported.max(current);
    if bytes >= size {
        return Ok(());
    }
    Err(Failure::usage(format!(
        "namespace {} has {}: with {} it loses the data beyond its new end; add --shrink (`\"shrink\": true`) if that \
         is intended",
        export.number,
        Size(size),
        Size(bytes)
    )))
}

/// The failure for a target that did not start, or for a rejected change of its catalog.
pub(crate) fn failure(error: &TargetError) -> Failure {
    let kind = match error {
        TargetError::Refused(_) => Kind::Usage,
        TargetError::Listen(..)
        | TargetError::NotDrained
        | TargetError::Stopped
        | TargetError::Late => Kind::Io,
    };
    Failure::new(kind, error)
}
