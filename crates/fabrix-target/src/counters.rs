//! The counters of the health log and of the timing page.
//!
//! Each shard has its own set in its own cache lines, which it alone writes, so counting costs one
//! addition. Every shard may read them.

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
    /// Time until which commands are timed. Zero: they are not.
    timed_until_ns: AtomicU64,
    /// The probe points of the timing page, in its order.
    points: [TimedPoint; 4],
}

/// The times at which commands passed a probe point.
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

/// Adds to a counter that only this thread writes, without a locked instruction.
fn add(counter: &AtomicU64, more: u64) {
    counter.store(
        counter.load(Ordering::Relaxed).wrapping_add(more),
        Ordering::Relaxed,
    );
}

impl Counters {
    /// Counts a read of `bytes` bytes.
    pub(crate) fn read(&self, bytes: u64) {
        add(&self.reads, 1);
        add(&self.read_bytes, bytes);
    }

    /// Counts a write of `bytes` bytes.
    pub(crate) fn written(&self, bytes: u64) {
        add(&self.writes, 1);
        add(&self.written_bytes, bytes);
    }

    /// Counts a read or write that a disk has failed.
    pub(crate) fn media_error(&self) {
        add(&self.media_errors, 1);
    }

    /// Whether commands are timed now. Every command reads this.
    #[inline]
    pub(crate) fn are_timed(&self, now: Nanos) -> bool {
        self.timed_until_ns.load(Ordering::Relaxed) > now.0
    }

    /// Nanoseconds for which commands are still timed.
    pub(crate) fn timed_for(&self, now: Nanos) -> u64 {
        let until_ns = self.timed_until_ns.load(Ordering::Relaxed);
        until_ns.saturating_sub(now.0)
    }

    /// Sets the time until which commands are timed.
    pub(crate) fn time_until(&self, until: Nanos) {
        self.timed_until_ns.store(until.0, Ordering::Relaxed);
    }

    /// Notes a command that had arrived by the beginning of this turn.
    #[inline]
    pub(crate) fn arrived(&self, now: Nanos) {
        if self.are_timed(now) {
            self.points[0].pass(now);
        }
    }

    /// Notes a request that was submitted to a disk.
    pub(crate) fn reached_disk(&self, at: Nanos) {
        self.points[1].pass(at);
    }

    /// Notes a request that a disk has answered.
    pub(crate) fn left_disk(&self, at: Nanos) {
        self.points[2].pass(at);
    }

    /// Notes an answer that is ready to be sent.
    pub(crate) fn answered(&self) {
        self.points[3].pass(Nanos::now());
    }

    /// Adds these sums to the timing page.
    pub(crate) fn add_times(&self, page: &mut TimingPage) {
        let passed = [
            &mut page.arrived,
            &mut page.to_disk,
            &mut page.from_disk,
            &mut page.answered,
        ];
        for (point, passed) in self.points.iter().zip(passed) {
            point.add_to(passed);
        }
    }

    /// Adds these counters to the health log.
    pub(crate) fn add_to(&self, health: &mut HealthCounters) {
        let value = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        health.read_bytes += value(&self.read_bytes);
        health.written_bytes += value(&self.written_bytes);
        health.read_commands += value(&self.reads);
        health.write_commands += value(&self.writes);
        health.media_errors += value(&self.media_errors);
    }
}
