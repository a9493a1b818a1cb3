//! Sends by reference over both drivers: what a peer sees is what an ordinary send would have shown it.

mod common;

use std::io::Read;
use std::net::TcpStream;
use std::thread::{self, JoinHandle};

use common::{Bench, pair, pattern};
use fabrix_rt::{Engine, Gather, Op, Stage};

on_both_drivers!(
    what_goes_by_reference_arrives_in_its_place,
    a_copy_of_a_whole_send_goes_by_reference,
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

/// So many pieces by reference with copied headers around them, and all of it as bytes.
fn gather(stage: &Stage, pieces: usize) -> (Box<Gather>, Vec<u8>) {
    let mut gather = Box::new(Gather::new(24 * (pieces + 1), 3 * pieces + 1));
    let mut expected = Vec::new();
    for index in 0..pieces {
        let header = pattern(24, u8::try_from(index).expect("few pieces"));
        let payload = pattern(PIECE, u8::try_from(100 + index).expect("few pieces"));
        let referenced = stage.put(index * PIECE, &payload);
        gather.push_bytes(&header);
        gather.push_referenced(referenced.slice(0, 4097));
        gather.push_referenced(referenced.slice(4097, PIECE - 4097));
        expected.extend_from_slice(&header);
        expected.extend_from_slice(&payload);
    }
    gather.push_bytes(b"the end");
    expected.extend_from_slice(b"the end");
    (gather, expected)
}

fn what_goes_by_reference_arrives_in_its_place(engine: Engine) {
    let mut bench = Bench::new(engine);
    let (near, far) = pair();
    let stage = Stage::new(&near, 4 * PIECE).expect("memory and two descriptors");
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

fn a_copy_of_a_whole_send_goes_by_reference(engine: Engine) {
    let mut bench = Bench::new(engine);
    let (near, far) = pair();
    let stage = Stage::new(&near, 2 * PIECE).expect("memory and two descriptors");
    let all = reader(far);
    let mut gather = Box::new(Gather::new(2 * PIECE, 4));
    let expected = [pattern(24, 1), pattern(PIECE, 2), pattern(7, 3)].concat();
    gather.push_bytes(&expected);
    let copy = stage.put_all(5, &mut gather);
    gather.clear();
    assert_eq!(copy.len(), expected.len());
    gather.push_referenced(copy.slice(0, PIECE));
    gather.push_referenced(copy.slice(PIECE, copy.len() - PIECE));
    let socket = near.clone();
    bench.start(1, Op::Send { socket, gather });
    let (result, _) = bench.ending_with_gather(1);
    assert_eq!(usize::try_from(result), Ok(expected.len()));
    assert!(stage.is_of_use(), "nothing was in the way");
    near.shutdown_send();
    assert!(all.join().expect("the reader") == expected);
}

fn a_socket_without_room_gets_the_rest_by_copies(engine: Engine) {
    let mut bench = Bench::new(engine);
    let (near, far) = pair();
    near.set_buffer_bytes(PIECE, PIECE).expect("an open socket");
    let stage = Stage::new(&near, 8 * PIECE).expect("memory and two descriptors");
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
    let stage = Stage::new(&near, PIECE).expect("memory and two descriptors");
    let (gather, expected) = gather(&stage, 1);
    let socket = near.clone();
    bench.start(1, Op::Send { socket, gather });
    let (_, mut gather) = bench.ending_with_gather(1);
    gather.clear();
    drop(stage);
    let other = Stage::new(&near, PIECE).expect("memory and two descriptors");
    drop(other.put(0, &[0xee; PIECE]));
    near.shutdown_send();
    assert!(reader(far).join().expect("the reader") == expected);
}

fn a_gone_peer_is_an_error_and_no_signal(engine: Engine) {
    let mut bench = Bench::new(engine);
    let (near, far) = pair();
    let stage = Stage::new(&near, 2 * PIECE).expect("memory and two descriptors");
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
