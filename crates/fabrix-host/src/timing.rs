//! Where the time of requests goes: what we see of it ourselves, and what a target of ours tells.
//!
//! Both add up the moments at which requests pass a place; the difference of two sums over the same
//! requests is how long they stayed between the places. Nothing is kept for a request, and without
//! a [`Trace`] nothing is looked at. What the target's places are stands in
//! `fabrix_proto::nvme::timing`.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use fabrix_proto::nvme::timing::Passed;
use fabrix_rt::Nanos;

/// The moments at which requests passed us, added up by all channels of a disk.
#[derive(Debug, Default)]
pub struct Trace {
    submitted: Sum,
    sent: Sum,
    received: Sum,
    ended: Sum,
}

#[derive(Debug, Default)]
struct Sum {
    count: AtomicU64,
    sum_ns: AtomicU64,
}

impl Sum {
    fn add(&self, count: u64, at: Nanos) {
        self.count.fetch_add(count, Relaxed);
        self.sum_ns.fetch_add(at.0.wrapping_mul(count), Relaxed);
    }

    fn read(&self) -> Passed {
        Passed {
            count: self.count.load(Relaxed).into(),
            sum_ns: self.sum_ns.load(Relaxed).into(),
        }
    }
}

impl Trace {
    /// A request has come from the disk's user.
    pub(crate) fn submitted(&self) {
        self.submitted.add(1, Nanos::now());
    }

    /// So many commands were handed to the kernel.
    pub(crate) fn sent(&self, count: u64) {
        self.sent.add(count, Nanos::now());
    }

    /// The answer of a command had arrived by `at`.
    pub(crate) fn received(&self, at: Nanos) {
        self.received.add(1, at);
    }

    /// The disk's user is told of an ending.
    pub(crate) fn ended(&self) {
        self.ended.add(1, Nanos::now());
    }

    /// The sums so far: submitted, sent, received, ended.
    #[must_use]
    pub fn passed(&self) -> [Passed; 4] {
        [&self.submitted, &self.sent, &self.received, &self.ended].map(Sum::read)
    }
}
