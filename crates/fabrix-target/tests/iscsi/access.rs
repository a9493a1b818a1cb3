//! Access to targets: CHAP in both directions, lists of initiators, and limits of unauthenticated
//! peers.

use fabrix_proto::iscsi::auth::{Algorithm, Secret};
use fabrix_proto::iscsi::text::binary;
use fabrix_rt::Engine;
use fabrix_target::{Chap, Deadlines, Initiators, Notice};
use std::time::Duration;

use crate::common::{IQN, Plan, Stage};
use crate::initiator::Initiator;
use crate::{good, on_both_engines, portal, rw, session};

on_both_engines!(
    chap_lets_in_who_knows_the_secret_and_nobody_else,
    the_target_proves_itself_to_who_asks_but_not_with_a_challenge_of_its_own,
    chap_cannot_be_skipped,
    discovery_obeys_chap,
    cve_2026_31476_who_proves_nothing_ends_nobodys_session,
    cve_2024_45751_no_two_logins_or_starts_share_a_challenge,
    who_is_not_listed_sees_nothing,
    who_is_listed_no_more_has_to_go,
    cve_2025_38501_half_logins_of_one_address_leave_room_for_others,
);

const USER: &str = "alice";
const SECRET: &[u8] = b"initiator-secret";
const TARGET_SECRET: &[u8] = b"secret-of-target";
/// Flags of a Login Request: stay in the security stage, and go from it to the full-feature phase.
const SECURITY: u8 = 0x00;
const STRAIGHT: u8 = 0x83;
const DISCOVERY: &str = "SessionType=Discovery";

fn guarded(engine: Engine) -> Stage {
    let target = Some(("us", TARGET_SECRET));
    let chap = Chap::new((USER, SECRET), target).expect("two secrets");
    let initiators = Initiators {
        names: None,
        chap: Some(chap),
    };
    let plan = Plan {
        initiators,
        ..Plan::default()
    };
    Stage::set(engine, plan)
}

fn name(last: u8) -> String {
    format!("InitiatorName=iqn.2026-01.example:initiator{last}")
}

fn target() -> String {
    format!("TargetName={IQN}")
}

/// A connection that has received a challenge: the identifier and the challenge.
fn challenged(stage: &Stage, keys: &[&str]) -> (Initiator, u8, Vec<u8>) {
    let mut initiator = Initiator::dial(portal(stage));
    let first = [keys, &["AuthMethod=CHAP"]].concat();
    let said = initiator.login_step(SECURITY, &first);
    assert_eq!(said.bhs[36..38], [0, 0]);
    let said = initiator.login_step(SECURITY, &["CHAP_A=5"]);
    let text = String::from_utf8(said.data).expect("text");
    let value = |key: &str| {
        let pair = text.split('\0').find_map(|pair| pair.strip_prefix(key));
        pair.unwrap_or_else(|| panic!("no {key} in {text}"))
            .to_owned()
    };
    assert_eq!(value("CHAP_A="), "5");
    let challenge = binary::decode(&value("CHAP_C="), 64).expect("a challenge");
    assert!(challenge.len() >= 16);
    let identifier = value("CHAP_I=").parse().expect("a number");
    (initiator, identifier, challenge)
}

fn answer(secret: &[u8], identifier: u8, challenge: &[u8]) -> String {
    let secret = Secret::new(secret).expect("long enough");
    let response = Algorithm::Md5.response(identifier, &secret, challenge);
    binary::encode_hex(response.as_bytes())
}

/// Logs in with this secret. Returns the initiator and the status.
fn prove(stage: &Stage, keys: &[&str], secret: &[u8]) -> (Initiator, [u8; 2]) {
    let (mut initiator, identifier, challenge) = challenged(stage, keys);
    let response = format!("CHAP_R={}", answer(secret, identifier, &challenge));
    let said = initiator.login_step(STRAIGHT, &["CHAP_N=alice", &response]);
    (initiator, [said.bhs[36], said.bhs[37]])
}

fn chap_lets_in_who_knows_the_secret_and_nobody_else(engine: Engine) {
    let stage = guarded(engine);
    let keys = [&*name(1), &*target()];
    let (mut initiator, status) = prove(&stage, &keys, b"another-secret-");
    assert_eq!(status, [2, 1]);
    assert!(initiator.is_closed());
    stage.notice(|notice| {
        let said = notice.to_string();
        assert!(!said.contains("initiator-secret"), "{said}");
        matches!(notice, Notice::Refused { .. })
            && said.contains("example:initiator1 from 127.0.0.1")
            && said.contains("CHAP_R")
    });
    assert_eq!(stage.target.sessions(), 0);
    let (mut initiator, status) = prove(&stage, &keys, SECRET);
    assert_eq!(status, [0, 0]);
    // The first answer of a new session is a unit attention.
    assert_eq!(initiator.command(&[0; 6], 0).status, 2);
    good(&initiator.command(&rw(0x28, 0, 1), 512));
}

fn the_target_proves_itself_to_who_asks_but_not_with_a_challenge_of_its_own(engine: Engine) {
    let stage = guarded(engine);
    let keys = [&*name(1), &*target()];
    for reflected in [false, true] {
        let (mut initiator, identifier, challenge) = challenged(&stage, &keys);
        let ours = if reflected {
            challenge.clone()
        } else {
            vec![9; 16]
        };
        let said = initiator.login_step(
            STRAIGHT,
            &[
                "CHAP_N=alice",
                &format!("CHAP_R={}", answer(SECRET, identifier, &challenge)),
                "CHAP_I=77",
                &format!("CHAP_C={}", binary::encode_hex(&ours)),
            ],
        );
        let text = String::from_utf8(said.data).expect("text");
        if reflected {
            assert_eq!((&said.bhs[36..38], text.as_str()), (&[2, 1][..], ""));
            continue;
        }
        assert_eq!(said.bhs[36..38], [0, 0]);
        let proof = format!("CHAP_N=us\0CHAP_R={}\0", answer(TARGET_SECRET, 77, &ours));
        assert!(text.contains(&proof), "{text}");
    }
}

fn chap_cannot_be_skipped(engine: Engine) {
    let stage = guarded(engine);
    let (name, target) = (name(1), target());
    for (flags, method) in [
        (0x87, "AuthMethod=CHAP"),
        (0x87, "MaxBurstLength=65536"),
        (STRAIGHT, "AuthMethod=None"),
    ] {
        let mut initiator = Initiator::dial(portal(&stage));
        let said = initiator.login_step(flags, &[&name, &target, method]);
        // The operational stage has no keys of security. All other cases fail the authentication.
        let wrong_stage = flags == 0x87 && method.starts_with("Auth");
        let expected = if wrong_stage { [2, 0] } else { [2, 1] };
        let status = [said.bhs[36], said.bhs[37]];
        assert!(
            status == expected || status == [2, 1],
            "{method}: {status:?}"
        );
        assert!(initiator.is_closed());
    }
    // Of both offered methods the target chooses the one with a proof. A login without further keys
    // then fails.
    let mut initiator = Initiator::dial(portal(&stage));
    let both = [&*name, &target, "AuthMethod=None,CHAP"];
    let said = initiator.login_step(STRAIGHT, &both);
    let text = String::from_utf8(said.data).expect("text");
    assert!(text.contains("AuthMethod=CHAP\0"), "{text}");
    assert_eq!(said.bhs[1] & 0x80, 0, "the stage is not left");
    assert_eq!(initiator.login_step(STRAIGHT, &[]).bhs[36..38], [2, 1]);
    assert_eq!(stage.target.sessions(), 0);
}

fn discovery_obeys_chap(engine: Engine) {
    let stage = guarded(engine);
    let keys = [&*name(1), DISCOVERY];
    let mut stranger = Initiator::dial(portal(&stage));
    assert_eq!(stranger.try_login(&keys).bhs[36..38], [2, 1]);
    let (_, status) = prove(&stage, &keys, b"another-secret-");
    assert_eq!(status, [2, 1]);
    let (mut known, status) = prove(&stage, &keys, SECRET);
    assert_eq!(status, [0, 0]);
    assert!(known.send_targets().starts_with(&target()));
}

/// A name and an ISID are not secret. A peer that sends another initiator's name and ISID must not
/// end that initiator's session.
fn cve_2026_31476_who_proves_nothing_ends_nobodys_session(engine: Engine) {
    let stage = guarded(engine);
    let keys = [&*name(1), &*target()];
    let (mut owner, _) = prove(&stage, &keys, SECRET);
    assert_eq!(owner.command(&[0; 6], 0).status, 2);
    let (mut half, ..) = challenged(&stage, &keys);
    let (_, status) = prove(&stage, &keys, b"another-secret-");
    assert_eq!(status, [2, 1]);
    good(&owner.command(&[0; 6], 0));
    assert_eq!(stage.target.sessions(), 1);
    // The owner of the name may replace the session.
    let (mut newer, status) = prove(&stage, &keys, SECRET);
    assert_eq!(status, [0, 0]);
    assert!(owner.is_closed());
    assert_eq!(newer.command(&[0; 6], 0).status, 2);
    assert_eq!(half.login_step(STRAIGHT, &[]).bhs[36..38], [2, 1]);
    good(&newer.command(&[0; 6], 0));
}

fn cve_2024_45751_no_two_logins_or_starts_share_a_challenge(engine: Engine) {
    let keys = [&*name(1), &*target()];
    let mut seen = Vec::new();
    for _ in 0..3 {
        let stage = guarded(engine);
        for _ in 0..8 {
            let (_, _, challenge) = challenged(&stage, &keys);
            assert!(!seen.contains(&challenge), "{challenge:?} came before");
            seen.push(challenge);
        }
    }
}

fn listed(names: &[&str]) -> Option<Vec<String>> {
    Some(names.iter().map(ToString::to_string).collect())
}

fn who_is_not_listed_sees_nothing(engine: Engine) {
    let names = listed(&["iqn.2026-01.Example:Initiator1"]);
    let initiators = Initiators { names, chap: None };
    let plan = Plan {
        initiators,
        ..Plan::default()
    };
    let stage = Stage::set(engine, plan);
    let mut stranger = Initiator::dial(portal(&stage));
    assert_eq!(
        stranger.try_login(&[&name(2), &target()]).bhs[36..38],
        [2, 2]
    );
    stage.notice(|notice| {
        matches!(notice, Notice::Refused { who: Some(who), why, .. }
            if who.ends_with("example:initiator2")
                && why == "this initiator is not among those that may log in")
    });
    let mut stranger = Initiator::dial(portal(&stage));
    assert_eq!(
        stranger.try_login(&[&name(2), DISCOVERY]).bhs[36..38],
        [2, 2]
    );
    // The answer does not reveal whether another target exists.
    let mut stranger = Initiator::dial(portal(&stage));
    let other = [&*name(2), "TargetName=iqn.2026-01.example:none"];
    assert_eq!(stranger.try_login(&other).bhs[36..38], [2, 2]);
    assert_eq!(stage.target.sessions(), 0);
    let mut known = Initiator::dial(portal(&stage));
    assert_eq!(known.try_login(&[&name(1), DISCOVERY]).bhs[36..38], [0, 0]);
    assert!(known.send_targets().starts_with(&target()));
    good(&session(&stage, 1, false).command(&[0; 6], 0));
}

fn who_is_listed_no_more_has_to_go(engine: Engine) {
    let stage = Stage::new(engine);
    let (mut one, mut two) = (session(&stage, 1, false), session(&stage, 2, false));
    let mut discovery = Initiator::dial(portal(&stage));
    assert_eq!(
        discovery.try_login(&[&name(2), DISCOVERY]).bhs[36..38],
        [0, 0]
    );
    let mut half = Initiator::dial(portal(&stage));
    assert_eq!(
        half.login_step(0x04, &[&name(2), &target()]).bhs[36..38],
        [0, 0]
    );
    let wrong = listed(&["initiator1"]);
    assert!(stage.set_initiators(wrong).is_err());
    let names = listed(&["iqn.2026-01.example:initiator1"]);
    stage.set_initiators(names).expect("a name");
    for gone in [&mut two, &mut discovery, &mut half] {
        assert!(gone.is_closed());
    }
    good(&one.command(&[0; 6], 0));
    let mut again = Initiator::dial(portal(&stage));
    assert_eq!(again.try_login(&[&name(2), &target()]).bhs[36..38], [2, 2]);
    stage.set_initiators(None).expect("no names");
    good(&session(&stage, 2, false).command(&[0; 6], 0));
}

fn cve_2025_38501_half_logins_of_one_address_leave_room_for_others(engine: Engine) {
    let plan = Plan {
        max_unauthenticated: 8,
        deadlines: Deadlines {
            connect: Duration::from_millis(300),
            parting: Duration::from_millis(100),
            ..Deadlines::default()
        },
        ..Plan::default()
    };
    let stage = Stage::set(engine, plan);
    // Authenticated connections do not count toward the limit of unauthenticated peers.
    let mut sessions: Vec<_> = (0..9).map(|last| session(&stage, last, false)).collect();
    let (_admin, mut io) = stage.admin_and_io();
    let flood: Vec<_> = (0..40)
        .map(|at| {
            let mut half = Initiator::dial(portal(&stage));
            if at % 2 == 0 {
                // The target may have closed the connection already.
                half.try_send([0x43; 48], &[]);
            }
            half
        })
        .collect();
    stage.notice(|notice| matches!(notice, Notice::TooManyUnauthenticated { .. }));
    assert!(stage.target.connections() <= 9 + 2 + 8);
    for session in &mut sessions {
        good(&session.command(&[0; 6], 0));
    }
    io.write(1, 0, &[1; 512]);
    // The deadline ends the silent connections. There is room again while their peers are still
    // open.
    stage.until("the flood is over", |stage| {
        stage.target.connections() == 11
    });
    good(&session(&stage, 20, false).command(&[0; 6], 0));
    stage.serves_a_fresh_host();
    drop(flood);
}
