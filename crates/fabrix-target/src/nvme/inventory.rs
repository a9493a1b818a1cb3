//! The inventory for `proto`, made from a catalog: geometry and properties of disks in the terms of
//! NVMe.

use std::collections::BTreeMap;
use std::sync::Arc;

use fabrix_block::Deallocate as DiskDeallocate;
use fabrix_proto::nvme::nqn::Nqn;
use fabrix_proto::nvme::subsystem::{
    Deallocate, Hosts, Inventory, Listener, Namespace, SecureChannel, Subsystem,
};

use crate::catalog::disk::ExportedDisk;
use crate::{Catalog, Export, Gateways, Limits, Listen, SubsystemConfig};

/// The inventory of a catalog. `disks` are its disks by UUID.
///
/// # Errors
/// A sentence that names the fault.
pub(crate) fn inventory(
    catalog: &Catalog,
    disks: &BTreeMap<[u8; 16], ExportedDisk>,
    limits: &Limits,
    generation: u64,
) -> Result<Arc<Inventory>, String> {
    let subsystems = catalog.subsystems.iter();
    let gateways = &catalog.gateways;
    let subsystems = subsystems.map(|config| subsystem(config, disks, (limits, gateways)));
    let ours = catalog.listen.iter();
    let ours = ours.filter(|listen| listen.serves_namespaces());
    let serving = ours.chain(&gateways.others).map(|listen| (listen, false));
    let listeners = serving.chain(gateways.referrals.iter().map(|listen| (listen, true)));
    let listeners = listeners.enumerate();
    let listeners = listeners.map(|(index, (listen, referral))| listener(index, listen, referral));
    Inventory::new(
        subsystems.collect::<Result<_, _>>()?,
        listeners.collect(),
        generation,
    )
    .map(|inventory| Arc::new(inventory.with_ana_states(catalog.ana_states.clone())))
    .map_err(|error| error.to_string())
}

fn subsystem(
    config: &SubsystemConfig,
    disks: &BTreeMap<[u8; 16], ExportedDisk>,
    (limits, gateways): (&Limits, &Gateways),
) -> Result<Subsystem, String> {
    let nqn =
        |text: &str| Nqn::new(text).map_err(|error| format!("`{text}` is not an NQN: {error}"));
    let hosts = match &config.hosts {
        None => Hosts::Any,
        Some(list) => Hosts::Listed(
            list.iter()
                .map(|host| nqn(host))
                .collect::<Result<_, _>>()?,
        ),
    };
    let namespaces = config.namespaces.iter();
    let namespaces = namespaces.map(|export| {
        check_transfers(export, limits)?;
        let disk = &disks[&export.device.identity().uuid];
        Ok(namespace(export, disk, limits))
    });
    Ok(Subsystem {
        nqn: nqn(&config.nqn)?,
        serial: config.serial.clone(),
        model: config.model.clone(),
        firmware: config.firmware.clone(),
        namespaces: namespaces.collect::<Result<_, String>>()?,
        hosts,
        controller_ids: gateways.controller_ids.clone(),
        max_io_queues: limits.max_io_queues,
        max_queue_entries: limits.max_queue_entries,
        grows: config.grows,
    })
}

/// Refuses disks whose longest transfer is less than the limit announced to hosts (MDTS).
fn check_transfers(export: &Export, limits: &Limits) -> Result<(), String> {
    let most = limits.max_transfer_bytes;
    let bytes = export.device.geometry().max_transfer_bytes;
    match bytes >= most {
        true => Ok(()),
        false => Err(format!(
            "namespace {}: its disk moves {bytes} bytes at once, and hosts were told {most}",
            export.number
        )),
    }
}

fn listener(index: usize, listen: &Listen, referral: bool) -> Listener {
    Listener {
        port_id: u16::try_from(index + 1).unwrap_or(u16::MAX),
        transport: listen.ana_listener().0,
        portal: listen.portal,
        secure_channel: SecureChannel::None,
        referral,
    }
}

/// Geometry and features of a disk in the fields of Identify Namespace.
fn namespace(export: &Export, disk: &ExportedDisk, limits: &Limits) -> Namespace {
    let device = disk.device();
    let (geometry, identity) = (device.geometry(), device.identity());
    // The fields hold up to 65,536 blocks. Larger sizes are reported as 65,536.
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
        atomic_compare_blocks: MOST_COMPARE_BLOCKS.min(blocks(limits.max_transfer_bytes)),
        stores_reservations: disk.state().stores(),
        read_only: geometry.read_only,
        volatile_cache: geometry.volatile_cache,
        deallocate: match geometry.deallocate {
            DiskDeallocate::No => Deallocate::No,
            DiskDeallocate::Undefined => Deallocate::Undefined,
            DiskDeallocate::Zeroes => Deallocate::Zeroes,
        },
        ana_group: export.ana_group,
        ..Namespace::new(
            export.number,
            geometry.blocks,
            geometry.block_bytes,
            identity.uuid,
        )
    }
}

/// Most blocks of Compare and Write, for all block sizes. VMFS needs one.
pub(crate) const MOST_COMPARE_BLOCKS: u32 = 128;
