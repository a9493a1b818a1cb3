//! Sockets over both drivers: what a peer sees, and what an owner is told.

mod common;

use std::cell::RefCell;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::rc::Rc;
use std::thread;
use std::time::{Duration, Instant};

use common::{Bench, Recorder, pair, pattern};
use fabrix_rt::{
    Engine, Gather, HugePages, Loan, Op, Region, ShardConfig, TaskId, Token, Wait, net,
};

const MIB: usize = 1 << 20;
const LONG_BYTES: usize = 4 * MIB;

on_both_drivers!(
    receives_what_has_arrived_then_the_end,
    a_reset_is_an_error,
    a_large_gather_arrives_whole_and_in_order,
    several_sends_keep_their_order_when_awaited,
    a_long_send_leaves_turns_to_who_sends_little,
    sending_to_a_gone_peer_fails_without_a_signal,
    an_empty_gather_is_sent_at_once,
    connects_and_accepts,
    connecting_to_nobody_fails,
    a_shut_down_listener_ends_its_accept,
    removing_a_task_frees_what_it_waited_for,
    endings_of_a_removed_task_reach_nobody,
    a_shard_dropped_in_flight_neither_hangs_nor_harms,
    more_operations_than_the_ring_has_entries,
    a_socket_leaves_its_shard,
);

fn receives_what_has_arrived_then_the_end(engine: Engine) {
    let mut bench = Bench::new(engine);
    let (near, mut far) = pair();
    let buf = bench.buf(100);
    bench.start(
        1,
        Op::Receive {
            socket: near.clone(),
            buf,
            start: 10,
            bytes: 90,
        },
    );
    bench.settle();
    assert!(bench.recorder.borrow().completions.is_empty());
    far.write_all(b"hello").expect("room");
    let (result, buf) = bench.ending_with_buf(1);
    assert_eq!((result, &buf.bytes()[10..15]), (5, &b"hello"[..]));
    bench.start(
        2,
        Op::Receive {
            socket: near,
            buf,
            start: 0,
            bytes: 100,
        },
    );
    drop(far);
    assert_eq!(bench.ending_with_buf(2).0, 0);
    assert_eq!(bench.shard.operations_in_flight(), 0);
}

fn a_reset_is_an_error(engine: Engine) {
    let mut bench = Bench::new(engine);
    let (near, far) = pair();
    let buf = bench.buf(100);
    bench.start(
        1,
        Op::Receive {
            socket: near,
            buf,
            start: 0,
            bytes: 100,
        },
    );
    bench.settle();
    let far = fabrix_rt::Socket::from(far);
    far.linger_zero().expect("an open socket");
    drop(far);
    assert_eq!(bench.ending_with_buf(1).0, -libc::ECONNRESET);
}

/// Headers, buffers and lent pages, far more than two socket buffers hold, to a peer that reads
/// slowly.
fn a_large_gather_arrives_whole_and_in_order(engine: Engine) {
    let mut bench = Bench::new(engine);
    let (near, mut far) = pair();
    near.set_buffer_bytes(8192, 8192).expect("an open socket");
    let region = Region::new(4 << 20, HugePages::Try).expect("memory");
    region.write(0, &pattern(4 << 20, 3));
    let local = Region::local(&region);
    let mut gather = Box::new(Gather::new(24 * 600, 1000));
    let mut expected = Vec::new();
    for index in 0..200_usize {
        let header = pattern(24, u8::try_from(index).expect("200"));
        let lent = local.lend(index * 4096 + index, 4096);
        let mut buf = bench.buf(9000);
        buf.bytes_mut().copy_from_slice(&pattern(9000, 77));
        gather.push_bytes(&header[..10]);
        gather.push_bytes(&header[10..]);
        gather.push_lent(lent.clone());
        gather.push_buf(buf.clone(), 500, 8000);
        expected.extend_from_slice(&header);
        let start = expected.len();
        expected.resize(start + 4096, 0);
        lent.copy_to(&mut expected[start..]);
        expected.extend_from_slice(&buf.bytes()[500..8500]);
    }
    assert_eq!(
        (gather.parts(), gather.total_bytes()),
        (600, expected.len())
    );
    let mut copied = Vec::new();
    gather.copy_to(&mut copied);
    assert!(copied == expected);
    let reader = thread::spawn(move || {
        let mut all = Vec::new();
        let mut piece = [0; 5000];
        loop {
            match far.read(&mut piece).expect("an orderly end") {
                0 => return all,
                bytes => all.extend_from_slice(&piece[..bytes]),
            }
        }
    });
    bench.start(
        1,
        Op::Send {
            socket: near.clone(),
            gather,
        },
    );
    let (result, mut gather) = bench.ending_with_gather(1);
    assert_eq!(usize::try_from(result), Ok(expected.len()));
    assert!(
        bench.shard.buffer_bytes_in_use() > 0,
        "the gather holds its buffers until it is cleared"
    );
    gather.clear();
    assert_eq!(bench.shard.buffer_bytes_in_use(), 0);
    near.shutdown();
    assert!(reader.join().expect("the reader") == expected);
}

fn several_sends_keep_their_order_when_awaited(engine: Engine) {
    let mut bench = Bench::new(engine);
    let (near, mut far) = pair();
    let mut gather = Box::new(Gather::new(100, 4));
    for round in 0..50_u8 {
        gather.clear();
        gather.push_bytes(&[round; 3]);
        bench.start(
            1,
            Op::Send {
                socket: near.clone(),
                gather,
            },
        );
        let (result, back) = bench.ending_with_gather(1);
        assert_eq!(result, 3);
        gather = back;
    }
    let mut all = [0; 150];
    far.read_exact(&mut all).expect("all was sent");
    assert!(
        all.chunks(3)
            .enumerate()
            .all(|(round, three)| three.iter().all(|b| usize::from(*b) == round))
    );
}

/// Beside a task that sends little, a long send takes a turn for each 128 KiB, whatever room its
/// socket has.
fn a_long_send_leaves_turns_to_who_sends_little(engine: Engine) {
    let mut bench = Bench::new(engine);
    let (near, mut far) = pair();
    let (other, _other_far) = pair();
    let little = bench.shard.add(Rc::new(RefCell::new(Recorder::default())));
    let reader = thread::spawn(move || {
        let mut all = vec![0; LONG_BYTES];
        far.read_exact(&mut all).map(|()| all)
    });
    let mut long = Box::new(Gather::new(8, LONG_BYTES / MIB));
    for piece in 0..LONG_BYTES / MIB {
        let mut buf = bench.buf(MIB);
        let seed = u8::try_from(piece).expect("few pieces");
        buf.bytes_mut().copy_from_slice(&pattern(MIB, seed));
        long.push_buf(buf, 0, MIB);
    }
    let mut short = Box::new(Gather::new(8, 1));
    short.push_bytes(b"a");
    let token = Token {
        task: little,
        slot: 1,
    };
    let (socket, gather) = (other, short);
    bench.shard.start(token, Op::Send { socket, gather });
    let (socket, gather) = (near, long);
    bench.start(1, Op::Send { socket, gather });
    let (mut turns, begun) = (0, Instant::now());
    while bench.recorder.borrow().completions.is_empty() {
        assert!(begun.elapsed() < Duration::from_secs(10), "nothing came");
        bench.shard.turn(Wait::AtMost(Duration::from_secs(1)));
        turns += 1;
    }
    let portions = LONG_BYTES / (128 << 10);
    // epoll says that a socket is ready in the turn in which its send began.
    assert!(turns >= portions - 1, "{turns} turns, {portions} portions");
    let arrived = reader.join().expect("the reader").expect("all arrives");
    for (piece, bytes) in arrived.chunks(MIB).enumerate() {
        assert!(bytes == pattern(MIB, u8::try_from(piece).expect("few pieces")));
    }
}

fn sending_to_a_gone_peer_fails_without_a_signal(engine: Engine) {
    let mut bench = Bench::new(engine);
    let (near, far) = pair();
    near.shutdown_send();
    let mut gather = Box::new(Gather::new(100, 4));
    gather.push_bytes(b"too late");
    bench.start(
        1,
        Op::Send {
            socket: near,
            gather,
        },
    );
    assert_eq!(bench.ending_with_gather(1).0, -libc::EPIPE);
    drop(far);
}

fn an_empty_gather_is_sent_at_once(engine: Engine) {
    let mut bench = Bench::new(engine);
    let (near, _far) = pair();
    bench.start(
        1,
        Op::Send {
            socket: near,
            gather: Box::new(Gather::new(0, 0)),
        },
    );
    assert_eq!(bench.ending_with_gather(1).0, 0);
}

fn connects_and_accepts(engine: Engine) {
    let mut bench = Bench::new(engine);
    for address in ["127.0.0.1:0", "[::1]:0"] {
        let address: SocketAddr = address.parse().expect("an address");
        let Ok(listener) = net::listen(address) else {
            eprintln!("skipped: no {address} here");
            continue;
        };
        let address = listener.local_addr().expect("bound");
        bench.start(
            1,
            Op::Accept {
                listener: listener.clone(),
            },
        );
        bench.settle();
        bench.start(
            2,
            Op::Connect {
                socket: net::stream(&address).expect("a socket"),
                address,
            },
        );
        let (accepted, connected) = (bench.ending(1), bench.ending(2));
        assert_eq!((accepted.result, connected.result), (0, 0));
        let (Loan::Socket(near), Loan::Socket(far)) = (accepted.loan, connected.loan) else {
            panic!("an accept and a connect give sockets");
        };
        assert_eq!(
            near.peer_addr().expect("connected"),
            far.local_addr().expect("connected")
        );
        assert!(near.stream().nodelay().expect("open") && far.stream().nodelay().expect("open"));
        let (mut gather, buf) = (Box::new(Gather::new(10, 1)), bench.buf(10));
        gather.push_bytes(b"ping");
        bench.start(
            3,
            Op::Send {
                socket: far,
                gather,
            },
        );
        bench.start(
            4,
            Op::Receive {
                socket: near,
                buf,
                start: 0,
                bytes: 10,
            },
        );
        let (result, buf) = bench.ending_with_buf(4);
        assert_eq!((result, &buf.bytes()[..4]), (4, &b"ping"[..]));
        assert_eq!(bench.ending(3).result, 4);
    }
}

fn connecting_to_nobody_fails(engine: Engine) {
    let mut bench = Bench::new(engine);
    let listener = net::listen("127.0.0.1:0".parse().expect("an address")).expect("loopback");
    let address = listener.local_addr().expect("bound");
    drop(listener);
    bench.start(
        1,
        Op::Connect {
            socket: net::stream(&address).expect("a socket"),
            address,
        },
    );
    let completion = bench.ending(1);
    assert_eq!(completion.result, -libc::ECONNREFUSED);
    assert!(matches!(completion.loan, Loan::Socket(_)));
}

fn a_shut_down_listener_ends_its_accept(engine: Engine) {
    let mut bench = Bench::new(engine);
    let listener = net::listen("127.0.0.1:0".parse().expect("an address")).expect("loopback");
    bench.start(
        1,
        Op::Accept {
            listener: listener.clone(),
        },
    );
    bench.settle();
    listener.shutdown();
    assert_eq!(bench.ending(1).result, -libc::EINVAL);
}

fn removing_a_task_frees_what_it_waited_for(engine: Engine) {
    let mut bench = Bench::new(engine);
    let (near, mut far) = pair();
    let listener = net::listen("127.0.0.1:0".parse().expect("an address")).expect("loopback");
    let buf = bench.buf(100_000);
    bench.start(
        1,
        Op::Receive {
            socket: near.clone(),
            buf,
            start: 0,
            bytes: 100_000,
        },
    );
    bench.start(
        2,
        Op::Accept {
            listener: listener.clone(),
        },
    );
    bench.settle();
    let buf = bench.buf(5000); // asked for, but not begun when the task goes
    bench.start(
        3,
        Op::Receive {
            socket: near.clone(),
            buf,
            start: 0,
            bytes: 5000,
        },
    );
    assert!(bench.shard.buffer_bytes_in_use() >= 105_000);
    bench.shard.remove(bench.task);
    let mut turns = 0;
    while bench.shard.buffer_bytes_in_use() > 0 || bench.shard.operations_in_flight() > 0 {
        bench.shard.turn(Wait::AtMost(Duration::from_secs(1)));
        turns += 1;
        assert!(
            turns < 100,
            "{:?} with {} bytes",
            bench.shard,
            bench.shard.buffer_bytes_in_use()
        );
    }
    assert!(bench.recorder.borrow().completions.is_empty());
    drop((near, listener));
    assert_eq!(
        far.read(&mut [0; 1]).expect("an orderly end"),
        0,
        "nobody holds the socket any more"
    );
}

fn endings_of_a_removed_task_reach_nobody(engine: Engine) {
    let mut bench = Bench::new(engine);
    let old = bench.token(1);
    bench.shard.remove(bench.task);
    let again = bench.shard.add(bench.recorder.clone());
    assert_ne!(again, old.task);
    let buf = bench.buf(10);
    bench.shard.complete(
        old,
        fabrix_rt::Completion {
            result: 1,
            loan: Loan::Buf(buf),
        },
    );
    bench.shard.complete(
        Token::NOBODY,
        fabrix_rt::Completion {
            result: 1,
            loan: Loan::None,
        },
    );
    bench.shard.set_timer(old, bench.shard.now());
    bench.shard.flush_later(old.task);
    bench.shard.remove(TaskId::NOBODY);
    bench.settle();
    let recorder = bench.recorder.borrow();
    assert!(
        recorder.completions.is_empty() && recorder.expired.is_empty() && recorder.flushes == 0
    );
    assert_eq!(bench.shard.buffer_bytes_in_use(), 0);
}

fn a_shard_dropped_in_flight_neither_hangs_nor_harms(engine: Engine) {
    let mut bench = Bench::new(engine);
    let (near, mut far) = pair();
    let listener = net::listen("127.0.0.1:0".parse().expect("an address")).expect("loopback");
    let buf = bench.buf(4096);
    bench.start(
        1,
        Op::Receive {
            socket: near.clone(),
            buf,
            start: 0,
            bytes: 4096,
        },
    );
    bench.start(2, Op::Accept { listener });
    let mut gather = Box::new(Gather::new(0, 1024));
    let large = bench.buf(4 << 20);
    for _ in 0..20 {
        gather.push_buf(large.clone(), 0, 4 << 20);
    }
    bench.start(
        3,
        Op::Send {
            socket: near.clone(),
            gather,
        },
    ); // more than the peer, who does not read, has room for
    bench.settle();
    assert_eq!(bench.shard.operations_in_flight(), 3);
    drop(bench);
    drop(near);
    let mut all = Vec::new();
    let _ = far.read_to_end(&mut all); // ends, one way or the other
    drop(large);
}

fn more_operations_than_the_ring_has_entries(engine: Engine) {
    let mut bench = Bench::with(ShardConfig {
        engine,
        entries: 4,
        ..Default::default()
    });
    let file = tempfile::tempfile().expect("a scratch file");
    file.set_len(4096 * 500).expect("room");
    let file = fabrix_rt::File::from(file);
    for slot in 0..500_u32 {
        let mut buf = bench.buf(4096);
        buf.bytes_mut()
            .fill(u8::try_from(slot % 251).expect("below 251"));
        let offset = u64::from(slot) * 4096;
        bench.start(
            slot,
            Op::Write {
                file: file.clone(),
                buf,
                start: 0,
                bytes: 4096,
                offset,
                durable: false,
            },
        );
    }
    bench.turn_until(|recorder| recorder.completions.len() == 500);
    assert!(
        bench
            .recorder
            .borrow()
            .completions
            .iter()
            .all(|(_, completion)| completion.result == 4096)
    );
    bench.recorder.borrow_mut().completions.clear();
    let (near, far) = pair();
    let mut streams: Vec<TcpStream> = vec![far];
    for slot in 0..100 {
        let (more, far) = pair();
        let buf = bench.buf(10);
        bench.start(
            slot,
            Op::Receive {
                socket: more,
                buf,
                start: 0,
                bytes: 10,
            },
        );
        streams.push(far);
    }
    bench.settle();
    for far in &mut streams {
        far.write_all(b"x").expect("room");
    }
    bench.turn_until(|recorder| recorder.completions.len() == 100);
    drop(near);
}

fn a_socket_leaves_its_shard(engine: Engine) {
    let mut bench = Bench::new(engine);
    let (near, mut far) = pair();
    let stream = near.detach().expect("the only holder");
    let other = thread::spawn(move || stream).join().expect("a thread");
    let back = fabrix_rt::Socket::from(other);
    let buf = bench.buf(10);
    bench.start(
        1,
        Op::Receive {
            socket: back.clone(),
            buf,
            start: 0,
            bytes: 10,
        },
    );
    bench.settle();
    let second = back
        .detach()
        .expect("a second descriptor, as an operation holds the first");
    far.write_all(b"!").expect("room");
    assert_eq!(bench.ending_with_buf(1).0, 1);
    drop(second);
}
