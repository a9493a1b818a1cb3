//! A process without free file descriptors: the port pauses, connected hosts are served, and
//! accepting continues by itself once there are descriptors again.
//!
//! This test has its own file, because the limit applies to the whole process.

mod common;

use std::fs::File;
use std::os::fd::AsRawFd;
use std::thread;
use std::time::Instant;

use common::host::Host;
use common::{PATIENCE, Stage, has, pattern};
use fabrix_rt::{Engine, topology};
use fabrix_sim::Place;
use fabrix_target::Notice;

#[test]
fn running_out_of_descriptors_pauses_accepting_and_nothing_else() {
    for engine in [Engine::IoUring, Engine::Epoll] {
        if has(engine) {
            check(engine);
        }
    }
}

/// The kernel reserves a descriptor number while it looks for a connection to accept. For that
/// moment the test cannot get one.
fn dial_when_there_is_a_descriptor(stage: &Stage) -> Host {
    let began = Instant::now();
    loop {
        match Place::current().connect(stage.address) {
            Ok(stream) => return Host::over(stream),
            Err(error) if error.raw_os_error() == Some(EMFILE) && began.elapsed() < PATIENCE => {
                thread::yield_now();
            }
            Err(error) => panic!("the target listens: {error}"),
        }
    }
}

/// EMFILE, the errno for no free descriptor. The same number on every Linux.
const EMFILE: i32 = 24;

fn check(engine: Engine) {
    let (before, _) = topology::open_files().expect("Linux says");
    let stage = Stage::new(engine);
    let (admin, mut io) = stage.admin_and_io();
    io.write(1, 0, &pattern(4096, 1));
    // Room for both ends of one connection and the host's end of another. The target's end of that
    // one finds no descriptor. The first connection is needed because an accept that io_uring has
    // begun keeps the limit of that time.
    let next = File::open("/dev/null").expect("Linux has one");
    let lowest_free = u64::try_from(next.as_raw_fd()).expect("open");
    drop(next);
    topology::set_open_files(lowest_free + 3).expect("lowering is allowed");
    let last = stage.dial();
    stage.until("it is accepted", |stage| stage.target.connections() == 3);
    let mut waiting = dial_when_there_is_a_descriptor(&stage);
    stage.notice(|notice| matches!(notice, Notice::AcceptPaused { .. }));
    for round in 0..20 {
        io.write(1, 0, &pattern(64 << 10, round));
        assert!(
            io.read(1, 0, 128) == pattern(64 << 10, round),
            "who is there is served"
        );
    }
    assert_eq!(stage.target.connections(), 3);
    topology::set_open_files(before).expect("back to what it was");
    waiting.open(common::wire::Digests::NONE);
    waiting.connect_admin();
    waiting.enable();
    drop((admin, io, last, waiting));
    stage.until_empty();
    stage.serves_a_fresh_host();
}
