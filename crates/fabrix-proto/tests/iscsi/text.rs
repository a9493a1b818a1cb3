//! The full-feature phase: text, and lists of targets.

use fabrix_proto::iscsi::target::{Answer, Event, Scope};

use crate::wire::Outcome::Rejected;
use crate::wire::*;

const NO_TAG: u32 = u32::MAX;

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
