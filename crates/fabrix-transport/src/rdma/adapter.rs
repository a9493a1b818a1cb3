//! A device as one shard uses it: the shard's memory, registered, and its completion queues.

use std::cell::RefCell;
use std::io;
use std::rc::{Rc, Weak};
use std::sync::Arc;

use fabrix_rt::{Completion, Shard, Task, TaskId, Token};
use sys_rdma::{CompletionQueue, Device, EventChannel, Id, ShardMemory};

use super::hub::Inner;

/// A device as one shard uses it.
pub(super) struct Adapter {
    device: Arc<Device>,
    memory: Rc<ShardMemory>,
    queues: Vec<Queue>,
    /// Tells when the device goes away, also when no connection uses it.
    _watch: Id,
}

struct Queue {
    completions: Rc<CompletionQueue>,
    /// The task that takes its completions.
    task: TaskId,
}

impl Adapter {
    /// Registers the memory of a shard with a device. `key`: that of the events about the device.
    ///
    /// Errors: `OutOfMemory` above the limit of locked memory, and what the device says.
    pub(super) fn new(
        shard: &mut Shard,
        channel: &EventChannel,
        device: &Arc<Device>,
        key: usize,
    ) -> io::Result<Self> {
        Ok(Self {
            _watch: Id::watch(channel, key, device)?,
            memory: ShardMemory::new(shard, device)?,
            queues: Vec::new(),
            device: Arc::clone(device),
        })
    }

    pub(super) fn is_of(&self, device: &Arc<Device>) -> bool {
        Arc::ptr_eq(&self.device, device)
    }

    pub(super) fn memory(&self) -> Rc<ShardMemory> {
        Rc::clone(&self.memory)
    }

    /// A completion queue with so many free entries. There is another one when all others are full.
    /// Those that no connection uses any more are given back.
    ///
    /// Errors: what the device says.
    pub(super) fn completions(
        &mut self,
        shard: &mut Shard,
        entries: u32,
        hub: &Weak<RefCell<Inner>>,
    ) -> io::Result<Rc<CompletionQueue>> {
        let mut queues = self.queues.iter();
        let roomy = queues.position(|queue| queue.completions.free_entries() >= entries);
        if let Some(first) = roomy.map(|index| self.queues.swap_remove(index)) {
            self.drop_idle(shard);
            let completions = Rc::clone(&first.completions);
            self.queues.push(first);
            return Ok(completions);
        }
        self.drop_idle(shard);
        let completions = CompletionQueue::new(&self.device, entries.max(ENTRIES))?;
        let task = shard.add(Rc::new(RefCell::new(Arrivals {
            completions: Rc::clone(&completions),
            hub: Weak::clone(hub),
        })));
        let poller = Rc::clone(&completions);
        if let Err(error) = shard.add_poller(Token { task, slot: 0 }, poller) {
            shard.remove(task);
            return Err(error);
        }
        self.queues.push(Queue {
            completions: Rc::clone(&completions),
            task,
        });
        Ok(completions)
    }

    fn drop_idle(&mut self, shard: &mut Shard) {
        let is_idle = |queue: &mut Queue| queue.completions.is_idle();
        for queue in self.queues.extract_if(.., is_idle) {
            shard.remove(queue.task);
        }
    }

    /// The device goes away: nothing of it may stay.
    pub(super) fn remove(self, shard: &mut Shard) {
        for queue in &self.queues {
            shard.remove(queue.task);
        }
    }
}

/// The task of a completion queue. It tells connections that they have completions to take.
struct Arrivals {
    completions: Rc<CompletionQueue>,
    hub: Weak<RefCell<Inner>>,
}

impl Task for Arrivals {
    fn completed(&mut self, shard: &mut Shard, _: u32, _: Completion) {
        let Some(hub) = self.hub.upgrade() else {
            return;
        };
        let mut hub = hub.borrow_mut();
        loop {
            match self.completions.next_ready() {
                Ok(Some(key)) => hub.ready(shard, key),
                Ok(None) => return,
                Err(error) => return hub.queue_failed(shard, &self.completions, &error),
            }
        }
    }
}

/// Entries of a completion queue: those of about eight connections.
const ENTRIES: u32 = 4096;
