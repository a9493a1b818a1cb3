//! The controller's side against hosts that err: each state with each PDU, each rule of H2CData,
//! each limit.

mod tcp_wire;

use std::collections::VecDeque;

use fabrix_proto::nvme::queue::{ControllerEvent, Transfer};
use fabrix_proto::nvme::spec::{CompletionEntry, SglDescriptor, SglKind, Status};
use fabrix_proto::nvme::tcp::pdu::{
    Digests, FLAG_DATA_DIGEST, FLAG_HEADER_DIGEST, FLAG_LAST, InitializeRequest, PduType,
};
use fabrix_proto::nvme::tcp::target::{Target, TargetLimits};
use fabrix_proto::{Machine, Slot, Want};
use tcp_wire::adapter::*;
use tcp_wire::*;
use zerocopy::IntoBytes;

// ---- states and PDUs

#[derive(Clone, Copy, Debug, PartialEq)]
enum Outcome {
    Accepted,
    Goodbye,
    Fatal(u16),
}
use Outcome::{Accepted, Fatal, Goodbye};

/// Every kind of PDU, well formed, and what comes of it: before ICReq, ready, with data asked for,
/// after the end.
const TABLE: [(u8, [Outcome; 3]); 12] = [
    (0x00, [Accepted, Fatal(SEQUENCE), Fatal(SEQUENCE)]),
    (0x01, [Fatal(SEQUENCE), Fatal(SEQUENCE), Fatal(SEQUENCE)]),
    (0x02, [Goodbye, Goodbye, Goodbye]),
    (0x03, [Fatal(SEQUENCE), Fatal(SEQUENCE), Fatal(SEQUENCE)]),
    (0x04, [Fatal(SEQUENCE), Accepted, Accepted]),
    (0x05, [Fatal(SEQUENCE), Fatal(SEQUENCE), Fatal(SEQUENCE)]),
    (0x06, [Fatal(SEQUENCE), Fatal(SEQUENCE), Accepted]),
    (0x07, [Fatal(SEQUENCE), Fatal(SEQUENCE), Fatal(SEQUENCE)]),
    (0x08, [Fatal(FIELD), Fatal(FIELD), Fatal(FIELD)]),
    (0x09, [Fatal(SEQUENCE), Fatal(SEQUENCE), Fatal(SEQUENCE)]),
    (0x0A, [Fatal(FIELD), Fatal(FIELD), Fatal(FIELD)]),
    (0xFF, [Fatal(FIELD), Fatal(FIELD), Fatal(FIELD)]),
];

fn well_formed(kind: u8) -> Vec<u8> {
    match kind {
        0x00 => InitializeRequest::new(0, NONE, 1).as_bytes().to_vec(),
        0x04 => read_capsule(0x22, 512, NONE),
        0x06 => data_pdu(DATA_PDU, (0x11, 0), 0, &[1; 8192], FLAG_LAST, NONE),
        _ => {
            let bytes = PduType(kind).header_bytes().unwrap_or(24);
            let mut pdu = vec![kind, 0, bytes, 0, bytes, 0, 0, 0];
            pdu.resize(usize::from(bytes), 0);
            pdu
        }
    }
}

fn state(index: usize) -> Side<Target> {
    match index {
        0 => fresh_target(target_limits()),
        1 => ready_target(target_limits(), NONE),
        _ => fetching(NONE),
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
                (None, Some(ControllerEvent::Terminated)) => Goodbye,
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
fn after_the_hosts_goodbye_nothing_is_read_or_sent() {
    let mut side = fetching(NONE);
    side.feed(&[
        2, 0, 24, 0, 24, 0, 0, 0, 4, 0, 16, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
    ]);
    assert_eq!(side.event(), ControllerEvent::Terminated);
    let reason = side.machine.goodbye().expect("it said why");
    assert_eq!((reason.status, reason.information), (4, 16));
    side.feed(&read_capsule(0x22, 512, NONE));
    assert!(!answer(&mut side, 0, success(), 0));
    assert_eq!((side.take_events().len(), side.take_sent().len()), (0, 0));
}

#[test]
fn every_wrong_header_length_is_refused_before_more_is_read() {
    for kind in [0x00, 0x02, 0x04, 0x06] {
        let right = PduType(kind).header_bytes();
        for hlen in (0..=u8::MAX).filter(|hlen| Some(*hlen) != right) {
            let mut pdu = well_formed(kind);
            pdu[2] = hlen;
            refuses(state(if kind == 0 { 0 } else { 2 }), &pdu[..8], FIELD, 2);
        }
    }
}

#[test]
fn every_impossible_pdu_length_is_refused() {
    let set = |mut pdu: Vec<u8>, plen: u32| {
        pdu[4..8].copy_from_slice(&plen.to_le_bytes());
        pdu
    };
    for plen in [0, 8, 24, 127, 129, 128 + 4096, u32::MAX] {
        refuses(state(0), &set(well_formed(0), plen), FIELD, 4);
    }
    for plen in [0, 8, 71, 73, u32::MAX] {
        // a read whose PLEN announces data: PDO is 0, so the offset is at fault first
        let fei = if plen < 72 { 4 } else { 3 };
        refuses(state(1), &set(well_formed(4), plen), FIELD, fei);
    }
    for plen in [0, 8, 23, 25, 24 + 8191, 24 + 8193, u32::MAX] {
        refuses(state(2), &set(well_formed(6), plen), FIELD, 4);
    }
    for plen in [0, 23, 153, u32::MAX] {
        refuses(state(1), &set(well_formed(2), plen), FIELD, 4);
    }
}

#[test]
fn data_offsets_into_the_header_or_off_the_grid_are_refused() {
    let capsule = inline_capsule(1, &[7; 64], NONE);
    for pdo in [0, 4, 68, 71, 73, 74, 75] {
        let mut pdu = capsule.clone();
        pdu[3] = pdo;
        refuses(state(1), &pdu, FIELD, 3);
    }
    let mut pdu = capsule;
    pdu[3] = 136; // the end of the PDU: no data left
    refuses(state(1), &pdu, FIELD, 4);
    for pdo in [0, 20, 23, 25] {
        let mut pdu = well_formed(6);
        pdu[3] = pdo;
        refuses(state(2), &pdu, FIELD, 3);
    }
}

#[test]
fn reserved_flags_and_digests_not_agreed_are_refused() {
    for flags in (0..=u8::MAX).filter(|flags| *flags != 0) {
        let mut pdu = well_formed(0);
        pdu[1] = flags;
        refuses(state(0), &pdu, FIELD, 1);
        let mut pdu = well_formed(4);
        pdu[1] = flags;
        refuses(state(1), &pdu, FIELD, 1);
    }
    for flags in (0..=u8::MAX).filter(|flags| flags & !FLAG_LAST != 0) {
        let mut pdu = well_formed(6);
        pdu[1] = flags;
        refuses(state(2), &pdu, FIELD, 1);
    }
    for flags in [0, FLAG_HEADER_DIGEST, FLAG_DATA_DIGEST] {
        let mut pdu = inline_capsule(1, &[7; 64], BOTH);
        pdu[1] = flags;
        refuses(ready_target(target_limits(), BOTH), &pdu, FIELD, 1);
    }
}

#[test]
fn a_pdu_is_judged_as_if_none_like_it_had_come_before() {
    let outcome = |mut side: Side<Target>, pdu: &[u8]| {
        side.take_events();
        side.feed(pdu);
        let violation = side.violation.as_ref();
        (
            violation.map(|it| (it.fes(), it.fei())),
            side.machine.want(),
        )
    };
    for bit in 0..64 {
        let mut pdu = read_capsule(3, 4096, NONE);
        pdu[bit / 8] ^= 1 << (bit % 8);
        let first = outcome(ready_target(target_limits(), NONE), &pdu);
        let mut side = ready_target(target_limits(), NONE);
        side.feed(&read_capsule(1, 4096, NONE));
        side.feed(&read_capsule(2, 4096, NONE));
        assert_eq!(outcome(side, &pdu), first, "bit {bit} of the common header");
    }
}

// ---- the opening

#[test]
fn digests_are_those_wanted_and_allowed() {
    for bits in 0..16_u8 {
        let [want_header, want_data, allow_header, allow_data] =
            [1, 2, 4, 8].map(|bit| bits & bit != 0);
        let mut side = fresh_target(TargetLimits {
            header_digest_allowed: allow_header,
            data_digest_allowed: allow_data,
            ..target_limits()
        });
        let wanted = Digests {
            header: want_header,
            data: want_data,
        };
        side.feed(InitializeRequest::new(0, wanted, 1).as_bytes());
        let agreed = Digests {
            header: want_header && allow_header,
            data: want_data && allow_data,
        };
        assert_eq!(side.sent[11], agreed.to_wire());
        side.feed(&read_capsule(1, 512, agreed));
        assert_eq!(side.events.len(), 1);
    }
}

#[test]
fn refuses_an_unknown_format_version_and_an_impossible_alignment() {
    let mut pdu = well_formed(0);
    pdu[8] = 1;
    refuses(state(0), &pdu, UNSUPPORTED, 8);
    let mut pdu = well_formed(0);
    pdu[10] = 32;
    refuses(state(0), &pdu, FIELD, 10);
}

#[test]
fn names_a_maxh2cdata_that_linux_accepts_whatever_the_limit() {
    for (limit, named) in [
        (0, 4096),
        (4095, 4096),
        (8195, 8192),
        (u32::MAX, u32::MAX - 3),
    ] {
        let mut side = fresh_target(TargetLimits {
            max_h2c_bytes: limit,
            ..target_limits()
        });
        side.feed(InitializeRequest::new(31, BOTH, 1).as_bytes());
        assert_eq!(side.sent[12..16], u32::to_le_bytes(named));
        assert_eq!(side.sent[10], 0, "CPDA: Linux accepts nothing else");
    }
}

// ---- commands

#[test]
fn a_read_costs_one_call_and_an_in_capsule_write_two() {
    let mut side = ready_target(target_limits(), NONE);
    side.calls = 0;
    side.feed(&read_capsule(1, 4096, NONE));
    assert_eq!(side.calls, 1);
    side.feed(&inline_capsule(2, &[1; 4096], NONE));
    assert_eq!(side.calls, 1 + 2);
}

#[test]
fn direction_and_descriptor_decide_the_transfer() {
    let check = |opcode, sgl, expected: Transfer| {
        let mut side = ready_target(target_limits(), NONE);
        side.feed(&capsule(&entry(opcode, 5, sgl), NONE));
        let ControllerEvent::Command {
            transfer,
            claim,
            intact: true,
        } = side.event()
        else {
            panic!("a command was expected");
        };
        assert_eq!((transfer, claim.slot()), (expected, Slot(0)));
    };
    let mut nothing = SglDescriptor::transport(0);
    nothing.kind = SglKind::ADDRESS;
    check(0x00, SglDescriptor::transport(0), Transfer::None); // Flush
    check(0x00, SglDescriptor::transport(4096), Transfer::None);
    check(0x00, nothing, Transfer::None);
    check(
        0x01,
        SglDescriptor::transport(4096),
        Transfer::Fetch { bytes: 4096 },
    );
    check(0x01, SglDescriptor::transport(0), Transfer::None);
    check(0x01, SglDescriptor::in_capsule(0), Transfer::None);
    check(0x01, nothing, Transfer::None);
    check(
        0x02,
        SglDescriptor::transport(4096),
        Transfer::Send { bytes: 4096 },
    );
    check(0x03, SglDescriptor::transport(4096), Transfer::None); // both ways: no such command
    for (fabrics_type, expected) in [
        (0, Transfer::None),
        (1, Transfer::Fetch { bytes: 1024 }), // Connect as Windows sends it
        (4, Transfer::None),
        (5, Transfer::Fetch { bytes: 1024 }),
        (6, Transfer::Send { bytes: 1024 }),
        (8, Transfer::None),
    ] {
        let mut side = ready_target(target_limits(), NONE);
        let mut entry = entry(0x7F, 5, SglDescriptor::transport(1024));
        entry.nsid.set(fabrics_type);
        side.feed(&capsule(&entry, NONE));
        assert!(
            matches!(side.event(), ControllerEvent::Command { transfer, .. } if transfer == expected)
        );
    }
}

#[test]
fn in_capsule_data_is_in_the_slot_when_the_command_comes() {
    for digests in [NONE, HEADER, DATA, BOTH] {
        let mut side = ready_target(target_limits(), digests);
        let payload = pattern(4096, 3);
        side.feed(&inline_capsule(9, &payload, digests));
        let ControllerEvent::Command {
            claim,
            transfer,
            intact: true,
        } = side.event()
        else {
            panic!("a command was expected");
        };
        assert_eq!(transfer, Transfer::Inline { bytes: 4096 });
        assert_eq!(side.machine.entry().command_id.get(), 9);
        assert_eq!(side.memory[usize::from(claim.slot().0)][..4096], payload);
    }
}

#[test]
fn more_padding_than_asked_for_does_no_harm() {
    let plain = inline_capsule(9, b"abcd", NONE);
    let mut pdu = plain[..72].to_vec();
    pdu[3] = 92;
    pdu[4] = 96;
    pdu.resize(92, 0xEE);
    pdu.extend_from_slice(b"abcd");
    let mut side = ready_target(target_limits(), NONE);
    side.feed(&pdu);
    side.feed(&read_capsule(1, 512, NONE));
    assert_eq!((side.events.len(), &side.memory[0][..4]), (2, &b"abcd"[..]));
}

#[test]
fn the_admin_queue_takes_8192_in_capsule_bytes_and_an_io_queue_its_limit() {
    let admin = || ready_target(target_limits(), NONE);
    let io = || {
        let mut side = admin();
        side.machine.set_queue(false, 32);
        side
    };
    let mut side = admin();
    side.feed(&inline_capsule(1, &[1; 8192], NONE));
    assert_eq!(side.events.len(), 1);
    refuses(admin(), &inline_capsule(1, &[1; 8196], NONE), LIMIT, 0);
    let mut side = io();
    side.feed(&inline_capsule(1, &[1; 4096], NONE));
    let mut connect = entry(0x7F, 2, SglDescriptor::in_capsule(8192));
    connect.nsid.set(1);
    side.feed(&capsule_with(&connect, &[1; 8192], NONE));
    assert_eq!(side.events.len(), 2);
    refuses(io(), &inline_capsule(1, &[1; 4100], NONE), LIMIT, 0);
}

#[test]
fn descriptors_that_contradict_the_capsule_are_refused() {
    let (plen, address, kind) = (4, 8 + 24, 8 + 39);
    let wrong_length = entry(0x01, 1, SglDescriptor::in_capsule(512));
    refuses(
        state(1),
        &capsule_with(&wrong_length, &[1; 508], NONE),
        FIELD,
        plen,
    );
    refuses(state(1), &capsule(&wrong_length, NONE), FIELD, plen);
    let unspoken = entry(0x01, 1, SglDescriptor::transport(512));
    refuses(
        state(1),
        &capsule_with(&unspoken, &[1; 512], NONE),
        FIELD,
        plen,
    );
    let mut offset = entry(0x01, 1, SglDescriptor::in_capsule(512));
    offset.sgl.address.set(64);
    refuses(
        state(1),
        &capsule_with(&offset, &[1; 512], NONE),
        UNSUPPORTED,
        address,
    );
    let reads = entry(0x02, 1, SglDescriptor::in_capsule(512));
    refuses(
        state(1),
        &capsule_with(&reads, &[1; 512], NONE),
        UNSUPPORTED,
        kind,
    );
}

#[test]
fn descriptors_of_other_types_are_refused() {
    for kind in (0..=u8::MAX).filter(|kind| ![0x01, 0x5A].contains(kind)) {
        for opcode in [0x01, 0x02] {
            let mut entry = entry(opcode, 1, SglDescriptor::transport(512));
            entry.sgl.kind = SglKind(kind);
            refuses(state(1), &capsule(&entry, NONE), UNSUPPORTED, 8 + 39);
        }
    }
}

#[test]
fn a_transfer_above_the_limit_is_refused_and_the_connection_goes_on() {
    let mut side = ready_target(target_limits(), NONE);
    for bytes in [(256 << 10) + 1, u32::MAX] {
        for capsule in [read_capsule(1, bytes, NONE), write_capsule(1, bytes, NONE)] {
            side.feed(&capsule);
            assert_eq!(only_response(&mut side, 1), Status::INVALID_FIELD);
        }
    }
    assert_eq!(
        (side.take_events().len(), side.machine.slots_in_use()),
        (0, 0)
    );
    side.feed(&read_capsule(1, 256 << 10, NONE));
    assert_eq!(side.events.len(), 1);
}

/// SPDK's host forgets its event requests before it shuts a controller down, and uses their ids
/// again.
#[test]
fn an_event_request_gives_its_id_to_the_next_command_and_is_never_answered() {
    let mut side = ready_target(target_limits(), NONE);
    let event_request = capsule(&entry(0x0C, 3, SglDescriptor::transport(0)), NONE);
    let property_get = capsule(&entry(0x7F, 3, SglDescriptor::transport(0)), NONE);
    side.feed(&event_request);
    side.feed(&property_get);
    assert_eq!(side.take_events().len(), 2);
    side.feed(&property_get);
    assert_eq!(only_response(&mut side, 3), Status::COMMAND_ID_CONFLICT);
    let event = CompletionEntry::new(Status::SUCCESS, 0x20002);
    assert!(answer(&mut side, 0, event, 0), "its slot is free");
    assert_eq!(
        side.take_sent(),
        [],
        "but the host waits for another answer"
    );
    assert!(answer(&mut side, 1, success(), 0));
    assert_eq!(only_response(&mut side, 3), Status::SUCCESS);
    assert_eq!(side.machine.slots_in_use(), 0);

    let mut side = ready_target(target_limits(), NONE);
    side.machine.set_queue(false, 32);
    side.feed(&event_request); // on an I/O queue that opcode is another command's
    side.feed(&property_get);
    assert_eq!(only_response(&mut side, 3), Status::COMMAND_ID_CONFLICT);
}

#[test]
fn a_command_id_in_use_is_answered_with_a_conflict_and_the_first_command_lives_on() {
    let mut side = fetching(NONE);
    side.feed(&read_capsule(0x11, 512, NONE));
    assert_eq!(only_response(&mut side, 0x11), Status::COMMAND_ID_CONFLICT);
    side.feed(&inline_capsule(0x11, &pattern(4096, 5), NONE));
    assert_eq!(side.event(), ControllerEvent::Released { slot: Slot(1) });
    assert_eq!(only_response(&mut side, 0x11), Status::COMMAND_ID_CONFLICT);
    assert_eq!(side.machine.slots_in_use(), 1);

    let payload = pattern(8192, 1);
    side.feed(&data_pdu(DATA_PDU, (0x11, 0), 0, &payload, FLAG_LAST, NONE));
    assert_eq!(
        side.event(),
        ControllerEvent::Fetched {
            slot: Slot(0),
            intact: true
        }
    );
    assert_eq!(side.memory[0][..8192], payload);
    side.feed(&read_capsule(0x11, 512, NONE)); // all of it has arrived, but it is not answered
    assert_eq!(only_response(&mut side, 0x11), Status::COMMAND_ID_CONFLICT);
    assert!(answer(&mut side, 0, success(), 0));
    assert_eq!(only_response(&mut side, 0x11), Status::SUCCESS);
    side.feed(&read_capsule(0x11, 512, NONE));
    assert!(matches!(side.event(), ControllerEvent::Command { .. }));
}

#[test]
fn one_command_more_than_there_are_slots_ends_the_connection() {
    let mut side = ready_target(target_limits(), NONE);
    for command_id in 0..8 {
        side.feed(&read_capsule(command_id, 512, NONE));
    }
    assert_eq!((side.events.len(), side.machine.slots_in_use()), (8, 8));
    refuses(side, &read_capsule(8, 512, NONE), SEQUENCE, 0);
}

#[test]
fn a_queue_can_be_full_for_ever() {
    let mut side = ready_target(target_limits(), NONE);
    let mut waiting = VecDeque::new();
    for turn in 0..1000_u16 {
        side.feed(&read_capsule(turn, 512, NONE));
        let ControllerEvent::Command { claim, .. } = side.event() else {
            panic!("a command was expected")
        };
        waiting.push_back(claim.slot());
        if waiting.len() == 8 {
            let oldest = waiting.pop_front().expect("there are eight");
            assert!(answer(&mut side, oldest.0, success(), 512));
        }
    }
    assert_eq!(side.machine.slots_in_use(), 7);
}

// ---- answers

#[test]
fn sq_head_advances_with_every_answer_and_wraps_at_the_queues_size() {
    let mut side = ready_target(target_limits(), NONE);
    side.machine.set_queue(true, 3);
    let mut heads = Vec::new();
    for command_id in 0..5 {
        side.feed(&capsule(
            &entry(0x00, command_id, SglDescriptor::transport(0)),
            NONE,
        ));
        answer(&mut side, 0, success(), 0);
        heads.push(side.take_sent()[16]);
    }
    assert_eq!(heads, [1, 2, 0, 1, 2]);
    side.machine.set_flow_control(false);
    side.feed(&capsule(&entry(0x00, 9, SglDescriptor::transport(0)), NONE));
    answer(&mut side, 0, success(), 0);
    assert_eq!(side.take_sent()[16..18], [0xFF, 0xFF]);
}

#[test]
fn the_success_flag_stands_only_where_nothing_is_lost() {
    let check = |flow_control, allowed, entry, data_bytes, expected_pdus: &[u8]| {
        let limits = TargetLimits {
            success_flag: allowed,
            ..target_limits()
        };
        let mut side = ready_target(limits, NONE);
        side.machine.set_flow_control(flow_control);
        side.feed(&read_capsule(1, 512, NONE));
        assert!(answer(&mut side, 0, entry, data_bytes));
        let mut kinds = Vec::new();
        let mut sent = &side.sent[..];
        while !sent.is_empty() {
            let bytes = u32::from_le_bytes(sent[4..8].try_into().expect("4 bytes"));
            kinds.push(sent[0] << 4 | sent[1]);
            sent = &sent[bytes as usize..];
        }
        assert_eq!(kinds, expected_pdus);
    };
    let failed = CompletionEntry::new(Status::UNRECOVERED_READ_ERROR, 0);
    let with_result = CompletionEntry::new(Status::SUCCESS, 1 << 32);
    check(false, true, success(), 512, &[0x7C]);
    check(true, true, success(), 512, &[0x74, 0x50]);
    check(false, false, success(), 512, &[0x74, 0x50]);
    check(false, true, with_result, 512, &[0x74, 0x50]);
    check(false, true, failed, 0, &[0x50]);
    check(false, true, success(), 0, &[0x50]);
}

#[test]
fn a_slot_is_answered_once() {
    let mut side = ready_target(target_limits(), NONE);
    side.feed(&read_capsule(1, 512, NONE));
    assert!(answer(&mut side, 0, success(), 512));
    side.take_sent();
    assert!(!answer(&mut side, 0, success(), 0));
    assert!(!answer(&mut side, 7, success(), 0));
    assert!(!answer(&mut side, u16::MAX, success(), 0));
    assert_eq!(side.take_sent(), []);
}
