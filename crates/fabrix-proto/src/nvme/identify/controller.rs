//! Identify data structures of a controller, and the bits of their fields.

use zerocopy::little_endian::{U16, U32, U64};

use super::IDENTIFY_BYTES;

wire! {
    /// Identify Controller (CNS 01h), 4096 bytes.
    ///
    /// Source: NVM Express Base Specification 2.x, "Identify Controller Data Structure, I/O Command
    /// Set Independent".
    pub struct IdentifyController: IDENTIFY_BYTES bytes {
        /// VID: PCI vendor. Zero for a controller without PCI.
        pub vendor_id: U16,
        /// SSVID.
        pub subsystem_vendor_id: U16,
        /// SN: ASCII, padded with spaces.
        pub serial @ 4: [u8; 20],
        /// MN: ASCII, padded with spaces.
        pub model @ 24: [u8; 40],
        /// FR: ASCII, padded with spaces.
        pub firmware @ 64: [u8; 8],
        /// RAB: recommended arbitration burst, log2.
        pub arbitration_burst @ 72: u8,
        /// IEEE OUI.
        pub ieee @ 73: [u8; 3],
        /// CMIC: bit 1, the subsystem may have several controllers; bit 3, [`CMIC_ANA`].
        pub multipath @ 76: u8,
        /// MDTS: maximum transfer as log2 of pages of 4096 bytes. Zero: unlimited.
        pub max_transfer @ 77: u8,
        /// CNTLID.
        pub controller_id @ 78: U16,
        /// VER.
        pub version @ 80: U32,
        /// RTD3R.
        pub resume_us @ 84: U32,
        /// RTD3E.
        pub entry_us @ 88: U32,
        /// OAES: optional asynchronous events supported.
        pub async_events @ 92: U32,
        /// CTRATT: controller attributes, [`CTRATT_TRAFFIC_KEEP_ALIVE`] among them.
        pub attributes @ 96: U32,
        reserved_100: [u8; 11],
        /// CNTRLTYPE: 1 I/O, 2 discovery, 3 administrative.
        pub controller_type @ 111: u8,
        /// FGUID.
        pub fru_guid: [u8; 16],
        /// CRDT1 to CRDT3: command retry delays in units of 100 ms.
        pub retry_delays @ 128: [U16; 3],
        reserved_134: u8,
        /// CIU: [`uniquifier`](crate::nvme::instance::ControllerInstance::uniquifier).
        pub uniquifier @ 135: u8,
        /// CIRN: [`random`](crate::nvme::instance::ControllerInstance::random).
        pub random @ 136: U64,
        reserved_144: [u8; 112],
        /// OACS: optional admin commands.
        pub admin_commands @ 256: U16,
        /// ACL: abort command limit, zero-based.
        pub abort_limit @ 258: u8,
        /// AERL: asynchronous event request limit, zero-based.
        pub async_event_limit @ 259: u8,
        /// FRMW: firmware updates.
        pub firmware_updates @ 260: u8,
        /// LPA: log page attributes.
        pub log_attributes @ 261: u8,
        /// ELPE: error log page entries, zero-based.
        pub error_log_entries @ 262: u8,
        /// NPSS: power states, zero-based.
        pub power_states @ 263: u8,
        reserved_264: [u8; 56],
        /// KAS: granularity of the keep-alive timer in units of 100 ms. Zero: no keep-alive.
        pub keep_alive_granularity @ 320: U16,
        reserved_322: [u8; 20],
        /// ANATT.
        pub ana_transition_s @ 342: u8,
        /// ANACAP.
        pub ana_capabilities @ 343: u8,
        /// ANAGRPMAX.
        pub ana_group_max @ 344: U32,
        /// NANAGRPID.
        pub ana_groups @ 348: U32,
        reserved_352: [u8; 34],
        /// CQT: longest time in milliseconds for which commands of a lost association may still
        /// change the medium.
        pub quiesce_ms @ 386: U16,
        reserved_388: [u8; 124],
        /// SQES: submission entry sizes as log2, required in bits 3:0, maximum in bits 7:4.
        pub submission_entry_sizes @ 512: u8,
        /// CQES: completion entry sizes as log2, required in bits 3:0, maximum in bits 7:4.
        pub completion_entry_sizes @ 513: u8,
        /// MAXCMD: recommended maximum of outstanding commands of one queue.
        pub max_commands @ 514: U16,
        /// NN: highest namespace id that can ever be valid.
        pub namespaces @ 516: U32,
        /// ONCS: optional commands of the NVM command set.
        pub nvm_commands @ 520: U16,
        /// FUSES: bit 0, fused Compare and Write.
        pub fused_operations @ 522: U16,
        /// FNA.
        pub format_attributes @ 524: u8,
        /// VWC: bit 0, a volatile write cache; bits 2:1, Flush to all namespaces.
        pub volatile_write_cache @ 525: u8,
        /// AWUN, zero-based.
        pub atomic_write_unit @ 526: U16,
        /// AWUPF, zero-based.
        pub atomic_write_unit_power_fail @ 528: U16,
        /// ICSVSCC.
        pub vendor_command_configuration: u8,
        /// NWPC.
        pub write_protection @ 531: u8,
        /// ACWU, zero-based.
        pub atomic_compare_and_write_unit @ 532: U16,
        /// CDFS.
        pub copy_formats: U16,
        /// SGLS: SGL support.
        pub sgl_support @ 536: U32,
        /// MNAN: maximum number of namespaces at once.
        pub max_allowed_namespaces @ 540: U32,
        reserved_544: [u8; 224],
        /// SUBNQN: padded with zeroes.
        pub subsystem_nqn @ 768: [u8; 256],
        reserved_1024: [u8; 768],
        /// IOCCSZ: maximum I/O command capsule in units of 16 bytes.
        pub command_capsule_size @ 1792: U32,
        /// IORCSZ: maximum I/O response capsule in units of 16 bytes.
        pub response_capsule_size @ 1796: U32,
        /// ICDOFF: start of in-capsule data in units of 16 bytes.
        pub in_capsule_offset @ 1800: U16,
        /// FCATT: bit 0, static controllers only.
        pub fabrics_attributes @ 1802: u8,
        /// MSDBD: maximum number of SGL data block descriptors in a capsule.
        pub max_sgl_descriptors @ 1803: u8,
        /// OFCS: bit 0, Disconnect is supported.
        pub fabrics_commands @ 1804: U16,
        /// DCTYPE.
        pub discovery_type @ 1806: u8,
        /// CCRL: resets of other controllers at the same time. Zero: not supported.
        pub cross_controller_resets @ 1807: u8,
        reserved_1808: [u8; 240],
        /// Power state descriptors.
        pub power_state_descriptors @ 2048: [[u8; 32]; 32],
        /// Vendor specific.
        pub vendor @ 3072: [u8; 1024],
    }
}

/// CNTRLTYPE of an I/O controller.
pub const CONTROLLER_TYPE_IO: u8 = 1;
/// CNTRLTYPE of a discovery controller.
pub const CONTROLLER_TYPE_DISCOVERY: u8 = 2;

/// CMIC bit 1: the subsystem may have several controllers.
pub const CMIC_MULTI_CONTROLLER: u8 = 1 << 1;
/// CMIC bit 3: asymmetric namespace access is reported.
pub const CMIC_ANA: u8 = 1 << 3;
/// ANACAP bits 4:0: all five states may be reported.
pub const ANACAP_ALL_STATES: u8 = 0x1F;
/// ANACAP bit 6: ANAGRPID does not change while a namespace is attached.
pub const ANACAP_FIXED_GROUPS: u8 = 1 << 6;

/// OAES and asynchronous event configuration bit 8: namespace attribute notices.
pub const EVENT_NAMESPACE_ATTRIBUTE: u32 = 1 << 8;
/// OAES and asynchronous event configuration bit 11: Asymmetric Namespace Access change notices.
pub const EVENT_ANA: u32 = 1 << 11;
/// OAES and asynchronous event configuration bit 31: discovery log page change notices.
pub const EVENT_DISCOVERY_LOG: u32 = 1 << 31;

/// CTRATT bit 6 (TBKAS): every command restarts the keep-alive timer.
pub const CTRATT_TRAFFIC_KEEP_ALIVE: u32 = 1 << 6;

/// LPA bit 1: the Commands Supported and Effects log page.
pub const LPA_EFFECTS: u8 = 1 << 1;
/// LPA bit 2: extended data (32-bit lengths and log page offsets).
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

/// VWC bit 0: a volatile write cache exists.
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

wire! {
    /// Identify Controller of the NVM command set (CNS 06h, CSI 0), 4096 bytes: limits of commands
    /// that MDTS does not limit.
    ///
    /// Source: NVM Command Set Specification 1.x, "Identify Controller Data Structure, NVM Command
    /// Set Specific".
    pub struct IdentifyNvmController: IDENTIFY_BYTES bytes {
        /// VSL: maximum Verify as log2 of pages of 4096 bytes. Zero: unlimited.
        pub verify_limit: u8,
        /// WZSL: maximum Write Zeroes, in the same unit.
        pub write_zeroes_limit @ 1: u8,
        /// WUSL: maximum Write Uncorrectable, in the same unit.
        pub write_uncorrectable_limit: u8,
        /// DMRL: maximum number of ranges of one Dataset Management. Zero: no limit.
        pub dataset_ranges @ 3: u8,
        /// DMRSL: maximum number of blocks of one range. Zero: no limit.
        pub dataset_range_blocks @ 4: U32,
        /// DMSL: maximum number of blocks of one command. Zero: no limit.
        pub dataset_blocks @ 8: U64,
        reserved: [u8; 4080],
    }
}
