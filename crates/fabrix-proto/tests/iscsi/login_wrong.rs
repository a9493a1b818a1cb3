//! What a stranger can do wrong in a login, and what has happened to others there.

use fabrix_proto::iscsi::auth::{Challenges, PolicyError};
use fabrix_proto::iscsi::login::Auth;
use fabrix_proto::iscsi::pdu::LoginStatus;
use fabrix_proto::iscsi::target::Event;

use crate::login::*;
use crate::wire::*;

fn check_first(flags: u8, pairs: &[&str], expected: LoginStatus) {
    let status = refused(&mut Wire::new(limits()), flags, pairs);
    assert_eq!(status, expected, "{flags:#x} {pairs:?}");
}

#[test]
fn what_must_be_said_first_must_be_there() {
    check_first(TO_FULL, &[TARGET], LoginStatus::MISSING_PARAMETER);
    check_first(TO_FULL, &[], LoginStatus::MISSING_PARAMETER);
    check_first(TO_FULL, &[INITIATOR], LoginStatus::MISSING_PARAMETER);
    check_first(
        TO_FULL,
        &[INITIATOR, "SessionType=Both"],
        LoginStatus::SESSION_TYPE,
    );
    let nameless = ["InitiatorName=host", TARGET];
    check_first(TO_FULL, &nameless, LoginStatus::INITIATOR_ERROR);
    let long = format!("InitiatorName=iqn.{}", "x".repeat(220));
    check_first(TO_FULL, &[&long, TARGET], LoginStatus::INITIATOR_ERROR);
}

#[test]
fn stages_that_do_not_exist_or_lie_behind_are_refused() {
    for flags in [0x08, 0x0C, 0x84, 0x85, 0x86, 0x82, 0x80, 0xC7] {
        check_first(flags, &[INITIATOR, TARGET], LoginStatus::INITIATOR_ERROR);
    }
    let mut wire = Wire::new(limits());
    step(&mut wire, TO_OPERATIONAL, &[INITIATOR, TARGET]);
    assert_eq!(
        refused(&mut wire, SECURITY, &[]),
        LoginStatus::INITIATOR_ERROR
    );
}

#[test]
fn version_and_identity_are_checked() {
    let send = |change: fn(Pdu) -> Pdu| {
        let mut wire = Wire::new(limits());
        wire.send(&change(login_pdu(TO_FULL, &[INITIATOR, TARGET])));
        wire.reply().get32(36) >> 16
    };
    assert_eq!(send(|pdu| pdu.put(2, &[1, 1])), 0x0205);
    assert_eq!(send(|pdu| pdu.put(2, &[9, 0])), 0);
    assert_eq!(send(|pdu| pdu.put(14, &[0, 1])), 0x020A);
    let mut wire = Wire::new(limits());
    step(&mut wire, TO_OPERATIONAL, &[INITIATOR, TARGET]);
    wire.send(&login_pdu(TO_FULL, &[]).put(8, &[9]));
    assert_eq!(wire.reply().get32(36) >> 16, 0x0200, "another ISID");
}

#[test]
fn a_key_comes_once() {
    let twice = [INITIATOR, TARGET, "InitialR2T=No", "InitialR2T=Yes"];
    check_first(TO_FULL, &twice, LoginStatus::INITIATOR_ERROR);
    let mut wire = Wire::new(limits());
    step(
        &mut wire,
        OPERATIONAL,
        &[INITIATOR, TARGET, "ImmediateData=No"],
    );
    let again = refused(&mut wire, TO_FULL, &["ImmediateData=Yes"]);
    assert_eq!(again, LoginStatus::INITIATOR_ERROR);
    let mut wire = Wire::new(limits());
    step(&mut wire, OPERATIONAL, &[INITIATOR, TARGET]);
    assert_eq!(
        refused(&mut wire, TO_FULL, &[INITIATOR]),
        LoginStatus::INITIATOR_ERROR
    );
}

#[test]
fn other_pdus_before_the_end_of_the_login_are_refused() {
    for opcode in (0..=0x3F).filter(|opcode| *opcode != 3) {
        for started in [false, true] {
            let mut wire = Wire::new(limits());
            if started {
                step(&mut wire, TO_OPERATIONAL, &[INITIATOR, TARGET]);
                wire.take_events();
            }
            wire.send(&Pdu::new(opcode, 0x80).itt(1));
            let reply = wire.reply();
            assert_eq!((reply.bhs[0], reply.get32(36) >> 16), (0x23, 0x020B));
            assert!(wire.is_closed());
        }
    }
}

#[test]
fn every_byte_of_a_login_may_be_the_last() {
    let whole = [
        login_pdu(TO_OPERATIONAL, &[INITIATOR, TARGET, "AuthMethod=None"]).bytes(NONE),
        login_pdu(TO_FULL, &["InitialR2T=No"]).bytes(NONE),
    ]
    .concat();
    for cut in 0..whole.len() {
        let mut wire = Wire::new(limits());
        wire.feed(&whole[..cut]);
        assert!(wire.target().session().is_none() && !wire.is_closed());
        wire.feed(&whole[cut..]);
        assert_eq!(wire.take_events(), LOGIN, "cut at {cut}");
    }
}

#[test]
fn a_half_login_ends_in_time() {
    let mut wire = Wire::new(limits());
    step(&mut wire, TO_OPERATIONAL, &[INITIATOR, TARGET]);
    wire.take_events();
    assert_eq!(wire.target().deadline(), START.plus_ms(15_000));
    let tick = |wire: &mut Wire, ms| wire.with(|target, out| target.tick(START.plus_ms(ms), out));
    assert_eq!(tick(&mut wire, 14_999), None);
    // Bytes that trickle in do not prolong it.
    wire.feed(&[0x43]);
    assert!(matches!(
        tick(&mut wire, 15_000),
        Some(Event::LoginFailed(_))
    ));
    assert!(wire.is_closed());
    assert_eq!(wire.reply().get32(36) >> 16, 0x0200);
}

#[test]
fn an_initiator_that_waits_for_the_target_is_told_to_come_again() {
    for admitted in [false, true] {
        let mut wire = Wire::new(limits());
        wire.admission = None;
        wire.send(&login_pdu(TO_FULL, &[INITIATOR, TARGET]));
        if admitted {
            wire.with(|target, out| target.admit(grant(Auth::None), out));
        }
        let late = START.plus_ms(15_000);
        let event = wire.with(|target, out| target.tick(late, out));
        let Some(Event::LoginFailed(refusal)) = event else {
            panic!("{event:?}");
        };
        assert_eq!(refusal.status, LoginStatus::UNAVAILABLE);
        assert_eq!(wire.reply().get32(36) >> 16, 0x0301);
    }
}

#[test]
fn an_endless_c_bit_ends() {
    for data in [&b""[..], b"X-a=b\0"] {
        let mut wire = Wire::new(limits());
        let mut sent = 0;
        while !wire.is_closed() {
            wire.send(&login_pdu(0x44, &[]).data(data));
            sent += 1;
            assert!(sent <= 17, "it goes on and on");
        }
        assert!(matches!(wire.event(), Event::LoginFailed(_)));
    }
}

#[test]
fn an_endless_login_ends() {
    let mut wire = Wire::new(limits());
    step(&mut wire, OPERATIONAL, &[INITIATOR, TARGET]);
    let mut sent = 1;
    while !wire.is_closed() {
        wire.send(&login_pdu(OPERATIONAL, &[]));
        sent += 1;
        assert!(sent <= 33, "it goes on and on");
    }
}

#[test]
fn a_flood_of_keys_is_refused_and_its_answer_fits_one_pdu() {
    let keys: Vec<String> = (0..62)
        .map(|i| format!("X-{}{i:02}=1", "k".repeat(59)))
        .collect();
    let mut pairs = vec![INITIATOR, TARGET];
    pairs.extend(keys.iter().map(|key| &**key));
    let (_, status, text) = step(&mut Wire::new(limits()), TO_FULL, &pairs);
    assert_eq!(status, 0);
    assert!(text.len() < 8192);
    let many: Vec<String> = (0..1000).map(|i| format!("a{i}=")).collect();
    let many: Vec<&str> = many.iter().map(|key| &**key).collect();
    check_first(TO_FULL, &many, LoginStatus::INITIATOR_ERROR);
}

#[test]
fn cve_2013_2850_overlong_unknown_keys_are_bounded() {
    for (key, value, status) in [
        (63, 255, LoginStatus::SUCCESS),
        (64, 1, LoginStatus::INITIATOR_ERROR),
        (65, 255, LoginStatus::INITIATOR_ERROR),
        (8000, 1, LoginStatus::INITIATOR_ERROR),
        (5, 4000, LoginStatus::INITIATOR_ERROR),
    ] {
        let pair = format!("{}={}", "k".repeat(key), "v".repeat(value));
        let mut wire = Wire::new(limits());
        let got = step(&mut wire, TO_FULL, &[INITIATOR, TARGET, &pair]).1;
        assert_eq!(LoginStatus(got), status, "{key} {value}");
    }
    for raw in [
        &b"no-equals\0"[..],
        b"a=not terminated",
        b"=\0",
        b"\xff\xfe=1\0",
    ] {
        let mut wire = Wire::new(limits());
        wire.send(&login_pdu(TO_FULL, &[]).data(raw));
        assert_eq!(wire.reply().get32(36) >> 16, 0x0200);
    }
}

#[test]
fn cve_2011_0001_a_long_login_segment_is_refused_before_it_is_read() {
    for length in [8193, 65_536, 0xFF_FFFF_u32] {
        let mut wire = Wire::new(limits());
        let pdu = login_pdu(TO_FULL, &[]).put(5, &length.to_be_bytes()[1..]);
        wire.feed(&pdu.bhs);
        assert_eq!(wire.reply().get32(36) >> 16, 0x0200);
        assert!(wire.is_closed());
    }
    let mut wire = Wire::new(limits());
    wire.feed(&login_pdu(TO_FULL, &[]).put(4, &[255]).bhs);
    assert!(wire.is_closed(), "additional headers");
}

#[test]
fn cve_2021_28361_a_login_without_data_is_refused() {
    check_first(TO_FULL, &[], LoginStatus::MISSING_PARAMETER);
    check_first(SECURITY, &[], LoginStatus::MISSING_PARAMETER);
}

#[test]
fn cve_2024_45751_no_two_logins_share_a_challenge() {
    let mut challenges = Challenges::default();
    let random = |i: u8| [i, i ^ 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15];
    for i in 0..=255 {
        challenges.issue(i, &random(i)).expect("new");
    }
    for i in 0..=255 {
        let again = challenges.issue(i, &random(i));
        assert_eq!(again, Err(PolicyError::ChallengeRepeated));
    }
}
