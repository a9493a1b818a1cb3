//! I/O commands against their bytes: golden entries, everything that must be refused, range lists.

#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot go on says so by panicking"
)]

mod nvme_common;

use fabrix_proto::nvme::command::{DatasetRange, Fuse, IoCommand, IoRequest, ranges};
use fabrix_proto::nvme::spec::{Status, SubmissionEntry};
use fabrix_proto::nvme::subsystem::Authorized;
use nvme_common::{HOSTNQN, SUBNQN, inventory, limits, namespace, nqn};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use zerocopy::IntoBytes;

fn view() -> Authorized {
    inventory().authorize(&nqn(SUBNQN), &nqn(HOSTNQN)).unwrap()
}

fn parse(entry: &SubmissionEntry) -> Result<IoCommand, Status> {
    IoRequest::parse(entry, &view(), &limits().io).map(|request| request.command)
}

fn check(entry: &SubmissionEntry, expected: Status) {
    assert_eq!(parse(entry), Err(expected), "{entry:?}");
}

/// `entry` with the bits of `mask` set in the little-endian dword at byte `at`.
fn with(entry: SubmissionEntry, at: usize, mask: u32) -> SubmissionEntry {
    let mut bytes = entry.to_array();
    for (byte, bits) in bytes[at..at + 4].iter_mut().zip(mask.to_le_bytes()) {
        *byte |= bits;
    }
    SubmissionEntry::from_array(bytes)
}

#[test]
fn a_read_has_the_bytes_of_the_standard() {
    let mut golden = [0; 64];
    golden[0] = 0x02; // OPC
    golden[1] = 0x40; // PSDT: SGL
    golden[4] = 2; // NSID
    golden[39] = 0x5A; // transport SGL
    golden[40..48].copy_from_slice(&[0x0D, 0x0C, 0x0B, 0x0A, 0x04, 0x03, 0x02, 0x01]); // SLBA
    golden[48] = 7; // NLB, zero-based
    assert_eq!(
        SubmissionEntry::read(2, 0x0102_0304_0A0B_0C0D, 8).to_array(),
        golden
    );
    golden[40..48].copy_from_slice(&[100, 0, 0, 0, 0, 0, 0, 0]);
    let read = IoCommand::Read {
        lba: 100,
        blocks: 8,
        fua: false,
    };
    assert_eq!(parse(&SubmissionEntry::from_array(golden)), Ok(read));
}

#[test]
fn a_forced_write_has_the_bytes_of_the_standard() {
    let bytes = SubmissionEntry::write(1, 1, 65536, true)
        .fused(Fuse::Second)
        .to_array();
    assert_eq!(bytes[..8], [0x01, 0x42, 0, 0, 1, 0, 0, 0]);
    assert_eq!(bytes[40..52], [1, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, 0, 0x40]);
}

#[test]
fn every_command_comes_back_as_it_was_built() {
    let pairs = [
        (SubmissionEntry::flush(1), IoCommand::Flush),
        (
            SubmissionEntry::read(1, 0, 1),
            IoCommand::Read {
                lba: 0,
                blocks: 1,
                fua: false,
            },
        ),
        (
            SubmissionEntry::write(1, 9, 4, true),
            IoCommand::Write {
                lba: 9,
                blocks: 4,
                fua: true,
            },
        ),
        (
            SubmissionEntry::write(1, 9, 4, false),
            IoCommand::Write {
                lba: 9,
                blocks: 4,
                fua: false,
            },
        ),
        (
            SubmissionEntry::compare(1, 999, 1),
            IoCommand::Compare {
                lba: 999,
                blocks: 1,
            },
        ),
        (
            SubmissionEntry::write_zeroes(1, 0, 1000, true, false),
            IoCommand::WriteZeroes {
                lba: 0,
                blocks: 1000,
                deallocate: true,
                fua: false,
            },
        ),
        (
            SubmissionEntry::dataset_management(1, 256, true),
            IoCommand::DatasetManagement {
                ranges: 256,
                deallocate: true,
            },
        ),
    ];
    for (entry, command) in pairs {
        assert_eq!(parse(&entry), Ok(command));
    }
}

#[test]
fn refuses_opcodes_that_are_not_supported() {
    for opcode in [0x03, 0x04, 0x0A, 0x10, 0x12, 0x19, 0x7F, 0x80, 0xFF] {
        check(&SubmissionEntry::new(opcode), Status::INVALID_OPCODE);
    }
    check(&SubmissionEntry::verify(1, 0, 1), Status::INVALID_OPCODE);
    let mut allowed = limits().io;
    (allowed.verify, allowed.compare) = (true, false);
    let view = view();
    let verify = IoRequest::parse(&SubmissionEntry::verify(1, 0, 1), &view, &allowed).unwrap();
    assert_eq!(verify.command, IoCommand::Verify { lba: 0, blocks: 1 });
    let compare = IoRequest::parse(&SubmissionEntry::compare(1, 0, 1), &view, &allowed);
    assert_eq!(compare.unwrap_err(), Status::INVALID_OPCODE);
}

#[test]
fn refuses_namespaces_that_are_not_there() {
    for nsid in [0, 3, 6, u32::MAX - 1, u32::MAX] {
        check(
            &SubmissionEntry::read(nsid, 0, 1),
            Status::INVALID_NAMESPACE,
        );
        check(&SubmissionEntry::flush(nsid), Status::INVALID_NAMESPACE);
    }
}

#[test]
fn refuses_ranges_past_the_end_and_past_all_numbers() {
    check(&SubmissionEntry::read(1, 1000, 1), Status::LBA_OUT_OF_RANGE);
    check(&SubmissionEntry::read(1, 993, 8), Status::LBA_OUT_OF_RANGE);
    check(
        &SubmissionEntry::write(1, u64::MAX, 1, false),
        Status::LBA_OUT_OF_RANGE,
    );
    check(
        &SubmissionEntry::compare(1, u64::MAX - 1, 65536),
        Status::LBA_OUT_OF_RANGE,
    );
    check(
        &SubmissionEntry::write_zeroes(1, 1, 1000, false, false),
        Status::LBA_OUT_OF_RANGE,
    );
    assert!(parse(&SubmissionEntry::read(1, 992, 8)).is_ok());
}

#[test]
fn refuses_transfers_larger_than_mdts_but_not_zeroes() {
    assert!(parse(&SubmissionEntry::read(1, 0, 256)).is_ok());
    check(&SubmissionEntry::read(1, 0, 257), Status::INVALID_FIELD);
    check(
        &SubmissionEntry::write(2, 0, 33, false),
        Status::INVALID_FIELD,
    );
    assert!(parse(&SubmissionEntry::write_zeroes(2, 0, 256, false, false)).is_ok());
    check(
        &SubmissionEntry::write_zeroes(2, 0, 257, false, false),
        Status::INVALID_FIELD,
    );
}

#[test]
fn refuses_writes_to_a_read_only_namespace() {
    check(
        &SubmissionEntry::write(5, 0, 1, false),
        Status::NAMESPACE_WRITE_PROTECTED,
    );
    check(
        &SubmissionEntry::write_zeroes(5, 0, 1, false, false),
        Status::NAMESPACE_WRITE_PROTECTED,
    );
    check(
        &SubmissionEntry::dataset_management(5, 1, true),
        Status::NAMESPACE_WRITE_PROTECTED,
    );
    assert!(parse(&SubmissionEntry::read(5, 0, 1)).is_ok());
    assert!(parse(&SubmissionEntry::flush(5)).is_ok());
}

#[test]
fn refuses_every_bit_that_is_reserved_or_not_supported() {
    let allowed = |entry: &SubmissionEntry| match entry.opcode {
        0x08 => 0xC200_FFFF_u32, // LR, FUA, DEAC, NLB
        _ => 0xC000_FFFF,
    };
    let entries = [
        SubmissionEntry::read(1, 0, 1),
        SubmissionEntry::write(1, 0, 1, false),
        SubmissionEntry::compare(1, 0, 1),
        SubmissionEntry::write_zeroes(1, 0, 1, false, false),
    ];
    for entry in entries {
        for bit in (0..32)
            .map(|shift| 1_u32 << shift)
            .filter(|bit| *bit >= 0x1_0000)
        {
            let expected = if allowed(&entry) & bit != 0 {
                None
            } else {
                Some(Status::INVALID_FIELD)
            };
            assert_eq!(
                parse(&with(entry, 48, bit)).err(),
                expected,
                "{bit:#x} of {entry:?}"
            );
        }
        for flag in [0x04, 0x08, 0x10, 0x20] {
            check(&with(entry, 0, flag << 8), Status::INVALID_FIELD);
        }
    }
    let dsm = SubmissionEntry::dataset_management(1, 1, true);
    for bit in 8..32 {
        check(&with(dsm, 40, 1 << bit), Status::INVALID_FIELD);
    }
    for bit in 3..32 {
        check(&with(dsm, 44, 1 << bit), Status::INVALID_FIELD);
    }
}

#[test]
fn hints_and_limited_retry_are_taken() {
    assert!(parse(&with(SubmissionEntry::read(1, 0, 1), 52, 0xFF)).is_ok());
    assert!(parse(&with(SubmissionEntry::read(1, 0, 1), 48, 1 << 31)).is_ok());
}

#[test]
fn refuses_prps_and_metadata_where_data_move() {
    for (flags, expected) in [(0x00, true), (0x80, true), (0xC0, true), (0x40, false)] {
        let mut entry = SubmissionEntry::read(1, 0, 1);
        entry.flags = flags;
        assert_eq!(
            parse(&entry) == Err(Status::INVALID_FIELD),
            expected,
            "{flags:#x}"
        );
    }
    check(
        &with(SubmissionEntry::write(1, 0, 1, false), 16, 1),
        Status::INVALID_FIELD,
    );
    let mut flush = SubmissionEntry::flush(1);
    flush.flags = 0;
    assert_eq!(parse(&flush), Ok(IoCommand::Flush));
}

#[test]
fn only_compare_then_write_can_be_fused() {
    let view = view();
    let parse = |entry: SubmissionEntry| {
        IoRequest::parse(&entry, &view, &limits().io).map(|request| request.fuse)
    };
    let (compare, write) = (
        SubmissionEntry::compare(1, 0, 1),
        SubmissionEntry::write(1, 0, 1, false),
    );
    assert_eq!(parse(compare.fused(Fuse::First)), Ok(Fuse::First));
    assert_eq!(parse(write.fused(Fuse::Second)), Ok(Fuse::Second));
    assert_eq!(parse(write), Ok(Fuse::Normal));
    let wrong = [
        compare.fused(Fuse::Second),
        write.fused(Fuse::First),
        SubmissionEntry::read(1, 0, 1).fused(Fuse::First),
        with(write, 0, 0x0300),
    ];
    for entry in wrong {
        assert_eq!(parse(entry), Err(Status::INVALID_FIELD));
    }
}

#[test]
fn the_sgl_must_fit_the_command() {
    let view = view();
    let check = |entry: SubmissionEntry, sgl_bytes, fits: bool| {
        let request = IoRequest::parse(&entry, &view, &limits().io).unwrap();
        assert_eq!(
            request.check_sgl(sgl_bytes).is_ok(),
            fits,
            "{sgl_bytes} for {entry:?}"
        );
    };
    check(SubmissionEntry::read(2, 0, 2), 8192, true);
    check(SubmissionEntry::read(2, 0, 2), 8191, false);
    check(SubmissionEntry::write(2, 0, 2, false), 8193, false);
    check(SubmissionEntry::flush(2), 0, true);
    check(SubmissionEntry::flush(2), 4, false);
    // Linux sends the whole list however few the ranges are.
    check(SubmissionEntry::dataset_management(2, 1, true), 4096, true);
    check(SubmissionEntry::dataset_management(2, 1, true), 16, true);
    check(SubmissionEntry::dataset_management(2, 2, true), 16, false);
    check(SubmissionEntry::dataset_management(2, 1, true), 4097, false);
}

#[test]
fn a_long_range_list_is_read_as_far_as_it_counts() {
    let mut list = [DatasetRange::new(u64::MAX, u32::MAX); 256];
    list[0] = DatasetRange::new(0, 8);
    list[1] = DatasetRange::new(500, 0);
    list[2] = DatasetRange::new(992, 8);
    let found: Vec<_> = ranges(list.as_bytes(), 3, &namespace(1)).unwrap().collect();
    assert_eq!(found, [(0, 8), (992, 8)]);
    assert_eq!(
        list[2].as_bytes(),
        [0, 0, 0, 0, 8, 0, 0, 0, 0xE0, 3, 0, 0, 0, 0, 0, 0]
    );
}

#[test]
fn one_bad_range_refuses_the_whole_list() {
    let refused = |list: &[DatasetRange], count, bytes: usize| {
        ranges(&list.as_bytes()[..bytes], count, &namespace(1)).err()
    };
    let list = [DatasetRange::new(0, 8), DatasetRange::new(999, 2)];
    assert_eq!(refused(&list, 2, 32), Some(Status::LBA_OUT_OF_RANGE));
    assert_eq!(refused(&list, 1, 32), None);
    assert_eq!(refused(&list, 2, 31), Some(Status::DATA_SGL_LENGTH_INVALID));
    assert_eq!(
        refused(&[DatasetRange::new(u64::MAX, 1)], 1, 16),
        Some(Status::LBA_OUT_OF_RANGE)
    );
}

/// An entry near the border between what is taken and what is not: known opcodes, ranges around the
/// end.
fn plausible() -> impl Strategy<Value = SubmissionEntry> {
    let opcode = proptest::sample::select(vec![0x00, 0x01, 0x02, 0x05, 0x08, 0x09]);
    let lba = prop_oneof![0_u64..1010, Just(u64::MAX), (u64::MAX - 70_000)..=u64::MAX];
    let blocks = prop_oneof![1_u32..40, 250_u32..300, 1_u32..=65536];
    (opcode, 0_u32..7, lba, blocks).prop_map(|(opcode, nsid, lba, blocks)| {
        let mut entry = SubmissionEntry::read(nsid, lba, blocks);
        entry.opcode = opcode;
        entry
    })
}

/// Whatever is accepted lies within its namespace and within the limits.
fn check_accepted(entry: &SubmissionEntry) -> Result<bool, TestCaseError> {
    let view = view();
    let Ok(request) = IoRequest::parse(entry, &view, &limits().io) else {
        return Ok(false);
    };
    prop_assert!(request.data_bytes() <= limits().io.max_transfer_bytes);
    if let Some((lba, blocks)) = request.command.extent() {
        prop_assert!(blocks >= 1);
        prop_assert!(u128::from(lba) + u128::from(blocks) <= u128::from(request.namespace.blocks));
    }
    prop_assert!(!(request.namespace.read_only && request.command.is_write()));
    Ok(true)
}

#[test]
fn the_plausible_entries_reach_both_answers() {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let accepted = (0..1000)
        .filter(|_| {
            let entry = plausible().new_tree(&mut runner).unwrap().current();
            check_accepted(&entry).unwrap()
        })
        .count();
    assert!(
        (100..900).contains(&accepted),
        "{accepted} of 1000 were accepted"
    );
}

proptest! {
    #[test]
    fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 64)) {
        let bytes: [u8; 64] = bytes.try_into().unwrap();
        check_accepted(&SubmissionEntry::from_array(bytes))?;
    }

    #[test]
    fn what_is_accepted_lies_inside(entry in plausible()) {
        check_accepted(&entry)?;
    }

    #[test]
    fn arbitrary_range_lists_never_panic(data in proptest::collection::vec(any::<u8>(), 0..200), count in 0_u16..300) {
        if let Ok(found) = ranges(&data, count, &namespace(1)) {
            for (lba, blocks) in found {
                prop_assert!(lba + u64::from(blocks) <= 1000);
            }
        }
    }

    #[test]
    fn every_accepted_range_lies_inside(list in proptest::collection::vec((990_u64..1003, 0_u32..12), 1..4)) {
        let wire: Vec<_> = list.iter().map(|(lba, blocks)| DatasetRange::new(*lba, *blocks)).collect();
        let count = u16::try_from(wire.len()).unwrap();
        let fits = list.iter().all(|(lba, blocks)| lba + u64::from(*blocks) <= 1000);
        let found = ranges(wire.as_bytes(), count, &namespace(1)).map(Iterator::collect::<Vec<_>>);
        let expected: Vec<_> = list.into_iter().filter(|(_, blocks)| *blocks != 0).collect();
        prop_assert_eq!(found, if fits { Ok(expected) } else { Err(Status::LBA_OUT_OF_RANGE) });
    }
}
