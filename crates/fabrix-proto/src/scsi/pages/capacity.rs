//! The answers to READ CAPACITY(10) and (16), GET LBA STATUS, READ DEFECT DATA, and REPORT LUNS.
//!
//! Source: SBC-3, "READ CAPACITY" to "GET LBA STATUS"; SPC-4, "REPORT LUNS parameter data".

use super::{Deallocate, Disk};
use crate::scsi::data_in::DataIn;

/// Writes the answer to READ CAPACITY(10): the last LBA, or FFFFFFFFh if the initiator has to send
/// READ CAPACITY(16).
pub fn write_10(disk: &Disk, out: &mut DataIn<'_>) {
    let last = disk.blocks.saturating_sub(1);
    out.u32(u32::try_from(last).unwrap_or(u32::MAX));
    out.u32(disk.block_bytes);
}

/// Writes the answer to READ CAPACITY(16), without protection information. LBPME and LBPRZ are
/// consistent with the Logical Block Provisioning page.
pub fn write_16(disk: &Disk, out: &mut DataIn<'_>) {
    out.u64(disk.blocks.saturating_sub(1));
    out.u32(disk.block_bytes);
    out.u8(0); // P_TYPE, PROT_EN
    out.u8(disk.physical_exponent());
    out.u8(match disk.deallocate {
        Deallocate::No => 0,
        Deallocate::Undefined => LBPME,
        Deallocate::Zeroes => LBPME | LBPRZ,
    });
    out.zeroes(17);
}

/// A run of consecutive blocks with the same provisioning status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LbaRun {
    /// Number of blocks.
    pub blocks: u32,
    /// True for deallocated blocks. False for mapped blocks, and if the status is unknown.
    pub deallocated: bool,
}

/// Writes an LBA status descriptor for each run. The first run begins at `lba`.
pub fn write_lba_status(lba: u64, runs: impl Iterator<Item = LbaRun>, out: &mut DataIn<'_>) {
    out.u32(0);
    out.u32(0);
    let mut at = lba;
    for run in runs {
        out.u64(at);
        out.u32(run.blocks);
        out.put(&[u8::from(run.deallocated), 0, 0, 0]); // PROVISIONING STATUS 0h or 1h
        at += u64::from(run.blocks);
    }
    out.close_u32(0);
}

/// Number of LBA status descriptors for an allocation length of `allocation` bytes: at least 1, at
/// most `LBA_RUNS_MAX`.
#[must_use]
pub fn lba_runs(allocation: u32) -> usize {
    let most = allocation.saturating_sub(LBA_STATUS_HEADER_BYTES) / LBA_RUN_BYTES;
    usize::try_from(most.clamp(1, LBA_RUNS_MAX)).unwrap_or(1)
}

/// Writes empty defect lists in the requested format. `lists` is the byte with format and list bits
/// of the CDB.
pub fn write_defects(long: bool, lists: u8, out: &mut DataIn<'_>) {
    out.put(&[0, lists]);
    out.zeroes(if long { 6 } else { 2 });
}

/// Writes the answer to REPORT LUNS. `luns` are in ascending order.
pub fn write_luns(luns: &[u16], out: &mut DataIn<'_>) {
    out.u32(u32::try_from(luns.len() * 8).unwrap_or(u32::MAX));
    out.u32(0);
    for lun in luns {
        out.put(&lun_bytes(*lun));
    }
}

/// Encodes a logical unit number: peripheral device addressing below 256, flat space addressing
/// from 256 on.
///
/// Source: SAM-5, "Logical unit number".
#[must_use]
pub const fn lun_bytes(lun: u16) -> [u8; 8] {
    let [high, low] = if lun < 256 {
        [0, lun.to_be_bytes()[1]]
    } else {
        (lun & LUN_MAX | FLAT).to_be_bytes()
    };
    [high, low, 0, 0, 0, 0, 0, 0]
}

/// Decodes a logical unit number. `None` for addressing methods and levels that the target does not
/// have.
#[must_use]
pub fn parse_lun(bytes: [u8; 8]) -> Option<u16> {
    let [high, low, rest @ ..] = bytes;
    let number = u16::from_be_bytes([high, low]);
    match (number & ADDRESS_METHOD, rest) {
        (0, [0, 0, 0, 0, 0, 0]) if high == 0 => Some(number),
        (FLAT, [0, 0, 0, 0, 0, 0]) => Some(number & LUN_MAX),
        _ => None,
    }
}

/// Highest logical unit number: flat space addressing has 14 bits.
pub const LUN_MAX: u16 = 0x3FFF;
const LBA_STATUS_HEADER_BYTES: u32 = 8;
const LBA_RUN_BYTES: u32 = 16;
/// Maximum number of descriptors of one answer. The limit bounds the work of one GET LBA STATUS.
const LBA_RUNS_MAX: u32 = 256;
const ADDRESS_METHOD: u16 = 0xC000;
const FLAT: u16 = 0x4000;
const LBPME: u8 = 0x80;
const LBPRZ: u8 = 0x40;
