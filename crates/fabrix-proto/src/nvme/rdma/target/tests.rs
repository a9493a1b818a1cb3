//! Tests of the controller side without a transport.

use zerocopy::IntoBytes;

use super::*;

const WRITE: u8 = 0x01;
const READ: u8 = 0x02;
const EVENT_REQUEST: u8 = 0x0C;

fn target() -> Target {
    let mut target = Target::new(4, 1 << 20, true);
    target.set_queue(false, 4, true);
    target
}

/// A capsule with a keyed descriptor of 512 bytes.
fn keyed(opcode: u8, id: u16, kind: u8) -> [u8; 64] {
    let mut capsule = [0; 64];
    capsule[0] = opcode;
    capsule[2..4].copy_from_slice(&id.to_le_bytes());
    capsule[33] = 2;
    capsule[35..39].copy_from_slice(&77_u32.to_le_bytes());
    capsule[39] = kind;
    capsule
}

#[track_caller]
fn arrives(target: &mut Target, slot: u16, capsule: &[u8]) -> Transfer {
    match target.capsule(Slot(slot), capsule) {
        Ok(Arrived::Command(ControllerEvent::Command { transfer, .. })) => transfer,
        other => panic!("not a command: {other:?}"),
    }
}

fn success() -> CompletionEntry {
    CompletionEntry::new(Status::SUCCESS, 0)
}

#[test]
fn a_read_is_answered_with_its_data_and_its_key() {
    let mut target = target();
    let transfer = arrives(&mut target, 2, &keyed(READ, 9, 0x4F));
    assert_eq!(transfer, Transfer::Send { bytes: 512 });
    let Answered::Now(answer) = target.answer(Slot(2), success(), 512) else {
        panic!("it is answered at once");
    };
    assert_eq!((answer.data_bytes, answer.invalidate), (512, Some(77)));
    assert_eq!(answer.entry.command_id.get(), 9);
    assert_eq!(answer.entry.sq_head.get(), 1);
    assert_eq!(target.slots_in_use(), 0);
}

#[test]
fn a_key_is_made_invalid_only_where_the_host_asks_and_the_device_can() {
    for (can, kind, expected) in [
        (true, 0x4F, Some(77)),
        (true, 0x40, None),
        (false, 0x4F, None),
    ] {
        let mut target = Target::new(4, 1 << 20, can);
        arrives(&mut target, 0, &keyed(WRITE, 1, kind));
        let Answered::Now(answer) = target.answer(Slot(0), success(), 0) else {
            panic!("it is answered at once");
        };
        assert_eq!(answer.invalidate, expected, "{can} {kind:#x}");
    }
}

#[test]
fn an_answer_waits_for_the_data_that_is_on_its_way() {
    let mut target = target();
    arrives(&mut target, 0, &keyed(WRITE, 1, 0x4F));
    assert!(target.fetch(Slot(0)));
    assert!(!target.fetch(Slot(0)), "it is on its way already");
    let refused = CompletionEntry::new(Status::INVALID_FIELD, 0);
    assert_eq!(target.answer(Slot(0), refused, 0), Answered::Later);
    assert_eq!(target.answer(Slot(0), refused, 0), Answered::Unknown);
    assert_eq!(target.slots_in_use(), 1);
    let Some(Fetched::Answer(answer)) = target.fetched(Slot(0)) else {
        panic!("the answer follows the data");
    };
    assert_eq!(answer.entry.status(), Status::INVALID_FIELD);
    assert_eq!(answer.invalidate, Some(77));
    assert_eq!(target.slots_in_use(), 0);
    assert_eq!(target.fetched(Slot(0)), None);
}

#[test]
fn a_write_goes_on_with_its_data() {
    let mut target = target();
    arrives(&mut target, 1, &keyed(WRITE, 1, 0x40));
    assert_eq!(target.fetched(Slot(1)), None, "nobody has asked for data");
    target.fetch(Slot(1));
    let event = ControllerEvent::Fetched {
        slot: Slot(1),
        intact: true,
    };
    assert_eq!(target.fetched(Slot(1)), Some(Fetched::Command(event)));
    assert!(matches!(
        target.answer(Slot(1), success(), 0),
        Answered::Now(_)
    ));
}

#[test]
fn a_wrong_descriptor_is_an_answer_and_leaves_the_slot_free() {
    let mut target = target();
    let wrong = target.capsule(Slot(3), &keyed(READ, 5, 0x5A));
    let Ok(Arrived::Refused(answer)) = wrong else {
        panic!("refused: {wrong:?}");
    };
    assert_eq!(answer.entry.status(), Status::SGL_TYPE_INVALID);
    assert_eq!(answer.entry.command_id.get(), 5);
    assert_eq!(target.slots_in_use(), 0);
    arrives(&mut target, 3, &keyed(READ, 5, 0x40));
}

#[test]
fn a_message_that_is_no_capsule_ends_the_connection() {
    let whole = keyed(READ, 1, 0x40);
    for bytes in 0..64 {
        let mut target = target();
        let violation = target.capsule(Slot(0), &whole[..bytes]).expect_err("cut");
        assert!(violation.sentence().contains("shorter"), "{violation}");
    }
    let mut target = target();
    arrives(&mut target, 0, &whole);
    assert!(target.capsule(Slot(0), &whole).is_err(), "in use");
    assert!(target.capsule(Slot(4), &whole).is_err(), "there is none");
}

#[test]
fn two_commands_do_not_have_one_id_but_an_event_request_gives_its_id_away() {
    let mut target = Target::new(4, 1 << 20, true);
    let mut request = [0; 64];
    (request[0], request[2]) = (EVENT_REQUEST, 7);
    arrives(&mut target, 0, &request);
    arrives(&mut target, 1, &keyed(READ, 7, 0x40));
    let again = target.capsule(Slot(2), &keyed(READ, 7, 0x40));
    let Ok(Arrived::Refused(answer)) = again else {
        panic!("refused: {again:?}");
    };
    assert_eq!(answer.entry.status(), Status::COMMAND_ID_CONFLICT);
    assert_eq!(target.answer(Slot(0), success(), 0), Answered::Forgotten);
    assert!(matches!(
        target.answer(Slot(1), success(), 0),
        Answered::Now(_)
    ));
    assert_eq!(target.slots_in_use(), 0);
}

#[test]
fn the_head_of_the_queue_wraps_and_is_all_ones_without_flow_control() {
    let mut target = target();
    let mut heads = alloc::vec::Vec::new();
    for _ in 0..5 {
        arrives(&mut target, 0, &keyed(READ, 1, 0x40));
        if let Answered::Now(answer) = target.answer(Slot(0), success(), 0) {
            heads.push(answer.entry.sq_head.get());
        }
    }
    assert_eq!(heads, [1, 2, 3, 0, 1]);
    target.set_queue(false, 4, false);
    arrives(&mut target, 0, &keyed(READ, 1, 0x40));
    let Answered::Now(answer) = target.answer(Slot(0), success(), 0) else {
        panic!("answered");
    };
    assert_eq!(answer.entry.sq_head.get(), u16::MAX);
    assert_eq!(answer.entry.as_bytes().len(), 16);
}
