//! Identify data structures of a namespace, and the bits of their fields.

use zerocopy::little_endian::{U16, U32, U64};

use super::IDENTIFY_BYTES;

wire! {
    /// One LBA format.
    ///
    /// Source: NVM Command Set Specification 1.x, "LBA Format Data Structure".
    pub struct LbaFormat: 4 bytes {
        /// MS: metadata bytes per block.
        pub metadata_bytes: U16,
        /// LBADS: log2 of the block size in bytes.
        pub data_shift: u8,
        /// RP: relative performance.
        pub performance: u8,
    }

    /// Identify Namespace (CNS 00h), 4096 bytes.
    ///
    /// Source: NVM Command Set Specification 1.x, "Identify Namespace Data Structure, NVM Command
    /// Set".
    pub struct IdentifyNamespace: IDENTIFY_BYTES bytes {
        /// NSZE: size in blocks.
        pub size: U64,
        /// NCAP: capacity in blocks. Zero for an inactive namespace.
        pub capacity @ 8: U64,
        /// NUSE: blocks in use.
        pub utilization @ 16: U64,
        /// NSFEAT.
        pub features @ 24: u8,
        /// NLBAF: LBA formats, zero-based.
        pub formats @ 25: u8,
        /// FLBAS: index of the format in use.
        pub format @ 26: u8,
        /// MC.
        pub metadata_capabilities @ 27: u8,
        /// DPC.
        pub protection_capabilities @ 28: u8,
        /// DPS.
        pub protection @ 29: u8,
        /// NMIC: bit 0, shared between controllers.
        pub sharing @ 30: u8,
        /// RESCAP.
        pub reservations @ 31: u8,
        /// FPI.
        pub format_progress @ 32: u8,
        /// DLFEAT: content of deallocated blocks (bits 2:0), deallocation by Write Zeroes (bit 3).
        pub deallocation @ 33: u8,
        /// NAWUN, zero-based.
        pub atomic_write_unit @ 34: U16,
        /// NAWUPF, zero-based.
        pub atomic_write_unit_power_fail @ 36: U16,
        /// NACWU, zero-based.
        pub atomic_compare_and_write_unit @ 38: U16,
        /// NABSN.
        pub atomic_boundary @ 40: U16,
        /// NABO.
        pub atomic_boundary_offset: U16,
        /// NABSPF.
        pub atomic_boundary_power_fail: U16,
        /// NOIOB: commands should not cross a multiple of this number of blocks. Zero: no
        /// preference.
        pub optimal_io_boundary @ 46: U16,
        /// NVMCAP.
        pub nvm_capacity: [u8; 16],
        /// NPWG: preferred write granularity in blocks, zero-based.
        pub write_granularity @ 64: U16,
        /// NPWA: preferred write alignment in blocks, zero-based.
        pub write_alignment @ 66: U16,
        /// NPDG: preferred deallocate granularity in blocks, zero-based.
        pub deallocate_granularity @ 68: U16,
        /// NPDA: preferred deallocate alignment in blocks, zero-based.
        pub deallocate_alignment @ 70: U16,
        /// NOWS: optimal write size in blocks, zero-based.
        pub optimal_write_size @ 72: U16,
        /// MSSRL, MCL, MSRC: limits of Copy.
        pub copy_limits: [u8; 7],
        reserved_81: [u8; 11],
        /// ANAGRPID.
        pub ana_group @ 92: U32,
        reserved_96: [u8; 3],
        /// NSATTR: bit 0, write protected.
        pub attributes @ 99: u8,
        /// NVMSETID.
        pub nvm_set @ 100: U16,
        /// ENDGID.
        pub endurance_group @ 102: U16,
        /// NGUID: big-endian.
        pub nguid @ 104: [u8; 16],
        /// EUI64: big-endian.
        pub eui64 @ 120: [u8; 8],
        /// LBAF: the LBA formats.
        pub lba_formats @ 128: [LbaFormat; 64],
        /// Vendor specific.
        pub vendor: [u8; 3712],
    }
}

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
/// RESCAP bit 0: a host may request that reservations persist through power loss (PTPLS).
pub const RESCAP_PERSIST: u8 = 1 << 0;
/// RESCAP bits 6:1: all six types. Bit 7: Ignore Existing Key works as in version 1.3 and later.
pub const RESCAP_TYPES: u8 = 0xFE;
/// NSTAT bit 0: the namespace is ready.
pub const NSTAT_READY: u8 = 1 << 0;

wire! {
    /// Identify Namespace, independent of the command set (CNS 08h), 4096 bytes.
    ///
    /// Source: NVM Express Base Specification 2.x, "I/O Command Set Independent Identify Namespace
    /// Data Structure".
    pub struct IndependentNamespace: IDENTIFY_BYTES bytes {
        /// NSFEAT.
        pub features: u8,
        /// NMIC.
        pub sharing @ 1: u8,
        /// RESCAP.
        pub reservations: u8,
        /// FPI.
        pub format_progress: u8,
        /// ANAGRPID.
        pub ana_group @ 4: U32,
        /// NSATTR.
        pub attributes @ 8: u8,
        reserved_9: u8,
        /// NVMSETID.
        pub nvm_set @ 10: U16,
        /// ENDGID.
        pub endurance_group @ 12: U16,
        /// NSTAT: bit 0, ready.
        pub status @ 14: u8,
        reserved_15: [u8; 4081],
    }
}
