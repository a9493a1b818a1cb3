//! The server with a simulated kernel: requests over io_uring and by messages, and their answers.

mod bench;

use std::sync::Arc;

use fabrix_block::Geometry;
use fabrix_rt::counting::{allocations, allocations_of};
use fabrix_rt::{Completion, Loan, Token, Wait, errno, topology};

use super::server::{Order, OverUring};
use crate::FrontEndEvent;
use crate::testing::{Slow, Submitted};
use bench::{
    Bench, FLAGS, FSYNC, GETATTR, INIT, LOOKUP, Plan, READ, SLOT, WRITE, bad, good, ram, transfer,
};

#[test]
fn what_is_written_in_one_exchange_is_read_in_another() {
    let mut bench = Bench::ram();
    let data: Vec<u8> = (0..=250).cycle().take(8192).collect();
    assert_eq!(bench.ask(0, WRITE, &transfer(512, 8192), &data), good(8));
    assert_eq!(bench.payload(0)[..4], 8192u32.to_ne_bytes());
    assert_eq!(
        bench.ask(1, READ, &transfer(512 + 100, 4096), &[]),
        good(4096)
    );
    assert!(bench.payload(1)[..4096] == data[100..][..4096]);
    assert_eq!(bench.ask(0, FSYNC, &[0; 16], &[]), good(0));
    assert_eq!(bench.ask(0, GETATTR, &[0; 16], &[]), good(104));
    assert_eq!(
        bench.payload(0)[24..32],
        (2u64 << 20).to_ne_bytes(),
        "its size"
    );
    assert_eq!(bench.over_uring.get(), Some(&Ok(())));
}

#[test]
fn what_is_read_is_answered_by_writing_beside_it() {
    let mut bench = Bench::ram();
    assert_eq!(bench.ask(0, WRITE, &transfer(0, 512), &[7; 512]), good(8));
    let read = bench
        .reads(READ, &transfer(0, 512))
        .expect("it is answered");
    assert_eq!(read, [7; 512]);
}

#[test]
fn what_is_wrong_in_an_exchange_is_refused_there_and_it_goes_on() {
    let mut bench = Bench::ram();
    let invalid = bad(errno::EINVAL);
    let most = bench.payload(0).len();
    let long = vec![1; most + 512];
    assert_eq!(
        bench.ask(0, WRITE, &transfer(0, 1024), &[1; 512]),
        invalid,
        "half came"
    );
    assert_eq!(
        bench.ask(0, WRITE, &transfer(0, 512), &[1; 1024]),
        invalid,
        "twice as much"
    );
    let bytes = u32::try_from(long.len()).expect("short");
    assert_eq!(
        bench.ask(0, WRITE, &transfer(0, bytes), &long),
        invalid,
        "more than fits"
    );
    assert_eq!(
        bench.ask(0, WRITE, &transfer(100, 512), &[1; 512]),
        invalid,
        "within a block"
    );
    assert_eq!(
        bench.ask(0, WRITE, &transfer(2 << 20, 512), &[1; 512]),
        bad(errno::ENOSPC)
    );
    assert_eq!(bench.ask(0, LOOKUP, &[], b"name\0"), bad(errno::ENOSYS));
    for read_otherwise in [INIT, 2, 36, 38] {
        assert_eq!(
            bench.ask(0, read_otherwise, &[0; 64], &[]),
            bad(errno::ENOSYS)
        );
    }
    assert_eq!(
        bench.ask(0, READ, &transfer(0, bytes), &[]),
        good(most),
        "as much as fits"
    );
    assert!(
        bench.payload(0).iter().all(|byte| *byte == 0),
        "nothing was written"
    );
}

#[test]
fn a_kernel_that_does_not_offer_it_or_takes_no_place_is_read_and_told_so() {
    let mut bench = Bench::new(Plan::of(ram()));
    assert_eq!(bench.begin(1 << 15), (1 << 20, 0));
    assert_eq!(bench.places(), 0);
    assert!(matches!(bench.over_uring.get(), Some(Err(_))));

    let mut bench = Bench::new(Plan {
        refuses: errno::ENOMEM,
        ..Plan::of(ram())
    });
    assert_eq!(bench.begin(FLAGS), (128 << 10, 1 << 9));
    assert_eq!(bench.places(), 0);
    let refused = bench.kernel.borrow().refused.clone();
    assert!(refused.contains(&0), "each queue has been offered places");
    assert!(
        refused.contains(&u16::MAX),
        "and one that FUSE itself refuses"
    );
    let why = bench.over_uring.get().expect("it is known").clone();
    assert!(why.expect_err("it is not").contains("memory"));
    assert_eq!(
        bench.reads(GETATTR, &[0; 16]).map(|body| body.len()),
        Some(104)
    );
}

#[test]
fn where_it_is_off_or_the_shard_cannot_requests_are_read() {
    let off = OverUring::default();
    off.set(Err("it is off".to_owned())).expect("empty");
    for plan in [
        Plan {
            over_uring: off,
            ..Plan::of(ram())
        },
        Plan {
            exchanges: false,
            ..Plan::of(ram())
        },
    ] {
        let mut bench = Bench::new(plan);
        assert_eq!(
            bench.begin(FLAGS),
            (1 << 20, 0),
            "long ones, and no word of it"
        );
        assert_eq!(bench.places(), 0);
        assert!(matches!(bench.over_uring.get(), Some(Err(_))));
        let read = bench.reads(READ, &transfer(0, 512));
        assert_eq!(read, Some(vec![0; 512]));
    }
}

#[test]
fn the_places_of_a_disk_of_short_transfers_are_as_long_as_the_kernel_wants_them() {
    let geometry = Geometry {
        max_transfer_bytes: 4096,
        ..Geometry::new(512, 4096)
    };
    let mut bench = Bench::new(Plan::of(Arc::new(Slow::new(geometry))));
    assert_eq!(bench.begin(FLAGS).0, 4096);
    assert!(bench.payload(0).len() >= 8192, "FUSE_MIN_READ_BUFFER");
}

#[test]
fn an_answer_that_is_not_taken_makes_its_place_anew_and_a_queue_without_any_ends_the_file() {
    let mut bench = Bench::ram();
    assert_eq!(bench.ask(0, FSYNC, &[0; 16], &[]), good(0));
    bench.end(0, -errno::ENOENT);
    let answers = bench.kernel.borrow().places[&SLOT].1.answers();
    assert_eq!(answers, None, "the place is offered once more");
    assert_eq!(bench.ask(0, FSYNC, &[0; 16], &[]), good(0), "and used");

    bench.kernel.borrow_mut().refuses = errno::EINVAL;
    let queues = u32::try_from(topology::possible_cpus().expect("the kernel says")).expect("few");
    let all = u32::try_from(bench.places()).expect("few");
    for place in (0..all).step_by(queues as usize) {
        assert!(bench.events.try_recv().is_err(), "its queue has a place");
        bench.end(place, -errno::EINVAL);
    }
    bench.kernel.borrow_mut().refuses = 0;
    assert_eq!(bench.events.try_recv(), Ok(FrontEndEvent::Ended));
}

#[test]
fn a_file_that_is_unmounted_is_over() {
    for errno in [
        errno::ENOTCONN,
        errno::ECONNABORTED,
        errno::ENODEV,
        errno::ECANCELED,
    ] {
        let mut bench = Bench::ram();
        assert_eq!(bench.ask(0, FSYNC, &[0; 16], &[]), good(0));
        bench.unmount(errno);
        assert_eq!(bench.events.try_recv(), Ok(FrontEndEvent::Ended));
        assert!(bench.shard.task(bench.task).is_none());
        assert_eq!(bench.places(), 0, "{errno}: nothing is offered any more");
    }
}

/// A server on a slow disk.
fn slow() -> (Bench, Submitted) {
    let disk = Slow::new(Geometry::new(512, 4096));
    let submitted = disk.submitted.clone();
    let mut bench = Bench::new(Plan::of(Arc::new(disk)));
    bench.begin(FLAGS);
    (bench, submitted)
}

fn done(bench: &mut Bench, token: Token) {
    ended(bench, token, Loan::None);
}

fn ended(bench: &mut Bench, token: Token, loan: Loan) {
    bench.shard.complete(token, Completion { result: 0, loan });
    bench.turn();
}

#[test]
fn by_force_what_is_at_the_disk_is_answered_in_its_place_once() {
    let (mut bench, submitted) = slow();
    for place in 0..3 {
        assert_eq!(bench.ask(place, WRITE, &transfer(0, 512), &[1; 512]), None);
    }
    let order = Box::new(Order::Fail);
    assert!(bench.shard.remote().send(bench.task, order).is_ok());
    bench.turn();
    for place in 0..3 {
        assert_eq!(bench.answer(place), bad(errno::EIO));
    }
    let failing = bench.ask(0, WRITE, &transfer(0, 512), &[1; 512]);
    assert_eq!(failing, bad(errno::EIO), "and so does what comes");
    bench.unmount(errno::ENOTCONN);
    assert!(bench.events.try_recv().is_err(), "the disk still has two");
    let at_disk = submitted.take();
    assert_eq!(at_disk.len(), 2);
    for at_disk in at_disk {
        done(&mut bench, at_disk.token);
    }
    assert_eq!(bench.events.try_recv(), Ok(FrontEndEvent::Ended));
}

/// A read from within the first block to within the third, over both ways.
#[test]
fn what_a_disk_gives_in_a_buffer_is_answered_from_where_it_was_asked() {
    let (mut bench, submitted) = slow();
    let blocks: Vec<u8> = (0..=250).cycle().take(1536).collect();
    let read = transfer(100, 1000);
    assert_eq!(bench.ask(0, READ, &read, &[]), None);
    assert_eq!(bench.reads(READ, &read), None);
    for at_disk in submitted.take() {
        let mut buf = bench.shard.take_buf(blocks.len()).expect("memory");
        buf.bytes_mut()[..blocks.len()].copy_from_slice(&blocks);
        ended(&mut bench, at_disk.token, Loan::Buf(buf));
    }
    assert_eq!(bench.answer(0), good(1000));
    assert!(bench.payload(0)[..1000] == blocks[100..1100]);
    let kernel = bench.kernel.borrow();
    let message = kernel.written.last().expect("it is answered");
    assert!(message[16..] == blocks[100..1100]);
}

/// Without this reserve, a request over io_uring could find no free slot.
#[test]
fn however_many_messages_come_there_is_room_for_what_comes_in_exchanges() {
    let (mut bench, _submitted) = slow();
    let write = [&transfer(0, 512)[..], &[1; 512]].concat();
    while bench.kernel.borrow().taking.is_some() {
        assert_eq!(bench.reads(WRITE, &write), None);
    }
    let places = u32::try_from(bench.places()).expect("few");
    for place in 0..places {
        assert_eq!(bench.ask(place, WRITE, &transfer(0, 512), &[1; 512]), None);
    }
    let order = Box::new(Order::Fail);
    assert!(bench.shard.remote().send(bench.task, order).is_ok());
    bench.turn();
    for place in 0..places {
        assert_eq!(bench.answer(place), bad(errno::EIO));
    }
    assert!(bench.kernel.borrow().taking.is_some(), "others may come");
}

#[test]
fn a_busy_disk_is_asked_again_with_the_data_of_the_place() {
    let (mut bench, submitted) = slow();
    for place in 0..3 {
        assert_eq!(bench.ask(place, WRITE, &transfer(0, 512), &[1; 512]), None);
    }
    let first = submitted.take_first().token;
    done(&mut bench, first);
    assert_eq!(bench.answer(0), good(8));
    // The retry timer expires by itself, however long that takes on a busy machine.
    while submitted.count() < 2 {
        bench.shard.turn(Wait::Never);
    }
    let last = submitted.take()[1].token;
    done(&mut bench, last);
    assert_eq!((bench.answer(1), bench.answer(2)), (None, good(8)));
}

#[test]
fn nothing_is_allocated_for_a_request_in_an_exchange() {
    let mut bench = Bench::ram();
    let data = [7; 8192];
    let mut round = || {
        assert_eq!(bench.ask(0, WRITE, &transfer(512, 8192), &data), good(8));
        assert_eq!(bench.ask(1, READ, &transfer(512, 4096), &[]), good(4096));
        assert_eq!(bench.ask(2, FSYNC, &[0; 16], &[]), good(0));
    };
    round();
    let at_once = allocations_of(allocations, || (0..100).for_each(|_| round()));
    assert_eq!(at_once, 0, "allocations for 300 requests");
    let (mut bench, submitted) = slow();
    let mut round = || {
        assert_eq!(bench.ask(0, WRITE, &transfer(0, 8192), &data), None);
        let token = submitted.take_first().token;
        done(&mut bench, token);
    };
    round();
    let later = allocations_of(allocations, || (0..100).for_each(|_| round()));
    assert_eq!(
        later, 0,
        "allocations for 100 requests that took their time"
    );
}
