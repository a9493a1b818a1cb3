//! The controller's side and the data of writes: each rule of H2CData, answers that come early,
//! digests.

mod tcp_wire;

use fabrix_proto::Slot;
use fabrix_proto::nvme::queue::{ControllerEvent, Transfer};
use fabrix_proto::nvme::spec::{CompletionEntry, SglDescriptor, Status};
use fabrix_proto::nvme::tcp::pdu::{Digests, FLAG_DATA_DIGEST, FLAG_LAST};
use fabrix_proto::nvme::tcp::target::{Target, TargetLimits};
use tcp_wire::adapter::*;
use tcp_wire::*;

// ---- R2T and H2CData

#[test]
fn a_write_larger_than_an_r2t_is_asked_for_piece_by_piece() {
    let limits = TargetLimits {
        max_r2t_bytes: 4096,
        ..target_limits()
    };
    let mut side = ready_target(limits, NONE);
    let payload = pattern(10_000, 2);
    side.feed(&write_capsule(5, 10_000, NONE));
    fetch(&mut side, 0);
    side.take_events();
    for (offset, end) in [(0, 4096), (4096, 8192), (8192, 10_000)] {
        let sent = side.take_sent();
        assert_eq!(
            sent,
            r2t(5, 0, offset, end - offset, NONE),
            "one R2T at a time"
        );
        let piece = &payload[offset as usize..end as usize];
        let (first, second) = piece.split_at(1000);
        side.feed(&data_pdu(DATA_PDU, (5, 0), offset, first, 0, NONE));
        assert_eq!((side.sent.len(), side.events.len()), (0, 0));
        side.feed(&data_pdu(
            DATA_PDU,
            (5, 0),
            offset + 1000,
            second,
            FLAG_LAST,
            NONE,
        ));
    }
    assert_eq!(
        side.event(),
        ControllerEvent::Fetched {
            slot: Slot(0),
            intact: true
        }
    );
    assert_eq!(side.memory[0][..10_000], payload);
    assert_eq!(side.take_sent(), []);
}

/// What each misuse of H2CData is answered with, against a write of 8192 bytes (id 0x11, slot 0)
/// asked for whole.
#[test]
fn h2cdata_that_was_not_asked_for_is_refused() {
    let piece = |ids, offset, bytes: usize, flags| {
        data_pdu(DATA_PDU, ids, offset, &vec![1; bytes], flags, NONE)
    };
    let right = (0x11, 0);
    for tag in [1, 2, 7, 8, 9, 255, 256, u16::MAX] {
        refuses(
            fetching(NONE),
            &piece((0x11, tag), 0, 8192, FLAG_LAST),
            SEQUENCE,
            0,
        );
    }
    for command_id in [0, 0x10, 0x12, 0x1011, u16::MAX] {
        refuses(
            fetching(NONE),
            &piece((command_id, 0), 0, 8192, FLAG_LAST),
            SEQUENCE,
            0,
        );
    }
    for offset in [1, 4, 4096, 8188, 8192, 1 << 31, u32::MAX - 4095, u32::MAX] {
        refuses(fetching(NONE), &piece(right, offset, 4096, 0), RANGE, 0);
    }
    refuses(fetching(NONE), &piece(right, 0, 8196, 0), LIMIT, 0); // above MAXH2CDATA
    refuses(fetching(NONE), &piece(right, 0, 0, FLAG_LAST), FIELD, 16);
    refuses(fetching(NONE), &piece(right, 0, 4096, FLAG_LAST), FIELD, 1);
    let half = || {
        let mut side = fetching(NONE);
        side.feed(&piece(right, 0, 4096, 0));
        side
    };
    refuses(half(), &piece(right, 0, 4096, 0), RANGE, 0); // again
    refuses(half(), &piece(right, 4092, 4096, 0), RANGE, 0); // overlapping
    refuses(half(), &piece(right, 8192, 4096, FLAG_LAST), RANGE, 0); // a gap
    refuses(half(), &piece(right, 4096, 4100, FLAG_LAST), RANGE, 0); // past the end
    refuses(half(), &piece(right, 4096, 0, FLAG_LAST), FIELD, 16);
}

#[test]
fn h2cdata_lengths_near_four_gigabytes_are_refused_without_wrapping() {
    let limits = TargetLimits {
        max_h2c_bytes: u32::MAX,
        ..target_limits()
    };
    for (offset, bytes, fes) in [
        (4096, u32::MAX, LIMIT),
        (4096, u32::MAX - 4095, RANGE),
        (4096, u32::MAX - 23, RANGE),
        (u32::MAX, 1, RANGE),
        (4096, 1 << 31, RANGE),
    ] {
        let mut side = ready_target(limits, NONE);
        side.feed(&write_capsule(0x11, 8192, NONE));
        fetch(&mut side, 0);
        side.feed(&data_pdu(DATA_PDU, (0x11, 0), 0, &[1; 4096], 0, NONE));
        let mut header = data_pdu(DATA_PDU, (0x11, 0), offset, &[1], 0, NONE);
        header.truncate(24);
        header[4] = 24; // PLEN as Windows writes it, so that only DATAL speaks
        header[16..20].copy_from_slice(&bytes.to_le_bytes());
        refuses(side, &header, fes, 0);
    }
}

#[test]
fn h2cdata_past_the_r2t_but_inside_the_write_is_refused() {
    let limits = TargetLimits {
        max_r2t_bytes: 4096,
        ..target_limits()
    };
    let mut side = ready_target(limits, NONE);
    side.feed(&write_capsule(0x11, 8192, NONE));
    fetch(&mut side, 0);
    refuses(
        side,
        &data_pdu(DATA_PDU, (0x11, 0), 0, &[1; 8192], FLAG_LAST, NONE),
        LIMIT,
        0,
    );
}

#[test]
fn h2cdata_for_a_slot_without_a_fetch_is_refused() {
    let data = || data_pdu(DATA_PDU, (0x11, 0), 0, &[1; 512], FLAG_LAST, NONE);
    let with = |capsule: Vec<u8>| {
        let mut side = ready_target(target_limits(), NONE);
        side.feed(&capsule);
        side
    };
    refuses(with(write_capsule(0x11, 512, NONE)), &data(), SEQUENCE, 0); // not asked for yet
    refuses(with(read_capsule(0x11, 512, NONE)), &data(), SEQUENCE, 0);
    refuses(
        with(inline_capsule(0x11, &[1; 512], NONE)),
        &data(),
        SEQUENCE,
        0,
    );
    let no_data = entry(0x00, 0x11, SglDescriptor::transport(0));
    refuses(with(capsule(&no_data, NONE)), &data(), SEQUENCE, 0);
    let mut side = with(write_capsule(0x11, 512, NONE));
    fetch(&mut side, 0);
    side.feed(&data());
    assert_eq!(side.violation, None);
    side.feed(&data()); // all of it has arrived
    assert_eq!(side.fatal(), (SEQUENCE, 0));
    let mut side = with(write_capsule(0x11, 512, NONE));
    fetch(&mut side, 0);
    side.feed(&data());
    answer(&mut side, 0, success(), 0);
    refuses(side, &data(), SEQUENCE, 0); // answered
}

#[test]
fn windows_may_leave_the_data_out_of_plen() {
    for (digests, plens) in [(NONE, &[24][..]), (BOTH, &[24, 28][..])] {
        for plen in plens {
            for pdo in [0, if digests.header { 28 } else { 24 }] {
                let mut side = fetching(digests);
                let payload = pattern(8192, 6);
                let mut pdu = data_pdu(DATA_PDU, (0x11, 0), 0, &payload, FLAG_LAST, digests);
                pdu[4..8].copy_from_slice(&u32::to_le_bytes(*plen));
                pdu[3] = pdo;
                if digests.header {
                    let digest = crc32c(&pdu[..24]).to_le_bytes();
                    pdu[24..28].copy_from_slice(&digest);
                }
                side.feed(&pdu);
                assert_eq!(
                    side.event(),
                    ControllerEvent::Fetched {
                        slot: Slot(0),
                        intact: true
                    }
                );
                assert_eq!(side.memory[0][..8192], payload);
            }
        }
    }
}

#[test]
fn a_last_piece_that_does_not_say_last_is_accepted() {
    let mut side = fetching(NONE);
    side.feed(&data_pdu(DATA_PDU, (0x11, 0), 0, &[1; 8192], 0, NONE));
    assert_eq!(
        side.event(),
        ControllerEvent::Fetched {
            slot: Slot(0),
            intact: true
        }
    );
}

/// The decision: an answer given while data is on its way waits until that data is swallowed.
#[test]
fn an_early_answer_waits_for_the_data_that_was_asked_for() {
    let limits = TargetLimits {
        max_r2t_bytes: 4096,
        ..target_limits()
    };
    let mut side = ready_target(limits, NONE);
    side.feed(&write_capsule(0x11, 8192, NONE));
    fetch(&mut side, 0);
    side.take_sent();
    side.take_events();
    side.feed(&data_pdu(DATA_PDU, (0x11, 0), 0, &[1; 1024], 0, NONE));
    let failed = CompletionEntry::new(Status::WRITE_FAULT, 0);
    assert!(!answer(&mut side, 0, failed, 0));
    assert!(
        !answer(&mut side, 0, success(), 0),
        "the first answer counts"
    );
    assert_eq!((side.sent.len(), side.machine.slots_in_use()), (0, 1));
    side.feed(&read_capsule(0x11, 512, NONE));
    assert_eq!(only_response(&mut side, 0x11), Status::COMMAND_ID_CONFLICT);
    side.feed(&data_pdu(
        DATA_PDU,
        (0x11, 0),
        1024,
        &[1; 3072],
        FLAG_LAST,
        NONE,
    ));
    assert_eq!(side.event(), ControllerEvent::Released { slot: Slot(0) });
    assert_eq!(only_response(&mut side, 0x11), Status::WRITE_FAULT);
    assert_eq!(side.machine.slots_in_use(), 0);
    let more = data_pdu(DATA_PDU, (0x11, 0), 4096, &[1; 4096], FLAG_LAST, NONE);
    refuses(side, &more, SEQUENCE, 0); // no R2T asked for the rest
}

#[test]
fn a_write_may_be_answered_without_being_fetched() {
    let mut side = ready_target(target_limits(), NONE);
    side.feed(&write_capsule(0x11, 8192, NONE));
    assert!(answer(
        &mut side,
        0,
        CompletionEntry::new(Status::LBA_OUT_OF_RANGE, 0),
        0
    ));
    assert_eq!(only_response(&mut side, 0x11), Status::LBA_OUT_OF_RANGE);
    assert_eq!(side.machine.slots_in_use(), 0);
}

// ---- in-capsule data that is not small

/// An I/O queue that takes 64 KiB in a capsule.
fn roomy(digests: Digests) -> Side<Target> {
    let limits = TargetLimits {
        in_capsule_bytes: 64 << 10,
        ..target_limits()
    };
    let mut side = ready_target(limits, digests);
    side.machine.set_queue(false, 32);
    side
}

const LARGE: usize = 20_000;

#[test]
fn large_in_capsule_data_follows_its_command_without_an_r2t() {
    for (digests, header_bytes) in [(NONE, 72), (BOTH, 76)] {
        let mut side = roomy(digests);
        let payload = pattern(20_000, 3);
        let pdu = inline_capsule(7, &payload, digests);
        side.feed(&pdu[..header_bytes]);
        let ControllerEvent::Command {
            claim, transfer, ..
        } = side.event()
        else {
            panic!("the command comes before its data");
        };
        let slot = claim.slot();
        assert_eq!(transfer, Transfer::Fetch { bytes: 20_000 });
        fetch(&mut side, slot.0);
        assert_eq!(side.take_sent(), [], "nothing to ask for");
        side.feed(&pdu[header_bytes..]);
        let whole = ControllerEvent::Fetched { slot, intact: true };
        assert_eq!(side.event(), whole);
        assert_eq!(side.memory[usize::from(slot.0)][..LARGE], payload);
        assert!(answer(&mut side, slot.0, success(), 0));
        assert_eq!(side.machine.slots_in_use(), 0);
    }
}

#[test]
fn large_in_capsule_data_that_was_damaged_costs_the_command_only() {
    let mut side = roomy(DATA);
    let mut pdu = inline_capsule(7, &[1; LARGE], DATA);
    *pdu.last_mut().expect("a digest") ^= 1;
    side.feed(&pdu[..72]);
    side.take_events();
    fetch(&mut side, 0);
    side.feed(&pdu[72..]);
    let damaged = ControllerEvent::Fetched {
        slot: Slot(0),
        intact: false,
    };
    assert_eq!(side.event(), damaged);
    assert!(answer(&mut side, 0, success(), 0));
    side.feed(&read_capsule(8, 512, DATA));
    assert!(matches!(side.event(), ControllerEvent::Command { .. }));
}

#[test]
fn large_in_capsule_data_of_a_command_that_was_answered_is_dropped() {
    for digests in [NONE, BOTH] {
        let header_bytes = if digests.header { 76 } else { 72 };
        for at_once in [1, 999, 4096, LARGE + 4] {
            let mut side = roomy(digests);
            let pdu = inline_capsule(7, &[1; LARGE], digests);
            side.feed(&pdu[..header_bytes]);
            side.take_events();
            let refused = CompletionEntry::new(Status::LBA_OUT_OF_RANGE, 0);
            assert!(!answer(&mut side, 0, refused, 0), "its data is on the way");
            assert_eq!(side.take_sent(), []);
            for piece in pdu[header_bytes..].chunks(at_once) {
                side.feed(piece);
            }
            assert_eq!(side.event(), ControllerEvent::Released { slot: Slot(0) });
            assert!(side.memory[0][..LARGE].iter().all(|byte| *byte == 0));
            assert_eq!(side.machine.slots_in_use(), 0);
            assert_eq!(
                side.take_sent()[..1],
                [0x05],
                "the answer comes after the data"
            );
            side.feed(&read_capsule(7, 512, digests));
            assert!(matches!(side.event(), ControllerEvent::Command { .. }));
        }
    }
}

#[test]
fn large_in_capsule_data_under_a_command_id_in_use_is_dropped() {
    let mut side = roomy(NONE);
    side.feed(&read_capsule(7, 512, NONE));
    side.take_events();
    side.feed(&inline_capsule(7, &[1; LARGE], NONE));
    assert_eq!(side.event(), ControllerEvent::Released { slot: Slot(1) });
    assert_eq!(only_response(&mut side, 7), Status::COMMAND_ID_CONFLICT);
    assert_eq!(side.machine.slots_in_use(), 1, "the first is not touched");
}

// ---- digests

#[test]
fn a_wrong_header_digest_ends_the_connection() {
    for byte in [8, 40, 71, 72, 75] {
        let mut pdu = read_capsule(1, 512, HEADER);
        pdu[byte] ^= 1;
        refuses(
            ready_target(target_limits(), HEADER),
            &pdu,
            HEADER_DIGEST,
            0,
        );
    }
    let mut pdu = data_pdu(DATA_PDU, (0x11, 0), 0, &[1; 8192], FLAG_LAST, HEADER);
    pdu[12] ^= 0x10;
    refuses(fetching(HEADER), &pdu, HEADER_DIGEST, 0);
}

#[test]
fn a_wrong_data_digest_of_in_capsule_data_costs_the_command_only() {
    for (wrong_byte, digests) in [(76, BOTH), (72, DATA), (72 + 512, DATA)] {
        let mut side = ready_target(target_limits(), digests);
        let mut pdu = inline_capsule(3, &[1; 512], digests);
        pdu[wrong_byte] ^= 0x80;
        side.feed(&pdu);
        let ControllerEvent::Command {
            claim,
            intact: false,
            ..
        } = side.event()
        else {
            panic!("a command that is not intact was expected");
        };
        let again = CompletionEntry::new(Status::TRANSIENT_TRANSPORT_ERROR, 0);
        assert!(answer(&mut side, claim.slot().0, again, 0));
        side.feed(&inline_capsule(3, &[1; 512], digests));
        assert!(matches!(
            side.event(),
            ControllerEvent::Command { intact: true, .. }
        ));
    }
}

#[test]
fn a_wrong_data_digest_of_one_piece_is_told_when_all_has_arrived() {
    let mut side = fetching(DATA);
    let mut first = data_pdu(DATA_PDU, (0x11, 0), 0, &[1; 4096], 0, DATA);
    first[100] ^= 1;
    side.feed(&first);
    assert_eq!(side.take_events(), []);
    side.feed(&data_pdu(
        DATA_PDU,
        (0x11, 0),
        4096,
        &[1; 4096],
        FLAG_LAST,
        DATA,
    ));
    assert_eq!(
        side.event(),
        ControllerEvent::Fetched {
            slot: Slot(0),
            intact: false
        }
    );
    assert!(answer(&mut side, 0, success(), 0));
    side.feed(&write_capsule(0x11, 4096, DATA));
    fetch(&mut side, 0);
    side.take_events();
    side.feed(&data_pdu(
        DATA_PDU,
        (0x11, 0),
        0,
        &[1; 4096],
        FLAG_LAST,
        DATA,
    ));
    assert_eq!(
        side.event(),
        ControllerEvent::Fetched {
            slot: Slot(0),
            intact: true
        }
    );
}

#[test]
fn a_capsule_without_data_has_no_data_digest() {
    let mut side = ready_target(target_limits(), DATA);
    let mut pdu = read_capsule(1, 512, DATA);
    side.feed(&pdu);
    pdu[1] |= FLAG_DATA_DIGEST; // some hosts set the flag all the same
    pdu[10] = 2;
    side.feed(&pdu);
    assert_eq!(side.events.len(), 2);
}
