//! Identify: the structures of `nvme::identify`, filled from the view and the limits.
//!
//! The structures advertise only supported features: a volatile cache if a disk has one,
//! deallocation if a disk supports it, and optional commands if they are enabled.

use zerocopy::FromBytes;
use zerocopy::little_endian::{U16, U32, U64};

use super::events::ASYNC_EVENTS_MAX;
use super::keep_alive::GRANULARITY_UNITS;
use super::properties::VERSION;
use super::{Controller, Kind, Outcome, Surroundings};
use crate::nvme::admin::Identify;
use crate::nvme::ana::{ANA_GROUPS_MAX, ANA_TRANSITION_SECONDS};
use crate::nvme::identify::{
    ANACAP_ALL_STATES, ANACAP_FIXED_GROUPS, CMIC_ANA, CMIC_MULTI_CONTROLLER,
    CONTROLLER_TYPE_DISCOVERY, CONTROLLER_TYPE_IO, CSI_NVM, CTRATT_TRAFFIC_KEEP_ALIVE, Cns,
    CommandSetVectors, DLFEAT_READS_ZEROES, DLFEAT_WRITE_ZEROES_DEALLOCATES, Descriptor,
    FUSES_COMPARE_AND_WRITE, IDENTIFY_BYTES, IdentifyController, IdentifyNamespace,
    IdentifyNvmController, IndependentNamespace, LPA_EFFECTS, LPA_EXTENDED, NMIC_SHARED,
    NSATTR_WRITE_PROTECTED, NSFEAT_ATOMIC, NSFEAT_OPTIMAL, NSTAT_READY, NamespaceList,
    OFCS_DISCONNECT, ONCS_COMPARE, ONCS_DATASET_MANAGEMENT, ONCS_RESERVATIONS,
    ONCS_SAVE_AND_SELECT, ONCS_TIMESTAMP, ONCS_VERIFY, ONCS_WRITE_ZEROES, RESCAP_PERSIST,
    RESCAP_TYPES, SGLS_KEYED, SGLS_OFFSET, SGLS_SUPPORTED, VWC_NO_BROADCAST_FLUSH, VWC_PRESENT,
    fill_ascii,
};
use crate::nvme::instance::{CROSS_CONTROLLER_RESETS_MOST, ControllerInstance};
use crate::nvme::log_page::ERROR_ENTRIES;
use crate::nvme::nqn::DISCOVERY_NQN;
use crate::nvme::rdma::capsule::DESCRIPTORS_MOST;
use crate::nvme::spec::Status;
use crate::nvme::subsystem::{
    Authorized, Deallocate, NAMESPACES_MAX, Namespace, Subsystem, Transport,
};

impl Controller {
    pub(super) fn identify(
        &self,
        identify: &Identify,
        around: &Surroundings<'_>,
        page: &mut [u8],
    ) -> Result<Outcome, Status> {
        page.fill(0);
        let data_bytes = u32::try_from(page.len()).map_err(|_| Status::INTERNAL_ERROR)?;
        let page =
            <[u8; IDENTIFY_BYTES]>::mut_from_bytes(page).map_err(|_| Status::INTERNAL_ERROR)?;
        match around.view.subsystem() {
            _ if self.kind == Kind::Discovery => self.discovery_structure(identify, page)?,
            Some(subsystem) => self.structure(identify, around, subsystem, page)?,
            None => return Err(Status::INVALID_FIELD),
        }
        Ok(Outcome::data(data_bytes))
    }

    fn discovery_structure(
        &self,
        identify: &Identify,
        page: &mut [u8; IDENTIFY_BYTES],
    ) -> Result<(), Status> {
        if identify.cns != Cns::CONTROLLER {
            return Err(Status::INVALID_FIELD);
        }
        let id: &mut IdentifyController = zerocopy::transmute_mut!(page);
        self.common(id);
        fill_ascii(&mut id.serial, "0");
        fill_ascii(&mut id.model, "Discovery controller");
        fill_ascii(&mut id.firmware, env!("CARGO_PKG_VERSION"));
        id.controller_type = CONTROLLER_TYPE_DISCOVERY;
        id.subsystem_nqn[..DISCOVERY_NQN.len()].copy_from_slice(DISCOVERY_NQN.as_bytes());
        id.log_attributes = LPA_EXTENDED;
        if !self.keep_alive.is_asked_for() {
            id.async_events = U32::ZERO;
        }
        Ok(())
    }

    fn structure(
        &self,
        identify: &Identify,
        around: &Surroundings<'_>,
        subsystem: &Subsystem,
        page: &mut [u8; IDENTIFY_BYTES],
    ) -> Result<(), Status> {
        let (nsid, view) = (identify.nsid, around.view);
        match identify.cns {
            Cns::NAMESPACE => {
                if let Some(namespace) = named(view, nsid)? {
                    fill_namespace(zerocopy::transmute_mut!(page), namespace);
                }
            }
            Cns::CONTROLLER => {
                let id: &mut IdentifyController = zerocopy::transmute_mut!(page);
                self.io_controller(id, subsystem, view);
                fill_instance(id, around.instance);
            }
            Cns::ACTIVE_NAMESPACES => fill_list(zerocopy::transmute_mut!(page), view, nsid)?,
            Cns::DESCRIPTORS => {
                let namespace = view.namespace(nsid).ok_or(Status::INVALID_NAMESPACE)?;
                fill_descriptors(page, namespace);
            }
            // All fields describe unsupported metadata and formats. The structure stays zero.
            Cns::COMMAND_SET_NAMESPACE => {
                nvm_only(identify)?;
                named(view, nsid)?;
            }
            Cns::COMMAND_SET_CONTROLLER => {
                nvm_only(identify)?;
                self.nvm_controller(zerocopy::transmute_mut!(page));
            }
            Cns::COMMAND_SET_ACTIVE_NAMESPACES => {
                nvm_only(identify)?;
                fill_list(zerocopy::transmute_mut!(page), view, nsid)?;
            }
            Cns::INDEPENDENT_NAMESPACE => {
                if let Some(namespace) = named(view, nsid)? {
                    fill_independent(zerocopy::transmute_mut!(page), namespace);
                }
            }
            Cns::COMMAND_SETS => {
                if ![self.controller_id, u16::MAX].contains(&identify.controller_id) {
                    return Err(Status::INVALID_FIELD);
                }
                let vectors: &mut CommandSetVectors = zerocopy::transmute_mut!(page);
                vectors.vectors[0] = U64::new(1 << CSI_NVM);
            }
            _ => return Err(Status::INVALID_FIELD),
        }
        Ok(())
    }

    /// Fills the fields that I/O and discovery controllers have in common.
    fn common(&self, id: &mut IdentifyController) {
        id.max_transfer = page_exponent(self.limits.io.max_transfer_bytes);
        id.controller_id = U16::new(self.controller_id);
        id.version = U32::new(VERSION);
        id.async_events = U32::new(self.events.supported());
        id.attributes = U32::new(CTRATT_HOST_ID_128 | CTRATT_TRAFFIC_KEEP_ALIVE);
        id.async_event_limit = zero_based(ASYNC_EVENTS_MAX);
        id.error_log_entries = zero_based(ERROR_ENTRIES);
        id.keep_alive_granularity = U16::new(GRANULARITY_UNITS);
        id.max_commands = U16::new(self.max_queue_entries);
        let (sgls, descriptors) = match self.limits.transport {
            Transport::Tcp => (0, 1),
            Transport::Rdma => (SGLS_KEYED, DESCRIPTORS_MOST),
        };
        id.sgl_support = U32::new(SGLS_SUPPORTED | SGLS_OFFSET | sgls);
        id.max_sgl_descriptors = descriptors;
        id.command_capsule_size = U32::new(ENTRY_UNITS);
        id.response_capsule_size = U32::new(1);
    }

    fn io_controller(&self, id: &mut IdentifyController, subsystem: &Subsystem, view: &Authorized) {
        self.common(id);
        fill_ascii(&mut id.serial, &subsystem.serial);
        fill_ascii(&mut id.model, &subsystem.model);
        fill_ascii(&mut id.firmware, &subsystem.firmware);
        id.controller_type = CONTROLLER_TYPE_IO;
        id.subsystem_nqn = subsystem.nqn.to_field();
        id.multipath = CMIC_MULTI_CONTROLLER | CMIC_ANA;
        id.ana_transition_s = ANA_TRANSITION_SECONDS;
        id.ana_capabilities = ANACAP_ALL_STATES | ANACAP_FIXED_GROUPS;
        id.ana_group_max = U32::new(ANA_GROUPS_MAX);
        id.ana_groups = U32::new(ANA_GROUPS_MAX);
        id.abort_limit = ABORT_LIMIT;
        id.firmware_updates = FRMW_ONE_READ_ONLY_SLOT;
        id.log_attributes = LPA_EFFECTS | LPA_EXTENDED;
        id.quiesce_ms = U16::new(self.limits.quiesce_ms);
        id.submission_entry_sizes = 0x66;
        id.completion_entry_sizes = 0x44;
        id.namespaces = U32::new(NAMESPACES_MAX);
        id.max_allowed_namespaces = U32::new(NAMESPACES_MAX);
        id.nvm_commands = U16::new(self.optional_commands(view));
        id.fused_operations = U16::new(flag(self.limits.io.compare, FUSES_COMPARE_AND_WRITE));
        let cache = if view.has_volatile_cache() {
            VWC_PRESENT
        } else {
            0
        };
        id.volatile_write_cache = VWC_NO_BROADCAST_FLUSH | cache;
        id.command_capsule_size = U32::new(ENTRY_UNITS + self.limits.in_capsule_bytes / 16);
        id.fabrics_commands = U16::new(OFCS_DISCONNECT);
    }

    fn optional_commands(&self, view: &Authorized) -> u16 {
        ONCS_WRITE_ZEROES
            | ONCS_SAVE_AND_SELECT
            | ONCS_RESERVATIONS
            | ONCS_TIMESTAMP
            | flag(self.limits.io.compare, ONCS_COMPARE)
            | flag(self.limits.io.verify, ONCS_VERIFY)
            | flag(view.deallocates(), ONCS_DATASET_MANAGEMENT)
    }

    fn nvm_controller(&self, id: &mut IdentifyNvmController) {
        id.write_zeroes_limit = page_exponent(self.limits.io.max_write_zeroes_bytes);
    }
}

fn fill_instance(id: &mut IdentifyController, instance: ControllerInstance) {
    id.uniquifier = instance.uniquifier;
    id.random = U64::new(instance.random);
    id.cross_controller_resets = CROSS_CONTROLLER_RESETS_MOST;
}

/// The namespace of an Identify. `None` for a valid id that is not in use: its structure is all
/// zeroes.
fn named(view: &Authorized, nsid: u32) -> Result<Option<&Namespace>, Status> {
    if !(1..=NAMESPACES_MAX).contains(&nsid) {
        return Err(Status::INVALID_NAMESPACE);
    }
    Ok(view.namespace(nsid))
}

const fn nvm_only(identify: &Identify) -> Result<(), Status> {
    if identify.command_set == CSI_NVM {
        Ok(())
    } else {
        Err(Status::INVALID_FIELD)
    }
}

fn fill_list(list: &mut NamespaceList, view: &Authorized, after: u32) -> Result<(), Status> {
    if after >= u32::MAX - 1 {
        return Err(Status::INVALID_NAMESPACE);
    }
    let ids = view
        .namespaces()
        .iter()
        .map(|namespace| namespace.nsid)
        .filter(|nsid| *nsid > after);
    for (place, nsid) in list.ids.iter_mut().zip(ids) {
        *place = U32::new(nsid);
    }
    Ok(())
}

fn fill_namespace(id: &mut IdentifyNamespace, namespace: &Namespace) {
    id.size = U64::new(namespace.blocks);
    id.capacity = U64::new(namespace.blocks);
    id.utilization = U64::new(namespace.blocks);
    id.features = NSFEAT_ATOMIC | NSFEAT_OPTIMAL;
    id.sharing = NMIC_SHARED;
    id.reservations = reservations(namespace);
    id.deallocation = deallocation(namespace.deallocate);
    id.atomic_write_unit = blocks(namespace.atomic_write_blocks);
    id.atomic_write_unit_power_fail = blocks(namespace.atomic_power_fail_blocks);
    id.atomic_compare_and_write_unit = blocks(namespace.atomic_compare_blocks);
    id.optimal_io_boundary = U16::new(u16::try_from(namespace.boundary_blocks).unwrap_or(0));
    id.write_granularity = blocks(namespace.preferred_write_blocks);
    id.write_alignment = blocks(namespace.preferred_alignment_blocks);
    if namespace.deallocate != Deallocate::No {
        id.deallocate_granularity = id.write_granularity;
        id.deallocate_alignment = id.write_alignment;
    }
    id.optimal_write_size = blocks(namespace.optimal_write_blocks);
    id.ana_group = U32::new(namespace.ana_group);
    id.attributes = attributes(namespace);
    id.nguid = namespace.nguid;
    id.eui64 = namespace.eui64.unwrap_or_default();
    id.lba_formats[0].data_shift = u8::try_from(namespace.block_shift()).unwrap_or(0);
}

const fn deallocation(deallocate: Deallocate) -> u8 {
    match deallocate {
        Deallocate::No => 0,
        Deallocate::Undefined => DLFEAT_WRITE_ZEROES_DEALLOCATES,
        Deallocate::Zeroes => DLFEAT_WRITE_ZEROES_DEALLOCATES | DLFEAT_READS_ZEROES,
    }
}

const fn attributes(namespace: &Namespace) -> u8 {
    if namespace.read_only {
        NSATTR_WRITE_PROTECTED
    } else {
        0
    }
}

const fn reservations(namespace: &Namespace) -> u8 {
    if namespace.stores_reservations {
        RESCAP_TYPES | RESCAP_PERSIST
    } else {
        RESCAP_TYPES
    }
}

fn fill_independent(id: &mut IndependentNamespace, namespace: &Namespace) {
    id.features = NSFEAT_ATOMIC | NSFEAT_OPTIMAL;
    id.sharing = NMIC_SHARED;
    id.reservations = reservations(namespace);
    id.ana_group = U32::new(namespace.ana_group);
    id.attributes = attributes(namespace);
    id.status = NSTAT_READY;
}

fn fill_descriptors(page: &mut [u8], namespace: &Namespace) {
    let mut rest = page;
    if let Some(eui64) = namespace.eui64 {
        rest = Descriptor::Eui64(eui64).write(rest);
    }
    rest = Descriptor::Nguid(namespace.nguid).write(rest);
    rest = Descriptor::Uuid(namespace.uuid).write(rest);
    let _ = Descriptor::Csi(CSI_NVM).write(rest);
}

/// A count of blocks as a zero-based field. The inventory has checked that the count fits. Zero
/// stays zero.
fn blocks(count: u32) -> U16 {
    U16::new(u16::try_from(count.saturating_sub(1)).unwrap_or(u16::MAX))
}

fn zero_based(count: usize) -> u8 {
    u8::try_from(count.saturating_sub(1)).unwrap_or(u8::MAX)
}

/// log2 of `bytes` in pages of 4096 bytes, rounded down. At least 1, because zero means unlimited.
fn page_exponent(bytes: u32) -> u8 {
    let exponent = (bytes / 4096).checked_ilog2().unwrap_or(0).max(1);
    u8::try_from(exponent).unwrap_or(u8::MAX)
}

const fn flag(set: bool, bit: u16) -> u16 {
    if set { bit } else { 0 }
}

/// CTRATT bit 0: host identifiers of 128 bits.
const CTRATT_HOST_ID_128: u32 = 1 << 0;
/// ACL, zero-based.
const ABORT_LIMIT: u8 = 3;
/// FRMW: bits 3:1, one slot; bit 0, slot 1 is read-only.
const FRMW_ONE_READ_ONLY_SLOT: u8 = 1 << 1 | 1;
/// Units of 16 bytes in a submission entry.
const ENTRY_UNITS: u32 = 4;
