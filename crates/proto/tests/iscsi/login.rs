//! Logins: the dialogues of known initiators, and everything a stranger can do wrong before it is let in.

mod iscsi_wire;

use fabrix_proto::iscsi::auth::{
    Algorithm, Challenges, ChapPolicy, Credentials, PolicyError, Secret,
};
use fabrix_proto::iscsi::login::{Admission, Auth};
use fabrix_proto::iscsi::pdu::LoginStatus;
use fabrix_proto::iscsi::target::Event;
use fabrix_proto::iscsi::text::binary;
use fabrix_proto::{Machine as _, Want};
use iscsi_wire::*;

/// Security to operational, operational to full, security to full; with T.
const TO_OPERATIONAL: u8 = 0x81;
const SECURITY: u8 = 0x00;
const OPERATIONAL: u8 = 0x04;
const STRAIGHT: u8 = 0x83;

const USER: &str = "alice";
const SECRET: &[u8] = b"initiator-secret";
const TARGET_SECRET: &[u8] = b"target-secret-of-ours";
const CHALLENGE: [u8; 16] = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16];

fn credentials(name: &str, secret: &[u8]) -> Credentials {
    let secret = Secret::new(secret).expect("long enough");
    Credentials::new(name, secret).expect("short enough")
}

fn chap(mutual: bool) -> Admission {
    let challenge = Challenges::default().issue(0x21, &CHALLENGE).expect("new");
    let target = mutual.then(|| credentials("us", TARGET_SECRET));
    let initiator = credentials(USER, SECRET);
    let policy = ChapPolicy::new(&Algorithm::ALL, initiator, target, challenge);
    grant(Auth::Chap(Box::new(policy.expect("two secrets"))))
}

fn wire_with(admission: Admission) -> Wire {
    let mut wire = Wire::new(limits());
    wire.admission = Some(admission);
    wire
}

fn proof(algorithm: Algorithm) -> String {
    let secret = Secret::new(SECRET).expect("long enough");
    let response = algorithm.response(0x21, &secret, &CHALLENGE);
    format!("CHAP_R={}", binary::encode_hex(response.as_bytes()))
}

/// Sends one step and returns flags, status and text of the answer.
fn step(wire: &mut Wire, flags: u8, pairs: &[&str]) -> (u8, u16, String) {
    wire.send(&login_pdu(flags, pairs));
    let reply = wire.reply();
    assert_eq!(reply.bhs[0], 0x23);
    let status = u16::from_be_bytes([reply.bhs[36], reply.bhs[37]]);
    (reply.bhs[1], status, reply.text())
}

fn refused(wire: &mut Wire, flags: u8, pairs: &[&str]) -> LoginStatus {
    let (got_flags, status, _) = step(wire, flags, pairs);
    assert_eq!(got_flags, 0);
    assert_eq!(wire.target.want(), Want::Closed);
    let last = wire.take_events().pop();
    let Some(Event::LoginFailed(refusal)) = last else {
        panic!("a failed login was expected: {last:?}");
    };
    assert_eq!(refusal.status, LoginStatus(status));
    assert!(wire.target.session().is_none() && !refusal.sentence.is_empty());
    refusal.status
}

// ---- dialogues

#[test]
fn open_iscsi_logs_in_without_authentication() {
    let mut wire = Wire::new(limits());
    let names = [
        INITIATOR,
        "InitiatorAlias=host",
        TARGET,
        "SessionType=Normal",
        "AuthMethod=None",
    ];
    let reply = step(&mut wire, TO_OPERATIONAL, &names);
    assert_eq!(
        reply,
        (0x81, 0, "TargetPortalGroupTag=1 AuthMethod=None".into())
    );
    let wishes = [
        "HeaderDigest=None",
        "DataDigest=None",
        "DefaultTime2Wait=2",
        "DefaultTime2Retain=0",
        "IFMarker=No",
        "OFMarker=No",
        "ErrorRecoveryLevel=0",
        "InitialR2T=No",
        "ImmediateData=Yes",
        "MaxBurstLength=16776192",
        "FirstBurstLength=262144",
        "MaxOutstandingR2T=1",
        "MaxConnections=1",
        "DataPDUInOrder=Yes",
        "DataSequenceInOrder=Yes",
        "MaxRecvDataSegmentLength=262144",
    ];
    let (flags, status, text) = step(&mut wire, TO_FULL, &wishes);
    assert_eq!((flags, status), (0x87, 0));
    let expected = "MaxRecvDataSegmentLength=262144 MaxBurstLength=1048576 HeaderDigest=None \
                    DataDigest=None DefaultTime2Wait=2 DefaultTime2Retain=0 IFMarker=No \
                    OFMarker=No ErrorRecoveryLevel=0 InitialR2T=No ImmediateData=Yes \
                    FirstBurstLength=262144 MaxOutstandingR2T=1 MaxConnections=1 \
                    DataPDUInOrder=Yes DataSequenceInOrder=Yes";
    assert_eq!(text, expected);
    assert_eq!(wire.take_events(), LOGIN);
    let session = wire.target.session().expect("logged in");
    assert_eq!(&*session.leading.initiator, "iqn.2026-01.example:host");
    assert_eq!((session.leading.isid, session.leading.cid), (ISID, 7));
    let parameters = session.parameters;
    assert!(!parameters.initial_r2t && parameters.immediate_data);
    assert_eq!(parameters.initiator_segment_bytes, 262_144);
    assert_eq!(parameters.first_burst_bytes, 262_144);
}

#[test]
fn open_iscsi_logs_in_with_chap_in_both_directions() {
    for algorithm in Algorithm::ALL {
        let mut wire = wire_with(chap(true));
        let first = [INITIATOR, TARGET, "AuthMethod=CHAP,None"];
        let reply = step(&mut wire, TO_OPERATIONAL, &first);
        assert_eq!(
            reply,
            (0, 0, "TargetPortalGroupTag=1 AuthMethod=CHAP".into())
        );
        let offer = format!("CHAP_A={}", algorithm.number());
        let reply = step(&mut wire, SECURITY, &[&offer]);
        let asked = "CHAP_I=33 CHAP_C=0x0102030405060708090a0b0c0d0e0f10";
        assert_eq!(reply, (0, 0, format!("{offer} {asked}")));
        let name = format!("CHAP_N={USER}");
        let pairs = [&name, &proof(algorithm), "CHAP_I=5", "CHAP_C=0xabcdef"];
        let (flags, status, text) = step(&mut wire, TO_OPERATIONAL, &pairs);
        assert_eq!((flags, status), (0x81, 0));
        let secret = Secret::new(TARGET_SECRET).expect("long enough");
        let ours = algorithm.response(5, &secret, &[0xAB, 0xCD, 0xEF]);
        let ours = binary::encode_hex(ours.as_bytes());
        assert_eq!(text, format!("CHAP_N=us CHAP_R={ours}"));
        let (flags, status, _) = step(&mut wire, TO_FULL, &["InitialR2T=No"]);
        assert_eq!((flags, status), (0x87, 0));
    }
}

#[test]
fn libiscsi_logs_in_with_chap_in_base64() {
    let mut wire = wire_with(chap(false));
    step(
        &mut wire,
        0x81,
        &[
            INITIATOR,
            TARGET,
            "SessionType=Normal",
            "AuthMethod=CHAP,None",
        ],
    );
    step(&mut wire, SECURITY, &["CHAP_A=7,6,5"]);
    let secret = Secret::new(SECRET).expect("long enough");
    let response = Algorithm::Sha256.response(0x21, &secret, &CHALLENGE);
    let proof = format!("CHAP_R=0b{}", base64(response.as_bytes()));
    let (flags, status, text) = step(&mut wire, 0x81, &["CHAP_N=alice", &proof]);
    assert_eq!((flags, status, &*text), (0x81, 0, ""));
    assert_eq!(step(&mut wire, TO_FULL, &["HeaderDigest=None,CRC32C"]).1, 0);
}

fn base64(bytes: &[u8]) -> String {
    let digits = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let group = |chunk: &[u8]| {
        let bits = (0..3).fold(0_usize, |bits, i| {
            bits << 8 | usize::from(*chunk.get(i).unwrap_or(&0))
        });
        let digit = |i: usize| match i <= chunk.len() {
            true => char::from(digits[bits >> (18 - 6 * i) & 63]),
            false => '=',
        };
        (0..4).map(digit).collect::<String>()
    };
    bytes.chunks(3).map(group).collect()
}

#[test]
fn windows_negotiates_in_one_step_and_pads_its_text() {
    let mut wire = Wire::new(limits());
    let name = "InitiatorName=iqn.1991-05.com.microsoft:HOST";
    let mut first = login_pdu(
        TO_OPERATIONAL,
        &[name, TARGET, "SessionType=Normal", "AuthMethod=None", "\0"],
    );
    first.bhs[0] = 0x43;
    wire.send(&first);
    assert_eq!(wire.reply().bhs[1], 0x81);
    let wishes = [
        "HeaderDigest=None,CRC32C",
        "DataDigest=None,CRC32C",
        "ErrorRecoveryLevel=2",
        "InitialR2T=Yes",
        "ImmediateData=Yes",
        "MaxRecvDataSegmentLength=65536",
        "MaxBurstLength=262144",
        "FirstBurstLength=65536",
        "MaxConnections=1",
        "DataPDUInOrder=Yes",
        "DataSequenceInOrder=Yes",
        "DefaultTime2Wait=0",
        "DefaultTime2Retain=60",
        "MaxOutstandingR2T=16",
    ];
    let (flags, status, text) = step(&mut wire, TO_FULL, &wishes);
    assert_eq!((flags, status), (0x87, 0));
    assert!(text.contains("ErrorRecoveryLevel=0") && text.contains("MaxOutstandingR2T=4"));
    let leading = wire.target.leading().expect("logged in");
    assert_eq!(
        &*leading.initiator, "iqn.1991-05.com.microsoft:host",
        "lower case"
    );
}

#[test]
fn esxi_logs_in_with_operational_steps_without_t() {
    let mut wire = Wire::new(limits());
    let name = "InitiatorName=iqn.1998-01.com.vmware:esx-1";
    let first = [name, TARGET, "SessionType=Normal", "AuthMethod=None"];
    assert_eq!(step(&mut wire, SECURITY, &first).0, 0, "no T, no T");
    assert_eq!(step(&mut wire, TO_OPERATIONAL, &[]).0, 0x81);
    let reply = step(
        &mut wire,
        OPERATIONAL,
        &["HeaderDigest=None", "X-com.vmware.x=1"],
    );
    let expected = "MaxRecvDataSegmentLength=262144 HeaderDigest=None X-com.vmware.x=NotUnderstood";
    assert_eq!(reply, (OPERATIONAL, 0, expected.into()));
    let (flags, status, text) = step(&mut wire, TO_FULL, &["MaxBurstLength=262144"]);
    assert_eq!((flags, status, &*text), (0x87, 0, "MaxBurstLength=262144"));
}

#[test]
fn qemu_goes_to_the_full_feature_phase_in_one_request() {
    let mut wire = Wire::new(limits());
    let name = "InitiatorName=iqn.2008-11.org.linux-kvm:vm";
    wire.send(&login_pdu(STRAIGHT, &[name, TARGET, "AuthMethod=None"]));
    let reply = wire.reply();
    assert_eq!((reply.bhs[1], reply.get32(36)), (0x83, 0));
    assert_eq!(reply.bhs[14..16], [1, 2], "TSIH");
    let parameters = wire.target.session().expect("logged in").parameters;
    assert_eq!(parameters.target_segment_bytes, 8192, "never declared");
}

#[test]
fn a_discovery_session_needs_no_target_and_has_no_portal_group() {
    let mut wire = Wire::new(limits());
    let pairs = [INITIATOR, "SessionType=Discovery", "MaxBurstLength=512"];
    let reply = step(&mut wire, TO_FULL, &pairs);
    let expected = "MaxRecvDataSegmentLength=262144 MaxBurstLength=Irrelevant";
    assert_eq!(reply, (0x87, 0, expected.into()));
    assert!(wire.target.leading().expect("logged in").discovery);
}

#[test]
fn text_over_several_pdus_is_one_text() {
    let mut wire = Wire::new(limits());
    let whole = text(&[INITIATOR, TARGET, "InitialR2T=No"]);
    let (first, second) = whole.split_at(20);
    let pdu = |flags, data: &[u8]| login_pdu(flags, &[]).data(data);
    wire.send(&pdu(0x44, first));
    let reply = wire.reply();
    assert_eq!((reply.bhs[1], reply.data.len()), (OPERATIONAL, 0));
    assert!(wire.take_events().is_empty());
    wire.send(&pdu(TO_FULL, second));
    assert!(wire.reply().text().ends_with("InitialR2T=No"));
    assert!(wire.target.session().is_some());
}

#[test]
fn the_owner_may_answer_later_refuse_or_send_elsewhere() {
    let mut wire = Wire::new(limits());
    wire.admission = None;
    wire.send(&login_pdu(TO_FULL, &[INITIATOR, TARGET]));
    assert_eq!(wire.event(), Event::Authorize);
    assert!(wire.said().is_empty());
    let early = wire.with(|target, out| target.enter(Ok(tsih()), out));
    assert_eq!(early, None);
    let event = wire.with(|target, out| target.admit(grant(Auth::None), out));
    assert_eq!(event, Some(Event::Proved));
    let again = wire.with(|target, out| target.admit(grant(Auth::None), out));
    assert_eq!(again, None);
    assert!(wire.said().is_empty());
    let event = wire.with(|target, out| target.enter(Ok(tsih()), out));
    assert_eq!(event, Some(Event::LoggedIn));
    let again = wire.with(|target, out| target.enter(Ok(tsih()), out));
    assert_eq!((again, wire.reply().bhs[15]), (None, 2));

    let mut wire = Wire::new(limits());
    wire.admission = None;
    wire.send(&login_pdu(TO_FULL, &[INITIATOR, TARGET]));
    wire.with(|target, out| target.admit(grant(Auth::None), out));
    let full = Err(LoginStatus::OUT_OF_RESOURCES);
    let event = wire.with(|target, out| target.enter(full, out));
    assert!(matches!(event, Some(Event::LoginFailed(_))), "{event:?}");
    assert_eq!(wire.reply().bhs[36..38], [3, 2]);

    let mut wire = wire_with(Admission::Refuse(LoginStatus::NOT_FOUND));
    assert_eq!(
        refused(&mut wire, TO_FULL, &[INITIATOR, TARGET]),
        LoginStatus::NOT_FOUND
    );

    let mut wire = wire_with(Admission::Moved {
        permanently: false,
        address: "192.0.2.1:3260".into(),
    });
    let reply = step(&mut wire, TO_FULL, &[INITIATOR, TARGET]);
    assert_eq!(reply, (0, 0x0101, "TargetAddress=192.0.2.1:3260".into()));
    assert!(wire.is_closed());
}

// ---- what a stranger can do wrong

fn check_first(flags: u8, pairs: &[&str], expected: LoginStatus) {
    let status = refused(&mut Wire::new(limits()), flags, pairs);
    assert_eq!(status, expected, "{flags:#x} {pairs:?}");
}

#[test]
fn what_must_be_said_first_must_be_there() {
    check_first(TO_FULL, &[TARGET], LoginStatus::MISSING_PARAMETER);
    check_first(TO_FULL, &[], LoginStatus::MISSING_PARAMETER);
    check_first(TO_FULL, &[INITIATOR], LoginStatus::MISSING_PARAMETER);
    check_first(
        TO_FULL,
        &[INITIATOR, "SessionType=Both"],
        LoginStatus::SESSION_TYPE,
    );
    let nameless = ["InitiatorName=host", TARGET];
    check_first(TO_FULL, &nameless, LoginStatus::INITIATOR_ERROR);
    let long = format!("InitiatorName=iqn.{}", "x".repeat(220));
    check_first(TO_FULL, &[&long, TARGET], LoginStatus::INITIATOR_ERROR);
}

#[test]
fn stages_that_do_not_exist_or_lie_behind_are_refused() {
    for flags in [0x08, 0x0C, 0x84, 0x85, 0x86, 0x82, 0x80, 0xC7] {
        check_first(flags, &[INITIATOR, TARGET], LoginStatus::INITIATOR_ERROR);
    }
    let mut wire = Wire::new(limits());
    step(&mut wire, TO_OPERATIONAL, &[INITIATOR, TARGET]);
    assert_eq!(
        refused(&mut wire, SECURITY, &[]),
        LoginStatus::INITIATOR_ERROR
    );
}

#[test]
fn version_and_identity_are_checked() {
    let send = |change: fn(Pdu) -> Pdu| {
        let mut wire = Wire::new(limits());
        wire.send(&change(login_pdu(TO_FULL, &[INITIATOR, TARGET])));
        wire.reply().get32(36) >> 16
    };
    assert_eq!(send(|pdu| pdu.put(2, &[1, 1])), 0x0205);
    assert_eq!(send(|pdu| pdu.put(2, &[9, 0])), 0);
    assert_eq!(send(|pdu| pdu.put(14, &[0, 1])), 0x020A);
    let mut wire = Wire::new(limits());
    step(&mut wire, TO_OPERATIONAL, &[INITIATOR, TARGET]);
    wire.send(&login_pdu(TO_FULL, &[]).put(8, &[9]));
    assert_eq!(wire.reply().get32(36) >> 16, 0x0200, "another ISID");
}

#[test]
fn a_key_comes_once() {
    let twice = [INITIATOR, TARGET, "InitialR2T=No", "InitialR2T=Yes"];
    check_first(TO_FULL, &twice, LoginStatus::INITIATOR_ERROR);
    let mut wire = Wire::new(limits());
    step(
        &mut wire,
        OPERATIONAL,
        &[INITIATOR, TARGET, "ImmediateData=No"],
    );
    let again = refused(&mut wire, TO_FULL, &["ImmediateData=Yes"]);
    assert_eq!(again, LoginStatus::INITIATOR_ERROR);
    let mut wire = Wire::new(limits());
    step(&mut wire, OPERATIONAL, &[INITIATOR, TARGET]);
    assert_eq!(
        refused(&mut wire, TO_FULL, &[INITIATOR]),
        LoginStatus::INITIATOR_ERROR
    );
}

#[test]
fn other_pdus_before_the_end_of_the_login_are_refused() {
    for opcode in (0..=0x3F).filter(|opcode| *opcode != 3) {
        for started in [false, true] {
            let mut wire = Wire::new(limits());
            if started {
                step(&mut wire, TO_OPERATIONAL, &[INITIATOR, TARGET]);
                wire.take_events();
            }
            wire.send(&Pdu::new(opcode, 0x80).itt(1));
            let reply = wire.reply();
            assert_eq!((reply.bhs[0], reply.get32(36) >> 16), (0x23, 0x020B));
            assert!(wire.is_closed());
        }
    }
}

#[test]
fn every_byte_of_a_login_may_be_the_last() {
    let whole = [
        login_pdu(TO_OPERATIONAL, &[INITIATOR, TARGET, "AuthMethod=None"]).bytes(NONE),
        login_pdu(TO_FULL, &["InitialR2T=No"]).bytes(NONE),
    ]
    .concat();
    for cut in 0..whole.len() {
        let mut wire = Wire::new(limits());
        wire.feed(&whole[..cut]);
        assert!(wire.target.session().is_none() && !wire.is_closed());
        wire.feed(&whole[cut..]);
        assert_eq!(wire.take_events(), LOGIN, "cut at {cut}");
    }
}

#[test]
fn a_half_login_ends_in_time() {
    let mut wire = Wire::new(limits());
    step(&mut wire, TO_OPERATIONAL, &[INITIATOR, TARGET]);
    wire.take_events();
    assert_eq!(wire.target.deadline(), START.plus_ms(15_000));
    let tick = |wire: &mut Wire, ms| wire.with(|target, out| target.tick(START.plus_ms(ms), out));
    assert_eq!(tick(&mut wire, 14_999), None);
    // Bytes that trickle in do not prolong it.
    wire.feed(&[0x43]);
    assert!(matches!(
        tick(&mut wire, 15_000),
        Some(Event::LoginFailed(_))
    ));
    assert!(wire.is_closed());
    assert_eq!(wire.reply().get32(36) >> 16, 0x0200);
}

#[test]
fn an_endless_c_bit_ends() {
    for data in [&b""[..], b"X-a=b\0"] {
        let mut wire = Wire::new(limits());
        let mut sent = 0;
        while !wire.is_closed() {
            wire.send(&login_pdu(0x44, &[]).data(data));
            sent += 1;
            assert!(sent <= 17, "it goes on and on");
        }
        assert!(matches!(wire.event(), Event::LoginFailed(_)));
    }
}

#[test]
fn an_endless_login_ends() {
    let mut wire = Wire::new(limits());
    step(&mut wire, OPERATIONAL, &[INITIATOR, TARGET]);
    let mut sent = 1;
    while !wire.is_closed() {
        wire.send(&login_pdu(OPERATIONAL, &[]));
        sent += 1;
        assert!(sent <= 33, "it goes on and on");
    }
}

#[test]
fn a_flood_of_keys_is_refused_and_its_answer_fits_one_pdu() {
    let keys: Vec<String> = (0..62)
        .map(|i| format!("X-{}{i:02}=1", "k".repeat(59)))
        .collect();
    let mut pairs = vec![INITIATOR, TARGET];
    pairs.extend(keys.iter().map(|key| &**key));
    let (_, status, text) = step(&mut Wire::new(limits()), TO_FULL, &pairs);
    assert_eq!(status, 0);
    assert!(text.len() < 8192);
    let many: Vec<String> = (0..1000).map(|i| format!("a{i}=")).collect();
    let many: Vec<&str> = many.iter().map(|key| &**key).collect();
    check_first(TO_FULL, &many, LoginStatus::INITIATOR_ERROR);
}

// ---- authentication

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

// ---- what has happened to others

#[test]
fn cve_2013_2850_overlong_unknown_keys_are_bounded() {
    for (key, value, status) in [
        (63, 255, LoginStatus::SUCCESS),
        (64, 1, LoginStatus::INITIATOR_ERROR),
        (65, 255, LoginStatus::INITIATOR_ERROR),
        (8000, 1, LoginStatus::INITIATOR_ERROR),
        (5, 4000, LoginStatus::INITIATOR_ERROR),
    ] {
        let pair = format!("{}={}", "k".repeat(key), "v".repeat(value));
        let mut wire = Wire::new(limits());
        let got = step(&mut wire, TO_FULL, &[INITIATOR, TARGET, &pair]).1;
        assert_eq!(LoginStatus(got), status, "{key} {value}");
    }
    for raw in [
        &b"no-equals\0"[..],
        b"a=not terminated",
        b"=\0",
        b"\xff\xfe=1\0",
    ] {
        let mut wire = Wire::new(limits());
        wire.send(&login_pdu(TO_FULL, &[]).data(raw));
        assert_eq!(wire.reply().get32(36) >> 16, 0x0200);
    }
}

#[test]
fn cve_2011_0001_a_long_login_segment_is_refused_before_it_is_read() {
    for length in [8193, 65_536, 0xFF_FFFF_u32] {
        let mut wire = Wire::new(limits());
        let pdu = login_pdu(TO_FULL, &[]).put(5, &length.to_be_bytes()[1..]);
        wire.feed(&pdu.bhs);
        assert_eq!(wire.reply().get32(36) >> 16, 0x0200);
        assert!(wire.is_closed());
    }
    let mut wire = Wire::new(limits());
    wire.feed(&login_pdu(TO_FULL, &[]).put(4, &[255]).bhs);
    assert!(wire.is_closed(), "additional headers");
}

#[test]
fn cve_2021_28361_a_login_without_data_is_refused() {
    check_first(TO_FULL, &[], LoginStatus::MISSING_PARAMETER);
    check_first(SECURITY, &[], LoginStatus::MISSING_PARAMETER);
}

#[test]
fn cve_2024_45751_no_two_logins_share_a_challenge() {
    let mut challenges = Challenges::default();
    let random = |i: u8| [i, i ^ 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15];
    for i in 0..=255 {
        challenges.issue(i, &random(i)).expect("new");
    }
    for i in 0..=255 {
        let again = challenges.issue(i, &random(i));
        assert_eq!(again, Err(PolicyError::ChallengeRepeated));
    }
}
