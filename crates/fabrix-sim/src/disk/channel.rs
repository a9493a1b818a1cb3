//! The requests of one shard at a simulated disk.

use std::cell::RefCell;
use std::ops::Range;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use fabrix_block::{Channel, Deallocate, Geometry, Operation, Payload, Request, Status, Submit};
use fabrix_rt::{Buf, Completion, Loan, Nanos, Shard, Task, TaskId, Token};

use super::State;
use crate::images::{BLOCK, Write};
use crate::trace::Entry;
use crate::workload;
use crate::world::{self, World};

/// Opens the channel with this number.
pub(super) fn open(
    shard: &mut Shard,
    channel: u64,
    geometry: Geometry,
    (state, in_progress): (&Arc<Mutex<State>>, &Arc<AtomicUsize>),
) -> Box<dyn Channel> {
    let task = shard.reserve();
    let requests = Rc::new(RefCell::new(Requests {
        task,
        channel,
        state: Arc::clone(state),
        in_progress: Arc::clone(in_progress),
        slots: Vec::new(),
    }));
    shard.install(task, Rc::clone(&requests) as Rc<RefCell<_>>);
    Box::new(SimChannel { requests, geometry })
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
    /// Requests in progress of all channels of the machine.
    in_progress: Arc<AtomicUsize>,
    slots: Vec<Option<Pending>>,
}

/// A request in progress.
pub(super) struct Pending {
    token: Token,
    pub(super) operation: Operation,
    /// Its bytes on the disk.
    pub(super) range: Range<usize>,
    /// The bytes of the request: where a read goes, or what a write has.
    pub(super) buf: Option<Buf>,
    /// What a compare-and-write compares and writes.
    pub(super) comparison: Option<Comparison>,
    takes_effect_at: Nanos,
    /// Losses of power before the request.
    pub(super) power_losses: u64,
    ends_after: Duration,
    ended: Option<Status>,
}

/// What a compare-and-write compares and writes. It is no write before the comparison succeeds.
pub(super) struct Comparison {
    expected: Vec<u8>,
    pub(super) write: Write,
}

impl Channel for SimChannel {
    fn submit<'a>(&mut self, shard: &mut Shard, request: Request<'a>) -> Submit<'a> {
        if let Some(status) = request.refusal(&self.geometry) {
            return request.done(status);
        }
        let mut requests = self.requests.borrow_mut();
        let compares = matches!(request.operation, Operation::CompareAndWrite { .. });
        if compares && !requests.state().habits.is_shared {
            return request.done(Status::Unsupported);
        }
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
        let comparison = comparison(&request, start, bytes);
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
            comparison,
            takes_effect_at: shard.now(),
            power_losses: requests.state().power_losses,
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
pub(crate) fn source(request: &Request<'_>, bytes: usize) -> Option<Vec<u8>> {
    match request.operation {
        Operation::Write { .. } => {
            let source = request.payload.source();
            Some(source.expect("a write has a source")[..bytes].to_vec())
        }
        Operation::WriteZeroes { .. } | Operation::Deallocate => Some(vec![0; bytes]),
        Operation::Read | Operation::Flush | Operation::CompareAndWrite { .. } => None,
    }
}

/// What a compare-and-write compares and writes.
fn comparison(request: &Request<'_>, start: usize, bytes: usize) -> Option<Comparison> {
    if !matches!(request.operation, Operation::CompareAndWrite { .. }) {
        return None;
    }
    let source = request.payload.source();
    let (expected, new) = source.expect("a write has a source").split_at(bytes);
    let write = Write {
        start,
        source: new[..bytes].to_vec(),
        is_a_hint: false,
    };
    let expected = expected.to_vec();
    Some(Comparison { expected, write })
}

/// What a channel answers before it looks at a request.
enum First {
    Taken,
    Busy,
    NoMemory,
}

impl Requests {
    fn state(&self) -> MutexGuard<'_, State> {
        locked(&self.state)
    }

    fn first_answer(&self) -> First {
        let state = &mut *self.state();
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
        let mut guard = locked(&self.state);
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
        pending.takes_effect_at = shard.now() + first;
        pending.ends_after = whole - first;
        match self.slots.get_mut(slot) {
            Some(free) => *free = Some(pending),
            None => self.slots.push(Some(pending)),
        }
        self.in_progress.fetch_add(1, Relaxed);
        self.wait(shard, slot, first);
        None
    }

    /// The disk executes the writes of a process that has ended at the times that were drawn for
    /// them.
    fn leave_to_disk(&mut self, world: &World) {
        for (slot, pending) in self.slots.drain(..).enumerate() {
            let writes = |it: &Pending| it.ended.is_none() && it.operation.writes();
            let Some(mut pending) = pending.filter(writes) else {
                continue;
            };
            pending.buf = None;
            let (state, place) = (Arc::clone(&self.state), (self.channel, slot));
            world.plan(pending.takes_effect_at, move |_| {
                locked(&state).take_late_effect(&mut pending, place);
            });
        }
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
            self.in_progress.fetch_sub(1, Relaxed);
            let completion = Completion {
                result: status.to_result(),
                loan: pending.buf.map_or(Loan::None, Loan::Buf),
            };
            return shard.complete(pending.token, completion);
        }
        let mut state = locked(&self.state);
        let status = state.take_effect(pending, (self.channel, slot));
        pending.ended = Some(status);
        drop(state);
        let left = pending.ends_after;
        self.wait(shard, slot, left);
    }
}

/// The process of the channel has ended: its requests take effect on a shared disk only.
impl Drop for Requests {
    fn drop(&mut self) {
        let in_progress = self.slots.iter().flatten().count();
        self.in_progress.fetch_sub(in_progress, Relaxed);
        let is_shared = self.state().habits.is_shared;
        match world::current().filter(|_| is_shared) {
            Some(world) => self.leave_to_disk(&world),
            None => self.state().images.forget(self.channel),
        }
    }
}

fn locked(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().expect("no panic in a disk")
}

impl Pending {
    /// Its blocks.
    pub(super) fn blocks(&self) -> Range<u64> {
        let block = |byte: usize| (byte / BLOCK) as u64;
        block(self.range.start)..block(self.range.end)
    }

    /// Whether the disk holds what a compare-and-write expects. True for all other requests.
    pub(super) fn finds_expected(&self, seen: &[u8]) -> bool {
        let comparison = self.comparison.as_ref();
        comparison.is_none_or(|it| seen[self.range.clone()] == *it.expected)
    }

    /// The request has taken effect on what reads see. The disk may have become smaller.
    pub(super) fn entry(&self, seen: &[u8]) -> Entry {
        let blocks = self.blocks();
        let bytes = seen.get(self.range.clone()).unwrap_or_default();
        let values = workload::values(bytes, blocks.clone()).unwrap_or_default();
        let what = format!("carries out a {}", self.operation.word());
        Entry::new("disk", what).blocks(blocks).values(&values)
    }
}
