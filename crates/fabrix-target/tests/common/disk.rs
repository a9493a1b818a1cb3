//! A disk over a RAM disk that follows a test's rules: it answers with a status, keeps requests
//! until released, has no room, or fills read buffers with a byte.

use std::any::Any;
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

use fabrix_block::{
    Channel, Device, Geometry, Identity, OpenError, Operation, Ownership, Payload, Request, Status,
    Submit,
};
use fabrix_rt::{Buf, Completion, Loan, Remote, Shard, Task, TaskId, Token};

use fabrix_sim::Place;

use super::{MOMENT, PATIENCE, ram};

/// The disk's treatment of requests of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Do {
    /// Carries out the request.
    Obey,
    /// Answers with this status at once.
    Answer(Status),
    /// Answers with this status in a later turn.
    AnswerLater(Status),
    /// Keeps the request until released, then carries it out.
    Keep,
    /// Has no room.
    Busy,
    /// Reads: fills a buffer with this byte, and answers with this status.
    Soil(u8, Status),
    /// Reads: carries out the request, but with a buffer of the shard instead of lent pages.
    Copy,
}

/// Kinds of requests that a test distinguishes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Read,
    Write,
    Flush,
    Zeroes,
}

fn kind(operation: Operation) -> Kind {
    match operation {
        Operation::Read => Kind::Read,
        Operation::Write { .. } | Operation::CompareAndWrite { .. } => Kind::Write,
        Operation::Flush => Kind::Flush,
        Operation::WriteZeroes { .. } | Operation::Deallocate => Kind::Zeroes,
    }
}

/// The disk: a device for the target, and rules for the test.
pub struct TestDisk {
    inner: Arc<dyn Device>,
    geometry: Geometry,
    orders: Arc<Orders>,
}

#[derive(Default)]
struct Orders {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    rules: Vec<(Kind, Do)>,
    kept: usize,
    refused: usize,
    asked: Vec<Operation>,
    keepers: Vec<(Remote, TaskId)>,
    is_lost: bool,
}

impl TestDisk {
    /// A disk of 512-byte blocks, with a volatile cache so that hosts flush it.
    pub fn new(bytes: u64) -> Arc<Self> {
        let inner = ram("test disk", 512, bytes);
        let geometry = Geometry {
            volatile_cache: true,
            ..inner.geometry().clone()
        };
        Arc::new(Self {
            inner,
            geometry,
            orders: Arc::default(),
        })
    }

    /// A disk that moves at most `max_transfer_bytes` at once.
    pub fn narrow(bytes: u64, max_transfer_bytes: u32) -> Arc<Self> {
        let inner = ram("narrow test disk", 512, bytes);
        let geometry = Geometry {
            max_transfer_bytes,
            ..inner.geometry().clone()
        };
        Arc::new(Self {
            inner,
            geometry,
            orders: Arc::default(),
        })
    }

    /// Sets the treatment of requests of this kind.
    pub fn when(&self, kind: Kind, what: Do) {
        let mut state = self.orders.state();
        state.rules.retain(|(other, _)| *other != kind);
        state.rules.push((kind, what));
    }

    /// From now on the storage refuses this process.
    pub fn lose(&self) {
        self.orders.lose();
    }

    /// Waits until `count` requests are kept.
    pub fn until_kept(&self, count: usize) {
        self.orders.wait(|state| state.kept >= count);
    }

    /// Waits until the disk has refused a request because it had no room.
    pub fn until_refused(&self) {
        self.orders.wait(|state| state.refused > 0);
    }

    /// Number of requests that were refused because the disk had no room.
    pub fn refused(&self) -> usize {
        self.orders.state().refused
    }

    /// Number of requests that are kept now.
    pub fn kept(&self) -> usize {
        self.orders.state().kept
    }

    /// Operations that were submitted so far, answered or not.
    pub fn asked(&self) -> Vec<Operation> {
        self.orders.state().asked.clone()
    }

    /// Releases the kept requests.
    pub fn release(&self) {
        let keepers = self.orders.state().keepers.clone();
        for (remote, task) in keepers {
            remote
                .send(task, Box::new(Release))
                .expect("room in the mailbox");
        }
    }
}

impl Orders {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no panic while it is held")
    }

    fn wait(&self, so: impl Fn(&State) -> bool) {
        let place = Place::current();
        if place.is_world() {
            let deadline = place.now() + PATIENCE;
            while !so(&self.state()) {
                assert!(place.now() < deadline, "the disk waited in vain");
                place.pause(MOMENT);
            }
            return;
        }
        let waited = self
            .changed
            .wait_timeout_while(self.state(), PATIENCE, |state| !so(state));
        let (_state, timeout) = waited.expect("no panic while it is held");
        assert!(!timeout.timed_out(), "the disk waited in vain");
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state());
        self.changed.notify_all();
    }
}

impl Device for TestDisk {
    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn identity(&self) -> &Identity {
        self.inner.identity()
    }

    fn open(&self, shard: &mut Shard) -> Result<Box<dyn Channel>, OpenError> {
        let id = shard.reserve();
        let keeper = Keeper {
            id,
            inner: self.inner.open(shard)?,
            geometry: self.geometry.clone(),
            orders: Arc::clone(&self.orders),
            kept: Vec::new(),
        };
        let keeper = Rc::new(RefCell::new(keeper));
        shard.install(id, Rc::clone(&keeper) as Rc<RefCell<dyn Task>>);
        let remote = shard.remote();
        self.orders.change(|state| state.keepers.push((remote, id)));
        Ok(Box::new(Way(keeper)))
    }

    fn ownership(&self) -> Option<Arc<dyn Ownership>> {
        Some(Arc::clone(&self.orders) as Arc<dyn Ownership>)
    }
}

impl Ownership for Orders {
    fn acquire(&self) -> Result<(), OpenError> {
        Ok(())
    }

    fn release(&self) -> Result<(), OpenError> {
        Ok(())
    }

    fn is_lost(&self) -> bool {
        self.state().is_lost
    }

    fn lose(&self) {
        self.change(|state| state.is_lost = true);
    }
}

struct Way(Rc<RefCell<Keeper>>);

impl Channel for Way {
    fn submit<'a>(&mut self, shard: &mut Shard, request: Request<'a>) -> Submit<'a> {
        self.0.borrow_mut().submit(shard, request)
    }
}

struct Release;

struct Keeper {
    id: TaskId,
    inner: Box<dyn Channel>,
    geometry: Geometry,
    orders: Arc<Orders>,
    kept: Vec<Kept>,
}

struct Kept {
    operation: Operation,
    lba: u64,
    blocks: u32,
    caller: Token,
    /// Data of a write, or nothing.
    bytes: Vec<u8>,
    /// Buffer that the caller gave.
    buf: Option<Buf>,
}

impl Keeper {
    fn submit<'a>(&mut self, shard: &mut Shard, request: Request<'a>) -> Submit<'a> {
        let what = {
            let mut state = self.orders.state();
            state.asked.push(request.operation);
            let rule = state
                .rules
                .iter()
                .find(|(of, _)| *of == kind(request.operation));
            rule.map_or(Do::Obey, |(_, what)| *what)
        };
        match what {
            Do::Obey => self.inner.submit(shard, request),
            Do::Answer(status) => request.done(status),
            Do::AnswerLater(status) => {
                let (caller, result) = (request.token, status.to_result());
                let loan = request.payload.into_loan();
                shard.complete(caller, Completion { result, loan });
                Submit::Pending
            }
            Do::Keep => {
                self.keep(request);
                Submit::Pending
            }
            Do::Busy => {
                self.orders.change(|state| state.refused += 1);
                Submit::Busy(request)
            }
            Do::Soil(with, status) => {
                let mut buf = self.buf(shard, &request.payload, request.blocks);
                buf.bytes_mut().fill(with);
                drop(request);
                Submit::Done(status, Loan::Buf(buf))
            }
            Do::Copy => {
                let buf = self.buf(shard, &request.payload, request.blocks);
                self.inner.submit(
                    shard,
                    Request {
                        payload: Payload::Owned(buf),
                        ..request
                    },
                )
            }
        }
    }

    fn buf(&self, shard: &mut Shard, payload: &Payload<'_>, blocks: u32) -> Buf {
        let bytes = match payload {
            Payload::Owned(buf) => buf.len(),
            _ => blocks as usize * self.geometry.block_bytes as usize,
        };
        shard.take_buf(bytes).expect("memory")
    }

    fn keep(&mut self, request: Request<'_>) {
        let bytes = request
            .payload
            .source()
            .map_or_else(Vec::new, <[u8]>::to_vec);
        let Request {
            operation,
            lba,
            blocks,
            token: caller,
            payload,
        } = request;
        let buf = match payload {
            Payload::Owned(buf) => Some(buf),
            _ => None,
        };
        self.kept.push(Kept {
            operation,
            lba,
            blocks,
            caller,
            bytes,
            buf,
        });
        self.orders.change(|state| state.kept += 1);
    }

    /// Carries out the kept requests. The RAM disk answers at once.
    fn release(&mut self, shard: &mut Shard) {
        let all = std::mem::take(&mut self.kept);
        self.orders.change(|state| state.kept -= all.len());
        for kept in all {
            let payload = match kept.operation {
                Operation::Read => kept.buf.map_or(Payload::Lend, Payload::Owned),
                Operation::Write { .. } => Payload::Borrowed(&kept.bytes),
                _ => Payload::None,
            };
            let request = Request {
                operation: kept.operation,
                lba: kept.lba,
                blocks: kept.blocks,
                payload,
                token: Token {
                    task: self.id,
                    slot: 0,
                },
            };
            let Submit::Done(status, loan) = self.inner.submit(shard, request) else {
                unreachable!("a RAM disk answers at once")
            };
            let result = status.to_result();
            shard.complete(kept.caller, Completion { result, loan });
        }
    }
}

impl Task for Keeper {
    fn completed(&mut self, _: &mut Shard, _: u32, _: Completion) {}

    fn message(&mut self, shard: &mut Shard, message: Box<dyn Any + Send>) {
        assert!(message.is::<Release>(), "told to release only");
        self.release(shard);
    }
}
