//! A slow disk, and the handling of requests meanwhile.

use std::sync::Arc;
use std::time::{Duration, Instant};

use fabrix_block::{Device, Operation, Status};
use fabrix_rt::{Completion, Loan, Token, Wait, errno};

use super::bench::{Bench, READ, WRITE, ZEROES, small};
use crate::FrontEndEvent;
use crate::testing::{Slow, Submitted};
use crate::ublk::server::Order;

pub(super) fn slow() -> (Bench, Submitted) {
    let (disk, submitted) = slow_disk(false);
    (Bench::new(disk), submitted)
}

pub(super) fn slow_disk(takes_registered: bool) -> (Arc<dyn Device>, Submitted) {
    let disk = Slow {
        takes_registered,
        ..Slow::new(small())
    };
    let submitted = disk.submitted.clone();
    (Arc::new(disk), submitted)
}

pub(super) fn written(bench: &mut Bench, token: Token) {
    ended(bench, token, Status::Ok);
}

/// Completes a request at the disk.
pub(super) fn ended(bench: &mut Bench, token: Token, status: Status) {
    let completion = Completion {
        result: status.to_result(),
        loan: Loan::None,
    };
    bench.shard.complete(token, completion);
    bench.turn();
}

#[test]
fn a_disk_that_takes_its_time_answers_the_tag_that_asked() {
    let (mut bench, submitted) = slow();
    assert_eq!(bench.ask(0, WRITE, 0, 8), None);
    assert_eq!(bench.ask(2, WRITE, 8, 1), None);
    let at_disk = submitted.take();
    written(&mut bench, at_disk[1].token);
    written(&mut bench, at_disk[0].token);
    assert_eq!(bench.kernel.borrow().answers, [(2, 512), (0, 4096)]);
}

#[test]
fn a_disk_that_gives_no_space_back_is_not_asked_to() {
    let (mut bench, submitted) = slow();
    assert_eq!(bench.ask(0, ZEROES, 0, 8), None);
    let at_disk = submitted.take_first();
    let zeroes = Operation::WriteZeroes {
        deallocate: false,
        durable: false,
    };
    assert_eq!(at_disk.operation, zeroes);
    assert_eq!(bench.ask(1, ZEROES, 0, 0), Some(0), "of nothing");
}

#[test]
fn a_busy_disk_is_asked_again_with_the_same_data() {
    let (mut bench, submitted) = slow();
    for (tag, byte) in (0..3).zip([7, 8, 9]) {
        bench.put(tag, &[byte; 4096]);
        assert_eq!(bench.ask(tag, WRITE, 0, 8), None);
        bench.put(tag, &[0; 4096]);
    }
    let first = submitted.take_first();
    written(&mut bench, first.token);
    // The retry timer expires by itself, however long that takes on a busy machine.
    while submitted.count() < 2 {
        bench.shard.turn(Wait::Never);
    }
    let last = submitted.take()[1];
    assert_eq!((first.byte, last.byte), (Some(7), Some(9)));
    written(&mut bench, last.token);
    assert_eq!(bench.kernel.borrow().answers, [(0, 4096), (2, 4096)]);
}

#[test]
fn by_force_everything_fails_at_once_and_the_end_waits_for_the_disk_alone() {
    let (mut bench, submitted) = slow();
    for tag in 0..3 {
        assert_eq!(bench.ask(tag, WRITE, 0, 8), None);
    }
    let order = Box::new(Order::Fail);
    assert!(bench.shard.remote().send(bench.task, order).is_ok());
    bench.turn();
    let mut answers = bench.kernel.borrow().answers.clone();
    answers.sort_unstable();
    assert_eq!(
        answers,
        [(0, -errno::EIO), (1, -errno::EIO), (2, -errno::EIO)]
    );
    assert_eq!(
        bench.ask(3, READ, 0, 8),
        Some(-errno::EIO),
        "and so does what comes"
    );
    // Requests that were stalled are not submitted any more, although the disk has room and the
    // timer expires.
    let at_disk = submitted.take();
    let until = Instant::now() + Duration::from_millis(20);
    while Instant::now() < until {
        bench.turn();
    }
    assert_eq!(submitted.count(), 0);
    bench.stop();
    assert_eq!(bench.closed.try_recv(), Ok(()));
    assert!(
        bench.events.try_recv().is_err(),
        "the disk still has two requests"
    );
    for at_disk in at_disk {
        written(&mut bench, at_disk.token);
    }
    assert_eq!(bench.events.try_recv(), Ok(FrontEndEvent::Ended));
}
