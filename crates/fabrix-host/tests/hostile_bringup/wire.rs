//! Faults on the wire: wrong headers, digests and data, silence, and an end at every byte.

use std::time::Duration;

use fabrix_host::ConnectErrorKind::{Closed, Protocol, Timeout};
use fabrix_host::{Options, connect};
use fabrix_proto::nvme::spec::Status;
use fabrix_proto::nvme::tcp::pdu::{FLAG_LAST, FLAG_SUCCESS, InitializeResponse};

use super::common::{Fake, Greeting, Link, Script};
use super::{COMMANDS, CONNECT, IDENTIFY_CONTROLLER, READ_CAP, instead, quick, refused, taken};

/// A script that only changes ICResp.
fn icresp(change: impl Fn(&mut InitializeResponse) + Send + Sync + 'static) -> Script {
    Script {
        icresp: Box::new(change),
        ..Script::default()
    }
}

#[test]
fn refuses_every_wrong_field_of_icresp() {
    let wrong = |change: fn(&mut InitializeResponse), word| {
        refused(icresp(change), &quick(), Protocol, word);
    };
    wrong(|it| it.format_version = 1.into(), "version");
    wrong(|it| it.controller_alignment = 32, "CPDA");
    wrong(|it| it.digests = 1, "not asked for");
    wrong(|it| it.digests = 3, "not asked for");
    wrong(|it| it.max_h2c_bytes = 0.into(), "MAXH2CDATA");
    wrong(|it| it.max_h2c_bytes = 4095.into(), "MAXH2CDATA");
    wrong(|it| it.max_h2c_bytes = 4098.into(), "MAXH2CDATA");
    wrong(|it| it.common.total_bytes = 24.into(), "PLEN");
    wrong(|it| it.common.header_bytes = 24, "HLEN");
    wrong(|it| it.common.flags = 1, "flags");
    wrong(|it| it.common.pdu_type.0 = 0x05, "before ICResp");
    wrong(|it| it.common.pdu_type.0 = 0x00, "only a host sends");
    wrong(|it| it.common.pdu_type.0 = 0x42, "unknown type");
    let digests = Options {
        header_digest: true,
        data_digest: true,
        ..quick()
    };
    refused(
        icresp(|it| it.digests = 0),
        &digests,
        Protocol,
        "digest that was asked for",
    );
}

#[test]
fn refuses_what_is_not_nvme_at_all() {
    let say = |bytes: &'static [u8], kind, word| {
        let greeting = move |_| Greeting::Say(bytes.to_vec());
        refused(
            Script {
                greeting: Box::new(greeting),
                ..Script::default()
            },
            &quick(),
            kind,
            word,
        );
    };
    say(
        b"SSH-2.0-OpenSSH_9.2p1 Debian-2\r\n",
        Protocol,
        "unknown type",
    );
    say(
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        Protocol,
        "unknown type",
    );
    say(&[0; 200], Protocol, "only a host sends");
    say(b"", Timeout, "ICReq");
}

#[test]
fn refuses_wrong_digests() {
    let digests = Options {
        header_digest: true,
        data_digest: true,
        ..quick()
    };
    let header = instead(READ_CAP, |link, command| {
        link.digests.header = false; // so that no digest is sent, but bytes that are none
        let mut bytes = [0_u8; 28];
        bytes[..8].copy_from_slice(&[5, 1, 24, 0, 28, 0, 0, 0]);
        bytes[20..22].copy_from_slice(&command.cid.to_le_bytes());
        link.send(&bytes)
    });
    refused(header, &digests, Protocol, "digest");
    let data = instead(IDENTIFY_CONTROLLER, |link, command| {
        let cid = command.cid;
        link.send_data_with(cid, 0, &[0; 4096], FLAG_LAST | FLAG_SUCCESS, 1)
    });
    refused(data, &digests, Protocol, "does not match its digest");
    taken(Script::default(), &digests);
}

#[test]
fn refuses_answers_that_nobody_asked_for() {
    let stray = |change: fn(u16) -> u16| {
        let script = instead(READ_CAP, move |link, command| {
            link.respond(change(command.cid), Status::SUCCESS, 0)
        });
        refused(script, &quick(), Protocol, "not in progress");
    };
    stray(|cid| cid ^ 1); // another slot
    stray(|cid| cid ^ 0x20); // another generation of the same slot
    stray(|_| 0xFFFF);
    let twice = instead(READ_CAP, |link, command| {
        link.respond(command.cid, Status::SUCCESS, common_cap())?;
        link.respond(command.cid, Status::SUCCESS, common_cap())
    });
    refused(twice, &quick(), Protocol, "not in progress");
}

fn common_cap() -> u64 {
    Script::default().capabilities
}

#[test]
fn refuses_data_that_is_not_what_was_asked_for() {
    let data = |act: fn(&mut Link, u16) -> std::io::Result<()>, word| {
        let script = instead(IDENTIFY_CONTROLLER, move |link, command| {
            act(link, command.cid)
        });
        refused(script, &quick(), Protocol, word);
    };
    data(
        |link, cid| link.send_data(cid, 0, &[0; 4100], FLAG_LAST),
        "more data than",
    );
    data(
        |link, cid| link.send_data(cid, 4, &[0; 4092], FLAG_LAST),
        "does not continue",
    );
    data(
        |link, cid| link.send_data(cid, u32::MAX - 3, &[0; 8], FLAG_LAST),
        "does not continue",
    );
    data(
        |link, cid| link.send_data(cid, 0, &[], FLAG_LAST),
        "without data",
    );
    data(
        |link, cid| link.send_data(cid, 0, &[0; 4096], FLAG_SUCCESS),
        "SUCCESS but not LAST",
    );
    data(
        |link, cid| link.send_data(cid ^ 0x20, 0, &[0; 4096], FLAG_LAST),
        "not in progress",
    );
    data(
        |link, cid| {
            link.send_data(cid, 0, &[0; 512], FLAG_LAST)?;
            link.send_data(cid, 512, &[0; 512], FLAG_LAST)
        },
        "after the one that said LAST",
    );
    data(
        |link, cid| {
            link.send_data(cid, 0, &[0; 512], FLAG_LAST)?;
            link.respond(cid, Status::SUCCESS, 0)
        },
        "less data",
    );
    data(
        |link, cid| link.respond(cid, Status::SUCCESS, 0),
        "less data",
    );
    data(|link, cid| link.request_data(cid, 1, 0, 4096), "R2T");
    let no_reader = instead(READ_CAP, |link, command| {
        link.send_data(command.cid, 0, &[0; 8], FLAG_LAST | FLAG_SUCCESS)
    });
    refused(no_reader, &quick(), Protocol, "does not read");
    let in_capsule = instead(CONNECT, |link, command| {
        link.request_data(command.cid, 1, 0, 1024)
    });
    refused(in_capsule, &quick(), Protocol, "R2T");
}

#[test]
fn a_goodbye_at_any_time_is_told() {
    let early = Greeting::Say;
    let bytes = [
        3, 0, 24, 0, 24, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
    ];
    let greeting = move |_| early(bytes.to_vec());
    let script = Script {
        greeting: Box::new(greeting),
        ..Script::default()
    };
    refused(script, &quick(), Protocol, "fatal error status 2");
    for number in 0..COMMANDS {
        let script = instead(number, |link, _| link.terminate(6));
        refused(script, &quick(), Protocol, "fatal error status 6");
    }
}

#[test]
fn silence_at_any_time_ends_in_a_timeout_that_says_what_was_not_answered() {
    let silence = Script {
        greeting: Box::new(|_| Greeting::Silence),
        ..Script::default()
    };
    refused(silence, &quick(), Timeout, "ICReq");
    let words = [
        "Connect",
        "CAP",
        "VS",
        "CC",
        "CSTS",
        "Identify Controller",
        "NVM command set",
        "Number of Queues",
    ];
    let more = ["active namespaces", "Identify Namespace", "descriptors"];
    for (number, word) in words.into_iter().chain(more).enumerate() {
        refused(instead(number, |_, _| Ok(())), &quick(), Timeout, word);
    }
}

#[test]
fn a_target_that_trickles_does_not_hold_us_longer_than_the_timeout() {
    let script = instead(IDENTIFY_CONTROLLER, |link, _| {
        for _ in 0..100 {
            link.send(&[7])?;
            link.shared.place.pause(Duration::from_millis(20));
        }
        Ok(())
    });
    refused(script, &quick(), Timeout, "Identify Controller");
}

#[test]
fn closing_at_every_byte_of_the_bring_up_is_an_error_and_never_a_hang() {
    let total = {
        let fake = Fake::start(Script {
            budget: Box::new(|_| 1 << 30),
            ..Script::default()
        });
        connect(&fake.address(), &quick()).expect("an honest target");
        128 + 6 * 24 + 5 * (24 + 4096 + 24)
    };
    // Every byte but for the middle of the pages, whose bytes are all alike.
    let cuts = (0_u64..total).filter(|cut| *cut < 300 || cut % 61 == 0 || cut % 4148 < 60);
    let cuts: Vec<u64> = cuts.collect();
    let list = cuts.clone();
    let fake = Fake::start(Script {
        budget: Box::new(move |number| list.get(number).copied().unwrap_or(u64::MAX)),
        ..Script::default()
    });
    let mut connected = 0;
    for cut in &cuts {
        match connect(&fake.address(), &quick()) {
            Ok(_) => connected += 1, // the cut came after the last answer
            Err(error) => assert_eq!(error.kind(), Closed, "cut at {cut}: {error}"),
        }
    }
    assert!(
        connected < 10,
        "the cuts were not where they should be: {connected} came through"
    );
}
