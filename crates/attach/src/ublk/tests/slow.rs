//! A disk that takes its time, and what becomes of requests meanwhile.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use fabrix_block::{
    Channel, Device, Geometry, Identity, OpenError, Operation, Payload, Request, Status, Submit,
};
use fabrix_rt::{Completion, Loan, Registered, Shard, Token, Wait, errno};

use super::bench::{Bench, READ, WRITE, ZEROES, small};
use crate::Told;
use crate::ublk::server::Order;

/// A disk that takes its time: until the test says so. It has room for two requests.
struct Slow {
    geometry: Geometry,
    identity: Identity,
    takes_registered: bool,
    asked: AskedOf,
}

/// What it was asked, with the first byte of a write, or the memory that is lent.
#[derive(Clone, Copy)]
pub(super) struct AtDisk {
    pub(super) token: Token,
    pub(super) operation: Operation,
    pub(super) byte: Option<u8>,
    pub(super) lent: Option<Registered>,
}

pub(super) type AskedOf = Arc<Mutex<Vec<AtDisk>>>;

struct SlowChannel(AskedOf);

impl Device for Slow {
    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn identity(&self) -> &Identity {
        &self.identity
    }

    fn open(&self, _shard: &mut Shard) -> Result<Box<dyn Channel>, OpenError> {
        Ok(Box::new(SlowChannel(Arc::clone(&self.asked))))
    }

    fn takes_registered(&self) -> bool {
        self.takes_registered
    }
}

impl Channel for SlowChannel {
    fn submit<'a>(&mut self, _shard: &mut Shard, request: Request<'a>) -> Submit<'a> {
        let mut asked = self.0.lock().expect("nobody panics with it");
        if asked.len() == 2 {
            return Submit::Busy(request);
        }
        asked.push(AtDisk {
            token: request.token,
            operation: request.operation,
            byte: match &request.payload {
                Payload::Owned(data) => data.bytes().first().copied(),
                _ => None,
            },
            lent: match &request.payload {
                Payload::Registered(memory) => Some(*memory),
                _ => None,
            },
        });
        Submit::Pending
    }
}

pub(super) fn slow() -> (Bench, AskedOf) {
    let (disk, asked) = slow_disk(false);
    (Bench::new(disk), asked)
}

pub(super) fn slow_disk(takes_registered: bool) -> (Arc<dyn Device>, AskedOf) {
    let asked = AskedOf::default();
    let disk = Slow {
        geometry: small(),
        identity: Identity::derive("slow", "slow", "slow"),
        takes_registered,
        asked: Arc::clone(&asked),
    };
    (Arc::new(disk), asked)
}

pub(super) fn written(bench: &mut Bench, token: Token) {
    ended(bench, token, Status::Ok);
}

/// The disk has done something, or could not.
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
    let (mut bench, asked) = slow();
    assert_eq!(bench.ask(0, WRITE, 0, 8), None);
    assert_eq!(bench.ask(2, WRITE, 8, 1), None);
    let at_disk = asked.lock().expect("nobody panics with it").clone();
    written(&mut bench, at_disk[1].token);
    written(&mut bench, at_disk[0].token);
    assert_eq!(bench.kernel.borrow().answers, [(2, 512), (0, 4096)]);
}

#[test]
fn a_disk_that_gives_no_space_back_is_not_asked_to() {
    let (mut bench, asked) = slow();
    assert_eq!(bench.ask(0, ZEROES, 0, 8), None);
    let at_disk = asked.lock().expect("nobody panics with it")[0];
    let zeroes = Operation::WriteZeroes {
        deallocate: false,
        durable: false,
    };
    assert_eq!(at_disk.operation, zeroes);
    assert_eq!(bench.ask(1, ZEROES, 0, 0), Some(0), "of nothing");
}

#[test]
fn a_busy_disk_is_asked_again_with_the_same_data() {
    let (mut bench, asked) = slow();
    for (tag, byte) in (0..3).zip([7, 8, 9]) {
        bench.put(tag, &[byte; 4096]);
        assert_eq!(bench.ask(tag, WRITE, 0, 8), None);
        bench.put(tag, &[0; 4096]);
    }
    let first = asked.lock().expect("nobody panics with it").remove(0);
    written(&mut bench, first.token);
    // The timer of the retry: it comes by itself, however long that takes on a busy machine.
    while asked.lock().expect("nobody panics with it").len() < 2 {
        bench.shard.turn(Wait::Never);
    }
    let last = asked.lock().expect("nobody panics with it")[1];
    assert_eq!((first.byte, last.byte), (Some(7), Some(9)));
    written(&mut bench, last.token);
    assert_eq!(bench.kernel.borrow().answers, [(0, 4096), (2, 4096)]);
}

#[test]
fn by_force_everything_fails_at_once_and_the_end_waits_for_the_disk_alone() {
    let (mut bench, asked) = slow();
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
    // What the disk had no room for is not brought to it any more, though it has room now and the timer goes off.
    let at_disk = std::mem::take(&mut *asked.lock().expect("nobody panics with it"));
    let until = Instant::now() + Duration::from_millis(20);
    while Instant::now() < until {
        bench.turn();
    }
    assert!(asked.lock().expect("nobody panics with it").is_empty());
    bench.stop();
    assert_eq!(bench.closed.try_recv(), Ok(()));
    assert!(
        bench.told.try_recv().is_err(),
        "the disk still has two requests"
    );
    for at_disk in at_disk {
        written(&mut bench, at_disk.token);
    }
    assert_eq!(bench.told.try_recv(), Ok(Told::Over));
}
