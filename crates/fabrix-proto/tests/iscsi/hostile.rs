//! The initiator's machine against a target that lies after the login.

use fabrix_proto::Breach;
use fabrix_proto::iscsi::initiator::{Event, LoginConfig, Transfer};
use fabrix_proto::iscsi::pdu::AsyncEvent;

use crate::host::*;
use crate::wire::{BOTH, Pdu, pattern};

/// A Login Response of our stage, with T or without.
pub(crate) fn login_response(flags: u8, text: &[&str]) -> Pdu {
    let text: Vec<u8> = text
        .iter()
        .flat_map(|pair| [pair.as_bytes(), b"\0"].concat())
        .collect();
    Pdu::new(0x23, flags)
        .put32(24, 1)
        .put32(28, 1)
        .put32(32, 64)
        .data(&text)
}

/// A session of the tests, with what the target says in the operational stage.
pub(crate) fn logged_in(text: &[&str]) -> Host {
    let mut host = Host::new(config());
    host.said();
    host.send(&login_response(
        0x81,
        &["AuthMethod=None", "TargetPortalGroupTag=1"],
    ));
    host.said();
    host.send(&login_response(0x87, text));
    assert_eq!(host.event(), Event::LoggedIn);
    host
}

/// A session with a command in slot 0, and its tag.
pub(crate) fn busy(transfer: Transfer) -> (Host, u32) {
    let mut host = logged_in(&["InitialR2T=Yes", "ImmediateData=No", "MaxBurstLength=65536"]);
    assert!(host.command(0, transfer));
    let itt = host.said()[0].get32(16);
    (host, itt)
}

pub(crate) fn numbered(opcode: u8, flags: u8) -> Pdu {
    Pdu::new(opcode, flags).put32(28, 2).put32(32, 64)
}

fn data_in(flags: u8, itt: u32, (data_sn, offset): (u32, u32), data: &[u8]) -> Pdu {
    let pdu = numbered(0x25, flags).itt(itt).ttt(NO_TAG);
    pdu.put32(36, data_sn).put32(40, offset).data(data)
}

fn r2t(itt: u32, (sn, offset, bytes): (u32, u32, u32)) -> Pdu {
    let pdu = numbered(0x31, 0x80).itt(itt).ttt(9);
    pdu.put32(36, sn).put32(40, offset).put32(44, bytes)
}

pub(crate) const A_READ: Transfer = Transfer::Read { bytes: 4096 };
pub(crate) const A_WRITE: Transfer = Transfer::Write { bytes: 100_000 };

#[track_caller]
fn ends(transfer: Transfer, lie: impl Fn(u32) -> Pdu, breach: Breach, word: &str) {
    let (mut host, itt) = busy(transfer);
    host.send(&lie(itt));
    host.broke(breach, word);
}

#[test]
fn data_outside_of_a_read_costs_the_connection() {
    let read = |at, data: &'static [u8]| move |itt| data_in(0x80, itt, at, data);
    ends(
        A_READ,
        read((0, 0), &[0; 4100]),
        Breach::DataRange,
        "more data",
    );
    ends(
        A_READ,
        read((0, 512), &[0; 512]),
        Breach::DataRange,
        "continue",
    );
    ends(A_READ, read((1, 0), &[0; 512]), Breach::Sequence, "DataSN");
    ends(A_READ, read((0, 0), &[]), Breach::HeaderField, "neither");
    ends(
        A_WRITE,
        read((0, 0), &[0; 512]),
        Breach::Sequence,
        "not read",
    );
    let early_status = |itt| data_in(0x01, itt, (0, 0), &[0; 512]);
    ends(A_READ, early_status, Breach::HeaderField, "not the last");
    let twice = |host: &mut Host, itt| {
        host.send(&data_in(0x80, itt, (0, 0), &[1; 512]));
        host.send(&data_in(0x80, itt, (1, 0), &[2; 512]));
    };
    let (mut host, itt) = busy(A_READ);
    twice(&mut host, itt);
    host.broke(Breach::DataRange, "continue");
    assert_eq!(host.memory[0][..512], [1; 512], "not written a second time");
}

#[test]
fn an_r2t_outside_of_a_write_costs_the_connection() {
    let r2t = |piece| move |itt| r2t(itt, piece);
    ends(A_WRITE, r2t((0, 0, 0)), Breach::Limit, "no data");
    ends(
        A_WRITE,
        r2t((0, 0, 65_537)),
        Breach::Limit,
        "MaxBurstLength",
    );
    ends(A_WRITE, r2t((0, 512, 512)), Breach::DataRange, "continue");
    ends(A_WRITE, r2t((1, 0, 512)), Breach::Sequence, "R2TSN");
    ends(A_READ, r2t((0, 0, 512)), Breach::Sequence, "without data");
    let (mut host, itt) = busy(A_WRITE);
    host.send(&super_r2t(itt, 0, 0, 65_536));
    host.send(&super_r2t(itt, 1, 65_536, 65_536));
    host.broke(Breach::DataRange, "past the end");
    let no_tag = |itt| super_r2t(itt, 0, 0, 512).ttt(NO_TAG);
    ends(A_WRITE, no_tag, Breach::HeaderField, "without a tag");
}

fn super_r2t(itt: u32, sn: u32, offset: u32, bytes: u32) -> Pdu {
    r2t(itt, (sn, offset, bytes))
}

#[test]
fn many_tiny_r2ts_do_not_make_us_drown() {
    let (mut host, itt) = busy(A_WRITE);
    let mut sn = 0;
    while host.violation.is_none() {
        host.send(&super_r2t(itt, sn, sn, 1));
        sn += 1;
        assert!(sn < 1000, "an R2T for every byte");
    }
    host.broke(Breach::Sequence, "more R2Ts");
}

#[test]
fn several_r2ts_are_answered_each_with_its_own_data() {
    let (mut host, itt) = busy(A_WRITE);
    host.memory[0][..100_000].copy_from_slice(&pattern(100_000, 3));
    host.send(&super_r2t(itt, 0, 0, 8192));
    host.send(&super_r2t(itt, 1, 8192, 10_000));
    let said = host.said();
    let seen: Vec<_> = said
        .iter()
        .map(|pdu| (pdu.bhs[1], pdu.get32(36), pdu.get32(40), pdu.data.len()))
        .collect();
    assert_eq!(
        seen,
        [
            (0x80, 0, 0, 8192),
            (0, 0, 8192, 8192),
            (0x80, 1, 16_384, 1808)
        ]
    );
    assert!(
        said.iter()
            .all(|pdu| (pdu.get32(16), pdu.get32(20)) == (itt, 9))
    );
    let data: Vec<u8> = said.into_iter().flat_map(|pdu| pdu.data).collect();
    assert!(data == pattern(100_000, 3)[..18_192]);
}

#[test]
fn wrong_tags_cost_the_connection() {
    let response = |itt| numbered(0x21, 0x80).itt(itt);
    ends(
        A_READ,
        |itt| response(itt ^ 0x1_0000),
        Breach::Sequence,
        "not in progress",
    );
    ends(
        A_READ,
        |itt| response(itt + 1),
        Breach::Sequence,
        "not in progress",
    );
    ends(
        A_READ,
        |_| response(NO_TAG),
        Breach::Sequence,
        "not in progress",
    );
    let (mut host, itt) = busy(A_READ);
    host.send(&response(itt));
    assert!(matches!(host.event(), Event::Completed { .. }));
    host.send(&response(itt));
    host.broke(Breach::Sequence, "not in progress");
    let unasked = |opcode| move |_| numbered(opcode, 0x80).itt(5);
    ends(A_READ, unasked(0x20), Breach::Sequence, "ping");
    ends(A_READ, unasked(0x24), Breach::Sequence, "Text");
    ends(A_READ, unasked(0x26), Breach::Sequence, "Logout");
    ends(A_READ, unasked(0x22), Breach::Sequence, "task management");
    ends(A_READ, unasked(0x23), Breach::Sequence, "Login");
    for opcode in [0x01, 0x05, 0x2A, 0x3C] {
        ends(A_READ, unasked(opcode), Breach::HeaderField, "kind");
    }
}

#[test]
fn absurd_sizes_cost_the_connection() {
    let huge = |itt| numbered(0x21, 0x80).itt(itt).data(&[0; 8193]);
    ends(A_READ, huge, Breach::Limit, "8192");
    let ahs = |itt| numbered(0x21, 0x80).itt(itt).ahs(&[0; 8]);
    ends(A_READ, ahs, Breach::HeaderField, "additional");
    let mut host = Host::new(config());
    host.send(&login_response(0x81, &[]).data(&[0; 8193]));
    host.broke(Breach::Limit, "8192");
}

#[test]
fn a_damaged_header_is_the_end_and_damaged_data_is_told() {
    let mut host = Host::new(LoginConfig {
        header_digest: true,
        data_digest: true,
        ..config()
    });
    host.said();
    host.send(&login_response(0x81, &["AuthMethod=None"]));
    host.said();
    host.send(&login_response(
        0x87,
        &["HeaderDigest=CRC32C", "DataDigest=CRC32C"],
    ));
    assert_eq!(host.event(), Event::LoggedIn);
    host.digests = BOTH;
    assert!(host.command(0, A_READ));
    let itt = host.said()[0].get32(16);
    let mut damaged = data_in(0x81, itt, (0, 0), &[5; 4096]).bytes(BOTH);
    damaged[60] ^= 1;
    host.feed(&damaged);
    assert!(matches!(host.event(), Event::Completed { outcome, .. } if !outcome.intact));
    let mut damaged = numbered(0x20, 0x80).itt(NO_TAG).bytes(BOTH);
    damaged[9] ^= 1;
    host.feed(&damaged);
    host.broke(Breach::HeaderDigest, "header digest");
}

#[test]
fn a_read_that_is_answered_with_less_says_so() {
    let (mut host, itt) = busy(A_READ);
    host.send(&data_in(0x80, itt, (0, 0), &[5; 512]));
    // U with a residual that claims more than that moved.
    host.send(&numbered(0x21, 0x82).itt(itt).put32(44, 1000));
    assert!(matches!(host.event(), Event::Completed { outcome, .. } if outcome.data_bytes == 512));
    let (mut host, itt) = busy(A_READ);
    host.send(&data_in(0x83, itt, (0, 0), &[5; 4096]).put32(44, 96));
    assert!(matches!(host.event(), Event::Completed { outcome, .. } if outcome.data_bytes == 4000));
}

#[test]
fn commands_wait_for_the_window_and_are_told_when_it_opens() {
    let mut host = logged_in(&[]);
    let closed = |pdu: Pdu| pdu.put32(28, 2).put32(32, 1);
    // MaxCmdSN never goes back: these two are ignored.
    host.send(&closed(numbered(0x20, 0x80).itt(NO_TAG).ttt(NO_TAG)));
    assert!(host.command(0, A_READ), "the window was open to 64");
    let mut host = Host::new(config());
    host.said();
    host.send(&login_response(0x81, &[]));
    host.said();
    host.send(&login_response(0x87, &[]).put32(32, 1));
    assert_eq!(host.event(), Event::LoggedIn);
    assert!(host.command(0, A_READ), "one");
    assert!(!host.command(1, A_READ), "two are not taken");
    host.send(&numbered(0x20, 0x80).itt(NO_TAG).ttt(NO_TAG).put32(32, 2));
    assert_eq!(host.event(), Event::WindowOpened);
    assert!(host.command(1, A_READ));
    let numbers: Vec<u32> = host.said().iter().map(|pdu| pdu.get32(24)).collect();
    assert_eq!(numbers, [1, 2]);
}

#[test]
fn a_flood_of_pings_is_not_answered_for_ever() {
    let mut host = logged_in(&[]);
    let ping = numbered(0x20, 0x80).itt(NO_TAG).ttt(77).put(8, &[0, 3]);
    for _ in 0..64 {
        host.send(&ping);
    }
    let said = host.said();
    assert_eq!(said.len(), 64);
    let answer = &said[0];
    assert_eq!(
        (answer.bhs[0], answer.get32(16), answer.get32(20)),
        (0x40, NO_TAG, 77)
    );
    host.machine.endpoint_mut().renew();
    host.send(&ping);
    assert!(host.violation.is_none());
    for _ in 0..64 {
        host.send(&ping);
    }
    host.broke(Breach::Limit, "pings");
}

#[test]
fn what_a_target_says_unasked_is_heard() {
    let said = |event: u8| {
        let mut host = logged_in(&[]);
        host.send(
            &numbered(0x32, 0x80)
                .itt(NO_TAG)
                .put(36, &[event])
                .put(42, &[0, 3]),
        );
        host.events.pop()
    };
    let within_s = 3;
    assert_eq!(
        said(1),
        Some(Event::Said(AsyncEvent::LogoutRequested { within_s }))
    );
    assert!(matches!(
        said(2),
        Some(Event::Said(AsyncEvent::ConnectionDropped { .. }))
    ));
    assert_eq!(said(5), Some(Event::TasksEnded));
    assert_eq!(said(0), None);
    let mut host = logged_in(&[]);
    host.send(&numbered(0x3F, 0x80).put(2, &[4]).data(&[0; 48]));
    assert_eq!(host.event(), Event::Rejected(4));
}
