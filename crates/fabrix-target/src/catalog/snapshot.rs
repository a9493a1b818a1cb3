//! A snapshot: all exports of a target at one moment. It is immutable, and replaced whole.

use std::collections::BTreeMap;
use std::sync::Arc;

use fabrix_block::Device;
use fabrix_proto::nvme::subsystem::{Authorized, Inventory};
use fabrix_proto::portal::Portal;

use super::desired::{Catalog, IscsiTargetConfig};
use super::diff::diff;
use super::disk::ExportedDisk;
use crate::disk::{DiskId, DiskState};
use crate::iscsi::ports::PortalGroups;
use crate::iscsi::targets::{IscsiTarget, IscsiTargets};
use crate::iscsi::units::Units;
use crate::nvme::inventory::inventory;
use crate::{Export, Limits, Protocol, ReservationStore};

/// All exports at one moment, with the data that hosts and initiators read.
#[derive(Default)]
pub(crate) struct Snapshot {
    /// Grows with every change.
    pub(crate) version: u64,
    /// The plain value that this snapshot exports.
    pub(crate) desired: Catalog,
    /// Every disk once, sorted by id.
    pub(crate) disks: Vec<ExportedDisk>,
    /// The inventory for hosts.
    pub(crate) inventory: Arc<Inventory>,
    /// The portal groups of all iSCSI targets.
    pub(crate) portal_groups: PortalGroups,
    /// The targets for initiators.
    pub(crate) iscsi_targets: IscsiTargets,
    /// The disks of each subsystem, by namespace id, in the order of `desired`.
    states: Vec<States>,
    /// The id of the next disk that enters.
    next_disk: u64,
}

/// The shared state of the disks of a subsystem, by namespace id, in order.
pub(crate) type States = Vec<(u32, Arc<DiskState>)>;

/// Disks by UUID, which is how hosts identify them.
type Disks = BTreeMap<[u8; 16], ExportedDisk>;

impl Snapshot {
    /// The snapshot that follows this one. Unchanged disks and iSCSI targets stay the same objects,
    /// so their state stays.
    ///
    /// # Errors
    /// A sentence that names the fault.
    pub(super) fn next(
        &self,
        desired: &Catalog,
        limits: &Limits,
        fronts: (bool, Option<&Arc<dyn ReservationStore>>),
    ) -> Result<Self, String> {
        let desired = desired.checked()?;
        let changes = diff(&self.desired, &desired);
        changes.check()?;
        let mut next_disk = self.next_disk;
        let disks = self.enter(&desired, &mut next_disk, fronts)?;
        let generation = self.inventory.generation() + u64::from(changes.shows_in_discovery());
        let inventory = inventory(&desired, &disks, limits, generation)?;
        let portal_groups = self.portal_groups.next(&desired.listen)?;
        let ports = (&desired, &portal_groups);
        let targets = desired.iscsi_targets.iter();
        let targets = targets.map(|target| self.iscsi_target(target, &disks, limits, ports));
        let iscsi_targets = targets.collect();
        let states = desired.subsystems.iter().map(|subsystem| {
            let state = |export: &Export| (export.number, Arc::clone(of(&disks, export).state()));
            subsystem.namespaces.iter().map(state).collect()
        });
        let states = states.collect();
        let mut disks: Vec<_> = disks.into_values().collect();
        disks.sort_by_key(ExportedDisk::id);
        Ok(Self {
            version: self.version + 1,
            disks,
            inventory,
            portal_groups,
            iscsi_targets,
            states,
            next_disk,
            desired,
        })
    }

    /// All desired disks: those in the catalog already, and new ones.
    fn enter(
        &self,
        desired: &Catalog,
        next_disk: &mut u64,
        fronts: (bool, Option<&Arc<dyn ReservationStore>>),
    ) -> Result<Disks, String> {
        let mut disks = Disks::new();
        for (place, nsid, export) in desired.exports() {
            let (device, uuid) = (&export.device, export.device.identity().uuid);
            if let Some(other) = disks.get(&uuid) {
                if Arc::ptr_eq(other.given(), device) {
                    continue;
                }
                return Err(format!(
                    "{place} and namespace {} are one disk that was opened twice; export one device in both places",
                    other.nsid()
                ));
            }
            let disk = match self.disk(&**device) {
                Some(disk) if Arc::ptr_eq(disk.given(), device) => disk.clone(),
                Some(disk) => disk.with_device(Arc::clone(device)),
                None => {
                    let id = DiskId(*next_disk);
                    *next_disk += 1;
                    ExportedDisk::new(id, Arc::clone(device), fronts)
                        .map_err(|why| format!("{place} is not served: {why}"))?
                }
            };
            disks.insert(uuid, disk.known_as(nsid));
        }
        Ok(disks)
    }

    fn iscsi_target(
        &self,
        config: &IscsiTargetConfig,
        disks: &Disks,
        limits: &Limits,
        (desired, portal_groups): (&Catalog, &PortalGroups),
    ) -> IscsiTarget {
        let ports = (desired, portal_groups);
        let has_same_ports =
            (&self.desired.ana_states, &self.portal_groups) == (&desired.ana_states, portal_groups);
        let entries = config.units.iter();
        let entries = entries.map(|export| (export, of(disks, export)));
        let entries: Vec<_> = entries.collect();
        let before = self
            .desired
            .iscsi_targets
            .iter()
            .zip(self.iscsi_targets.iter());
        let mut before = before.filter(|(old, _)| old.name == config.name);
        let units = match before.next() {
            Some((old, target)) if has_same_ports && old.units == config.units => {
                Arc::clone(&target.units)
            }
            _ => Units::new(config, limits, &entries, ports),
        };
        IscsiTarget {
            initiators: config.initiators.clone(),
            units,
        }
    }

    /// The exported disk of which a device is one state.
    pub(crate) fn disk(&self, device: &dyn Device) -> Option<&ExportedDisk> {
        let uuid = device.identity().uuid;
        let mut disks = self.disks.iter();
        disks.find(|disk| disk.given().identity().uuid == uuid)
    }

    /// The shared state of the disks that a host sees.
    pub(crate) fn states(&self, view: &Authorized) -> States {
        let subsystems = self.desired.subsystems.iter().zip(&self.states);
        let name = view.subsystem().map(|subsystem| subsystem.nqn.as_str());
        let mut found = subsystems.filter(|(subsystem, _)| Some(&*subsystem.nqn) == name);
        found
            .next()
            .map_or_else(Vec::new, |(_, states)| states.clone())
    }

    /// Portals of a protocol.
    pub(crate) fn portals(&self, protocol: Protocol) -> Vec<Portal> {
        let listens = self.desired.listen.iter();
        let ours = listens.filter(|listen| listen.protocol == protocol);
        ours.map(|listen| listen.portal).collect()
    }
}

/// The disk of an export that is in the catalog.
fn of<'a>(disks: &'a Disks, export: &Export) -> &'a ExportedDisk {
    &disks[&export.device.identity().uuid]
}
