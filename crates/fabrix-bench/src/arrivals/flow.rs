//! Jobs that start requests in proportion to their weights (fio's `flow`).
//!
//! The jobs of a flow share two counters. A job that is ahead of its share waits. A job takes part
//! until its end, as in fio. Jobs that start at once take part before the first of them starts, and
//! the others from their start on.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use super::nanos;

/// Wait of a job that is ahead, without `flow_sleep`. Short against the requests of the others.
const WAIT: Duration = Duration::from_micros(20);

/// Part of a job in a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowShare {
    /// Number of the flow (`flow_id`).
    pub id: u32,
    /// Weight of the job (`flow`).
    pub weight: u32,
    /// Wait when the job is ahead (`flow_sleep`). Zero: 20 us.
    pub sleep: Duration,
}

/// Counters of a flow.
#[derive(Debug, Default)]
pub(crate) struct Flow {
    /// Requests of all jobs that take part.
    ios: AtomicU64,
    /// Sum of their weights.
    weight: AtomicU64,
}

/// State of a job in a flow.
#[derive(Debug)]
pub(crate) struct Member {
    flow: Arc<Flow>,
    weight: u64,
    wait_ns: u64,
    /// Requests of this job.
    ios: u64,
    /// Earliest start of the next request.
    pub(super) next_ns: u64,
    takes_part: bool,
}

impl Member {
    pub(crate) fn new(share: FlowShare, flow: Arc<Flow>) -> Self {
        let sleep = if share.sleep.is_zero() {
            WAIT
        } else {
            share.sleep
        };
        Self {
            flow,
            weight: share.weight.into(),
            wait_ns: nanos(sleep),
            ios: 0,
            next_ns: 0,
            takes_part: false,
        }
    }

    /// Takes part in the flow.
    pub(crate) fn join(&mut self) {
        if !std::mem::replace(&mut self.takes_part, true) {
            self.flow.weight.fetch_add(self.weight, Relaxed);
        }
    }

    pub(super) fn begin(&mut self, now_ns: u64) {
        self.next_ns = now_ns;
        self.join();
    }

    pub(super) fn due(&mut self, now_ns: u64) -> Option<u64> {
        if self.next_ns > now_ns {
            return None;
        }
        let all = self.flow.weight.load(Relaxed).max(1);
        let share = u128::from(self.flow.ios.load(Relaxed) + 1) * u128::from(self.weight);
        if u128::from(self.ios) * u128::from(all) > share {
            self.next_ns = now_ns.saturating_add(self.wait_ns);
            return None;
        }
        self.flow.ios.fetch_add(1, Relaxed);
        self.ios += 1;
        Some(now_ns)
    }
}

impl Drop for Member {
    /// The other jobs no longer wait for this one.
    fn drop(&mut self) {
        if self.takes_part {
            self.flow.weight.fetch_sub(self.weight, Relaxed);
            self.flow.ios.fetch_sub(self.ios, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_of_a_flow_keep_the_ratio_of_their_weights_until_one_ends() {
        let flow = Arc::new(Flow::default());
        let member = |weight| {
            let share = FlowShare {
                id: 0,
                weight,
                sleep: Duration::from_nanos(1),
            };
            let mut member = Member::new(share, Arc::clone(&flow));
            member.begin(0);
            member
        };
        let (mut often, mut seldom) = (member(8), member(1));
        let mut starts = [0_u32; 2];
        for now_ns in 0..9000 {
            starts[0] += u32::from(often.due(now_ns).is_some());
            starts[1] += u32::from(seldom.due(now_ns).is_some());
        }
        assert!(starts[1] > 100, "{starts:?}");
        assert!(starts[0].abs_diff(starts[1] * 8) <= 16, "{starts:?}");
        drop(often);
        let alone = (10_000..10_100).filter(|now_ns| seldom.due(*now_ns).is_some());
        assert_eq!(alone.count(), 100);
    }
}
