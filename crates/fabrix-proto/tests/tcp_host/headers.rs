//! Which PDU may come when, and headers that are wrong; what both sides agree on first.

use Outcome::{Accepted, Fatal, Goodbye};
use fabrix_proto::nvme::queue::HostEvent;
use fabrix_proto::nvme::spec::Status;
use fabrix_proto::nvme::tcp::host::{Host, HostLimits};
use fabrix_proto::nvme::tcp::pdu::{Digests, FLAG_LAST, FLAG_SUCCESS, InitializeResponse, PduType};
use fabrix_proto::{Machine, Want};
use zerocopy::IntoBytes;

use super::tcp_wire::*;
use super::{
    DATA_PDU, FIELD, HEADER_DIGEST, ID, READ, SEQUENCE, UNSUPPORTED, WRITE, busy, c2h, refuses,
    state,
};

#[derive(Clone, Copy, Debug, PartialEq)]
enum Outcome {
    Accepted,
    Goodbye,
    Fatal(u16),
}

/// Every kind of PDU, well formed: before ICResp, idle, with a read in slot 2, with a write there.
const TABLE: [(u8, [Outcome; 4]); 12] = [
    (0x00, [Fatal(SEQUENCE); 4]),
    (
        0x01,
        [Accepted, Fatal(SEQUENCE), Fatal(SEQUENCE), Fatal(SEQUENCE)],
    ),
    (0x02, [Fatal(SEQUENCE); 4]),
    (0x03, [Goodbye; 4]),
    (0x04, [Fatal(SEQUENCE); 4]),
    (0x05, [Fatal(SEQUENCE), Fatal(SEQUENCE), Accepted, Accepted]),
    (0x06, [Fatal(SEQUENCE); 4]),
    (
        0x07,
        [Fatal(SEQUENCE), Fatal(SEQUENCE), Accepted, Fatal(SEQUENCE)],
    ),
    (0x08, [Fatal(FIELD); 4]),
    (
        0x09,
        [Fatal(SEQUENCE), Fatal(SEQUENCE), Fatal(SEQUENCE), Accepted],
    ),
    (0x0A, [Fatal(FIELD); 4]),
    (0xFF, [Fatal(FIELD); 4]),
];

fn well_formed(kind: u8) -> Vec<u8> {
    match kind {
        0x01 => InitializeResponse::new(0, NONE, 8192).as_bytes().to_vec(),
        0x05 => response(ID, Status::SUCCESS, NONE),
        0x07 => c2h(ID, 0, 4096, FLAG_LAST),
        0x09 => r2t(ID, 7, 0, 16384, NONE),
        _ => {
            let bytes = PduType(kind).header_bytes().unwrap_or(24);
            let mut pdu = vec![kind, 0, bytes, 0, bytes, 0, 0, 0];
            pdu.resize(usize::from(bytes), 0);
            pdu
        }
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
                (None, Some(HostEvent::Terminated)) => Goodbye,
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
fn the_controllers_goodbye_says_why_and_ends_everything() {
    for digests in [NONE, BOTH] {
        let (mut side, _) = busy(READ, digests);
        side.feed(&[
            3, 0, 24, 0, 24, 0, 0, 0, 1, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
        ]);
        assert_eq!(side.event(), HostEvent::Terminated);
        let reason = side.machine.goodbye().expect("it said why");
        assert_eq!((reason.status, reason.information), (1, 2));
        assert_eq!(
            (side.machine.want(), side.machine.is_ready()),
            (Want::Closed, false)
        );
    }
}

#[test]
fn every_wrong_header_length_is_refused() {
    for (kind, index) in [(0x01, 0), (0x03, 1), (0x05, 2), (0x07, 2), (0x09, 3)] {
        let right = PduType(kind).header_bytes();
        for hlen in (0..=u8::MAX).filter(|hlen| Some(*hlen) != right) {
            let mut pdu = well_formed(kind);
            pdu[2] = hlen;
            refuses(state(index), &pdu, FIELD, 2);
        }
    }
}

#[test]
fn every_impossible_pdu_length_is_refused() {
    let cases: [(u8, usize, &[u32]); 5] = [
        (0x01, 0, &[0, 24, 127, 129, u32::MAX]),
        (0x03, 1, &[0, 23, 153, u32::MAX]),
        (0x05, 2, &[0, 8, 23, 25, 28, u32::MAX]),
        (0x07, 2, &[0, 24, 24 + 4095, 24 + 4097, 24 + 4100, u32::MAX]),
        (0x09, 3, &[0, 23, 25, 28, u32::MAX]),
    ];
    for (kind, index, plens) in cases {
        for plen in plens {
            let mut pdu = well_formed(kind);
            pdu[4..8].copy_from_slice(&plen.to_le_bytes());
            refuses(state(index), &pdu, FIELD, 4);
        }
    }
}

#[test]
fn data_offsets_into_the_header_or_off_the_grid_are_refused() {
    for pdo in [0, 8, 20, 23, 25, 26, 27] {
        let mut pdu = well_formed(0x07);
        pdu[3] = pdo;
        refuses(state(2), &pdu, FIELD, 3);
    }
    let mut pdu = data_pdu(DATA_PDU, (ID, 0), 0, &[1; 4096], FLAG_LAST, HEADER);
    pdu[3] = 24; // over the digest
    refuses(busy(READ, HEADER).0, &pdu, FIELD, 3);
}

#[test]
fn reserved_flags_and_digests_not_agreed_are_refused() {
    for (kind, index, allowed) in [
        (0x01, 0, 0),
        (0x05, 2, 0),
        (0x07, 2, FLAG_LAST | FLAG_SUCCESS),
        (0x09, 3, 0),
    ] {
        for flags in (0..=u8::MAX).filter(|flags| flags & !allowed != 0) {
            let mut pdu = well_formed(kind);
            pdu[1] = flags;
            refuses(state(index), &pdu, FIELD, 1);
        }
    }
    for pdu in [
        response(ID, Status::SUCCESS, NONE),
        c2h(ID, 0, 4096, FLAG_LAST),
    ] {
        let mut pdu = pdu;
        pdu[4] += 4; // room for the digest, but no flag for it
        refuses(busy(READ, HEADER).0, &pdu, FIELD, 1);
    }
}

/// A host that wants these digests is sent this ICResp.
fn opening(wanted: Digests, fewer_digests: bool, response: &InitializeResponse) -> Side<Host> {
    let limits = HostLimits {
        header_digest: wanted.header,
        data_digest: wanted.data,
        fewer_digests,
        ..host_limits()
    };
    let mut side = Side::new(Host::new(limits, crc32c), 8, SLOT_BYTES);
    side.with(|host, out| host.start(out));
    side.feed(response.as_bytes());
    side
}

#[test]
fn digests_must_be_those_asked_for() {
    for wanted in [NONE, HEADER, DATA, BOTH] {
        for given in [NONE, HEADER, DATA, BOTH] {
            let added = given.header && !wanted.header || given.data && !wanted.data;
            for fewer in [false, true] {
                let side = opening(wanted, fewer, &InitializeResponse::new(0, given, 4096));
                let accepted = given == wanted || fewer && !added;
                assert_eq!(
                    side.machine.is_ready(),
                    accepted,
                    "{wanted:?} {given:?} {fewer}"
                );
                if !accepted {
                    assert_eq!(side.fatal(), (if added { FIELD } else { UNSUPPORTED }, 11));
                }
            }
        }
    }
}

#[test]
fn impossible_values_in_icresp_are_refused() {
    let check = |change: fn(&mut InitializeResponse), expected| {
        let mut response = InitializeResponse::new(0, NONE, 4096);
        change(&mut response);
        assert_eq!(opening(NONE, false, &response).fatal(), expected);
    };
    check(|it| it.format_version.set(1), (UNSUPPORTED, 8));
    check(|it| it.controller_alignment = 32, (FIELD, 10));
    check(|it| it.controller_alignment = 255, (FIELD, 10));
    check(|it| it.max_h2c_bytes.set(0), (FIELD, 12));
    check(|it| it.max_h2c_bytes.set(4092), (FIELD, 12));
    check(|it| it.max_h2c_bytes.set(4098), (FIELD, 12));
}

#[test]
fn a_wrong_header_digest_ends_the_connection() {
    for (pdu, transfer) in [
        (response(ID, Status::SUCCESS, HEADER), READ),
        (data_pdu(DATA_PDU, (ID, 0), 0, &[1; 512], 0, HEADER), READ),
        (r2t(ID, 0, 0, 4096, HEADER), WRITE),
    ] {
        for byte in [8, 15, 23, 24, 27] {
            let mut pdu = pdu.clone();
            pdu[byte] ^= 1;
            refuses(busy(transfer, HEADER).0, &pdu, HEADER_DIGEST, 0);
        }
    }
}
