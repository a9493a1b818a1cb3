//! Logins: what the initiator offers, and answers that it cannot use.

use super::*;

#[test]
fn a_login_offers_what_rdma_needs_and_nothing_that_it_has_not() {
    let mut stage = Stage::new();
    let first = stage.only();
    assert!(first.tags.read.is_none() && first.tags.write.is_none());
    let mut response = pdu(0x23, 0x81, first.itt(), b"AuthMethod=None\0");
    response[28 + 14..28 + 16].copy_from_slice(&1_u16.to_be_bytes());
    stage.say(&response, None);
    assert_eq!(stage.next(), None);
    let text = String::from_utf8(stage.only().data).expect("text");
    let pairs: Vec<&str> = text.split('\0').collect();
    for pair in [
        "RDMAExtensions=Yes",
        "InitialR2T=Yes",
        "ImmediateData=Yes",
        "InitiatorRecvDataSegmentLength=8192",
        "TargetRecvDataSegmentLength=8192",
    ] {
        assert!(pairs.contains(&pair), "{text}");
    }
    assert!(
        !text.contains("Digest") && !text.contains("\0MaxRecvData"),
        "{text}"
    );
}

#[test]
fn a_login_without_what_rdma_needs_fails_with_its_reason() {
    for (keys, why) in [
        ("RDMAExtensions=No\0", "RDMAExtensions"),
        ("InitialR2T=Yes\0", "RDMAExtensions"),
        ("RDMAExtensions=Yes\0InitialR2T=No\0", "not offered"),
        ("RDMAExtensions=Yes\0HeaderDigest=CRC32C\0", "not offered"),
        (
            "RDMAExtensions=Yes\0TargetRecvDataSegmentLength=8193\0",
            "not offered",
        ),
    ] {
        let mut stage = Stage::new();
        match stage.log_in(keys) {
            Ok(Some(Event::LoginFailed(failure))) => {
                assert!(failure.to_string().contains(why), "{failure}");
            }
            other => panic!("{keys} is taken: {other:?}"),
        }
    }
}
