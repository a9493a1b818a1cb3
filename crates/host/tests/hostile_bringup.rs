//! A target that misbehaves while it is asked what it has: each fault costs the connection and gives an error of the
//! right kind that names it; nothing panics, hangs or grows.

mod common;

use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use common::{Command, Fake, Greeting, Link, NQN, Script, Then, controller, namespace, options};
use fabrix_block::Device;
use fabrix_host::ConnectErrorKind::{
    self, Closed, Protocol, Refused, Timeout, Unreachable, Unsupported, Usage,
};
use fabrix_host::{Address, Options, connect, discover};
use fabrix_proto::nvme::fabrics::Property;
use fabrix_proto::nvme::identify::{IdentifyController, IdentifyNamespace};
use fabrix_proto::nvme::spec::{FabricsType, Status};
use fabrix_proto::nvme::tcp::pdu::{FLAG_LAST, FLAG_SUCCESS, InitializeResponse};
use fabrix_rt::Engine;
use zerocopy::FromBytes;

/// Bring-up takes milliseconds; a target that is silent is given so long.
const SHORT: Duration = Duration::from_millis(300);

fn quick() -> Options {
    Options {
        bringup_timeout: SHORT,
        ..options(Engine::Epoll).0
    }
}

/// Connecting fails in this way, and soon.
fn refused(script: Script, options: &Options, kind: ConnectErrorKind, word: &str) {
    let began = Instant::now();
    let fake = Fake::start(script);
    let error = connect(&fake.address(), options).err().expect(word);
    let sentence = error.to_string();
    assert!(sentence.contains(word), "`{word}` is not in: {sentence}");
    assert!(
        sentence.starts_with("nvme+tcp://127.0.0.1:"),
        "it names the target: {sentence}"
    );
    assert_eq!(error.kind(), kind, "{sentence}");
    assert!(
        began.elapsed() < Duration::from_secs(5),
        "{word} took {:?}",
        began.elapsed()
    );
}

fn taken(script: Script, options: &Options) -> fabrix_host::RemoteDisk {
    let fake = Fake::start(script);
    connect(&fake.address(), options).unwrap_or_else(|error| panic!("{error}"))
}

/// A script that only changes ICResp.
fn icresp(change: impl Fn(&mut InitializeResponse) + Send + Sync + 'static) -> Script {
    Script {
        icresp: Box::new(change),
        ..Script::default()
    }
}

/// A script that answers the `number`th command of every connection by itself.
fn instead(
    number: usize,
    act: impl Fn(&mut Link, &Command) -> std::io::Result<()> + Send + Sync + 'static,
) -> Script {
    let command = move |link: &mut Link, command: &Command| {
        if command.number != number {
            return Ok(Then::Usual);
        }
        act(link, command)?;
        Ok(Then::Done)
    };
    Script {
        command: Box::new(command),
        ..Script::default()
    }
}

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

// The commands of a bring-up, in order, on the admin queue.
const CONNECT: usize = 0;
const READ_CAP: usize = 1;
const IDENTIFY_CONTROLLER: usize = 5;
const COMMANDS: usize = 10;

#[test]
fn takes_an_honest_target() {
    let disk = taken(Script::default(), &quick());
    assert_eq!(disk.geometry().blocks, common::DISK_BLOCKS);
    assert_eq!(disk.identity().uuid, [0x5A; 16]);
    assert!(
        disk.identity().name.ends_with(&format!("{NQN}/1")),
        "{}",
        disk.identity().name
    );
    assert!(disk.compares_and_writes());
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
            std::thread::sleep(Duration::from_millis(20)); // the point is to be slow
        }
        Ok(())
    });
    refused(script, &quick(), Timeout, "Identify Controller");
    let script = Script {
        icresp: Box::new(|_| std::thread::sleep(SHORT * 3)),
        ..Script::default()
    };
    refused(script, &quick(), Timeout, "ICReq");
}

#[test]
fn closing_at_every_byte_of_the_bring_up_is_an_error_and_never_a_hang() {
    let total = {
        let fake = Fake::start(Script {
            budget: Box::new(|_| 1 << 30),
            ..Script::default()
        });
        connect(&fake.address(), &quick()).expect("an honest target");
        128 + 6 * 24 + 4 * (24 + 4096 + 24)
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
    for number in 1..COMMANDS {
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

#[test]
fn refuses_options_that_make_no_sense() {
    let fake = Fake::honest();
    let wrong = |options: Options, word: &str| {
        let error = connect(&fake.address(), &options).err().expect(word);
        assert!(
            error.kind() == Usage && error.to_string().contains(word),
            "{error}"
        );
    };
    wrong(
        Options {
            nr_io_queues: 0,
            ..quick()
        },
        "nr_io_queues",
    );
    wrong(
        Options {
            queue_size: 1,
            ..quick()
        },
        "queue_size",
    );
    let name = Address {
        subsystem: Some("n".repeat(300)),
        ..fake.address()
    };
    let error = connect(&name, &quick()).err().expect("not an NQN");
    assert!(
        error.kind() == Usage && error.to_string().contains("not an NQN"),
        "{error}"
    );
}

#[test]
fn says_what_is_wrong_with_the_network() {
    let free = TcpListener::bind("127.0.0.1:0")
        .expect("a port")
        .local_addr()
        .expect("bound");
    let address = |host: &str, port| Address {
        host: host.to_owned(),
        port,
        subsystem: Some(NQN.to_owned()),
        nsid: None,
    };
    let check = |address: &Address, kind, word: &str| {
        let error = connect(address, &quick()).err().expect(word);
        assert!(error.to_string().contains(word), "{error}");
        assert_eq!(error.kind(), kind, "{error}");
    };
    check(
        &address("127.0.0.1", free.port()),
        Unreachable,
        "nothing listens there",
    );
    check(
        &address("no such host", 4420),
        Unreachable,
        "cannot find the host",
    );
    let (full, _waiting) = full_listener();
    let port = full.local_addr().expect("bound").port();
    check(&address("127.0.0.1", port), Timeout, "no connection within");
}

/// A listener that answers no SYN any more, because nobody accepts.
fn full_listener() -> (TcpListener, Vec<TcpStream>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("bound");
    let mut waiting = Vec::new();
    while let Ok(stream) = TcpStream::connect_timeout(&address, Duration::from_millis(100)) {
        waiting.push(stream);
        assert!(waiting.len() < 10_000, "this system's backlog has no end");
    }
    (listener, waiting)
}

#[test]
fn a_name_with_several_addresses_is_tried_until_one_answers() {
    let fake = Fake::honest(); // on 127.0.0.1 only, while localhost may be ::1 first
    let address = Address {
        host: "localhost".to_owned(),
        ..fake.address()
    };
    connect(&address, &quick()).expect("one of localhost's addresses is ours");
}

// Discovery.

/// A log of so many records, each with the subsystem's name and a number of its own from `number`.
fn log(records: u64, port: u16, number: impl Fn(u64) -> u64 + Send + Sync + 'static) -> Script {
    let generations = AtomicUsize::new(0);
    let log = move |offset: u64, page: &mut [u8]| {
        for (index, record) in page.chunks_mut(1024).enumerate() {
            match offset / 1024 + index as u64 {
                0 => {
                    let generation = number(generations.fetch_add(1, Ordering::Relaxed) as u64);
                    record[..8].copy_from_slice(&generation.to_le_bytes());
                    record[8..16].copy_from_slice(&records.to_le_bytes());
                }
                at => put_record(record, at, port),
            }
        }
    };
    Script {
        log: Box::new(log),
        discovery: true,
        ..Script::default()
    }
}

fn put_record(record: &mut [u8], number: u64, port: u16) {
    record[..4].copy_from_slice(&[3, 1, 2, 0]);
    let text = port.to_string();
    record[32..32 + text.len()].copy_from_slice(text.as_bytes());
    let name = if number == 1 {
        NQN.to_owned()
    } else {
        format!("{NQN}-{number}")
    };
    record[256..256 + name.len()].copy_from_slice(name.as_bytes());
    record[512..521].copy_from_slice(b"127.0.0.1");
}

fn anonymous(fake: &Fake) -> Address {
    Address {
        subsystem: None,
        ..fake.address()
    }
}

#[test]
fn reads_a_log_of_several_records_and_finds_the_only_subsystem() {
    let fake = Fake::start(log(9, 4420, |_| 1));
    let found = discover(&anonymous(&fake), &quick()).expect("a log");
    assert_eq!(found.records.len(), 9);
    let error = connect(&anonymous(&fake), &quick())
        .err()
        .expect("nine subsystems");
    assert!(
        error.kind() == Usage && error.to_string().contains(NQN),
        "{error}"
    );

    let disk = Fake::honest();
    let service = Fake::start(log(1, disk.socket_address.port(), |_| 1));
    let found = connect(&anonymous(&service), &quick()).expect("the only subsystem");
    assert_eq!(found.geometry().blocks, common::DISK_BLOCKS);
}

#[test]
fn a_log_without_records_says_what_to_do() {
    let fake = Fake::start(log(0, 0, |_| 1));
    let error = connect(&anonymous(&fake), &quick())
        .err()
        .expect("no subsystem");
    assert!(
        error.kind() == Refused && error.to_string().contains("to be allowed"),
        "{error}"
    );
}

#[test]
fn a_log_that_never_ends_or_always_changes_is_given_up() {
    let check = |script: Script, word: &str| {
        let fake = Fake::start(script);
        let error = discover(&anonymous(&fake), &quick()).expect_err(word);
        assert!(
            error.kind() == Protocol && error.to_string().contains(word),
            "{error}"
        );
    };
    check(log(u64::MAX, 0, |_| 1), "no more than");
    check(log(4097, 0, |_| 1), "no more than");
    check(log(2, 0, |count| count), "changes faster");
}

#[test]
fn records_that_cannot_be_read_are_counted_and_left_out() {
    let garbage = |_: u64, page: &mut [u8]| {
        page.fill(0xFF);
        page[..8].fill(1);
        page[8..16].copy_from_slice(&3_u64.to_le_bytes());
        page[16..1024].fill(0);
    };
    let script = Script {
        log: Box::new(garbage),
        discovery: true,
        ..Script::default()
    };
    let fake = Fake::start(script);
    match discover(&anonymous(&fake), &quick()) {
        Ok(log) => assert!(log.records.is_empty() && log.unreadable == 3, "{log:?}"),
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn a_disk_is_not_a_discovery_service() {
    let fake = Fake::honest();
    let error = discover(&fake.address(), &quick()).expect_err("it has no log");
    assert_eq!(error.kind(), Unsupported, "{error}");
    assert_eq!(controller(1, true).controller_type, 2);
    assert_eq!(namespace().size.get(), common::DISK_BLOCKS);
}
