//! The full-feature phase: each PDU in each state, the window, task management, text, pings, and random input.

mod iscsi_wire;

use fabrix_proto::iscsi::pdu::{AsyncEvent, Lun, TaskFunction, TaskManagementOutcome};
use fabrix_proto::iscsi::target::{Answer, Event, LogoutReason, Scope, TargetLimits, Transfer};
use fabrix_proto::{Breach, Slot};
use iscsi_wire::*;

const NO_TAG: u32 = u32::MAX;

// ---- states and PDUs

#[derive(Clone, Copy, Debug, PartialEq)]
enum Outcome {
    /// An event for the adapter.
    Told,
    /// A PDU of this kind.
    Said(u8),
    /// Reject with this reason, and the connection goes on.
    Rejected(u8),
    /// Nothing at all.
    Silent,
    /// Reject with this reason, and the end.
    Ended(u8),
    /// A Login Response with this status, and the end.
    Refused(u16),
}
use Outcome::{Ended, Refused, Rejected, Said, Silent, Told};

const DURING: Outcome = Refused(0x020B);

/// Every kind of PDU, well formed: before the login, in a discovery session, in a normal one, with a write whose data
/// was asked for, after a logout request.
const TABLE: [(u8, [Outcome; 5]); 17] = [
    (0x40, [DURING, Said(0x20), Said(0x20), Said(0x20), Silent]),
    (0x01, [DURING, Rejected(4), Told, Told, Silent]),
    (0x42, [DURING, Said(0x22), Told, Told, Silent]),
    (
        0x43,
        [Refused(0x0200), Ended(4), Ended(4), Ended(4), Silent],
    ),
    (0x44, [DURING, Told, Told, Told, Silent]),
    (0x05, [DURING, Silent, Silent, Told, Silent]),
    (0x46, [DURING, Told, Told, Told, Silent]),
    (
        0x10,
        [DURING, Rejected(3), Rejected(3), Rejected(3), Silent],
    ),
    (
        0x07,
        [DURING, Rejected(5), Rejected(5), Rejected(5), Silent],
    ),
    (
        0x1C,
        [DURING, Rejected(5), Rejected(5), Rejected(5), Silent],
    ),
    (
        0x20,
        [DURING, Rejected(5), Rejected(5), Rejected(5), Silent],
    ),
    (
        0x21,
        [DURING, Rejected(5), Rejected(5), Rejected(5), Silent],
    ),
    (
        0x25,
        [DURING, Rejected(5), Rejected(5), Rejected(5), Silent],
    ),
    (
        0x31,
        [DURING, Rejected(5), Rejected(5), Rejected(5), Silent],
    ),
    (
        0x32,
        [DURING, Rejected(5), Rejected(5), Rejected(5), Silent],
    ),
    (
        0x3F,
        [DURING, Rejected(5), Rejected(5), Rejected(5), Silent],
    ),
    (
        0x7F,
        [DURING, Rejected(5), Rejected(5), Rejected(5), Silent],
    ),
];

fn state(index: usize) -> Wire {
    match index {
        0 => Wire::new(limits()),
        1 => discovery(),
        2 => logged_in(limits(), &[]),
        3 => {
            let mut wire = logged_in(limits(), &[]);
            wire.send(&command_pdu(WRITE, 0x22, FIRST, 512));
            let slot = wire.command();
            wire.fetch(slot);
            assert_eq!(wire.reply().get32(20), 1, "the tag of slot 0");
            wire
        }
        _ => {
            let mut wire = logged_in(limits(), &[]);
            wire.send(&Pdu::new(0x46, 0x80).itt(2).cmd_sn(FIRST));
            wire.event();
            wire
        }
    }
}

fn discovery() -> Wire {
    let mut wire = Wire::new(limits());
    wire.send(&login_pdu(TO_FULL, &[INITIATOR, "SessionType=Discovery"]));
    wire.take_events();
    wire.reply();
    wire
}

fn well_formed(opcode: u8, index: usize) -> Pdu {
    let cmd_sn = if index == 3 { FIRST + 1 } else { FIRST };
    match opcode {
        0x01 => command_pdu(READ, 0x33, cmd_sn, 512),
        0x42 => Pdu::new(0x42, 0x85).itt(0x33).cmd_sn(cmd_sn),
        0x44 => {
            let targets = if index == 1 {
                "SendTargets=All"
            } else {
                "SendTargets="
            };
            let pdu = Pdu::new(0x44, 0x80).itt(0x33).ttt(NO_TAG).cmd_sn(cmd_sn);
            pdu.data(&text(&[targets]))
        }
        0x05 => data_out(0x80, 0x22, 1, (0, 0), &[1; 512]),
        _ => Pdu::new(opcode, 0x80).itt(0x33).ttt(NO_TAG).cmd_sn(cmd_sn),
    }
}

fn outcome(wire: &mut Wire) -> Outcome {
    let said = wire.said();
    let first = said.first();
    match (wire.is_closed(), first) {
        (true, Some(pdu)) if pdu.bhs[0] == 0x23 => {
            Refused(u16::from_be_bytes([pdu.bhs[36], pdu.bhs[37]]))
        }
        (true, Some(pdu)) => Ended(pdu.bhs[2]),
        (false, Some(pdu)) if pdu.bhs[0] == 0x3F => Rejected(pdu.bhs[2]),
        (false, Some(pdu)) => Said(pdu.bhs[0]),
        (_, None) if wire.events.is_empty() => Silent,
        (_, None) => Told,
    }
}

#[test]
fn every_pdu_has_one_outcome_in_every_state() {
    for (opcode, outcomes) in TABLE {
        for (index, expected) in outcomes.into_iter().enumerate() {
            let mut wire = state(index);
            wire.send(&well_formed(opcode, index));
            assert_eq!(
                outcome(&mut wire),
                expected,
                "PDU {opcode:#04x} in state {index}"
            );
        }
    }
}

#[test]
fn what_is_rejected_is_read_over_and_the_next_pdu_is_understood() {
    for opcode in [0x42, 0x46, 0x10, 0x07, 0x31] {
        for keys in [&[][..], &DIGESTS] {
            let mut wire = logged_in(limits(), keys);
            wire.send(&Pdu::new(opcode, 0x80).itt(1).cmd_sn(FIRST).data(&[1; 9001]));
            assert_eq!(wire.reply().bhs[0], 0x3F);
            wire.send(&Pdu::new(0x40, 0x80).itt(2).ttt(NO_TAG));
            assert_eq!(wire.reply().bhs[0], 0x20);
        }
    }
}

#[test]
fn every_byte_of_a_session_may_be_cut_at() {
    let keys = [&DIGESTS[..], &["InitialR2T=No"]].concat();
    let script = [
        command_pdu(WRITE_MORE, 1, FIRST, 300).data(&[1; 100]),
        data_out(0x80, 1, NO_TAG, (0, 100), &[2; 200]),
        Pdu::new(0x00, 0x80)
            .itt(2)
            .ttt(NO_TAG)
            .cmd_sn(FIRST + 1)
            .data(b"abc"),
        command_pdu(WRITE, 3, FIRST.wrapping_add(2), 3).data(&[9; 3]),
        Pdu::new(0x10, 0x80).data(&[0; 5]),
        Pdu::new(0x46, 0x80).itt(9).cmd_sn(FIRST.wrapping_add(3)),
    ];
    let bytes: Vec<u8> = script.iter().flat_map(|pdu| pdu.bytes(BOTH)).collect();
    let mut whole = logged_in(limits(), &keys);
    whole.feed(&bytes);
    assert_eq!(whole.events.len(), 4);
    for cut in 0..bytes.len() {
        let mut wire = logged_in(limits(), &keys);
        wire.feed(&bytes[..cut]);
        wire.feed(&bytes[cut..]);
        assert_eq!(wire.events, whole.events, "cut at {cut}");
        assert_eq!((&wire.sent, &wire.memory), (&whole.sent, &whole.memory));
    }
}

// ---- digests and lengths

#[test]
fn a_damaged_header_ends_the_connection_without_a_word() {
    let pdu = command_pdu(WRITE, 1, FIRST, 512).data(&[1; 512]);
    for place in 0..48 {
        let mut wire = logged_in(limits(), &DIGESTS);
        let mut bytes = pdu.bytes(BOTH);
        bytes[place] ^= 0x40;
        wire.feed(&bytes);
        let breach = wire.violation.expect("a violation").breach();
        assert_eq!(
            (breach, wire.sent.len()),
            (Breach::HeaderDigest, 0),
            "byte {place}"
        );
        assert!(wire.take_events().is_empty());
    }
    let mut wire = logged_in(limits(), &DIGESTS);
    let mut bytes = pdu.bytes(BOTH);
    bytes[48] ^= 1;
    wire.feed(&bytes);
    let breach = wire.violation.expect("a violation").breach();
    assert_eq!((breach, wire.sent.len()), (Breach::HeaderDigest, 0));
}

#[test]
fn a_damaged_ping_is_rejected_and_the_connection_goes_on() {
    let mut wire = logged_in(limits(), &DIGESTS);
    let mut bytes = Pdu::new(0x00, 0x80)
        .itt(1)
        .ttt(NO_TAG)
        .cmd_sn(FIRST)
        .data(b"ping")
        .bytes(BOTH);
    bytes[52] ^= 1;
    wire.feed(&bytes);
    assert_eq!(wire.reply().bhs[2], 2);
    wire.send(&command_pdu(READ, 2, FIRST + 1, 4));
    wire.command();
}

#[test]
fn a_segment_beyond_what_was_declared_ends_the_connection() {
    for opcode in [0x00, 0x01, 0x04, 0x05, 0x10, 0x3F] {
        let mut wire = logged_in(limits(), &[]);
        wire.send(&Pdu::new(opcode, 0x80).put(5, &[0x04, 0x00, 0x01]));
        assert_eq!(outcome(&mut wire), Ended(4), "{opcode:#x}");
    }
}

#[test]
fn additional_headers_belong_to_commands_and_have_their_length() {
    let mut wire = logged_in(limits(), &[]);
    wire.send(&Pdu::new(0x40, 0x80).ahs(&[0, 1, 1, 0]));
    assert_eq!(outcome(&mut wire), Ended(9));
    let mut wire = logged_in(limits(), &[]);
    wire.send(&command_pdu(READ, 1, FIRST, 4).ahs(&[0, 9, 1, 0]));
    assert_eq!(outcome(&mut wire), Ended(9));
}

// ---- the window

#[test]
fn commands_outside_the_window_are_ignored_silently() {
    let keys = ["InitialR2T=No"];
    for cmd_sn in [
        FIRST - 1,
        FIRST - 1000,
        FIRST.wrapping_add(4),
        FIRST.wrapping_add(1 << 31),
    ] {
        let mut wire = logged_in(limits(), &keys);
        wire.send(&command_pdu(WRITE_MORE, 1, cmd_sn, 1024).data(&[1; 512]));
        wire.send(&data_out(0x80, 1, NO_TAG, (0, 512), &[1; 512]));
        wire.send(
            &Pdu::new(0x04, 0x80)
                .itt(2)
                .ttt(NO_TAG)
                .cmd_sn(cmd_sn)
                .data(b"a=b\0"),
        );
        wire.send(&Pdu::new(0x06, 0x80).itt(2).cmd_sn(cmd_sn));
        assert!(wire.said().is_empty() && wire.take_events().is_empty() && !wire.is_closed());
        wire.send(&command_pdu(READ, 1, FIRST, 4));
        wire.command();
    }
}

#[test]
fn a_gap_that_nobody_can_fill_ends_the_connection() {
    let mut wire = logged_in(limits(), &[]);
    wire.send(&command_pdu(READ, 1, FIRST.wrapping_add(3), 4));
    assert_eq!(outcome(&mut wire), Ended(4));
}

#[test]
fn the_window_closes_with_commands_in_progress_and_opens_with_answers() {
    let mut wire = logged_in(limits(), &[]);
    for i in 0..4 {
        wire.send(&command_pdu(0x81, i, FIRST.wrapping_add(i), 0));
        wire.command();
    }
    wire.send(&command_pdu(0x81, 9, FIRST.wrapping_add(4), 0));
    assert!(wire.take_events().is_empty(), "the window is closed");
    assert!(wire.answer(Slot(2), Answer::good(0)));
    let reply = wire.reply();
    let exp_cmd_sn = FIRST.wrapping_add(4);
    assert_eq!((reply.get32(28), reply.get32(32)), (exp_cmd_sn, exp_cmd_sn));
    wire.send(&command_pdu(0x81, 9, exp_cmd_sn, 0));
    assert_eq!(wire.command(), Slot(2));
}

#[test]
fn immediate_commands_take_no_number_and_are_few() {
    let mut wire = logged_in(limits(), &[]);
    for itt in 0..2 {
        let mut pdu = command_pdu(0x81, itt, FIRST.wrapping_sub(77), 0);
        pdu.bhs[0] |= 0x40;
        wire.send(&pdu);
        wire.command();
    }
    let mut third = command_pdu(0x81, 3, FIRST, 0);
    third.bhs[0] |= 0x40;
    wire.send(&third);
    assert_eq!(outcome(&mut wire), Rejected(6));
    for i in 0..4 {
        wire.send(&command_pdu(0x81, 10 + i, FIRST.wrapping_add(i), 0));
        wire.command();
    }
    assert_eq!(wire.target.slots_in_use(), 6);
}

#[test]
fn a_tag_in_use_is_rejected_and_the_first_task_goes_on() {
    let mut wire = logged_in(limits(), &[]);
    wire.send(&command_pdu(READ, 7, FIRST, 4));
    let slot = wire.command();
    wire.send(&command_pdu(WRITE, 7, FIRST + 1, 4).data(&[1; 4]));
    assert_eq!(outcome(&mut wire), Rejected(7));
    wire.send(&command_pdu(READ, NO_TAG, FIRST.wrapping_add(2), 4));
    assert_eq!(outcome(&mut wire), Rejected(9));
    assert!(wire.answer(slot, Answer::good(4)));
    assert_eq!(
        wire.reply().get32(32),
        FIRST.wrapping_add(6),
        "their places are free"
    );
}

#[test]
fn statuses_are_numbered_and_pings_and_r2ts_are_not() {
    let mut wire = logged_in(limits(), &[]);
    wire.send(&command_pdu(WRITE, 1, FIRST, 512));
    let slot = wire.command();
    wire.fetch(slot);
    wire.with(|target, out| target.ping(out));
    wire.send(&Pdu::new(0x40, 0x80).itt(2).ttt(NO_TAG));
    wire.with(|target, out| target.say(AsyncEvent::LogoutRequested { within_s: 1 }, out));
    wire.send(&Pdu::new(0x10, 0x80));
    let numbers: Vec<_> = wire.said().iter().map(|pdu| pdu.get32(24)).collect();
    assert_eq!(numbers, [101, 101, 101, 102, 103]);
}

// ---- task management, pings, text, logout

fn management(function: u8, referenced: u32) -> Pdu {
    Pdu::new(0x42, 0x80 | function)
        .put(8, &[0, 3])
        .itt(0x99)
        .ttt(referenced)
        .cmd_sn(FIRST + 1)
}

#[test]
fn an_abort_names_its_task_and_is_answered_when_it_is_gone() {
    let mut wire = logged_in(limits(), &[]);
    wire.send(&command_pdu(READ, 7, FIRST, 4));
    let slot = wire.command();
    wire.send(&management(1, 7));
    let event = wire.event();
    let Event::TaskManagement { id, .. } = event else {
        panic!("{event:?}");
    };
    let expected = Event::TaskManagement {
        id,
        function: TaskFunction::ABORT_TASK,
        lun: Lun::flat(3),
        referenced: Some(slot),
    };
    assert_eq!(event, expected);
    assert_eq!(
        wire.target.commands().collect::<Vec<_>>(),
        [(slot, Lun::flat(3))]
    );
    assert!(wire.target.abort(slot));
    let complete = TaskManagementOutcome::Complete;
    wire.with(|target, out| target.answer_management(id, complete, out));
    let reply = wire.reply();
    assert_eq!(
        (reply.bhs[0], reply.bhs[2], reply.get32(16)),
        (0x22, 0, 0x99)
    );
    wire.with(|target, out| target.answer_management(id, complete, out));
    assert!(wire.said().is_empty(), "it is answered once");
    assert_eq!(wire.target.commands().count(), 0);
}

#[test]
fn what_needs_no_adapter_is_answered_at_once() {
    for (function, response) in [(1, 1), (8, 4), (0, 5), (9, 5), (12, 5), (127, 5)] {
        let mut wire = logged_in(limits(), &[]);
        wire.send(&management(function, 55));
        let reply = wire.reply();
        assert_eq!((reply.bhs[0], reply.bhs[2]), (0x22, response), "{function}");
        assert!(wire.take_events().is_empty());
    }
}

#[test]
fn task_management_requests_at_once_are_bounded() {
    let mut wire = logged_in(limits(), &[]);
    for _ in 0..8 {
        wire.send(&management(5, NO_TAG));
        wire.event();
    }
    wire.send(&management(5, NO_TAG));
    assert_eq!(outcome(&mut wire), Rejected(6));
}

#[test]
fn pings_of_the_initiator_are_answered_as_far_as_it_takes_them() {
    let mut wire = logged_in(limits(), &["MaxRecvDataSegmentLength=512"]);
    wire.send(&Pdu::new(0x40, 0x80).itt(2).ttt(NO_TAG).data(&[7; 600]));
    assert_eq!(wire.reply().data, [7; 512]);
    wire.send(&Pdu::new(0x40, 0x80).itt(2).ttt(NO_TAG).data(&[7; 8193]));
    assert_eq!(outcome(&mut wire), Rejected(9));
    wire.send(&Pdu::new(0x40, 0x80).itt(NO_TAG).ttt(0x1234).data(&[7; 600]));
    assert_eq!(outcome(&mut wire), Silent);
}

#[test]
fn a_silent_initiator_is_pinged_and_then_given_up() {
    let mut wire = logged_in(limits(), &[]);
    let tick = |wire: &mut Wire, s: u64| {
        wire.with(|target, out| target.tick(START.plus_ms(s * 1000), out))
    };
    assert_eq!(tick(&mut wire, 1), None);
    assert_eq!((tick(&mut wire, 15), wire.said().len()), (None, 0));
    assert_eq!(tick(&mut wire, 16), None);
    let ping = wire.reply();
    assert_eq!((ping.bhs[0], ping.get32(16)), (0x20, NO_TAG));
    wire.send(&Pdu::new(0x40, 0x80).itt(NO_TAG).ttt(ping.get32(20)));
    assert_eq!(tick(&mut wire, 46), None, "it has answered");
    assert_eq!(tick(&mut wire, 61), None);
    assert_eq!(wire.said().len(), 1);
    assert_eq!(tick(&mut wire, 90), None);
    assert_eq!(tick(&mut wire, 91), Some(Event::Silent));
    assert!(wire.is_closed());
    assert_eq!(tick(&mut wire, 200), None);
}

fn text_pdu(flags: u8, ttt: u32, data: &[u8]) -> Pdu {
    Pdu::new(0x44, flags).itt(0x66).ttt(ttt).data(data)
}

#[test]
fn send_targets_asks_for_what_the_session_may_ask_for() {
    let scope = |mut wire: Wire, value: &str| {
        wire.send(&text_pdu(
            0x80,
            NO_TAG,
            &text(&[&format!("SendTargets={value}")]),
        ));
        match wire.take_events().pop() {
            Some(Event::SendTargets(scope)) => Ok(scope),
            _ => Err(wire.reply().text()),
        }
    };
    let named = Ok(Scope::Named("iqn.x".into()));
    let rejected = || Err("SendTargets=Reject".to_owned());
    let normal = || logged_in(limits(), &[]);
    assert_eq!(scope(discovery(), "All"), Ok(Scope::All));
    assert_eq!(scope(discovery(), "iqn.X"), named);
    assert_eq!(scope(discovery(), ""), rejected());
    assert_eq!(scope(normal(), ""), Ok(Scope::Session));
    assert_eq!(scope(normal(), "All"), rejected());
    assert_eq!(scope(normal(), "iqn.x"), named);
}

#[test]
fn a_long_list_of_targets_goes_out_in_pieces() {
    let mut wire = discovery();
    wire.send(&text_pdu(0x80, NO_TAG, &text(&["SendTargets=All"])));
    wire.event();
    let names: Vec<String> = (0..400)
        .map(|i| format!("iqn.2026-01.example:disk-{i}"))
        .collect();
    let addresses = ["192.0.2.1:3260,1", "[2001:db8::1]:3260,1"];
    let targets = names.iter().map(|name| (&**name, &addresses[..]));
    wire.with(|target, out| target.answer_targets(targets, out));
    let mut whole: Vec<u8> = Vec::new();
    loop {
        let piece = wire.reply();
        assert!(piece.data.len() <= 8192);
        whole.extend(&piece.data);
        match piece.bhs[1] {
            0x80 => break assert_eq!(piece.get32(20), NO_TAG),
            flags => assert_eq!(flags, 0x40),
        }
        wire.send(&text_pdu(0x80, piece.get32(20), b""));
    }
    let lines = whole
        .split(|byte: &u8| *byte == 0)
        .filter(|line| !line.is_empty());
    assert_eq!(lines.count(), 1200);
}

#[test]
fn text_that_is_not_in_turn_is_rejected() {
    let begin = || logged_in(limits(), &[]);
    let check = |mut wire: Wire, pdu: Pdu, reason| {
        wire.said();
        wire.send(&pdu);
        assert_eq!(outcome(&mut wire), Rejected(reason), "{pdu:x?}");
    };
    check(begin(), text_pdu(0x80, 5, b"a=b\0"), 9);
    check(begin(), text_pdu(0x00, NO_TAG, b"a=b\0"), 4);
    check(begin(), text_pdu(0xC0, NO_TAG, b"a=b\0"), 4);
    check(begin(), text_pdu(0x80, NO_TAG, b"a=b"), 4);
    check(begin(), text_pdu(0x80, NO_TAG, &[b'a'; 8193]), 9);
    check(
        begin(),
        text_pdu(0x80, NO_TAG, b"SendTargets=\0SendTargets=\0"),
        4,
    );
    let mut waiting = begin();
    waiting.send(&text_pdu(0x80, NO_TAG, b"SendTargets=\0"));
    check(waiting, text_pdu(0x80, NO_TAG, b"a=b\0"), 4);
}

#[test]
fn keys_after_the_login() {
    let mut wire = logged_in(limits(), &[]);
    let pairs = [
        "MaxRecvDataSegmentLength=1024",
        "MaxBurstLength=512",
        "X-a=1",
    ];
    wire.send(&text_pdu(0x80, NO_TAG, &text(&pairs)));
    assert_eq!(
        wire.reply().text(),
        "MaxBurstLength=Reject X-a=NotUnderstood"
    );
    wire.send(&command_pdu(READ, 1, FIRST, 2048));
    let slot = wire.command();
    wire.answer(slot, Answer::good(2048));
    assert_eq!(wire.said().len(), 2, "two Data-In of 1024");
}

#[test]
fn a_logout_is_answered_once_and_is_the_end() {
    let mut wire = logged_in(limits(), &[]);
    wire.send(&command_pdu(READ, 1, FIRST, 4));
    let slot = wire.command();
    wire.send(&Pdu::new(0x46, 0x81).itt(2).put(20, &[0, 7]).cmd_sn(FIRST));
    assert_eq!(wire.event(), Event::Logout(LogoutReason::CloseConnection));
    assert!(wire.target.abort(slot));
    wire.with(|target, out| target.answer_logout(out));
    assert_eq!(wire.reply().bhs[2], 0);
    assert!(wire.is_closed());
    wire.with(|target, out| target.answer_logout(out));
    assert!(wire.said().is_empty());
}

#[test]
fn logouts_that_are_not_ours_are_refused() {
    for (reason, cid, response) in [(0x81, 8, 1), (0x82, 7, 2)] {
        let mut wire = logged_in(limits(), &[]);
        wire.send(&Pdu::new(0x46, reason).itt(2).put(20, &[0, cid]));
        assert_eq!(wire.reply().bhs[2], response);
        assert!(!wire.is_closed() && wire.take_events().is_empty());
    }
    let mut wire = logged_in(limits(), &[]);
    wire.send(&Pdu::new(0x46, 0x83).itt(2));
    assert_eq!(outcome(&mut wire), Rejected(9));
}

// ---- what has happened to others

#[test]
fn cve_2021_28361_no_data_where_data_is_expected_and_data_where_none_is() {
    for opcode in (0..0x40).filter(|opcode| *opcode != 3) {
        for length in [0, 1, 48, 8192] {
            let mut wire = logged_in(limits(), &[]);
            wire.send(
                &Pdu::new(opcode | 0x40, 0x80)
                    .itt(1)
                    .ttt(NO_TAG)
                    .data(&vec![1; length]),
            );
            // A command of a read with data ends the connection; everything else goes on.
            let ended = wire.is_closed();
            assert_eq!(ended, opcode == 1 && length > 0, "{opcode:#x} {length}");
            assert!(wire.waiting.is_empty() || ended);
        }
    }
}

#[test]
fn cve_2026_23216_a_task_ends_once_whoever_ends_it() {
    let end = |wire: &mut Wire, how: u8, slot| match how {
        0 => wire.answer(slot, Answer::good(0)),
        1 => wire.target.abort(slot),
        _ => {
            wire.send(&Pdu::new(0x46, 0x80).itt(2));
            wire.with(|target, out| target.answer_logout(out));
            true
        }
    };
    for order in 0..27_u8 {
        let mut wire = logged_in(limits(), &[]);
        wire.send(&command_pdu(0x81, 1, FIRST, 0));
        let slot = wire.command();
        let mut ended = 0;
        for how in [order % 3, order / 3 % 3, order / 9] {
            ended += u8::from(end(&mut wire, how, slot) && how < 2);
        }
        assert!(ended <= 1, "{order}");
    }
}

#[test]
fn cve_2026_23216_an_admission_that_comes_too_late_admits_nobody() {
    let mut wire = Wire::new(limits());
    wire.admission = None;
    wire.send(&login_pdu(TO_FULL, &[INITIATOR, TARGET]));
    let late = START.plus_ms(15_000);
    let event = wire.with(|target, out| target.tick(late, out));
    assert!(matches!(event, Some(Event::LoginFailed(_))));
    wire.said();
    let admission = grant(fabrix_proto::iscsi::login::Auth::None);
    assert_eq!(wire.with(|target, out| target.admit(admission, out)), None);
    assert!(wire.said().is_empty() && wire.target.session().is_none());
}

#[test]
fn cve_2026_23216_a_number_that_comes_too_late_begins_nothing() {
    let mut wire = Wire::new(limits());
    wire.admission = None;
    wire.send(&login_pdu(TO_FULL, &[INITIATOR, TARGET]));
    let admission = grant(fabrix_proto::iscsi::login::Auth::None);
    let event = wire.with(|target, out| target.admit(admission, out));
    assert_eq!(event, Some(Event::Proved));
    let late = START.plus_ms(15_000);
    let event = wire.with(|target, out| target.tick(late, out));
    assert!(matches!(event, Some(Event::LoginFailed(_))));
    wire.said();
    assert_eq!(wire.with(|target, out| target.enter(Ok(tsih()), out)), None);
    assert!(wire.said().is_empty() && wire.target.session().is_none());
}

#[test]
fn a_request_while_the_owner_is_asked_is_one_too_many() {
    let mut wire = Wire::new(limits());
    wire.admission = None;
    wire.send(&login_pdu(TO_FULL, &[INITIATOR, TARGET]));
    wire.send(&login_pdu(TO_FULL, &[INITIATOR, TARGET]));
    assert_eq!(outcome(&mut wire), Refused(0x0200));
}

#[test]
fn after_a_violation_nothing_is_read_or_said() {
    let mut wire = logged_in(limits(), &[]);
    wire.send(&command_pdu(READ, 1, FIRST, 4));
    let slot = wire.command();
    wire.send(&login_pdu(TO_FULL, &[]));
    assert_eq!(outcome(&mut wire), Ended(4));
    wire.send(&Pdu::new(0x40, 0x80).itt(1).ttt(NO_TAG));
    assert!(wire.answer(slot, Answer::good(4)), "the slot is free");
    wire.with(|target, out| target.ping(out));
    assert!(wire.said().is_empty() && wire.take_events().is_empty());
}

// ---- random input

struct Random(u64);

impl Random {
    fn next(&mut self, below: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 33).expect("31 bits") % below
    }

    fn byte(&mut self) -> u8 {
        u8::try_from(self.next(256)).expect("a byte")
    }
}

/// A PDU that is nearly right: some kind, some fields as they should be, some not, some data.
fn nearly(random: &mut Random, cmd_sn: u32) -> Pdu {
    let opcodes = [
        0x00, 0x01, 0x01, 0x01, 0x41, 0x42, 0x04, 0x05, 0x05, 0x05, 0x10, 0x3F,
    ];
    let opcode = opcodes[random.next(opcodes.len())];
    let flags = [0x80, 0xC1, 0xA1, 0xA1, 0x21, 0x81, 0xE1][random.next(7)];
    let tags = [NO_TAG, 1, 2, 0x10001, 0x20003];
    let mut pdu = Pdu::new(opcode, flags)
        .itt(u32::try_from(random.next(5)).expect("small"))
        .ttt(tags[random.next(5)])
        .cmd_sn(cmd_sn);
    let mut bytes = [0, 0, 4, 600, 601][random.next(5)];
    if opcode & 0x3F == 1 {
        let expected = random.next(3) * 600;
        pdu = pdu.put32(20, u32::try_from(expected).expect("small"));
        // Data where none may be ends a session: seldom.
        let most = if flags & 0x20 == 0 { 0 } else { expected };
        bytes = bytes.min(most + 601 * usize::from(random.next(50) == 0));
    }
    if random.next(40) == 0 {
        let place = 1 + random.next(47);
        pdu.bhs[place] = random.byte();
        pdu.bhs[4] = 0;
    }
    pdu.data(&vec![b'='; bytes])
}

/// Does what an adapter may do with an event, now or later, or does not.
fn react(wire: &mut Wire, random: &mut Random, open: &mut Vec<Slot>) {
    for event in wire.take_events() {
        match event {
            Event::Command { slot, transfer, .. } => {
                assert!(!open.contains(&slot), "a slot has one task");
                open.push(slot);
                if matches!(transfer, Transfer::Fetch { .. }) && random.next(4) > 0 {
                    wire.fetch(slot);
                }
            }
            Event::Released { slot } => open.retain(|known| *known != slot),
            Event::TaskManagement { id, .. } => {
                wire.with(|target, out| {
                    target.answer_management(id, TaskManagementOutcome::Complete, out)
                });
            }
            Event::SendTargets(_) => {
                wire.with(|target, out| target.answer_targets([("iqn.a", &["b"][..])], out));
            }
            _ => {}
        }
    }
    if let Some(slot) = open.get(random.next(8)).copied() {
        let freed = match random.next(3) {
            0 => wire.answer(slot, Answer::good(512)),
            1 => wire.target.abort(slot),
            _ => wire.answer(slot, Answer::check_condition(&[0x70; 18])),
        };
        if freed {
            open.retain(|known| *known != slot);
        }
    }
}

/// What the target expects next, out of a ping that is not sent; nothing when the connection is over.
fn exp_cmd_sn(wire: &mut Wire) -> Option<u32> {
    let before = wire.sent.len();
    wire.with(|target, out| target.ping(out));
    let ping = wire.sent.split_off(before);
    let number = ping.get(28..32)?;
    Some(u32::from_be_bytes(number.try_into().expect("four")))
}

#[test]
fn random_sessions_neither_panic_nor_leak() {
    let mut deepest = 0;
    for seed in 1..=3000 {
        let mut random = Random(0x9E37_79B9_7F4A_7C15_u64.wrapping_mul(seed));
        let keys = [&["InitialR2T=No"][..], &DIGESTS[..random.next(3)]].concat();
        let mut wire = logged_in(
            TargetLimits {
                window: 3,
                ..limits()
            },
            &keys,
        );
        let mut open = Vec::new();
        for _ in 0..40 {
            let Some(exp_cmd_sn) = exp_cmd_sn(&mut wire) else {
                break;
            };
            let wrong = u32::from(random.next(30) == 0) * 3;
            let pdu = nearly(&mut random, exp_cmd_sn.wrapping_add(wrong));
            let mut bytes = pdu.bytes(wire.digests);
            if random.next(60) == 0 {
                let place = random.next(bytes.len());
                bytes[place] ^= 1 << random.next(8);
            }
            wire.feed(&bytes);
            react(&mut wire, &mut random, &mut open);
            deepest = deepest.max(wire.target.slots_in_use());
            assert!(deepest <= 5);
            assert!(
                wire.target.commands().count() <= open.len(),
                "nobody's task"
            );
        }
        if !wire.is_closed() {
            split(&wire.sent, wire.digests);
        }
    }
    assert_eq!(deepest, 5, "the sessions were too short to mean anything");
}

#[test]
fn random_bytes_before_the_login_neither_panic_nor_pass() {
    for seed in 1..=2000 {
        let mut random = Random(0x9E37_79B9_7F4A_7C15_u64.wrapping_mul(seed));
        let mut wire = Wire::new(limits());
        let flags = [TO_FULL, 0x81, 0x00, 0x04, 0x44, 0x83][random.next(6)];
        let mut bytes = login_pdu(flags, &[INITIATOR, TARGET, "CHAP_A=5"]).bytes(NONE);
        for _ in 0..random.next(6) {
            let place = random.next(bytes.len());
            bytes[place] = random.byte();
        }
        wire.feed(&bytes);
        wire.feed(&(0..500).map(|_| random.byte()).collect::<Vec<_>>());
        assert!(wire.target.slots_in_use() == 0);
    }
}
