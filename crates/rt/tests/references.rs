//! Sends by reference over both drivers: what a peer sees is what an ordinary send would have shown it.

mod common;

use std::io::{ErrorKind, Read};
use std::net::TcpStream;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use common::{Bench, pair, pattern};
use fabrix_rt::{Buf, Engine, Gather, HugePages, Op, Referral, Region, Socket, Stage};

on_both_drivers!(
    what_goes_by_reference_arrives_in_its_place,
    the_end_of_a_stretch_is_not_held_back,
    a_socket_without_room_gets_the_rest_by_copies,
    what_was_sent_stays_as_it_was_when_the_stage_is_gone,
    long_parts_go_from_where_they_lie_and_short_ones_as_copies,
    a_renewed_buffer_may_change_before_the_peer_has_read_it,
    a_socket_without_room_gets_the_rest_of_what_lies_in_its_place,
    a_gone_peer_is_an_error_and_no_signal,
);

const PIECE: usize = 192 << 10;

/// Reads to the end; a thread of its own, as a sender with much to say waits for it.
fn reader(mut far: TcpStream) -> JoinHandle<Vec<u8>> {
    thread::spawn(move || {
        let mut all = Vec::new();
        far.read_to_end(&mut all).expect("an orderly end");
        all
    })
}

/// So many pieces with headers around them, to be sent through a stage, and all of it as bytes.
fn gather(stage: &Stage, pieces: usize) -> (Box<Gather>, Vec<u8>) {
    let mut gather = Box::new(Gather::new(7 + 24 * pieces, 2 * pieces + 1));
    let region = Region::new(pieces * PIECE, HugePages::No).expect("memory");
    let payloads = Region::local(&region);
    let mut expected = Vec::new();
    for index in 0..pieces {
        let header = pattern(24, u8::try_from(index).expect("few pieces"));
        let payload = pattern(PIECE, u8::try_from(100 + index).expect("few pieces"));
        region.write(index * PIECE, &payload);
        gather.push_bytes(&header);
        gather.push_lent(payloads.lend(index * PIECE, PIECE));
        expected.extend_from_slice(&header);
        expected.extend_from_slice(&payload);
    }
    gather.push_bytes(b"the end");
    expected.extend_from_slice(b"the end");
    gather.send_through(stage.part(5, expected.len()));
    (gather, expected)
}

fn referral(socket: &Socket) -> Referral {
    Referral::new(socket).expect("two descriptors")
}

/// A stage that so many pieces go through.
fn stage(referral: &Referral, pieces: usize) -> Stage {
    Stage::new(referral, (pieces + 1) * PIECE).expect("memory")
}

/// Buffers with headers around them, to be sent from where they lie, and all of it as bytes.
fn in_place(bench: &mut Bench, referral: &Referral, lengths: &[usize]) -> (Box<Gather>, Vec<u8>) {
    let mut gather = Box::new(Gather::new(7 + 24 * lengths.len(), 2 * lengths.len() + 1));
    let mut expected = Vec::new();
    for (seed, bytes) in (0_u8..).zip(lengths) {
        let (header, payload) = (pattern(24, seed), pattern(*bytes, 100 + seed));
        let mut buf = bench.buf(*bytes);
        buf.bytes_mut().copy_from_slice(&payload);
        gather.push_bytes(&header);
        gather.push_buf(buf, 0, *bytes);
        expected.extend_from_slice(&header);
        expected.extend_from_slice(&payload);
    }
    gather.push_bytes(b"the end");
    expected.extend_from_slice(b"the end");
    gather.send_in_place(referral);
    (gather, expected)
}

fn what_goes_by_reference_arrives_in_its_place(engine: Engine) {
    let mut bench = Bench::new(engine);
    let (near, far) = pair();
    let referral = referral(&near);
    let stage = stage(&referral, 4);
    let all = reader(far);
    let (gather, expected) = gather(&stage, 4);
    let socket = near.clone();
    bench.start(1, Op::Send { socket, gather });
    let (result, _) = bench.ending_with_gather(1);
    assert_eq!(usize::try_from(result), Ok(expected.len()));
    assert!(
        referral.is_of_use(),
        "nothing was in the way of sending by reference"
    );
    near.shutdown_send();
    assert!(all.join().expect("the reader") == expected);
}

/// A kernel that is left to wait for more sends after 200 ms what fills no segment. On a busy machine one may be late
/// for other reasons, but not all.
fn the_end_of_a_stretch_is_not_held_back(engine: Engine) {
    let mut bench = Bench::new(engine);
    let (near, mut far) = pair();
    let stage = stage(&referral(&near), 1);
    let soon = Some(Duration::from_millis(100));
    far.set_read_timeout(soon).expect("an open socket");
    let was_soon = (0..20).any(|_| {
        let (gather, expected) = gather(&stage, 1);
        let socket = near.clone();
        bench.start(1, Op::Send { socket, gather });
        bench.ending(1);
        let mut arrived = Vec::new();
        let soon = take(&mut far, expected.len(), &mut arrived);
        while arrived.len() < expected.len() {
            take(&mut far, expected.len(), &mut arrived);
        }
        assert!(arrived == expected);
        soon
    });
    assert!(was_soon, "the end of each of 20 came late");
}

/// Reads until there are so many bytes; false: none came for a while.
fn take(far: &mut TcpStream, bytes: usize, arrived: &mut Vec<u8>) -> bool {
    let mut piece = [0; 65_536];
    while arrived.len() < bytes {
        match far.read(&mut piece) {
            Ok(0) => panic!("the end after {} bytes", arrived.len()),
            Ok(more) => arrived.extend_from_slice(&piece[..more]),
            Err(error) if error.kind() == ErrorKind::WouldBlock => return false,
            Err(error) => panic!("{error}"),
        }
    }
    true
}

fn a_socket_without_room_gets_the_rest_by_copies(engine: Engine) {
    let mut bench = Bench::new(engine);
    let (near, far) = pair();
    near.set_buffer_bytes(PIECE, PIECE).expect("an open socket");
    let referral = referral(&near);
    let stage = stage(&referral, 8);
    let (gather, expected) = gather(&stage, 8);
    arrives_late(&mut bench, &near, far, (gather, &expected));
    assert!(
        referral.is_of_use(),
        "what had no room was not begun by reference: that would have waited"
    );
}

/// Sends more than two socket buffers hold, and is heard only when as much has left as can.
fn arrives_late(
    bench: &mut Bench,
    near: &Socket,
    far: TcpStream,
    (gather, expected): (Box<Gather>, &[u8]),
) {
    let socket = near.clone();
    bench.start(1, Op::Send { socket, gather });
    bench.settle();
    assert!(
        bench.recorder.borrow().completions.is_empty(),
        "all of it cannot have left: nobody reads"
    );
    let all = reader(far);
    let (result, _) = bench.ending_with_gather(1);
    assert_eq!(usize::try_from(result), Ok(expected.len()));
    near.shutdown_send();
    assert!(all.join().expect("the reader") == expected);
}

/// The kernel still holds the pages: other memory at the same place is other pages.
fn what_was_sent_stays_as_it_was_when_the_stage_is_gone(engine: Engine) {
    let mut bench = Bench::new(engine);
    let (near, far) = pair();
    let stage = stage(&referral(&near), 1);
    let (gather, expected) = gather(&stage, 1);
    let socket = near.clone();
    bench.start(1, Op::Send { socket, gather });
    let (_, mut gather) = bench.ending_with_gather(1);
    gather.clear();
    drop(stage);
    let other = Region::new(2 * PIECE, HugePages::Try).expect("memory");
    other.write(0, &[0xee; 2 * PIECE]);
    near.shutdown_send();
    assert!(reader(far).join().expect("the reader") == expected);
}

fn long_parts_go_from_where_they_lie_and_short_ones_as_copies(engine: Engine) {
    const SHORT: usize = 4096;
    let lengths = [PIECE, SHORT, 100, PIECE];
    let mut bench = Bench::new(engine);
    let (near, far) = pair();
    let referral = referral(&near);
    let (gather, expected) = in_place(&mut bench, &referral, &lengths);
    let socket = near.clone();
    bench.start(1, Op::Send { socket, gather });
    let (_, mut gather) = bench.ending_with_gather(1);
    gather.clear();
    // The same memory again: what was copied stays as it was, what is referred to shows what is in it now.
    let mut again: Vec<Buf> = lengths.map(|bytes| bench.buf(bytes)).into();
    again.iter_mut().for_each(|buf| buf.bytes_mut().fill(0xee));
    near.shutdown_send();
    let came = reader(far).join().expect("the reader");
    let changed = came.iter().zip(&expected).filter(|(a, b)| a != b);
    assert!(changed.clone().count() > PIECE, "long parts were copied");
    assert!(changed.clone().all(|(now, _)| *now == 0xee));
    let second = 24 + PIECE..3 * 24 + PIECE + SHORT + 100;
    assert!(
        came[second.clone()] == expected[second],
        "short ones were not"
    );
    assert!(referral.is_of_use());
}

fn a_renewed_buffer_may_change_before_the_peer_has_read_it(engine: Engine) {
    let mut bench = Bench::new(engine);
    let (near, far) = pair();
    let referral = referral(&near);
    let mut buf: Buf = bench.buf(PIECE);
    let payload = pattern(PIECE, 1);
    buf.bytes_mut().copy_from_slice(&payload);
    let mut gather = Box::new(Gather::new(0, 1));
    gather.push_buf(buf.clone(), 0, PIECE);
    gather.send_in_place(&referral);
    let socket = near.clone();
    bench.start(1, Op::Send { socket, gather });
    let (_, mut gather) = bench.ending_with_gather(1);
    buf.renew();
    assert!(buf.bytes() == payload, "the same bytes in other memory");
    gather.clear();
    buf.bytes_mut().fill(0xee);
    assert!(buf.bytes().iter().all(|byte| *byte == 0xee));
    near.shutdown_send();
    assert!(reader(far).join().expect("the reader") == payload);
}

fn a_socket_without_room_gets_the_rest_of_what_lies_in_its_place(engine: Engine) {
    let mut bench = Bench::new(engine);
    let (near, far) = pair();
    near.set_buffer_bytes(PIECE, PIECE).expect("an open socket");
    let referral = referral(&near);
    let (gather, expected) = in_place(
        &mut bench,
        &referral,
        &[PIECE, 4096, PIECE, PIECE, PIECE, PIECE, PIECE, PIECE],
    );
    arrives_late(&mut bench, &near, far, (gather, &expected));
    assert!(referral.is_of_use());
}

fn a_gone_peer_is_an_error_and_no_signal(engine: Engine) {
    let mut bench = Bench::new(engine);
    let (near, far) = pair();
    let stage = stage(&referral(&near), 2);
    fabrix_rt::Socket::from(far)
        .linger_zero()
        .expect("an open socket");
    let (gather, _) = gather(&stage, 2);
    bench.start(
        1,
        Op::Send {
            socket: near,
            gather,
        },
    );
    let (result, _) = bench.ending_with_gather(1);
    assert!(
        result == -libc::EPIPE || result == -libc::ECONNRESET,
        "{result}"
    );
}
