//! Counts what passes: requests, errors, bytes, and how long each took. Every shard writes its own
//! counters, which nobody else writes, so counting is a plain load and store; whoever wants to know
//! reads them from outside and adds them up. Times are those of the shard's turns: what is answered
//! within the turn took no time. A request that its disk could not carry out with registered memory
//! is not counted: it comes again, with a buffer.

use std::any::Any;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use fabrix_rt::{Completion, Nanos, Shard, Task, TaskId, Token};

use super::Filter;
use crate::slots::Slots;
use crate::task::{Closing, Hold};
use crate::{Channel, Device, Failed, OpenError, Operation, Payload, Request, Status, Submit};

/// A disk whose requests are counted.
pub struct Stats {
    inner: Arc<dyn Device>,
    /// One set per shard number; a shard's channels share it, as they share its thread. So does the
    /// same disk with another size: whoever asks either of them hears of both.
    shards: Arc<Mutex<Vec<OfShard>>>,
    /// Told of requests that the disk has failed; called on shards, so it must not wait.
    tell: Tell,
}

/// Hears of requests that a disk has failed.
type Tell = Arc<dyn Fn(Failed) + Send + Sync>;

/// A shard's number, and what it counts.
type OfShard = (usize, Arc<Counters>);

/// What is counted apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Reads.
    Read,
    /// Writes.
    Write,
    /// Flushes.
    Flush,
    /// Writes of zeroes, and deallocations.
    Zeroes,
    /// Comparing writes.
    Compare,
}

/// The sums of one kind of request, at the time of asking.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counts {
    /// Answered requests, failed ones included.
    pub requests: u64,
    /// Those that did not end with `Ok`; failed comparisons are not errors.
    pub errors: u64,
    /// Bytes of those that ended with `Ok`.
    pub bytes: u64,
    /// The sum of all times.
    pub latency_ns_sum: u64,
    /// How many took how long: four buckets for each power of two of nanoseconds.
    pub latency: Vec<u64>,
}

impl Stats {
    /// The same disk, counted. All shards that open it have different numbers ([`Shard::id`]).
    #[must_use]
    pub fn new(inner: Arc<dyn Device>) -> Arc<Self> {
        Self::telling(inner, |_| {})
    }

    /// The same; `tell` hears of every request that the disk has failed, on the shard that asked.
    #[must_use]
    pub fn telling(
        inner: Arc<dyn Device>,
        tell: impl Fn(Failed) + Send + Sync + 'static,
    ) -> Arc<Self> {
        Arc::new(Self {
            inner,
            shards: Arc::default(),
            tell: Arc::new(tell),
        })
    }

    /// What all shards have counted so far. May be called from any thread at any time.
    #[must_use]
    pub fn counts(&self, kind: Kind) -> Counts {
        let mut counts = Counts::empty();
        for (_, counters) in &*self.shards() {
            counts.add(&counters.kinds[kind as usize]);
        }
        counts
    }

    fn shards(&self) -> std::sync::MutexGuard<'_, Vec<OfShard>> {
        self.shards.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn counters(&self, shard: usize) -> Arc<Counters> {
        let mut shards = self.shards();
        if let Some((_, counters)) = shards.iter().find(|(id, _)| *id == shard) {
            return Arc::clone(counters);
        }
        let counters = Arc::new(Counters::default());
        shards.push((shard, Arc::clone(&counters)));
        counters
    }
}

impl Counts {
    /// The time that `share` (0 to 1) of the requests did not exceed, in nanoseconds; 0 if there
    /// were none. Exact to a quarter of its power of two, rounded up.
    #[must_use]
    pub fn latency_ns(&self, share: f64) -> u64 {
        let total: u64 = self.latency.iter().sum();
        let mut below = 0;
        for (bucket, count) in self.latency.iter().enumerate() {
            below += count;
            if *count > 0 && below as f64 >= share * total as f64 {
                return end_of(bucket);
            }
        }
        0
    }

    /// The buckets that are not empty, shortest times first: the longest time of each, and how many
    /// took so long.
    pub fn buckets(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let buckets = self.latency.iter().enumerate();
        let ends = buckets.map(|(bucket, count)| (end_of(bucket), *count));
        ends.filter(|(_, count)| *count > 0)
    }

    fn empty() -> Self {
        let latency = vec![0; BUCKETS];
        Self {
            requests: 0,
            errors: 0,
            bytes: 0,
            latency_ns_sum: 0,
            latency,
        }
    }

    fn add(&mut self, counters: &KindCounters) {
        self.requests += counters.requests.load(Ordering::Relaxed);
        self.errors += counters.errors.load(Ordering::Relaxed);
        self.bytes += counters.bytes.load(Ordering::Relaxed);
        self.latency_ns_sum += counters.latency_ns_sum.load(Ordering::Relaxed);
        for (sum, count) in self.latency.iter_mut().zip(&counters.latency) {
            *sum += count.load(Ordering::Relaxed);
        }
    }
}

impl From<Operation> for Kind {
    fn from(operation: Operation) -> Self {
        match operation {
            Operation::Read => Self::Read,
            Operation::Write { .. } => Self::Write,
            Operation::Flush => Self::Flush,
            Operation::WriteZeroes { .. } | Operation::Deallocate => Self::Zeroes,
            Operation::CompareAndWrite { .. } => Self::Compare,
        }
    }
}

/// One shard's counters, alone in their cache lines.
#[derive(Default)]
#[repr(align(128))]
struct Counters {
    kinds: [KindCounters; KINDS],
}

struct KindCounters {
    requests: AtomicU64,
    errors: AtomicU64,
    bytes: AtomicU64,
    latency_ns_sum: AtomicU64,
    latency: [AtomicU64; BUCKETS],
}

impl Default for KindCounters {
    fn default() -> Self {
        let zero = || AtomicU64::new(0);
        Self {
            requests: zero(),
            errors: zero(),
            bytes: zero(),
            latency_ns_sum: zero(),
            latency: std::array::from_fn(|_| zero()),
        }
    }
}

impl Counters {
    fn count(&self, kind: Kind, bytes: u64, status: Status, took_ns: u64) {
        let counters = &self.kinds[kind as usize];
        add(&counters.requests, 1);
        match status {
            Status::Ok => add(&counters.bytes, bytes),
            Status::CompareFailed => {}
            _ => add(&counters.errors, 1),
        }
        add(&counters.latency_ns_sum, took_ns);
        add(&counters.latency[bucket_of(took_ns)], 1);
    }
}

/// Only this shard's thread writes the counter, so nothing can come between.
fn add(counter: &AtomicU64, amount: u64) {
    counter.store(
        counter.load(Ordering::Relaxed).wrapping_add(amount),
        Ordering::Relaxed,
    );
}

/// Four buckets for every power of two; what took less than 4 ns has one each.
fn bucket_of(ns: u64) -> usize {
    if ns < 4 {
        return usize::try_from(ns).expect("below four");
    }
    let power = ns.ilog2();
    let quarter = (ns >> (power - 2)) & 3;
    (power as usize - 1) * 4 + usize::try_from(quarter).expect("two bits")
}

/// The longest time in a bucket.
fn end_of(bucket: usize) -> u64 {
    if bucket < 4 {
        return bucket as u64;
    }
    let (power, quarter) = (bucket / 4 + 1, bucket as u64 % 4);
    let next = u128::from(4 + quarter + 1) << (power - 2);
    u64::try_from(next - 1).unwrap_or(u64::MAX)
}

impl Filter for Stats {
    fn inner(&self) -> &dyn Device {
        &*self.inner
    }

    fn open(&self, shard: &mut Shard) -> Result<Box<dyn Channel>, OpenError> {
        let inner = self.inner.open(shard)?;
        let block_bytes = u64::from(self.inner.geometry().block_bytes);
        let counters = self.counters(shard.id());
        let make = |id| StatsTask {
            id,
            inner,
            block_bytes,
            counters,
            tell: Arc::clone(&self.tell),
            pending: Slots::new(PENDING_MAX),
            closing: false,
        };
        Ok(Box::new(StatsChannel {
            hold: Hold::new(shard, make),
        }))
    }

    fn remeasure(&self, bytes: Option<u64>) -> Result<Arc<dyn Device>, OpenError> {
        Ok(Arc::new(Self {
            inner: self.inner.remeasure(bytes)?,
            shards: Arc::clone(&self.shards),
            tell: Arc::clone(&self.tell),
        }))
    }
}

struct StatsChannel {
    hold: Hold<StatsTask>,
}

impl Channel for StatsChannel {
    fn submit<'a>(&mut self, shard: &mut Shard, request: Request<'a>) -> Submit<'a> {
        self.hold.task().submit(shard, request)
    }
}

struct StatsTask {
    id: TaskId,
    inner: Box<dyn Channel>,
    block_bytes: u64,
    counters: Arc<Counters>,
    tell: Tell,
    pending: Slots<Pending>,
    closing: bool,
}

struct Pending {
    caller: Token,
    operation: Operation,
    lba: u64,
    blocks: u32,
    registered: bool,
    since: Nanos,
}

impl StatsTask {
    fn submit<'a>(&mut self, shard: &mut Shard, request: Request<'a>) -> Submit<'a> {
        let caller = request.token;
        let Some(slot) = self.pending.insert(Pending {
            caller,
            operation: request.operation,
            lba: request.lba,
            blocks: request.blocks,
            registered: matches!(request.payload, Payload::Registered(_)),
            since: shard.now(),
        }) else {
            return Submit::Busy(request);
        };
        match self.inner.submit(
            shard,
            request.with_token(Token {
                task: self.id,
                slot,
            }),
        ) {
            Submit::Pending => Submit::Pending,
            Submit::Done(status, loan) => {
                if let Some(pending) = self.pending.take(slot) {
                    self.count(&pending, status, 0);
                }
                Submit::Done(status, loan)
            }
            Submit::Busy(request) => {
                self.pending.take(slot);
                Submit::Busy(request.with_token(caller))
            }
        }
    }

    fn count(&self, request: &Pending, status: Status, took_ns: u64) {
        if request.registered && status == Status::Unsupported {
            return; // whoever has asked asks again
        }
        let bytes = u64::from(request.blocks) * self.block_bytes;
        let kind = Kind::from(request.operation);
        self.counters.count(kind, bytes, status, took_ns);
        if status.is_the_disks() {
            (self.tell)(Failed {
                operation: request.operation,
                lba: request.lba,
                blocks: request.blocks,
                status,
            });
        }
    }

    fn leave_if_idle(&self, shard: &mut Shard) {
        if self.closing && self.pending.is_empty() {
            shard.remove(self.id);
        }
    }
}

impl Task for StatsTask {
    fn completed(&mut self, shard: &mut Shard, slot: u32, completion: Completion) {
        let Some(pending) = self.pending.take(slot) else {
            return;
        };
        let took = shard.now().since(pending.since).as_nanos();
        let took = u64::try_from(took).unwrap_or(u64::MAX);
        let status = Status::from_result(completion.result);
        self.count(&pending, status, took);
        shard.complete(pending.caller, completion);
        self.leave_if_idle(shard);
    }

    fn message(&mut self, shard: &mut Shard, message: Box<dyn Any + Send>) {
        self.closing |= message.is::<Closing>();
        self.leave_if_idle(shard);
    }
}

/// Requests in progress per channel.
const PENDING_MAX: u16 = 4096;

const KINDS: usize = 5;
const BUCKETS: usize = 63 * 4;

#[cfg(test)]
mod tests;
