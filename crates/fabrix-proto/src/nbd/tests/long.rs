//! Requests longer than the disk's longest transfer (64 KiB here), and the number of requests in
//! progress.

use super::*;

#[test]
fn a_long_write_is_taken_in_pieces_and_answered_once() {
    let (mut machine, mut wire) = ready(large(), true);
    let length = 5 << 15; // two pieces of 64 KiB and a half
    let bytes = [request(0, command::WRITE, 512, length), vec![1; 5 << 15]].concat();
    let events = feed(&mut machine, &bytes, &mut wire).expect("no violation");
    assert_eq!(events[0], Event::Long);
    let pieces = commands(&events);
    let places: Vec<_> = pieces.iter().map(|(_, at, bytes)| (*at, *bytes)).collect();
    let whole = 1 << 16;
    let expected = [
        (512, whole),
        (512 + 65_536, whole),
        (512 + 131_072, 1 << 15),
    ];
    assert_eq!(places, expected);
    for (slot, _, _) in &pieces[1..] {
        machine.succeed_empty(*slot, &mut wire);
        assert_eq!(wire.bytes, [], "another piece is not on the disk");
    }
    machine.succeed_empty(pieces[0].0, &mut wire);
    assert_eq!(wire.bytes, simple_reply(0));
    assert_eq!(machine.in_progress(), 0);
}

#[test]
fn a_long_write_fails_with_the_first_error_when_all_its_pieces_have_ended() {
    let (mut machine, mut wire) = ready(large(), false);
    let bytes = [request(0, command::WRITE, 0, 3 << 16), vec![1; 3 << 16]].concat();
    let events = feed(&mut machine, &bytes, &mut wire).expect("no violation");
    let pieces = commands(&events);
    machine.fail(pieces[1].0, Error::NoSpace, &mut wire);
    machine.fail(pieces[0].0, Error::Io, &mut wire);
    assert_eq!(wire.bytes, []);
    machine.succeed_empty(pieces[2].0, &mut wire);
    assert_eq!(wire.bytes, simple_reply(Error::NoSpace as u32));
}

#[test]
fn a_write_of_32_mib_passes_through_four_slots_and_others_follow_it() {
    let (mut machine, mut wire) = ready(large(), false);
    let write = request(0, command::WRITE, 0, 32 << 20);
    let flush = request(0, command::FLUSH, 0, 0);
    let bytes = [write, vec![1; 32 << 20], flush].concat();
    let (mut left, mut pieces) = (&bytes[..], 0);
    while !left.is_empty() {
        let events = feed_from(&mut machine, &mut left, &mut wire).expect("no violation");
        assert!(!events.is_empty(), "it goes on");
        for (slot, _, _) in commands(&events) {
            pieces += 1;
            machine.succeed_empty(slot, &mut wire);
        }
    }
    assert_eq!(pieces, 512 + 1);
    assert_eq!(wire.bytes, simple_reply(0).repeat(2));
}

#[test]
fn a_connection_holds_a_bounded_number_of_bytes() {
    let disk = Export {
        most_bytes: 1 << 20,
        ..large()
    };
    let mut machine = Server::begun(disk, 128);
    let bytes = request(0, command::READ, 0, 1 << 20).repeat(20);
    let events = feed(&mut machine, &bytes, &mut Wire::default()).expect("no violation");
    assert_eq!(commands(&events).len(), 8);
    let mut machine = Server::begun(large(), 128);
    let bytes = request(0, command::FLUSH, 0, 0).repeat(200);
    let events = feed(&mut machine, &bytes, &mut Wire::default()).expect("no violation");
    assert_eq!(commands(&events).len(), 128, "no data, no bytes");
}

#[test]
fn a_long_read_in_chunks_is_answered_piece_by_piece_in_any_order() {
    let (mut machine, mut wire) = ready(large(), true);
    let bytes = request(0, command::READ, 0, (1 << 16) + 512);
    let events = feed(&mut machine, &bytes, &mut wire).expect("no violation");
    let [(first, 0, 65_536), (second, 65_536, 512)] = commands(&events)[..] else {
        panic!("{events:?}");
    };
    machine.succeed(second, &mut wire);
    machine.succeed(first, &mut wire);
    let expected = [
        chunk_bytes(0, chunk::OFFSET_DATA, 520, &65_536_u64.to_be_bytes()),
        chunk_bytes(1, chunk::OFFSET_DATA, 65_544, &[0; 8]),
    ];
    assert_eq!(wire.bytes, expected.concat());
    assert_eq!(wire.payload, [(second.0, 0, 512), (first.0, 0, 65_536)]);
}

#[test]
fn a_long_read_in_chunks_that_fails_ends_with_one_error() {
    let (mut machine, mut wire) = ready(large(), true);
    let bytes = request(0, command::READ, 0, 3 << 16);
    let events = feed(&mut machine, &bytes, &mut wire).expect("no violation");
    let pieces = commands(&events);
    machine.fail(pieces[1].0, Error::Io, &mut wire);
    machine.succeed(pieces[2].0, &mut wire);
    machine.succeed(pieces[0].0, &mut wire);
    let error = [&5_u32.to_be_bytes()[..], &[0, 0]].concat();
    assert_eq!(wire.bytes, chunk_bytes(1, chunk::ERROR, 6, &error));
    assert_eq!(wire.payload, []);
    assert_eq!(machine.in_progress(), 0);
}

/// A read that is answered by one run of data waits for the requests in progress. Later requests
/// wait for the read.
fn check_read_in_one_run(structured: bool, flags: u16, head: &[u8]) {
    let (mut machine, mut wire) = ready(large(), structured);
    let bytes = [
        request(0, command::FLUSH, 0, 0),
        request(flags, command::READ, 512, (1 << 16) + 512),
        request(0, command::FLUSH, 0, 0),
    ];
    let bytes = bytes.concat();
    let mut left = &bytes[..];
    let mut next = |machine: &mut Server, wire: &mut Wire| {
        let events = feed_from(machine, &mut left, wire).expect("no violation");
        let [(slot, offset, bytes)] = commands(&events)[..] else {
            panic!("{events:?}");
        };
        (slot, offset, bytes)
    };
    let (before, ..) = next(&mut machine, &mut wire);
    assert!(machine.is_full());
    machine.succeed_empty(before, &mut wire);
    let mut expected = simple_reply(0);
    for (at, bytes) in [(512, 1 << 16), (512 + (1 << 16), 512)] {
        let (slot, offset, length) = next(&mut machine, &mut wire);
        assert_eq!((offset, length), (at, bytes));
        assert!(machine.is_full());
        machine.succeed(slot, &mut wire);
    }
    expected.extend(head);
    assert_eq!(wire.bytes, expected);
    assert_eq!(
        wire.payload.iter().map(|part| part.2).sum::<u32>(),
        (1 << 16) + 512
    );
    let (behind, ..) = next(&mut machine, &mut wire);
    machine.succeed_empty(behind, &mut wire);
    expected.extend(simple_reply(0));
    assert_eq!(wire.bytes, expected);
}

#[test]
fn a_long_read_that_is_answered_by_one_run_of_data_has_the_connection_to_itself() {
    check_read_in_one_run(false, 0, &simple_reply(0));
    let chunk = chunk_bytes(
        1,
        chunk::OFFSET_DATA,
        (1 << 16) + 520,
        &512_u64.to_be_bytes(),
    );
    check_read_in_one_run(true, command_flag::DF, &chunk);
}

#[test]
fn a_long_read_in_one_run_fails_before_its_data_with_an_error_and_in_it_with_the_connection() {
    let bytes = [
        request(0, command::READ, 0, 3 << 16),
        request(0, command::FLUSH, 0, 0),
    ];
    for data_before in [false, true] {
        let (mut machine, mut wire) = ready(large(), false);
        let bytes = bytes.concat();
        let mut left = &bytes[..];
        let events = feed_from(&mut machine, &mut left, &mut wire).expect("no violation");
        let mut slot = commands(&events)[0].0;
        if data_before {
            machine.succeed(slot, &mut wire);
            let events = feed_from(&mut machine, &mut left, &mut wire).expect("no violation");
            slot = commands(&events)[0].0;
        }
        machine.fail(slot, Error::Io, &mut wire);
        if data_before {
            assert_eq!(machine.want(), Want::Closed);
            assert_eq!(machine.piece(), None);
            assert_eq!(wire.bytes, simple_reply(0));
        } else {
            assert_eq!(wire.bytes, simple_reply(5));
            let events = feed_from(&mut machine, &mut left, &mut wire).expect("no violation");
            assert_eq!(commands(&events).len(), 1, "the flush");
        }
    }
}
