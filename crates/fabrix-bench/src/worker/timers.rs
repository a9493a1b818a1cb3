//! The timers of a waiting job. Between completions, only timers make the job look at the time.

use std::time::Duration;

use fabrix_rt::{Nanos, Shard, Token};

use super::Worker;
use super::lifecycle::{JobPhase, nanos};

/// Interval for retrying a disk that is busy while it has no request of this job.
const RETRY: Duration = Duration::from_millis(1);

/// Time until the slot of a failed request is used again, if the disk could not be reached.
const REST: Duration = Duration::from_millis(10);

/// Slot numbers of the timers. Requests use the numbers below the depth.
const TIMER_PHASE: u32 = u32::MAX;
const TIMER_ARRIVAL: u32 = u32::MAX - 1;
const TIMER_RETRY: u32 = u32::MAX - 2;
const TIMER_REST: u32 = u32::MAX - 3;

/// Timers of a waiting job.
impl Worker {
    fn wake(&self, shard: &mut Shard, slot: u32, at_ns: u64) {
        shard.set_timer(
            Token {
                task: self.id,
                slot,
            },
            Nanos(at_ns),
        );
    }

    /// Sets the timer for the planned end of the phase.
    pub(super) fn wake_at_phase_end(&self, shard: &mut Shard) {
        let until_ns = match self.lifecycle.phase {
            JobPhase::Ramp { until_ns } | JobPhase::Measure { until_ns } => until_ns,
            JobPhase::Drain | JobPhase::ReadBack { .. } => {
                self.lifecycle.last_ending_ns + nanos(self.silence_limit())
            }
            JobPhase::Probe | JobPhase::Ready | JobPhase::Ended => return,
        };
        self.wake(shard, TIMER_PHASE, until_ns);
    }

    pub(super) fn wait_for_arrival(&mut self, shard: &mut Shard) {
        let Some(next_ns) = self.arrivals.next_ns() else {
            return;
        };
        if !std::mem::replace(&mut self.lifecycle.arrival_timer, true) {
            self.wake(shard, TIMER_ARRIVAL, next_ns);
        }
    }

    /// Waits for room after a `Busy` answer. A completion on the channel makes room. Without a
    /// request in flight, only a timer can continue.
    pub(super) fn wait_for_room(&mut self, shard: &mut Shard) {
        if self.in_flight == 0 && !std::mem::replace(&mut self.lifecycle.retry_timer, true) {
            self.wake(shard, TIMER_RETRY, self.clock.now_ns() + nanos(RETRY));
        }
    }

    /// Sets the timer that frees the resting slots.
    pub(super) fn wake_resting(&mut self, shard: &mut Shard) {
        if !std::mem::replace(&mut self.lifecycle.rest_timer, true) {
            self.wake(shard, TIMER_REST, self.clock.now_ns() + nanos(REST));
        }
    }

    /// Handles a timer. The following `pump` does the actual work.
    pub(super) fn woken(&mut self, shard: &mut Shard, slot: u32) {
        match slot {
            TIMER_ARRIVAL => self.lifecycle.arrival_timer = false,
            TIMER_RETRY => self.lifecycle.retry_timer = false,
            TIMER_REST => {
                self.lifecycle.rest_timer = false;
                self.free_resting();
            }
            // Every completion postpones the end of a stall, so the timer is set again.
            _ if matches!(
                self.lifecycle.phase,
                JobPhase::Drain | JobPhase::ReadBack { .. }
            ) && !self.is_stalled() =>
            {
                self.wake_at_phase_end(shard);
            }
            _ => {}
        }
    }
}
