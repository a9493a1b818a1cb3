//! A simulated disk with a volatile cache: every request takes effect at one instant between its
//! submission and its end, and both instants are choices.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use fabrix_block::{
    Channel, Deallocate, Device, Durability, Geometry, Identity, OpenError, Operation, Payload,
    Request, Status, Submit,
};
use fabrix_rt::{Buf, Completion, Loan, Shard, Task, TaskId, Token};

use crate::backing::{self, Backing};
use crate::choices::Choices;
use crate::images::{BLOCK_BYTES, Images, Place, Write};
use crate::trace::{self, Entry};
use crate::workload;

/// How the disk of a world behaves.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DiskHabits {
    /// Blocks of the disk.
    pub(crate) blocks: u64,
    /// Most time that a request takes.
    pub(crate) longest: Duration,
    /// Whether a loss of power may take answered writes that no flush has followed.
    pub(crate) volatile_cache: bool,
    /// What a deallocated block holds.
    pub(crate) deallocate: Deallocate,
}

impl DiskHabits {
    /// Habits of a seed.
    pub(crate) fn draw(blocks: u64, choices: &mut Choices) -> Self {
        Self {
            blocks,
            longest: backing::longest(choices),
            volatile_cache: !choices.once_in(4),
            deallocate: choices.one_of(&[Deallocate::Zeroes, Deallocate::Undefined]),
        }
    }
}

/// A disk of a world.
pub(crate) struct SimDisk {
    geometry: Geometry,
    identity: Identity,
    state: Arc<Mutex<State>>,
}

struct State {
    images: Images,
    habits: DiskHabits,
    choices: Choices,
    next_channel: u64,
}

impl SimDisk {
    /// A disk of zeroes.
    pub(crate) fn new(habits: DiskHabits, choices: Choices) -> Arc<Self> {
        let mut geometry = Geometry::new(BLOCK_BYTES, habits.blocks);
        geometry.volatile_cache = habits.volatile_cache;
        geometry.durability = Durability::Device;
        geometry.deallocate = habits.deallocate;
        let bytes = usize::try_from(geometry.bytes()).expect("a small disk");
        Arc::new(Self {
            geometry,
            identity: Identity::derive("simulated", "simulated", "Simulated disk"),
            state: Arc::new(Mutex::new(State {
                images: Images::new(bytes),
                habits,
                choices,
                next_channel: 0,
            })),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no panic in a disk")
    }
}

impl Backing for Arc<SimDisk> {
    fn open(&self) -> Arc<dyn Device> {
        Self::clone(self) as _
    }

    fn image(&self) -> Vec<u8> {
        self.state().images.seen().to_vec()
    }

    fn lose_power(&self) {
        let state = &mut *self.state();
        state.images.lose_power(&mut state.choices);
    }
}

impl Device for SimDisk {
    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn identity(&self) -> &Identity {
        &self.identity
    }

    fn open(&self, shard: &mut Shard) -> Result<Box<dyn Channel>, OpenError> {
        let task = shard.reserve();
        let mut state = self.state();
        state.next_channel += 1;
        let requests = Rc::new(RefCell::new(Requests {
            task,
            channel: state.next_channel,
            state: Arc::clone(&self.state),
            slots: Vec::new(),
        }));
        drop(state);
        shard.install(task, Rc::clone(&requests) as Rc<RefCell<_>>);
        Ok(Box::new(SimChannel {
            requests,
            geometry: self.geometry.clone(),
        }))
    }
}

struct SimChannel {
    requests: Rc<RefCell<Requests>>,
    geometry: Geometry,
}

/// The requests of a channel in progress.
struct Requests {
    task: TaskId,
    /// Number of the channel. No other channel of the disk has it.
    channel: u64,
    state: Arc<Mutex<State>>,
    slots: Vec<Option<Pending>>,
}

struct Pending {
    token: Token,
    operation: Operation,
    start: usize,
    bytes: usize,
    /// The bytes of the request: where a read goes, or what a write has.
    buf: Option<Buf>,
    ends_after: Duration,
    ended: Option<Status>,
}

impl Channel for SimChannel {
    fn submit<'a>(&mut self, shard: &mut Shard, request: Request<'a>) -> Submit<'a> {
        if let Some(status) = request.refusal(&self.geometry) {
            return request.done(status);
        }
        let bytes = usize::try_from(request.bytes(&self.geometry)).expect("a transfer");
        let start = usize::try_from(self.geometry.offset(request.lba)).expect("a small disk");
        let may_keep = self.geometry.deallocate != Deallocate::Zeroes;
        let write = source(&request, bytes).map(|source| Write {
            start,
            source,
            is_a_hint: may_keep && request.operation == Operation::Deallocate,
        });
        let buf = match request.payload {
            Payload::Owned(buf) => Some(buf),
            Payload::Lend => match shard.take_buf(bytes) {
                Some(buf) => Some(buf),
                None => return Submit::Done(Status::NotReady, Loan::None),
            },
            _ => None,
        };
        let pending = Pending {
            token: request.token,
            operation: request.operation,
            start,
            bytes,
            buf,
            ends_after: Duration::ZERO,
            ended: None,
        };
        self.requests.borrow_mut().begin(shard, pending, write);
        Submit::Pending
    }
}

/// What a request writes, if it writes anything.
fn source(request: &Request<'_>, bytes: usize) -> Option<Vec<u8>> {
    match request.operation {
        Operation::Write { .. } => {
            let source = request.payload.source();
            Some(source.expect("a write has a source")[..bytes].to_vec())
        }
        Operation::WriteZeroes { .. } | Operation::Deallocate => Some(vec![0; bytes]),
        Operation::Read | Operation::Flush | Operation::CompareAndWrite { .. } => None,
    }
}

impl Requests {
    fn begin(&mut self, shard: &mut Shard, mut pending: Pending, write: Option<Write>) {
        let slot = self.slots.iter().position(Option::is_none);
        let slot = slot.unwrap_or(self.slots.len());
        let mut state = self.state.lock().expect("no panic in a disk");
        if let Some(write) = write {
            state.images.begin((self.channel, slot), write);
        }
        let longest = u64::try_from(state.habits.longest.as_nanos()).expect("a short time");
        let whole = state.choices.below(longest + 1);
        let first = state.choices.below(whole + 1);
        drop(state);
        pending.ends_after = Duration::from_nanos(whole - first);
        match self.slots.get_mut(slot) {
            Some(free) => *free = Some(pending),
            None => self.slots.push(Some(pending)),
        }
        self.wait(shard, slot, Duration::from_nanos(first));
    }

    fn wait(&self, shard: &mut Shard, slot: usize, time: Duration) {
        let token = Token {
            task: self.task,
            slot: u32::try_from(slot).expect("few requests"),
        };
        let at = shard.now() + time;
        shard.set_timer(token, at);
    }
}

impl Task for Requests {
    fn completed(&mut self, _shard: &mut Shard, _slot: u32, _completion: Completion) {
        unreachable!("the disk starts no operations");
    }

    /// The request takes effect, or it ends.
    fn expired(&mut self, shard: &mut Shard, slot: u32) {
        let slot = usize::try_from(slot).expect("an index");
        let pending = self.slots[slot].as_mut().expect("a timer of a request");
        if let Some(status) = pending.ended {
            let pending = self.slots[slot].take().expect("it is there");
            let completion = Completion {
                result: status.to_result(),
                loan: pending.buf.map_or(Loan::None, Loan::Buf),
            };
            return shard.complete(pending.token, completion);
        }
        let mut state = self.state.lock().expect("no panic in a disk");
        let status = state.take_effect(pending, (self.channel, slot));
        pending.ended = Some(status);
        trace::note(|| pending.entry(state.images.seen()).status(status));
        drop(state);
        let left = pending.ends_after;
        self.wait(shard, slot, left);
    }
}

/// The process of the channel has ended: its requests never take effect.
impl Drop for Requests {
    fn drop(&mut self) {
        let mut state = self.state.lock().expect("no panic in a disk");
        state.images.forget(self.channel);
    }
}

impl Pending {
    /// The request has taken effect on what reads see.
    fn entry(&self, seen: &[u8]) -> Entry {
        let block = |bytes: usize| bytes as u64 / u64::from(BLOCK_BYTES);
        let blocks = block(self.start)..block(self.start + self.bytes);
        let bytes = &seen[self.start..self.start + self.bytes];
        let values = workload::values(bytes, blocks.clone()).unwrap_or_default();
        let what = format!("carries out a {}", self.operation.word());
        Entry::new("disk", what).blocks(blocks).values(&values)
    }
}

impl State {
    fn take_effect(&mut self, pending: &mut Pending, place: Place) -> Status {
        match pending.operation {
            Operation::Read => {
                let buf = pending.buf.as_mut().expect("a read has a buffer");
                let range = pending.start..pending.start + pending.bytes;
                buf.bytes_mut()[..pending.bytes].copy_from_slice(&self.images.seen()[range]);
            }
            Operation::Write { .. } | Operation::WriteZeroes { .. } | Operation::Deallocate => {
                let changed = self
                    .images
                    .take_effect(place, pending.bytes, &mut self.choices);
                if pending.operation.promises_durability() || !self.habits.volatile_cache {
                    self.images.write_back(changed);
                }
            }
            Operation::Flush => self.images.write_back(self.images.whole()),
            Operation::CompareAndWrite { .. } => return Status::Unsupported,
        }
        Status::Ok
    }
}
