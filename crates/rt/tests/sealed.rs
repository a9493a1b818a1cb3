//! A disk's pages that are sent with a sum over them, over both drivers: what arrives is what its sum says, whoever
//! writes the pages meanwhile, and nobody who writes them waits for a peer.

mod common;

use std::io::Read;
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use common::{Bench, pair};
use fabrix_rt::{Engine, Gather, HugePages, Op, Region};

on_both_drivers!(
    what_arrives_is_what_its_sum_says_although_others_write_it,
    nobody_waits_for_a_peer_that_does_not_read,
    short_pieces_and_what_fills_them_up_are_in_the_sum,
);

const PIECE: usize = 64 << 10;
const PIECES: usize = 4;

/// Of bytes that are all alike, and a few more: another one when only some of them change.
fn sum(bytes: &[u8], fill: &[u8]) -> u32 {
    let all = bytes.iter().chain(fill);
    all.fold(0, |sum: u32, byte| sum + u32::from(*byte)) + 7
}

/// Sends so many pieces, each with its sum behind it.
fn send(bench: &mut Bench, near: &fabrix_rt::Socket, region: &Arc<Region>, pieces: usize) {
    let socket = near.clone();
    let gather = gather(bench, region, pieces);
    bench.start(1, Op::Send { socket, gather });
}

fn gather(bench: &mut Bench, region: &Arc<Region>, pieces: usize) -> Box<Gather> {
    let local = Region::local(region);
    let mut gather = Box::new(Gather::new(100 * pieces, 3 * pieces));
    for index in 0..pieces {
        let lent = local.lend(index % PIECES * PIECE, PIECE);
        let room = (bench.buf(PIECE), 0);
        gather.push_sealed(lent, room, &[], sum);
    }
    gather
}

/// Reads pieces and their sums to the end. Result: how many they were.
fn reader(mut far: TcpStream) -> JoinHandle<usize> {
    thread::spawn(move || {
        let mut number = 0;
        let mut piece = vec![0; PIECE + 4];
        while far.read_exact(&mut piece).is_ok() {
            let (bytes, said) = piece.split_at(PIECE);
            let all_alike = bytes.iter().all(|byte| *byte == bytes[0]);
            assert!(
                sum(bytes, &[]).to_le_bytes() == *said,
                "piece {number}, all alike: {all_alike}"
            );
            number += 1;
        }
        number
    })
}

fn what_arrives_is_what_its_sum_says_although_others_write_it(engine: Engine) {
    const ROUNDS: usize = 60;
    const AT_ONCE: usize = 20; // more than are held together
    let mut bench = Bench::new(engine);
    let (near, far) = pair();
    let region = Region::new(PIECES * PIECE, HugePages::No).expect("memory");
    let all = reader(far);
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            for number in (1..=255).cycle() {
                let start = usize::from(number) % PIECES * PIECE;
                match number % 3 {
                    0 => region.write(start, &[number; PIECE]),
                    1 => region.stream(start, &[number; PIECE]),
                    _ => region.zero(start, PIECE),
                }
                if over.load(Ordering::Relaxed) {
                    return;
                }
            }
        });
        for _ in 0..ROUNDS {
            send(&mut bench, &near, &region, AT_ONCE);
            bench.ending_with_gather(1).1.clear();
        }
        over.store(true, Ordering::Relaxed);
    });
    near.shutdown_send();
    assert_eq!(all.join().expect("the sums"), ROUNDS * AT_ONCE);
}

fn nobody_waits_for_a_peer_that_does_not_read(engine: Engine) {
    let mut bench = Bench::new(engine);
    let (near, far) = pair();
    near.set_buffer_bytes(PIECE, PIECE).expect("an open socket");
    let region = Region::new(PIECES * PIECE, HugePages::No).expect("memory");
    region.write(0, &[1; PIECES * PIECE]);
    send(&mut bench, &near, &region, 100);
    bench.settle();
    assert!(
        bench.recorder.borrow().completions.is_empty(),
        "more than two socket buffers hold cannot have left: nobody reads"
    );
    let writer = Arc::clone(&region);
    thread::spawn(move || writer.write(0, &[2; PIECES * PIECE]))
        .join()
        .expect("a writer that did not wait");
    let all = reader(far);
    let (result, _) = bench.ending_with_gather(1);
    assert_eq!(usize::try_from(result), Ok(100 * (PIECE + 4)));
    near.shutdown_send();
    assert_eq!(all.join().expect("the sums"), 100);
}

fn short_pieces_and_what_fills_them_up_are_in_the_sum(engine: Engine) {
    let mut bench = Bench::new(engine);
    let (near, mut far) = pair();
    let region = Region::new(PIECE, HugePages::No).expect("memory");
    region.write(0, &[3; PIECE]);
    let local = Region::local(&region);
    let mut gather = Box::new(Gather::new(100, 8));
    let room = bench.buf(PIECE);
    gather.push_bytes(b"head");
    gather.push_sealed(local.lend(0, 10), (room.clone(), 0), &[1, 0], sum);
    gather.push_sealed(local.lend(0, PIECE - 11), (room, 10), &[5], sum);
    gather.push_bytes(b"tail");
    let socket = near.clone();
    bench.start(1, Op::Send { socket, gather });
    bench.ending_with_gather(1);
    near.shutdown_send();
    let mut all = Vec::new();
    far.read_to_end(&mut all).expect("an orderly end");
    let mut expected = b"head".to_vec();
    for (bytes, fill) in [(10, &[1, 0][..]), (PIECE - 11, &[5])] {
        let block = vec![3; bytes];
        expected.extend_from_slice(&block);
        expected.extend_from_slice(fill);
        expected.extend_from_slice(&sum(&block, fill).to_le_bytes());
    }
    expected.extend_from_slice(b"tail");
    assert!(all == expected);
}
