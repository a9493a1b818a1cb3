//! Authentication: what proves something, and what does not.

use fabrix_proto::iscsi::auth::{
    Algorithm, Challenges, ChapPolicy, Credentials, PolicyError, Secret,
};
use fabrix_proto::iscsi::pdu::LoginStatus;
use fabrix_proto::iscsi::target::Event;
use fabrix_proto::iscsi::text::binary;

use crate::login::*;
use crate::wire::*;

const FAILURE: LoginStatus = LoginStatus::AUTHENTICATION_FAILURE;

/// A wire at the step where the initiator proves itself with MD5.
fn at_proof(mutual: bool) -> Wire {
    let mut wire = wire_with(chap(mutual));
    step(&mut wire, SECURITY, &[INITIATOR, TARGET, "AuthMethod=CHAP"]);
    step(&mut wire, SECURITY, &["CHAP_A=5"]);
    wire
}

#[test]
fn a_wrong_name_or_answer_is_one_failure() {
    let right = proof(Algorithm::Md5);
    let wrong = format!("CHAP_R=0x{}", "00".repeat(16));
    let other = proof(Algorithm::Sha1);
    let long = format!("CHAP_N={}", "a".repeat(256));
    for pairs in [
        ["CHAP_N=alice", &*wrong],
        ["CHAP_N=bob", &*right],
        ["CHAP_N=alice", &*other],
        ["CHAP_N=alice", "CHAP_R=0x"],
        ["CHAP_N=alice", "CHAP_R=secret"],
        [&*long, &*right],
    ] {
        assert_eq!(
            refused(&mut at_proof(false), TO_OPERATIONAL, &pairs),
            FAILURE
        );
    }
}

#[test]
fn a_reflected_challenge_is_refused() {
    let ours = format!("CHAP_C={}", binary::encode_hex(&CHALLENGE));
    let right = proof(Algorithm::Md5);
    let pairs = ["CHAP_N=alice", &right, "CHAP_I=33", &ours];
    assert_eq!(
        refused(&mut at_proof(true), TO_OPERATIONAL, &pairs),
        FAILURE
    );
}

#[test]
fn a_challenge_that_we_cannot_answer_is_refused() {
    let right = proof(Algorithm::Md5);
    let long = format!("CHAP_C=0x{}", "11".repeat(1025));
    for (mutual, identifier, challenge) in [
        (false, "CHAP_I=1", "CHAP_C=0xabcd"),
        (true, "CHAP_I=256", "CHAP_C=0xabcd"),
        (true, "CHAP_I=1", "CHAP_C="),
        (true, "CHAP_I=1", &long),
    ] {
        let pairs = ["CHAP_N=alice", &right, identifier, challenge];
        let mut wire = at_proof(mutual);
        wire.send(&login_pdu(TO_OPERATIONAL, &pairs));
        let status = wire.reply().get32(36) >> 16;
        assert!(matches!(status, 0x0200 | 0x0201), "{status:#x}");
        assert!(wire.is_closed());
    }
}

#[test]
fn a_secret_is_never_proved_to_who_has_not_proved_one() {
    let pairs = ["CHAP_N=alice", "CHAP_R=0x00", "CHAP_I=1", "CHAP_C=0xabcd"];
    let mut wire = at_proof(true);
    wire.send(&login_pdu(TO_OPERATIONAL, &pairs));
    assert!(wire.reply().data.is_empty());
}

/// Its owner ends older sessions when it hears of a proof: nobody without one may be the cause.
#[test]
fn cve_2026_31476_who_proves_nothing_is_not_said_to_have() {
    let mut wire = at_proof(false);
    wire.take_events();
    let wrong = format!("CHAP_R=0x{}", "00".repeat(16));
    refused(&mut wire, TO_OPERATIONAL, &["CHAP_N=initiator", &wrong]);
    let events = wire.take_events();
    assert!(!events.contains(&Event::Proved), "{events:?}");
}

#[test]
fn authentication_cannot_be_skipped_or_reordered() {
    let names = [INITIATOR, TARGET];
    let check = |flags, more: &[&str]| {
        let pairs = [&names[..], more].concat();
        assert_eq!(refused(&mut wire_with(chap(false)), flags, &pairs), FAILURE);
    };
    check(TO_FULL, &[]);
    check(OPERATIONAL, &[]);
    check(STRAIGHT, &[]);
    check(TO_OPERATIONAL, &["AuthMethod=None"]);
    check(TO_OPERATIONAL, &["AuthMethod=KRB5,SRP"]);
    check(SECURITY, &["CHAP_A=5"]);
    check(SECURITY, &["AuthMethod=CHAP", "CHAP_A=5"]);
    check(SECURITY, &["CHAP_N=alice", "CHAP_R=0x00"]);
    let mut wire = wire_with(chap(false));
    step(&mut wire, SECURITY, &[INITIATOR, TARGET, "AuthMethod=CHAP"]);
    assert_eq!(refused(&mut wire, TO_FULL & 0x83, &[]), FAILURE);
    let mut wire = wire_with(chap(false));
    step(&mut wire, SECURITY, &[INITIATOR, TARGET, "AuthMethod=CHAP"]);
    assert_eq!(refused(&mut wire, SECURITY, &["CHAP_A=9,255,x"]), FAILURE);
}

#[test]
fn policies_that_would_be_weak_are_not_made() {
    assert_eq!(
        Secret::new(b"eleven-long").err(),
        Some(PolicyError::SecretLength)
    );
    assert!(Secret::new(b"twelve-bytes").is_ok() && Secret::new(&[1; 256]).is_err());
    let mut challenges = Challenges::default();
    assert_eq!(
        challenges.issue(0, &[1; 15]),
        Err(PolicyError::ChallengeLength)
    );
    assert_eq!(
        challenges.issue(0, &[1; 16]),
        Err(PolicyError::ChallengeRepeated)
    );
    let first = challenges.issue(0, &CHALLENGE).expect("new");
    assert_eq!(
        challenges.issue(1, &CHALLENGE),
        Err(PolicyError::ChallengeRepeated)
    );
    let same = ChapPolicy::new(
        &[Algorithm::Md5],
        credentials("a", SECRET),
        Some(credentials("b", SECRET)),
        first,
    );
    assert_eq!(same.err(), Some(PolicyError::SameSecret));
    assert!(Credentials::new("", Secret::new(SECRET).expect("long")).is_err());
    let shown = format!("{:?}", credentials("a", SECRET));
    assert!(!shown.contains("initiator-secret"), "{shown}");
}

#[test]
fn responses_agree_with_vectors_of_other_implementations() {
    // printf '\x01secret-secret\x02\x03' | md5sum, sha1sum, sha256sum; python3 hashlib.sha3_256.
    let secret = Secret::new(b"secret-secret").expect("long enough");
    let vectors = [
        (Algorithm::Md5, "1c83bbb6c22f5706c5b1e42c4a28e2a6"),
        (Algorithm::Sha1, "f477b99591e5608a9a13f2aec45b134d93ef0596"),
        (
            Algorithm::Sha256,
            "d4a08d1562460dae08defbf04369251d96df37321b11ed35b77d442d95d335b5",
        ),
        (
            Algorithm::Sha3,
            "c73a177ad0ae7c3c287b1a71ff5d846f37a8e3af8694a6388e72711a4612acae",
        ),
    ];
    for (algorithm, expected) in vectors {
        let response = algorithm.response(1, &secret, &[2, 3]);
        assert_eq!(
            binary::encode_hex(response.as_bytes()),
            format!("0x{expected}")
        );
        assert_eq!(response.as_bytes().len(), algorithm.response_bytes());
    }
}
