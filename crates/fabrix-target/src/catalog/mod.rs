//! The catalog: the exports of a target, its listeners, and its access rules.
//!
//! A user describes all of it in one plain value (`desired`). A change is another such value.
//! `diff` finds the differences, and refuses those that connected hosts would not notice. A new
//! [`Snapshot`] then replaces the old one as a whole. `disk` adds to each disk what an exported
//! disk needs in front of it.
//!
//! `known` is what a host knows of the disks behind its numbers.
//!
//! `nvme::inventory` and `iscsi::units` describe disks to hosts and initiators. `local` brings a
//! snapshot to shards and connections.

mod desired;
mod diff;
pub(crate) mod disk;
pub(crate) mod known;
mod snapshot;

use std::sync::{Arc, Mutex};

use crate::lock::lock;
use crate::{Limits, ReservationStore};

pub(crate) use desired::Elsewhere;
pub use desired::{Catalog, Export, Gateways, IscsiTargetConfig, SubsystemConfig};
pub(crate) use diff::diff;
pub(crate) use disk::ExportedDisk;
pub(crate) use snapshot::{Snapshot, States};

/// The catalog of a running target: the present snapshot, and the parameters for the next one.
pub(crate) struct CurrentCatalog {
    pub(crate) limits: Limits,
    /// Whether the I/O of disks is counted.
    counts: bool,
    reservation_store: Option<Arc<dyn ReservationStore>>,
    current: Mutex<Arc<Snapshot>>,
}

impl CurrentCatalog {
    /// An empty catalog.
    pub(crate) fn new(
        limits: Limits,
        counts: bool,
        reservation_store: Option<Arc<dyn ReservationStore>>,
    ) -> Self {
        Self {
            limits,
            counts,
            reservation_store,
            current: Mutex::default(),
        }
    }

    /// The present snapshot. Shards keep it until they get the order to serve the next one.
    pub(crate) fn current(&self) -> Arc<Snapshot> {
        Arc::clone(&lock(&self.current))
    }

    /// The snapshot that exports the desired catalog.
    ///
    /// # Errors
    /// A sentence that names the fault.
    pub(crate) fn next(&self, desired: &Catalog) -> Result<Snapshot, String> {
        let store = self.reservation_store.as_ref();
        self.current()
            .next(desired, &self.limits, (self.counts, store))
    }

    /// Replaces the present snapshot.
    pub(crate) fn publish(&self, next: Snapshot) {
        *lock(&self.current) = Arc::new(next);
    }
}
