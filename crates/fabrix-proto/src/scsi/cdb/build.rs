//! Builds the CDBs that our initiator sends. `parse` is the opposite direction.
//!
//! Source: SPC-4 and SBC-3, the table of each command.

use super::Extent;
use crate::scsi::spec::{CDB_BYTES_MAX, Opcode, SA_READ_CAPACITY_16, SA_REPORT_TARGET_PORT_GROUPS};

/// A CDB, padded with zeroes to 16 bytes, the length that transports carry.
pub type Cdb = [u8; CDB_BYTES_MAX];

/// TEST UNIT READY.
#[must_use]
pub fn test_unit_ready() -> Cdb {
    begin(Opcode::TEST_UNIT_READY)
}

/// INQUIRY: the standard data for `None`, otherwise a VPD page. `allocation` is in bytes.
#[must_use]
pub fn inquiry(page: Option<u8>, allocation: u16) -> Cdb {
    let mut cdb = begin(Opcode::INQUIRY);
    if let Some(page) = page {
        (cdb[1], cdb[2]) = (EVPD, page);
    }
    cdb[3..5].copy_from_slice(&allocation.to_be_bytes());
    cdb
}

/// REPORT LUNS of all logical units. `allocation` is in bytes.
#[must_use]
pub fn report_luns(allocation: u32) -> Cdb {
    let mut cdb = begin(Opcode::REPORT_LUNS);
    cdb[6..10].copy_from_slice(&allocation.to_be_bytes());
    cdb
}

/// READ CAPACITY(16). `allocation` is in bytes.
#[must_use]
pub fn read_capacity(allocation: u32) -> Cdb {
    let mut cdb = begin(Opcode::SERVICE_ACTION_IN_16);
    cdb[1] = SA_READ_CAPACITY_16;
    cdb[10..14].copy_from_slice(&allocation.to_be_bytes());
    cdb
}

/// REPORT TARGET PORT GROUPS, without the extended header. `allocation` is in bytes.
#[must_use]
pub fn report_target_port_groups(allocation: u32) -> Cdb {
    let mut cdb = begin(Opcode::MAINTENANCE_IN);
    cdb[1] = SA_REPORT_TARGET_PORT_GROUPS;
    cdb[6..10].copy_from_slice(&allocation.to_be_bytes());
    cdb
}

/// MODE SENSE(6) of the current values of one page, without block descriptors. `allocation` is in
/// bytes.
#[must_use]
pub fn mode_sense(page: u8, allocation: u8) -> Cdb {
    let mut cdb = begin(Opcode::MODE_SENSE_6);
    (cdb[1], cdb[2], cdb[4]) = (DBD, page, allocation);
    cdb
}

/// READ(16).
#[must_use]
pub fn read(extent: Extent) -> Cdb {
    long(Opcode::READ_16, 0, extent)
}

/// WRITE(16). With `fua` the answer follows when the data is on the medium.
#[must_use]
pub fn write(extent: Extent, fua: bool) -> Cdb {
    long(Opcode::WRITE_16, if fua { FUA } else { 0 }, extent)
}

/// WRITE SAME(16) with one block of data. With `unmap` the target may deallocate the blocks.
#[must_use]
pub fn write_same(extent: Extent, unmap: bool) -> Cdb {
    long(Opcode::WRITE_SAME_16, if unmap { UNMAP } else { 0 }, extent)
}

/// COMPARE AND WRITE. `None` for more than 255 blocks, because the length field has 8 bits.
#[must_use]
pub fn compare_and_write(extent: Extent, fua: bool) -> Option<Cdb> {
    let blocks = u8::try_from(extent.blocks).ok()?;
    let first = Extent {
        blocks: 0,
        ..extent
    };
    let flags = if fua { FUA } else { 0 };
    let mut cdb = long(Opcode::COMPARE_AND_WRITE, flags, first);
    cdb[13] = blocks;
    Some(cdb)
}

/// SYNCHRONIZE CACHE(10) of the whole disk. The answer follows when the flush is done.
#[must_use]
pub fn synchronize_cache() -> Cdb {
    begin(Opcode::SYNCHRONIZE_CACHE_10)
}

/// UNMAP. The parameter list has one descriptor, see [`unmap_list`].
#[must_use]
pub fn unmap() -> Cdb {
    let mut cdb = begin(Opcode::UNMAP);
    cdb[8] = UNMAP_LIST_BYTES;
    cdb
}

/// Parameter list for [`unmap`].
#[must_use]
pub fn unmap_list(extent: Extent) -> [u8; 24] {
    let mut list = [0; 24];
    list[1] = UNMAP_LIST_BYTES - 2; // UNMAP DATA LENGTH
    list[3] = UNMAP_LIST_BYTES - 8; // UNMAP BLOCK DESCRIPTOR DATA LENGTH
    list[8..16].copy_from_slice(&extent.lba.to_be_bytes());
    list[16..20].copy_from_slice(&extent.blocks.to_be_bytes());
    list
}

fn begin(opcode: Opcode) -> Cdb {
    let mut cdb = [0; CDB_BYTES_MAX];
    cdb[0] = opcode.0;
    cdb
}

fn long(opcode: Opcode, flags: u8, extent: Extent) -> Cdb {
    let mut cdb = begin(opcode);
    cdb[1] = flags;
    cdb[2..10].copy_from_slice(&extent.lba.to_be_bytes());
    cdb[10..14].copy_from_slice(&extent.blocks.to_be_bytes());
    cdb
}

/// Length in bytes of an UNMAP parameter list with one descriptor.
pub const UNMAP_LIST_BYTES: u8 = 24;
const EVPD: u8 = 0x01;
const DBD: u8 = 0x08;
const FUA: u8 = 0x08;
const UNMAP: u8 = 0x08;

#[cfg(test)]
mod tests {
    use super::super::{Command, Features, ModeSense, PageControl, SelectReport};
    use super::*;

    fn check(cdb: Cdb, expected: Command) {
        let features = Features {
            unmap: true,
            atomic: false,
            compare_and_write: true,
            copy: false,
        };
        let parsed = Command::parse(&cdb, features).expect("our own CDB");
        assert_eq!(parsed.0, expected);
    }

    #[test]
    fn what_is_built_is_what_is_parsed() {
        let extent = Extent {
            lba: 0x0102_0304_0506_0708,
            blocks: 200,
        };
        check(test_unit_ready(), Command::TestUnitReady);
        let (page, allocation) = (Some(0x83), 0x1234);
        check(inquiry(page, 0x1234), Command::Inquiry { page, allocation });
        let select = SelectReport::Units;
        check(
            report_luns(4096),
            Command::ReportLuns {
                select,
                allocation: 4096,
            },
        );
        check(
            read_capacity(32),
            Command::ReadCapacity16 { allocation: 32 },
        );
        check(
            report_target_port_groups(4096),
            Command::ReportTargetPortGroups {
                extended: false,
                allocation: 4096,
            },
        );
        let mode = ModeSense {
            long: false,
            no_block_descriptor: true,
            long_lba: false,
            control: PageControl::Current,
            page: 8,
            subpage: 0,
            allocation: 64,
        };
        check(mode_sense(8, 64), Command::ModeSense(mode));
        check(read(extent), Command::Read { extent, fua: false });
        for fua in [false, true] {
            check(write(extent, fua), Command::Write { extent, fua });
            let cdb = compare_and_write(extent, fua).expect("few blocks");
            check(cdb, Command::CompareAndWrite { extent, fua });
        }
        let same = |unmap| Command::WriteSame {
            extent,
            unmap,
            no_data: false,
        };
        check(write_same(extent, true), same(true));
        check(write_same(extent, false), same(false));
        check(unmap(), Command::Unmap { bytes: 24 });
        let extent = Extent { lba: 0, blocks: 0 };
        check(synchronize_cache(), Command::SynchronizeCache { extent });
    }

    #[test]
    fn more_blocks_than_a_byte_counts_cannot_be_compared() {
        assert_eq!(
            compare_and_write(
                Extent {
                    lba: 0,
                    blocks: 256
                },
                false
            ),
            None
        );
    }
}
