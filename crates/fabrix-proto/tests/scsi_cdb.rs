//! CDBs byte for byte, and what is refused about them.

#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot go on says so by panicking"
)]

mod scsi_common;

use fabrix_proto::scsi::additional::AdditionalSense;
use fabrix_proto::scsi::cdb::table::supported;
use fabrix_proto::scsi::cdb::{
    ByteCheck, Command, Direction, Extent, Features, ModeSense, PageControl, Reporting, ReserveOut,
    SelectReport, Transfer,
};
use fabrix_proto::scsi::sense::{FieldPointer, Sense};
use scsi_common::{Numbers, cdb10, cdb16};

const ALL: Features = Features {
    unmap: true,
    atomic: true,
    compare_and_write: true,
    copy: true,
};
const NONE: Features = Features {
    unmap: false,
    atomic: false,
    compare_and_write: false,
    copy: false,
};

fn parse(cdb: &[u8]) -> Result<Command, Sense> {
    Command::parse(cdb, ALL).map(|(command, _)| command)
}

fn check(cdb: &[u8], expected: Command) {
    assert_eq!(parse(cdb), Ok(expected), "{cdb:02x?}");
}

fn extent(lba: u64, blocks: u32) -> Extent {
    Extent { lba, blocks }
}

#[test]
fn reads_and_writes_of_every_length() {
    let fua = false;
    let six = extent(0x1F_0203, 4);
    check(
        &[0x08, 0x1F, 2, 3, 4, 0],
        Command::Read { extent: six, fua },
    );
    check(
        &[0x0A, 0x1F, 2, 3, 4, 0],
        Command::Write { extent: six, fua },
    );
    let ten = extent(0x0102_0304, 0x0506);
    check(
        &cdb10(0x28, 0, 0x0102_0304, 0x0506),
        Command::Read { extent: ten, fua },
    );
    check(
        &cdb10(0x2A, 0x10, 0x0102_0304, 0x0506),
        Command::Write { extent: ten, fua },
    );
    let twelve = extent(0x0102_0304, 0x0506_0708);
    let cdb = [0xA8, 0, 1, 2, 3, 4, 5, 6, 7, 8, 0x1F, 0];
    check(
        &cdb,
        Command::Read {
            extent: twelve,
            fua,
        },
    );
    let sixteen = extent(0x0102_0304_0506_0708, 0x090A_0B0C);
    let cdb = cdb16(0x88, 0x08, 0x0102_0304_0506_0708, 0x090A_0B0C);
    check(
        &cdb,
        Command::Read {
            extent: sixteen,
            fua: true,
        },
    );
}

#[test]
fn a_transfer_length_of_zero_is_256_blocks_only_with_six_bytes() {
    let fua = false;
    check(
        &[0x08, 0, 0, 0, 0, 0],
        Command::Read {
            extent: extent(0, 256),
            fua,
        },
    );
    check(
        &cdb10(0x28, 0, 0, 0),
        Command::Read {
            extent: extent(0, 0),
            fua,
        },
    );
}

#[test]
fn fua_nv_is_obeyed_as_fua() {
    let extent = extent(0, 1);
    check(
        &cdb10(0x2A, 0x02, 0, 1),
        Command::Write { extent, fua: true },
    );
}

#[test]
fn the_commands_of_the_medium() {
    let extent = extent(7, 3);
    check(
        &cdb10(0x2F, 0x00, 7, 3),
        Command::Verify {
            extent,
            check: ByteCheck::Medium,
        },
    );
    check(
        &cdb16(0x8F, 0x02, 7, 3),
        Command::Verify {
            extent,
            check: ByteCheck::Data,
        },
    );
    check(
        &cdb16(0x8F, 0x06, 7, 3),
        Command::Verify {
            extent,
            check: ByteCheck::OneBlock,
        },
    );
    check(
        &cdb16(0x8E, 0x02, 7, 3),
        Command::WriteAndVerify {
            extent,
            compare: true,
        },
    );
    check(
        &cdb16(0x8B, 0x08, 7, 3),
        Command::OrWrite { extent, fua: true },
    );
    check(
        &cdb10(0x35, 0x02, 7, 3),
        Command::SynchronizeCache { extent },
    );
    check(&cdb16(0x90, 0x02, 7, 3), Command::PreFetch { extent });
    let same = |unmap, no_data| Command::WriteSame {
        extent,
        unmap,
        no_data,
    };
    check(&cdb10(0x41, 0x08, 7, 3), same(true, false));
    check(&cdb16(0x93, 0x09, 7, 3), same(true, true));
    let mut cdb = cdb16(0x89, 0, 7, 0);
    cdb[13] = 3;
    check(&cdb, Command::CompareAndWrite { extent, fua: false });
    let mut cdb = cdb16(0x9C, 0x08, 7, 0);
    cdb[13] = 3;
    check(&cdb, Command::WriteAtomic { extent, fua: true });
}

#[test]
fn the_primary_commands() {
    check(&[0x00, 0, 0, 0, 0, 0], Command::TestUnitReady);
    let inquiry = |page, allocation| Command::Inquiry { page, allocation };
    check(&[0x12, 0, 0, 1, 4, 0], inquiry(None, 260));
    check(&[0x12, 1, 0x83, 0, 255, 0], inquiry(Some(0x83), 255));
    let luns = |select| Command::ReportLuns {
        select,
        allocation: 512,
    };
    check(
        &[0xA0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0],
        luns(SelectReport::Units),
    );
    check(
        &[0xA0, 0, 0x11, 0, 0, 0, 0, 0, 2, 0, 0, 0],
        luns(SelectReport::Units),
    );
    check(
        &[0xA0, 0, 1, 0, 0, 0, 0, 0, 2, 0, 0, 0],
        luns(SelectReport::WellKnown),
    );
    let sense = ModeSense {
        long: true,
        no_block_descriptor: true,
        long_lba: true,
        control: PageControl::Changeable,
        page: 0x0A,
        subpage: 1,
        allocation: 0x0102,
    };
    check(
        &[0x5A, 0x18, 0x4A, 1, 0, 0, 0, 1, 2, 0],
        Command::ModeSense(sense),
    );
    let reserve = ReserveOut {
        action: 5,
        scope: 0,
        kind: 5,
        bytes: 24,
    };
    let cdb = [0x5F, 5, 0x05, 0, 0, 0, 0, 0, 24, 0];
    check(&cdb, Command::PersistentReserveOut(reserve));
    let codes = Command::ReportOperationCodes {
        timeouts: true,
        reporting: Reporting::Either,
        opcode: 0x9E,
        service_action: 0x10,
        allocation: 64,
    };
    check(&[0xA3, 0x0C, 0x83, 0x9E, 0, 0x10, 0, 0, 0, 64, 0, 0], codes);
}

#[test]
fn values_that_are_not_allowed_are_pointed_at() {
    let pointers: [(&[u8], u16, Option<u8>); 9] = [
        (&[0x12, 0, 0x83, 0, 255, 0], 2, None), // page without EVPD
        (&[0xA0, 0, 0x10, 0, 0, 0, 0, 0, 2, 0, 0, 0], 2, None),
        (&cdb10(0x2F, 0x04, 0, 1), 1, Some(2)),   // BYTCHK 10b
        (&[0x15, 0x00, 0, 0, 12, 0], 1, Some(4)), // PF
        (&[0x15, 0x11, 0, 0, 12, 0], 1, Some(0)), // SP
        (&[0xA3, 0x0C, 4, 0, 0, 0, 0, 0, 0, 64, 0, 0], 2, Some(2)),
        (&[0xA3, 0x4A, 0, 0, 0, 0, 0, 0, 0, 64, 0, 0], 1, Some(7)),
        (&[0x5E, 4, 0, 0, 0, 0, 0, 0, 64, 0], 1, Some(4)), // service action
        (&[0x28, 0, 0, 0, 0, 0, 0], 7, None),              // too short
    ];
    for (cdb, byte, bit) in pointers {
        assert_eq!(
            parse(cdb),
            Err(Sense::field_in_cdb(byte, bit)),
            "{cdb:02x?}"
        );
    }
}

#[test]
fn protection_is_refused_in_all_its_values() {
    for protect in 1..8u8 {
        let error = parse(&cdb10(0x28, protect << 5, 0, 1)).unwrap_err();
        assert_eq!(error.code, AdditionalSense::INVALID_FIELD_IN_CDB);
        assert_eq!(error.pointer.unwrap().byte, 1);
    }
}

#[test]
fn every_bit_that_no_page_reports_is_refused_with_a_pointer_to_it() {
    let mut refused = 0;
    for entry in supported(ALL) {
        let usage: Vec<u8> = entry.usage(ALL).collect();
        for (at, used) in usage.iter().enumerate().skip(1) {
            let action = at == 1 && entry.service_action.is_some();
            for bit in (0..8u8).filter(|bit| used >> bit & 1 == 0) {
                if action && bit < 5 {
                    continue;
                }
                let mut cdb = vec![0; usage.len()];
                cdb[0] = entry.opcode.0;
                cdb[1] = entry.service_action.unwrap_or(0);
                cdb[at] |= 1 << bit;
                let byte = u16::try_from(at).unwrap();
                let expected = Sense::field_in_cdb(byte, Some(bit));
                assert_eq!(parse(&cdb), Err(expected), "{} {at}.{bit}", entry.name);
                refused += 1;
            }
        }
    }
    assert!(refused > 1500, "{refused} bits");
}

#[test]
fn commands_that_the_disk_lacks_do_not_exist() {
    let unknown = Sense::illegal(AdditionalSense::INVALID_COMMAND_OPERATION_CODE);
    for opcode in [0x42, 0x9C, 0x89, 0x83, 0x84, 0x48, 0xFF] {
        let mut cdb = [0; 16];
        cdb[0] = opcode;
        assert_eq!(Command::parse(&cdb, NONE).unwrap_err(), unknown);
    }
    let unmap = Command::parse(&cdb16(0x93, 0x08, 0, 1), NONE).unwrap_err();
    assert_eq!(unmap, Sense::field_in_cdb(1, Some(3)));
}

#[test]
fn the_table_is_ordered_and_without_doubles() {
    let keys: Vec<_> = supported(ALL)
        .map(|e| (e.opcode.0, e.service_action))
        .collect();
    assert!(keys.is_sorted_by(|a, b| a < b));
}

#[test]
fn what_a_transport_must_move() {
    let transfer = |cdb: &[u8]| parse(cdb).unwrap().transfer(512);
    let expect = |direction, bytes, exact| Transfer {
        direction,
        bytes,
        exact,
    };
    assert_eq!(
        transfer(&cdb10(0x28, 0, 0, 8)),
        expect(Direction::In, 4096, false)
    );
    assert_eq!(
        transfer(&cdb10(0x2A, 0, 0, 8)),
        expect(Direction::Out, 4096, false)
    );
    assert_eq!(
        transfer(&cdb10(0x2A, 0, 0, 0)),
        expect(Direction::None, 0, false)
    );
    assert_eq!(
        transfer(&cdb10(0x41, 0, 0, 8)),
        expect(Direction::Out, 512, true)
    );
    assert_eq!(
        transfer(&cdb16(0x93, 0x09, 0, 8)),
        expect(Direction::None, 0, true)
    );
    assert_eq!(
        transfer(&cdb10(0x2F, 0, 0, 8)),
        expect(Direction::None, 0, false)
    );
    assert_eq!(
        transfer(&cdb10(0x2F, 2, 0, 8)),
        expect(Direction::Out, 4096, false)
    );
    assert_eq!(
        transfer(&cdb10(0x2F, 6, 0, 8)),
        expect(Direction::Out, 512, false)
    );
    assert_eq!(
        transfer(&cdb10(0x25, 0, 0, 0)),
        expect(Direction::In, 8, false)
    );
    assert_eq!(
        transfer(&[0x12, 0, 0, 0, 36, 0]),
        expect(Direction::In, 36, false)
    );
    let mut compare = cdb16(0x89, 0, 0, 0);
    compare[13] = 2;
    assert_eq!(transfer(&compare), expect(Direction::Out, 2048, true));
    let (same, write) = (
        transfer(&cdb10(0x41, 0, 0, 8)),
        transfer(&cdb10(0x2A, 0, 0, 8)),
    );
    assert!(same.fits(512) && !same.fits(256) && !same.fits(1024));
    assert!(write.fits(0) && write.fits(1 << 20), "with a residual");
    let huge = transfer(&cdb16(0x88, 0, 0, u32::MAX));
    assert_eq!(huge.bytes, u64::from(u32::MAX) * 512);
}

#[test]
fn arbitrary_cdbs_never_panic_and_errors_point_into_them() {
    let mut numbers = Numbers(0x5EED);
    for _ in 0..200_000 {
        let length = usize::try_from(numbers.next() % 20).unwrap();
        let mut cdb = numbers.bytes(length);
        if numbers.next().is_multiple_of(2) {
            cdb.iter_mut().skip(1).for_each(|byte| *byte &= 0x1F);
        }
        if let Err(Sense {
            pointer: Some(FieldPointer { byte, .. }),
            ..
        }) = Command::parse(&cdb, ALL)
        {
            assert!(byte < 16);
        }
    }
}
