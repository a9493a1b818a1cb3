//! Opens disks for export. Warns the operator about disks that lose their data, and tells the state
//! directory which disks are remote.

use std::sync::Arc;

use fabrix_block::spec::{Disk, without_secrets};
use fabrix_block::{Device, Durability, Spec};

use crate::disks::Opener;
use crate::failure::Failure;
use crate::log;
use crate::state::State;

/// Opens disks for export.
pub(crate) struct ExportOpener {
    opener: Opener,
    read_only: bool,
    state: Option<Arc<State>>,
}

impl ExportOpener {
    /// Opens disks with `opener`. `state` is the directory where reservations are stored.
    pub(crate) fn new(opener: Opener, read_only: bool, state: Option<Arc<State>>) -> Self {
        Self {
            opener,
            read_only,
            state,
        }
    }

    /// Opens a disk. The target itself adds the compare-and-write gate and the statistics.
    pub(crate) fn open(&self, text: &str) -> Result<Arc<dyn Device>, Failure> {
        let device = self.opener.open(text, self.read_only)?;
        if let (true, Some(state)) = (is_remote(text), &self.state) {
            state.mark_remote(device.identity());
        }
        if device.geometry().durability == Durability::None && !is_remote(text) {
            log::warn(format_args!(
                "{}: what is written there is gone when this process ends",
                without_secrets(text)
            ));
        }
        Ok(device)
    }
}

fn is_remote(text: &str) -> bool {
    matches!(Spec::parse(text).map(|spec| spec.disk), Ok(Disk::Remote(_)))
}
