//! Registered pages: the disks that get them, and the end of their requests.

use std::sync::atomic::Ordering;

use fabrix_block::{Operation, Status};
use fabrix_rt::{Registered, Wait, errno};

use super::bench::{Bench, FLUSH, READ, WRITE, ZEROES};
use super::slow::{ended, slow_disk, written};
use crate::FrontEndEvent;
use crate::testing::Submitted;
use crate::ublk::server::Order;

/// Driver flag of a request whose pages could not be registered (UBLK_IO_F_NEED_REG_BUF).
const NOT_LENT: u32 = 1 << 17;

fn lending() -> (Bench, Submitted) {
    let (disk, submitted) = slow_disk(true);
    (Bench::with(disk, true), submitted)
}

fn uncopied(bench: &Bench) -> u64 {
    bench.uncopied.load(Ordering::Relaxed)
}

#[test]
fn the_disk_gets_the_pages_of_the_request_and_nothing_is_copied() {
    let (mut bench, submitted) = lending();
    assert_eq!(bench.kernel.borrow().places, Some(4), "one for each tag");
    bench.put(3, &[7; 4096]);
    assert_eq!(bench.ask(3, WRITE, 8, 8), None);
    assert_eq!(bench.ask(2, READ, 8, 1), None);
    let at_disk = submitted.take();
    let memory = |place, bytes| Some(Registered { place, bytes });
    assert_eq!(at_disk[0].operation, Operation::Write { durable: false });
    assert_eq!((at_disk[0].byte, at_disk[0].lent), (None, memory(3, 4096)));
    assert_eq!(at_disk[1].lent, memory(2, 512));
    assert_eq!(uncopied(&bench), 0, "not yet");
    for at_disk in at_disk {
        written(&mut bench, at_disk.token);
    }
    assert_eq!(bench.kernel.borrow().answers, [(3, 4096), (2, 512)]);
    assert_eq!(uncopied(&bench), 2);
}

#[test]
fn what_moves_no_data_is_asked_as_ever() {
    let (mut bench, submitted) = lending();
    assert_eq!(bench.ask(0, FLUSH, 0, 0), None);
    assert_eq!(bench.ask(1, ZEROES, 8, 8), None);
    let at_disk = submitted.take();
    assert!(at_disk.iter().all(|at_disk| at_disk.lent.is_none()));
    for at_disk in at_disk {
        written(&mut bench, at_disk.token);
    }
    assert_eq!(bench.kernel.borrow().answers, [(0, 0), (1, 0)]);
    assert_eq!(uncopied(&bench), 0);
}

#[test]
fn a_request_whose_pages_are_not_lent_is_copied() {
    let (mut bench, submitted) = lending();
    bench.put(1, &[9; 4096]);
    assert_eq!(bench.ask(1, WRITE | NOT_LENT, 8, 8), None);
    let at_disk = submitted.take_first();
    assert_eq!((at_disk.byte, at_disk.lent), (Some(9), None));
    written(&mut bench, at_disk.token);
    assert_eq!(bench.kernel.borrow().answers, [(1, 4096)]);
    assert_eq!(uncopied(&bench), 0);
}

#[test]
fn a_disk_that_takes_no_lent_pages_gets_none() {
    let (disk, submitted) = slow_disk(false);
    let mut bench = Bench::with(disk, true);
    bench.put(1, &[9; 4096]);
    assert_eq!(bench.ask(1, WRITE, 8, 8), None);
    let at_disk = submitted.take_first();
    assert_eq!((at_disk.byte, at_disk.lent), (Some(9), None));
}

#[test]
fn a_driver_that_lends_nothing_is_asked_for_no_place_and_its_requests_are_copied() {
    let (disk, submitted) = slow_disk(true);
    let mut bench = Bench::with(disk, false);
    assert_eq!(bench.kernel.borrow().places, None);
    bench.put(1, &[9; 4096]);
    assert_eq!(bench.ask(1, WRITE, 8, 8), None);
    assert_eq!(submitted.take_first().byte, Some(9));
}

#[test]
fn the_disk_of_another_size_says_anew_whether_it_takes_them() {
    let (mut bench, submitted) = lending();
    let (other, of_other) = slow_disk(false);
    let order = Box::new(Order::Resized(other));
    assert!(bench.shard.remote().send(bench.task, order).is_ok());
    bench.turn();
    assert_eq!(bench.ask(0, WRITE, 0, 8), None);
    assert_eq!(submitted.count(), 0);
    assert_eq!(of_other.take_first().lent, None);
}

#[test]
fn what_the_disk_cannot_do_with_them_is_asked_again_with_a_copy() {
    let (mut bench, submitted) = lending();
    bench.put(0, &[5; 4096]);
    assert_eq!(bench.ask(0, WRITE, 8, 8), None);
    ended(
        &mut bench,
        submitted.take_first().token,
        Status::Unsupported,
    );
    assert!(bench.kernel.borrow().answers.is_empty());
    let again = submitted.take_first();
    assert_eq!((again.byte, again.lent), (Some(5), None));
    written(&mut bench, again.token);
    assert_eq!(bench.ask(0, READ, 8, 8), None);
    ended(
        &mut bench,
        submitted.take_first().token,
        Status::Unsupported,
    );
    let again = submitted.take_first();
    assert_eq!((again.operation, again.lent), (Operation::Read, None));
    // A second `Unsupported` is the final answer.
    ended(&mut bench, again.token, Status::Unsupported);
    let answers = [(0, 4096), (0, -errno::EOPNOTSUPP)];
    assert_eq!(bench.kernel.borrow().answers, answers);
    assert_eq!(uncopied(&bench), 0);
}

#[test]
fn an_error_of_the_disk_is_an_answer_and_not_asked_again() {
    let (mut bench, submitted) = lending();
    for (status, errno) in [
        (Status::MediaWrite, errno::EIO),
        (Status::NoSpace, errno::ENOSPC),
    ] {
        assert_eq!(bench.ask(0, WRITE, 0, 8), None);
        ended(&mut bench, submitted.take_first().token, status);
        assert_eq!(submitted.count(), 0);
        assert_eq!(bench.kernel.borrow_mut().answers.pop(), Some((0, -errno)));
    }
    assert_eq!(uncopied(&bench), 0);
}

#[test]
fn a_busy_disk_is_asked_again_for_the_same_pages() {
    let (mut bench, submitted) = lending();
    for tag in 0..3 {
        assert_eq!(bench.ask(tag, WRITE, 0, 8), None);
    }
    for at_disk in submitted.take() {
        written(&mut bench, at_disk.token);
    }
    // The retry timer expires by itself, however long that takes on a busy machine.
    while submitted.count() == 0 {
        bench.shard.turn(Wait::Never);
    }
    let last = submitted.take_first();
    assert_eq!(last.lent.map(|memory| memory.place), Some(2));
    written(&mut bench, last.token);
    assert_eq!(bench.kernel.borrow().answers.last(), Some(&(2, 4096)));
}

/// The kernel releases a request only after the disk has released its pages. If the answer came
/// earlier, the disk would access the pages of the next request.
#[test]
fn by_force_a_request_whose_pages_the_disk_has_is_answered_when_it_has_let_go_of_them() {
    let (mut bench, submitted) = lending();
    assert_eq!(bench.ask(0, WRITE, 0, 8), None);
    assert_eq!(bench.ask(1, WRITE | NOT_LENT, 0, 8), None);
    let order = Box::new(Order::Fail);
    assert!(bench.shard.remote().send(bench.task, order).is_ok());
    bench.turn();
    assert_eq!(bench.kernel.borrow().answers, [(1, -errno::EIO)]);
    assert_eq!(bench.ask(2, READ, 0, 8), Some(-errno::EIO));
    for at_disk in submitted.take() {
        // A request that the disk could not execute with its pages is not repeated either.
        ended(&mut bench, at_disk.token, Status::Unsupported);
    }
    assert_eq!(submitted.count(), 0);
    let answers = [(1, -errno::EIO), (2, -errno::EIO), (0, -errno::EIO)];
    assert_eq!(bench.kernel.borrow().answers, answers);
    bench.stop();
    assert_eq!(bench.events.try_recv(), Ok(FrontEndEvent::Ended));
}
