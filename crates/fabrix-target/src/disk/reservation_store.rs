//! Reservations that outlive the process: their store, and the receipt of a stored change.

use std::sync::{Arc, Mutex};

use fabrix_block::{Device, Identity};
use fabrix_proto::scsi::reservation::{Change, Reservations};

use super::DiskState;
use crate::lock::lock;
use crate::registry::ConnectionAddress;

/// Stores the reservations of disks, and gives back at the next start what was stored.
pub trait ReservationStore: Send + Sync {
    /// Whether reservations of this disk are stored. Hosts can read this.
    fn keeps(&self, device: &dyn Device) -> bool;

    /// What was stored for a disk; none if nothing was.
    ///
    /// # Errors
    /// There is something and it cannot be read: a sentence that says where.
    fn load(&self, disk: &Identity) -> Result<Option<Vec<u8>>, String>;

    /// Where that is, for a sentence about it.
    fn place(&self, disk: &Identity) -> String;

    /// Stores this for a disk, in the place of what was stored before: all of it or nothing,
    /// whatever happens. It is called on a shard, so it must not block; `receipt` is given back
    /// when the bytes are on the medium.
    fn store(&self, disk: &Identity, bytes: Vec<u8>, receipt: Receipt);
}

/// The receipt for a change of reservations, which is in force once it was stored. A receipt that
/// is dropped means that the change was not stored.
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

    /// The bytes are on the medium.
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
