//! The server against a kernel of our own, which asks over io_uring: exchanges wait in a table, messages come and go by
//! hand.

use std::cell::RefCell;
use std::collections::HashMap;
use std::os::unix::net::UnixStream;
use std::rc::Rc;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};

use fabrix_block::ram::RamDisk;
use fabrix_block::{Channel, Device, Geometry, Identity, OpenError, Request, Submit};
use fabrix_rt::counting::{allocations, allocations_of};
use fabrix_rt::driver::{Driver, Ending, Submission, Until};
use fabrix_rt::{
    Completion, Exchange, HugePages, Loan, Nanos, Op, Shard, ShardConfig, TaskId, Token, Wait,
    errno, topology,
};

use super::server::{Order, OverUring, Server};
use crate::Told;

const GETATTR: u32 = 3;
const READ: u32 = 15;
const WRITE: u32 = 16;
const FSYNC: u32 = 20;
const INIT: u32 = 26;
const LOOKUP: u32 = 1;
/// ASYNC_DIO, INIT_EXT, OVER_IO_URING.
const FLAGS: u64 = 1 << 15 | 1 << 30 | 1 << 41;
/// The number by which a kernel knows a request need not be the one that is answered.
const COMMIT: u64 = 1000;

/// What the kernel holds and has heard.
#[derive(Default)]
struct Kernel {
    taking: Option<Submission>,
    ending: Vec<Ending>,
    /// Answers that were written.
    written: Vec<Vec<u8>>,
    /// By slot.
    places: HashMap<u32, (Token, Box<Exchange>)>,
    /// What becomes of those that come to be registered: zero, they wait for a request.
    refuses: i32,
    /// The queues of those that were refused.
    refused: Vec<u16>,
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
            match op {
                Op::TakeMessage { .. } => kernel.taking = Some((token, op)),
                Op::GiveMessage { mut gather, .. } => {
                    let mut bytes = Vec::new();
                    gather.copy_to(&mut bytes);
                    let result = i32::try_from(bytes.len()).expect("short");
                    kernel.written.push(bytes);
                    let loan = Loan::Gather(gather);
                    endings.push((token, Completion { result, loan }));
                }
                Op::Exchange { exchange } => kernel.exchanged(token, exchange, endings),
                op => panic!("a server of a file asks for no {op:?}"),
            }
        }
        endings.append(&mut kernel.ending);
        Nanos::now()
    }

    fn forget(&mut self, _task: TaskId) {}

    fn in_flight(&self) -> usize {
        0
    }
}

impl Kernel {
    fn exchanged(&mut self, token: Token, exchange: Box<Exchange>, endings: &mut Vec<Ending>) {
        if self.refuses != 0 && exchange.answers().is_none() {
            self.refused.push(exchange.queue());
            let result = -self.refuses;
            let loan = Loan::Exchange(exchange);
            return endings.push((token, Completion { result, loan }));
        }
        let before = self.places.insert(token.slot, (token, exchange));
        assert!(before.is_none(), "one exchange in a place");
    }
}

/// A server with its kernel.
struct Bench {
    shard: Shard,
    kernel: Rc<RefCell<Kernel>>,
    task: TaskId,
    told: Receiver<Told>,
    over_uring: OverUring,
    _other_end: UnixStream,
}

impl Bench {
    fn new(disk: Arc<dyn Device>, refuses: i32) -> Self {
        let kernel = Rc::new(RefCell::new(Kernel {
            refuses,
            ..Kernel::default()
        }));
        let config = ShardConfig {
            exchanges: true,
            ..ShardConfig::default()
        };
        let driver = Box::new(FakeDriver(Rc::clone(&kernel)));
        let mut shard = Shard::with_driver(&config, driver).expect("a shard");
        // Without a message, a read of it would wait.
        let (device, other_end) = UnixStream::pair().expect("sockets");
        device.set_nonblocking(true).expect("a flag");
        let device = std::fs::File::from(std::os::fd::OwnedFd::from(device));
        let (tell, told) = channel();
        let tell = Box::new(move |news| drop(tell.send(news)));
        let over_uring = OverUring::default();
        let begun = (tell as crate::Tell, Arc::clone(&over_uring));
        let task = Server::open(&mut shard, disk, device, (0, 0), begun).expect("it opens");
        let mut bench = Self {
            shard,
            kernel,
            task,
            told,
            over_uring,
            _other_end: other_end,
        };
        bench.turn();
        bench
    }

    fn ram() -> Self {
        let mut bench = Self::new(ram(), 0);
        bench.begin(FLAGS);
        assert!(bench.places() >= topology::possible_cpus().expect("the kernel says"));
        bench
    }

    fn turn(&mut self) {
        for _ in 0..4 {
            self.shard.turn(Wait::Never);
        }
    }

    fn places(&self) -> usize {
        self.kernel.borrow().places.len()
    }

    /// A message comes. What was answered by writing, without its head.
    fn reads(&mut self, opcode: u32, body: &[u8]) -> Option<Vec<u8>> {
        let message = [&header(opcode, 1)[..], body].concat();
        let mut kernel = self.kernel.borrow_mut();
        let before = kernel.written.len();
        let (token, mut op) = kernel.taking.take().expect("a message is waited for");
        if let Op::TakeMessage { buf, .. } = &mut op {
            buf.bytes_mut()[..message.len()].copy_from_slice(&message);
        }
        let result = i32::try_from(message.len()).expect("short");
        let loan = op.into_loan();
        kernel.ending.push((token, Completion { result, loan }));
        drop(kernel);
        self.turn();
        let answer = self.kernel.borrow().written.get(before).cloned();
        answer.map(|answer| answer[16..].to_vec())
    }

    /// The first message; gives max_write and flags2 of the answer.
    fn begin(&mut self, flags: u64) -> (u32, u32) {
        let mut body = [0; 64];
        body[..8].copy_from_slice(&[7, 0, 0, 0, 45, 0, 0, 0]);
        let word = |shift: u32| u32::try_from(flags >> shift & 0xffff_ffff).expect("half of it");
        body[12..16].copy_from_slice(&word(0).to_ne_bytes());
        body[16..20].copy_from_slice(&word(32).to_ne_bytes());
        let answer = self.reads(INIT, &body).expect("it is answered");
        let word = |at: usize| u32::from_ne_bytes(answer[at..][..4].try_into().expect("four"));
        (word(20), word(32))
    }

    /// A kernel that has this request in place number so many. What it was answered, if it was.
    fn ask(&mut self, place: u32, opcode: u32, operation: &[u8], data: &[u8]) -> Option<Answer> {
        let slot = SLOT + place;
        let mut kernel = self.kernel.borrow_mut();
        let (token, mut exchange) = kernel.places.remove(&slot).expect("it waits for a request");
        let header_bytes = exchange.header_mut();
        header_bytes[..40].copy_from_slice(&header(opcode, 1));
        header_bytes[128..][..operation.len()].copy_from_slice(operation);
        let bytes = u32::try_from(data.len()).expect("short");
        header_bytes[272..276].copy_from_slice(&bytes.to_ne_bytes());
        let fits = data.len().min(exchange.payload().len());
        exchange.payload_mut()[..fits].copy_from_slice(&data[..fits]);
        exchange.simulate(COMMIT + u64::from(place));
        let loan = Loan::Exchange(exchange);
        kernel.ending.push((token, Completion { result: 0, loan }));
        drop(kernel);
        self.turn();
        self.answer(place)
    }

    /// What the request in a place was answered.
    fn answer(&self, place: u32) -> Option<Answer> {
        let kernel = self.kernel.borrow();
        let (_, exchange) = kernel.places.get(&(SLOT + place))?;
        assert_eq!(exchange.answers(), Some(COMMIT + u64::from(place)));
        let word = |at: usize| {
            let bytes = exchange.header()[at..][..4].try_into().expect("four");
            u32::from_ne_bytes(bytes)
        };
        assert_eq!(word(8), 9, "the number of the request");
        Some(Answer {
            error: word(4).cast_signed(),
            bytes: word(272) as usize,
        })
    }

    fn payload(&self, place: u32) -> Vec<u8> {
        let kernel = self.kernel.borrow();
        let (_, exchange) = &kernel.places[&(SLOT + place)];
        exchange.payload().to_vec()
    }

    /// The kernel gives a place back without a request.
    fn end(&mut self, place: u32, result: i32) {
        let mut kernel = self.kernel.borrow_mut();
        let (token, exchange) = kernel.places.remove(&(SLOT + place)).expect("the kernel's");
        let loan = Loan::Exchange(exchange);
        kernel.ending.push((token, Completion { result, loan }));
        drop(kernel);
        self.turn();
    }

    /// The file system is unmounted.
    fn unmount(&mut self) {
        let places: Vec<u32> = self.kernel.borrow().places.keys().copied().collect();
        for slot in places {
            self.end(slot - SLOT, -errno::ENOTCONN);
        }
        let mut kernel = self.kernel.borrow_mut();
        let (token, op) = kernel.taking.take().expect("a message is waited for");
        let (result, loan) = (-errno::ENODEV, op.into_loan());
        kernel.ending.push((token, Completion { result, loan }));
        drop(kernel);
        self.turn();
    }
}

#[derive(Debug, PartialEq, Eq)]
struct Answer {
    error: i32,
    bytes: usize,
}

const fn good(bytes: usize) -> Option<Answer> {
    Some(Answer { error: 0, bytes })
}

const fn bad(errno: i32) -> Option<Answer> {
    Some(Answer {
        error: -errno,
        bytes: 0,
    })
}

/// Where the places begin among the server's slots.
const SLOT: u32 = 1 << 16;

fn ram() -> Arc<dyn Device> {
    let identity = Identity::derive("ram", "ram", "RAM");
    RamDisk::new(Geometry::new(512, 4096), HugePages::No, identity).expect("memory")
}

fn header(opcode: u32, node: u64) -> [u8; 40] {
    let mut header = [0; 40];
    header[4..8].copy_from_slice(&opcode.to_ne_bytes());
    header[8] = 9;
    header[16..24].copy_from_slice(&node.to_ne_bytes());
    header
}

fn transfer(offset: u64, bytes: u32) -> [u8; 40] {
    let mut operation = [0; 40];
    operation[8..16].copy_from_slice(&offset.to_ne_bytes());
    operation[16..20].copy_from_slice(&bytes.to_ne_bytes());
    operation
}

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
    let mut bench = Bench::new(ram(), 0);
    assert_eq!(bench.begin(1 << 15), (1 << 20, 0));
    assert_eq!(bench.places(), 0);
    assert!(matches!(bench.over_uring.get(), Some(Err(_))));

    let mut bench = Bench::new(ram(), errno::ENOMEM);
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
        assert!(bench.told.try_recv().is_err(), "its queue has a place");
        bench.end(place, -errno::EINVAL);
    }
    bench.kernel.borrow_mut().refuses = 0;
    assert_eq!(bench.told.try_recv(), Ok(Told::Over));
}

#[test]
fn a_file_that_is_unmounted_is_over() {
    let mut bench = Bench::ram();
    assert_eq!(bench.ask(0, FSYNC, &[0; 16], &[]), good(0));
    bench.unmount();
    assert_eq!(bench.told.try_recv(), Ok(Told::Over));
    assert!(bench.shard.task(bench.task).is_none());
}

/// A disk that takes its time: until the test says so.
struct Slow {
    geometry: Geometry,
    identity: Identity,
    asked: Asked,
}

/// Whose requests are at the disk.
type Asked = Arc<Mutex<Vec<Token>>>;

struct SlowChannel(Asked);

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
        asked.push(request.token);
        Submit::Pending
    }
}

fn slow() -> (Bench, Asked) {
    let asked = Asked::default();
    let disk = Slow {
        geometry: Geometry::new(512, 4096),
        identity: Identity::derive("slow", "slow", "slow"),
        asked: Arc::clone(&asked),
    };
    let mut bench = Bench::new(Arc::new(disk), 0);
    bench.begin(FLAGS);
    (bench, asked)
}

fn done(bench: &mut Bench, token: Token) {
    let loan = Loan::None;
    bench.shard.complete(token, Completion { result: 0, loan });
    bench.turn();
}

#[test]
fn by_force_what_is_at_the_disk_is_answered_in_its_place_once() {
    let (mut bench, asked) = slow();
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
    bench.unmount();
    assert!(bench.told.try_recv().is_err(), "the disk still has two");
    let at_disk = std::mem::take(&mut *asked.lock().expect("nobody panics with it"));
    assert_eq!(at_disk.len(), 2);
    for token in at_disk {
        done(&mut bench, token);
    }
    assert_eq!(bench.told.try_recv(), Ok(Told::Over));
}

#[test]
fn a_busy_disk_is_asked_again_with_the_data_of_the_place() {
    let (mut bench, asked) = slow();
    for place in 0..3 {
        assert_eq!(bench.ask(place, WRITE, &transfer(0, 512), &[1; 512]), None);
    }
    let first = asked.lock().expect("nobody panics with it").remove(0);
    done(&mut bench, first);
    assert_eq!(bench.answer(0), good(8));
    // The timer of the retry: it comes by itself, however long that takes on a busy machine.
    while asked.lock().expect("nobody panics with it").len() < 2 {
        bench.shard.turn(Wait::Never);
    }
    let last = asked.lock().expect("nobody panics with it").remove(1);
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
    let (mut bench, asked) = slow();
    let mut round = || {
        assert_eq!(bench.ask(0, WRITE, &transfer(0, 8192), &data), None);
        let token = asked.lock().expect("nobody panics with it").remove(0);
        done(&mut bench, token);
    };
    round();
    let later = allocations_of(allocations, || (0..100).for_each(|_| round()));
    assert_eq!(
        later, 0,
        "allocations for 100 requests that took their time"
    );
}
