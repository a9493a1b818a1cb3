//! Reservation commands of NVMe hosts: every field that can be wrong is refused, and the report
//! stops where the page does.

mod nvme_common;

use fabrix_proto::nvme::command::{IoLimits, IoRequest};
use fabrix_proto::nvme::reservation::{
    AcquireAction, RegisterAction, ReservationRequest, nexus, write_report,
};
use fabrix_proto::nvme::spec::{Status, SubmissionEntry};
use fabrix_proto::scsi::reservation::{Initiator, Kind, Nexus, Reservations};
use nvme_common::Bench;

const LIMITS: IoLimits = IoLimits {
    max_transfer_bytes: 64 << 10,
    max_write_zeroes_bytes: 1 << 20,
    compare: true,
    verify: true,
};

/// What a command with these dwords 10 and 11 is answered.
fn check(entry: SubmissionEntry, cdw10: u32, expected: Result<(), Status>) {
    let mut entry = entry;
    entry.cdw10.set(cdw10);
    let bench = Bench::io();
    let parsed = IoRequest::parse(&entry, &bench.view, &LIMITS).map(drop);
    assert_eq!(parsed, expected, "opcode {:#x}, {cdw10:#x}", entry.opcode);
}

#[test]
fn refuses_actions_types_and_flags_that_do_not_exist() {
    let field = Err(Status::INVALID_FIELD);
    let acquire =
        SubmissionEntry::reservation_acquire(1, AcquireAction::Acquire, Kind::WriteExclusive);
    check(acquire, 0x0602, Ok(()));
    for cdw10 in [0x0003, 0x0000, 0x0700, 0x0108, 0x0001_0100] {
        check(acquire, cdw10, field);
    }
    let release = SubmissionEntry::reservation_release(1, None);
    check(release, 0x0001, Ok(()));
    for cdw10 in [0x0002, 0x0000, 0x0109] {
        check(release, cdw10, field);
    }
    let register = SubmissionEntry::reservation_register(1, RegisterAction::Register, false, None);
    check(register, 0x8000_000A, Ok(()));
    // CPTPL 01b is reserved; 11b asks for what this namespace does not keep.
    for cdw10 in [0x0003, 0x4000_0000, 0xC000_0000, 0x0010] {
        check(register, cdw10, field);
    }
    let report = SubmissionEntry::reservation_report(1, 4096);
    for cdw10 in [u32::MAX, u32::MAX >> 2, 64 << 10] {
        check(report, cdw10, field);
    }
}

#[test]
fn commands_come_with_the_keys_that_they_have() {
    let bench = Bench::io();
    let fits = |entry: SubmissionEntry, bytes: u32| {
        let request = IoRequest::parse(&entry, &bench.view, &LIMITS).expect("a command");
        request.check_sgl(bytes).is_ok()
    };
    let register =
        SubmissionEntry::reservation_register(1, RegisterAction::Register, true, Some(false));
    assert!(fits(register, 16) && !fits(register, 8) && !fits(register, 0));
    // Linux sends two keys.
    let release = SubmissionEntry::reservation_release(1, Some(Kind::ExclusiveAccess));
    assert!(fits(release, 8) && fits(release, 16) && !fits(release, 17));
    let report = SubmissionEntry::reservation_report(1, 64);
    assert!(fits(report, 64) && !fits(report, 60));
}

#[test]
fn a_report_is_cut_to_its_page_and_names_everybody() {
    let mut state = Reservations::new();
    let register = |state: &mut Reservations, who: &Nexus, key: u64| {
        let entry = SubmissionEntry::reservation_register(1, RegisterAction::Register, false, None);
        let bench = Bench::io();
        let parsed = IoRequest::parse(&entry, &bench.view, &LIMITS).expect("a command");
        let fabrix_proto::nvme::command::IoCommand::Reservation(command) = parsed.command else {
            panic!("{parsed:?}");
        };
        let data = [[0; 8], key.to_le_bytes()].concat();
        let request = ReservationRequest::new(command, &data).request(state, who);
        let request = request.expect("a key");
        state.apply(who, &request).expect("room");
    };
    register(&mut state, &nexus([9; 16]), 0x1122);
    let initiator = Nexus {
        initiator: Initiator::iscsi("iqn.2026-01.example:i", [1; 6]),
        port: 1,
    };
    register(&mut state, &initiator, 0x3344);
    let mut whole = [0xEE; 512];
    write_report(&state, &mut whole);
    assert_eq!(whole[..12], [2, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0]);
    assert_eq!(
        whole[64..84],
        [
            0xFF, 0xFF, 0, 0, 0, 0, 0, 0, 0x22, 0x11, 0, 0, 0, 0, 0, 0, 9, 9, 9, 9
        ]
    );
    assert_eq!(whole[136..138], [0x44, 0x33]);
    // Version and variant of a UUID.
    assert_eq!((whole[150] >> 4, whole[152] >> 6), (8, 2));
    assert!(whole[192..].iter().all(|byte| *byte == 0));
    for bytes in 0..whole.len() {
        let mut page = [0xEE; 512];
        write_report(&state, &mut page[..bytes]);
        assert_eq!(page[..bytes], whole[..bytes]);
        assert!(page[bytes..].iter().all(|byte| *byte == 0xEE));
    }
}
