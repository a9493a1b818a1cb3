//! A disk in the catalog: the user's device, and the filters in front of every exported disk.
//!
//! Every connection of every protocol reaches a disk through the same [`ExportedDisk`]. So its gate
//! makes compare-and-write one step among all their writes, and its state holds all their
//! reservations.

use std::sync::Arc;

use fabrix_block::Device;
use fabrix_block::exclusive::Exclusive;
use fabrix_block::filter::stats::Stats;

use crate::disk::{DiskId, DiskState, ReservationStore};

/// A disk in the catalog.
#[derive(Clone)]
pub(crate) struct ExportedDisk {
    /// Namespace id of its first export, for the operator's notices.
    nsid: u32,
    /// The device as the user gave it.
    given: Arc<dyn Device>,
    /// `given` behind the statistics and the gate: the device that channels open.
    device: Arc<dyn Device>,
    /// I/O statistics, if the user wants them.
    stats: Option<Arc<Stats>>,
    /// The compare-and-write gate. `None`: the device compares and writes by itself.
    gate: Option<Arc<Exclusive>>,
    /// Reservations, mode parameters and users of the disk.
    state: Arc<DiskState>,
}

impl ExportedDisk {
    /// A disk that enters the catalog, under an id that no disk has had. `counts`: whether its I/O
    /// is counted.
    ///
    /// # Errors
    /// The stored reservations of the disk are unusable: a sentence without the disk's name.
    pub(crate) fn new(
        id: DiskId,
        given: Arc<dyn Device>,
        (counts, store): (bool, Option<&Arc<dyn ReservationStore>>),
    ) -> Result<Self, String> {
        let state = DiskState::new(id, &*given, store)?;
        let stats = counts.then(|| Stats::new(Arc::clone(&given)));
        Ok(Self::assembled(given, stats, None, state))
    }

    /// The same disk in another state, for example with another size. The gate, the statistics and
    /// the reservations stay.
    pub(crate) fn with_device(&self, given: Arc<dyn Device>) -> Self {
        let stats = self.stats.as_ref();
        let stats = stats.map(|stats| stats.around(Arc::clone(&given)));
        let state = Arc::clone(&self.state);
        Self::assembled(given, stats, self.gate.as_ref(), state)
    }

    fn assembled(
        given: Arc<dyn Device>,
        stats: Option<Arc<Stats>>,
        gate: Option<&Arc<Exclusive>>,
        state: Arc<DiskState>,
    ) -> Self {
        let mut device = Arc::clone(&given);
        if let Some(stats) = &stats {
            device = Arc::clone(stats) as Arc<dyn Device>;
        }
        let gate = (!device.compares_and_writes()).then(|| match gate {
            Some(gate) => gate.around(Arc::clone(&device)),
            None => Exclusive::new(Arc::clone(&device)),
        });
        if let Some(gate) = &gate {
            device = Arc::clone(gate) as Arc<dyn Device>;
        }
        Self {
            nsid: 0,
            given,
            device,
            stats,
            gate,
            state,
        }
    }

    /// The same disk with another namespace id for the operator's notices.
    pub(crate) fn known_as(self, nsid: u32) -> Self {
        Self { nsid, ..self }
    }

    /// Namespace id of its first export, for the operator's notices.
    pub(crate) const fn nsid(&self) -> u32 {
        self.nsid
    }

    /// The disk's number in the catalog.
    pub(crate) fn id(&self) -> DiskId {
        self.state.id()
    }

    /// The device as the user gave it.
    pub(crate) const fn given(&self) -> &Arc<dyn Device> {
        &self.given
    }

    /// The device that channels open.
    pub(crate) const fn device(&self) -> &Arc<dyn Device> {
        &self.device
    }

    /// I/O statistics, if the user wants them.
    pub(crate) const fn stats(&self) -> Option<&Arc<Stats>> {
        self.stats.as_ref()
    }

    /// Reservations, mode parameters and users of the disk.
    pub(crate) const fn state(&self) -> &Arc<DiskState> {
        &self.state
    }
}
