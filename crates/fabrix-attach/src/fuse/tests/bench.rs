//! A simulated kernel with FUSE over io_uring. Exchanges wait in a table, and the test moves
//! messages by hand.

use std::cell::RefCell;
use std::collections::HashMap;
use std::os::unix::net::UnixStream;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};

use fabrix_block::ram::RamDisk;
use fabrix_block::{Device, Geometry, Identity};
use fabrix_rt::driver::{Completed, Driver, Submission, Until};
use fabrix_rt::{
    Completion, Exchange, HugePages, Loan, Nanos, Op, Shard, ShardConfig, TaskId, Token, Wait,
    errno, topology,
};

use crate::FrontEndEvent;
use crate::fuse::server::{OverUring, Server};

pub(super) const GETATTR: u32 = 3;
pub(super) const READ: u32 = 15;
pub(super) const WRITE: u32 = 16;
pub(super) const FSYNC: u32 = 20;
pub(super) const INIT: u32 = 26;
pub(super) const LOOKUP: u32 = 1;
/// FUSE_INIT flags ASYNC_DIO, INIT_EXT and OVER_IO_URING.
pub(super) const FLAGS: u64 = 1 << 15 | 1 << 30 | 1 << 41;
/// Offset between a request's unique number and its commit id: the two may differ in a real kernel.
const COMMIT: u64 = 1000;

/// State of the simulated kernel.
#[derive(Default)]
pub(super) struct Kernel {
    pub(super) taking: Option<Submission>,
    ending: Vec<Completed>,
    /// Answers written as messages.
    pub(super) written: Vec<Vec<u8>>,
    /// Submitted exchanges by slot.
    pub(super) places: HashMap<u32, (Token, Box<Exchange>)>,
    /// Errno for exchanges that register. 0: they wait for a request.
    pub(super) refuses: i32,
    /// Queues of the refused exchanges.
    pub(super) refused: Vec<u16>,
}

struct FakeDriver(Rc<RefCell<Kernel>>);

impl Driver for FakeDriver {
    fn turn(
        &mut self,
        submissions: &mut Vec<Submission>,
        endings: &mut Vec<Completed>,
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
    fn exchanged(&mut self, token: Token, exchange: Box<Exchange>, endings: &mut Vec<Completed>) {
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

/// Parameters of a bench.
pub(super) struct Plan {
    pub(super) disk: Arc<dyn Device>,
    /// Errno for exchanges that register.
    pub(super) refuses: i32,
    /// Whether the shard supports exchanges.
    pub(super) exchanges: bool,
    pub(super) over_uring: OverUring,
}

impl Plan {
    /// A kernel and a shard with all features.
    pub(super) fn of(disk: Arc<dyn Device>) -> Self {
        Self {
            disk,
            refuses: 0,
            exchanges: true,
            over_uring: OverUring::default(),
        }
    }
}

/// A server and its simulated kernel.
pub(super) struct Bench {
    pub(super) shard: Shard,
    pub(super) kernel: Rc<RefCell<Kernel>>,
    pub(super) task: TaskId,
    pub(super) events: Receiver<FrontEndEvent>,
    pub(super) over_uring: OverUring,
    _other_end: UnixStream,
}

impl Bench {
    pub(super) fn new(plan: Plan) -> Self {
        let kernel = Rc::new(RefCell::new(Kernel {
            refuses: plan.refuses,
            ..Kernel::default()
        }));
        let config = ShardConfig {
            exchanges: plan.exchanges,
            ..ShardConfig::default()
        };
        let driver = Box::new(FakeDriver(Rc::clone(&kernel)));
        let mut shard = Shard::with_driver(&config, driver).expect("a shard");
        // A socket without a message: a read would block.
        let (device, other_end) = UnixStream::pair().expect("sockets");
        device.set_nonblocking(true).expect("a flag");
        let device = std::fs::File::from(std::os::fd::OwnedFd::from(device));
        let (sender, events) = channel();
        let on_event = Box::new(move |event| drop(sender.send(event)));
        let over_uring = plan.over_uring;
        let begun = (on_event as crate::EventHandler, Arc::clone(&over_uring));
        let task = Server::open(&mut shard, plan.disk, device, (0, 0), begun).expect("it opens");
        let mut bench = Self {
            shard,
            kernel,
            task,
            events,
            over_uring,
            _other_end: other_end,
        };
        bench.turn();
        bench
    }

    pub(super) fn ram() -> Self {
        let mut bench = Self::new(Plan::of(ram()));
        bench.begin(FLAGS);
        assert!(bench.places() >= topology::possible_cpus().expect("the kernel says"));
        bench
    }

    pub(super) fn turn(&mut self) {
        for _ in 0..4 {
            self.shard.turn(Wait::Never);
        }
    }

    pub(super) fn places(&self) -> usize {
        self.kernel.borrow().places.len()
    }

    /// Delivers a message. Returns the written answer without its header.
    pub(super) fn reads(&mut self, opcode: u32, body: &[u8]) -> Option<Vec<u8>> {
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

    /// Sends FUSE_INIT. Returns max_write and flags2 of the answer.
    pub(super) fn begin(&mut self, flags: u64) -> (u32, u32) {
        let mut body = [0; 64];
        body[..8].copy_from_slice(&[7, 0, 0, 0, 45, 0, 0, 0]);
        let word = |shift: u32| u32::try_from(flags >> shift & 0xffff_ffff).expect("half of it");
        body[12..16].copy_from_slice(&word(0).to_ne_bytes());
        body[16..20].copy_from_slice(&word(32).to_ne_bytes());
        let answer = self.reads(INIT, &body).expect("it is answered");
        let word = |at: usize| u32::from_ne_bytes(answer[at..][..4].try_into().expect("four"));
        (word(20), word(32))
    }

    /// Puts a request into entry number `place`. Returns its answer, if there is one already.
    pub(super) fn ask(
        &mut self,
        place: u32,
        opcode: u32,
        operation: &[u8],
        data: &[u8],
    ) -> Option<Answer> {
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

    /// The answer to the request in an entry.
    pub(super) fn answer(&self, place: u32) -> Option<Answer> {
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

    pub(super) fn payload(&self, place: u32) -> Vec<u8> {
        let kernel = self.kernel.borrow();
        let (_, exchange) = &kernel.places[&(SLOT + place)];
        exchange.payload().to_vec()
    }

    /// Returns an entry without a request.
    pub(super) fn end(&mut self, place: u32, result: i32) {
        let mut kernel = self.kernel.borrow_mut();
        let (token, exchange) = kernel.places.remove(&(SLOT + place)).expect("the kernel's");
        let loan = Loan::Exchange(exchange);
        kernel.ending.push((token, Completion { result, loan }));
        drop(kernel);
        self.turn();
    }

    /// Unmounts the file system and ends all waiting receives.
    pub(super) fn unmount(&mut self, errno: i32) {
        let places: Vec<u32> = self.kernel.borrow().places.keys().copied().collect();
        for slot in places {
            self.end(slot - SLOT, -errno);
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
pub(super) struct Answer {
    pub(super) error: i32,
    pub(super) bytes: usize,
}

pub(super) const fn good(bytes: usize) -> Option<Answer> {
    Some(Answer { error: 0, bytes })
}

pub(super) const fn bad(errno: i32) -> Option<Answer> {
    Some(Answer {
        error: -errno,
        bytes: 0,
    })
}

/// First slot number of the entries in the server.
pub(super) const SLOT: u32 = 1 << 16;

pub(super) fn ram() -> Arc<dyn Device> {
    let identity = Identity::derive("ram", "ram", "RAM");
    RamDisk::new(Geometry::new(512, 4096), HugePages::No, identity).expect("memory")
}

pub(super) fn header(opcode: u32, node: u64) -> [u8; 40] {
    let mut header = [0; 40];
    header[4..8].copy_from_slice(&opcode.to_ne_bytes());
    header[8] = 9;
    header[16..24].copy_from_slice(&node.to_ne_bytes());
    header
}

pub(super) fn transfer(offset: u64, bytes: u32) -> [u8; 40] {
    let mut operation = [0; 40];
    operation[8..16].copy_from_slice(&offset.to_ne_bytes());
    operation[16..20].copy_from_slice(&bytes.to_ne_bytes());
    operation
}
