//! Once a session is ready, an I/O allocates nothing on the target's shard. The test reads, and
//! writes with immediate data, unsolicited data and R2Ts.
//!
//! This test has its own file, because it installs a global allocator. The allocator counts by
//! thread, so the initiator's thread does not count.

mod common;
#[path = "iscsi/initiator.rs"]
#[allow(dead_code, reason = "a module of two test programs")]
mod initiator;

use common::{Plan, Stage, has, pattern};
use fabrix_rt::Engine;
use fabrix_rt::counting::{CountingAllocator, allocations, allocations_of};
use initiator::Initiator;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

const COMMANDS: usize = 2_000;
/// Data of a write in bytes: in all, immediate, unsolicited.
const WAYS: [(usize, usize, usize); 5] = [
    (4096, 4096, 0),
    (4096, 0, 0),
    (8192, 512, 7680),
    (65536, 0, 0),
    (131_072, 8192, 0),
];

#[test]
fn io_allocates_nothing_on_the_shard_over_io_uring() {
    if has(Engine::IoUring) {
        check(Engine::IoUring);
    }
}

#[test]
fn io_allocates_nothing_on_the_shard_over_epoll() {
    check(Engine::Epoll);
}

fn check(engine: Engine) {
    let plan = Plan {
        shards: 1,
        ..Plan::default()
    };
    let stage = Stage::set(engine, plan);
    let portal = stage.target.portals()[0];
    for digests in [false, true] {
        let mut initiator = Initiator::log_in(portal, 1, digests);
        // The first command of a new session gets a unit attention.
        assert_eq!(initiator.command(&[0; 6], 0).status, 2);
        let count = || stage.ask(0, |_| allocations());
        assert!(count() > 0, "the shard's thread is counted");
        for way in WAYS {
            let made = allocations_of(count, || run(&mut initiator, way, COMMANDS));
            let commands = format!("{COMMANDS} commands, {way:?}, digests {digests}");
            assert_eq!(made, 0, "allocations in {commands}");
        }
    }
}

/// Runs `commands` commands, half of them writes.
fn run(
    initiator: &mut Initiator,
    (bytes, immediate, unsolicited): (usize, usize, usize),
    commands: usize,
) {
    let data = pattern(bytes, 5);
    let [high, low] = u16::try_from(bytes / 512).expect("short").to_be_bytes();
    let rw = |opcode| [opcode, 0, 0, 0, 0, 64, 0, high, low, 0];
    for _ in 0..commands / 2 {
        let written = initiator.write(&rw(0x2A), &data, immediate, unsolicited);
        assert_eq!(written.status, 0, "a write");
        let read = initiator.command(&rw(0x28), bytes);
        assert!(read.status == 0 && read.data == data, "a read");
    }
}
