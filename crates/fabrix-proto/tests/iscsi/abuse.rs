//! What has happened to other targets, and what comes at random.

use fabrix_proto::Slot;
use fabrix_proto::iscsi::pdu::TaskManagementOutcome;
use fabrix_proto::iscsi::target::{Answer, Event, TargetLimits, Transfer};

use crate::wire::Outcome::{Ended, Refused};
use crate::wire::*;

const NO_TAG: u32 = u32::MAX;

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
        1 => wire.abort(slot),
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
    assert!(wire.said().is_empty() && wire.target().session().is_none());
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
    assert!(wire.said().is_empty() && wire.target().session().is_none());
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
            Event::Command {
                claim, transfer, ..
            } => {
                let slot = claim.slot();
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
            1 => wire.abort(slot),
            _ => wire.answer(slot, Answer::check_condition(&[0x70; 18])),
        };
        if freed {
            open.retain(|known| *known != slot);
        }
    }
}

/// What the target expects next, out of a ping that is not sent; nothing when the connection is
/// over.
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
            deepest = deepest.max(wire.target().slots_in_use());
            assert!(deepest <= 5);
            assert!(
                wire.target().commands().count() <= open.len(),
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
        assert!(wire.target().slots_in_use() == 0);
    }
}
