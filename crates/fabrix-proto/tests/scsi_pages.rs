//! The pages, byte for byte, and what MODE SELECT may do to them.

#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot go on says so by panicking"
)]

mod scsi_common;

use fabrix_proto::scsi::additional::AdditionalSense;
use fabrix_proto::scsi::pages::capacity::{LbaRun, lun_bytes, parse_lun};
use fabrix_proto::scsi::pages::mode::ModeParameters;
use fabrix_proto::scsi::pages::{Deallocate, Naa};
use fabrix_proto::scsi::sense::{Sense, SenseFormat};
use fabrix_proto::scsi::unit::{Answer, Outcome, lba_status};
use scsi_common::{BLOCKS, Bench, GOOD, Numbers, disk, sense};

fn vital(bench: &mut Bench, page: u8) -> Vec<u8> {
    bench.read(&[0x12, 1, page, 1, 0, 0])
}

#[test]
fn standard_inquiry() {
    let data = Bench::new().read(&[0x12, 0, 0, 1, 0, 0]);
    assert_eq!(data[..8], [0x00, 0, 0x06, 0x12, 91, 0x18, 0x10, 0x02]);
    assert_eq!(&data[8..36], b"FABRIX  RAM disk        0.1 ");
    assert_eq!(
        data[58..66],
        [0x00, 0xA0, 0x04, 0x60, 0x04, 0xC0, 0x09, 0x60]
    );
    assert_eq!(data.len(), 96);
    assert!(
        data[66..]
            .iter()
            .chain(&data[36..58])
            .all(|byte| *byte == 0)
    );
}

/// What is sent is never longer than what was asked for, nor than what there is.
#[test]
fn an_allocation_length_cuts_the_data_and_not_the_lengths_in_it() {
    let mut bench = Bench::new();
    for length in 0..=255u8 {
        let data = bench.read(&[0x12, 0, 0, 0, length, 0]);
        assert_eq!(data.len(), usize::from(length).min(96));
        assert!(data.get(4).is_none_or(|additional| *additional == 91));
    }
    assert_eq!(
        bench.read(&[0x12, 0, 0, 2, 0, 0]),
        bench.read(&[0x12, 0, 0, 1, 0xFF, 0])
    );
}

#[test]
fn a_page_smaller_than_the_data_is_never_overrun() {
    let mut bench = Bench::new();
    bench.page = vec![0; 10];
    let data = bench.read(&[0xA3, 0x0C, 0x80, 0, 0, 0, 0xFF, 0xFF, 0xFF, 0xFF, 0, 0]);
    assert_eq!(data.len(), 10);
    let commands = u32::from_be_bytes(*data.first_chunk::<4>().unwrap()) / 20;
    assert!(commands > 50, "the length says what there would have been");
}

#[test]
fn supported_vital_pages_are_sorted_and_all_readable() {
    let mut bench = Bench::new();
    let pages = vital(&mut bench, 0);
    assert_eq!(
        pages,
        [0, 0, 0, 7, 0x00, 0x80, 0x83, 0x86, 0xB0, 0xB1, 0xB2]
    );
    for code in &pages[4..] {
        let page = vital(&mut bench, *code);
        assert_eq!(page[1], *code);
        let length = u16::from_be_bytes([page[2], page[3]]);
        assert_eq!(usize::from(length) + 4, page.len());
    }
    let error = bench.sense(&[0x12, 1, 0xB3, 1, 0, 0]);
    assert_eq!(error, Sense::field_in_cdb(2, None));
}

#[test]
fn serial_number_and_identification() {
    let mut bench = Bench::new();
    assert_eq!(vital(&mut bench, 0x80), *b"\x00\x80\x00\x06FBX123");
    let mut expected = b"\x00\x83\x00\x00\x01\x03\x00\x08\x31\x23\x45\x67\x89\xAB\xCD\xEF".to_vec();
    expected.extend(b"\x01\x0A\x00\x12\x10\x00");
    expected.extend([0x55; 16]);
    expected.extend(b"\x02\x01\x00\x0EFABRIX  FBX123");
    expected.extend(b"\x51\x94\x00\x04\x00\x00\x00\x01\x51\x95\x00\x04\x00\x00\x00\x01");
    expected.extend(b"\x53\x98\x00\x28iqn.2026-01.dev.fabrix:disk,t,0x0001\0\0\0\0");
    expected.extend(b"\x53\xA8\x00\x1Ciqn.2026-01.dev.fabrix:disk\0");
    expected[3] = u8::try_from(expected.len() - 4).unwrap();
    assert_eq!(vital(&mut bench, 0x83), expected);
}

#[test]
fn a_registered_naa_identifier_says_its_type() {
    let mut disk = disk();
    disk.identity.naa = Naa::Registered([0xFF; 16]);
    let page = vital(&mut Bench::of(disk), 0x83);
    assert_eq!(page[4..9], [0x01, 0x03, 0, 16, 0x6F]);
}

#[test]
fn block_limits_are_those_that_commands_are_refused_by() {
    let page = vital(&mut Bench::new(), 0xB0);
    assert_eq!(page.len(), 64);
    assert_eq!(page[..8], [0, 0xB0, 0, 0x3C, 1, 16, 0, 8]);
    let words: Vec<u32> = page
        .as_chunks::<4>()
        .0
        .iter()
        .map(|w| u32::from_be_bytes(*w))
        .collect();
    assert_eq!(
        words[2..5],
        [2048, 128, 0],
        "transfer: most, optimal; prefetch"
    );
    assert_eq!(words[5..9], [1 << 20, 256, 8, 1 << 31], "unmap");
    assert_eq!(words[9..11], [0, 0xFFFF], "write same");
    assert_eq!(words[11..16], [8, 0, 0, 0, 0], "atomic");
}

#[test]
fn a_disk_that_cannot_does_not_promise() {
    let mut poor = disk();
    poor.deallocate = Deallocate::No;
    poor.atomic_write_blocks = 1;
    poor.compare_and_write_blocks = 0;
    let mut bench = Bench::of(poor);
    let page = vital(&mut bench, 0xB0);
    assert_eq!(page[5], 0);
    assert!(
        page[20..36]
            .iter()
            .chain(&page[44..])
            .all(|byte| *byte == 0)
    );
    assert_eq!(vital(&mut bench, 0xB2), [0, 0xB2, 0, 4, 0, 0, 0, 0]);
    let capacity = bench.read(&capacity_16(32));
    assert_eq!(capacity[14], 0);
}

#[test]
fn extended_inquiry_characteristics_and_provisioning() {
    let mut bench = Bench::new();
    let page = vital(&mut bench, 0x86);
    assert_eq!(
        (page.len(), &page[..7]),
        (64, &[0, 0x86, 0, 0x3C, 0, 1, 1][..])
    );
    assert_eq!(vital(&mut bench, 0xB1)[..6], [0, 0xB1, 0, 0x3C, 0, 1]);
    assert_eq!(vital(&mut bench, 0xB2), [0, 0xB2, 0, 4, 0, 0xE4, 2, 0]);
}

fn capacity_16(allocation: u8) -> [u8; 16] {
    let mut cdb = [0; 16];
    cdb[..2].copy_from_slice(&[0x9E, 0x10]);
    cdb[13] = allocation;
    cdb
}

#[test]
fn read_capacity() {
    let mut bench = Bench::new();
    let data = bench.read(&[0x25, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(data, [0, 0, 0xFF, 0xFF, 0, 0, 2, 0]);
    let data = bench.read(&capacity_16(32));
    assert_eq!(
        data[..16],
        [0, 0, 0, 0, 0, 0, 0xFF, 0xFF, 0, 0, 2, 0, 0, 3, 0xC0, 0]
    );
    assert_eq!(data.len(), 32);
}

/// CVE-2011-3346: the data of READ CAPACITY(16) went past the buffer of a shorter allocation
/// length.
#[test]
fn read_capacity_16_is_cut_to_every_allocation_length() {
    let mut bench = Bench::new();
    for length in 0..=255 {
        let data = bench.read(&capacity_16(length));
        assert_eq!(data.len(), usize::from(length).min(32));
    }
}

#[test]
fn a_disk_of_two_tebibytes_needs_the_longer_command() {
    let mut huge = disk();
    huge.blocks = 1 << 32;
    let data = Bench::of(huge).read(&[0x25, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(data[..4], [0xFF; 4]);
}

/// The list is cut to the allocation length, and the length in it is not.
#[test]
fn report_luns_in_pieces() {
    let mut bench = Bench::new();
    let luns = |allocation| [0xA0, 0, 0, 0, 0, 0, 0, 0, 0, allocation, 0, 0];
    let data = bench.read(&luns(255));
    assert_eq!(data[..8], [0, 0, 0, 24, 0, 0, 0, 0]);
    assert_eq!(data[8..16], [0; 8]);
    assert_eq!(data[16..24], [0, 1, 0, 0, 0, 0, 0, 0]);
    assert_eq!(
        data[24..32],
        [0x41, 0x2C, 0, 0, 0, 0, 0, 0],
        "flat addressing of 300"
    );
    assert_eq!(bench.read(&luns(0)), []);
    assert_eq!(bench.read(&luns(20)), data[..20]);
    let well_known = bench.read(&[0xA0, 0, 1, 0, 0, 0, 0, 0, 0, 255, 0, 0]);
    assert_eq!(well_known, [0; 8]);
}

#[test]
fn logical_unit_numbers_in_both_forms() {
    for lun in [0, 1, 255, 256, 0x3FFF] {
        assert_eq!(parse_lun(lun_bytes(lun)), Some(lun));
    }
    assert_eq!(parse_lun([0x40, 7, 0, 0, 0, 0, 0, 0]), Some(7));
    for other in [
        [0xC1, 1, 0, 0, 0, 0, 0, 0],
        [0, 1, 0, 1, 0, 0, 0, 0],
        [1, 1, 0, 0, 0, 0, 0, 0],
    ] {
        assert_eq!(parse_lun(other), None);
    }
}

#[test]
fn mode_sense_of_the_caching_page_in_all_its_values() {
    let mut bench = Bench::new();
    let caching = |bench: &mut Bench, control: u8| bench.read(&[0x1A, 8, control | 8, 0, 255, 0]);
    let current = caching(&mut bench, 0x00);
    assert_eq!(current[..7], [23, 0, 0x10, 0, 0x08, 0x12, 0x04]);
    assert_eq!(current.len(), 24);
    assert_eq!(caching(&mut bench, 0x40)[6], 0x04, "WCE may change");
    assert_eq!(caching(&mut bench, 0x80)[6], 0x04, "default");
    let saved = bench.sense(&[0x1A, 8, 0xC8, 0, 255, 0]);
    assert_eq!(saved.code, AdditionalSense::SAVING_NOT_SUPPORTED);
    bench.disk.volatile_cache = false;
    assert_eq!(
        caching(&mut bench, 0x40)[6],
        0,
        "there is no cache to switch"
    );
}

#[test]
fn mode_sense_of_all_pages_with_a_block_descriptor() {
    let mut bench = Bench::new();
    let all = bench.read(&[0x1A, 0, 0x3F, 0, 255, 0]);
    assert_eq!(all[..12], [107, 0, 0x10, 8, 0, 1, 0, 0, 0, 0, 2, 0]);
    let mut codes = Vec::new();
    let mut rest = &all[12..];
    while let [code, length, ..] = *rest {
        codes.push(code);
        rest = &rest[2 + usize::from(length)..];
    }
    assert_eq!(codes, [0x01, 0x08, 0x0A, 0x1A, 0x1C]);
    let with_subpages = bench.read(&[0x5A, 0x18, 0x3F, 0xFF, 0, 0, 0, 2, 0, 0]);
    assert_eq!(with_subpages.len(), 8 + 96 + 32);
    assert_eq!(with_subpages[..2], [0, 134]);
}

#[test]
fn mode_sense_10_with_a_long_block_descriptor() {
    let mut bench = Bench::new();
    let data = bench.read(&[0x5A, 0x10, 0x0A, 0, 0, 0, 0, 1, 0, 0]);
    assert_eq!(data[..8], [0, 34, 0, 0x10, 1, 0, 0, 16]);
    assert_eq!(
        data[8..24],
        [0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0]
    );
    assert_eq!(data[24..], [0x0A, 0x0A, 0, 0x10, 0, 0x40, 0, 0, 0, 0, 0, 0]);
}

#[test]
fn mode_pages_that_do_not_exist_are_pointed_at() {
    let mut bench = Bench::new();
    let page = bench.sense(&[0x1A, 0, 0x05, 0, 255, 0]);
    assert_eq!(page, Sense::field_in_cdb(2, Some(5)));
    let subpage = bench.sense(&[0x1A, 0, 0x0A, 2, 255, 0]);
    assert_eq!(subpage, Sense::field_in_cdb(3, None));
}

fn select(bench: &mut Bench, list: &[u8]) -> Outcome {
    let length = u8::try_from(list.len()).unwrap();
    bench.send_list(&[0x15, 0x10, 0, 0, length, 0], list)
}

const CONTROL_SWP: [u8; 16] = [0, 0, 0, 0, 0x0A, 0x0A, 4, 0x10, 8, 0x40, 0, 0, 0, 0, 0, 0];

#[test]
fn mode_select_changes_what_may_change() {
    let mut bench = Bench::new();
    let Outcome::Mode(mode) = select(&mut bench, &CONTROL_SWP) else {
        panic!("the mode changes");
    };
    assert!(mode.write_protect && mode.descriptor_sense && mode.write_cache);
    assert_eq!(mode.sense_format(), SenseFormat::Descriptor);
    bench.mode = mode;
    assert_eq!(bench.read(&[0x1A, 8, 0x3F, 0, 255, 0])[2], 0x90, "WP");
    assert_eq!(select(&mut bench, &CONTROL_SWP), GOOD, "the same again");
}

#[test]
fn mode_select_takes_back_what_mode_sense_gave() {
    let mut bench = Bench::new();
    let mut list = bench.read(&[0x1A, 0, 0x3F, 0xFF, 255, 0]);
    list[0] = 0;
    assert_eq!(select(&mut bench, &list), GOOD);
    list[12 + 12 + 2] = 0; // WCE
    let without_cache = ModeParameters {
        write_cache: false,
        ..bench.mode
    };
    assert_eq!(select(&mut bench, &list), Outcome::Mode(without_cache));
}

#[test]
fn mode_select_points_at_what_may_not_change() {
    let mut bench = Bench::new();
    let mut qerr = CONTROL_SWP;
    qerr[7] |= 0x02;
    assert_eq!(
        sense(select(&mut bench, &qerr)),
        Sense::field_in_parameters(7, Some(1))
    );
    let mut unknown = CONTROL_SWP;
    unknown[4] = 0x05;
    assert_eq!(
        sense(select(&mut bench, &unknown)),
        Sense::field_in_parameters(4, Some(5))
    );
    let resized = [0, 0, 0, 8, 0, 0, 0, 9, 0, 0, 2, 0];
    assert_eq!(
        sense(select(&mut bench, &resized)),
        Sense::field_in_parameters(4, None)
    );
    let blocks = [0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 16, 0];
    assert_eq!(
        sense(select(&mut bench, &blocks)),
        Sense::field_in_parameters(9, None)
    );
}

/// Every cut of a list is an error of its length and never read over.
#[test]
fn mode_select_lists_that_end_early() {
    let mut bench = Bench::new();
    assert_eq!(select(&mut bench, &[]), GOOD);
    for end in 1..CONTROL_SWP.len() {
        let outcome = select(&mut bench, &CONTROL_SWP[..end]);
        if end != 4 {
            let code = sense(outcome).code;
            assert_eq!(code, AdditionalSense::PARAMETER_LIST_LENGTH_ERROR, "{end}");
        }
    }
    let descriptor = sense(select(&mut bench, &[0, 0, 0, 200, 1, 2]));
    assert_eq!(
        descriptor.code,
        AdditionalSense::PARAMETER_LIST_LENGTH_ERROR
    );
    let short = bench.send_list(&[0x15, 0x10, 0, 0, 16, 0], &CONTROL_SWP[..8]);
    assert_eq!(
        sense(short).code,
        AdditionalSense::PARAMETER_LIST_LENGTH_ERROR
    );
}

/// CVE-2021-3930: MODE SELECT of "all pages" wrote past the page.
#[test]
fn all_pages_cannot_be_selected() {
    let mut bench = Bench::new();
    let mut list = CONTROL_SWP;
    list[4] = 0x3F;
    assert_eq!(
        sense(select(&mut bench, &list)),
        Sense::field_in_parameters(4, Some(5))
    );
}

#[test]
fn arbitrary_mode_lists_never_panic() {
    let mut bench = Bench::new();
    let mut numbers = Numbers(0xBEEF);
    for round in 0..50_000usize {
        let mut list = numbers.bytes(round % 64);
        for byte in list.iter_mut().take(8) {
            *byte &= 0x0F;
        }
        let long = u8::from(round % 2 == 0);
        let length = u8::try_from(list.len()).unwrap();
        let cdb = [
            0x15 + 0x40 * long,
            0x10,
            0,
            0,
            length * (1 - long),
            0,
            0,
            0,
            length,
            0,
        ];
        let _ = bench.send_list(&cdb[..6 + 4 * usize::from(long)], &list);
    }
}

#[test]
fn supported_operation_codes_one_by_one() {
    let mut bench = Bench::new();
    let all = bench.read(&[0xA3, 0x0C, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, 0, 0]);
    for entry in all[4..].as_chunks::<8>().0 {
        let [opcode, _, _, action, _, flags, _, length] = *entry;
        let acts = flags & 1;
        let ask = |option| {
            [
                0xA3, 0x0C, option, opcode, 0, action, 0, 0, 0xFF, 0xFF, 0, 0,
            ]
        };
        let one = bench.read(&ask(1 + acts));
        assert_eq!((one[1], one[3], one[4]), (3, length, opcode));
        assert_eq!(bench.read(&ask(3)), one);
        assert_eq!(bench.sense(&ask(2 - acts)), Sense::field_in_cdb(2, Some(2)));
    }
    let unknown = bench.read(&[0xA3, 0x0C, 1, 0x48, 0, 0, 0, 0, 0, 64, 0, 0]);
    assert_eq!(unknown, [0, 1, 0, 0]);
    let timed = bench.read(&[0xA3, 0x0C, 0x81, 0x28, 0, 0, 0, 0, 0, 64, 0, 0]);
    let expected = [
        0, 0x83, 0, 10, 0x28, 0x1A, 0xFF, 0xFF, 0xFF, 0xFF, 0x1F, 0xFF, 0xFF, 0, 0, 10,
    ];
    assert_eq!(timed[..16], expected);
    assert_eq!(timed.len(), 26);
}

#[test]
fn task_management_and_port_groups() {
    let mut bench = Bench::new();
    let functions = bench.read(&[0xA3, 0x0D, 0, 0, 0, 0, 0, 0, 0, 64, 0, 0]);
    assert_eq!(functions, [0x88, 0, 0, 0]);
    let extended = bench.read(&[0xA3, 0x0D, 0x80, 0, 0, 0, 0, 0, 0, 64, 0, 0]);
    assert_eq!((extended.len(), extended[3]), (16, 12));
    let groups = bench.read(&[0xA3, 0x0A, 0, 0, 0, 0, 0, 0, 0, 64, 0, 0]);
    let expected = [
        [0, 0, 0, 24],
        [0, 0x8B, 0, 1],
        [0, 0, 0, 1],
        [0, 0, 0, 1],
        [0, 0x8B, 0, 0xA2],
        [0, 0, 0, 1],
        [0, 0, 0, 2],
    ];
    assert_eq!(groups, expected.as_flattened());
    let extended = bench.read(&[0xA3, 0x2A, 0, 0, 0, 0, 0, 0, 0, 64, 0, 0]);
    assert_eq!(extended[..8], [0, 0, 0, 28, 0x10, 10, 0, 0]);
    assert_eq!(extended[8..], groups[4..]);
}

#[test]
fn defects_and_block_status() {
    let mut bench = Bench::new();
    let ten = bench.read(&[0x37, 0, 0x1D, 0, 0, 0, 0, 0, 32, 0]);
    assert_eq!(ten, [0, 0x1D, 0, 0]);
    let twelve = bench.read(&[0xB7, 0x18, 0, 0, 0, 0, 0, 0, 0, 32, 0, 0]);
    assert_eq!(twelve, [0, 0x18, 0, 0, 0, 0, 0, 0]);
    let mut status = [0x9E, 0x12, 0, 0, 0, 0, 0, 0, 0, 16, 0, 0, 0, 64, 0, 0];
    let asked = Outcome::LbaStatus {
        lba: 16,
        allocation: 64,
    };
    assert_eq!(bench.send(&status), asked);
    let run = |blocks, deallocated| LbaRun {
        blocks,
        deallocated,
    };
    let runs = [run(8, false), run(0x100, true), run(1, false), run(1, true)];
    let mut page = [0xEE; 128];
    assert_eq!(
        lba_status(16, 64, runs.into_iter(), &mut page),
        Answer::data(56)
    );
    assert_eq!(page[..8], [0, 0, 0, 4 + 48, 0, 0, 0, 0]);
    assert_eq!(
        page[8..24],
        [0, 0, 0, 0, 0, 0, 0, 16, 0, 0, 0, 8, 0, 0, 0, 0]
    );
    assert_eq!(
        page[24..40],
        [0, 0, 0, 0, 0, 0, 0, 24, 0, 0, 1, 0, 1, 0, 0, 0]
    );
    assert_eq!(
        page[40..56],
        [0, 0, 0, 0, 0, 0, 1, 24, 0, 0, 0, 1, 0, 0, 0, 0]
    );
    status[2..10].copy_from_slice(&BLOCKS.to_be_bytes());
    assert_eq!(bench.sense(&status).code, AdditionalSense::LBA_OUT_OF_RANGE);
}
