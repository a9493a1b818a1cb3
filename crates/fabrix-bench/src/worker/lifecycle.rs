//! The phases of a job: first read, start, ramp, measurement, drain, read-back, report. `timers`
//! wakes a waiting job.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use fabrix_block::Status;
use fabrix_rt::{Shard, topology};

use super::{Event, Worker};
use crate::access::Direction;
use crate::results::{STOPPED, Tally};
use crate::verify::Verifier;
use crate::words::Counted;

/// JobPhase of a job, with the time of its planned end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum JobPhase {
    /// The first read is in flight. It establishes the disk's connections before the measurement.
    #[default]
    Probe,
    /// Waiting for the start command.
    Ready,
    /// The load runs. Its counters are cleared at the end of the phase.
    Ramp { until_ns: u64 },
    /// The load runs and is measured.
    Measure { until_ns: u64 },
    /// No requests start. The job waits for those in flight.
    Drain,
    /// The job reads written units back, starting at unit `next`.
    ReadBack { next: u64 },
    /// The result has been sent.
    Ended,
}

/// Lifecycle state of a job.
#[derive(Default)]
pub(super) struct Lifecycle {
    pub(super) phase: JobPhase,
    /// Whether completions are counted.
    pub(super) counts: bool,
    /// Time of the last completion, or of the start of the wait.
    pub(super) last_ending_ns: u64,
    /// Whether the job ends without reading back.
    pub(super) cut_short: bool,
    /// Whether the time of the measurement is over.
    time_is_over: bool,
    pub(super) measured_from_ns: Option<u64>,
    /// Planned end of the measurement.
    until_ns: u64,
    read_back_from_ns: Option<u64>,
    pub(super) cpu_from: Duration,
    pub(super) arrival_timer: bool,
    pub(super) retry_timer: bool,
    pub(super) rest_timer: bool,
}

impl Worker {
    /// Starts the load: all jobs are ready.
    pub(super) fn begin(&mut self, shard: &mut Shard) {
        if self.lifecycle.phase != JobPhase::Ready {
            return;
        }
        (self.started, self.started_bytes) = (0, 0);
        self.lifecycle.counts = true;
        self.arrivals.begin(self.clock.now_ns());
        self.lifecycle.phase = JobPhase::Ramp {
            until_ns: self.clock.now_ns() + nanos(self.setup.job.ramp),
        };
        self.wake_at_phase_end(shard);
        self.pump(shard);
    }

    /// Stops the job on the user's request.
    pub(super) fn stop(&mut self, shard: &mut Shard) {
        match self.lifecycle.phase {
            JobPhase::Ended => {}
            JobPhase::Ready => self.end(shard),
            _ => {
                self.end_early(shard, STOPPED.into());
                self.pump(shard);
            }
        }
    }

    /// Ends the measurement early as if its time were over.
    pub(super) fn end_now(&mut self, shard: &mut Shard) {
        match self.lifecycle.phase {
            JobPhase::Ready => return self.end(shard),
            JobPhase::Ramp { .. } | JobPhase::Measure { .. } => self.time_over(shard),
            _ => {}
        }
        self.pump(shard);
    }

    /// Enters the next phase when the time of the current one is over.
    #[inline]
    pub(super) fn advance(&mut self, shard: &mut Shard) {
        match self.lifecycle.phase {
            JobPhase::Ramp { until_ns } if self.clock.now_ns() >= until_ns => {
                self.begin_measuring(shard)
            }
            JobPhase::Measure { until_ns } if self.clock.now_ns() >= until_ns => {
                self.time_over(shard);
            }
            JobPhase::Measure { .. } if self.limit_reached() => self.drain(shard),
            JobPhase::Drain | JobPhase::ReadBack { .. } if self.is_stalled() => self.abandon(shard),
            _ => {}
        }
    }

    fn time_over(&mut self, shard: &mut Shard) {
        self.lifecycle.time_is_over = true;
        self.drain(shard);
    }

    fn limit_reached(&self) -> bool {
        let flushes_first = self.flushing.is_due && self.flushing.follows_last;
        let enough = self.started_bytes >= self.limits.end_bytes && !flushes_first;
        (enough || self.started >= self.limits.ios) && self.parked.is_none()
    }

    pub(super) fn is_stalled(&self) -> bool {
        let waiting = self.in_flight > 0 || self.parked.is_some() || self.has_pending_copies();
        waiting
            && self
                .clock
                .now_ns()
                .saturating_sub(self.lifecycle.last_ending_ns)
                >= nanos(self.silence_limit())
    }

    /// Longest silence of the disk at the end of the job. It is short when the job has had its
    /// time or ends early. A job that has yet to move its amount, or to read back, waits longer.
    pub(super) fn silence_limit(&self) -> Duration {
        let Lifecycle {
            cut_short,
            time_is_over,
            ..
        } = self.lifecycle;
        match cut_short || time_is_over && !self.reads_back() {
            true => self.setup.stop_drain.min(self.setup.drain),
            false => self.setup.drain,
        }
    }

    fn reads_back(&self) -> bool {
        self.verifier.as_ref().is_some_and(Verifier::reads_back)
    }

    fn begin_measuring(&mut self, shard: &mut Shard) {
        self.reset_counters();
        (self.started, self.started_bytes) = (0, 0);
        self.lifecycle.measured_from_ns = Some(self.clock.now_ns());
        self.lifecycle.cpu_from = topology::thread_cpu_time();
        self.begin_search();
        self.lifecycle.until_ns = self.clock.now_ns() + nanos(self.setup.job.runtime);
        self.measure(shard);
    }

    fn measure(&mut self, shard: &mut Shard) {
        self.lifecycle.phase = JobPhase::Measure {
            until_ns: self.lifecycle.until_ns,
        };
        self.wake_at_phase_end(shard);
    }

    /// Ends the job early. Requests in flight are still awaited.
    #[cold]
    pub(super) fn end_early(&mut self, shard: &mut Shard, why: String) {
        self.tally.ended_early.get_or_insert(why);
        self.lifecycle.cut_short = true;
        self.drain(shard);
        // The wait for the requests in flight is shorter now.
        self.wake_at_phase_end(shard);
    }

    /// Stops starting requests.
    pub(super) fn drain(&mut self, shard: &mut Shard) {
        // The other pieces of a split request are in flight, so its parked piece has to follow
        // them.
        if self.pieces.most == 1
            && let Some(slot) = self.parked.take()
        {
            let unit = self.slots[slot as usize].access.unit;
            self.verifier
                .iter_mut()
                .for_each(|verifier| verifier.release(unit));
            self.idle.push_back(slot);
        }
        if self.lifecycle.cut_short {
            self.discard_pending_copies();
        }
        if !matches!(self.lifecycle.phase, JobPhase::Drain | JobPhase::Ended) {
            self.lifecycle.phase = JobPhase::Drain;
            self.lifecycle.last_ending_ns = self.clock.now_ns();
            self.wake_at_phase_end(shard);
        }
    }

    /// Called when no request can be started. Checks whether the phase is complete.
    #[inline]
    pub(super) fn check_phase_complete(&mut self, shard: &mut Shard) {
        if self.in_flight == 0 {
            self.all_answered(shard);
        }
    }

    fn all_answered(&mut self, shard: &mut Shard) {
        match self.lifecycle.phase {
            JobPhase::Probe if self.started > 0 => {
                self.lifecycle.phase = JobPhase::Ready;
                self.send(Event::Ready(self.setup.worker, self.id));
            }
            JobPhase::Drain if self.flushing.is_due_at_end && !self.lifecycle.cut_short => {
                self.flush_at_end(shard);
            }
            JobPhase::Drain => self.drained(shard),
            JobPhase::ReadBack { next } if next >= self.setup.region.units => {
                self.read_back_ended(shard);
            }
            JobPhase::Ramp { .. } | JobPhase::Measure { .. }
                if self.arrivals.answered(self.clock.now_ns()) =>
            {
                self.wait_for_arrival(shard);
            }
            _ => {}
        }
    }

    /// The load has ended and all requests are answered.
    fn drained(&mut self, shard: &mut Shard) {
        self.stop_measuring(self.clock.now_ns());
        if self.lifecycle.cut_short || !self.reads_back() {
            return self.end(shard);
        }
        self.lifecycle.read_back_from_ns = Some(self.clock.now_ns());
        self.lifecycle.phase = JobPhase::ReadBack { next: 0 };
        self.wake_at_phase_end(shard);
        shard.flush_later(self.id);
    }

    /// Ends the job, or begins its next pass.
    fn read_back_ended(&mut self, shard: &mut Shard) {
        let now_ns = self.clock.now_ns();
        let from_ns = self.lifecycle.read_back_from_ns.take();
        self.tally.read_back_ns += now_ns - from_ns.unwrap_or(now_ns);
        let (Some(read_back), Some(_)) = (&self.tally.read_back, self.lifecycle.measured_from_ns)
        else {
            return self.end(shard);
        };
        let is_over = self.lifecycle.cut_short || now_ns >= self.lifecycle.until_ns;
        let moved = self.started_bytes + read_back.bytes;
        if is_over
            || !self
                .limits
                .next_pass(self.started, self.started_bytes, moved)
        {
            return self.end(shard);
        }
        self.lifecycle.counts = true;
        self.lifecycle.measured_from_ns = Some(now_ns - self.tally.runtime_ns);
        self.lifecycle.cpu_from = topology::thread_cpu_time().saturating_sub(self.tally.cpu_time);
        self.flushing.is_due_at_end = self.setup.job.flushes.at_end;
        self.measure(shard);
        shard.flush_later(self.id);
    }

    /// Time and CPU use include the drain up to `end_ns`, because its requests are counted.
    fn stop_measuring(&mut self, end_ns: u64) {
        if !std::mem::replace(&mut self.lifecycle.counts, false) {
            return;
        }
        let Some(from_ns) = self.lifecycle.measured_from_ns else {
            // The job ended during the ramp: its counters are void.
            return self.reset_counters();
        };
        self.tally.until_ns = end_ns.max(from_ns);
        self.tally.runtime_ns = self.tally.until_ns - from_ns;
        self.tally.cpu_time = topology::thread_cpu_time().saturating_sub(self.lifecycle.cpu_from);
    }

    /// Reports without the missing answers, because the disk is silent. The requests without an
    /// answer have failed. The measured time ends with the last answer, or with the planned end.
    fn abandon(&mut self, shard: &mut Shard) {
        let unanswered = self.setup.job.iodepth as usize - self.idle.len() - self.resting.len();
        let requests = Counted(unanswered as u64, "request");
        let seconds = self.silence_limit().as_secs_f64();
        let why = format!("gave up {requests} without an answer for {seconds} s");
        let job = self.setup.index;
        self.tally
            .errors
            .count(Status::NotReady, unanswered as u64, || {
                format!("job {job}: {why}")
            });
        self.tally.ended_early = Some(match self.tally.ended_early.take() {
            Some(earlier) => format!("{earlier}; {why}"),
            None => why,
        });
        self.stop_measuring(self.lifecycle.last_ending_ns);
        self.end(shard);
    }

    fn end(&mut self, shard: &mut Shard) {
        self.lifecycle.phase = JobPhase::Ended;
        if let Some(from_ns) = self.lifecycle.read_back_from_ns {
            self.tally.read_back_ns += self.clock.now_ns() - from_ns;
        }
        self.parked = None;
        // Close the channel while its shard still runs.
        (self.channel, self.copy) = (None, None);
        let tally = std::mem::replace(&mut self.tally, Tally::new(false, false));
        self.send(Event::Ended(self.setup.worker, Box::new(tally)));
        shard.remove(self.id);
        shard.stop();
    }

    /// Sends an event to the run. The receiver is gone if the run has already failed.
    fn send(&self, event: Event) {
        let _ = self.setup.events.send(event);
    }

    /// Publishes the counters of one direction for the progress report. This happens after every
    /// request, because the time of the next completion is unknown.
    #[inline]
    pub(super) fn publish(&self, direction: Direction) {
        let counters = &self.setup.counters.sides[direction.index()];
        let side = &self.tally.sides[direction.index()];
        counters.ios.store(side.ios, Relaxed);
        counters.bytes.store(side.bytes, Relaxed);
        let latency = side.latency.as_ref().unwrap_or(&side.service);
        counters.wait_ns.store(latency.sum_ns(), Relaxed);
    }

    pub(super) fn publish_errors(&self) {
        let counters = &self.setup.counters;
        counters.errors.store(self.tally.errors.total(), Relaxed);
    }

    /// Clears all counters.
    fn reset_counters(&mut self) {
        self.tally.begin_measuring();
        for direction in [Direction::Read, Direction::Write, Direction::Trim] {
            self.publish(direction);
        }
        self.publish_errors();
    }
}

/// A duration in nanoseconds, limited to 146 years.
pub(super) fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos())
        .unwrap_or(u64::MAX)
        .min(u64::MAX / 4)
}
