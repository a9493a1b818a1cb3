//! The layout of everything Identify returns, and the lists it returns them in.
//!
//! Layout only: `controller` decides what the fields say, the host side reads them. Every offset that a peer
//! depends on is locked below. Reserved bytes are private, so that they stay zero.
//! Source: NVM Express Base Specification 2.x, "Identify command"; NVM Command Set Specification 1.x, "Identify
//! Namespace".

use core::mem::offset_of;

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::codec::{Reader, Truncated};

/// Bytes of every Identify data structure.
pub const IDENTIFY_BYTES: usize = 4096;

/// Namespace ids in one Identify list.
pub const LIST_ENTRIES: usize = 1024;

/// CNS: which structure Identify returns.
///
/// Source: NVM Express Base Specification 2.x, "Identify – CNS Values".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cns(pub u8);

impl Cns {
    /// Identify Namespace of the NVM command set.
    pub const NAMESPACE: Self = Self(0x00);
    /// Identify Controller.
    pub const CONTROLLER: Self = Self(0x01);
    /// Active Namespace ID list.
    pub const ACTIVE_NAMESPACES: Self = Self(0x02);
    /// Namespace Identification Descriptor list.
    pub const DESCRIPTORS: Self = Self(0x03);
    /// I/O command set specific Identify Namespace.
    pub const COMMAND_SET_NAMESPACE: Self = Self(0x05);
    /// I/O command set specific Identify Controller.
    pub const COMMAND_SET_CONTROLLER: Self = Self(0x06);
    /// I/O command set specific Active Namespace ID list.
    pub const COMMAND_SET_ACTIVE_NAMESPACES: Self = Self(0x07);
    /// I/O command set independent Identify Namespace.
    pub const INDEPENDENT_NAMESPACE: Self = Self(0x08);
    /// Identify I/O Command Set: the vectors of supported combinations.
    pub const COMMAND_SETS: Self = Self(0x1C);
}

/// CSI of the NVM command set, the only one here.
pub const CSI_NVM: u8 = 0;

/// Identify Controller (CNS 01h), 4096 bytes.
///
/// Source: NVM Express Base Specification 2.x, "Identify Controller Data Structure, I/O Command Set Independent".
#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
pub struct IdentifyController {
    /// VID: PCI vendor; zero for a controller without PCI.
    pub vendor_id: U16,
    /// SSVID.
    pub subsystem_vendor_id: U16,
    /// SN: ASCII, padded with spaces.
    pub serial: [u8; 20],
    /// MN: ASCII, padded with spaces.
    pub model: [u8; 40],
    /// FR: ASCII, padded with spaces.
    pub firmware: [u8; 8],
    /// RAB: recommended arbitration burst, log2.
    pub arbitration_burst: u8,
    /// IEEE OUI.
    pub ieee: [u8; 3],
    /// CMIC: bit 1, the subsystem may have several controllers.
    pub multipath: u8,
    /// MDTS: largest transfer as log2 of pages of 4096 bytes; zero is unlimited.
    pub max_transfer: u8,
    /// CNTLID.
    pub controller_id: U16,
    /// VER.
    pub version: U32,
    /// RTD3R.
    pub resume_us: U32,
    /// RTD3E.
    pub entry_us: U32,
    /// OAES: optional asynchronous events supported.
    pub async_events: U32,
    /// CTRATT: controller attributes.
    pub attributes: U32,
    reserved_100: [u8; 11],
    /// CNTRLTYPE: 1 I/O, 2 discovery, 3 administrative.
    pub controller_type: u8,
    /// FGUID.
    pub fru_guid: [u8; 16],
    /// CRDT1 to CRDT3: command retry delays in units of 100 ms.
    pub retry_delays: [U16; 3],
    reserved_134: [u8; 122],
    /// OACS: optional admin commands.
    pub admin_commands: U16,
    /// ACL: abort command limit, zero-based.
    pub abort_limit: u8,
    /// AERL: asynchronous event request limit, zero-based.
    pub async_event_limit: u8,
    /// FRMW: firmware updates.
    pub firmware_updates: u8,
    /// LPA: log page attributes.
    pub log_attributes: u8,
    /// ELPE: error log page entries, zero-based.
    pub error_log_entries: u8,
    /// NPSS: power states, zero-based.
    pub power_states: u8,
    reserved_264: [u8; 56],
    /// KAS: granularity of the keep-alive timer in units of 100 ms; zero is no keep-alive.
    pub keep_alive_granularity: U16,
    reserved_322: [u8; 20],
    /// ANATT.
    pub ana_transition_s: u8,
    /// ANACAP.
    pub ana_capabilities: u8,
    /// ANAGRPMAX.
    pub ana_group_max: U32,
    /// NANAGRPID.
    pub ana_groups: U32,
    reserved_352: [u8; 34],
    /// CQT: how long commands of a lost association may still change the medium, in milliseconds.
    pub quiesce_ms: U16,
    reserved_388: [u8; 124],
    /// SQES: submission entry sizes as log2, required in bits 3:0, maximum in bits 7:4.
    pub submission_entry_sizes: u8,
    /// CQES: completion entry sizes, likewise.
    pub completion_entry_sizes: u8,
    /// MAXCMD: most commands one queue should have outstanding.
    pub max_commands: U16,
    /// NN: highest namespace id that can ever be valid.
    pub namespaces: U32,
    /// ONCS: optional commands of the NVM command set.
    pub nvm_commands: U16,
    /// FUSES: bit 0, fused Compare and Write.
    pub fused_operations: U16,
    /// FNA.
    pub format_attributes: u8,
    /// VWC: bit 0, a volatile write cache; bits 2:1, Flush to all namespaces.
    pub volatile_write_cache: u8,
    /// AWUN, zero-based.
    pub atomic_write_unit: U16,
    /// AWUPF, zero-based.
    pub atomic_write_unit_power_fail: U16,
    /// ICSVSCC.
    pub vendor_command_configuration: u8,
    /// NWPC.
    pub write_protection: u8,
    /// ACWU, zero-based.
    pub atomic_compare_and_write_unit: U16,
    /// CDFS.
    pub copy_formats: U16,
    /// SGLS: what SGLs are supported.
    pub sgl_support: U32,
    /// MNAN: most namespaces allowed at once.
    pub max_allowed_namespaces: U32,
    reserved_544: [u8; 224],
    /// SUBNQN: padded with zeroes.
    pub subsystem_nqn: [u8; 256],
    reserved_1024: [u8; 768],
    /// IOCCSZ: largest I/O command capsule in units of 16 bytes.
    pub command_capsule_size: U32,
    /// IORCSZ: largest I/O response capsule in units of 16 bytes.
    pub response_capsule_size: U32,
    /// ICDOFF: where in-capsule data start, in units of 16 bytes.
    pub in_capsule_offset: U16,
    /// FCATT: bit 0, static controllers only.
    pub fabrics_attributes: u8,
    /// MSDBD: most SGL data block descriptors in a capsule.
    pub max_sgl_descriptors: u8,
    /// OFCS: bit 0, Disconnect is supported.
    pub fabrics_commands: U16,
    reserved_1806: [u8; 242],
    /// Power state descriptors.
    pub power_state_descriptors: [[u8; 32]; 32],
    /// Vendor specific.
    pub vendor: [u8; 1024],
}
const _: () = {
    use IdentifyController as C;
    assert!(size_of::<C>() == IDENTIFY_BYTES);
    assert!(offset_of!(C, serial) == 4 && offset_of!(C, model) == 24);
    assert!(offset_of!(C, firmware) == 64 && offset_of!(C, arbitration_burst) == 72);
    assert!(offset_of!(C, ieee) == 73 && offset_of!(C, multipath) == 76);
    assert!(offset_of!(C, max_transfer) == 77 && offset_of!(C, controller_id) == 78);
    assert!(offset_of!(C, version) == 80 && offset_of!(C, resume_us) == 84);
    assert!(offset_of!(C, entry_us) == 88 && offset_of!(C, async_events) == 92);
    assert!(offset_of!(C, attributes) == 96 && offset_of!(C, controller_type) == 111);
    assert!(offset_of!(C, retry_delays) == 128 && offset_of!(C, admin_commands) == 256);
    assert!(offset_of!(C, abort_limit) == 258 && offset_of!(C, async_event_limit) == 259);
    assert!(offset_of!(C, firmware_updates) == 260 && offset_of!(C, log_attributes) == 261);
    assert!(offset_of!(C, error_log_entries) == 262 && offset_of!(C, power_states) == 263);
    assert!(offset_of!(C, keep_alive_granularity) == 320);
    assert!(offset_of!(C, ana_transition_s) == 342 && offset_of!(C, ana_capabilities) == 343);
    assert!(offset_of!(C, ana_group_max) == 344 && offset_of!(C, ana_groups) == 348);
    assert!(offset_of!(C, quiesce_ms) == 386 && offset_of!(C, submission_entry_sizes) == 512);
    assert!(offset_of!(C, completion_entry_sizes) == 513 && offset_of!(C, max_commands) == 514);
    assert!(offset_of!(C, namespaces) == 516 && offset_of!(C, nvm_commands) == 520);
    assert!(offset_of!(C, fused_operations) == 522 && offset_of!(C, format_attributes) == 524);
    assert!(offset_of!(C, volatile_write_cache) == 525 && offset_of!(C, atomic_write_unit) == 526);
    assert!(offset_of!(C, atomic_write_unit_power_fail) == 528);
    assert!(offset_of!(C, write_protection) == 531);
    assert!(offset_of!(C, atomic_compare_and_write_unit) == 532);
    assert!(offset_of!(C, sgl_support) == 536 && offset_of!(C, max_allowed_namespaces) == 540);
    assert!(offset_of!(C, subsystem_nqn) == 768 && offset_of!(C, command_capsule_size) == 1792);
    assert!(
        offset_of!(C, response_capsule_size) == 1796 && offset_of!(C, in_capsule_offset) == 1800
    );
    assert!(
        offset_of!(C, fabrics_attributes) == 1802 && offset_of!(C, max_sgl_descriptors) == 1803
    );
    assert!(offset_of!(C, fabrics_commands) == 1804);
    assert!(offset_of!(C, power_state_descriptors) == 2048 && offset_of!(C, vendor) == 3072);
};

/// CNTRLTYPE of an I/O controller.
pub const CONTROLLER_TYPE_IO: u8 = 1;
/// CNTRLTYPE of a discovery controller.
pub const CONTROLLER_TYPE_DISCOVERY: u8 = 2;

/// CMIC bit 1: the subsystem may have several controllers.
pub const CMIC_MULTI_CONTROLLER: u8 = 1 << 1;
/// CMIC bit 3: asymmetric namespace access is reported.
pub const CMIC_ANA: u8 = 1 << 3;

/// OAES and asynchronous event configuration bit 8: namespace attribute notices.
pub const EVENT_NAMESPACE_ATTRIBUTE: u32 = 1 << 8;
/// OAES and asynchronous event configuration bit 31: discovery log page change notices.
pub const EVENT_DISCOVERY_LOG: u32 = 1 << 31;

/// LPA bit 1: the Commands Supported and Effects log page.
pub const LPA_EFFECTS: u8 = 1 << 1;
/// LPA bit 2: extended data, that is 32-bit lengths and log page offsets.
pub const LPA_EXTENDED: u8 = 1 << 2;

/// ONCS bit 0: Compare.
pub const ONCS_COMPARE: u16 = 1 << 0;
/// ONCS bit 2: Dataset Management.
pub const ONCS_DATASET_MANAGEMENT: u16 = 1 << 2;
/// ONCS bit 3: Write Zeroes.
pub const ONCS_WRITE_ZEROES: u16 = 1 << 3;
/// ONCS bit 4: the select and save fields of Get and Set Features.
pub const ONCS_SAVE_AND_SELECT: u16 = 1 << 4;
/// ONCS bit 5: reservations.
pub const ONCS_RESERVATIONS: u16 = 1 << 5;
/// ONCS bit 6: the Timestamp feature.
pub const ONCS_TIMESTAMP: u16 = 1 << 6;
/// ONCS bit 7: Verify.
pub const ONCS_VERIFY: u16 = 1 << 7;

/// FUSES bit 0: Compare and Write.
pub const FUSES_COMPARE_AND_WRITE: u16 = 1 << 0;

/// VWC bit 0: there is a volatile write cache.
pub const VWC_PRESENT: u8 = 1 << 0;
/// VWC bits 2:1 = 10b: Flush to namespace FFFFFFFFh is not supported.
pub const VWC_NO_BROADCAST_FLUSH: u8 = 0b10 << 1;

/// SGLS bit 0: SGLs are supported, without alignment.
pub const SGLS_SUPPORTED: u32 = 1 << 0;
/// SGLS bit 2: keyed data block descriptors.
pub const SGLS_KEYED: u32 = 1 << 2;
/// SGLS bit 20: the address of a data block descriptor may be an offset into the capsule.
pub const SGLS_OFFSET: u32 = 1 << 20;

/// OFCS bit 0: Disconnect.
pub const OFCS_DISCONNECT: u16 = 1 << 0;

/// One LBA format.
///
/// Source: NVM Command Set Specification 1.x, "LBA Format Data Structure".
#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
pub struct LbaFormat {
    /// MS: metadata bytes per block.
    pub metadata_bytes: U16,
    /// LBADS: log2 of the block's bytes.
    pub data_shift: u8,
    /// RP: relative performance.
    pub performance: u8,
}
const _: () = assert!(size_of::<LbaFormat>() == 4);

/// Identify Namespace (CNS 00h), 4096 bytes.
///
/// Source: NVM Command Set Specification 1.x, "Identify Namespace Data Structure, NVM Command Set".
#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
pub struct IdentifyNamespace {
    /// NSZE: size in blocks.
    pub size: U64,
    /// NCAP: capacity in blocks; zero means that the namespace is gone.
    pub capacity: U64,
    /// NUSE: blocks in use.
    pub utilization: U64,
    /// NSFEAT.
    pub features: u8,
    /// NLBAF: LBA formats, zero-based.
    pub formats: u8,
    /// FLBAS: the format in use.
    pub format: u8,
    /// MC.
    pub metadata_capabilities: u8,
    /// DPC.
    pub protection_capabilities: u8,
    /// DPS.
    pub protection: u8,
    /// NMIC: bit 0, shared between controllers.
    pub sharing: u8,
    /// RESCAP.
    pub reservations: u8,
    /// FPI.
    pub format_progress: u8,
    /// DLFEAT: what reads of deallocated blocks return (bits 2:0), deallocation by Write Zeroes (bit 3).
    pub deallocation: u8,
    /// NAWUN, zero-based.
    pub atomic_write_unit: U16,
    /// NAWUPF, zero-based.
    pub atomic_write_unit_power_fail: U16,
    /// NACWU, zero-based.
    pub atomic_compare_and_write_unit: U16,
    /// NABSN.
    pub atomic_boundary: U16,
    /// NABO.
    pub atomic_boundary_offset: U16,
    /// NABSPF.
    pub atomic_boundary_power_fail: U16,
    /// NOIOB: blocks a command should not cross, zero when it does not matter.
    pub optimal_io_boundary: U16,
    /// NVMCAP.
    pub nvm_capacity: [u8; 16],
    /// NPWG: preferred write granularity in blocks, zero-based.
    pub write_granularity: U16,
    /// NPWA: preferred write alignment in blocks, zero-based.
    pub write_alignment: U16,
    /// NPDG: preferred deallocate granularity in blocks, zero-based.
    pub deallocate_granularity: U16,
    /// NPDA: preferred deallocate alignment in blocks, zero-based.
    pub deallocate_alignment: U16,
    /// NOWS: optimal write size in blocks, zero-based.
    pub optimal_write_size: U16,
    /// MSSRL, MCL, MSRC: limits of Copy.
    pub copy_limits: [u8; 7],
    reserved_81: [u8; 11],
    /// ANAGRPID.
    pub ana_group: U32,
    reserved_96: [u8; 3],
    /// NSATTR: bit 0, write protected.
    pub attributes: u8,
    /// NVMSETID.
    pub nvm_set: U16,
    /// ENDGID.
    pub endurance_group: U16,
    /// NGUID: big-endian.
    pub nguid: [u8; 16],
    /// EUI64: big-endian.
    pub eui64: [u8; 8],
    /// LBAF: the formats.
    pub lba_formats: [LbaFormat; 64],
    /// Vendor specific.
    pub vendor: [u8; 3712],
}
const _: () = {
    use IdentifyNamespace as N;
    assert!(size_of::<N>() == IDENTIFY_BYTES);
    assert!(offset_of!(N, capacity) == 8 && offset_of!(N, utilization) == 16);
    assert!(offset_of!(N, features) == 24 && offset_of!(N, formats) == 25);
    assert!(offset_of!(N, format) == 26 && offset_of!(N, metadata_capabilities) == 27);
    assert!(offset_of!(N, protection_capabilities) == 28 && offset_of!(N, protection) == 29);
    assert!(offset_of!(N, sharing) == 30 && offset_of!(N, reservations) == 31);
    assert!(offset_of!(N, format_progress) == 32 && offset_of!(N, deallocation) == 33);
    assert!(offset_of!(N, atomic_write_unit) == 34);
    assert!(offset_of!(N, atomic_write_unit_power_fail) == 36);
    assert!(offset_of!(N, atomic_compare_and_write_unit) == 38);
    assert!(offset_of!(N, atomic_boundary) == 40 && offset_of!(N, optimal_io_boundary) == 46);
    assert!(offset_of!(N, write_granularity) == 64 && offset_of!(N, write_alignment) == 66);
    assert!(offset_of!(N, deallocate_granularity) == 68);
    assert!(offset_of!(N, deallocate_alignment) == 70);
    assert!(offset_of!(N, optimal_write_size) == 72 && offset_of!(N, ana_group) == 92);
    assert!(offset_of!(N, attributes) == 99 && offset_of!(N, nvm_set) == 100);
    assert!(offset_of!(N, endurance_group) == 102 && offset_of!(N, nguid) == 104);
    assert!(offset_of!(N, eui64) == 120 && offset_of!(N, lba_formats) == 128);
};

/// NSFEAT bit 1: the namespace's own atomic write units are valid.
pub const NSFEAT_ATOMIC: u8 = 1 << 1;
/// NSFEAT bit 4: NPWG, NPWA, NPDG, NPDA and NOWS are valid.
pub const NSFEAT_OPTIMAL: u8 = 1 << 4;
/// NMIC bit 0: the namespace may be attached to several controllers.
pub const NMIC_SHARED: u8 = 1 << 0;
/// DLFEAT bits 2:0 = 001b: deallocated blocks read as zeroes.
pub const DLFEAT_READS_ZEROES: u8 = 0b001;
/// DLFEAT bit 3: Write Zeroes may deallocate.
pub const DLFEAT_WRITE_ZEROES_DEALLOCATES: u8 = 1 << 3;
/// NSATTR bit 0: the namespace is write protected.
pub const NSATTR_WRITE_PROTECTED: u8 = 1 << 0;
/// RESCAP bit 0: reservations outlive the power, if a host wants that (PTPLS).
pub const RESCAP_PERSIST: u8 = 1 << 0;
/// RESCAP bits 6:1: all six types; bit 7: Ignore Existing Key as from version 1.3 on.
pub const RESCAP_TYPES: u8 = 0xFE;
/// NSTAT bit 0: the namespace is ready.
pub const NSTAT_READY: u8 = 1 << 0;

/// Identify Controller of the NVM command set (CNS 06h, CSI 0), 4096 bytes: limits that MDTS does not set.
///
/// Source: NVM Command Set Specification 1.x, "Identify Controller Data Structure, NVM Command Set Specific".
#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
pub struct IdentifyNvmController {
    /// VSL: largest Verify as log2 of pages of 4096 bytes; zero is unlimited.
    pub verify_limit: u8,
    /// WZSL: largest Write Zeroes, likewise.
    pub write_zeroes_limit: u8,
    /// WUSL: largest Write Uncorrectable, likewise.
    pub write_uncorrectable_limit: u8,
    /// DMRL: most ranges of one Dataset Management; zero is no limit.
    pub dataset_ranges: u8,
    /// DMRSL: most blocks of one range; zero is no limit.
    pub dataset_range_blocks: U32,
    /// DMSL: most blocks of one command; zero is no limit.
    pub dataset_blocks: U64,
    reserved: [u8; 4080],
}
const _: () = assert!(
    size_of::<IdentifyNvmController>() == IDENTIFY_BYTES
        && offset_of!(IdentifyNvmController, write_zeroes_limit) == 1
        && offset_of!(IdentifyNvmController, dataset_ranges) == 3
        && offset_of!(IdentifyNvmController, dataset_range_blocks) == 4
        && offset_of!(IdentifyNvmController, dataset_blocks) == 8
);

/// Identify Namespace, independent of the command set (CNS 08h), 4096 bytes.
///
/// Source: NVM Express Base Specification 2.x, "I/O Command Set Independent Identify Namespace Data Structure".
#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
pub struct IndependentNamespace {
    /// NSFEAT.
    pub features: u8,
    /// NMIC.
    pub sharing: u8,
    /// RESCAP.
    pub reservations: u8,
    /// FPI.
    pub format_progress: u8,
    /// ANAGRPID.
    pub ana_group: U32,
    /// NSATTR.
    pub attributes: u8,
    reserved_9: u8,
    /// NVMSETID.
    pub nvm_set: U16,
    /// ENDGID.
    pub endurance_group: U16,
    /// NSTAT: bit 0, ready.
    pub status: u8,
    reserved_15: [u8; 4081],
}
const _: () = assert!(
    size_of::<IndependentNamespace>() == IDENTIFY_BYTES
        && offset_of!(IndependentNamespace, sharing) == 1
        && offset_of!(IndependentNamespace, ana_group) == 4
        && offset_of!(IndependentNamespace, attributes) == 8
        && offset_of!(IndependentNamespace, nvm_set) == 10
        && offset_of!(IndependentNamespace, endurance_group) == 12
        && offset_of!(IndependentNamespace, status) == 14
);

/// A list of namespace ids, ascending, ended by zero when it is not full (CNS 02h and 07h).
#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
pub struct NamespaceList {
    /// The ids.
    pub ids: [U32; LIST_ENTRIES],
}
const _: () = assert!(size_of::<NamespaceList>() == IDENTIFY_BYTES);

impl NamespaceList {
    /// The ids up to the first zero.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.ids.iter().map(|id| id.get()).take_while(|id| *id != 0)
    }
}

/// The supported combinations of I/O command sets (CNS 1Ch): bit n of a vector is the command set with CSI n.
#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
pub struct CommandSetVectors {
    /// The vectors; the first zero ends them.
    pub vectors: [U64; 512],
}
const _: () = assert!(size_of::<CommandSetVectors>() == IDENTIFY_BYTES);

/// One identifier of a namespace, as the descriptor list (CNS 03h) holds it.
///
/// Source: NVM Express Base Specification 2.x, "Namespace Identification Descriptor".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Descriptor {
    /// IEEE Extended Unique Identifier.
    Eui64([u8; 8]),
    /// Namespace Globally Unique Identifier.
    Nguid([u8; 16]),
    /// Namespace UUID.
    Uuid([u8; 16]),
    /// Command Set Identifier.
    Csi(u8),
}

const NIDT_EUI64: u8 = 1;
const NIDT_NGUID: u8 = 2;
const NIDT_UUID: u8 = 3;
const NIDT_CSI: u8 = 4;
const DESCRIPTOR_HEADER_BYTES: usize = 4;

impl Descriptor {
    /// Writes the descriptor at the start of `page` and returns the rest; all of `page` when it does not fit.
    #[must_use]
    pub fn write<'p>(&self, page: &'p mut [u8]) -> &'p mut [u8] {
        let (kind, id): (u8, &[u8]) = match self {
            Self::Eui64(id) => (NIDT_EUI64, id),
            Self::Nguid(id) => (NIDT_NGUID, id),
            Self::Uuid(id) => (NIDT_UUID, id),
            Self::Csi(id) => (NIDT_CSI, core::slice::from_ref(id)),
        };
        if page.len() < DESCRIPTOR_HEADER_BYTES + id.len() {
            return page;
        }
        let (header, rest) = page.split_at_mut(DESCRIPTOR_HEADER_BYTES);
        let (body, rest) = rest.split_at_mut(id.len());
        header.copy_from_slice(&[kind, u8::try_from(id.len()).unwrap_or(0), 0, 0]);
        body.copy_from_slice(id);
        rest
    }
}

/// Reads a descriptor list; types that we do not know are skipped, a type of zero ends it.
#[derive(Clone, Debug)]
pub struct Descriptors<'a> {
    reader: Reader<'a>,
}

impl<'a> Descriptors<'a> {
    /// The descriptors in `page`.
    #[must_use]
    pub const fn new(page: &'a [u8]) -> Self {
        Self {
            reader: Reader::new(page),
        }
    }

    fn read(&mut self) -> Result<Option<Descriptor>, Truncated> {
        while self.reader.remaining() >= DESCRIPTOR_HEADER_BYTES {
            let [kind, id_bytes, ..] = self.reader.array::<DESCRIPTOR_HEADER_BYTES>()?;
            match (kind, id_bytes) {
                (_, 0) => return Ok(None),
                (NIDT_EUI64, 8) => return Ok(Some(Descriptor::Eui64(self.reader.array()?))),
                (NIDT_NGUID, 16) => return Ok(Some(Descriptor::Nguid(self.reader.array()?))),
                (NIDT_UUID, 16) => return Ok(Some(Descriptor::Uuid(self.reader.array()?))),
                (NIDT_CSI, 1) => return Ok(Some(Descriptor::Csi(self.reader.u8()?))),
                (_, other) => {
                    self.reader.take(usize::from(other))?;
                }
            }
        }
        Ok(None)
    }
}

impl Iterator for Descriptors<'_> {
    type Item = Result<Descriptor, Truncated>;

    fn next(&mut self) -> Option<Self::Item> {
        self.read().transpose()
    }
}

/// Writes `text` into a fixed ASCII field: cut at its end, padded with spaces, and anything that is not printable
/// ASCII replaced by a question mark.
pub fn fill_ascii(field: &mut [u8], text: &str) {
    field.fill(b' ');
    for (to, from) in field.iter_mut().zip(text.bytes()) {
        *to = if (0x20..0x7F).contains(&from) {
            from
        } else {
            b'?'
        };
    }
}

/// Reads a fixed ASCII field: without the padding at its end, and nothing when it is not printable ASCII.
#[must_use]
pub fn ascii(field: &[u8]) -> &str {
    let end = field
        .iter()
        .rposition(|byte| !matches!(byte, b' ' | 0))
        .map_or(0, |last| last + 1);
    let text = &field[..end];
    if text.iter().any(|byte| !(0x20..0x7F).contains(byte)) {
        return "";
    }
    core::str::from_utf8(text).unwrap_or_default()
}
