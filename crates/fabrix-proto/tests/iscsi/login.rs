//! Logins as initiators of this world do them, step by step.

use fabrix_proto::iscsi::auth::{Algorithm, Challenges, ChapPolicy, Credentials, Secret};
use fabrix_proto::iscsi::login::{Admission, Auth};
use fabrix_proto::iscsi::pdu::LoginStatus;
use fabrix_proto::iscsi::target::Event;
use fabrix_proto::iscsi::text::binary;
use fabrix_proto::{Machine as _, Want};

use crate::wire::*;

pub(crate) const TO_OPERATIONAL: u8 = 0x81;
pub(crate) const SECURITY: u8 = 0x00;
pub(crate) const OPERATIONAL: u8 = 0x04;
pub(crate) const STRAIGHT: u8 = 0x83;

pub(crate) const USER: &str = "alice";
pub(crate) const SECRET: &[u8] = b"initiator-secret";
pub(crate) const TARGET_SECRET: &[u8] = b"target-secret-of-ours";
pub(crate) const CHALLENGE: [u8; 16] = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16];

pub(crate) fn credentials(name: &str, secret: &[u8]) -> Credentials {
    let secret = Secret::new(secret).expect("long enough");
    Credentials::new(name, secret).expect("short enough")
}

pub(crate) fn chap(mutual: bool) -> Admission {
    let challenge = Challenges::default().issue(0x21, &CHALLENGE).expect("new");
    let target = mutual.then(|| credentials("us", TARGET_SECRET));
    let initiator = credentials(USER, SECRET);
    let policy = ChapPolicy::new(&Algorithm::ALL, initiator, target, challenge);
    grant(Auth::Chap(Box::new(policy.expect("two secrets"))))
}

pub(crate) fn wire_with(admission: Admission) -> Wire {
    let mut wire = Wire::new(limits());
    wire.admission = Some(admission);
    wire
}

pub(crate) fn proof(algorithm: Algorithm) -> String {
    let secret = Secret::new(SECRET).expect("long enough");
    let response = algorithm.response(0x21, &secret, &CHALLENGE);
    format!("CHAP_R={}", binary::encode_hex(response.as_bytes()))
}

/// Sends one step and returns flags, status and text of the answer.
pub(crate) fn step(wire: &mut Wire, flags: u8, pairs: &[&str]) -> (u8, u16, String) {
    wire.send(&login_pdu(flags, pairs));
    let reply = wire.reply();
    assert_eq!(reply.bhs[0], 0x23);
    let status = u16::from_be_bytes([reply.bhs[36], reply.bhs[37]]);
    (reply.bhs[1], status, reply.text())
}

pub(crate) fn refused(wire: &mut Wire, flags: u8, pairs: &[&str]) -> LoginStatus {
    let (got_flags, status, _) = step(wire, flags, pairs);
    assert_eq!(got_flags, 0);
    assert_eq!(wire.machine.want(), Want::Closed);
    let last = wire.take_events().pop();
    let Some(Event::LoginFailed(refusal)) = last else {
        panic!("a failed login was expected: {last:?}");
    };
    assert_eq!(refusal.status, LoginStatus(status));
    assert!(wire.target().session().is_none() && !refusal.sentence.is_empty());
    refusal.status
}

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
    let session = wire.target().session().expect("logged in");
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
    let leading = wire.target().leading().expect("logged in");
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
    let parameters = wire.target().session().expect("logged in").parameters;
    assert_eq!(parameters.target_segment_bytes, 8192, "never declared");
}

#[test]
fn a_discovery_session_needs_no_target_and_has_no_portal_group() {
    let mut wire = Wire::new(limits());
    let pairs = [INITIATOR, "SessionType=Discovery", "MaxBurstLength=512"];
    let reply = step(&mut wire, TO_FULL, &pairs);
    let expected = "MaxRecvDataSegmentLength=262144 MaxBurstLength=Irrelevant";
    assert_eq!(reply, (0x87, 0, expected.into()));
    assert!(wire.target().leading().expect("logged in").discovery);
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
    assert!(wire.target().session().is_some());
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
