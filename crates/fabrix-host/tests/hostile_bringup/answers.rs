//! Answers of a controller: refusals, and absurd properties of the controller and its namespaces.

use std::time::Duration;

use fabrix_block::Device;
use fabrix_host::ConnectErrorKind::{Protocol, Refused, Timeout, Unsupported};
use fabrix_host::{Address, Options, connect};
use fabrix_proto::nvme::fabrics::Property;
use fabrix_proto::nvme::identify::{IdentifyController, IdentifyNamespace};
use fabrix_proto::nvme::spec::{FabricsType, Status};
use zerocopy::FromBytes;

use super::common::{Command, Fake, Link, NQN, Script, Then};
use super::{COMMANDS, CONNECT, IDENTIFY_LIMITS, instead, quick, refused, taken};

/// A script that changes what Identify says.
fn identify<T: FromBytes + zerocopy::IntoBytes + zerocopy::KnownLayout>(
    cns: u8,
    change: impl Fn(&mut T) + Send + Sync + 'static,
) -> Script {
    let page = move |asked: u8, page: &mut [u8]| {
        if asked == cns {
            change(T::mut_from_bytes(page).expect("a page"));
        }
    };
    Script {
        page: Box::new(page),
        ..Script::default()
    }
}

#[test]
fn takes_an_honest_target() {
    let disk = taken(Script::default(), &quick());
    assert_eq!(disk.geometry().blocks, super::common::DISK_BLOCKS);
    assert_eq!(disk.identity().uuid, [0x5A; 16]);
    assert!(
        disk.identity().name.ends_with(&format!("{NQN}/1")),
        "{}",
        disk.identity().name
    );
    assert!(disk.compares_and_writes());
}

#[test]
fn a_refused_connect_says_why_and_what_to_do() {
    let answer = |status: Status, result: u64| {
        instead(CONNECT, move |link, command| {
            link.respond(command.cid, status, result)
        })
    };
    let host = answer(Status::CONNECT_INVALID_HOST, 0);
    refused(host, &quick(), Refused, "add its host NQN");
    let name = answer(Status::CONNECT_INVALID_PARAMETERS, 0x0001_0100);
    refused(name, &quick(), Refused, "check the subsystem NQN");
    let secret = answer(Status::AUTHENTICATION_REQUIRED, 0);
    refused(secret, &quick(), Refused, "authentication");
    refused(
        answer(Status::SUCCESS, 1 << 17 | 1),
        &quick(),
        Refused,
        "authentication",
    );
    refused(
        answer(Status::CONNECT_CONTROLLER_BUSY, 0),
        &quick(),
        Protocol,
        "busy",
    );
    refused(
        answer(Status::CONNECT_INCOMPATIBLE_FORMAT, 0),
        &quick(),
        Unsupported,
        "Connect",
    );
    refused(
        answer(Status::SUCCESS, 0xFFFF),
        &quick(),
        Protocol,
        "reserved id",
    );
}

#[test]
fn every_command_of_the_bring_up_may_fail() {
    for number in (1..COMMANDS).filter(|number| *number != IDENTIFY_LIMITS) {
        let script = instead(number, |link, command| {
            link.respond(command.cid, Status::INTERNAL_ERROR, 0)
        });
        refused(script, &quick(), Protocol, "Internal Error");
    }
}

#[test]
fn refuses_absurd_things_that_identify_says_of_the_controller() {
    let wrong = |change: fn(&mut IdentifyController), kind, word| {
        refused(identify(1, change), &quick(), kind, word);
    };
    wrong(
        |it| it.controller_id = 77.into(),
        Protocol,
        "calls itself 77",
    );
    wrong(|it| it.command_capsule_size = 0.into(), Protocol, "IOCCSZ");
    wrong(|it| it.response_capsule_size = 0.into(), Protocol, "IORCSZ");
    wrong(|it| it.in_capsule_offset = 4.into(), Unsupported, "ICDOFF");
    wrong(|it| it.sgl_support = 0.into(), Unsupported, "SGL");
    wrong(|it| it.submission_entry_sizes = 0, Unsupported, "SQES");
    wrong(|it| it.controller_type = 2, Unsupported, "discovery");
    wrong(|it| it.controller_type = 3, Unsupported, "CNTRLTYPE");
    wrong(|it| it.subsystem_nqn[25] = b'x', Protocol, "calls itself");
    wrong(|it| it.subsystem_nqn.fill(0xFF), Protocol, "name is wrong");
    wrong(|it| it.namespaces = 0.into(), Protocol, "above NN");
}

#[test]
fn lives_with_what_is_only_unusual() {
    let with = |change: fn(&mut IdentifyController)| taken(identify(1, change), &quick());
    let huge = with(|it| {
        it.max_transfer = 255;
        it.namespaces = u32::MAX.into();
        it.command_capsule_size = u32::MAX.into();
        it.max_commands = u16::MAX.into();
    });
    assert_eq!(huge.geometry().max_transfer_bytes, 1 << 20);
    let small = with(|it| {
        it.max_transfer = 1;
        it.command_capsule_size = 4.into();
        it.max_commands = 1.into();
        it.keep_alive_granularity = 0.into();
    });
    assert_eq!(small.geometry().max_transfer_bytes, 8192);
    assert!(
        !small.compares_and_writes(),
        "one command at a time is no pair"
    );
    let plain = with(|it| it.nvm_commands = 0.into());
    assert!(!plain.compares_and_writes());
}

#[test]
fn refuses_absurd_things_that_identify_says_of_the_namespace() {
    let wrong = |change: fn(&mut IdentifyNamespace), kind, word| {
        refused(identify(0, change), &quick(), kind, word);
    };
    wrong(
        |it| it.lba_formats[0].data_shift = 0,
        Unsupported,
        "2^0 bytes",
    );
    wrong(
        |it| it.lba_formats[0].data_shift = 60,
        Unsupported,
        "2^60 bytes",
    );
    wrong(
        |it| it.lba_formats[0].data_shift = 255,
        Unsupported,
        "2^255 bytes",
    );
    wrong(
        |it| it.lba_formats[0].data_shift = 16,
        Unsupported,
        "65536 bytes",
    );
    wrong(|it| it.format = 0x6F, Protocol, "no LBA format");
    wrong(
        |it| it.lba_formats[0].metadata_bytes = 8.into(),
        Unsupported,
        "metadata",
    );
    wrong(|it| it.size = 0.into(), Unsupported, "no capacity");
    wrong(|it| it.capacity = 0.into(), Unsupported, "no capacity");
    wrong(
        |it| it.capacity = u64::MAX.into(),
        Protocol,
        "make no sense",
    );
    wrong(
        |it| (it.size, it.capacity) = (u64::MAX.into(), u64::MAX.into()),
        Protocol,
        "make no sense",
    );
}

#[test]
fn refuses_a_wrong_list_of_namespaces_and_wrong_descriptors() {
    let list = |bytes: &'static [u32], kind, word| {
        let page = move |cns: u8, page: &mut [u8]| {
            if cns == 2 {
                page.fill(0);
                for (id, place) in bytes.iter().zip(page.chunks_exact_mut(4)) {
                    place.copy_from_slice(&id.to_le_bytes());
                }
            }
        };
        refused(
            Script {
                page: Box::new(page),
                ..Script::default()
            },
            &quick(),
            kind,
            word,
        );
    };
    list(&[], Unsupported, "no namespace");
    list(&[2], Protocol, "above NN");
    list(&[1, 1], Protocol, "not ascending");
    list(&[u32::MAX], Protocol, "above NN");
    let descriptors = |bytes: [u8; 4], kind, word| {
        let page = move |cns: u8, page: &mut [u8]| {
            if cns == 3 {
                page.fill(9);
                page[..4].copy_from_slice(&bytes);
            }
        };
        refused(
            Script {
                page: Box::new(page),
                ..Script::default()
            },
            &quick(),
            kind,
            word,
        );
    };
    descriptors([4, 1, 0, 0], Unsupported, "command set 9");
    let fake = Fake::honest();
    let other = Address {
        nsid: Some(7),
        ..fake.address()
    };
    let error = connect(&other, &quick())
        .err()
        .expect("there is no namespace 7");
    assert!(error.to_string().contains("no namespace 7"), "{error}");
}

#[test]
fn refuses_a_controller_that_is_broken_or_never_ready() {
    let cap = |capabilities, kind, word| {
        refused(
            Script {
                capabilities,
                ..Script::default()
            },
            &quick(),
            kind,
            word,
        );
    };
    cap(0, Protocol, "MQES");
    cap(127, Unsupported, "CSS");
    let csts = |value: u64, options: &Options, kind, word| {
        let command = move |link: &mut Link, command: &Command| {
            let get = command.entry.is_fabrics()
                && command.entry.fabrics_type() == FabricsType::PROPERTY_GET;
            if get && command.entry.cdw11.get() == Property::CSTS.0 {
                link.respond(command.cid, Status::SUCCESS, value)?;
                return Ok(Then::Done);
            }
            Ok(Then::Usual)
        };
        refused(
            Script {
                command: Box::new(command),
                ..Script::default()
            },
            options,
            kind,
            word,
        );
    };
    csts(2, &quick(), Protocol, "CSTS.CFS");
    csts(0, &quick(), Timeout, "in time");
    let patient = Options {
        bringup_timeout: Duration::from_secs(4),
        ..quick()
    };
    csts(0, &patient, Timeout, "within 1000 ms");
}
