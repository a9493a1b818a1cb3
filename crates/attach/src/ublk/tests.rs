//! The server against a driver of our own: commands wait in a table, descriptions and data lie in a sparse file where
//! the kernel has them in its character device.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::rc::Rc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::mpsc::{Receiver, channel, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use fabrix_block::ram::RamDisk;
use fabrix_block::{
    Channel, Device, Geometry, Identity, OpenError, Operation, Payload, Request, Submit,
};
use fabrix_proto::ublk::spec;
use fabrix_rt::counting::{CountingAllocator, allocations, allocations_of};
use fabrix_rt::driver::{Driver, Ending, Submission, Until};
use fabrix_rt::{
    Completion, HugePages, Loan, Nanos, Op, Shard, ShardConfig, TaskId, Token, Wait, errno,
};

use super::server::{Begin, Order, Server};
use crate::Told;

/// The only one of this crate's own tests.
#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

const DEPTH: u16 = 4;
const TRANSFER_BYTES: u32 = 64 << 10;
const READ: u32 = 0;
const WRITE: u32 = 1;
const FLUSH: u32 = 2;
const DISCARD: u32 = 3;
const ZEROES: u32 = 5;
const ABORT: i32 = -errno::ENODEV;

/// What the driver holds and has heard.
#[derive(Default)]
struct Kernel {
    waiting: HashMap<u16, Token>,
    ending: Vec<(u16, i32)>,
    answers: Vec<(u16, i32)>,
}

struct FakeDriver(Rc<RefCell<Kernel>>);

impl Driver for FakeDriver {
    fn turn(
        &mut self,
        submissions: &mut Vec<Submission>,
        endings: &mut Vec<Ending>,
        _until: Until,
    ) -> Nanos {
        let mut kernel = self.0.borrow_mut();
        for (token, op) in submissions.drain(..) {
            let Op::DeviceCommand { opcode, words, .. } = op else {
                panic!("a server says commands only: {op:?}");
            };
            let [_, _, low, high] = words[0].to_ne_bytes();
            let tag = u16::from_ne_bytes([low, high]);
            if opcode == spec::COMMIT_AND_FETCH_REQ {
                kernel.answers.push((tag, words[1].cast_signed()));
            }
            assert_eq!(
                kernel.waiting.insert(tag, token),
                None,
                "one command for a tag"
            );
        }
        let Kernel {
            waiting, ending, ..
        } = &mut *kernel;
        for (tag, result) in ending.drain(..) {
            let token = waiting.remove(&tag).expect("its command waits");
            let loan = Loan::None;
            endings.push((token, Completion { result, loan }));
        }
        Nanos::now()
    }

    fn forget(&mut self, _task: TaskId) {}

    fn in_flight(&self) -> usize {
        self.0.borrow().waiting.len()
    }
}

/// A server with its driver.
struct Bench {
    shard: Shard,
    kernel: Rc<RefCell<Kernel>>,
    device: File,
    task: TaskId,
    told: Receiver<Told>,
    closed: Receiver<()>,
    refused: Arc<AtomicI32>,
}

impl Bench {
    fn new(disk: Arc<dyn Device>) -> Self {
        let kernel = Rc::new(RefCell::new(Kernel::default()));
        let driver = Box::new(FakeDriver(Rc::clone(&kernel)));
        let config = ShardConfig {
            arena_bytes: 16 << 20,
            ..ShardConfig::default()
        };
        let mut shard = Shard::with_driver(&config, driver).expect("a shard");
        let device = tempfile::tempfile().expect("a scratch file");
        device
            .set_len(spec::data_position(DEPTH))
            .expect("a sparse one");
        let (tell, told) = channel();
        let (tell_closed, closed) = sync_channel(1);
        let refused = Arc::new(AtomicI32::new(0));
        let begin = Begin {
            disk,
            device: device.try_clone().expect("a descriptor"),
            depth: DEPTH,
            transfer_bytes: TRANSFER_BYTES,
            tell: Box::new(move |news| drop(tell.send(news))),
            closed: tell_closed,
            refused: Arc::clone(&refused),
        };
        let task = Server::open(&mut shard, begin).expect("a disk that opens");
        shard.turn(Wait::Never);
        let begun = kernel.borrow().waiting.len();
        assert_eq!(begun, usize::from(DEPTH), "every tag waits for a request");
        Self {
            shard,
            kernel,
            device,
            task,
            told,
            closed,
            refused,
        }
    }

    fn ram(geometry: Geometry) -> Self {
        let identity = Identity::derive("ram", "ram", "RAM");
        Self::new(RamDisk::new(geometry, HugePages::No, identity).expect("memory"))
    }

    fn end(&mut self, tag: u16, result: i32) {
        self.kernel.borrow_mut().ending.push((tag, result));
        self.turn();
    }

    fn turn(&mut self) {
        for _ in 0..3 {
            self.shard.turn(Wait::Never);
        }
    }

    /// A request comes. What was answered, if it was.
    fn ask(&mut self, tag: u16, operation: u32, start: u64, sectors: u32) -> Option<i32> {
        let mut bytes = [0; spec::DESCRIPTOR_BYTES];
        bytes[..4].copy_from_slice(&operation.to_ne_bytes());
        bytes[4..8].copy_from_slice(&sectors.to_ne_bytes());
        bytes[8..16].copy_from_slice(&start.to_ne_bytes());
        let place = u64::from(tag) * spec::DESCRIPTOR_BYTES as u64;
        self.device.write_all_at(&bytes, place).expect("room");
        let before = self.kernel.borrow().answers.len();
        self.end(tag, 0);
        let kernel = self.kernel.borrow();
        let (answered, result) = *kernel.answers.get(before)?;
        assert_eq!(answered, tag);
        Some(result)
    }

    fn put(&self, tag: u16, data: &[u8]) {
        self.device
            .write_all_at(data, spec::data_position(tag))
            .expect("room");
    }

    fn got(&self, tag: u16, bytes: usize) -> Vec<u8> {
        let mut data = vec![0; bytes];
        self.device
            .read_exact_at(&mut data, spec::data_position(tag))
            .expect("it was set so long");
        data
    }

    fn stop(&mut self) {
        let tags: Vec<u16> = self.kernel.borrow().waiting.keys().copied().collect();
        for tag in tags {
            self.end(tag, ABORT);
        }
    }
}

fn small() -> Geometry {
    Geometry::new(512, 2048)
}

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
    assert_eq!(bench.told.try_recv(), Ok(Told::Over));
    assert!(bench.shard.task(bench.task).is_none());
}

#[test]
fn a_refused_command_is_remembered() {
    let mut bench = Bench::ram(small());
    bench.end(1, -errno::EINVAL);
    assert_eq!(bench.refused.load(Ordering::Relaxed), errno::EINVAL);
    bench.stop();
    assert_eq!(bench.told.try_recv(), Ok(Told::Over));
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

/// A disk that takes its time: until the test says so.
struct Slow {
    geometry: Geometry,
    identity: Identity,
    asked: Arc<Mutex<Vec<AtDisk>>>,
}

/// What it was asked, with the first byte of a write.
#[derive(Clone, Copy)]
struct AtDisk {
    token: Token,
    operation: Operation,
    byte: Option<u8>,
}

struct SlowChannel(Arc<Mutex<Vec<AtDisk>>>);

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
        });
        Submit::Pending
    }
}

fn slow() -> (Bench, Arc<Mutex<Vec<AtDisk>>>) {
    let asked = Arc::default();
    let disk = Slow {
        geometry: small(),
        identity: Identity::derive("slow", "slow", "slow"),
        asked: Arc::clone(&asked),
    };
    (Bench::new(Arc::new(disk)), asked)
}

fn written(bench: &mut Bench, token: Token) {
    let completion = Completion {
        result: 0,
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
    let (mut bench, asked) = slow();
    let later = allocations_of(allocations, || {
        for _ in 0..100 {
            assert_eq!(bench.ask(0, WRITE, 0, 8), None);
            let first = asked.lock().expect("nobody panics with it").remove(0);
            written(&mut bench, first.token);
            bench.kernel.borrow_mut().answers.clear();
        }
    });
    assert_eq!(
        later, 0,
        "allocations for 100 requests that took their time"
    );
}

#[test]
fn the_marks_of_two_names_differ_and_stay() {
    assert_eq!(super::mark("disk1"), super::mark("disk1"));
    assert_ne!(super::mark("disk1"), super::mark("disk2"));
}
