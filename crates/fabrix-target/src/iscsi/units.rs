//! Disks as logical units: what initiators are told of them.
//!
//! A [`Units`] is a snapshot, immutable and replaced whole. What connections share about each disk,
//! and change, is in [`disk`](crate::disk).

use std::sync::Arc;

use fabrix_block::{Deallocate as DiskDeallocate, Device};
use fabrix_proto::scsi::attention::Attention;
use fabrix_proto::scsi::pages::{
    Deallocate, Disk, Identity, Naa, Target, TargetPort, TaskManagement,
};

use crate::SubsystemConfig;
use crate::disk::{DiskState, Seat};
use crate::export::{DiskName, Entry};

/// TargetPortalGroupTag: there is one group.
pub(super) const PORTAL_GROUP_TAG: u16 = 1;
/// Relative target port identifier: there is one port.
pub(super) const TARGET_PORT: u16 = 1;
/// Blocks that COMPARE AND WRITE handles at once; VMFS asks for one.
const COMPARE_AND_WRITE_BLOCKS: u32 = 128;

/// The logical units of a target at one moment.
pub(crate) struct Units {
    pub(super) target: Target,
    /// In ascending order of their numbers.
    pub(super) list: Vec<Unit>,
    /// Their numbers.
    pub(super) luns: Vec<u16>,
}

/// A logical unit, whatever stands where in the list: by its disk.
pub(super) type UnitName = DiskName;

/// One logical unit.
pub(super) struct Unit {
    pub(super) nsid: u32,
    /// The version with which it was added: another disk of this number has another.
    pub(super) added: u64,
    pub(super) disk: Disk,
    pub(super) state: Arc<DiskState>,
}

impl Units {
    /// The units of a target of this name; `entries` are sorted. Namespace 1 is logical unit 0.
    pub(crate) fn new(name: &str, config: &SubsystemConfig, entries: &[Entry]) -> Arc<Self> {
        let list: Vec<_> = entries
            .iter()
            .map(|entry| Unit::new(config, entry))
            .collect();
        let number = |unit: &Unit| u16::try_from(unit.nsid - 1).ok();
        Arc::new(Self {
            target: target(name),
            luns: list.iter().filter_map(number).collect(),
            list,
        })
    }

    /// Where the unit stands now, if it is still there.
    pub(super) fn find(&self, name: UnitName) -> Option<usize> {
        let at = self.list.binary_search_by_key(&name.0, |unit| unit.nsid);
        at.ok().filter(|at| self.list[*at].name() == name)
    }

    /// Where logical unit `lun` stands in the list.
    pub(super) fn index(&self, lun: u16) -> Option<usize> {
        // Numbers are dense unless somebody removed one: then they are still sorted.
        match self.luns.get(usize::from(lun)) {
            Some(found) if *found == lun => Some(usize::from(lun)),
            _ => self.luns.binary_search(&lun).ok(),
        }
    }
}

impl Unit {
    fn new(config: &SubsystemConfig, entry: &Entry) -> Self {
        Self {
            nsid: entry.nsid,
            added: entry.added,
            disk: Disk {
                stores_reservations: entry.disk.state().stores(),
                ..disk(config, &**entry.disk.device())
            },
            state: Arc::clone(entry.disk.state()),
        }
    }

    /// A session's view before it has used the unit: it is to be told that it is new.
    pub(super) fn seat(&self) -> Seat {
        let mut seat = Seat::new(&self.state);
        seat.attentions.add(Attention::PowerOn);
        seat
    }

    /// Another disk has another name.
    pub(super) fn name(&self) -> UnitName {
        (self.nsid, self.added)
    }
}

fn target(name: &str) -> Target {
    Target {
        name: name.to_owned(),
        ports: vec![TargetPort {
            id: TARGET_PORT,
            group: 1,
            tag: PORTAL_GROUP_TAG,
        }],
        task_management: TaskManagement::ABORT_TASK
            .and(TaskManagement::ABORT_TASK_SET)
            .and(TaskManagement::CLEAR_TASK_SET)
            .and(TaskManagement::LOGICAL_UNIT_RESET),
    }
}

/// A disk's geometry and promises in SCSI's words.
fn disk(config: &SubsystemConfig, device: &dyn Device) -> Disk {
    let (geometry, identity) = (device.geometry(), device.identity());
    let max_transfer_bytes = geometry.max_transfer_bytes.min(config.max_transfer_bytes);
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
        stores_reservations: false,
        copies: true,
        identity: Identity {
            vendor: "FABRIX".to_owned(),
            product: config.model.clone(),
            revision: config.firmware.clone(),
            serial: identity.serial.clone(),
            naa: Naa::Local(u64::from_be_bytes([a, b, c, d, e, f, g, h])),
            eui64: None,
            uuid: Some(identity.uuid),
        },
    }
}
