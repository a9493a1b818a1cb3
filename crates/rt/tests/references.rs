//! Sends by reference over both drivers: what a peer sees is what an ordinary send would have shown it.

mod common;

use std::io::{ErrorKind, Read};
use std::net::TcpStream;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use common::{Bench, pair, pattern};
use fabrix_rt::{Engine, Gather, HugePages, Op, Region, Socket, Stage};

on_both_drivers!(
    what_goes_by_reference_arrives_in_its_place,
    the_end_of_a_stretch_is_not_held_back,
    a_socket_without_room_gets_the_rest_by_copies,
    what_was_sent_stays_as_it_was_when_the_stage_is_gone,
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

/// A stage that so many pieces go through.
fn stage(socket: &Socket, pieces: usize) -> Stage {
    Stage::new(socket, (pieces + 1) * PIECE).expect("memory and two descriptors")
}

fn what_goes_by_reference_arrives_in_its_place(engine: Engine) {
    let mut bench = Bench::new(engine);
    let (near, far) = pair();
    let stage = stage(&near, 4);
    let all = reader(far);
    let (gather, expected) = gather(&stage, 4);
    let socket = near.clone();
    bench.start(1, Op::Send { socket, gather });
    let (result, _) = bench.ending_with_gather(1);
    assert_eq!(usize::try_from(result), Ok(expected.len()));
    assert!(
        stage.is_of_use(),
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
    let stage = stage(&near, 1);
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
    let stage = stage(&near, 8);
    let (gather, expected) = gather(&stage, 8);
    let socket = near.clone();
    bench.start(1, Op::Send { socket, gather });
    bench.settle();
    assert!(
        bench.recorder.borrow().completions.is_empty(),
        "more than two socket buffers hold cannot have left: nobody reads"
    );
    assert!(
        stage.is_of_use(),
        "what had no room was not begun by reference: that would have waited"
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
    let stage = stage(&near, 1);
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

fn a_gone_peer_is_an_error_and_no_signal(engine: Engine) {
    let mut bench = Bench::new(engine);
    let (near, far) = pair();
    let stage = stage(&near, 2);
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
