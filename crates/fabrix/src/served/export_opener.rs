//! Opens disks for exporting, and puts in front of them what that needs; counts what they do, if
//! somebody may ask.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use fabrix_block::exclusive::Exclusive;
use fabrix_block::filter::stats::Stats;
use fabrix_block::spec::{Disk, without_secrets};
use fabrix_block::{Device, Durability, Spec};
use serde_json::Value;

use crate::counters;
use crate::disks::Opener;
use crate::failure::Failure;
use crate::log;
use crate::state::State;

/// Opens disks for exporting.
pub(crate) struct ExportOpener {
    opener: Opener,
    read_only: bool,
    state: Option<Arc<State>>,
    /// What disks do, by their UUID; None: nobody can ask, and nothing is counted.
    counted: Option<Mutex<HashMap<[u8; 16], Arc<Stats>>>>,
}

impl ExportOpener {
    /// `counts`: somebody may ask what the disks do.
    pub(crate) fn new(
        opener: Opener,
        read_only: bool,
        state: Option<Arc<State>>,
        counts: bool,
    ) -> Self {
        Self {
            opener,
            read_only,
            state,
            counted: counts.then(Mutex::default),
        }
    }

    /// Opens a disk and puts in front of it what exporting needs.
    pub(crate) fn open(&self, text: &str) -> Result<Arc<dyn Device>, Failure> {
        let device = self.opener.open(text, self.read_only)?;
        if let (true, Some(state)) = (is_remote(text), &self.state) {
            state.is_remote(device.identity());
        }
        if device.geometry().durability == Durability::None && !is_remote(text) {
            log::warn(format_args!(
                "{}: what is written there is gone when this process ends",
                without_secrets(text)
            ));
        }
        Ok(Exclusive::wrap(self.counting(device)))
    }

    fn counting(&self, device: Arc<dyn Device>) -> Arc<dyn Device> {
        let Some(counted) = &self.counted else {
            return device;
        };
        let stats = Stats::new(device);
        let mut counted = counted.lock().unwrap_or_else(PoisonError::into_inner);
        counted.insert(stats.identity().uuid, Arc::clone(&stats));
        stats
    }

    /// What a disk has done since it was opened.
    pub(super) fn counters(&self, device: &dyn Device) -> Value {
        let counted = self.counted.as_ref().map(Mutex::lock);
        let counted = counted.map(|lock| lock.unwrap_or_else(PoisonError::into_inner));
        let stats = counted
            .as_ref()
            .and_then(|all| all.get(&device.identity().uuid));
        stats.map_or(Value::Null, |stats| counters::detailed(stats))
    }

    /// A disk is exported no more.
    pub(super) fn forget(&self, uuid: [u8; 16]) {
        if let Some(counted) = &self.counted {
            let mut counted = counted.lock().unwrap_or_else(PoisonError::into_inner);
            counted.remove(&uuid);
        }
    }
}

fn is_remote(text: &str) -> bool {
    matches!(Spec::parse(text).map(|spec| spec.disk), Ok(Disk::Remote(_)))
}
