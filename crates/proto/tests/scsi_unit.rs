//! The logical unit: what is refused, what reaches the disk, and what initiators are told first.

#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot go on says so by panicking"
)]

mod scsi_common;

use fabrix_proto::scsi::additional::AdditionalSense;
use fabrix_proto::scsi::attention::Attention;
use fabrix_proto::scsi::cdb::{ByteCheck, Command, Extent};
use fabrix_proto::scsi::copy::{CopyList, CopyProgress, CopyStatus, Designator, Segment};
use fabrix_proto::scsi::pages::mode::ModeParameters;
use fabrix_proto::scsi::reservation::{Kind, Notice, Refusal, Request};
use fabrix_proto::scsi::sense::{SENSE_BYTES_MAX, Sense, SenseKey};
use fabrix_proto::scsi::spec::Status;
use fabrix_proto::scsi::unit::{
    Answer, DiskOperation, Failure, Outcome, View, classify_absent, copy_status,
};
use scsi_common::{BLOCKS, Bench, CONFLICT, GOOD, Numbers, cdb10, cdb16, disk, nexus, sense};

const TUR: [u8; 6] = [0; 6];
const OUT_OF_RANGE: Sense = Sense::illegal(AdditionalSense::LBA_OUT_OF_RANGE);

/// Commands with an address and a length, in CDBs of 16 bytes, and how many blocks each takes at least.
const SIXTEEN: [(u8, u8); 8] = [
    (0x88, 0),
    (0x8A, 0),
    (0x8B, 0),
    (0x8E, 0),
    (0x8F, 2),
    (0x90, 0),
    (0x91, 0),
    (0x93, 0),
];

fn extent(lba: u64, blocks: u32) -> Extent {
    Extent { lba, blocks }
}

#[test]
fn blocks_past_the_end_are_out_of_range_for_every_command() {
    let mut bench = Bench::new();
    for (opcode, flags) in SIXTEEN {
        let outside = [
            (BLOCKS, 1),
            (BLOCKS - 1, 2),
            (BLOCKS + 1, 0),
            (1 << 63, 0),
            (1 << 63, 1),
            (u64::MAX, 0),
            (u64::MAX, 1),
            (u64::MAX, u32::MAX),
            (0, u32::MAX),
        ];
        for (lba, blocks) in outside {
            let error = bench.sense(&cdb16(opcode, flags, lba, blocks));
            assert_eq!(error, OUT_OF_RANGE, "{opcode:02x} {lba} {blocks}");
        }
        let last = bench.send(&cdb16(opcode, flags, BLOCKS - 1, 1));
        assert!(matches!(last, Outcome::Disk(_)) || last == GOOD && opcode == 0x90);
    }
    assert_eq!(bench.sense(&cdb10(0x28, 0, u32::MAX, 1)), OUT_OF_RANGE);
    assert_eq!(bench.sense(&[0x08, 0x1F, 0xFF, 0xFF, 1, 0]), OUT_OF_RANGE);
}

#[test]
fn no_blocks_are_done_at_once_wherever_they_are() {
    let mut bench = Bench::new();
    for (opcode, flags) in SIXTEEN.into_iter().filter(|(opcode, _)| *opcode < 0x91) {
        assert_eq!(bench.send(&cdb16(opcode, flags, 0, 0)), GOOD);
        assert_eq!(bench.send(&cdb16(opcode, flags, BLOCKS, 0)), GOOD);
    }
    let everything = bench.operation(&cdb16(0x91, 0, 0, 0));
    assert_eq!(everything, DiskOperation::Flush);
    let rest = bench.sense(&cdb16(0x93, 0, 0, 0));
    assert_eq!(rest, Sense::field_in_cdb(10, None), "WSNZ");
    assert_eq!(
        bench.sense(&cdb10(0x41, 0, 0, 0)),
        Sense::field_in_cdb(7, None)
    );
}

#[test]
fn lengths_above_the_block_limits_are_pointed_at() {
    let mut big = disk();
    big.blocks = 1 << 40;
    let mut bench = Bench::of(big);
    assert_eq!(
        bench.sense(&cdb16(0x88, 0, 0, 2049)),
        Sense::field_in_cdb(10, None)
    );
    assert_eq!(
        bench.sense(&cdb10(0x2A, 0, 0, 2049)),
        Sense::field_in_cdb(7, None)
    );
    let twelve = [0xA8, 0, 0, 0, 0, 0, 0, 0, 8, 1, 0, 0];
    assert_eq!(bench.sense(&twelve), Sense::field_in_cdb(6, None));
    assert_eq!(
        bench.sense(&cdb16(0x93, 0, 0, 1 << 16)),
        Sense::field_in_cdb(10, None)
    );
    let mut compare = cdb16(0x89, 0, 0, 0);
    compare[13] = 17;
    assert_eq!(bench.sense(&compare), Sense::field_in_cdb(13, None));
    let mut atomic = cdb16(0x9C, 0, 0, 0);
    atomic[13] = 9;
    assert_eq!(bench.sense(&atomic), Sense::field_in_cdb(12, None));
    let unlimited = bench.operation(&cdb16(0x8F, 0, 0, u32::MAX));
    assert!(matches!(unlimited, DiskOperation::Verify { .. }));
}

/// libiscsi: an atomic write that is too long and out of range is out of range.
#[test]
fn the_range_is_checked_before_the_limits() {
    let mut bench = Bench::new();
    let mut atomic = cdb16(0x9C, 0, BLOCKS - 1, 0);
    atomic[13] = 100;
    assert_eq!(bench.sense(&atomic), OUT_OF_RANGE);
}

#[test]
fn what_reaches_the_disk() {
    let mut bench = Bench::new();
    let (extent, fua) = (extent(8, 2), true);
    let read = bench.operation(&cdb10(0x28, 8, 8, 2));
    assert_eq!(read, DiskOperation::Read { extent, fua });
    let write = |fua, atomic| DiskOperation::Write {
        extent,
        fua,
        atomic,
    };
    assert_eq!(bench.operation(&cdb10(0x2A, 0, 8, 2)), write(false, false));
    assert_eq!(bench.operation(&cdb10(0x2A, 8, 8, 2)), write(true, false));
    let mut atomic = cdb16(0x9C, 0, 8, 0);
    atomic[13] = 2;
    assert_eq!(bench.operation(&atomic), write(false, true));
    let check = ByteCheck::OneBlock;
    assert_eq!(
        bench.operation(&cdb16(0x8F, 6, 8, 2)),
        DiskOperation::Verify { extent, check }
    );
    let compare = true;
    let verified = DiskOperation::WriteAndVerify { extent, compare };
    assert_eq!(bench.operation(&cdb10(0x2E, 2, 8, 2)), verified);
    let same = DiskOperation::WriteSame {
        extent,
        deallocate: true,
        fua: false,
    };
    assert_eq!(bench.operation(&cdb10(0x41, 8, 8, 2)), same);
    let zeroes = DiskOperation::WriteZeroes {
        extent,
        deallocate: false,
        fua: false,
    };
    assert_eq!(bench.operation(&cdb16(0x93, 1, 8, 2)), zeroes);
    assert_eq!(
        bench.operation(&[0x1B, 0, 0, 0, 0, 0]),
        DiskOperation::Flush
    );
    assert_eq!(bench.send(&[0x1B, 0, 0, 0, 1, 0]), GOOD);
    assert_eq!(bench.send(&[0x1E, 0, 0, 0, 1, 0]), GOOD);
}

#[test]
fn without_the_write_cache_every_write_is_durable() {
    let mut bench = Bench::new();
    bench.mode.write_cache = false;
    for cdb in [
        cdb16(0x8A, 0, 0, 1),
        cdb16(0x8B, 0, 0, 1),
        cdb16(0x93, 0, 0, 1),
        cdb16(0x93, 1, 0, 1),
    ] {
        let text = format!("{:?}", bench.operation(&cdb));
        assert!(text.contains("fua: true"), "{text}");
    }
    bench.disk.volatile_cache = false;
    let text = format!("{:?}", bench.operation(&cdb16(0x8A, 0, 0, 1)));
    assert!(
        text.contains("fua: false"),
        "there is nothing to go through: {text}"
    );
}

#[test]
fn a_protected_disk_refuses_every_write_and_no_read() {
    let mut bench = Bench::new();
    let mut compare = cdb16(0x89, 0, 0, 0);
    compare[13] = 1;
    let mut atomic = cdb16(0x9C, 0, 0, 0);
    atomic[13] = 1;
    let unmap = cdb10(0x42, 0, 0, 24);
    let writes: [&[u8]; 9] = [
        &[0x0A, 0, 0, 0, 1, 0],
        &cdb10(0x2A, 0, 0, 1),
        &cdb10(0x2E, 0, 0, 1),
        &cdb16(0x8B, 0, 0, 1),
        &cdb10(0x41, 0, 0, 1),
        &cdb16(0x93, 9, 0, 1),
        &compare,
        &atomic,
        &unmap,
    ];
    bench.mode.write_protect = true;
    for cdb in writes {
        let code = AdditionalSense::SOFTWARE_WRITE_PROTECTED;
        assert_eq!(bench.sense(cdb), Sense::new(SenseKey::DATA_PROTECT, code));
    }
    assert!(matches!(
        bench.send(&cdb10(0x28, 0, 0, 1)),
        Outcome::Disk(_)
    ));
    bench.disk.read_only = true;
    for cdb in writes {
        assert_eq!(bench.sense(cdb).code, AdditionalSense::WRITE_PROTECTED);
    }
}

#[test]
fn attentions_are_told_once_in_order_and_three_commands_pass_by() {
    let mut bench = Bench::new();
    bench.attentions.add(Attention::LunsChanged);
    bench.attentions.add(Attention::CapacityChanged);
    bench.attentions.add(Attention::CapacityChanged);
    let inquiry = bench.read(&[0x12, 0, 0, 0, 36, 0]);
    assert_eq!(inquiry.len(), 36);
    assert_eq!(bench.sense(&TUR), Attention::CapacityChanged.sense());
    assert_eq!(bench.sense(&TUR), Attention::LunsChanged.sense());
    assert_eq!(bench.send(&TUR), GOOD);
    bench.attentions.add(Attention::LunsChanged);
    bench.read(&[0xA0, 0, 0, 0, 0, 0, 0, 0, 0, 64, 0, 0]);
    assert_eq!(bench.send(&TUR), GOOD, "REPORT LUNS has told");
    bench.attentions.add(Attention::NexusLoss);
    bench.attentions.add(Attention::DeviceReset);
    assert_eq!(bench.sense(&[0xFF; 16]), Attention::DeviceReset.sense());
    assert!(
        !bench.attentions.any(),
        "a reset makes the rest meaningless"
    );
}

#[test]
fn request_sense_takes_an_attention_as_data() {
    let mut bench = Bench::new();
    bench.attentions.add(Attention::ModeParametersChanged);
    let fixed = bench.read(&[3, 0, 0, 0, 252, 0]);
    assert_eq!(
        (fixed[0], fixed[2], fixed[12], fixed[13]),
        (0x70, 6, 0x2A, 1)
    );
    let none = bench.read(&[3, 1, 0, 0, 252, 0]);
    assert_eq!(none, [0x72, 0, 0, 0, 0, 0, 0, 0]);
}

#[test]
fn the_notices_of_reservations_are_attentions() {
    let codes = [
        Notice::ReservationPreempted,
        Notice::ReservationReleased,
        Notice::RegistrationPreempted,
    ]
    .map(|notice| Attention::from(notice).sense().code.0);
    assert_eq!(codes, [0x2A03, 0x2A04, 0x2A05]);
}

#[test]
fn a_logical_unit_that_is_not_there() {
    let mut page = [0xEE; 256];
    let mut send = |cdb: &[u8]| {
        let answer = classify_absent(&[0, 5], cdb, &mut page);
        let data = page[..answer.bytes as usize].to_vec();
        (answer, data)
    };
    let (_, inquiry) = send(&[0x12, 0, 0, 0, 255, 0]);
    assert_eq!((inquiry[0], inquiry.len()), (0x7F, 36));
    let (_, luns) = send(&[0xA0, 0, 0, 0, 0, 0, 0, 0, 0, 255, 0, 0]);
    assert_eq!(luns.len(), 24);
    let (_, data) = send(&[3, 0, 0, 0, 255, 0]);
    assert_eq!((data[2], data[12]), (5, 0x25));
    for cdb in [&TUR[..], &[0xFF; 16], &[0x12, 1, 0, 0, 255, 0], &[]] {
        let code = send(cdb).0.sense.unwrap().code;
        assert_eq!(code, AdditionalSense::LOGICAL_UNIT_NOT_SUPPORTED);
    }
}

fn unmap_list(extents: &[(u64, u32)]) -> Vec<u8> {
    let bytes = u16::try_from(extents.len() * 16).unwrap();
    let mut list = (bytes + 6).to_be_bytes().to_vec();
    list.extend(bytes.to_be_bytes());
    list.extend([0; 4]);
    for (lba, blocks) in extents {
        list.extend(lba.to_be_bytes());
        list.extend(blocks.to_be_bytes());
        list.extend([0; 4]);
    }
    list
}

fn unmap(bench: &mut Bench, list: &[u8]) -> Outcome {
    let length = u16::try_from(list.len()).unwrap();
    bench.send_list(&cdb10(0x42, 0, 0, length), list)
}

#[test]
fn unmap_takes_overlapping_ranges_and_leaves_empty_ones_out() {
    let mut bench = Bench::new();
    let list = unmap_list(&[(0, 8), (4, 8), (9, 0), (BLOCKS, 0), (BLOCKS - 1, 1)]);
    let expected = vec![extent(0, 8), extent(4, 8), extent(BLOCKS - 1, 1)];
    let outcome = unmap(&mut bench, &list);
    assert_eq!(outcome, Outcome::Disk(DiskOperation::Deallocate(expected)));
    assert_eq!(unmap(&mut bench, &unmap_list(&[(0, 0)])), GOOD);
    assert_eq!(unmap(&mut bench, &unmap_list(&[])), GOOD);
    assert_eq!(unmap(&mut bench, &[]), GOOD);
}

#[test]
fn unmap_does_nothing_when_one_range_is_wrong() {
    let mut bench = Bench::new();
    for wrong in [(BLOCKS, 1), (BLOCKS + 1, 0), (u64::MAX, 1), (u64::MAX, 0)] {
        let list = unmap_list(&[(0, 8), wrong]);
        assert_eq!(sense(unmap(&mut bench, &list)), OUT_OF_RANGE);
    }
    let many = vec![(0, 0); 257];
    let error = sense(unmap(&mut bench, &unmap_list(&many)));
    assert_eq!(error, Sense::field_in_parameters(2, None));
    bench.disk.blocks = 1 << 32;
    let error = sense(unmap(&mut bench, &unmap_list(&[(0, 1 << 20), (0, 1)])));
    assert_eq!(error, Sense::field_in_parameters(32, None));
}

/// The lengths in an UNMAP list are believed only as far as there is a list.
#[test]
fn unmap_lengths_that_reach_past_the_list() {
    let mut bench = Bench::new();
    let full = unmap_list(&[(0, 8), (8, 8)]);
    for end in 1..full.len() {
        let error = sense(unmap(&mut bench, &full[..end]));
        assert_eq!(
            error.code,
            AdditionalSense::PARAMETER_LIST_LENGTH_ERROR,
            "{end}"
        );
    }
    let shorter = bench.send_list(&cdb10(0x42, 0, 0, 40), &full[..24]);
    assert_eq!(
        sense(shorter).code,
        AdditionalSense::PARAMETER_LIST_LENGTH_ERROR
    );
    let mut odd = full;
    odd[3] = 17;
    let one = vec![extent(0, 8)];
    let outcome = unmap(&mut bench, &odd);
    assert_eq!(
        outcome,
        Outcome::Disk(DiskOperation::Deallocate(one)),
        "half a descriptor is none"
    );
}

fn reserve_out(action: u8, kind: u8, length: u8) -> [u8; 10] {
    [0x5F, action, kind, 0, 0, 0, 0, 0, length, 0]
}

fn keys(key: u64, service: u64, flags: u8) -> Vec<u8> {
    let mut list = key.to_be_bytes().to_vec();
    list.extend(service.to_be_bytes());
    list.extend([0, 0, 0, 0, flags, 0, 0, 0]);
    list
}

fn reserved(bench: &mut Bench, cdb: &[u8], list: &[u8]) -> Answer {
    let Outcome::Reserve(request) = bench.send_list(cdb, list) else {
        panic!("{cdb:02x?} is a request to the reservations");
    };
    let who = bench.nexus.clone();
    let result = bench.apply(&who, &request);
    Answer::reserved(result.as_ref().map_err(|refusal| *refusal))
}

#[test]
fn persistent_reservations_from_byte_to_byte() {
    let mut bench = Bench::new();
    let register = keys(0, 0x0102_0304_0506_0708, 0x01);
    assert_eq!(
        reserved(&mut bench, &reserve_out(0, 0, 24), &register),
        Answer::GOOD
    );
    let taken = reserved(
        &mut bench,
        &reserve_out(1, 5, 24),
        &keys(0x0102_0304_0506_0708, 0, 0),
    );
    assert_eq!(taken, Answer::GOOD);
    let read = |bench: &mut Bench, action| bench.read(&[0x5E, action, 0, 0, 0, 0, 0, 1, 0, 0]);
    assert_eq!(
        read(&mut bench, 0),
        [0, 0, 0, 1, 0, 0, 0, 8, 1, 2, 3, 4, 5, 6, 7, 8]
    );
    let reservation = read(&mut bench, 1);
    assert_eq!(
        reservation[..16],
        [0, 0, 0, 1, 0, 0, 0, 16, 1, 2, 3, 4, 5, 6, 7, 8]
    );
    assert_eq!(reservation[16..], [0, 0, 0, 0, 0, 5, 0, 0]);
    assert_eq!(read(&mut bench, 2), [0, 8, 0x1D, 0x81, 0xEA, 1, 0, 0]);
    let full = read(&mut bench, 3);
    assert_eq!(full[4..8], [0, 0, 0, 24 + 32]);
    assert_eq!(
        full[16..32],
        [0, 0, 0, 0, 1, 5, 0, 0, 0, 0, 0, 1, 0, 0, 0, 32]
    );
    assert_eq!(&full[32..], bench.nexus.initiator.transport_id());
    bench.nexus = nexus("b");
    assert_eq!(bench.send(&cdb10(0x2A, 0, 0, 1)), CONFLICT);
    assert!(matches!(
        bench.send(&cdb10(0x28, 0, 0, 1)),
        Outcome::Disk(_)
    ));
    assert_eq!(
        bench.send(&cdb10(0x42, 0, 0, 24)),
        CONFLICT,
        "a fenced node must not unmap"
    );
    assert_eq!(
        bench.send(&cdb10(0x41, 0, 0, 1)),
        CONFLICT,
        "nor write zeroes"
    );
    assert_eq!(bench.send(&[0x1B, 0, 0, 0, 0, 0]), CONFLICT);
    assert_eq!(bench.send(&[0x1B, 0, 0, 0, 1, 0]), GOOD);
    assert_eq!(bench.send(&[0x1E, 0, 0, 0, 1, 0]), CONFLICT);
    let stranger = reserved(&mut bench, &reserve_out(2, 5, 24), &keys(0, 0, 0));
    assert_eq!(stranger, Answer::CONFLICT);
}

#[test]
fn read_keys_is_cut_and_its_length_is_not() {
    let mut bench = Bench::new();
    reserved(&mut bench, &reserve_out(6, 0, 24), &keys(0, 9, 0));
    let cut = bench.read(&[0x5E, 0, 0, 0, 0, 0, 0, 0, 8, 0]);
    assert_eq!(cut, [0, 0, 0, 1, 0, 0, 0, 8]);
}

#[test]
fn parameter_lists_of_persistent_reserve_out_have_one_length() {
    let mut bench = Bench::new();
    let list = vec![0; 256];
    for action in 0..8 {
        for length in (0..=255u8).filter(|length| *length != 24) {
            let outcome = bench.send_list(&reserve_out(action, 5, length), &list[..length.into()]);
            let error = sense(outcome);
            if action < 7 {
                assert_eq!(error.code, AdditionalSense::PARAMETER_LIST_LENGTH_ERROR);
            }
        }
        let short = bench.send_list(&reserve_out(action, 5, 24), &list[..23]);
        assert_eq!(
            sense(short).code,
            AdditionalSense::PARAMETER_LIST_LENGTH_ERROR
        );
    }
    let huge = bench.sense(&[0x5F, 0, 0, 0, 0, 0xFF, 0xFF, 0xFF, 0xFF, 0]);
    assert_eq!(huge.code, AdditionalSense::PARAMETER_LIST_LENGTH_ERROR);
}

#[test]
fn fields_of_persistent_reserve_out_are_pointed_at() {
    let mut bench = Bench::new();
    let list = keys(0, 1, 0);
    let kind = bench.send_list(&reserve_out(1, 2, 24), &list);
    assert_eq!(sense(kind), Sense::field_in_cdb(2, Some(3)));
    let scope = bench.send_list(&reserve_out(4, 0x15, 24), &list);
    assert_eq!(sense(scope), Sense::field_in_cdb(2, Some(7)));
    let reserved_bit = bench.send_list(&reserve_out(0, 0, 24), &keys(0, 1, 0x80));
    assert_eq!(sense(reserved_bit), Sense::field_in_parameters(20, Some(7)));
    let others = bench.send_list(&reserve_out(6, 0, 24), &keys(0, 1, 0x08));
    assert_eq!(sense(others), Sense::field_in_parameters(20, Some(3)));
    bench.disk.stores_reservations = false;
    let stored = bench.send_list(&reserve_out(0, 0, 24), &keys(0, 1, 0x01));
    assert_eq!(sense(stored), Sense::field_in_parameters(20, Some(0)));
    let refused = Answer::reserved(Err(Refusal::InvalidRelease));
    let code = AdditionalSense::INVALID_RELEASE_OF_RESERVATION;
    assert_eq!(refused.sense, Some(Sense::illegal(code)));
}

#[test]
fn registering_other_initiators_and_moving_to_one() {
    let mut bench = Bench::new();
    let other = nexus("b");
    let id = other.initiator.transport_id().to_vec();
    let id_bytes = u8::try_from(id.len()).unwrap();
    let mut list = keys(0, 7, 0x08);
    list.extend([0, 0, 0, id_bytes]);
    list.extend(&id);
    let cdb = reserve_out(0, 0, 28 + id_bytes);
    assert_eq!(reserved(&mut bench, &cdb, &list), Answer::GOOD);
    assert!(bench.reservations.standing(&other).registered);
    list[27] += 1;
    let longer = sense(bench.send_list(&cdb, &list));
    assert_eq!(longer.code, AdditionalSense::PARAMETER_LIST_LENGTH_ERROR);
    list[27] -= 1;
    list[28] = 0x46;
    let format = sense(bench.send_list(&cdb, &list));
    assert_eq!(format, Sense::field_in_parameters(28, None));

    reserved(&mut bench, &reserve_out(1, 3, 24), &keys(7, 0, 0));
    let mut list = keys(7, 8, 0);
    list[17..24].copy_from_slice(&[0x02, 0, 1, 0, 0, 0, id_bytes]);
    list.extend(&id);
    let cdb = reserve_out(7, 0, 24 + id_bytes);
    let mut no_port = list.clone();
    no_port[19] = 9;
    let error = sense(bench.send_list(&cdb, &no_port));
    assert_eq!(error, Sense::field_in_parameters(18, None));
    assert_eq!(reserved(&mut bench, &cdb, &list), Answer::GOOD);
    assert!(bench.reservations.standing(&other).holder);
    assert_eq!(bench.send(&cdb10(0x28, 0, 0, 1)), CONFLICT);
    assert_eq!(bench.reservations.kind(), Some(Kind::ExclusiveAccess));
}

#[test]
fn reserve_6_and_10_are_one() {
    let mut bench = Bench::new();
    assert_eq!(
        bench.send(&[0x16, 0, 0, 0, 0, 0]),
        Outcome::Reserve(Request::LegacyReserve)
    );
    let release = bench.send(&[0x57, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(release, Outcome::Reserve(Request::LegacyRelease));
    bench.apply(&nexus("b"), &Request::LegacyReserve).unwrap();
    assert_eq!(bench.send(&TUR), CONFLICT);
    assert_eq!(bench.send(&[0x1A, 0, 0x3F, 0, 255, 0]), CONFLICT);
    assert_eq!(bench.read(&[0x12, 0, 0, 0, 36, 0]).len(), 36);
}

const COPY_BYTES: usize = 16 + 32 + 28;

fn copy_list() -> Vec<u8> {
    let mut list = vec![0; COPY_BYTES];
    list[..12].copy_from_slice(&[1, 0, 0, 32, 0, 0, 0, 0, 0, 0, 0, 28]);
    list[16..24].copy_from_slice(&[0xE4, 0, 0, 0, 1, 3, 0, 8]);
    list[24..32].copy_from_slice(&0x3123_4567_89AB_CDEF_u64.to_be_bytes());
    list[46] = 2;
    list[48..60].copy_from_slice(&[2, 0, 0, 0x18, 0, 0, 0, 0, 0, 0, 0x08, 0]);
    list[68..76].copy_from_slice(&0x8000_u64.to_be_bytes());
    list
}

fn copy(bench: &mut Bench, list: &[u8]) -> Outcome {
    let mut cdb = [0; 16];
    cdb[0] = 0x83;
    cdb[12..14].copy_from_slice(&u16::try_from(list.len()).unwrap().to_be_bytes());
    bench.send_list(&cdb, list)
}

fn copied(bench: &mut Bench, list: &[u8]) -> CopyList {
    match copy(bench, list) {
        Outcome::Copy(copies) => copies,
        other => panic!("{other:?}"),
    }
}

/// CVE-2020-28374: a copy reaches only disks that the executor found by name among those of the initiator.
#[test]
fn extended_copy_names_its_disks_and_is_checked_against_them() {
    let mut bench = Bench::new();
    let copies = copied(&mut bench, &copy_list());
    let segment = Segment {
        source: 0,
        source_lba: 0,
        destination: 0,
        destination_lba: 0x8000,
        blocks: 2048,
    };
    assert_eq!(copies.segments, [segment]);
    assert_eq!((copies.list, copies.kept), (1, true));
    assert!(copies.devices[0].names(&bench.disk));
    let stranger = Designator {
        id: vec![0; 8],
        ..copies.devices[0].clone()
    };
    assert!(!stranger.names(&bench.disk));
    assert_eq!(copies.check(&[Some(&bench.disk)]), Ok(()));
    let absent = copies.check(&[None]).unwrap_err();
    assert_eq!(absent.key, SenseKey::COPY_ABORTED);
    let mut list = copy_list();
    list[68..76].copy_from_slice(&(BLOCKS - 1).to_be_bytes());
    let beyond = copied(&mut bench, &list).check(&[Some(&bench.disk)]);
    assert_eq!(beyond.unwrap_err().key, SenseKey::COPY_ABORTED);
}

#[test]
fn what_became_of_a_copy_is_told_and_not_kept_where_the_list_says_so() {
    let mut bench = Bench::new();
    let mut list = copy_list();
    list[1] = 0x10;
    assert!(!copied(&mut bench, &list).kept);
    let status = CopyStatus {
        list: 1,
        progress: CopyProgress::Failed,
        segments: 3,
        bytes: (5 << 32) + 1024,
    };
    let mut page = [0; 64];
    let answer = copy_status(Some(&status), 64, &mut page);
    assert_eq!(answer, Answer::data(12));
    assert_eq!(page[..12], [0, 0, 0, 8, 2, 0, 3, 1, 0x01, 0x40, 0, 1]);
    let unknown = copy_status(None, 64, &mut page);
    assert_eq!(unknown, Answer::check(Sense::field_in_cdb(2, None)));
}

#[test]
fn extended_copy_lists_as_libiscsi_breaks_them() {
    let mut bench = Bench::new();
    assert_eq!(copy(&mut bench, &[]), GOOD);
    for end in 1..COPY_BYTES {
        let error = sense(copy(&mut bench, &copy_list()[..end]));
        assert_eq!(
            error.code,
            AdditionalSense::PARAMETER_LIST_LENGTH_ERROR,
            "{end}"
        );
    }
    let changed = |at: usize, value: u8| {
        let mut list = copy_list();
        list[at] = value;
        list
    };
    let cases = [
        (
            changed(16, 0xE0),
            AdditionalSense::UNSUPPORTED_TARGET_DESCRIPTOR,
        ),
        (
            changed(23, 21),
            AdditionalSense::UNSUPPORTED_TARGET_DESCRIPTOR,
        ),
        (
            changed(48, 0x03),
            AdditionalSense::UNSUPPORTED_SEGMENT_DESCRIPTOR,
        ),
        (changed(55, 1), AdditionalSense::COPY_DEVICE_NOT_REACHABLE),
    ];
    for (list, code) in cases {
        assert_eq!(sense(copy(&mut bench, &list)).code, code);
    }
}

#[test]
fn extended_copy_is_bounded_by_what_it_reports() {
    let mut bench = Bench::new();
    let mut ask = [0; 16];
    ask[..2].copy_from_slice(&[0x84, 3]);
    ask[13] = 64;
    let limits = bench.read(&ask);
    assert_eq!(limits[8..16], [0, 16, 0, 16, 0, 0, 0x03, 0xC0]);
    assert_eq!(limits[43..], [2, 0x02, 0xE4]);
    let list = |devices: u16, segments: u16| {
        let (d, s) = (devices * 32, segments * 28);
        let mut list = vec![0; 16 + usize::from(d) + usize::from(s)];
        list[2..4].copy_from_slice(&d.to_be_bytes());
        list[10..12].copy_from_slice(&s.to_be_bytes());
        list[16..].fill(0xE4);
        list
    };
    let code = |bench: &mut Bench, d, s| sense(copy(bench, &list(d, s))).code;
    assert_eq!(
        code(&mut bench, 17, 1),
        AdditionalSense::TOO_MANY_TARGET_DESCRIPTORS
    );
    assert_eq!(
        code(&mut bench, 0, 17),
        AdditionalSense::TOO_MANY_SEGMENT_DESCRIPTORS
    );
    assert_eq!(
        code(&mut bench, 17, 17),
        AdditionalSense::PARAMETER_LIST_LENGTH_ERROR
    );
    let mut status = ask;
    (status[1], status[2]) = (0, 9);
    let asked = Outcome::CopyStatus {
        list: 9,
        allocation: 64,
    };
    assert_eq!(bench.send(&status), asked);
}

#[test]
fn failures_of_the_disk_in_scsi_s_words() {
    let check = |failure: Failure| failure.answer().sense.unwrap();
    assert_eq!(check(Failure::Miscompare(5)), Sense::miscompare(5));
    assert_eq!(check(Failure::Read(Some(7))).information, Some(7));
    assert_eq!(check(Failure::NoSpace).code.0, 0x2707);
    assert_eq!(check(Failure::Gone).code.0, 0x2500);
    assert_eq!(Failure::Busy.answer(), Answer::status(Status::BUSY));
}

#[test]
fn sense_bytes_have_the_format_of_the_mode() {
    let bench = Bench::new();
    let view = |descriptor_sense| View {
        disk: &bench.disk,
        mode: ModeParameters {
            descriptor_sense,
            ..bench.mode
        },
        target: &bench.target,
        port: 1,
        luns: &[],
        reservations: &bench.reservations,
        standing: bench.reservations.standing(&bench.nexus),
    };
    let mut out = [0; SENSE_BYTES_MAX];
    let answer = Answer::check(OUT_OF_RANGE);
    assert_eq!(
        (view(false).sense_bytes(&answer, &mut out), out[0]),
        (18, 0x70)
    );
    assert_eq!(
        (view(true).sense_bytes(&answer, &mut out), out[0]),
        (8, 0x72)
    );
    assert_eq!(view(true).sense_bytes(&Answer::GOOD, &mut out), 0);
}

/// Arbitrary commands and lists: no panic, data within the page, and every operation within the disk.
#[test]
fn arbitrary_commands_and_lists_never_leave_the_disk() {
    let mut numbers = Numbers(0x0DDBA11);
    let mut bench = Bench::new();
    let opcodes = [
        0x5F, 0x42, 0x55, 0x83, 0x88, 0x8A, 0x93, 0xA3, 0x5A, 0x5E, 0x12, 0x9E,
    ];
    for round in 0..100_000usize {
        let mut cdb = numbers.bytes(16);
        if round % 4 != 0 {
            cdb[0] = opcodes[round % opcodes.len()];
            cdb[1] &= 0x1F;
            cdb[2..8].fill(0);
            cdb[9] = 0;
            cdb[14..].fill(0);
        }
        let mut list = numbers.bytes(round % 300);
        list.iter_mut().take(24).for_each(|byte| *byte &= 0x1F);
        let outcome = bench.send_list(&cdb, &list);
        match outcome {
            Outcome::Answer(answer) => assert!(answer.bytes as usize <= bench.page.len()),
            Outcome::Disk(operation) => assert!(inside(&bench, &cdb, &operation)),
            Outcome::Reserve(request) => drop(bench.apply(&nexus("a"), &request)),
            Outcome::Mode(mode) => bench.mode = mode,
            Outcome::LbaStatus { lba, .. } => assert!(lba < bench.disk.blocks),
            Outcome::Parameters(_) | Outcome::Copy(_) | Outcome::CopyStatus { .. } => {}
        }
        if round % 64 == 0 {
            bench.reservations = Default::default();
        }
    }
}

fn inside(bench: &Bench, cdb: &[u8], operation: &DiskOperation) -> bool {
    if let DiskOperation::Deallocate(extents) = operation {
        return extents.iter().all(|extent| bench.disk.contains(*extent));
    }
    let (command, _) = Command::parse(cdb, bench.disk.features()).unwrap();
    command
        .extent()
        .is_none_or(|extent| bench.disk.contains(extent))
}
