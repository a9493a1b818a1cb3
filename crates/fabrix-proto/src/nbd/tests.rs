//! Sends a client's bytes to the server's machine: replies, refusals and ends of connections.

use super::super::spec::{
    Error, REQUEST_MAGIC, SIMPLE_REPLY_MAGIC, chunk, command, command_flag, flag, info, option,
    reply,
};
use super::*;
use alloc::vec;
use proptest::prelude::*;

#[path = "tests/contexts.rs"]
mod contexts;
#[path = "tests/extended.rs"]
mod extended;
#[path = "tests/long.rs"]
mod long;

#[derive(Default)]
struct Wire {
    bytes: Vec<u8>,
    payload: Vec<(u16, u32, u32)>,
}

impl Sink for Wire {
    fn bytes(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }
    fn payload(&mut self, slot: Slot, offset: u32, bytes: u32, _pass: Pass) {
        self.payload.push((slot.0, offset, bytes));
    }
}

fn export() -> Export {
    Export {
        name: "disk".into(),
        description: "a disk".into(),
        bytes: 1 << 20,
        block_bytes: 512,
        preferred_bytes: 4096,
        most_bytes: 1 << 16,
        read_only: false,
        trims: true,
        zeroes_fast: true,
        multi_conn: true,
    }
}

/// The same disk with room for requests of 32 MiB.
fn large() -> Export {
    Export {
        bytes: 1 << 30,
        ..export()
    }
}

/// Feeds a stream of bytes, and returns the events.
fn feed(machine: &mut Server, mut bytes: &[u8], wire: &mut Wire) -> Result<Vec<Event>, Violation> {
    feed_from(machine, &mut bytes, wire)
}

/// Feeds a stream of bytes, and returns the events. Bytes that the machine does not take stay.
fn feed_from(
    machine: &mut Server,
    bytes: &mut &[u8],
    wire: &mut Wire,
) -> Result<Vec<Event>, Violation> {
    let mut events = Vec::new();
    loop {
        if machine.is_full() {
            return Ok(events);
        }
        if let Some(piece) = machine.piece() {
            events.push(piece);
            continue;
        }
        let event = match machine.want() {
            Want::Header { bytes: wanted } if bytes.len() >= wanted => {
                let (now, later) = bytes.split_at(wanted);
                *bytes = later;
                machine.header(now, wire)?.event
            }
            Want::Payload { bytes: wanted, .. } if bytes.len() >= wanted as usize => {
                *bytes = &bytes[wanted as usize..];
                machine.payload(true, wire)?
            }
            _ => return Ok(events),
        };
        events.extend(event);
    }
}

fn option_bytes(number: u32, data: &[u8]) -> Vec<u8> {
    let length = u32::try_from(data.len()).expect("short");
    let head = [
        &OPTION_MAGIC.to_be_bytes()[..],
        &number.to_be_bytes(),
        &length.to_be_bytes(),
    ];
    [&head.concat(), data].concat()
}

fn go(name: &str) -> Vec<u8> {
    let length = u32::try_from(name.len()).expect("short");
    [
        &length.to_be_bytes()[..],
        name.as_bytes(),
        &0_u16.to_be_bytes(),
    ]
    .concat()
}

fn ready(export: Export, structured: bool) -> (Server, Wire) {
    let mut machine = Server::new(export, 4);
    let mut said = vec![0, 0, 0, 3];
    if structured {
        said.extend(option_bytes(option::STRUCTURED_REPLY, &[]));
    }
    said.extend(option_bytes(option::GO, &go("")));
    let events = feed(&mut machine, &said, &mut Wire::default()).expect("no violation");
    assert_eq!(events, [Event::Ready]);
    (machine, Wire::default())
}

fn request(flags: u16, kind: u16, offset: u64, length: u32) -> Vec<u8> {
    [
        &REQUEST_MAGIC.to_be_bytes()[..],
        &flags.to_be_bytes(),
        &kind.to_be_bytes(),
        b"cookie!!",
        &offset.to_be_bytes(),
        &length.to_be_bytes(),
    ]
    .concat()
}

fn simple_reply(error: u32) -> Vec<u8> {
    [
        &SIMPLE_REPLY_MAGIC.to_be_bytes()[..],
        &error.to_be_bytes(),
        b"cookie!!",
    ]
    .concat()
}

/// Commands of events, with slot, offset and length.
fn commands(events: &[Event]) -> Vec<(Slot, u64, u64)> {
    let command = |event: &Event| match *event {
        Event::Command {
            slot,
            offset,
            bytes,
            ..
        } => Some((slot, offset, bytes)),
        _ => None,
    };
    events.iter().filter_map(command).collect()
}

/// A chunk of a structured reply, without the data after an offset.
fn chunk_bytes(flags: u16, kind: u16, length: u32, body: &[u8]) -> Vec<u8> {
    let magic = super::super::spec::CHUNK_MAGIC.to_be_bytes();
    let kind = [flags.to_be_bytes(), kind.to_be_bytes()].concat();
    [&magic[..], &kind, b"cookie!!", &length.to_be_bytes(), body].concat()
}

/// A refused request, and the error of its reply.
fn check_refused(export: Export, request: &[u8], error: Error) {
    let (mut machine, mut wire) = ready(export, false);
    let events = feed(&mut machine, request, &mut wire).expect("an answer, no violation");
    assert_eq!(events, []);
    assert_eq!(wire.bytes, simple_reply(error as u32));
    assert_eq!(machine.in_progress(), 0);
    assert!(
        matches!(machine.want(), Want::Header { bytes: 28 }),
        "requests go on"
    );
}

fn check_violation(bytes: &[u8], words: &str) {
    let (mut machine, mut wire) = ready(export(), false);
    let violation = feed(&mut machine, bytes, &mut wire).expect_err("a violation");
    assert!(violation.sentence().contains(words), "{violation}");
    machine.terminate(&violation, &mut wire);
    assert_eq!(machine.want(), Want::Closed);
}

#[test]
fn greets_as_a_fixed_newstyle_server() {
    let mut wire = Wire::default();
    Server::new(export(), 1).greet(&mut wire);
    assert_eq!(wire.bytes, b"NBDMAGICIHAVEOPT\0\x03");
}

#[test]
fn tells_size_flags_and_block_sizes_and_begins() {
    let mut machine = Server::new(export(), 4);
    let mut wire = Wire::default();
    let said = [&[0, 0, 0, 3][..], &option_bytes(option::GO, &go("disk"))].concat();
    let events = feed(&mut machine, &said, &mut wire).expect("no violation");
    assert_eq!(events, [Event::Ready]);
    let head = |kind: u32, bytes: u32| {
        let magic = super::super::spec::OPTION_REPLY_MAGIC.to_be_bytes();
        let numbers = [option::GO, kind, bytes].map(u32::to_be_bytes).concat();
        [&magic[..], &numbers].concat()
    };
    let flags = flag::HAS_FLAGS
        | flag::SEND_FLUSH
        | flag::SEND_FUA
        | flag::SEND_TRIM
        | flag::SEND_WRITE_ZEROES
        | flag::CAN_MULTI_CONN
        | flag::SEND_CACHE
        | flag::SEND_FAST_ZERO;
    let expected = [
        head(reply::INFO, 12),
        info::EXPORT.to_be_bytes().to_vec(),
        (1_u64 << 20).to_be_bytes().to_vec(),
        flags.to_be_bytes().to_vec(),
        head(reply::INFO, 14),
        info::BLOCK_SIZE.to_be_bytes().to_vec(),
        [512_u32, 4096, 32 << 20].map(u32::to_be_bytes).concat(),
        head(reply::ACK, 0),
    ];
    assert_eq!(wire.bytes, expected.concat());
}

#[test]
fn another_name_is_unknown_and_negotiation_goes_on() {
    let mut machine = Server::new(export(), 4);
    let mut wire = Wire::default();
    let said = [&[0, 0, 0, 3][..], &option_bytes(option::GO, &go("other"))].concat();
    assert_eq!(
        feed(&mut machine, &said, &mut wire).expect("no violation"),
        []
    );
    assert_eq!(wire.bytes[12..16], reply::ERR_UNKNOWN.to_be_bytes());
    assert!(machine.negotiates());
}

#[test]
fn an_option_that_lies_about_its_lengths_is_answered() {
    for data in [&[0xff; 6][..], &[0, 0, 0, 0], &[0, 0, 0, 0, 0, 9, 0, 0]] {
        let mut machine = Server::new(export(), 4);
        let mut wire = Wire::default();
        let said = [&[0, 0, 0, 3][..], &option_bytes(option::GO, data)].concat();
        assert_eq!(
            feed(&mut machine, &said, &mut wire).expect("no violation"),
            []
        );
        assert_eq!(wire.bytes[12..16], reply::ERR_INVALID.to_be_bytes());
    }
}

#[test]
fn an_option_of_a_megabyte_is_skipped_and_answered() {
    let mut machine = Server::new(export(), 4);
    let mut wire = Wire::default();
    let said = [&[0, 0, 0, 3][..], &option_bytes(99, &vec![7; 1 << 20])].concat();
    assert_eq!(
        feed(&mut machine, &said, &mut wire).expect("no violation"),
        []
    );
    assert_eq!(wire.bytes[12..16], reply::ERR_TOO_BIG.to_be_bytes());
    assert!(matches!(machine.want(), Want::Header { bytes: 16 }));
}

#[test]
fn a_read_is_answered_simply_or_in_a_chunk_as_agreed() {
    for structured in [false, true] {
        let (mut machine, mut wire) = ready(export(), structured);
        let events = feed(
            &mut machine,
            &request(0, command::READ, 512, 1024),
            &mut wire,
        );
        let [
            Event::Command {
                slot,
                command: Command::Read,
                offset: 512,
                bytes: 1024,
            },
        ] = events.expect("no violation")[..]
        else {
            panic!("one read");
        };
        machine.succeed(slot, &mut wire);
        assert_eq!(wire.payload, [(slot.0, 0, 1024)]);
        if structured {
            assert_eq!(wire.bytes[4..8], [0, 1, 0, 1], "done, data at an offset");
            assert_eq!(wire.bytes[16..20], 1032_u32.to_be_bytes());
            assert_eq!(wire.bytes[20..], 512_u64.to_be_bytes());
        } else {
            assert_eq!(wire.bytes, simple_reply(0));
        }
        assert_eq!(machine.in_progress(), 0);
    }
}

#[test]
fn a_write_is_a_command_then_its_data() {
    let (mut machine, mut wire) = ready(export(), true);
    let bytes = [request(1, command::WRITE, 0, 512), vec![1; 512]].concat();
    let events = feed(&mut machine, &bytes, &mut wire).expect("no violation");
    let [
        Event::Command {
            slot,
            command: Command::Write { durable: true },
            ..
        },
        Event::Data { slot: data },
    ] = events[..]
    else {
        panic!("{events:?}");
    };
    assert_eq!(slot, data);
    machine.fail(slot, Error::Io, &mut wire);
    assert_eq!(wire.bytes, simple_reply(5));
}

#[test]
fn what_cannot_be_done_is_answered_and_its_data_skipped() {
    let write = |offset, length: u32| {
        let data = vec![0; length as usize];
        [request(0, command::WRITE, offset, length), data].concat()
    };
    let read = |offset, length| request(0, command::READ, offset, length);
    check_refused(export(), &write(1 << 20, 512), Error::NoSpace);
    check_refused(export(), &write(100, 512), Error::Invalid);
    check_refused(export(), &write(0, 2 << 20), Error::NoSpace);
    check_refused(export(), &read((1 << 20) - 512, 1024), Error::Invalid);
    check_refused(export(), &read(u64::MAX - 511, 512), Error::Invalid);
    check_refused(large(), &read(0, (32 << 20) + 512), Error::Invalid);
    check_refused(
        export(),
        &request(0x8000, command::READ, 0, 512),
        Error::Invalid,
    );
    check_refused(export(), &request(0, 77, 0, 512), Error::Invalid);
    check_refused(
        export(),
        &request(0, command::BLOCK_STATUS, 0, 512),
        Error::Invalid,
    );
    check_refused(
        export(),
        &request(1 << 4, command::CACHE, 0, 512),
        Error::Invalid,
    );
    check_refused(
        export(),
        &request(0, command::FLUSH, 0, 512),
        Error::Invalid,
    );
    let read_only = Export {
        read_only: true,
        ..export()
    };
    check_refused(read_only.clone(), &write(0, 512), Error::NotPermitted);
    check_refused(
        read_only,
        &request(0, command::TRIM, 0, 512),
        Error::NotPermitted,
    );
    let keeps = Export {
        trims: false,
        ..export()
    };
    check_refused(keeps, &request(0, command::TRIM, 0, 512), Error::Invalid);
}

#[test]
fn what_makes_the_stream_unreadable_ends_the_connection() {
    check_violation(&[7; 28], "magic");
    check_violation(&request(0, command::WRITE, 0, (32 << 20) + 512), "32 MiB");
}

#[test]
fn flags_that_no_client_has_end_the_connection() {
    let mut machine = Server::new(export(), 4);
    let violation = feed(&mut machine, &[0, 0, 0, 4], &mut Wire::default()).expect_err("unknown");
    assert!(violation.sentence().contains("flags"));
}

#[test]
fn takes_no_more_than_its_slots() {
    let (mut machine, mut wire) = ready(export(), false);
    let bytes = request(0, command::READ, 0, 512).repeat(9);
    let events = feed(&mut machine, &bytes, &mut wire).expect("no violation");
    assert_eq!(events.len(), 4);
    assert!(machine.is_full());
}

#[test]
fn a_client_that_leaves_is_let_go() {
    let (mut machine, mut wire) = ready(export(), false);
    let events = feed(
        &mut machine,
        &request(0, command::DISCONNECT, 0, 0),
        &mut wire,
    );
    assert_eq!(events.expect("no violation"), [Event::Goodbye]);
    assert_eq!(machine.want(), Want::Closed);
}

#[test]
fn the_oldest_way_to_begin_still_works() {
    let mut machine = Server::new(export(), 4);
    let mut wire = Wire::default();
    let said = [
        &[0, 0, 0, 1][..],
        &option_bytes(option::EXPORT_NAME, b"disk"),
    ]
    .concat();
    let events = feed(&mut machine, &said, &mut wire).expect("no violation");
    assert_eq!(events, [Event::Ready]);
    assert_eq!(wire.bytes.len(), 10 + 124);
}

#[test]
fn a_refused_write_is_answered_behind_its_data() {
    let (mut machine, mut wire) = ready(export(), false);
    let data = vec![0; 8192];
    let bytes = [request(0, command::WRITE, 1 << 20, 8192), data].concat();
    let (most, last) = bytes.split_at(bytes.len() - 4096);
    assert_eq!(feed(&mut machine, most, &mut wire), Ok(vec![]));
    assert_eq!(wire.bytes, [], "the client still sends");
    assert_eq!(feed(&mut machine, last, &mut wire), Ok(vec![]));
    assert_eq!(wire.bytes, simple_reply(Error::NoSpace as u32));
}

#[test]
fn zeroes_that_are_to_be_fast_are_refused_where_they_are_not() {
    let fast = command_flag::FAST_ZERO;
    let slow = Export {
        zeroes_fast: false,
        ..export()
    };
    let zeroes = |flags| request(flags, command::WRITE_ZEROES, 0, 512);
    check_refused(slow.clone(), &zeroes(fast), Error::NotSupported);
    let keeps_space = fast | command_flag::NO_HOLE;
    check_refused(export(), &zeroes(keeps_space), Error::NotSupported);
    for (disk, flags) in [
        (export(), fast),
        (slow, 0),
        (export(), command_flag::NO_HOLE),
    ] {
        let (mut machine, mut wire) = ready(disk, true);
        let events = feed(&mut machine, &zeroes(flags), &mut wire).expect("no violation");
        assert_eq!(commands(&events).len(), 1);
    }
}

#[test]
fn a_hint_to_cache_is_a_command_on_a_read_only_disk_too() {
    let disk = Export {
        read_only: true,
        ..export()
    };
    let (mut machine, mut wire) = ready(disk, false);
    let cache = request(0, command::CACHE, 0, 1 << 20);
    let events = feed(&mut machine, &cache, &mut wire).expect("no violation");
    assert!(matches!(
        events[..],
        [Event::Command {
            command: Command::Cache,
            ..
        }]
    ));
    check_refused(
        export(),
        &request(0, command::CACHE, 1 << 20, 512),
        Error::Invalid,
    );
}

proptest! {
    /// Every input leads to replies or to the end of the connection.
    #[test]
    fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..600), begun: bool) {
        let (mut machine, mut wire) = ready(export(), true);
        if !begun {
            machine = Server::new(export(), 4);
        }
        let _ends_or_not = feed(&mut machine, &bytes, &mut wire);
    }

    #[test]
    fn no_request_leaves_the_disk(flags in 0_u16..32, kind in 0_u16..9, offset: u64, length: u32) {
        let (mut machine, mut wire) = ready(export(), true);
        let events = feed(&mut machine, &request(flags, kind, offset, length), &mut wire);
        for event in events.unwrap_or_default() {
            if let Event::Command { offset, bytes, command, .. } = event {
                prop_assert!(offset + bytes <= 1 << 20);
                prop_assert!(command == Command::Flush || offset % 512 == 0);
            }
        }
    }
}
