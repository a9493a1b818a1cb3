//! The host's side against controllers that err or mean harm: each costs the connection, never more.

mod tcp_wire;

use fabrix_proto::nvme::spec::{CompletionEntry, Status, SubmissionEntry};
use fabrix_proto::nvme::tcp::host::{Event, Host, HostLimits, HostTransfer};
use fabrix_proto::nvme::tcp::pdu::{Digests, FLAG_LAST, FLAG_SUCCESS, InitializeResponse, PduType};
use fabrix_proto::{Machine, Slot, Want};
use tcp_wire::*;
use zerocopy::IntoBytes;

const FIELD: u16 = 1;
const SEQUENCE: u16 = 2;
const HEADER_DIGEST: u16 = 3;
const RANGE: u16 = 4;
const LIMIT: u16 = 5;
const UNSUPPORTED: u16 = 6;

const DATA_PDU: PduType = PduType::CONTROLLER_DATA;
const READ: HostTransfer = HostTransfer::Read { bytes: 4096 };
const WRITE: HostTransfer = HostTransfer::Write { bytes: 16384 };

/// Sends a command; what it was given as its id comes back.
fn command(side: &mut Side<Host>, slot: u16, transfer: HostTransfer) -> u16 {
    let opcode = match transfer {
        HostTransfer::Read { .. } => 0x02,
        HostTransfer::Write { .. } => 0x01,
        HostTransfer::None => 0x00,
    };
    let mut entry = SubmissionEntry::new(opcode);
    assert!(side.with(|host, out| host.command(Slot(slot), &mut entry, transfer, out)));
    entry.command_id.get()
}

/// A host with a command in slot 2, and the command's id.
fn busy(transfer: HostTransfer, digests: Digests) -> (Side<Host>, u16) {
    let mut side = ready_host(digests, 0, 8192);
    let command_id = command(&mut side, 2, transfer);
    side.take_sent();
    (side, command_id)
}

/// Feeds a PDU that must end the connection, and checks that nothing comes after the goodbye.
fn refuses(mut side: Side<Host>, pdu: &[u8], fes: u16, fei: u32) {
    side.take_events();
    side.take_sent();
    side.feed(pdu);
    assert_eq!(side.fatal(), (fes, fei), "{:?}", side.violation);
    assert_eq!(side.take_events(), []);
    let goodbye = side.take_sent();
    assert_eq!(
        (goodbye[0], goodbye[8]),
        (0x02, u8::try_from(fes).expect("small"))
    );
    side.feed(&response(0x0A, Status::SUCCESS, NONE));
    let mut entry = SubmissionEntry::new(0x02);
    assert!(!side.with(|host, out| host.command(Slot(7), &mut entry, READ, out)));
    assert_eq!((side.take_events().len(), side.take_sent().len()), (0, 0));
}

fn c2h(command_id: u16, offset: u32, bytes: usize, flags: u8) -> Vec<u8> {
    data_pdu(
        DATA_PDU,
        (command_id, 0),
        offset,
        &vec![1; bytes],
        flags,
        NONE,
    )
}

// ---- states and PDUs

#[derive(Clone, Copy, Debug, PartialEq)]
enum Outcome {
    Accepted,
    Goodbye,
    Fatal(u16),
}
use Outcome::{Accepted, Fatal, Goodbye};

/// Every kind of PDU, well formed: before ICResp, idle, with a read in slot 2, with a write there.
const TABLE: [(u8, [Outcome; 4]); 12] = [
    (0x00, [Fatal(SEQUENCE); 4]),
    (
        0x01,
        [Accepted, Fatal(SEQUENCE), Fatal(SEQUENCE), Fatal(SEQUENCE)],
    ),
    (0x02, [Fatal(SEQUENCE); 4]),
    (0x03, [Goodbye; 4]),
    (0x04, [Fatal(SEQUENCE); 4]),
    (0x05, [Fatal(SEQUENCE), Fatal(SEQUENCE), Accepted, Accepted]),
    (0x06, [Fatal(SEQUENCE); 4]),
    (
        0x07,
        [Fatal(SEQUENCE), Fatal(SEQUENCE), Accepted, Fatal(SEQUENCE)],
    ),
    (0x08, [Fatal(FIELD); 4]),
    (
        0x09,
        [Fatal(SEQUENCE), Fatal(SEQUENCE), Fatal(SEQUENCE), Accepted],
    ),
    (0x0A, [Fatal(FIELD); 4]),
    (0xFF, [Fatal(FIELD); 4]),
];

/// Slot 2, first generation, of 3 bits of slot.
const ID: u16 = 0x0A;

fn well_formed(kind: u8) -> Vec<u8> {
    match kind {
        0x01 => InitializeResponse::new(0, NONE, 8192).as_bytes().to_vec(),
        0x05 => response(ID, Status::SUCCESS, NONE),
        0x07 => c2h(ID, 0, 4096, FLAG_LAST),
        0x09 => r2t(ID, 7, 0, 16384, NONE),
        _ => {
            let bytes = PduType(kind).header_bytes().unwrap_or(24);
            let mut pdu = vec![kind, 0, bytes, 0, bytes, 0, 0, 0];
            pdu.resize(usize::from(bytes), 0);
            pdu
        }
    }
}

fn state(index: usize) -> Side<Host> {
    match index {
        0 => {
            let mut side = Side::new(Host::new(host_limits(), crc32c), 8, SLOT_BYTES);
            side.with(|host, out| host.start(out));
            side
        }
        1 => ready_host(NONE, 0, 8192),
        2 => busy(READ, NONE).0,
        _ => busy(WRITE, NONE).0,
    }
}

#[test]
fn every_pdu_has_one_outcome_in_every_state() {
    for (kind, outcomes) in TABLE {
        for (index, expected) in outcomes.into_iter().enumerate() {
            let mut side = state(index);
            side.feed(&well_formed(kind));
            let outcome = match (side.violation, side.events.first()) {
                (Some(violation), _) => Fatal(violation.fes()),
                (None, Some(Event::Goodbye)) => Goodbye,
                (None, _) => Accepted,
            };
            assert_eq!(outcome, expected, "PDU {kind:#04x} in state {index}");
            let closed = side.machine.want() == Want::Closed;
            assert_eq!(
                closed,
                expected != Accepted,
                "PDU {kind:#04x} in state {index}"
            );
        }
    }
}

#[test]
fn the_controllers_goodbye_says_why_and_ends_everything() {
    for digests in [NONE, BOTH] {
        let (mut side, _) = busy(READ, digests);
        side.feed(&[
            3, 0, 24, 0, 24, 0, 0, 0, 1, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
        ]);
        assert_eq!(side.event(), Event::Goodbye);
        let reason = side.machine.goodbye().expect("it said why");
        assert_eq!((reason.status, reason.information), (1, 2));
        assert_eq!(
            (side.machine.want(), side.machine.is_ready()),
            (Want::Closed, false)
        );
    }
}

#[test]
fn every_wrong_header_length_is_refused() {
    for (kind, index) in [(0x01, 0), (0x03, 1), (0x05, 2), (0x07, 2), (0x09, 3)] {
        let right = PduType(kind).header_bytes();
        for hlen in (0..=u8::MAX).filter(|hlen| Some(*hlen) != right) {
            let mut pdu = well_formed(kind);
            pdu[2] = hlen;
            refuses(state(index), &pdu, FIELD, 2);
        }
    }
}

#[test]
fn every_impossible_pdu_length_is_refused() {
    let cases: [(u8, usize, &[u32]); 5] = [
        (0x01, 0, &[0, 24, 127, 129, u32::MAX]),
        (0x03, 1, &[0, 23, 153, u32::MAX]),
        (0x05, 2, &[0, 8, 23, 25, 28, u32::MAX]),
        (0x07, 2, &[0, 24, 24 + 4095, 24 + 4097, 24 + 4100, u32::MAX]),
        (0x09, 3, &[0, 23, 25, 28, u32::MAX]),
    ];
    for (kind, index, plens) in cases {
        for plen in plens {
            let mut pdu = well_formed(kind);
            pdu[4..8].copy_from_slice(&plen.to_le_bytes());
            refuses(state(index), &pdu, FIELD, 4);
        }
    }
}

#[test]
fn data_offsets_into_the_header_or_off_the_grid_are_refused() {
    for pdo in [0, 8, 20, 23, 25, 26, 27] {
        let mut pdu = well_formed(0x07);
        pdu[3] = pdo;
        refuses(state(2), &pdu, FIELD, 3);
    }
    let mut pdu = data_pdu(DATA_PDU, (ID, 0), 0, &[1; 4096], FLAG_LAST, HEADER);
    pdu[3] = 24; // over the digest
    refuses(busy(READ, HEADER).0, &pdu, FIELD, 3);
}

#[test]
fn reserved_flags_and_digests_not_agreed_are_refused() {
    for (kind, index, allowed) in [
        (0x01, 0, 0),
        (0x05, 2, 0),
        (0x07, 2, FLAG_LAST | FLAG_SUCCESS),
        (0x09, 3, 0),
    ] {
        for flags in (0..=u8::MAX).filter(|flags| flags & !allowed != 0) {
            let mut pdu = well_formed(kind);
            pdu[1] = flags;
            refuses(state(index), &pdu, FIELD, 1);
        }
    }
    for pdu in [
        response(ID, Status::SUCCESS, NONE),
        c2h(ID, 0, 4096, FLAG_LAST),
    ] {
        let mut pdu = pdu;
        pdu[4] += 4; // room for the digest, but no flag for it
        refuses(busy(READ, HEADER).0, &pdu, FIELD, 1);
    }
}

// ---- the opening

/// A host that wants these digests is sent this ICResp.
fn opening(wanted: Digests, fewer_digests: bool, response: &InitializeResponse) -> Side<Host> {
    let limits = HostLimits {
        header_digest: wanted.header,
        data_digest: wanted.data,
        fewer_digests,
        ..host_limits()
    };
    let mut side = Side::new(Host::new(limits, crc32c), 8, SLOT_BYTES);
    side.with(|host, out| host.start(out));
    side.feed(response.as_bytes());
    side
}

#[test]
fn digests_must_be_those_asked_for() {
    for wanted in [NONE, HEADER, DATA, BOTH] {
        for given in [NONE, HEADER, DATA, BOTH] {
            let added = given.header && !wanted.header || given.data && !wanted.data;
            for fewer in [false, true] {
                let side = opening(wanted, fewer, &InitializeResponse::new(0, given, 4096));
                let accepted = given == wanted || fewer && !added;
                assert_eq!(
                    side.machine.is_ready(),
                    accepted,
                    "{wanted:?} {given:?} {fewer}"
                );
                if !accepted {
                    assert_eq!(side.fatal(), (if added { FIELD } else { UNSUPPORTED }, 11));
                }
            }
        }
    }
}

#[test]
fn impossible_values_in_icresp_are_refused() {
    let check = |change: fn(&mut InitializeResponse), expected| {
        let mut response = InitializeResponse::new(0, NONE, 4096);
        change(&mut response);
        assert_eq!(opening(NONE, false, &response).fatal(), expected);
    };
    check(|it| it.format_version.set(1), (UNSUPPORTED, 8));
    check(|it| it.controller_alignment = 32, (FIELD, 10));
    check(|it| it.controller_alignment = 255, (FIELD, 10));
    check(|it| it.max_h2c_bytes.set(0), (FIELD, 12));
    check(|it| it.max_h2c_bytes.set(4092), (FIELD, 12));
    check(|it| it.max_h2c_bytes.set(4098), (FIELD, 12));
}

#[test]
fn no_command_leaves_before_the_controller_has_agreed() {
    let mut side = state(0);
    side.take_sent();
    let mut entry = SubmissionEntry::new(0x02);
    assert!(!side.with(|host, out| host.command(Slot(0), &mut entry, READ, out)));
    assert_eq!(
        (side.take_sent().len(), side.machine.slots_in_use()),
        (0, 0)
    );
}

// ---- commands and answers

#[test]
fn a_slot_holds_one_command_at_a_time() {
    let (mut side, _) = busy(READ, NONE);
    let mut entry = SubmissionEntry::new(0x02);
    for slot in [2, 8, u16::MAX] {
        assert!(!side.with(|host, out| host.command(Slot(slot), &mut entry, READ, out)));
    }
    assert_eq!(
        (side.take_sent().len(), side.machine.slots_in_use()),
        (0, 1)
    );
}

#[test]
fn a_response_and_a_small_read_cost_one_and_two_calls() {
    let (mut side, command_id) = busy(READ, NONE);
    side.calls = 0;
    side.feed(&c2h(command_id, 0, 4096, FLAG_LAST | FLAG_SUCCESS));
    assert_eq!((side.calls, side.events.len()), (2, 1));
    let command_id = command(&mut side, 2, HostTransfer::None);
    side.feed(&response(command_id, Status::SUCCESS, NONE));
    assert_eq!((side.calls, side.events.len()), (3, 2));
}

#[test]
fn answers_to_nobody_end_the_connection() {
    let (side, command_id) = busy(READ, NONE);
    drop(side);
    for wrong in [
        0,
        command_id ^ 1,
        command_id ^ 0x08,
        command_id | 0x8000,
        2,
        u16::MAX,
    ] {
        refuses(
            state(2),
            &response(wrong, Status::SUCCESS, NONE),
            SEQUENCE,
            0,
        );
        refuses(state(2), &c2h(wrong, 0, 512, 0), SEQUENCE, 0);
        refuses(state(3), &r2t(wrong, 0, 0, 4096, NONE), SEQUENCE, 0);
    }
}

#[test]
fn an_answer_to_the_slots_last_command_is_not_taken_for_this_one() {
    let (mut side, stale) = busy(READ, NONE);
    side.feed(&response(stale, Status::SUCCESS, NONE));
    let fresh = command(&mut side, 2, READ);
    assert_ne!(stale, fresh);
    refuses(side, &response(stale, Status::SUCCESS, NONE), SEQUENCE, 0);
}

#[test]
fn a_command_id_comes_again_only_after_all_generations_and_is_never_ffff() {
    for (max_slots, slot) in [(8, 7), (1, 0), (4096, 4095), (u16::MAX, 4095), (100, 99)] {
        let limits = HostLimits {
            max_slots,
            ..host_limits()
        };
        let mut side = Side::new(Host::new(limits, crc32c), 1, 0);
        side.with(|host, out| host.start(out));
        side.feed(InitializeResponse::new(0, NONE, 4096).as_bytes());
        let mut last = Vec::new();
        for _ in 0..40 {
            let command_id = command(&mut side, slot, HostTransfer::None);
            assert_ne!(command_id, u16::MAX);
            assert!(
                !last
                    .iter()
                    .rev()
                    .take(14)
                    .any(|earlier| *earlier == command_id)
            );
            last.push(command_id);
            side.feed(&response(command_id, Status::SUCCESS, NONE));
        }
        assert_eq!((side.violation, side.machine.slots_in_use()), (None, 0));
    }
}

#[test]
fn a_command_is_answered_once() {
    let (mut side, command_id) = busy(READ, NONE);
    side.feed(&c2h(command_id, 0, 4096, FLAG_LAST | FLAG_SUCCESS));
    let Event::Completed {
        slot: Slot(2),
        entry,
        data_bytes: 4096,
        intact: true,
    } = side.event()
    else {
        panic!("a completion was expected");
    };
    assert_eq!(
        (entry.status(), entry.command_id.get()),
        (Status::SUCCESS, command_id)
    );
    refuses(
        side,
        &response(command_id, Status::SUCCESS, NONE),
        SEQUENCE,
        0,
    );
}

#[test]
fn the_answer_carries_status_and_result_as_they_came() {
    let (mut side, command_id) = busy(READ, NONE);
    let mut pdu = response(command_id, Status::UNRECOVERED_READ_ERROR, NONE);
    pdu[8..16].copy_from_slice(&u64::to_le_bytes(0x1122_3344_5566_7788));
    side.feed(&pdu);
    let mut expected = CompletionEntry::new(Status::UNRECOVERED_READ_ERROR, 0x1122_3344_5566_7788);
    expected.command_id.set(command_id);
    let event = Event::Completed {
        slot: Slot(2),
        entry: expected,
        data_bytes: 0,
        intact: true,
    };
    assert_eq!(side.event(), event);
}

// ---- data of reads

#[test]
fn data_comes_in_pieces_and_straight_into_its_place() {
    let (mut side, command_id) = busy(READ, NONE);
    let payload = pattern(4096, 4);
    for (offset, bytes, flags) in [(0, 512, 0), (512, 4, 0), (516, 3580, FLAG_LAST)] {
        let piece = &payload[offset..offset + bytes];
        let offset = u32::try_from(offset).expect("small");
        side.feed(&data_pdu(
            DATA_PDU,
            (command_id, 0),
            offset,
            piece,
            flags,
            NONE,
        ));
        assert_eq!(side.take_events(), []);
    }
    side.feed(&response(command_id, Status::SUCCESS, NONE));
    assert!(matches!(
        side.event(),
        Event::Completed {
            data_bytes: 4096,
            intact: true,
            ..
        }
    ));
    assert_eq!(side.memory[2][..4096], payload);
    assert!(side.memory[2][4096..].iter().all(|byte| *byte == 0));
}

#[test]
fn padding_that_was_not_asked_for_does_no_harm() {
    for digests in [NONE, BOTH] {
        let (mut side, command_id) = busy(READ, digests);
        let plain = data_pdu(DATA_PDU, (command_id, 0), 0, b"abcd", FLAG_LAST, digests);
        let payload = plain[usize::from(plain[3])..].to_vec();
        let mut header = plain[..24].to_vec();
        header[3] = 128;
        header[4..8].copy_from_slice(&u32::to_le_bytes(128 + if digests.data { 8 } else { 4 }));
        let mut pdu = sealed(&header, digests);
        pdu.extend(payload);
        side.feed(&pdu);
        side.feed(&response(command_id, Status::SUCCESS, digests));
        assert!(matches!(
            side.event(),
            Event::Completed {
                data_bytes: 4,
                intact: true,
                ..
            }
        ));
        assert_eq!(side.memory[2][..4], *b"abcd");
    }
}

#[test]
fn data_that_was_not_asked_for_is_refused() {
    let id = ID;
    for (offset, fes) in [(1, RANGE), (512, RANGE), (4096, RANGE), (u32::MAX, RANGE)] {
        refuses(state(2), &c2h(id, offset, 512, 0), fes, 0);
    }
    refuses(state(2), &c2h(id, 0, 4100, FLAG_LAST), RANGE, 0);
    refuses(state(2), &c2h(id, 0, 0, FLAG_LAST), FIELD, 16);
    refuses(state(2), &c2h(id, 0, 4096, FLAG_SUCCESS), FIELD, 1);
    let after = |flags, bytes| {
        let mut side = state(2);
        side.feed(&c2h(id, 0, bytes, flags));
        side
    };
    refuses(after(0, 512), &c2h(id, 0, 512, 0), RANGE, 0); // again
    refuses(after(0, 512), &c2h(id, 1024, 512, 0), RANGE, 0); // a gap
    refuses(after(0, 512), &c2h(id, 512, 3588, 0), RANGE, 0); // past the end
    refuses(after(0, 4096), &c2h(id, 4096, 4, 0), RANGE, 0);
    refuses(after(FLAG_LAST, 512), &c2h(id, 512, 512, 0), SEQUENCE, 0);
    let mut header = c2h(id, 0, 4, FLAG_LAST);
    header[4..8].copy_from_slice(&u32::to_le_bytes(u32::MAX));
    header[16..20].copy_from_slice(&u32::to_le_bytes(u32::MAX - 24));
    refuses(state(2), &header[..24], RANGE, 0);
    header[16..20].copy_from_slice(&u32::to_le_bytes(u32::MAX));
    refuses(state(2), &header[..24], FIELD, 4); // 24 + DATAL does not wrap
}

#[test]
fn data_for_a_command_that_does_not_read_is_refused() {
    for transfer in [
        HostTransfer::None,
        WRITE,
        HostTransfer::Write { bytes: 4096 },
    ] {
        let (side, command_id) = busy(transfer, NONE);
        refuses(side, &c2h(command_id, 0, 512, 0), SEQUENCE, 0);
    }
}

#[test]
fn a_read_that_succeeds_with_too_little_says_how_much_came() {
    let (mut side, command_id) = busy(READ, NONE);
    side.feed(&c2h(command_id, 0, 512, FLAG_LAST | FLAG_SUCCESS));
    assert!(matches!(
        side.event(),
        Event::Completed {
            data_bytes: 512,
            ..
        }
    ));
    let command_id = command(&mut side, 2, READ);
    side.feed(&response(command_id, Status::SUCCESS, NONE));
    assert!(matches!(
        side.event(),
        Event::Completed { data_bytes: 0, .. }
    ));
}

// ---- R2T

#[test]
fn r2ts_that_a_write_does_not_allow_are_refused() {
    for offset in [4, 8192, 16384, u32::MAX] {
        refuses(state(3), &r2t(ID, 0, offset, 4096, NONE), RANGE, 0);
    }
    for bytes in [16385, 1 << 31, u32::MAX] {
        refuses(state(3), &r2t(ID, 0, 0, bytes, NONE), RANGE, 0);
    }
    refuses(state(3), &r2t(ID, 0, 0, 0, NONE), FIELD, 16);
    let after = |bytes| {
        let mut side = state(3);
        side.feed(&r2t(ID, 0, 0, bytes, NONE));
        side
    };
    refuses(after(8192), &r2t(ID, 0, 0, 8192, NONE), RANGE, 0); // again
    refuses(after(8192), &r2t(ID, 0, 4096, 4096, NONE), RANGE, 0); // overlapping
    refuses(after(8192), &r2t(ID, 0, 12288, 4096, NONE), RANGE, 0); // a gap
    refuses(after(8192), &r2t(ID, 0, 8192, 8196, NONE), RANGE, 0); // past the end
    refuses(after(16384), &r2t(ID, 0, 16384, 4, NONE), RANGE, 0);
    refuses(after(16384), &r2t(ID, 0, 16384, 0, NONE), FIELD, 16);
}

#[test]
fn r2ts_for_commands_without_data_to_ask_for_are_refused() {
    for transfer in [
        HostTransfer::None,
        READ,
        HostTransfer::Write { bytes: 4096 },
    ] {
        let (side, command_id) = busy(transfer, NONE);
        refuses(side, &r2t(command_id, 0, 0, 512, NONE), SEQUENCE, 0);
    }
}

#[test]
fn a_write_is_not_sent_in_crumbs() {
    let (mut side, command_id) = busy(WRITE, NONE);
    for piece in 0..6 {
        side.feed(&r2t(command_id, 0, piece * 4, 4, NONE));
    }
    assert_eq!(side.take_sent().len(), 6 * 28);
    refuses(side, &r2t(command_id, 0, 24, 4, NONE), LIMIT, 0);
}

#[test]
fn each_r2t_is_answered_with_its_tag_split_at_maxh2cdata_and_a_last() {
    let (mut side, command_id) = busy(WRITE, NONE);
    side.memory[2] = pattern(16384, 8);
    let mut expected = Vec::new();
    let mut piece = |offset: usize, bytes: usize, tag, flags| {
        let payload = &side.memory[2][offset..offset + bytes];
        let offset = u32::try_from(offset).expect("small");
        let kind = PduType::HOST_DATA;
        expected.extend(data_pdu(
            kind,
            (command_id, tag),
            offset,
            payload,
            flags,
            NONE,
        ));
    };
    piece(0, 8192, 0xAAAA, 0);
    piece(8192, 100, 0xAAAA, FLAG_LAST);
    piece(8292, 8092, 0x5555, FLAG_LAST);
    side.feed(&r2t(command_id, 0xAAAA, 0, 8292, NONE));
    side.feed(&r2t(command_id, 0x5555, 8292, 8092, NONE));
    assert_eq!(side.take_sent(), expected);
    side.feed(&response(command_id, Status::SUCCESS, NONE));
    assert!(matches!(
        side.event(),
        Event::Completed {
            data_bytes: 16384,
            ..
        }
    ));
}

#[test]
fn h2cdata_begins_where_the_controller_wants_it() {
    let mut side = ready_host(BOTH, 31, 8192);
    let command_id = command(&mut side, 2, WRITE);
    side.take_sent();
    side.feed(&r2t(command_id, 1, 0, 4, BOTH));
    let sent = side.take_sent();
    assert_eq!((sent.len(), sent[3]), (128 + 4 + 4, 128));
    assert_eq!(sent[24..28], crc32c(&sent[..24]).to_le_bytes());
    assert_eq!(sent[132..], crc32c(&sent[128..132]).to_le_bytes());
}

#[test]
fn in_capsule_data_goes_as_far_as_the_limit_and_fabrics_have_their_own() {
    let mut side = ready_host(NONE, 0, 8192);
    let mut lengths = |opcode, bytes| {
        let mut entry = SubmissionEntry::new(opcode);
        let transfer = HostTransfer::Write { bytes };
        assert!(side.with(|host, out| host.command(Slot(1), &mut entry, transfer, out)));
        side.feed(&response(entry.command_id.get(), Status::SUCCESS, NONE));
        let sent = side.take_sent();
        side.machine.set_in_capsule(4096);
        (sent.len(), entry.sgl.kind.0)
    };
    assert_eq!(lengths(0x01, 8192), (72 + 8192, 0x01)); // before set_in_capsule: an admin queue
    assert_eq!(lengths(0x01, 4096), (72 + 4096, 0x01));
    assert_eq!(lengths(0x01, 4100), (72, 0x5A));
    assert_eq!(lengths(0x7F, 8192), (72 + 8192, 0x01));
    assert_eq!(lengths(0x7F, 8196), (72, 0x5A));
    assert_eq!(lengths(0x01, 0), (72, 0x5A));
}

// ---- digests

#[test]
fn a_wrong_header_digest_ends_the_connection() {
    for (pdu, transfer) in [
        (response(ID, Status::SUCCESS, HEADER), READ),
        (data_pdu(DATA_PDU, (ID, 0), 0, &[1; 512], 0, HEADER), READ),
        (r2t(ID, 0, 0, 4096, HEADER), WRITE),
    ] {
        for byte in [8, 15, 23, 24, 27] {
            let mut pdu = pdu.clone();
            pdu[byte] ^= 1;
            refuses(busy(transfer, HEADER).0, &pdu, HEADER_DIGEST, 0);
        }
    }
}

#[test]
fn a_wrong_data_digest_costs_that_command_only() {
    for digests in [DATA, BOTH] {
        let (mut side, command_id) = busy(READ, digests);
        let mut pdu = data_pdu(DATA_PDU, (command_id, 0), 0, &[1; 2048], 0, digests);
        pdu[100] ^= 1;
        side.feed(&pdu);
        let flags = FLAG_LAST | FLAG_SUCCESS;
        side.feed(&data_pdu(
            DATA_PDU,
            (command_id, 0),
            2048,
            &[1; 2048],
            flags,
            digests,
        ));
        assert!(matches!(
            side.event(),
            Event::Completed { intact: false, .. }
        ));
        let command_id = command(&mut side, 2, READ);
        side.feed(&data_pdu(
            DATA_PDU,
            (command_id, 0),
            0,
            &[1; 4096],
            flags,
            digests,
        ));
        assert!(matches!(
            side.event(),
            Event::Completed { intact: true, .. }
        ));
    }
}
