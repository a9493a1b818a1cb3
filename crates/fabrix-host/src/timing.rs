//! Time of requests on their way through the host.
//!
//! The host adds up the times at which requests pass its probe points. The difference of two sums
//! over the same requests is the time between the points. No state is kept for a request. Without a
//! [`Trace`] nothing is measured. The target's probe points are in `fabrix_proto::nvme::timing`.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use fabrix_proto::nvme::timing::Passed;
use fabrix_rt::Nanos;

/// Sums of the times at which requests passed the probe points, over all channels of a disk.
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
    /// A request was submitted.
    pub(crate) fn submitted(&self) {
        self.submitted.add(1, Nanos::now());
    }

    /// The kernel has accepted `count` commands.
    pub(crate) fn sent(&self, count: u64) {
        self.sent.add(count, Nanos::now());
    }

    /// The answer of a command arrived at `at`.
    pub(crate) fn received(&self, at: Nanos) {
        self.received.add(1, at);
    }

    /// A request completes.
    pub(crate) fn ended(&self) {
        self.ended.add(1, Nanos::now());
    }

    /// The sums so far: submitted, sent, received, ended.
    #[must_use]
    pub fn passed(&self) -> [Passed; 4] {
        [&self.submitted, &self.sent, &self.received, &self.ended].map(Sum::read)
    }
}
