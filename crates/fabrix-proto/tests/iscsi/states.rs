//! Each kind of PDU in each state of a connection: what is decided, for all 64 opcodes.

use fabrix_proto::iscsi::auth::{Algorithm, Challenges, ChapPolicy, Credentials, Secret};
use fabrix_proto::iscsi::login::Auth;

use crate::wire::*;

const NO_TAG: u32 = u32::MAX;

use Outcome::{Ended, Refused, Rejected, Said, Silent, Told};

/// Where a connection may be.
#[derive(Clone, Copy, Debug, PartialEq)]
enum State {
    /// Nothing has been said.
    Before,
    /// It has been challenged.
    Security,
    /// It negotiates.
    Operational,
    Discovery,
    Normal,
    /// A write's data was asked for.
    Asked,
    /// It has asked for a logout, and commands are outcome.
    Leaving,
    /// Its logout was answered.
    Gone,
}

const STATES: [State; 8] = [
    State::Before,
    State::Security,
    State::Operational,
    State::Discovery,
    State::Normal,
    State::Asked,
    State::Leaving,
    State::Gone,
];

/// Source: RFC 7143, sections 6.3 and 11.
fn expected(opcode: u8, state: State) -> Outcome {
    use State::{Asked, Before, Discovery, Gone, Leaving, Operational, Security};
    match (state, opcode) {
        // A Login Request that begins again.
        (Before | Security | Operational, 0x03) => Refused(0x0200),
        (Before | Security | Operational, _) => Refused(0x020B),
        (Leaving | Gone, _) => Silent,
        (_, 0x00) => Said(0x20),
        (Discovery, 0x01) => Rejected(4),
        (Discovery, 0x02) => Said(0x22),
        (_, 0x01 | 0x02 | 0x04 | 0x06) | (Asked, 0x05) => Told,
        (_, 0x03) => Ended(4),
        // Data of a task that is gone, perhaps.
        (_, 0x05) => Silent,
        (_, 0x10) => Rejected(3),
        _ => Rejected(5),
    }
}

fn state(state: State) -> Wire {
    match state {
        State::Before => Wire::new(limits()),
        State::Security => {
            let mut wire = Wire::new(limits());
            wire.admission = Some(chap());
            for pairs in [&[INITIATOR, TARGET, "AuthMethod=CHAP"][..], &["CHAP_A=5"]] {
                wire.send(&login_pdu(0, pairs));
                assert_eq!(wire.reply().get32(36), 0);
            }
            wire.take_events();
            wire
        }
        State::Operational => {
            let mut wire = Wire::new(limits());
            wire.send(&login_pdu(0x04, &[INITIATOR, TARGET]));
            assert_eq!(wire.reply().get32(36), 0);
            wire.take_events();
            wire
        }
        State::Discovery => discovery(),
        State::Normal => logged_in(limits(), &[]),
        State::Asked => {
            let mut wire = logged_in(limits(), &[]);
            wire.send(&command_pdu(WRITE, 0x22, FIRST, 512));
            let slot = wire.command();
            wire.fetch(slot);
            assert_eq!(wire.reply().get32(20), 1, "the tag of slot 0");
            wire
        }
        State::Leaving => {
            let mut wire = logged_in(limits(), &[]);
            wire.send(&Pdu::new(0x46, 0x80).itt(2).cmd_sn(FIRST));
            wire.event();
            wire
        }
        State::Gone => {
            let mut wire = self::state(State::Leaving);
            wire.with(|target, out| target.answer_logout(out));
            assert_eq!(wire.reply().bhs[0], 0x26);
            wire
        }
    }
}

fn chap() -> fabrix_proto::iscsi::login::Admission {
    let challenge = Challenges::default().issue(1, b"0123456789abcdef");
    let secret = Secret::new(b"initiator-secret").expect("long enough");
    let initiator = Credentials::new("alice", secret).expect("short enough");
    let policy = ChapPolicy::new(
        &Algorithm::ALL,
        initiator,
        None,
        challenge.expect("the first"),
    );
    grant(Auth::Chap(Box::new(policy.expect("one secret"))))
}

fn well_formed(opcode: u8, state: State) -> Pdu {
    let cmd_sn = match state {
        State::Asked => FIRST + 1,
        _ => FIRST,
    };
    match opcode {
        0x01 => command_pdu(READ, 0x33, cmd_sn, 512),
        0x02 => Pdu::new(0x42, 0x85).itt(0x33).cmd_sn(cmd_sn),
        0x04 => {
            let targets = match state {
                State::Discovery => "SendTargets=All",
                _ => "SendTargets=",
            };
            let pdu = Pdu::new(0x44, 0x80).itt(0x33).ttt(NO_TAG).cmd_sn(cmd_sn);
            pdu.data(&text(&[targets]))
        }
        0x05 => data_out(0x80, 0x22, 1, (0, 0), &[1; 512]),
        0x00 | 0x03 | 0x06 => {
            let immediate = Pdu::new(0x40 | opcode, 0x80);
            immediate.itt(0x33).ttt(NO_TAG).cmd_sn(cmd_sn)
        }
        _ => Pdu::new(opcode, 0x80).itt(0x33).ttt(NO_TAG).cmd_sn(cmd_sn),
    }
}

#[test]
fn every_pdu_has_one_outcome_in_every_state() {
    for opcode in 0..=0x3F {
        for at in STATES {
            let mut wire = state(at);
            wire.send(&well_formed(opcode, at));
            let expected = expected(opcode, at);
            assert_eq!(outcome(&mut wire), expected, "PDU {opcode:#04x}, {at:?}");
        }
    }
}

#[test]
fn what_is_rejected_is_read_over_and_the_next_pdu_is_understood() {
    for opcode in [0x42, 0x46, 0x10, 0x07, 0x31] {
        for keys in [&[][..], &DIGESTS] {
            let mut wire = logged_in(limits(), keys);
            wire.send(&Pdu::new(opcode, 0x80).itt(1).cmd_sn(FIRST).data(&[1; 9001]));
            assert_eq!(wire.reply().bhs[0], 0x3F);
            wire.send(&Pdu::new(0x40, 0x80).itt(2).ttt(NO_TAG));
            assert_eq!(wire.reply().bhs[0], 0x20);
        }
    }
}

#[test]
fn every_byte_of_a_session_may_be_cut_at() {
    let keys = [&DIGESTS[..], &["InitialR2T=No"]].concat();
    let script = [
        command_pdu(WRITE_MORE, 1, FIRST, 300).data(&[1; 100]),
        data_out(0x80, 1, NO_TAG, (0, 100), &[2; 200]),
        Pdu::new(0x00, 0x80)
            .itt(2)
            .ttt(NO_TAG)
            .cmd_sn(FIRST + 1)
            .data(b"abc"),
        command_pdu(WRITE, 3, FIRST.wrapping_add(2), 3).data(&[9; 3]),
        Pdu::new(0x10, 0x80).data(&[0; 5]),
        Pdu::new(0x46, 0x80).itt(9).cmd_sn(FIRST.wrapping_add(3)),
    ];
    let bytes: Vec<u8> = script.iter().flat_map(|pdu| pdu.bytes(BOTH)).collect();
    let mut whole = logged_in(limits(), &keys);
    whole.feed(&bytes);
    assert_eq!(whole.events.len(), 4);
    for cut in 0..bytes.len() {
        let mut wire = logged_in(limits(), &keys);
        wire.feed(&bytes[..cut]);
        wire.feed(&bytes[cut..]);
        assert_eq!(wire.events, whole.events, "cut at {cut}");
        assert_eq!((&wire.sent, &wire.memory), (&whole.sent, &whole.memory));
    }
}
