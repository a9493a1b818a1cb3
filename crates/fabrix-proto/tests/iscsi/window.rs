//! The full-feature phase: digests, lengths, and the window of commands.

use fabrix_proto::iscsi::pdu::AsyncEvent;
use fabrix_proto::iscsi::target::Answer;
use fabrix_proto::{Breach, Slot};

use crate::wire::Outcome::{Ended, Rejected};
use crate::wire::*;

const NO_TAG: u32 = u32::MAX;

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
    assert_eq!(wire.target().slots_in_use(), 6);
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
