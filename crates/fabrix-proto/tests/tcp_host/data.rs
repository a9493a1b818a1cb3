//! The data of commands, in both directions: where it may lie, how much there may be, and in which
//! pieces.

use fabrix_proto::Slot;
use fabrix_proto::nvme::queue::{HostEvent, HostTransfer};
use fabrix_proto::nvme::spec::{Status, SubmissionEntry};
use fabrix_proto::nvme::tcp::pdu::{FLAG_LAST, FLAG_SUCCESS, PduType};

use super::tcp_wire::*;
use super::{
    DATA_PDU, FIELD, ID, LIMIT, RANGE, READ, SEQUENCE, WRITE, busy, c2h, command, refuses, state,
};

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
        HostEvent::Completed {
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
            HostEvent::Completed {
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
        HostEvent::Completed {
            data_bytes: 512,
            ..
        }
    ));
    let command_id = command(&mut side, 2, READ);
    side.feed(&response(command_id, Status::SUCCESS, NONE));
    assert!(matches!(
        side.event(),
        HostEvent::Completed { data_bytes: 0, .. }
    ));
}

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
fn no_more_r2ts_of_a_command_wait_than_maxr2t_allows() {
    let two = [r2t(ID, 1, 0, 4096, NONE), r2t(ID, 2, 4096, 4096, NONE)].concat();
    refuses(state(3), &two, LIMIT, 0);
    let mut side = state(3);
    side.feed(&two[..24]);
    side.feed(&two[24..]); // the data for the first has left
    assert_eq!(side.take_sent().len(), 2 * (24 + 4096));
}

#[test]
fn data_that_waits_for_a_command_that_fails_is_not_sent() {
    let mut side = state(3);
    let other = command(&mut side, 4, WRITE);
    side.take_sent();
    let pdus = [
        r2t(ID, 1, 0, 4096, NONE),
        r2t(other, 2, 0, 512, NONE),
        response(ID, Status::WRITE_FAULT, NONE),
    ];
    side.feed(&pdus.concat());
    assert!(matches!(
        side.event(),
        HostEvent::Completed {
            slot: Slot(2),
            data_bytes: 0,
            ..
        }
    ));
    let payload = vec![side.memory[4][0]; 512];
    let expected = data_pdu(PduType::HOST_DATA, (other, 2), 0, &payload, FLAG_LAST, NONE);
    assert_eq!(side.take_sent(), expected);
}

#[test]
fn a_write_whose_data_was_not_sent_cannot_succeed() {
    let pdus = [
        r2t(ID, 1, 0, 4096, NONE),
        response(ID, Status::SUCCESS, NONE),
    ];
    refuses(state(3), &pdus.concat(), SEQUENCE, 0);
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
        HostEvent::Completed {
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
            HostEvent::Completed { intact: false, .. }
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
            HostEvent::Completed { intact: true, .. }
        ));
    }
}
