//! Commands and their data: immediate, unsolicited and solicited; Data-In, residuals, answers
//! before their time.

use crate::wire::*;
use fabrix_proto::Claim;
use fabrix_proto::iscsi::pdu::{Lun, TaskAttribute};
use fabrix_proto::iscsi::target::{Answer, Event, TargetLimits, Transfer};

#[test]
fn a_read_ends_with_its_data_and_the_status_in_the_last_pdu() {
    let mut wire = logged_in(limits(), &[]);
    wire.send(&command_pdu(READ, 0x55, FIRST, 20_000));
    let event = wire.event();
    let Event::Command { claim, .. } = &event else {
        panic!("{event:?}")
    };
    let slot = claim.slot();
    let expected = Event::Command {
        claim: Claim::new(slot),
        cdb: [0x28, 0, 0, 0, 0, 9, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0],
        lun: Lun::flat(3),
        attribute: TaskAttribute::SIMPLE,
        transfer: Transfer::Send { bytes: 20_000 },
        intact: true,
    };
    assert_eq!(event, expected);
    wire.memory[usize::from(slot.0)][..20_000].copy_from_slice(&pattern(20_000, 1));
    assert!(wire.answer(slot, Answer::good(20_000)));
    let said = wire.said();
    let flags: Vec<_> = said.iter().map(|pdu| pdu.bhs[1]).collect();
    assert_eq!(flags, [0, 0, 0x81], "F and S on the last of three");
    let offsets: Vec<_> = said
        .iter()
        .map(|pdu| (pdu.get32(36), pdu.get32(40)))
        .collect();
    assert_eq!(offsets, [(0, 0), (1, 8192), (2, 16_384)]);
    let data: Vec<u8> = said.iter().flat_map(|pdu| pdu.data.clone()).collect();
    assert_eq!(data, pattern(20_000, 1));
    // The login response took StatSN 100.
    assert_eq!((said[2].get32(24), said[2].get32(28)), (101, FIRST + 1));
    assert_eq!(wire.target().slots_in_use(), 0);
}

#[test]
fn sequences_of_a_read_are_no_longer_than_the_burst() {
    let mut wire = logged_in(limits(), &["MaxBurstLength=12288"]);
    wire.send(&command_pdu(READ, 0x55, FIRST, 30_000));
    let slot = wire.command();
    wire.answer(slot, Answer::good(30_000));
    let said = wire.said();
    let shape: Vec<_> = said
        .iter()
        .map(|pdu| (pdu.bhs[1], pdu.data.len()))
        .collect();
    let expected = [
        (0, 8192),
        (0x80, 4096),
        (0, 8192),
        (0x80, 4096),
        (0x81, 5424),
    ];
    assert_eq!(shape, expected);
}

#[test]
fn a_read_that_fails_late_has_its_status_in_a_response() {
    let mut wire = logged_in(limits(), &[]);
    wire.send(&command_pdu(READ, 0x55, FIRST, 512));
    let slot = wire.command();
    assert!(wire.answer(slot, Answer::check_condition(&[0x70, 0, 3])));
    let reply = wire.reply();
    assert_eq!((reply.bhs[0], reply.bhs[1], reply.bhs[3]), (0x21, 0x82, 2));
    assert_eq!(reply.data, [0, 3, 0x70, 0, 3]);
    assert_eq!((reply.get32(36), reply.get32(44)), (0, 512));
}

fn residual(flags: u8, expected: u32, moved: u32) -> (u8, u32) {
    let mut wire = logged_in(limits(), &[]);
    wire.send(&command_pdu(flags, 1, FIRST, expected));
    let slot = wire.command();
    wire.answer(slot, Answer::good(moved));
    let last = wire.said().pop().expect("an answer");
    (last.bhs[1] & 0x7E, last.get32(44))
}

#[test]
fn residuals_are_exact_and_absent_when_there_is_none() {
    assert_eq!(residual(READ, 512, 512), (0, 0));
    assert_eq!(residual(READ, 10_000, 512), (2, 9488));
    assert_eq!(residual(READ, 200, 512), (4, 312));
    assert_eq!(residual(READ, 512, 0), (2, 512));
    assert_eq!(residual(0x81, 0, 0), (0, 0));
    assert_eq!(residual(0xC1, 0, 512), (4, 512));
}

#[test]
fn a_write_whose_data_came_with_it_is_handed_out_whole() {
    for (keys, digests) in [(&[][..], NONE), (&DIGESTS[..], BOTH)] {
        let mut wire = logged_in(limits(), keys);
        assert_eq!(wire.digests, digests);
        let data = pattern(513, 7); // with padding
        wire.send(&command_pdu(WRITE, 9, FIRST, 513).data(&data));
        let Event::Command {
            claim,
            transfer: Transfer::Inline { bytes: 513 },
            intact: true,
            ..
        } = wire.event()
        else {
            panic!("an inline write was expected");
        };
        let slot = claim.slot();
        assert_eq!(wire.memory[usize::from(slot.0)][..513], data);
        assert!(wire.answer(slot, Answer::good(513)));
        let reply = wire.reply();
        assert_eq!((reply.bhs[0], reply.bhs[1], reply.bhs[3]), (0x21, 0x80, 0));
    }
}

#[test]
fn a_large_write_comes_immediate_then_unsolicited_then_asked_for() {
    for digests in [&[][..], &DIGESTS] {
        let keys = [&write_keys()[..], digests].concat();
        let mut wire = logged_in(limits(), &keys);
        let data = pattern(50_000, 3);
        wire.send(&command_pdu(WRITE_MORE, 9, FIRST, 50_000).data(&data[..4096]));
        let Event::Command {
            claim, transfer, ..
        } = wire.event()
        else {
            panic!("a command was expected");
        };
        let slot = claim.slot();
        let arriving = Transfer::Fetch {
            bytes: 50_000,
            arriving: true,
        };
        assert_eq!(transfer, arriving);
        wire.fetch(slot);
        assert!(wire.said().is_empty(), "unsolicited data comes first");
        wire.send(&data_out(0, 9, UNASKED, (0, 4096), &data[4096..8192]));
        wire.send(&data_out(0x80, 9, UNASKED, (1, 8192), &data[8192..16_384]));
        answer_r2ts(&mut wire, 9, &data);
        assert_eq!(wire.event(), Event::Fetched { slot, intact: true });
        assert_eq!(wire.memory[usize::from(slot.0)][..50_000], data);
        assert!(wire.answer(slot, Answer::good(50_000)));
        let reply = wire.reply();
        assert_eq!((reply.bhs[0], reply.get32(36)), (0x21, 3), "three R2Ts");
    }
}

/// Does what every R2T asks for, in pieces of 6000 bytes.
fn answer_r2ts(wire: &mut Wire, itt: u32, data: &[u8]) {
    let mut asked: Vec<Pdu> = wire.said();
    while !asked.is_empty() {
        let r2t = asked.remove(0);
        assert_eq!(r2t.bhs[0], 0x31);
        let (start, bytes) = (r2t.get32(40) as usize, r2t.get32(44) as usize);
        let pieces = data[start..start + bytes].chunks(6000).enumerate();
        let count = pieces.len();
        for (index, piece) in pieces {
            let last = if index + 1 == count { 0x80 } else { 0 };
            let number = |value: usize| u32::try_from(value).expect("small");
            let numbers = (number(index), number(start + index * 6000));
            wire.send(&data_out(last, itt, r2t.get32(20), numbers, piece));
        }
        asked.extend(wire.said());
    }
}

#[test]
fn r2ts_are_as_many_and_as_large_as_was_agreed() {
    let keys = [
        "MaxOutstandingR2T=2",
        "MaxBurstLength=8192",
        "FirstBurstLength=8192",
    ];
    let mut wire = logged_in(limits(), &keys);
    wire.send(&command_pdu(WRITE, 9, FIRST, 20_000));
    let slot = wire.command();
    wire.fetch(slot);
    let said = wire.said();
    let shape = |pdu: &Pdu| (pdu.get32(36), pdu.get32(40), pdu.get32(44));
    let shapes: Vec<_> = said.iter().map(shape).collect();
    assert_eq!(shapes, [(0, 0, 8192), (1, 8192, 8192)]);
    assert_ne!(said[0].get32(20), said[1].get32(20));
    wire.send(&data_out(0x80, 9, said[0].get32(20), (0, 0), &[1; 8192]));
    assert_eq!(shape(&wire.reply()), (2, 16_384, 3616));
}

#[test]
fn all_data_may_come_unasked_before_it_is_fetched() {
    let mut wire = logged_in(limits(), &write_keys());
    wire.send(&command_pdu(WRITE_MORE, 9, FIRST, 8000));
    let slot = wire.command();
    wire.send(&data_out(0x80, 9, UNASKED, (0, 0), &[5; 8000]));
    assert_eq!(wire.event(), Event::Fetched { slot, intact: true });
    wire.fetch(slot);
    assert!(wire.said().is_empty() && wire.take_events().is_empty());
}

#[test]
fn an_answer_before_the_data_waits_for_it() {
    let mut wire = logged_in(limits(), &[]);
    wire.send(&command_pdu(WRITE, 9, FIRST, 8192));
    let slot = wire.command();
    wire.fetch(slot);
    let ttt = wire.reply().get32(20);
    assert!(!wire.answer(slot, Answer::check_condition(&[0x70])));
    assert!(wire.said().is_empty());
    wire.send(&data_out(0, 9, ttt, (0, 0), &[1; 4096]));
    wire.send(&data_out(0x80, 9, ttt, (1, 4096), &[1; 4096]));
    assert_eq!(wire.event(), Event::Released { slot });
    assert_eq!(wire.reply().bhs[3], 2);
    assert!(
        wire.memory[usize::from(slot.0)]
            .iter()
            .all(|byte| *byte == 0)
    );
}

#[test]
fn an_aborted_write_is_gone_and_its_late_data_is_read_over() {
    let mut wire = logged_in(limits(), &[]);
    wire.send(&command_pdu(WRITE, 9, FIRST, 8192));
    let slot = wire.command();
    wire.fetch(slot);
    let ttt = wire.reply().get32(20);
    assert!(wire.abort(slot));
    wire.send(&data_out(0x80, 9, ttt, (0, 0), &[1; 8192]));
    assert!(wire.said().is_empty() && wire.take_events().is_empty());
    assert!(!wire.is_closed());
    assert!(!wire.answer(slot, Answer::good(0)), "it is nobody's");
}

#[test]
fn an_abort_waits_for_the_piece_that_is_arriving() {
    let mut wire = logged_in(limits(), &[]);
    wire.send(&command_pdu(WRITE, 9, FIRST, 8192));
    let slot = wire.command();
    wire.fetch(slot);
    let ttt = wire.reply().get32(20);
    let bytes = data_out(0x80, 9, ttt, (0, 0), &[1; 8192]).bytes(NONE);
    wire.feed(&bytes[..60]);
    assert!(!wire.abort(slot));
    wire.feed(&bytes[60..]);
    assert_eq!(wire.event(), Event::Released { slot });
    assert!(wire.said().is_empty());
}

#[test]
fn large_immediate_data_goes_into_the_slots_memory() {
    let few = TargetLimits {
        max_inline_bytes: 512,
        ..limits()
    };
    let mut wire = logged_in(few, &[]);
    wire.send(&command_pdu(WRITE, 9, FIRST, 513).data(&pattern(513, 7)));
    let mut events = wire.take_events();
    assert_eq!(events.len(), 2, "{events:?}");
    let Some(Event::Fetched { slot, intact: true }) = events.pop() else {
        panic!("the data has come");
    };
    let transfer = Transfer::Fetch {
        bytes: 513,
        arriving: true,
    };
    assert!(matches!(events[0], Event::Command { transfer: it, .. } if it == transfer));
    assert_eq!(wire.memory[usize::from(slot.0)][..513], pattern(513, 7));
    assert!(wire.answer(slot, Answer::good(513)));
}
