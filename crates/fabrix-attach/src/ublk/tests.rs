//! The server with a simulated driver: requests and answers.

mod bench;
mod lent;
mod slow;

use std::sync::atomic::Ordering;

use fabrix_block::ram::RamDisk;
use fabrix_block::{Geometry, Identity};
use fabrix_rt::counting::{CountingAllocator, allocations, allocations_of};
use fabrix_rt::{HugePages, errno};

use super::server::Order;
use crate::FrontEndEvent;
use bench::{Bench, DISCARD, FLUSH, READ, WRITE, ZEROES, small};
use slow::{slow, slow_disk, written};

/// Counting allocator of this crate's unit tests.
#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

#[test]
fn what_one_tag_writes_another_reads() {
    let mut bench = Bench::ram(small());
    let data: Vec<u8> = (0..=250).cycle().take(8192).collect();
    bench.put(0, &data);
    assert_eq!(bench.ask(0, WRITE, 100, 16), Some(8192));
    assert_eq!(bench.ask(3, READ, 104, 8), Some(4096));
    assert!(bench.got(3, 4096) == data[2048..6144]);
    assert_eq!(bench.ask(0, FLUSH, 0, 0), Some(0));
}

#[test]
fn a_tag_is_used_again_and_again() {
    let mut bench = Bench::ram(small());
    for round in 0..20u8 {
        bench.put(1, &[round; 512]);
        assert_eq!(bench.ask(1, WRITE, u64::from(round), 1), Some(512));
        assert_eq!(bench.ask(2, READ, u64::from(round), 1), Some(512));
        assert_eq!(bench.got(2, 512), [round; 512]);
    }
}

#[test]
fn discarded_and_zeroed_ranges_read_as_zeroes() {
    let mut bench = Bench::ram(small());
    for operation in [DISCARD, ZEROES, ZEROES | 1 << 15] {
        bench.put(0, &[7; 4096]);
        assert_eq!(bench.ask(0, WRITE, 8, 8), Some(4096));
        assert_eq!(bench.ask(0, operation, 8, 4), Some(0));
        assert_eq!(bench.ask(1, READ, 8, 8), Some(4096));
        let got = bench.got(1, 4096);
        assert!(
            got[..2048] == [0; 2048] && got[2048..] == [7; 2048],
            "{operation}"
        );
    }
}

#[test]
fn what_this_disk_cannot_do_is_an_error_and_no_more() {
    let mut bench = Bench::ram(Geometry::new(4096, 256));
    assert_eq!(
        bench.ask(0, READ, 1, 8),
        Some(-errno::EINVAL),
        "within a block"
    );
    assert_eq!(
        bench.ask(0, READ, 8, 7),
        Some(-errno::EINVAL),
        "a part of a block"
    );
    assert_eq!(
        bench.ask(0, READ, 2048, 8),
        Some(-errno::EINVAL),
        "past the end"
    );
    assert_eq!(
        bench.ask(0, WRITE, u64::MAX - 7, 8),
        Some(-errno::EINVAL),
        "past all"
    );
    assert_eq!(
        bench.ask(0, READ, 0, 256),
        Some(-errno::EINVAL),
        "more than was offered"
    );
    assert_eq!(bench.ask(0, 13, 0, 8), Some(-errno::EOPNOTSUPP));
    assert_eq!(bench.ask(0, READ, 0, 8), Some(4096), "and it goes on");
}

#[test]
fn a_read_only_disk_is_not_written() {
    let mut geometry = small();
    geometry.read_only = true;
    let mut bench = Bench::ram(geometry);
    for operation in [WRITE, DISCARD, ZEROES] {
        assert_eq!(bench.ask(0, operation, 0, 8), Some(-errno::EROFS));
    }
    assert_eq!(bench.ask(0, READ, 0, 8), Some(4096));
}

#[test]
fn a_device_that_is_stopped_is_closed_and_over() {
    let mut bench = Bench::ram(small());
    assert_eq!(bench.ask(2, READ, 0, 8), Some(4096));
    bench.stop();
    assert_eq!(bench.closed.try_recv(), Ok(()));
    assert_eq!(bench.events.try_recv(), Ok(FrontEndEvent::Ended));
    assert!(bench.shard.task(bench.task).is_none());
}

#[test]
fn a_refused_command_is_remembered() {
    let mut bench = Bench::ram(small());
    bench.end(1, -errno::EINVAL);
    assert_eq!(bench.refused.load(Ordering::Relaxed), errno::EINVAL);
    bench.stop();
    assert_eq!(bench.events.try_recv(), Ok(FrontEndEvent::Ended));
}

#[test]
fn a_disk_of_another_size_is_served_to_its_new_end() {
    let mut bench = Bench::ram(small());
    assert_eq!(bench.ask(0, READ, 2047, 1), Some(512));
    assert_eq!(bench.ask(0, READ, 2048, 1), Some(-errno::EINVAL));
    for blocks in [4096, 1024] {
        let identity = Identity::derive("ram", "ram", "RAM");
        let disk = RamDisk::new(Geometry::new(512, blocks), HugePages::No, identity);
        let order = Box::new(Order::Resized(disk.expect("memory")));
        assert!(bench.shard.remote().send(bench.task, order).is_ok());
        bench.turn();
        assert_eq!(bench.ask(0, READ, blocks - 1, 1), Some(512));
        assert_eq!(bench.ask(0, READ, blocks, 1), Some(-errno::EINVAL));
    }
}

#[test]
fn nothing_is_allocated_for_a_request() {
    let mut bench = Bench::ram(small());
    bench.put(0, &[7; 8192]);
    let at_once = allocations_of(allocations, || {
        for _ in 0..100 {
            assert_eq!(bench.ask(0, WRITE, 100, 16), Some(8192));
            assert_eq!(bench.ask(3, READ, 104, 8), Some(4096));
            assert_eq!(bench.ask(1, FLUSH, 0, 0), Some(0));
            bench.kernel.borrow_mut().answers.clear();
        }
    });
    assert_eq!(at_once, 0, "allocations for 300 requests");
    let (mut bench, submitted) = slow();
    let later = allocations_of(allocations, || {
        for _ in 0..100 {
            assert_eq!(bench.ask(0, WRITE, 0, 8), None);
            let first = submitted.take_first();
            written(&mut bench, first.token);
            bench.kernel.borrow_mut().answers.clear();
        }
    });
    assert_eq!(
        later, 0,
        "allocations for 100 requests that took their time"
    );
    let (disk, submitted) = slow_disk(true);
    let mut bench = Bench::with(disk, true);
    let lent = allocations_of(allocations, || {
        for _ in 0..100 {
            assert_eq!(bench.ask(0, WRITE, 0, 8), None);
            let first = submitted.take_first();
            written(&mut bench, first.token);
            bench.kernel.borrow_mut().answers.clear();
        }
    });
    assert_eq!(lent, 0, "allocations for 100 requests whose pages are lent");
}

#[test]
fn the_marks_of_two_names_differ_and_stay() {
    assert_eq!(super::mark("disk1"), super::mark("disk1"));
    assert_ne!(super::mark("disk1"), super::mark("disk2"));
}
