//! Commands for blocks: ranges, limits, and the operations that come of them.

use fabrix_proto::scsi::additional::AdditionalSense;
use fabrix_proto::scsi::cdb::{ByteCheck, Command, Extent};
use fabrix_proto::scsi::sense::{Sense, SenseKey};
use fabrix_proto::scsi::unit::{DiskOperation, Outcome};

use super::OUT_OF_RANGE;
use super::scsi_common::{BLOCKS, Bench, GOOD, Numbers, cdb10, cdb16, disk, nexus, sense};

/// Commands with an address and a length, in CDBs of 16 bytes, and how many blocks each takes at
/// least.
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

/// Each limit of the Block Limits page, asked for by every command that has it, with no more bits
/// than its length has.
#[test]
fn the_longest_of_everything_that_is_announced_is_carried_out_to_the_last_block() {
    for block_bytes in [512, 4096] {
        let mut wide = disk();
        wide.block_bytes = block_bytes;
        wide.blocks = 1 << 32;
        wide.max_transfer_bytes = 1 << 30;
        wide.atomic_write_blocks = 1 << 20;
        wide.compare_and_write_blocks = 255;
        let mut bench = Bench::of(wide);
        let page = bench.read(&[0x12, 1, 0xB0, 0, 255, 0]);
        let field = |at: usize| u32::from_be_bytes(page[at..at + 4].try_into().expect("four"));
        assert_eq!(field(36), 0, "the high half of MAXIMUM WRITE SAME LENGTH");
        let (transfer, same, atomic) = (field(8), field(40), field(44));
        let low = |blocks: u32| u16::try_from(blocks & 0xFFFF).expect("16 bits");
        let mut asked = vec![
            (cdb16(0x8A, 0, 5, transfer).to_vec(), transfer),
            (cdb16(0x93, 0, 5, same).to_vec(), same),
            (cdb10(0x41, 0, 5, low(same)).to_vec(), same),
        ];
        let mut cdb = cdb16(0x9C, 0, 5, 0);
        cdb[12..14].copy_from_slice(&low(atomic).to_be_bytes());
        asked.push((cdb.to_vec(), atomic));
        let mut cdb = cdb16(0x89, 0, 5, 0);
        cdb[13] = page[5];
        asked.push((cdb.to_vec(), page[5].into()));
        for (cdb, blocks) in asked {
            let expected = extent(5, blocks);
            let found = match bench.operation(&cdb) {
                DiskOperation::Write { extent, .. }
                | DiskOperation::WriteSame { extent, .. }
                | DiskOperation::CompareAndWrite { extent, .. } => extent,
                other => panic!("{cdb:02x?} became {other:?}"),
            };
            assert_eq!(found, expected, "{cdb:02x?}");
        }
        let unmap = field(20);
        let list = unmap_list(&[(5, unmap)]);
        let found = bench.send_list(&[0x42, 0, 0, 0, 0, 0, 0, 0, 24, 0], &list);
        let expected = DiskOperation::Deallocate(vec![extent(5, unmap)]);
        assert_eq!(found, Outcome::Disk(expected));
    }
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

/// Arbitrary commands and lists: no panic, data within the page, and every operation within the
/// disk.
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
