//! Facts about a controller and a namespace that a host learns during the bring-up, as plain
//! numbers.
//!
//! The controller may be faulty. A value that would cause a wrong size, an overlong shift or an
//! unbounded loop is refused with a sentence. A value that is only unusual is limited to the
//! supported range.
//!
//! Source: NVM Express Base Specification 2.x, "Identify Controller data structure"; NVM Command
//! Set Specification 1.x, "Identify Namespace data structure".

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use super::error::BringupError;
use crate::nvme::fabrics::CNTLID_DYNAMIC;
use crate::nvme::identify::{
    CMIC_ANA, CONTROLLER_TYPE_DISCOVERY, CONTROLLER_TYPE_IO, CTRATT_TRAFFIC_KEEP_ALIVE,
    DLFEAT_READS_ZEROES, DLFEAT_WRITE_ZEROES_DEALLOCATES, Descriptor, Descriptors,
    FUSES_COMPARE_AND_WRITE, IdentifyController, IdentifyNamespace, IdentifyNvmController,
    NMIC_SHARED, NSATTR_WRITE_PROTECTED, NSFEAT_OPTIMAL, NamespaceList, ONCS_COMPARE,
    ONCS_DATASET_MANAGEMENT, ONCS_WRITE_ZEROES, SGLS_KEYED, SGLS_OFFSET, VWC_PRESENT, ascii,
};
use crate::nvme::instance::ControllerInstance;
use crate::nvme::nqn::Nqn;

/// Content of the CAP property.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Capabilities {
    /// Maximum number of queue entries (MQES + 1), 2 to 65536.
    pub max_queue_entries: u32,
    /// TO: time in milliseconds within which the controller becomes ready, at least 500.
    pub ready_timeout_ms: u64,
    /// Whether the NVM command set is supported.
    pub nvm_command_set: bool,
    /// Whether CSI selects the command set.
    pub several_command_sets: bool,
    /// MPSMIN: the smallest memory page has 2^(12 + MPSMIN) bytes. The page is the unit of MDTS.
    pub min_page_shift: u32,
}

impl Capabilities {
    /// Parses the CAP property.
    pub(super) fn parse(cap: u64) -> Result<Self, BringupError> {
        let field = |bit: u32, mask: u64| cap >> bit & mask;
        let max_queue_entries = u32::try_from(field(0, 0xFFFF)).unwrap_or(0) + 1;
        if max_queue_entries < 2 {
            return Err(BringupError::broken(
                "the controller's queues have one entry (CAP.MQES 0)",
            ));
        }
        Ok(Self {
            max_queue_entries,
            ready_timeout_ms: field(24, 0xFF).max(1) * 500,
            nvm_command_set: field(37, 1) != 0,
            several_command_sets: field(43, 1) != 0,
            min_page_shift: u32::try_from(field(48, 0xF)).unwrap_or(0),
        })
    }
}

/// Identity, limits and features of a controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControllerFacts {
    /// CNTLID: I/O queues connect to this controller.
    pub controller_id: u16,
    /// VS: the version of the specification, as major << 16 | minor << 8 | tertiary.
    pub version: u32,
    /// MN, without the padding.
    pub model: String,
    /// SN, without the padding.
    pub serial: String,
    /// FR, without the padding.
    pub firmware: String,
    /// Content of CAP.
    pub capabilities: Capabilities,
    /// Maximum data length of one command in bytes (MDTS). `u32::MAX`: no limit.
    pub max_data_bytes: u32,
    /// Maximum length of one Write Zeroes in bytes (WZSL). `u32::MAX`: no limit.
    pub max_write_zeroes_bytes: u32,
    /// Maximum number of blocks of a Dataset Management with one range (DMRSL, DMSL). `u32::MAX`:
    /// no limit.
    pub max_dataset_blocks: u32,
    /// Maximum in-capsule data of one I/O command in bytes (IOCCSZ less the entry).
    pub in_capsule_bytes: u32,
    /// Whether data may lie in keyed memory of the host, as RDMA needs (SGLS bit 2).
    pub keyed_data: bool,
    /// Whether data may lie at an offset of the capsule, as in-capsule data does (SGLS bit 20).
    pub offset_data: bool,
    /// Maximum number of outstanding commands of one queue (MAXCMD). `None`: not reported.
    pub max_commands: Option<u16>,
    /// Unit of the keep-alive timer in milliseconds (KAS). `None`: no keep-alive.
    pub keep_alive_unit_ms: Option<u32>,
    /// Whether every command restarts the keep-alive timer (TBKAS).
    pub traffic_keep_alive: bool,
    /// CQT: time in milliseconds in which a controller that has noticed the loss of an association
    /// ends its commands. 0: not reported.
    pub quiesce_ms: u16,
    /// CNTLID, CIU and CIRN of the controller: what another controller needs to reset it.
    pub instance: ControllerInstance,
    /// CCRL: resets of other controllers that the controller carries out at the same time. Zero:
    /// Cross-Controller Reset is not supported.
    pub cross_controller_resets: u8,
    /// Whether a power failure may lose acknowledged writes that were not flushed (VWC).
    pub volatile_cache: bool,
    /// Whether Write Zeroes is supported.
    pub write_zeroes: bool,
    /// Whether Dataset Management is supported.
    pub dataset_management: bool,
    /// Whether Compare, and Compare fused with Write, are supported.
    pub compare_and_write: bool,
    /// Whether the controller reports the state of its paths (ANA).
    pub ana: bool,
    /// NANAGRPID: number of ANA groups.
    pub ana_groups: u32,
    /// NN: highest possible namespace id.
    pub max_nsid: u32,
    /// OAES: asynchronous events that the controller supports.
    pub async_events: u32,
}

/// Expected values for the check of Identify.
pub(super) struct Expected<'a> {
    pub(super) controller_id: u16,
    pub(super) version: u32,
    pub(super) capabilities: Capabilities,
    /// Name of the subsystem. `None` for discovery, whose subsystem may have another name.
    pub(super) subsystem: Option<&'a Nqn>,
}

impl ControllerFacts {
    /// Checks and reads Identify Controller.
    pub(super) fn parse(
        data: &IdentifyController,
        expected: &Expected<'_>,
    ) -> Result<Self, BringupError> {
        let controller_id = data.controller_id.get();
        if controller_id != expected.controller_id {
            return Err(BringupError::broken(format!(
                "the controller calls itself {controller_id} and was connected as {}",
                expected.controller_id
            )));
        }
        check_sgl(data)?;
        check_kind(data, expected.subsystem.is_some())?;
        if let Some(subsystem) = expected.subsystem {
            check_subsystem(data, subsystem)?;
            check_io(data)?;
        }
        let commands = data.nvm_commands.get();
        let has = |bit: u16| commands & bit != 0;
        let fused = data.fused_operations.get() & FUSES_COMPARE_AND_WRITE != 0;
        let capsule = data.command_capsule_size.get().saturating_mul(16);
        Ok(Self {
            controller_id,
            version: expected.version,
            model: ascii(&data.model).to_string(),
            serial: ascii(&data.serial).to_string(),
            firmware: ascii(&data.firmware).to_string(),
            capabilities: expected.capabilities,
            max_data_bytes: limit_bytes(data.max_transfer, expected.capabilities.min_page_shift),
            max_write_zeroes_bytes: u32::MAX,
            max_dataset_blocks: u32::MAX,
            in_capsule_bytes: capsule.saturating_sub(64).min(MAX_IN_CAPSULE_BYTES),
            keyed_data: data.sgl_support.get() & SGLS_KEYED != 0,
            offset_data: data.sgl_support.get() & SGLS_OFFSET != 0,
            max_commands: (data.max_commands.get() != 0).then(|| data.max_commands.get()),
            keep_alive_unit_ms: match data.keep_alive_granularity.get() {
                0 => None,
                units => Some(u32::from(units) * 100),
            },
            traffic_keep_alive: data.attributes.get() & CTRATT_TRAFFIC_KEEP_ALIVE != 0,
            quiesce_ms: data.quiesce_ms.get(),
            instance: ControllerInstance {
                controller_id,
                uniquifier: data.uniquifier,
                random: data.random.get(),
            },
            cross_controller_resets: data.cross_controller_resets,
            volatile_cache: data.volatile_write_cache & VWC_PRESENT != 0,
            write_zeroes: has(ONCS_WRITE_ZEROES),
            dataset_management: has(ONCS_DATASET_MANAGEMENT),
            compare_and_write: has(ONCS_COMPARE) && fused,
            ana: data.multipath & CMIC_ANA != 0,
            ana_groups: data.ana_groups.get(),
            max_nsid: data.namespaces.get(),
            async_events: data.async_events.get(),
        })
    }

    /// Adds the limits of Identify Controller for the NVM command set.
    pub(super) fn take_limits(&mut self, data: &IdentifyNvmController) {
        let page_shift = self.capabilities.min_page_shift;
        self.max_write_zeroes_bytes = limit_bytes(data.write_zeroes_limit, page_shift);
        let named = |blocks: u64| match blocks {
            0 => u32::MAX,
            blocks => u32::try_from(blocks).unwrap_or(u32::MAX),
        };
        let range = named(data.dataset_range_blocks.get().into());
        self.max_dataset_blocks = range.min(named(data.dataset_blocks.get()));
    }
}

/// Checks that the controller supports SGLs, which Fabrics need, and in-capsule data without an
/// offset.
fn check_sgl(data: &IdentifyController) -> Result<(), BringupError> {
    if data.sgl_support.get() & 0b11 == 0 {
        return Err(BringupError::unsupported(
            "the controller has no SGLs (SGLS 0)",
        ));
    }
    if data.in_capsule_offset.get() != 0 {
        return Err(BringupError::unsupported(
            "the controller wants in-capsule data at an offset (ICDOFF is not 0)",
        ));
    }
    Ok(())
}

/// Checks CNTRLTYPE. Controllers before version 1.4 report 0.
fn check_kind(data: &IdentifyController, io: bool) -> Result<(), BringupError> {
    match (data.controller_type, io) {
        (0, _) | (CONTROLLER_TYPE_IO, true) | (CONTROLLER_TYPE_DISCOVERY, false) => Ok(()),
        (CONTROLLER_TYPE_DISCOVERY, true) => Err(BringupError::unsupported(
            "this is a discovery controller: it has no namespaces; ask it which subsystems there are",
        )),
        (_, true) => Err(BringupError::unsupported(
            "the controller does no I/O (CNTRLTYPE)",
        )),
        (_, false) => Err(BringupError::unsupported(
            "this is not a discovery controller",
        )),
    }
}

fn check_subsystem(data: &IdentifyController, subsystem: &Nqn) -> Result<(), BringupError> {
    match Nqn::from_field(&data.subsystem_nqn) {
        Ok(nqn) if nqn == *subsystem => Ok(()),
        Ok(nqn) => Err(BringupError::broken(format!(
            "the subsystem calls itself {nqn} and was connected as {subsystem}"
        ))),
        Err(error) => Err(BringupError::broken(format!(
            "the subsystem's name is wrong: {error}"
        ))),
    }
}

/// Checks that entries have 64 and 16 bytes, and that a capsule has room for an entry.
fn check_io(data: &IdentifyController) -> Result<(), BringupError> {
    let fits = |sizes: u8, size: u8| (sizes & 0xF..=sizes >> 4).contains(&size);
    if !fits(data.submission_entry_sizes, 6) || !fits(data.completion_entry_sizes, 4) {
        return Err(BringupError::unsupported(
            "the controller's queue entries are not of 64 and 16 bytes (SQES, CQES)",
        ));
    }
    if data.command_capsule_size.get() < 4 || data.response_capsule_size.get() < 1 {
        return Err(BringupError::broken(
            "the controller's capsules are too small for an entry (IOCCSZ, IORCSZ)",
        ));
    }
    Ok(())
}

/// Limit in bytes of MDTS or WZSL, which are powers of two of pages. `u32::MAX`, no limit, for 0
/// and for values above 32 bits.
fn limit_bytes(exponent: u8, min_page_shift: u32) -> u32 {
    match u32::from(exponent) + 12 + min_page_shift {
        _ if exponent == 0 => u32::MAX,
        shift => 1_u32.checked_shl(shift).unwrap_or(u32::MAX),
    }
}

/// Identity, size and features of a namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamespaceFacts {
    /// NSID, never 0.
    pub nsid: u32,
    /// Size in blocks (NSZE), never 0.
    pub blocks: u64,
    /// Block size: a power of two, 512 to 65536 bytes. The namespace's size in bytes fits 64 bits.
    pub block_bytes: u32,
    /// Preferred write granularity and alignment in blocks (NPWG). 1 if not reported.
    pub write_granularity_blocks: u32,
    /// Optimal write size in blocks (NOWS). 0 if not reported.
    pub optimal_write_blocks: u32,
    /// Number of blocks that are written atomically on power failure (NAWUPF, or 1).
    pub atomic_write_blocks: u32,
    /// Whether the namespace refuses writes.
    pub read_only: bool,
    /// Whether other controllers share the namespace (NMIC).
    pub shared: bool,
    /// Whether deallocated blocks read as zeroes (DLFEAT).
    pub deallocated_reads_zeroes: bool,
    /// Whether Write Zeroes may deallocate (DLFEAT).
    pub write_zeroes_deallocates: bool,
    /// ANAGRPID, or 0 without ANA.
    pub ana_group: u32,
    /// UUID, or zero if the namespace has none.
    pub uuid: [u8; 16],
    /// NGUID, or zero if the namespace has none.
    pub nguid: [u8; 16],
    /// EUI64, or zero if the namespace has none.
    pub eui64: [u8; 8],
}

impl NamespaceFacts {
    /// Checks and reads Identify Namespace.
    pub(super) fn parse(nsid: u32, data: &IdentifyNamespace) -> Result<Self, BringupError> {
        let block_shift = block_shift(nsid, data)?;
        let blocks = data.size.get();
        if blocks == 0 || data.capacity.get() == 0 {
            return Err(BringupError::unsupported(format!(
                "namespace {nsid} has no capacity"
            )));
        }
        if data.capacity.get() > blocks || blocks > u64::MAX >> block_shift {
            return Err(BringupError::broken(format!(
                "namespace {nsid}: a size of {blocks} blocks and a capacity of {} make no sense",
                data.capacity.get()
            )));
        }
        let optimal = data.features & NSFEAT_OPTIMAL != 0;
        let counted = |zero_based: u16| u32::from(zero_based) + 1;
        Ok(Self {
            nsid,
            blocks,
            block_bytes: 1 << block_shift,
            write_granularity_blocks: if optimal {
                counted(data.write_granularity.get())
            } else {
                1
            },
            optimal_write_blocks: if optimal {
                counted(data.optimal_write_size.get())
            } else {
                0
            },
            atomic_write_blocks: counted(data.atomic_write_unit_power_fail.get()),
            read_only: data.attributes & NSATTR_WRITE_PROTECTED != 0,
            shared: data.sharing & NMIC_SHARED != 0,
            deallocated_reads_zeroes: data.deallocation & 0b111 == DLFEAT_READS_ZEROES,
            write_zeroes_deallocates: data.deallocation & DLFEAT_WRITE_ZEROES_DEALLOCATES != 0,
            ana_group: data.ana_group.get(),
            uuid: [0; 16],
            nguid: data.nguid,
            eui64: data.eui64,
        })
    }

    /// Adds the identifiers of the identification descriptors.
    pub(super) fn identify(&mut self, page: &[u8]) -> Result<(), BringupError> {
        for descriptor in Descriptors::new(page) {
            match descriptor {
                Ok(Descriptor::Uuid(uuid)) => self.uuid = uuid,
                Ok(Descriptor::Nguid(nguid)) => self.nguid = nguid,
                Ok(Descriptor::Eui64(eui64)) => self.eui64 = eui64,
                Ok(Descriptor::Csi(0)) => {}
                Ok(Descriptor::Csi(set)) => {
                    return Err(BringupError::unsupported(format!(
                        "namespace {} belongs to I/O command set {set}, not to NVM",
                        self.nsid
                    )));
                }
                Err(truncated) => {
                    return Err(BringupError::broken(format!(
                        "namespace {}: its identification descriptors are cut short: {truncated}",
                        self.nsid
                    )));
                }
            }
        }
        Ok(())
    }
}

/// log2 of the block size in use, 9 to 16. Refuses metadata and protection information.
fn block_shift(nsid: u32, data: &IdentifyNamespace) -> Result<u8, BringupError> {
    let index = data.format & 0xF | data.format >> 1 & 0x30;
    let format = data
        .lba_formats
        .get(usize::from(index))
        .filter(|_| index <= data.formats)
        .ok_or_else(|| {
            BringupError::broken(format!("namespace {nsid}: it has no LBA format {index}"))
        })?;
    if !(9..=16).contains(&format.data_shift) {
        return Err(BringupError::unsupported(format!(
            "namespace {nsid}: blocks of 2^{} bytes; supported are 2^9 to 2^16",
            format.data_shift
        )));
    }
    if format.metadata_bytes.get() != 0 || data.protection & 0b111 != 0 {
        return Err(BringupError::unsupported(format!(
            "namespace {nsid}: it is formatted with metadata, which NVMe/TCP hosts do not move"
        )));
    }
    Ok(format.data_shift)
}

/// Ids of one list of active namespaces.
///
/// Errors: the ids do not ascend from `above`, or exceed the valid range.
pub(super) fn namespace_ids(
    list: &NamespaceList,
    above: u32,
    max_nsid: u32,
) -> Result<Vec<u32>, BringupError> {
    let ids: Vec<u32> = list.iter().collect();
    let ascending = ids
        .iter()
        .try_fold(above, |last, id| (*id > last).then_some(*id));
    match ascending {
        Some(last) if last <= max_nsid && last < NSID_LIMIT || ids.is_empty() => Ok(ids),
        _ => Err(BringupError::broken(
            "the list of namespaces is not ascending, or above NN",
        )),
    }
}

/// Controller id in the answer to Connect.
pub(super) fn connected_as(dword0: u32) -> Result<u16, BringupError> {
    if dword0 & (CONNECT_ATR | CONNECT_ASCR) != 0 {
        return Err(BringupError::authentication());
    }
    let controller_id = u16::try_from(dword0 & 0xFFFF).unwrap_or(CNTLID_DYNAMIC);
    if controller_id > CNTLID_LAST {
        return Err(BringupError::broken(format!(
            "the controller gave itself the reserved id {controller_id:#06x}"
        )));
    }
    Ok(controller_id)
}

/// Bits in the answer to Connect: authentication is required, with or without a secure channel.
const CONNECT_ATR: u32 = 1 << 17;
const CONNECT_ASCR: u32 = 1 << 18;
/// Highest controller id that is not reserved.
const CNTLID_LAST: u16 = 0xFFEF;
/// First namespace id with a special meaning.
const NSID_LIMIT: u32 = 0xFFFF_FFFE;
/// Limit of in-capsule data in bytes, for controllers that offer more.
const MAX_IN_CAPSULE_BYTES: u32 = 1 << 20;
