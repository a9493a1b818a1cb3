//! EXTENDED COPY: its list, what is reported of it, and how libiscsi breaks it.

use fabrix_proto::scsi::additional::AdditionalSense;
use fabrix_proto::scsi::copy::{CopyList, CopyProgress, CopyStatus, Designator, Segment};
use fabrix_proto::scsi::sense::{Sense, SenseKey};
use fabrix_proto::scsi::unit::{Answer, Outcome, copy_status};

use super::scsi_common::{BLOCKS, Bench, GOOD, sense};

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

/// CVE-2020-28374: a copy reaches only disks that the executor found by name among those of the
/// initiator.
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
