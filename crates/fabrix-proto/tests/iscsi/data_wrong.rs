//! Data that is damaged, that nobody asked for, or that is not what was announced.

use crate::wire::*;
use fabrix_proto::Slot;
use fabrix_proto::iscsi::target::{Answer, Event, SENSE_CRC_ERROR};

#[test]
fn a_damaged_piece_is_rejected_and_damns_its_command_alone() {
    let mut wire = logged_in(limits(), &DIGESTS);
    wire.send(&command_pdu(WRITE, 9, FIRST, 1024));
    let slot = wire.command();
    wire.fetch(slot);
    let ttt = wire.reply().get32(20);
    let pdu = data_out(0x80, 9, ttt, (0, 0), &[1; 1024]);
    let mut bytes = pdu.bytes(BOTH);
    bytes[100] ^= 1;
    wire.feed(&bytes);
    let reject = wire.reply();
    assert_eq!((reject.bhs[0], reject.bhs[2]), (0x3F, 2));
    assert_eq!(reject.data, pdu.bhs);
    assert_eq!(
        wire.event(),
        Event::Fetched {
            slot,
            intact: false
        }
    );
    assert!(wire.answer(slot, Answer::check_condition(&SENSE_CRC_ERROR)));
    let response = wire.reply();
    assert_eq!(
        (response.bhs[3], response.data[4], response.data[14]),
        (2, 0x0B, 0x47)
    );
    wire.send(&command_pdu(READ, 10, FIRST + 1, 4));
    let slot = wire.command();
    assert!(wire.answer(slot, Answer::good(4)));
}

#[test]
fn damaged_immediate_data_is_handed_out_as_damaged() {
    let mut wire = logged_in(limits(), &DIGESTS);
    let mut bytes = command_pdu(WRITE, 9, FIRST, 512)
        .data(&[1; 512])
        .bytes(BOTH);
    *bytes.last_mut().expect("some") ^= 0x80;
    wire.feed(&bytes);
    let event = wire.event();
    assert!(
        matches!(event, Event::Command { intact: false, .. }),
        "{event:?}"
    );
    assert_eq!(wire.reply().bhs[2], 2);
}

#[test]
fn what_cannot_be_carried_is_answered_and_its_data_read_over() {
    let both = command_pdu(0xE1, 9, FIRST, 512).data(&[1; 512]);
    let large = command_pdu(WRITE, 9, FIRST, (1 << 20) + 1).data(&[1; 512]);
    let long_cdb = command_pdu(WRITE, 9, FIRST, 1024).data(&[1; 512]).ahs(&[
        0, 17, 1, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16,
    ]);
    for (pdu, code) in [(both, 0x20), (large, 0x24), (long_cdb, 0x20)] {
        for keys in [&[][..], &DIGESTS] {
            let mut wire = logged_in(limits(), keys);
            wire.send(&pdu);
            let response = wire.reply();
            assert_eq!((response.bhs[0], response.bhs[3]), (0x21, 2));
            assert_eq!((response.data[4], response.data[14]), (5, code));
            assert_eq!(wire.event(), Event::Released { slot: Slot(0) });
            wire.send(&command_pdu(READ, 10, FIRST + 1, 4));
            wire.command();
        }
    }
}

#[test]
fn data_that_is_not_the_next_piece_ends_the_connection() {
    type Change = fn(Pdu) -> Pdu;
    let changes: [(&str, Change, u8); 5] = [
        ("offset behind", |pdu| pdu.put32(40, 4096), 4),
        ("offset far", |pdu| pdu.put32(40, u32::MAX - 100), 4),
        ("no data", |pdu| pdu.data(&[]), 9),
        ("too much", |pdu| pdu.data(&[1; 8196]), 4),
        ("F too early", |pdu| pdu.data(&[1; 4096]), 4),
    ];
    for (what, change, reason) in changes {
        let mut wire = logged_in(limits(), &[]);
        wire.send(&command_pdu(WRITE, 9, FIRST, 8192));
        let slot = wire.command();
        wire.fetch(slot);
        let ttt = wire.reply().get32(20);
        wire.send(&change(data_out(0x80, 9, ttt, (0, 0), &[1; 8192])));
        assert!(wire.is_closed() && wire.violation.is_some(), "{what}");
        let reject = wire.reply();
        assert_eq!((reject.bhs[0], reject.bhs[2]), (0x3F, reason), "{what}");
        assert!(wire.take_events().is_empty());
    }
}

/// RFC 7143, section 7.9: what a wrong DataSN says is missing was damaged, so the command fails and
/// nothing else does.
#[test]
fn data_with_a_wrong_number_fail_their_command_and_leave_the_connection() {
    for numbers in [[0, 0], [1, 0], [27, 28], [u32::MAX, 0]] {
        let mut wire = logged_in(limits(), &[]);
        wire.send(&command_pdu(WRITE, 9, FIRST, 8192));
        let slot = wire.command();
        wire.fetch(slot);
        let ttt = wire.reply().get32(20);
        wire.send(&data_out(0, 9, ttt, (numbers[0], 0), &[1; 4096]));
        wire.send(&data_out(0x80, 9, ttt, (numbers[1], 4096), &[1; 4096]));
        let event = wire.event();
        let damaged = Event::Fetched {
            slot,
            intact: false,
        };
        assert_eq!(event, damaged, "{numbers:?}");
        assert!(!wire.is_closed());
    }
}

#[test]
fn a_later_r2t_is_not_fulfilled_before_an_earlier_one() {
    let keys = ["MaxOutstandingR2T=2", "MaxBurstLength=8192"];
    let mut wire = logged_in(limits(), &keys);
    wire.send(&command_pdu(WRITE, 9, FIRST, 16_384));
    let slot = wire.command();
    wire.fetch(slot);
    let second = wire.said()[1].get32(20);
    wire.send(&data_out(0x80, 9, second, (0, 8192), &[1; 8192]));
    assert!(wire.is_closed());
}

#[test]
fn unsolicited_data_beyond_the_first_burst_ends_the_connection() {
    let mut wire = logged_in(limits(), &write_keys());
    wire.send(&command_pdu(WRITE_MORE, 9, FIRST, 50_000).data(&[1; 10_000]));
    wire.command();
    wire.send(&data_out(0x80, 9, UNASKED, (0, 10_000), &[1; 6385]));
    assert!(wire.is_closed());
}

#[test]
fn data_nobody_waits_for_is_read_over() {
    let mut wire = logged_in(limits(), &[]);
    wire.send(&command_pdu(WRITE, 9, FIRST, 8192));
    wire.command();
    for pdu in [
        data_out(0x80, 9, UNASKED, (0, 0), &[1; 100]),
        data_out(0x80, 9, 0x1234, (0, 0), &[1; 101]),
        data_out(0x80, 77, UNASKED, (0, 0), &[1; 102]),
        data_out(0x80, UNASKED, UNASKED, (0, 0), &[1; 103]),
    ] {
        wire.send(&pdu);
    }
    assert!(wire.said().is_empty() && wire.take_events().is_empty() && !wire.is_closed());
}

#[test]
fn announcements_beyond_what_was_agreed_end_the_connection() {
    let keys = ["ImmediateData=No"];
    let cases = [
        (&keys[..], command_pdu(WRITE, 9, FIRST, 512).data(&[1; 512])),
        (&[], command_pdu(READ, 9, FIRST, 512).data(&[1; 512])),
        (&[], command_pdu(WRITE, 9, FIRST, 100).data(&[1; 104])),
        (&[], command_pdu(WRITE_MORE, 9, FIRST, 8192)),
        (&write_keys()[..], command_pdu(0x41, 9, FIRST, 8192)),
        (
            &write_keys()[..],
            command_pdu(WRITE, 9, FIRST, 60_000).data(&[1; 16_388]),
        ),
    ];
    for (keys, pdu) in cases {
        let mut wire = logged_in(limits(), keys);
        wire.send(&pdu);
        assert!(wire.is_closed(), "{pdu:x?}");
        assert!(wire.take_events().is_empty());
    }
}
