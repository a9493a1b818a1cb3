//! Opens disks for export. Warns the operator about disks that lose their data, and tells the state
//! directory which disks are remote.

use std::sync::Arc;

use fabrix_block::spec::{Disk, without_secrets};
use fabrix_block::{Device, Durability, Spec};
use fabrix_target::{ANA_GROUP_DEFAULT, Export};

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

    /// Opens a disk, to be exported as namespace `number`. The target itself adds the
    /// compare-and-write gate and the statistics.
    pub(crate) fn open(&self, number: u32, text: &str) -> Result<Export, Failure> {
        let (device, group) = self.opener.open_export(text, self.read_only)?;
        self.store_with(&device);
        if let Some(state) = self.state.as_ref().filter(|_| is_remote(text)) {
            state.mark_remote(device.identity());
        }
        if device.geometry().durability == Durability::None && !is_remote(text) {
            log::warn(format_args!(
                "{}: what is written there is gone when this process ends",
                without_secrets(text)
            ));
        }
        let ana_group = group.unwrap_or(ANA_GROUP_DEFAULT);
        Ok(Export {
            ana_group,
            ..Export::new(number, device)
        })
    }

    /// Stores the reservations of a disk with it, if it can do that.
    pub(super) fn store_with(&self, device: &Arc<dyn Device>) {
        if let Some(state) = &self.state {
            state.store_with(device);
        }
    }
}

fn is_remote(text: &str) -> bool {
    matches!(Spec::parse(text).map(|spec| spec.disk), Ok(Disk::Remote(_)))
}
