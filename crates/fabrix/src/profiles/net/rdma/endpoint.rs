//! What both ends share: the channel of the connection manager, and the completion queue of a
//! device with the memory of its shard.

use std::cell::RefCell;
use std::io;
use std::rc::Rc;
use std::sync::Arc;

use fabrix_rt::{
    Completion, Engine, File, Op, Shard, ShardConfig, SpinPolicy, Task, TaskId, Token,
};
use sys_rdma::{
    CompletionQueue, Device, Event, EventChannel, Id, QueuePair, QueueSizes, ShardMemory,
};

/// Slot of the connection manager's events.
pub(super) const EVENTS: u32 = 0;
/// Slot of completions.
pub(super) const COMPLETIONS: u32 = 1;
/// Slot of the clock.
pub(super) const CLOCK: u32 = 2;

/// A shard for RDMA connections, with at most so many bytes of buffers.
///
/// Errors: the system refuses something that a shard needs, in words.
pub(super) fn shard(arena_bytes: usize, spin: SpinPolicy) -> Result<Shard, String> {
    let config = ShardConfig {
        engine: Engine::Auto,
        arena_bytes,
        spin,
        ..ShardConfig::default()
    };
    Shard::new(config).map_err(|error| error.to_string())
}

/// The channel of the connection manager's events, as a shard waits for it.
pub(super) struct Events {
    channel: EventChannel,
    /// A second descriptor of the channel.
    readable: File,
}

impl Events {
    /// Opens the RDMA libraries and a channel.
    ///
    /// Errors: a sentence that says what this machine lacks.
    pub(super) fn open() -> Result<Self, String> {
        let channel = EventChannel::new().map_err(|refused| refused.to_string())?;
        let descriptor = channel.descriptor().map_err(|error| error.to_string())?;
        Ok(Self {
            channel,
            readable: File::from(std::fs::File::from(descriptor)),
        })
    }

    /// A new id, whose events have this key.
    pub(super) fn id(&self, key: usize) -> io::Result<Id> {
        Id::new(&self.channel, key)
    }

    /// Tells `task` when there is an event. To be called again when all events are taken.
    pub(super) fn wait(&self, shard: &mut Shard, task: TaskId) {
        let file = self.readable.clone();
        shard.start(Token { task, slot: EVENTS }, Op::Readable { file });
    }

    /// The next event.
    pub(super) fn take(&self) -> io::Result<Option<Event>> {
        self.channel.take()
    }
}

/// A device as the connections of one shard use it.
pub(super) struct Nic {
    device: Arc<Device>,
    completions: Rc<CompletionQueue>,
    memory: Rc<ShardMemory>,
    /// Task of the completion queue. It is removed with the device.
    task: TaskId,
}

/// Passes completions on to the task of the connections.
struct Arrivals(Rc<RefCell<dyn Task>>);

impl Task for Arrivals {
    fn completed(&mut self, shard: &mut Shard, _: u32, completion: Completion) {
        self.0
            .borrow_mut()
            .completed(shard, COMPLETIONS, completion);
    }
}

impl Nic {
    /// A completion queue with room for `entries` requests. `owner` hears of completions.
    ///
    /// Errors: what the device says, `OutOfMemory` above the limit of locked memory.
    pub(super) fn new(
        shard: &mut Shard,
        device: &Arc<Device>,
        owner: TaskId,
        entries: u32,
    ) -> io::Result<Self> {
        let memory = ShardMemory::new(shard, device)?;
        let completions = CompletionQueue::new(device, entries)?;
        let owner = shard.task(owner).expect("the owner calls this function");
        let task = shard.add(Rc::new(RefCell::new(Arrivals(owner))));
        shard.add_poller(Token { task, slot: 0 }, completions.clone())?;
        Ok(Self {
            device: Arc::clone(device),
            completions,
            memory,
            task,
        })
    }

    /// The device.
    pub(super) fn device(&self) -> &Arc<Device> {
        &self.device
    }

    /// A queue pair with all its receives posted.
    ///
    /// Errors: as of [`QueuePair::new`] and [`QueuePair::add_receives`].
    pub(super) fn queue(
        &self,
        shard: &mut Shard,
        id: Id,
        key: usize,
        sizes: &QueueSizes,
    ) -> io::Result<QueuePair> {
        let mut queue = QueuePair::new(id, shard, &self.completions, &self.memory, key, sizes)?;
        queue.add_receives(shard)?;
        (0..sizes.receives).for_each(|slot| queue.post_receive(slot));
        queue.flush()?;
        Ok(queue)
    }

    /// Key of a queue pair with news, as of [`CompletionQueue::next_ready`].
    pub(super) fn next_ready(&self) -> io::Result<Option<usize>> {
        self.completions.next_ready()
    }

    /// Ends the task of the completion queue.
    pub(super) fn close(self, shard: &mut Shard) {
        shard.remove(self.task);
    }
}

/// No RDMA device has the address of loopback.
pub(super) const NOT_OVER_LOOPBACK: &str = "RDMA does not run over loopback";
/// Longest message that is copied. Longer ones go out of the buffer in which they are.
pub(super) const COPIED_MOST: u32 = 256;
