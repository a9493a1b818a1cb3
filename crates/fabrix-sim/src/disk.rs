//! A simulated disk with a volatile cache: every request takes effect at one instant between its
//! submission and its end, and both instants are choices.

use std::cell::RefCell;
use std::ops::Range;
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
use crate::disk_faults::DiskFaults;
use crate::images::{BLOCK, BLOCK_BYTES, Images, Place, Write};
use crate::trace::{self, Entry};
use crate::workload;

/// How the disk of a world behaves.
#[derive(Clone, Debug)]
pub(crate) struct DiskHabits {
    /// Blocks of the disk.
    pub(crate) blocks: u64,
    /// Most time that a request takes.
    pub(crate) longest: Duration,
    /// Whether a loss of power may take answered writes that no flush has followed.
    pub(crate) volatile_cache: bool,
    /// What a deallocated block holds.
    pub(crate) deallocate: Deallocate,
    /// Whether some requests end when they are submitted.
    pub(crate) ends_at_once: bool,
    /// How the disk fails.
    pub(crate) faults: DiskFaults,
}

impl DiskHabits {
    /// Habits of a disk that does not fail.
    pub(crate) fn draw(blocks: u64, choices: &mut Choices) -> Self {
        Self {
            blocks,
            longest: backing::longest(choices),
            volatile_cache: !choices.once_in(4),
            deallocate: choices.one_of(&[Deallocate::Zeroes, Deallocate::Undefined]),
            ends_at_once: choices.once_in(3),
            faults: DiskFaults::default(),
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
    /// A flush has failed: none is believed until the power fails, and everything is read again.
    is_degraded: bool,
}

impl SimDisk {
    /// A disk of zeroes.
    pub(crate) fn new(habits: DiskHabits, choices: Choices) -> Arc<Self> {
        Self::named("simulated", habits, choices)
    }

    /// A disk of zeroes, whose identity is derived from a name.
    pub(crate) fn named(name: &str, habits: DiskHabits, choices: Choices) -> Arc<Self> {
        let mut geometry = Geometry::new(BLOCK_BYTES, habits.blocks);
        geometry.volatile_cache = habits.volatile_cache;
        geometry.durability = Durability::Device;
        geometry.deallocate = habits.deallocate;
        let bytes = usize::try_from(geometry.bytes()).expect("a small disk");
        Arc::new(Self {
            geometry,
            identity: Identity::derive("simulated", name, "Simulated disk"),
            state: Arc::new(Mutex::new(State {
                images: Images::new(bytes),
                habits,
                choices,
                next_channel: 0,
                is_degraded: false,
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
        state.is_degraded = false;
    }
}

impl Device for SimDisk {
    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn identity(&self) -> &Identity {
        &self.identity
    }

    /// A smaller disk loses what is behind its end. A larger one has zeroes there.
    fn resize(&self, bytes: Option<u64>) -> Result<Arc<dyn Device>, OpenError> {
        let mut state = self.state();
        if let Some(bytes) = bytes {
            let bytes = usize::try_from(bytes).expect("a small disk");
            state.images.resize(bytes);
        }
        let mut geometry = self.geometry.clone();
        geometry.blocks = state.images.whole().end as u64 / u64::from(BLOCK_BYTES);
        Ok(Arc::new(Self {
            geometry,
            identity: self.identity.clone(),
            state: Arc::clone(&self.state),
        }))
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
    /// Its bytes on the disk.
    range: Range<usize>,
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
        let mut requests = self.requests.borrow_mut();
        match requests.first_answer() {
            First::Taken => {}
            First::Busy => return Submit::Busy(request),
            First::NoMemory => return request.done(Status::NotReady),
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
            range: start..start + bytes,
            buf,
            ends_after: Duration::ZERO,
            ended: None,
        };
        match requests.begin(shard, pending, write) {
            None => Submit::Pending,
            Some((status, loan)) => Submit::Done(status, loan),
        }
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

/// What a channel answers before it looks at a request.
enum First {
    Taken,
    Busy,
    NoMemory,
}

impl Requests {
    fn first_answer(&self) -> First {
        let state = &mut *self.state.lock().expect("no panic in a disk");
        let (faults, choices) = (&state.habits.faults, &mut state.choices);
        // After `Busy` the caller waits for the end of a request.
        let has_requests = self.slots.iter().any(Option::is_some);
        if has_requests && faults.is_busy && choices.once_in(3) {
            return First::Busy;
        }
        match choices.below(1000) < faults.without_memory {
            true => First::NoMemory,
            false => First::Taken,
        }
    }

    /// Begins a request. Some: it has ended.
    fn begin(
        &mut self,
        shard: &mut Shard,
        mut pending: Pending,
        write: Option<Write>,
    ) -> Option<(Status, Loan)> {
        let slot = self.slots.iter().position(Option::is_none);
        let slot = slot.unwrap_or(self.slots.len());
        let place = (self.channel, slot);
        let mut guard = self.state.lock().expect("no panic in a disk");
        let state = &mut *guard;
        if let Some(write) = write {
            state.images.begin(place, write);
        }
        if state.habits.ends_at_once && state.choices.once_in(2) {
            let status = state.take_effect(&mut pending, place);
            return Some((status, pending.buf.map_or(Loan::None, Loan::Buf)));
        }
        let longest = u64::try_from(state.habits.longest.as_nanos()).expect("a short time");
        let whole = Duration::from_nanos(state.choices.below(longest + 1));
        let faults = &state.habits.faults;
        let whole = whole + faults.hang(&mut state.choices, pending.operation);
        let nanos = u64::try_from(whole.as_nanos()).expect("a short time");
        let first = Duration::from_nanos(state.choices.below(nanos + 1));
        drop(guard);
        pending.ends_after = whole - first;
        match self.slots.get_mut(slot) {
            Some(free) => *free = Some(pending),
            None => self.slots.push(Some(pending)),
        }
        self.wait(shard, slot, first);
        None
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
    /// Its blocks.
    fn blocks(&self) -> Range<u64> {
        let block = |byte: usize| (byte / BLOCK) as u64;
        block(self.range.start)..block(self.range.end)
    }

    /// The request has taken effect on what reads see.
    fn entry(&self, seen: &[u8]) -> Entry {
        let blocks = self.blocks();
        let bytes = &seen[self.range.clone()];
        let values = workload::values(bytes, blocks.clone()).unwrap_or_default();
        let what = format!("carries out a {}", self.operation.word());
        Entry::new("disk", what).blocks(blocks).values(&values)
    }
}

impl State {
    fn take_effect(&mut self, pending: &mut Pending, place: Place) -> Status {
        let status = self.carry_out(pending, place);
        trace::note(|| pending.entry(self.images.seen()).status(status));
        status
    }

    fn carry_out(&mut self, pending: &mut Pending, place: Place) -> Status {
        if pending.range.end > self.images.whole().end {
            // The disk has become smaller.
            self.images.give_back(place);
            return Status::OutOfRange;
        }
        let operation = pending.operation;
        let faults = &self.habits.faults;
        let verdict = faults.verdict(&mut self.choices, operation, &pending.blocks());
        match operation {
            Operation::Read => {
                let buf = pending.buf.as_mut().expect("a read has a buffer");
                let into = &mut buf.bytes_mut()[..pending.range.len()];
                match verdict {
                    Status::Ok => into.copy_from_slice(&self.images.seen()[pending.range.clone()]),
                    _ => into.fill(WRONG),
                }
                verdict
            }
            Operation::Flush => self.make_durable(self.images.whole()),
            Operation::CompareAndWrite { .. } => Status::Unsupported,
            Operation::Write { .. } | Operation::WriteZeroes { .. } | Operation::Deallocate => {
                if !verdict.is_ok() {
                    self.images.tear(place, &mut self.choices);
                    return verdict;
                }
                let bytes = pending.range.len();
                let changed = self.images.take_effect(place, bytes, &mut self.choices);
                match operation.promises_durability() || !self.habits.volatile_cache {
                    true => self.make_durable(changed),
                    false => Status::Ok,
                }
            }
        }
    }

    /// Writes a range back to the medium. When that fails, nothing is durable any more.
    fn make_durable(&mut self, range: Range<usize>) -> Status {
        let fails = self.choices.below(1000) < self.habits.faults.lost_flushes;
        if fails
            && self.habits.volatile_cache
            && self.images.give_up(range.clone(), &mut self.choices)
        {
            self.is_degraded = true;
        }
        self.images.write_back(range);
        match self.is_degraded {
            true => Status::Degraded,
            false => Status::Ok,
        }
    }
}

/// Fills the buffer of a read that has failed. Nobody may take it for data.
const WRONG: u8 = 0xEE;
