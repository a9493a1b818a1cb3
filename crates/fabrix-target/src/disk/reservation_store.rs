//! Reservations that outlive the process: their store, and the receipt of a stored change.

use std::sync::{Arc, Mutex};

use fabrix_block::{Device, Identity};
use fabrix_proto::scsi::reservation::{Change, Reservations};

use super::DiskState;
use crate::lock::lock;
use crate::registry::ConnectionAddress;

/// A store of the reservations of disks. The next start of the target loads them.
pub trait ReservationStore: Send + Sync {
    /// Whether the store keeps reservations of this disk. Hosts can read this.
    fn keeps(&self, device: &dyn Device) -> bool;

    /// Whether other processes may go on with this disk without a loss of power. Then all
    /// reservations are stored, also those that need not survive one.
    fn is_shared(&self, device: &dyn Device) -> bool {
        let _ = device;
        false
    }

    /// Stored bytes of a disk, or `None` if nothing was stored.
    ///
    /// # Errors
    /// Stored bytes exist and cannot be read: a sentence that names their place.
    fn load(&self, disk: &Identity) -> Result<Option<Vec<u8>>, String>;

    /// Place of a disk's stored bytes, for sentences about them.
    fn place(&self, disk: &Identity) -> String;

    /// Replaces the stored bytes of a disk as a whole or not at all, even at a loss of power. The
    /// target calls this on a shard, so it must not block. The store returns `receipt` when the
    /// bytes are on the medium.
    fn store(&self, disk: &Identity, bytes: Vec<u8>, receipt: Receipt);
}

/// Receipt for a change of reservations. The change is in force once it is stored. A dropped
/// receipt means that the change was not stored.
pub struct Receipt {
    state: Arc<DiskState>,
    change: Option<(Reservations, Change)>,
    progress: Arc<Mutex<Storing>>,
}

/// The progress of storing a change.
#[derive(Default)]
pub(super) enum Storing {
    #[default]
    Waiting,
    /// The change is in force. The commands of these connections have to end.
    Done(Vec<ConnectionAddress>),
    /// The change is not in force.
    Failed,
}

impl Receipt {
    pub(super) fn new(
        state: Arc<DiskState>,
        next: Reservations,
        change: Change,
        progress: Arc<Mutex<Storing>>,
    ) -> Self {
        let change = Some((next, change));
        Self {
            state,
            change,
            progress,
        }
    }

    /// Reports that the bytes are on the medium.
    pub fn stored(mut self) {
        let change = self.change.take();
        let victims = self.state.stored(change);
        self.say(Storing::Done(victims));
    }

    fn say(&self, outcome: Storing) {
        *lock(&self.progress) = outcome;
    }
}

impl Drop for Receipt {
    fn drop(&mut self) {
        if self.change.take().is_some() {
            self.state.stored(None);
            self.say(Storing::Failed);
        }
    }
}
