//! Extended headers, from their negotiation to lengths of 64 bits.

use super::contexts::queries;
use super::*;
use crate::nbd::spec::{EXTENDED_CHUNK_MAGIC, EXTENDED_REQUEST_MAGIC, OPTION_REPLY_MAGIC};

const PAYLOAD: u16 = command_flag::PAYLOAD_LEN;

/// A disk of 1 TiB.
fn huge() -> Export {
    Export {
        bytes: 1 << 40,
        ..export()
    }
}

/// A connection with extended headers and `base:allocation`.
fn ready_extended(export: Export) -> (Server, Wire) {
    let mut machine = Server::new(export, 4);
    let said = [
        vec![0, 0, 0, 3],
        option_bytes(option::EXTENDED_HEADERS, &[]),
        option_bytes(option::SET_META_CONTEXT, &queries("", &["base:allocation"])),
        option_bytes(option::GO, &go("")),
    ];
    let events = feed(&mut machine, &said.concat(), &mut Wire::default()).expect("no violation");
    assert_eq!(events, [Event::Ready]);
    assert_eq!(machine.want(), Want::Header { bytes: 32 });
    (machine, Wire::default())
}

fn ask(flags: u16, kind: u16, offset: u64, length: u64) -> Vec<u8> {
    [
        &EXTENDED_REQUEST_MAGIC.to_be_bytes()[..],
        &flags.to_be_bytes(),
        &kind.to_be_bytes(),
        b"cookie!!",
        &offset.to_be_bytes(),
        &length.to_be_bytes(),
    ]
    .concat()
}

/// Head and offset of a chunk. The data of the chunk is left out.
fn chunk_of(flags: u16, kind: u16, offset: u64, length: u64, body: &[u8]) -> Vec<u8> {
    [
        &EXTENDED_CHUNK_MAGIC.to_be_bytes()[..],
        &flags.to_be_bytes(),
        &kind.to_be_bytes(),
        b"cookie!!",
        &offset.to_be_bytes(),
        &length.to_be_bytes(),
        body,
    ]
    .concat()
}

fn done(offset: u64) -> Vec<u8> {
    chunk_of(chunk::DONE, chunk::NONE, offset, 0, &[])
}

fn error_chunk(offset: u64, error: Error) -> Vec<u8> {
    let body = [&(error as u32).to_be_bytes()[..], &[0, 0]].concat();
    chunk_of(chunk::DONE, chunk::ERROR, offset, 6, &body)
}

/// The only command in the events of `bytes`, and its slot.
fn begun(machine: &mut Server, bytes: &[u8], wire: &mut Wire) -> (Slot, Command, u64, u64) {
    let events = feed(machine, bytes, wire).expect("no violation");
    let Some(&Event::Command {
        slot,
        command,
        offset,
        bytes,
    }) = events.first()
    else {
        panic!("{events:?}");
    };
    (slot, command, offset, bytes)
}

/// A request, with its data, that is answered with an error at once. A flush behind it is
/// understood.
fn check_error(export: Export, request: &[u8], offset: u64, error: Error) {
    let (mut machine, mut wire) = ready_extended(export);
    assert_eq!(feed(&mut machine, request, &mut wire), Ok(vec![]));
    assert_eq!(wire.bytes, error_chunk(offset, error), "{request:?}");
    let flush = ask(0, command::FLUSH, 0, 0);
    assert_eq!(
        begun(&mut machine, &flush, &mut wire).1,
        Command::Flush,
        "requests go on"
    );
}

fn check_end(bytes: &[u8], words: &str) {
    let (mut machine, mut wire) = ready_extended(huge());
    let violation = feed(&mut machine, bytes, &mut wire).expect_err("a violation");
    assert!(violation.sentence().contains(words), "{violation}");
    machine.terminate(&violation, &mut wire);
    assert_eq!(machine.want(), Want::Closed);
}

#[test]
fn extended_headers_are_agreed_upon_with_or_without_structured_replies_and_not_taken_back() {
    let answer = |number: u32, kind: u32, words: &str| {
        let length = u32::try_from(words.len()).expect("short");
        let numbers = [number, kind, length].map(u32::to_be_bytes).concat();
        [
            &OPTION_REPLY_MAGIC.to_be_bytes()[..],
            &numbers,
            words.as_bytes(),
        ]
        .concat()
    };
    let (extended, structured) = (option::EXTENDED_HEADERS, option::STRUCTURED_REPLY);
    let mut machine = Server::new(export(), 4);
    feed(&mut machine, &[0, 0, 0, 3], &mut Wire::default()).expect("no violation");
    let ack = reply::ACK;
    let no_data = "this option has no data";
    let no_way_back = "extended headers were agreed upon";
    for (number, data, kind, words) in [
        (extended, &[7][..], reply::ERR_INVALID, no_data),
        (structured, &[], ack, ""),
        (extended, &[], ack, ""),
        (extended, &[], ack, ""),
        (structured, &[], reply::ERR_EXT_HEADER_REQD, no_way_back),
    ] {
        let mut wire = Wire::default();
        let said = option_bytes(number, data);
        assert_eq!(feed(&mut machine, &said, &mut wire), Ok(vec![]));
        assert_eq!(wire.bytes, answer(number, kind, words));
    }
    let mut wire = Wire::default();
    feed(&mut machine, &option_bytes(option::GO, &go("")), &mut wire).expect("no violation");
    let flags = u16::from_be_bytes([wire.bytes[30], wire.bytes[31]]);
    assert_eq!(flags, export().flags(true));
    assert_eq!(flags & 1 << 12, 0, "block status takes no payload");
    assert_eq!(machine.want(), Want::Header { bytes: 32 });
}

#[test]
fn a_client_of_extended_headers_that_begins_in_the_oldest_way_is_let_go() {
    let mut machine = Server::new(export(), 4);
    let mut wire = Wire::default();
    let said = [
        vec![0, 0, 0, 3],
        option_bytes(option::EXTENDED_HEADERS, &[]),
        option_bytes(option::EXPORT_NAME, b"disk"),
    ];
    let events = feed(&mut machine, &said.concat(), &mut wire);
    assert_eq!(events.expect("no violation"), [Event::Goodbye]);
    assert_eq!(machine.want(), Want::Closed);
    assert_eq!(wire.bytes.len(), 20, "nothing behind the first answer");
}

#[test]
fn every_request_has_a_header_of_32_bytes_and_so_has_its_answer() {
    let fua = command_flag::FUA;
    let data = vec![7; 512];
    let write = [ask(PAYLOAD | fua, command::WRITE, 512, 512), data].concat();
    let zeroes = Command::WriteZeroes {
        may_trim: false,
        durable: false,
    };
    let no_hole = command_flag::NO_HOLE;
    for (bytes, expected, offset, length) in [
        (write, Command::Write { durable: true }, 512, 512),
        (ask(0, command::FLUSH, 0, 0), Command::Flush, 0, 0),
        (
            ask(fua, command::TRIM, 512, 1024),
            Command::Trim { durable: true },
            512,
            1024,
        ),
        (
            ask(no_hole, command::WRITE_ZEROES, 1024, 512),
            zeroes,
            1024,
            512,
        ),
        (ask(0, command::CACHE, 0, 4096), Command::Cache, 0, 4096),
    ] {
        let (mut machine, mut wire) = ready_extended(export());
        let (slot, command, at, bytes) = begun(&mut machine, &bytes, &mut wire);
        assert_eq!((command, at, bytes), (expected, offset, length));
        machine.succeed_empty(slot, &mut wire);
        assert_eq!(wire.bytes, done(offset));
        assert_eq!(machine.in_progress(), 0);
    }
    let (mut machine, mut wire) = ready_extended(export());
    let leave = ask(0, command::DISCONNECT, 0, 0);
    assert_eq!(
        feed(&mut machine, &leave, &mut wire),
        Ok(vec![Event::Goodbye])
    );
}

#[test]
fn the_chunks_of_a_read_say_the_requests_offset_and_their_own() {
    let (mut machine, mut wire) = ready_extended(huge());
    let at = 5 << 32;
    let read = ask(0, command::READ, at, (1 << 16) + 512);
    let events = feed(&mut machine, &read, &mut wire).expect("no violation");
    let [(first, ..), (second, behind, 512)] = commands(&events)[..] else {
        panic!("{events:?}");
    };
    machine.succeed(second, &mut wire);
    machine.succeed(first, &mut wire);
    let data = |flags, length, place: u64| {
        chunk_of(flags, chunk::OFFSET_DATA, at, length, &place.to_be_bytes())
    };
    let expected = [data(0, 520, behind), data(chunk::DONE, 65_544, at)];
    assert_eq!(wire.bytes, expected.concat());
    assert_eq!(wire.payload, [(second.0, 0, 512), (first.0, 0, 65_536)]);
}

#[test]
fn a_read_in_one_chunk_is_one_chunk_of_its_whole_length() {
    let (mut machine, mut wire) = ready_extended(huge());
    let read = ask(command_flag::DF, command::READ, 512, 32 << 20);
    let mut left = &read[..];
    for _ in 0..512 {
        let events = feed_from(&mut machine, &mut left, &mut wire).expect("no violation");
        machine.succeed(commands(&events)[0].0, &mut wire);
    }
    let head = chunk_of(
        chunk::DONE,
        chunk::OFFSET_DATA,
        512,
        (32 << 20) + 8,
        &512_u64.to_be_bytes(),
    );
    assert_eq!(wire.bytes, head);
    assert_eq!(wire.payload.len(), 512);
    assert_eq!(machine.in_progress(), 0);
}

#[test]
fn what_moves_no_data_may_be_as_long_as_the_disk() {
    let whole = 1 << 40;
    for kind in [
        command::TRIM,
        command::WRITE_ZEROES,
        command::CACHE,
        command::BLOCK_STATUS,
    ] {
        let (mut machine, mut wire) = ready_extended(huge());
        let (_, _, offset, bytes) = begun(&mut machine, &ask(0, kind, 0, whole), &mut wire);
        assert_eq!((offset, bytes), (0, whole));
        assert_eq!(machine.in_progress(), 1, "one command");
        assert_eq!(machine.piece(), None);
    }
}

#[test]
fn block_status_is_told_in_lengths_of_64_bits() {
    let (mut machine, mut wire) = ready_extended(huge());
    let (bytes, from) = (6 << 32, 1 << 32);
    let status = ask(0, command::BLOCK_STATUS, from, bytes);
    let (slot, command, ..) = begun(&mut machine, &status, &mut wire);
    assert_eq!(command, Command::BlockStatus { one: false });
    let extents = [(512, 0), (bytes - 512, 3)].map(|(bytes, flags)| Extent { bytes, flags });
    machine.tell_extents(slot, &extents, &mut wire);
    let context_and_count = [1_u32, 2].map(u32::to_be_bytes).concat();
    let descriptors = [512_u64, 0, bytes - 512, 3].map(u64::to_be_bytes).concat();
    let body = [context_and_count, descriptors].concat();
    let expected = chunk_of(chunk::DONE, chunk::BLOCK_STATUS_EXT, from, 40, &body);
    assert_eq!(wire.bytes, expected);
    assert_eq!(machine.in_progress(), 0);
    let mut wire = Wire::default();
    let (slot, ..) = begun(&mut machine, &status, &mut wire);
    machine.tell_extents(slot, &[extents[0]; 300], &mut wire);
    assert_eq!(wire.bytes.len(), 32 + 8 + 16 * 256);
}

#[test]
fn a_request_that_fails_is_answered_by_an_error_chunk() {
    let (mut machine, mut wire) = ready_extended(export());
    let (slot, ..) = begun(&mut machine, &ask(0, command::TRIM, 512, 512), &mut wire);
    machine.fail(slot, Error::Io, &mut wire);
    assert_eq!(wire.bytes, error_chunk(512, Error::Io));
}

#[test]
fn lengths_that_cannot_be_meant_are_answered_with_their_error() {
    use Error::{Invalid, NoSpace, Overflow};
    let most = u64::MAX - 511; // a multiple of the block
    for (kind, offset, length, error) in [
        (command::TRIM, 512, most, Invalid),
        (command::TRIM, most, 512, Invalid),
        (command::TRIM, 0, (1 << 40) + 512, Invalid),
        (command::TRIM, 0, u64::MAX, Invalid),
        (command::WRITE_ZEROES, 512, most, NoSpace),
        (command::WRITE_ZEROES, 0, u64::MAX, Invalid),
        (command::CACHE, 512, most, Invalid),
        (command::BLOCK_STATUS, 512, most, Invalid),
        (command::BLOCK_STATUS, 0, 0, Invalid),
        (command::READ, 512, most, Invalid),
        (command::READ, 0, 1 << 40, Overflow),
        (command::READ, 0, (32 << 20) + 512, Overflow),
        (command::FLUSH, 0, 1 << 32, Invalid),
        (command::WRITE, 0, 512, Invalid), // without data
        (command::WRITE, 0, most, Invalid),
        (77, 0, most, Invalid),
    ] {
        check_error(huge(), &ask(0, kind, offset, length), offset, error);
    }
}

#[test]
fn what_is_refused_is_answered_behind_its_data() {
    let data = |request: Vec<u8>, bytes: usize| [request, vec![0x25; bytes]].concat();
    let status = ask(PAYLOAD, command::BLOCK_STATUS, 0, 12);
    check_error(huge(), &data(status, 12), 0, Error::Invalid);
    for kind in [command::READ, command::TRIM, command::FLUSH, 77] {
        let request = data(ask(PAYLOAD, kind, 0, 512), 512);
        check_error(huge(), &request, 0, Error::Invalid);
    }
    let end = 1 << 20;
    let write = data(ask(PAYLOAD, command::WRITE, end, 32 << 20), 32 << 20);
    check_error(export(), &write, end, Error::NoSpace);
    let (mut machine, mut wire) = ready_extended(export());
    let (most, last) = write.split_at(write.len() - 4096);
    assert_eq!(feed(&mut machine, most, &mut wire), Ok(vec![]));
    assert_eq!(wire.bytes, [], "the client still sends");
    assert_eq!(feed(&mut machine, last, &mut wire), Ok(vec![]));
    assert_eq!(wire.bytes, error_chunk(end, Error::NoSpace));
    let read_only = Export {
        read_only: true,
        ..export()
    };
    let write = data(ask(PAYLOAD, command::WRITE, 0, 512), 512);
    check_error(read_only, &write, 0, Error::NotPermitted);
}

#[test]
fn a_header_of_the_other_kind_and_more_than_32_mib_of_data_end_the_connection() {
    let compact = [request(0, command::READ, 0, 512), vec![0; 4]].concat();
    check_end(&compact, "magic");
    check_violation(&ask(0, command::READ, 0, 512), "magic");
    for kind in [command::WRITE, command::BLOCK_STATUS] {
        for length in [(32 << 20) + 512, 1 << 32, u64::MAX] {
            check_end(&ask(PAYLOAD, kind, 0, length), "32 MiB");
        }
    }
}

proptest! {
    #[test]
    fn no_extended_request_leaves_the_disk(
        flags in 0_u16..64, kind in 0_u16..9, offset: u64, length: u64, near: bool,
    ) {
        let (mut machine, mut wire) = ready_extended(huge());
        let cut = |number: u64| if near { number >> 24 << 9 } else { number };
        let bytes = ask(flags, kind, cut(offset), cut(length));
        for event in feed(&mut machine, &bytes, &mut wire).unwrap_or_default() {
            if let Event::Command { offset, bytes, command, .. } = event {
                prop_assert!(offset + bytes <= 1 << 40);
                prop_assert!(command == Command::Flush || offset % 512 == 0);
            }
        }
    }
}
