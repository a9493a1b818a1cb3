//! What the health log counts: how much hosts and initiators have read and written, and how often a medium failed.
//!
//! One set of counters per shard, in cache lines of its own and written by that shard alone, so that counting costs an
//! addition; read from any shard, when a host asks.

use std::sync::atomic::{AtomicU64, Ordering};

use fabrix_proto::nvme::log_page::HealthCounters;

/// The counters of one shard. The alignment keeps them away from other shards' lines, prefetched pairs included.
#[repr(align(128))]
#[derive(Debug, Default)]
pub(crate) struct Counters {
    read_bytes: AtomicU64,
    written_bytes: AtomicU64,
    reads: AtomicU64,
    writes: AtomicU64,
    media_errors: AtomicU64,
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
