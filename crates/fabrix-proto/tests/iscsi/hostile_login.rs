//! The initiator's machine against a target that lies in the login, or says anything.

use fabrix_proto::iscsi::auth::{Challenges, ChapProof, Credentials, Secret};
use fabrix_proto::iscsi::initiator::{Event, LoginConfig, LoginFailure};
use fabrix_proto::iscsi::pdu::LoginStatus;
use fabrix_proto::{Machine, Want};

use crate::host::*;
use crate::hostile::*;
use crate::wire::Pdu;

fn failure(host: &mut Host) -> String {
    match host.event() {
        Event::LoginFailed(failure) => {
            assert_eq!(host.machine.want(), Want::Closed);
            failure.to_string()
        }
        other => panic!("a login that fails: {other:?}"),
    }
}

#[track_caller]
fn fails(responses: &[Pdu], word: &str) {
    let mut host = Host::new(config());
    for response in responses {
        host.said();
        host.send(response);
    }
    let sentence = failure(&mut host);
    assert!(sentence.contains(word), "`{word}` is not in `{sentence}`");
}

#[test]
fn a_login_that_fails_says_why() {
    let to_operational = login_response(0x81, &["AuthMethod=None"]);
    let refused = |status: u16| login_response(0, &[]).put(36, &status.to_be_bytes());
    fails(&[refused(0x0201)], "secret");
    fails(&[refused(0x0203)], "no target of this name");
    let moved = login_response(0, &["TargetAddress=10.0.0.9:3260,1"]).put(36, &[1, 1]);
    fails(&[moved], "10.0.0.9");
    fails(
        &[login_response(0, &["AuthMethod=CHAP"])],
        "user and a secret",
    );
    fails(&[login_response(0x83, &[])], "T where it was not asked for");
    fails(&[login_response(0x85, &[])], "CSG");
    fails(
        &[login_response(0x81, &["HeaderDigest=None"])],
        "may not come",
    );
    let and = |text: &[&str]| [to_operational.clone(), login_response(0x87, text)];
    fails(&and(&["MaxBurstLength=16777215"]), "not offered");
    fails(&and(&["ErrorRecoveryLevel=2"]), "not offered");
    fails(&and(&["DataPDUInOrder=No"]), "not offered");
    fails(&and(&["InitialR2T=perhaps"]), "not offered");
    fails(&and(&["MaxBurstLength=512", "MaxBurstLength=512"]), "twice");
    fails(&and(&["no pair"]), "`=`");
    let endless: Vec<Pdu> = (0..40).map(|_| login_response(0x40, &["A=B"])).collect();
    fails(&endless[..33], "");
}

fn mutual() -> LoginConfig {
    let credentials = |name, secret| {
        Credentials::new(name, Secret::new(secret).expect("long enough")).expect("a name")
    };
    let challenge = Challenges::default().issue(9, b"0123456789abcdef");
    let target = (
        credentials("it", b"the target's own"),
        challenge.expect("random enough"),
    );
    let proof = ChapProof::new(credentials("me", b"my own secret"), Some(target));
    LoginConfig {
        auth: Some(Box::new(proof.expect("two secrets"))),
        ..config()
    }
}

#[test]
fn a_target_that_does_not_prove_who_it_is_gets_no_session() {
    let challenged = || {
        let mut host = Host::new(mutual());
        assert!(host.said()[0].text().contains("AuthMethod=CHAP"));
        host.send(&login_response(0, &["AuthMethod=CHAP"]));
        assert_eq!(host.said()[0].text(), "CHAP_A=8,6,5,7");
        host
    };
    // Our own challenge, sent back for us to answer.
    let ours = "CHAP_C=0x30313233343536373839616263646566";
    let mut host = challenged();
    host.send(&login_response(0, &["CHAP_A=5", "CHAP_I=9", ours]));
    assert!(host.said().is_empty(), "nothing of our secret is shown");
    assert!(failure(&mut host).contains("our own challenge"));
    // A wrong proof, and none at all.
    for (text, word) in [
        (
            &["CHAP_N=it", "CHAP_R=0x00112233445566778899aabbccddeeff"][..],
            "prove",
        ),
        (&[][..], "missing"),
    ] {
        let mut host = challenged();
        host.send(&login_response(
            0,
            &["CHAP_A=5", "CHAP_I=1", "CHAP_C=0xa1b2c3d4"],
        ));
        let answer = host.said()[0].text();
        assert!(
            answer.contains("CHAP_N=me CHAP_R=0x") && answer.contains("CHAP_C=0x"),
            "{answer}"
        );
        host.send(&login_response(0x81, text));
        let sentence = failure(&mut host);
        assert!(sentence.contains(word), "{sentence}");
    }
    // Who wants no proof of us does not get away with it.
    let mut host = Host::new(mutual());
    host.said();
    host.send(&login_response(0, &["AuthMethod=None"]));
    assert!(failure(&mut host).contains("not offered"));
}

#[test]
fn a_refusal_keeps_its_status() {
    let mut host = Host::new(config());
    host.send(&login_response(0, &[]).put(36, &[3, 1]));
    let expected = LoginFailure::Refused(LoginStatus::UNAVAILABLE);
    assert_eq!(host.event(), Event::LoginFailed(Box::new(expected)));
}

#[test]
fn a_redirection_without_an_address_that_can_be_used_says_so() {
    for text in [
        &[][..],
        &["TargetAddress=host:99999,1"],
        &["TargetAddress="],
    ] {
        let mut host = Host::new(config());
        host.send(&login_response(0, text).put(36, &[1, 1]));
        let sentence = failure(&mut host);
        assert!(sentence.contains("names no address"), "{sentence}");
    }
}

#[test]
fn random_bytes_never_hang_and_never_panic() {
    let mut state = 0x1234_5678_u64;
    let mut random = move || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state >> 33).to_le_bytes()[0]
    };
    for round in 0..300 {
        let (mut host, itt) = busy(if round % 2 == 0 { A_READ } else { A_WRITE });
        for _ in 0..50 {
            let kinds = [0x20, 0x21, 0x25, 0x31, 0x32, 0x3F, 0x24, 0x26];
            let mut pdu = Pdu::new(kinds[usize::from(random()) % 8], random());
            for at in 8..48 {
                pdu.bhs[at] = if random() < 40 { random() } else { 0 };
            }
            pdu = if random() < 200 { pdu.itt(itt) } else { pdu };
            let data: Vec<u8> = (0..random()).collect();
            host.send(&pdu.data(&data));
        }
    }
}
