//! Disks as logical units, with the properties that initiators see.
//!
//! A [`Units`] is immutable, and a change replaces it whole. [`disk`](crate::disk) has the state of
//! a disk that connections share and change.

use std::sync::Arc;

use fabrix_block::Deallocate as DiskDeallocate;
use fabrix_proto::scsi::alua::AccessState;
use fabrix_proto::scsi::attention::Attention;
use fabrix_proto::scsi::pages::{Deallocate, Disk, Identity, Naa, Target, TaskManagement};

use super::alua::access_state;
use super::ports::PortalGroups;
use crate::catalog::disk::ExportedDisk;
use crate::catalog::known::{Known, KnownDisks};
use crate::disk::{DiskId, DiskState, DiskView};
use crate::{Catalog, Export, IscsiTargetConfig, Limits};

/// Blocks that COMPARE AND WRITE handles at once. VMFS needs one.
const COMPARE_AND_WRITE_BLOCKS: u32 = 128;

/// The logical units of a target at one moment.
pub(crate) struct Units {
    pub(super) target: Target,
    /// The units, in ascending order of their numbers.
    pub(super) list: Vec<Unit>,
    /// Numbers of the units, in the same order.
    pub(super) luns: Vec<u16>,
}

/// The identity of a logical unit. Another disk under the same number has another name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct UnitName {
    pub(super) lun: u16,
    pub(super) disk: DiskId,
}

/// One logical unit.
pub(super) struct Unit {
    pub(super) lun: u16,
    pub(super) disk: Disk,
    pub(super) state: Arc<DiskState>,
    /// States at the ports of the target, in their order.
    pub(super) states: Vec<AccessState>,
}

impl Units {
    /// The units of a target of `catalog`: its disks by their numbers, in order.
    pub(crate) fn new(
        config: &IscsiTargetConfig,
        limits: &Limits,
        disks: &[(&Export, &ExportedDisk)],
        (catalog, groups): (&Catalog, &PortalGroups),
    ) -> Arc<Self> {
        let units = disks.iter().map(|(export, disk)| Unit {
            lun: u16::try_from(export.number).expect("the catalog has checked it"),
            disk: unit(config, limits, disk),
            state: Arc::clone(disk.state()),
            states: states(catalog, groups, export.ana_group),
        });
        let list: Vec<_> = units.collect();
        Arc::new(Self {
            target: target(config, groups),
            luns: list.iter().map(|unit| unit.lun).collect(),
            list,
        })
    }

    /// Relative target port identifier of the port at index `port`. Zero: there is no such port.
    pub(super) fn port_id(&self, port: usize) -> u16 {
        self.target.ports.get(port).map_or(0, |port| port.id)
    }

    /// Index of the unit in the list, if it is still exported.
    pub(super) fn find(&self, name: UnitName) -> Option<usize> {
        let at = self.index(name.lun);
        at.filter(|at| self.list[*at].name() == name)
    }

    /// Index of logical unit `lun` in the list.
    pub(super) fn index(&self, lun: u16) -> Option<usize> {
        // Numbers are dense until one is removed. They are always sorted.
        match self.luns.get(usize::from(lun)) {
            Some(found) if *found == lun => Some(usize::from(lun)),
            _ => self.luns.binary_search(&lun).ok(),
        }
    }
}

impl Unit {
    /// A session's view of the unit before the first command, with the unit attention POWER ON.
    pub(super) fn disk_view(&self) -> DiskView {
        let mut disk_view = DiskView::new(&self.state);
        disk_view.attentions.add(Attention::PowerOn);
        disk_view
    }

    /// The initiator of a session sees the unit. Result: what it has known.
    pub(super) fn is_seen(&self, known: &mut KnownDisks) -> Known {
        let uuid = self.disk.identity.uuid.unwrap_or_default();
        known.sees(self.lun.into(), uuid)
    }

    /// State of the unit at the port with this index.
    pub(super) fn access(&self, port: usize) -> AccessState {
        self.states
            .get(port)
            .copied()
            .unwrap_or(AccessState::Optimized)
    }

    /// The identity of the unit.
    pub(super) fn name(&self) -> UnitName {
        UnitName {
            lun: self.lun,
            disk: self.state.id(),
        }
    }
}

/// States of an ANA group at all listeners, in the order of their numbers.
fn states(catalog: &Catalog, groups: &PortalGroups, group: u32) -> Vec<AccessState> {
    let state = |listener| access_state(catalog.ana_state_at(group, listener));
    groups.listeners().map(state).collect()
}

fn target(config: &IscsiTargetConfig, groups: &PortalGroups) -> Target {
    Target {
        name: config.name.clone(),
        ports: groups.ports(config.port),
        task_management: TaskManagement::ABORT_TASK
            .and(TaskManagement::ABORT_TASK_SET)
            .and(TaskManagement::CLEAR_TASK_SET)
            .and(TaskManagement::LOGICAL_UNIT_RESET),
    }
}

/// A disk's geometry and properties as SCSI reports them.
fn unit(config: &IscsiTargetConfig, limits: &Limits, disk: &ExportedDisk) -> Disk {
    let device = disk.device();
    let (geometry, identity) = (device.geometry(), device.identity());
    let max_transfer_bytes = geometry.max_transfer_bytes.min(limits.max_transfer_bytes);
    let compare = (max_transfer_bytes / geometry.block_bytes).min(COMPARE_AND_WRITE_BLOCKS);
    let [a, b, c, d, e, f, g, h, ..] = identity.nguid;
    Disk {
        block_bytes: geometry.block_bytes,
        blocks: geometry.blocks,
        physical_block_bytes: geometry.physical_block_bytes,
        optimal_io_bytes: geometry.optimal_io_bytes,
        max_transfer_bytes,
        volatile_cache: geometry.volatile_cache,
        read_only: geometry.read_only,
        deallocate: match geometry.deallocate {
            DiskDeallocate::No => Deallocate::No,
            DiskDeallocate::Undefined => Deallocate::Undefined,
            DiskDeallocate::Zeroes => Deallocate::Zeroes,
        },
        atomic_write_blocks: geometry.atomic_write_blocks,
        compare_and_write_blocks: u8::try_from(compare).unwrap_or(u8::MAX),
        stores_reservations: disk.state().stores(),
        copies: true,
        identity: Identity {
            vendor: "FABRIX".to_owned(),
            product: config.product.clone(),
            revision: config.revision.clone(),
            serial: identity.serial.clone(),
            naa: Naa::Local(u64::from_be_bytes([a, b, c, d, e, f, g, h])),
            eui64: None,
            uuid: Some(identity.uuid),
        },
    }
}
