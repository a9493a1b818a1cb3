//! What the health log counts: how much hosts and initiators have read and written, and how often a
//! medium failed; and what the timing page adds up, while a host wants that.
//!
//! One set of counters per shard, in cache lines of its own and written by that shard alone, so
//! that counting costs an addition; read from any shard, when a host asks.

use std::sync::atomic::{AtomicU64, Ordering};

use fabrix_proto::nvme::log_page::HealthCounters;
use fabrix_proto::nvme::timing::{Passed, TimingPage};
use fabrix_rt::Nanos;
use zerocopy::little_endian::U64;

/// The counters of one shard. The alignment keeps them away from other shards' lines, prefetched
/// pairs included.
#[repr(align(128))]
#[derive(Debug, Default)]
pub(crate) struct Counters {
    read_bytes: AtomicU64,
    written_bytes: AtomicU64,
    reads: AtomicU64,
    writes: AtomicU64,
    media_errors: AtomicU64,
    /// Until when commands are timed; zero: they are not.
    timed_until_ns: AtomicU64,
    /// The places of the timing page, in its order.
    places: [TimedPoint; 4],
}

/// When commands passed a place.
#[derive(Debug, Default)]
struct TimedPoint {
    count: AtomicU64,
    sum_ns: AtomicU64,
}

impl TimedPoint {
    fn pass(&self, at: Nanos) {
        add(&self.count, 1);
        add(&self.sum_ns, at.0);
    }

    fn add_to(&self, passed: &mut Passed) {
        let more = |sum: U64, counter: &AtomicU64| {
            U64::new(sum.get().wrapping_add(counter.load(Ordering::Relaxed)))
        };
        passed.count = more(passed.count, &self.count);
        passed.sum_ns = more(passed.sum_ns, &self.sum_ns);
    }
}

/// Adds to a counter that only this thread writes: no locked instruction.
fn add(counter: &AtomicU64, more: u64) {
    counter.store(
        counter.load(Ordering::Relaxed).wrapping_add(more),
        Ordering::Relaxed,
    );
}

impl Counters {
    /// A command reads so much of its disk.
    pub(crate) fn read(&self, bytes: u64) {
        add(&self.reads, 1);
        add(&self.read_bytes, bytes);
    }

    /// A command writes so much of its disk.
    pub(crate) fn written(&self, bytes: u64) {
        add(&self.writes, 1);
        add(&self.written_bytes, bytes);
    }

    /// A disk could not read or write what it should have.
    pub(crate) fn media_error(&self) {
        add(&self.media_errors, 1);
    }

    /// Whether commands are timed at this moment. The one question that is asked of every command.
    #[inline]
    pub(crate) fn are_timed(&self, now: Nanos) -> bool {
        self.timed_until_ns.load(Ordering::Relaxed) > now.0
    }

    /// For how many nanoseconds more they are.
    pub(crate) fn timed_for(&self, now: Nanos) -> u64 {
        let until_ns = self.timed_until_ns.load(Ordering::Relaxed);
        until_ns.saturating_sub(now.0)
    }

    /// Commands are timed until then.
    pub(crate) fn time_until(&self, until: Nanos) {
        self.timed_until_ns.store(until.0, Ordering::Relaxed);
    }

    /// A command had arrived by the beginning of this turn.
    #[inline]
    pub(crate) fn arrived(&self, now: Nanos) {
        if self.are_timed(now) {
            self.places[0].pass(now);
        }
    }

    /// A request was handed to a disk then.
    pub(crate) fn reached_disk(&self, at: Nanos) {
        self.places[1].pass(at);
    }

    /// A disk answered a request then.
    pub(crate) fn left_disk(&self, at: Nanos) {
        self.places[2].pass(at);
    }

    /// The answer of a command is ready to be sent.
    pub(crate) fn answered(&self) {
        self.places[3].pass(Nanos::now());
    }

    /// Adds these sums to what a host is told.
    pub(crate) fn add_times(&self, page: &mut TimingPage) {
        let passed = [
            &mut page.arrived,
            &mut page.to_disk,
            &mut page.from_disk,
            &mut page.answered,
        ];
        for (place, passed) in self.places.iter().zip(passed) {
            place.add_to(passed);
        }
    }

    /// Adds these counters to what a host is told.
    pub(crate) fn add_to(&self, health: &mut HealthCounters) {
        let value = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        health.read_bytes += value(&self.read_bytes);
        health.written_bytes += value(&self.written_bytes);
        health.read_commands += value(&self.reads);
        health.write_commands += value(&self.writes);
        health.media_errors += value(&self.media_errors);
    }
}
