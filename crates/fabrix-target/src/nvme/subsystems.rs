//! What hosts are told about the exported disks: the inventory of `proto`, made from devices.
//!
//! Knows geometry on one side and namespaces on the other; this is where a disk's promises become
//! NVMe's fields.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fabrix_block::{Deallocate as DiskDeallocate, Device};
use fabrix_proto::nvme::nqn::Nqn;
use fabrix_proto::nvme::subsystem::{
    CNTLID_MAX, Deallocate, Hosts, Inventory, Listener, Namespace, SecureChannel, Subsystem,
    Transport,
};
use fabrix_proto::portal::Portal;

use super::DISCOVERY_PORT;
use crate::catalog::ExportedDisk;
use crate::disk::ReservationStore;
use crate::export::Entry;
use crate::iscsi::{Initiators, Units};
use crate::{Export, TargetConfig};

/// The subsystem's name and who may connect.
#[derive(Clone, Debug)]
pub struct SubsystemConfig {
    /// NQN of the subsystem.
    pub nqn: String,
    /// Serial number, up to 20 printable ASCII characters.
    pub serial: String,
    /// Model, up to 40 printable ASCII characters.
    pub model: String,
    /// Firmware revision, up to 8 printable ASCII characters.
    pub firmware: String,
    /// NQNs of the hosts that may connect at first; None lets everybody in.
    pub hosts: Option<Vec<String>>,
    /// I/O queues per controller at most.
    pub max_io_queues: u16,
    /// Entries per queue at most.
    pub max_queue_entries: u16,
    /// Whether disks of any kind may be added while hosts are connected: what hosts read only once
    /// then speaks for every kind. Without it a host that was told of no volatile cache has to go
    /// when a disk with one is added.
    pub grows: bool,
    /// Data of one command at most, in bytes.
    pub max_transfer_bytes: u32,
}

/// What is exported, where, and to whom.
#[derive(Clone)]
pub(crate) struct Offer {
    /// Sorted by namespace id.
    pub(crate) entries: Arc<[Entry]>,
    pub(crate) addresses: Vec<Portal>,
    /// Where initiators find the same disks.
    pub(crate) portals: Vec<Portal>,
    pub(crate) hosts: Option<Vec<String>>,
    /// Names in lower case.
    pub(crate) initiators: Initiators,
}

/// Everything that is exported at one moment, and what hosts are told of it; immutable, and
/// replaced whole.
pub(crate) struct Snapshot {
    pub(crate) offer: Offer,
    pub(crate) inventory: Arc<Inventory>,
    /// The same for initiators.
    pub(crate) units: Arc<Units>,
    /// Grows with every change.
    pub(crate) version: u64,
}

impl Snapshot {
    /// What an initiator of this name, in lower case, sees; nothing if it may not be here. Logins,
    /// SendTargets and sessions ask this and nothing else.
    pub(crate) fn view(&self, initiator: &str) -> Option<Arc<Units>> {
        let admitted = self.offer.initiators.admit(initiator);
        admitted.then(|| Arc::clone(&self.units))
    }
}

/// The subsystem and what it exports now. Shards keep snapshots of their own and look here when
/// they are told to.
pub(crate) struct Subsystems {
    pub(crate) config: SubsystemConfig,
    /// Name of the iSCSI target.
    pub(crate) iscsi_name: String,
    /// Who stores reservations.
    pub(crate) reservation_store: Option<Arc<dyn ReservationStore>>,
    /// Whether I/O of disks is counted.
    counts: bool,
    current: Mutex<Arc<Snapshot>>,
}

impl Subsystems {
    /// Checks what is to be exported.
    ///
    /// # Errors
    /// A sentence that names what is wrong.
    pub(crate) fn new(config: &TargetConfig) -> Result<Self, String> {
        let mut exports = config.exports.clone();
        exports.sort_by_key(|export| export.nsid);
        let entries = exports.into_iter().map(|export| {
            Ok(Entry {
                nsid: export.nsid,
                added: 0,
                disk: enter(export, config.counts, config.reservation_store.as_ref())?,
            })
        });
        let offer = Offer {
            entries: entries.collect::<Result<_, String>>()?,
            addresses: Vec::new(),
            portals: Vec::new(),
            hosts: config.subsystem.hosts.clone(),
            initiators: config.initiators.checked()?,
        };
        let snapshot = Snapshot {
            inventory: inventory(&config.subsystem, &offer, 0)?,
            units: Units::new(&config.iscsi_name, &config.subsystem, &offer.entries),
            offer,
            version: 0,
        };
        Ok(Self {
            config: config.subsystem.clone(),
            iscsi_name: config.iscsi_name.clone(),
            reservation_store: config.reservation_store.clone(),
            counts: config.counts,
            current: Mutex::new(Arc::new(snapshot)),
        })
    }

    /// A disk enters the catalog.
    ///
    /// # Errors
    /// A sentence: its reservations are unusable.
    pub(crate) fn enter(&self, export: Export) -> Result<ExportedDisk, String> {
        enter(export, self.counts, self.reservation_store.as_ref())
    }

    /// What is exported now.
    pub(crate) fn current(&self) -> Arc<Snapshot> {
        Arc::clone(&self.lock())
    }

    /// Exports something else from now on. What a discovery log shows has a generation of its own,
    /// which hosts compare.
    ///
    /// # Errors
    /// A sentence that names what is wrong; then everything stays as it is.
    pub(crate) fn replace(&self, offer: Offer) -> Result<(), String> {
        let mut current = self.lock();
        let old = &current.offer;
        let discovery_changed = offer.addresses != old.addresses || offer.hosts != old.hosts;
        let generation = current.inventory.generation() + u64::from(discovery_changed);
        *current = Arc::new(Snapshot {
            inventory: inventory(&self.config, &offer, generation)?,
            units: Units::new(&self.iscsi_name, &self.config, &offer.entries),
            offer,
            version: current.version + 1,
        });
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, Arc<Snapshot>> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn enter(
    export: Export,
    counts: bool,
    store: Option<&Arc<dyn ReservationStore>>,
) -> Result<ExportedDisk, String> {
    let nsid = export.nsid;
    ExportedDisk::new(export.device, counts, store)
        .map_err(|why| format!("namespace {nsid} is not served: {why}"))
}

fn inventory(
    config: &SubsystemConfig,
    offer: &Offer,
    generation: u64,
) -> Result<Arc<Inventory>, String> {
    let nqn =
        |text: &str| Nqn::new(text).map_err(|error| format!("`{text}` is not an NQN: {error}"));
    let hosts = match &offer.hosts {
        None => Hosts::Any,
        Some(list) => Hosts::Listed(
            list.iter()
                .map(|host| nqn(host))
                .collect::<Result<_, _>>()?,
        ),
    };
    let subsystem = Subsystem {
        nqn: nqn(&config.nqn)?,
        serial: config.serial.clone(),
        model: config.model.clone(),
        firmware: config.firmware.clone(),
        namespaces: offer
            .entries
            .iter()
            .map(|entry| Namespace {
                stores_reservations: entry.disk.state().stores(),
                ..namespace(entry.nsid, &**entry.disk.device(), config)
            })
            .collect(),
        hosts,
        controller_ids: 1..=CNTLID_MAX,
        max_io_queues: config.max_io_queues,
        max_queue_entries: config.max_queue_entries,
        grows: config.grows,
    };
    let listeners = offer
        .addresses
        .iter()
        .filter(|portal| portal.address.port() != DISCOVERY_PORT);
    let listeners = listeners
        .enumerate()
        .map(|(index, portal)| listener(index, *portal))
        .collect();
    Inventory::new(vec![subsystem], listeners, generation)
        .map(Arc::new)
        .map_err(|error| error.to_string())
}

fn listener(index: usize, portal: Portal) -> Listener {
    Listener {
        port_id: u16::try_from(index + 1).unwrap_or(u16::MAX),
        transport: Transport::Tcp,
        portal,
        secure_channel: SecureChannel::None,
        referral: false,
    }
}

/// A disk's geometry and promises in the fields of Identify Namespace.
fn namespace(nsid: u32, device: &dyn Device, config: &SubsystemConfig) -> Namespace {
    let (geometry, identity) = (device.geometry(), device.identity());
    // Fields that hold up to 65536 blocks; a disk with larger ideas is told about as far as they
    // reach.
    let blocks = |bytes: u32| (bytes / geometry.block_bytes).clamp(1, 1 << 16);
    let physical = blocks(geometry.physical_block_bytes);
    Namespace {
        nguid: identity.nguid,
        preferred_write_blocks: physical,
        preferred_alignment_blocks: physical,
        optimal_write_blocks: if geometry.optimal_io_bytes == 0 {
            0
        } else {
            blocks(geometry.optimal_io_bytes)
        },
        atomic_write_blocks: geometry.atomic_write_blocks.clamp(1, 1 << 16),
        atomic_power_fail_blocks: geometry.atomic_write_blocks.clamp(1, 1 << 16),
        // Both halves of a pair move their blocks within one command's data (MDTS).
        atomic_compare_blocks: MOST_COMPARE_BLOCKS.min(blocks(config.max_transfer_bytes)),
        read_only: geometry.read_only,
        volatile_cache: geometry.volatile_cache,
        deallocate: match geometry.deallocate {
            DiskDeallocate::No => Deallocate::No,
            DiskDeallocate::Undefined => Deallocate::Undefined,
            DiskDeallocate::Zeroes => Deallocate::Zeroes,
        },
        ..Namespace::new(nsid, geometry.blocks, geometry.block_bytes, identity.uuid)
    }
}

/// Compare and Write handles so many blocks at once, of any size: VMFS asks for one.
pub(crate) const MOST_COMPARE_BLOCKS: u32 = 128;
