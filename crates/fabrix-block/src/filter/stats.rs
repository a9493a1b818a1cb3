//! Counts requests, errors, bytes and latencies. Every shard has its own counters and is their only
//! writer, so counting is a plain load and store. A reader on any thread adds the counters of all
//! shards.
//!
//! Latencies use the time of the shard's turns: a request answered within its turn counts as 0 ns.
//! A request that the disk refused because of its registered memory is not counted, because the
//! caller repeats it with a buffer.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use fabrix_rt::{Completion, Nanos, Shard, TaskId, Token};

use super::Filter;
use crate::slots::Slots;
use crate::task::{ChannelTask, TaskHandle, submit_as, token};
use crate::{Channel, Device, Failed, OpenError, Operation, Payload, Request, Status, Submit};

/// A disk that counts its requests.
pub struct Stats {
    inner: Arc<dyn Device>,
    /// Counters by shard number. The channels of a shard share one set, because they run on one
    /// thread. Resized versions of the disk share the sets too.
    shards: Arc<Mutex<Vec<ShardCounters>>>,
    /// Called with every request that the disk has failed. It runs on shards, so it must not block.
    on_failure: FailureHook,
}

/// Callback for requests that a disk has failed.
type FailureHook = Arc<dyn Fn(Failed) + Send + Sync>;

/// A shard's number and its counters.
type ShardCounters = (usize, Arc<Counters>);

/// Kinds of requests with separate counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Reads.
    Read,
    /// Writes.
    Write,
    /// Flushes.
    Flush,
    /// Writes of zeroes and deallocations.
    Zeroes,
    /// Compare and write.
    Compare,
}

/// The sums of one kind of request over all shards.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Answered requests, including failed ones.
    pub requests: u64,
    /// Requests that ended with an error. A failed comparison is not an error.
    pub errors: u64,
    /// Bytes of the requests that ended with `Ok`.
    pub bytes: u64,
    /// Sum of all latencies in nanoseconds.
    pub latency_ns_sum: u64,
    /// Latency histogram: requests per bucket, with four buckets per power of two of nanoseconds.
    pub latency: Vec<u64>,
}

impl Stats {
    /// The same disk with counters. All shards that open it have different numbers ([`Shard::id`]).
    #[must_use]
    pub fn new(inner: Arc<dyn Device>) -> Arc<Self> {
        Self::telling(inner, |_| {})
    }

    /// [`Self::new`] with a callback. `on_failure` receives every request that the disk has failed,
    /// on the shard that submitted it.
    #[must_use]
    pub fn telling(
        inner: Arc<dyn Device>,
        on_failure: impl Fn(Failed) + Send + Sync + 'static,
    ) -> Arc<Self> {
        Arc::new(Self {
            inner,
            shards: Arc::default(),
            on_failure: Arc::new(on_failure),
        })
    }

    /// The same disk in another state, for example with another size. Both share the counters.
    #[must_use]
    pub fn around(&self, inner: Arc<dyn Device>) -> Arc<Self> {
        Arc::new(Self {
            inner,
            shards: Arc::clone(&self.shards),
            on_failure: Arc::clone(&self.on_failure),
        })
    }

    /// The current sums of all shards. Any thread may call this function at any time.
    #[must_use]
    pub fn counts(&self, kind: Kind) -> Counts {
        let mut counts = Counts {
            latency: vec![0; BUCKETS],
            ..Counts::default()
        };
        for (_, counters) in &*self.shards() {
            counts.add(&counters.kinds[kind as usize]);
        }
        counts
    }

    fn shards(&self) -> std::sync::MutexGuard<'_, Vec<ShardCounters>> {
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
    /// The latency in nanoseconds that the fraction `share` (0 to 1) of the requests did not
    /// exceed, or 0 without requests. The result is the upper end of a bucket, a quarter of a power
    /// of two wide.
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

    /// The non-empty buckets in ascending order: the longest latency of the bucket in nanoseconds,
    /// and the number of requests in it.
    pub fn buckets(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let buckets = self.latency.iter().enumerate();
        let ends = buckets.map(|(bucket, count)| (end_of(bucket), *count));
        ends.filter(|(_, count)| *count > 0)
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
        Self {
            requests: AtomicU64::default(),
            errors: AtomicU64::default(),
            bytes: AtomicU64::default(),
            latency_ns_sum: AtomicU64::default(),
            latency: [const { AtomicU64::new(0) }; BUCKETS],
        }
    }
}

impl Counters {
    fn count(&self, kind: Kind, bytes: u64, status: Status, latency_ns: u64) {
        let counters = &self.kinds[kind as usize];
        add(&counters.requests, 1);
        match status {
            Status::Ok => add(&counters.bytes, bytes),
            Status::CompareFailed => {}
            _ => add(&counters.errors, 1),
        }
        add(&counters.latency_ns_sum, latency_ns);
        add(&counters.latency[bucket_of(latency_ns)], 1);
    }
}

/// Adds to a counter. Only this shard's thread writes it, so load and store need no lock.
fn add(counter: &AtomicU64, amount: u64) {
    counter.store(
        counter.load(Ordering::Relaxed).wrapping_add(amount),
        Ordering::Relaxed,
    );
}

/// The bucket of a latency: four per power of two. Latencies below 4 ns have one bucket each.
fn bucket_of(ns: u64) -> usize {
    if ns < 4 {
        return usize::try_from(ns).expect("below four");
    }
    let power = ns.ilog2();
    let quarter = (ns >> (power - 2)) & 3;
    (power as usize - 1) * 4 + usize::try_from(quarter).expect("two bits")
}

/// The longest latency of a bucket in nanoseconds.
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

    fn around(&self, inner: Arc<dyn Device>) -> Arc<dyn Device> {
        Self::around(self, inner)
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
            on_failure: Arc::clone(&self.on_failure),
            pending: Slots::new(PENDING_MAX),
        };
        Ok(Box::new(TaskHandle::new(shard, make)))
    }
}

struct StatsTask {
    id: TaskId,
    inner: Box<dyn Channel>,
    block_bytes: u64,
    counters: Arc<Counters>,
    on_failure: FailureHook,
    pending: Slots<Pending>,
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
    fn count(&self, request: &Pending, status: Status, latency_ns: u64) {
        if request.registered && status == Status::Unsupported {
            return; // the caller repeats the request with a buffer
        }
        let bytes = u64::from(request.blocks) * self.block_bytes;
        let kind = Kind::from(request.operation);
        self.counters.count(kind, bytes, status, latency_ns);
        if status.is_the_disks() {
            (self.on_failure)(Failed {
                operation: request.operation,
                lba: request.lba,
                blocks: request.blocks,
                status,
            });
        }
    }
}

impl ChannelTask for StatsTask {
    fn submit<'a>(&mut self, shard: &mut Shard, request: Request<'a>) -> Submit<'a> {
        let Some(slot) = self.pending.insert(Pending {
            caller: request.token,
            operation: request.operation,
            lba: request.lba,
            blocks: request.blocks,
            registered: matches!(request.payload, Payload::Registered(_)),
            since: shard.now(),
        }) else {
            return Submit::Busy(request);
        };
        let answer = submit_as(&mut self.inner, shard, request, token(self.id, slot));
        if !matches!(answer, Submit::Pending)
            && let Some(pending) = self.pending.take(slot)
            && let Submit::Done(status, _) = answer
        {
            self.count(&pending, status, 0);
        }
        answer
    }

    fn completed(&mut self, shard: &mut Shard, slot: u32, completion: Completion) {
        let Some(pending) = self.pending.take(slot) else {
            return;
        };
        let latency_ns = shard.now().since(pending.since).as_nanos();
        let latency_ns = u64::try_from(latency_ns).unwrap_or(u64::MAX);
        let status = Status::from_result(completion.result);
        self.count(&pending, status, latency_ns);
        shard.complete(pending.caller, completion);
    }

    fn is_idle(&self) -> bool {
        self.pending.is_empty()
    }
}

/// Largest number of requests in progress per channel.
const PENDING_MAX: u16 = 4096;

const KINDS: usize = 5;
const BUCKETS: usize = 63 * 4;

#[cfg(test)]
mod tests;
