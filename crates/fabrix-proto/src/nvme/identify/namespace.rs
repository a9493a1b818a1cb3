//! Identify data structures of a namespace, and the bits of their fields.

use core::mem::offset_of;

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::IDENTIFY_BYTES;

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
    /// NCAP: capacity in blocks. Zero: the namespace is gone.
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
    /// DLFEAT: what reads of deallocated blocks return (bits 2:0), deallocation by Write Zeroes
    /// (bit 3).
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
    /// NOIOB: commands should not cross a multiple of this number of blocks. Zero: no preference.
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
/// RESCAP bit 0: a host may request that reservations persist through power loss (PTPLS).
pub const RESCAP_PERSIST: u8 = 1 << 0;
/// RESCAP bits 6:1: all six types. Bit 7: Ignore Existing Key works as in version 1.3 and later.
pub const RESCAP_TYPES: u8 = 0xFE;
/// NSTAT bit 0: the namespace is ready.
pub const NSTAT_READY: u8 = 1 << 0;

/// Identify Namespace, independent of the command set (CNS 08h), 4096 bytes.
///
/// Source: NVM Express Base Specification 2.x, "I/O Command Set Independent Identify Namespace Data
/// Structure".
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
