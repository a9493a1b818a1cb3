//! Accepting when the process may open no more files: the owner is told, and accepting works again
//! afterwards.
//!
//! Alone in its file, because the limit is the whole process's.

mod common;

use std::net::TcpStream;

use common::Bench;
use fabrix_rt::{Engine, Loan, Op, net, topology};

#[test]
fn an_accept_without_descriptors_fails_and_the_next_one_works() {
    for engine in [Engine::IoUring, Engine::Epoll] {
        if common::has(engine) {
            check(engine);
        }
    }
}

fn check(engine: Engine) {
    let (before, _) = topology::open_files().expect("Linux says");
    let mut bench = Bench::new(engine);
    let listener = net::listen("127.0.0.1:0".parse().expect("an address")).expect("loopback");
    let peer = TcpStream::connect(listener.local_addr().expect("bound")).expect("loopback");
    let next = std::fs::File::open("/dev/null").expect("Linux has one");
    let lowest_free = u64::try_from(std::os::fd::AsRawFd::as_raw_fd(&next)).expect("open");
    drop(next);
    topology::set_open_files(lowest_free).expect("lowering is allowed");
    bench.start(
        1,
        Op::Accept {
            listener: listener.clone(),
        },
    );
    assert_eq!(bench.ending(1).result, -libc::EMFILE);
    topology::set_open_files(before).expect("back to what it was");
    bench.start(2, Op::Accept { listener });
    let completion = bench.ending(2);
    assert_eq!(completion.result, 0);
    let Loan::Socket(socket) = completion.loan else {
        panic!("an accept gives a socket")
    };
    assert_eq!(socket.peer_addr().ok(), peer.local_addr().ok());
}
