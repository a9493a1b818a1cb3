//! State shared by the queues of one connection on the shard: the disk, the guest's memory, and an
//! order that waits until no request is in progress.

mod ring;

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
use crate::disk_channel::DiskChannel;
use crate::{BeginError, EventHandler, FrontEndEvent};
use ring::Ring;

/// An order from the connection's thread. Every order is answered; the answer to `Stop` holds the
/// queue's next available index.
pub(super) enum Order {
    /// A connection starts. A guest that breaks the protocol is disconnected through this socket.
    Join(UnixStream),
    Memory(Arc<GuestMemory>),
    /// Record of requests in progress, for queues that start from now on.
    Inflight(Arc<Inflight>),
    Start(usize, Start, std::fs::File),
    Stop(usize),
    Enable(usize, bool),
    Call(usize, Option<std::fs::File>),
    Writeback(bool),
    /// The connection has ended.
    Leave,
    /// The disk has a new size.
    Resized(Arc<dyn Device>),
    /// The front end ends.
    Close,
}

/// An order and the channel for its answer.
pub(super) struct PendingOrder {
    pub(super) order: Order,
    pub(super) answer: SyncSender<Result<u16, &'static str>>,
}

impl Order {
    /// Whether no request may be in progress during the order.
    fn needs_idle(&self) -> bool {
        matches!(self, Self::Memory(_) | Self::Stop(_) | Self::Leave)
    }
}

/// State shared with the queues.
pub(super) struct Common {
    pub(super) channel: DiskChannel,
    hub: TaskId,
    memory: RefCell<Option<Arc<GuestMemory>>>,
    inflight: RefCell<Option<Arc<Inflight>>>,
    calls: RefCell<[Option<File>; QUEUES_MAX]>,
    identity: [u8; ID_BYTES],
    writeback: Cell<bool>,
    /// Number of requests at the disk or stalled.
    in_progress: Cell<usize>,
    /// Whether the queues accept no requests because an order waits.
    paused: Cell<bool>,
    /// Whether the queues accept no requests because the guest broke the protocol.
    is_broken: Cell<bool>,
    /// Whether an order waits until no request is in progress.
    awaited: Cell<bool>,
    socket: RefCell<Option<UnixStream>>,
    on_event: EventHandler,
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

    /// Counts a request that went to the disk or was stalled.
    pub(super) fn request_kept(&self) {
        self.in_progress.set(self.in_progress.get() + 1);
    }

    /// Uncounts such a request when its processing continues.
    pub(super) fn request_resumed(&self) {
        self.in_progress.set(self.in_progress.get() - 1);
    }

    pub(super) fn call(&self, ring: usize) {
        if let Some(call) = &self.calls.borrow()[ring] {
            counter::ring(call);
        }
    }

    /// Disconnects a guest that broke the protocol, and accepts no more requests from it.
    pub(super) fn disconnect_violator(&self, sentence: &'static str) {
        self.is_broken.set(true);
        if let Some(socket) = self.socket.borrow_mut().take() {
            (self.on_event)(FrontEndEvent::Violation(sentence.to_owned()));
            let _it_has_gone = socket.shutdown(std::net::Shutdown::Both);
        }
    }

    /// Executes the waiting order if no request is in progress.
    pub(super) fn execute_order_if_idle(&self, shard: &mut Shard) {
        if self.in_progress.get() == 0 && self.awaited.take() {
            let token = Token {
                task: self.hub,
                slot: IDLE,
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
    waiting: Option<PendingOrder>,
}

impl Hub {
    pub(super) fn open(
        shard: &mut Shard,
        device: Arc<dyn Device>,
        on_event: EventHandler,
    ) -> Result<TaskId, BeginError> {
        let identity = identity(&*device);
        let channel = DiskChannel::open(shard, device)?;
        let task = shard.reserve();
        let hub = Self {
            task,
            common: Rc::new(Common {
                channel,
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
                on_event,
            }),
            rings: [const { None }; QUEUES_MAX],
            waiting: None,
        };
        shard.install(task, Rc::new(RefCell::new(hub)));
        Ok(task)
    }

    fn perform(&mut self, shard: &mut Shard, pending: PendingOrder) {
        let done = self.order(shard, pending.order);
        // The receiver may have stopped waiting.
        let _nobody_waits = pending.answer.send(done);
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
                // A previous process may have died between returning a request and notifying the
                // guest.
                if self.rings[index].is_some() {
                    common.call(index);
                }
            }
            Order::Writeback(on) => common.writeback.set(on),
            Order::Leave => self.reset(shard),
            Order::Resized(device) => {
                let replaced = common.channel.replace(shard, device);
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

    fn reset(&mut self, shard: &mut Shard) {
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
        if let Some(pending) = self.waiting.take() {
            self.perform(shard, pending);
        }
    }

    fn message(&mut self, shard: &mut Shard, message: Box<dyn Any + Send>) {
        let Ok(pending) = message.downcast::<PendingOrder>() else {
            return debug_assert!(false, "a hub is told orders only");
        };
        if pending.order.needs_idle() && self.common.in_progress.get() > 0 {
            self.common.paused.set(true);
            self.common.awaited.set(true);
            self.waiting = Some(*pending);
            return;
        }
        self.perform(shard, *pending);
    }
}

/// The disk's serial number, cut to the available length.
fn identity(device: &dyn Device) -> [u8; ID_BYTES] {
    let mut identity = [0; ID_BYTES];
    let serial = device.identity().serial.as_bytes();
    let bytes = serial.len().min(ID_BYTES);
    identity[..bytes].copy_from_slice(&serial[..bytes]);
    identity
}

const IDLE: u32 = 0;
