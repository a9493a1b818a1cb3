//! What one connection's queues have in common on the shard: the disk, the guest's memory, and
//! orders that wait until nothing is in progress.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::os::unix::net::UnixStream;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc::SyncSender;

use fabrix_block::Device;
use fabrix_proto::virtio::blk::ID_BYTES;
use fabrix_proto::virtio::vhost_user::{QUEUES_MAX, Start};
use fabrix_rt::{Completion, File, Loan, Shard, Task, TaskId, Token, counter};

use super::inflight::Inflight;
use super::memory::GuestMemory;
use super::ring::Ring;
use crate::lane::Lane;
use crate::{BeginError, Tell, Told};

/// What the thread of a connection wants; each is answered, with a queue's next entry where one
/// ends.
pub(super) enum Order {
    /// A connection begins. Who breaks the rules is cut off at this socket.
    Join(UnixStream),
    Memory(Arc<GuestMemory>),
    /// What is in progress is recorded here, in queues that begin from now on.
    Inflight(Arc<Inflight>),
    Start(usize, Start, std::fs::File),
    Stop(usize),
    Enable(usize, bool),
    Call(usize, Option<std::fs::File>),
    Writeback(bool),
    /// The connection is over.
    Leave,
    /// The disk has another size.
    Resized(Arc<dyn Device>),
    /// The front end is over.
    Close,
}

/// An order and who waits for it.
pub(super) struct Asked {
    pub(super) order: Order,
    pub(super) answer: SyncSender<Result<u16, &'static str>>,
}

impl Order {
    /// Whether nothing may be in progress meanwhile.
    fn needs_quiet(&self) -> bool {
        matches!(self, Self::Memory(_) | Self::Stop(_) | Self::Leave)
    }
}

/// What queues see of the hub.
pub(super) struct Common {
    pub(super) lane: Lane,
    hub: TaskId,
    memory: RefCell<Option<Arc<GuestMemory>>>,
    inflight: RefCell<Option<Arc<Inflight>>>,
    calls: RefCell<[Option<File>; QUEUES_MAX]>,
    identity: [u8; ID_BYTES],
    writeback: Cell<bool>,
    /// Requests that the disk has, or has no room for.
    in_progress: Cell<usize>,
    /// No queue takes anything: an order waits.
    paused: Cell<bool>,
    /// No queue takes anything: the guest has broken the rules.
    is_broken: Cell<bool>,
    /// An order waits until nothing is in progress.
    awaited: Cell<bool>,
    socket: RefCell<Option<UnixStream>>,
    tell: Tell,
}

impl Common {
    pub(super) fn memory(&self) -> Option<Arc<GuestMemory>> {
        self.memory.borrow().clone()
    }

    pub(super) fn inflight(&self) -> Option<Arc<Inflight>> {
        self.inflight.borrow().clone()
    }

    pub(super) fn identity(&self) -> &[u8; ID_BYTES] {
        &self.identity
    }

    pub(super) fn is_writeback(&self) -> bool {
        self.writeback.get()
    }

    pub(super) fn is_paused(&self) -> bool {
        self.paused.get() || self.is_broken.get()
    }

    /// A request is kept: the disk has it, or has no room for it.
    pub(super) fn kept(&self) {
        self.in_progress.set(self.in_progress.get() + 1);
    }

    /// A request that was kept goes on.
    pub(super) fn goes_on(&self) {
        self.in_progress.set(self.in_progress.get() - 1);
    }

    pub(super) fn call(&self, ring: usize) {
        if let Some(call) = &self.calls.borrow()[ring] {
            counter::ring(call);
        }
    }

    /// The guest has broken the rules: nothing more is taken from it, and its connection is cut.
    pub(super) fn broken(&self, sentence: &'static str) {
        self.is_broken.set(true);
        if let Some(socket) = self.socket.borrow_mut().take() {
            (self.tell)(Told::Violation(sentence.to_owned()));
            let _it_has_gone = socket.shutdown(std::net::Shutdown::Both);
        }
    }

    /// Lets the order go on that waits for quiet.
    pub(super) fn rest_if_quiet(&self, shard: &mut Shard) {
        if self.in_progress.get() == 0 && self.awaited.take() {
            let token = Token {
                task: self.hub,
                slot: QUIET,
            };
            let nothing = Completion {
                result: 0,
                loan: Loan::None,
            };
            shard.complete(token, nothing);
        }
    }
}

pub(super) struct Hub {
    task: TaskId,
    common: Rc<Common>,
    rings: [Option<(TaskId, Rc<RefCell<Ring>>)>; QUEUES_MAX],
    waiting: Option<Asked>,
}

impl Hub {
    pub(super) fn open(
        shard: &mut Shard,
        device: Arc<dyn Device>,
        tell: Tell,
    ) -> Result<TaskId, BeginError> {
        let identity = identity(&*device);
        let lane = Lane::open(shard, device).map_err(|error| BeginError(error.to_string()))?;
        let task = shard.reserve();
        let hub = Self {
            task,
            common: Rc::new(Common {
                lane,
                hub: task,
                memory: RefCell::new(None),
                inflight: RefCell::new(None),
                calls: RefCell::default(),
                identity,
                writeback: Cell::new(true),
                in_progress: Cell::new(0),
                paused: Cell::new(false),
                is_broken: Cell::new(false),
                awaited: Cell::new(false),
                socket: RefCell::new(None),
                tell,
            }),
            rings: [const { None }; QUEUES_MAX],
            waiting: None,
        };
        shard.install(task, Rc::new(RefCell::new(hub)));
        Ok(task)
    }

    fn perform(&mut self, shard: &mut Shard, asked: Asked) {
        let done = self.order(shard, asked.order);
        // Who waits for it may have given up.
        let _nobody_waits = asked.answer.send(done);
        self.common.paused.set(false);
        for (task, _) in self.rings.iter().flatten() {
            shard.flush_later(*task);
        }
    }

    fn order(&mut self, shard: &mut Shard, order: Order) -> Result<u16, &'static str> {
        let common = &self.common;
        match order {
            Order::Join(socket) => {
                common.socket.replace(Some(socket));
            }
            Order::Memory(memory) => drop(common.memory.replace(Some(memory))),
            Order::Inflight(record) => drop(common.inflight.replace(Some(record))),
            Order::Start(index, start, kick) => {
                let begun = Ring::begin(shard, common, index, &start, kick)?;
                self.rings[index] = Some(begun);
            }
            Order::Stop(index) => return Ok(self.stop(shard, index)),
            Order::Enable(index, on) => {
                if let Some((_, ring)) = &self.rings[index] {
                    ring.borrow_mut().enable(on);
                }
            }
            Order::Call(index, counter) => {
                common.calls.borrow_mut()[index] = counter.map(File::from);
                // Whoever gave something back last may have died before it called.
                if self.rings[index].is_some() {
                    common.call(index);
                }
            }
            Order::Writeback(on) => common.writeback.set(on),
            Order::Leave => self.leave(shard),
            Order::Resized(device) => {
                let replaced = common.lane.replace(shard, device);
                replaced.map_err(|_| "the disk cannot be opened in its new size")?;
            }
            Order::Close => shard.remove(self.task),
        }
        Ok(0)
    }

    fn stop(&mut self, shard: &mut Shard, index: usize) -> u16 {
        let Some((task, ring)) = self.rings[index].take() else {
            return 0;
        };
        shard.remove(task);
        let ring = ring.borrow();
        ring.next_available()
    }

    fn leave(&mut self, shard: &mut Shard) {
        for index in 0..QUEUES_MAX {
            self.stop(shard, index);
        }
        let common = &self.common;
        common.calls.replace(Default::default());
        drop(common.memory.take());
        drop(common.inflight.take());
        drop(common.socket.take());
        common.is_broken.set(false);
    }
}

impl Task for Hub {
    fn completed(&mut self, shard: &mut Shard, _slot: u32, _completion: Completion) {
        if let Some(asked) = self.waiting.take() {
            self.perform(shard, asked);
        }
    }

    fn message(&mut self, shard: &mut Shard, message: Box<dyn Any + Send>) {
        let Ok(asked) = message.downcast::<Asked>() else {
            return debug_assert!(false, "a hub is told orders only");
        };
        if asked.order.needs_quiet() && self.common.in_progress.get() > 0 {
            self.common.paused.set(true);
            self.common.awaited.set(true);
            self.waiting = Some(*asked);
            return;
        }
        self.perform(shard, *asked);
    }
}

/// The disk's serial number, as far as there is room for it.
fn identity(device: &dyn Device) -> [u8; ID_BYTES] {
    let mut identity = [0; ID_BYTES];
    let serial = device.identity().serial.as_bytes();
    let bytes = serial.len().min(ID_BYTES);
    identity[..bytes].copy_from_slice(&serial[..bytes]);
    identity
}

const QUIET: u32 = 0;
