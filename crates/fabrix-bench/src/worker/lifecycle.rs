//! The life of a job: the first read, the start, the ramp, the measured time, the last answers, the
//! reading back, the report. And what wakes a job that waits: timers, which are the only way it
//! looks at time while nothing ends.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use fabrix_rt::{Nanos, Shard, Token, topology};

use super::{Event, Worker};
use crate::results::Tally;
use crate::words::Counted;

/// How soon a disk that is busy without having anything of ours is asked again.
const RETRY: Duration = Duration::from_millis(1);

/// The slots of timers; requests have those below the depth.
const TIMER_PHASE: u32 = u32::MAX;
const TIMER_ARRIVAL: u32 = u32::MAX - 1;
const TIMER_RETRY: u32 = u32::MAX - 2;

/// Where a job is in its life, with the moment the phase ends by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// One read is under way, to bring the disk's connections up before anything is measured.
    Probe,
    /// Waiting for the other jobs.
    Ready,
    /// The load runs and is forgotten at the end.
    Ramp { until_ns: u64 },
    /// The load runs and counts.
    Measure { until_ns: u64 },
    /// Nothing starts; what is in flight is waited for.
    Drain,
    /// What was written is read back, from place `next` on.
    ReadBack { next: u64 },
    /// The result is sent.
    Ended,
}

/// What a job knows about its own life.
pub(super) struct Life {
    pub(super) phase: Phase,
    /// Whether endings count in the result.
    pub(super) counts: bool,
    /// The last moment something ended, or began to be waited for.
    pub(super) alive_ns: u64,
    /// Whether the job is to end without reading back.
    cut_short: bool,
    /// Whether the user waits for the end.
    stopped: bool,
    measured_from_ns: Option<u64>,
    cpu_from: Duration,
    arrival_timer: bool,
    retry_timer: bool,
}

impl Default for Life {
    fn default() -> Self {
        Self {
            phase: Phase::Probe,
            counts: false,
            alive_ns: 0,
            cut_short: false,
            stopped: false,
            measured_from_ns: None,
            cpu_from: Duration::ZERO,
            arrival_timer: false,
            retry_timer: false,
        }
    }
}

impl Life {
    pub(super) const fn is_cut_short(&self) -> bool {
        self.cut_short
    }
}

impl Worker {
    /// Everybody is ready.
    pub(super) fn begin(&mut self, shard: &mut Shard) {
        if self.life.phase != Phase::Ready {
            return;
        }
        (self.started, self.started_bytes) = (0, 0);
        self.life.counts = true;
        self.arrivals.begin(self.clock.now_ns());
        self.life.phase = Phase::Ramp {
            until_ns: self.clock.now_ns() + nanos(self.setup.job.ramp),
        };
        self.wake_at_phase_end(shard);
        self.pump(shard);
    }

    /// The user has seen enough.
    pub(super) fn stop(&mut self, shard: &mut Shard) {
        match self.life.phase {
            Phase::Ended => {}
            Phase::Ready => self.end(shard),
            _ => {
                self.life.stopped = true;
                self.give_up(shard, "stopped before its time".into());
                self.wake_at_phase_end(shard);
                self.pump(shard);
            }
        }
    }

    /// There is nothing more to learn: ends as if its time were over.
    pub(super) fn enough(&mut self, shard: &mut Shard) {
        if matches!(self.life.phase, Phase::Measure { .. }) {
            self.drain(shard);
        }
        self.pump(shard);
    }

    /// Moves on when the time of a phase is over.
    #[inline]
    pub(super) fn advance(&mut self, shard: &mut Shard) {
        match self.life.phase {
            Phase::Ramp { until_ns } if self.clock.now_ns() >= until_ns => {
                self.begin_measuring(shard)
            }
            Phase::Measure { until_ns } if self.clock.now_ns() >= until_ns => self.drain(shard),
            Phase::Measure { .. } if self.asked_enough() => self.drain(shard),
            Phase::Drain | Phase::ReadBack { .. } if self.is_stalled() => self.abandon(shard),
            _ => {}
        }
    }

    fn asked_enough(&self) -> bool {
        let job = &self.setup.job;
        let ios = job.number_ios.is_some_and(|ios| self.started >= ios);
        let region_bytes = self.setup.region.units * u64::from(self.unit_bytes);
        let enough = |loops: u32| self.started_bytes >= region_bytes.saturating_mul(loops.into());
        (ios || job.loops.is_some_and(enough)) && self.parked.is_none()
    }

    fn is_stalled(&self) -> bool {
        let waiting = self.in_flight > 0 || self.parked.is_some() || self.has_copied();
        waiting && self.clock.now_ns().saturating_sub(self.life.alive_ns) >= nanos(self.patience())
    }

    /// How long the disk may be silent at the end.
    fn patience(&self) -> Duration {
        match self.life.stopped {
            true => self.setup.stop_drain.min(self.setup.drain),
            false => self.setup.drain,
        }
    }

    fn begin_measuring(&mut self, shard: &mut Shard) {
        self.count_anew();
        (self.started, self.started_bytes) = (0, 0);
        self.life.measured_from_ns = Some(self.clock.now_ns());
        self.life.cpu_from = topology::thread_cpu_time();
        self.life.phase = Phase::Measure {
            until_ns: self.clock.now_ns() + nanos(self.setup.job.runtime),
        };
        self.wake_at_phase_end(shard);
    }

    /// Ends the job before its time; what is in flight is still waited for.
    #[cold]
    pub(super) fn give_up(&mut self, shard: &mut Shard, why: String) {
        self.tally.ended_early.get_or_insert(why);
        self.life.cut_short = true;
        self.drain(shard);
    }

    /// Starts nothing more.
    fn drain(&mut self, shard: &mut Shard) {
        if let Some(slot) = self.parked.take() {
            let unit = self.slots[slot as usize].access.unit;
            self.verifier
                .iter_mut()
                .for_each(|verifier| verifier.release(unit));
            self.idle.push_back(slot);
        }
        if self.life.cut_short {
            self.forget_copied();
        }
        if !matches!(self.life.phase, Phase::Drain | Phase::Ended) {
            self.life.phase = Phase::Drain;
            self.life.alive_ns = self.clock.now_ns();
            self.wake_at_phase_end(shard);
        }
    }

    /// Nothing can be started now: sees whether a phase is complete.
    #[inline]
    pub(super) fn settle(&mut self, shard: &mut Shard) {
        if self.in_flight == 0 {
            self.all_answered(shard);
        }
    }

    fn all_answered(&mut self, shard: &mut Shard) {
        match self.life.phase {
            Phase::Probe if self.started > 0 => {
                self.life.phase = Phase::Ready;
                self.tell(Event::Ready(self.setup.worker, self.id));
            }
            Phase::Drain => self.drained(shard),
            Phase::ReadBack { next } if next >= self.setup.region.units => self.end(shard),
            _ => {}
        }
    }

    /// The load is over and everything is answered.
    fn drained(&mut self, shard: &mut Shard) {
        self.stop_measuring();
        if self.life.cut_short || self.verifier.is_none() {
            return self.end(shard);
        }
        self.life.phase = Phase::ReadBack { next: 0 };
        self.wake_at_phase_end(shard);
        shard.flush_later(self.id);
    }

    /// Time and CPU include what was in flight at the end, because its requests are counted.
    fn stop_measuring(&mut self) {
        if !std::mem::replace(&mut self.life.counts, false) {
            return;
        }
        let Some(from_ns) = self.life.measured_from_ns else {
            // Ended during the ramp: nothing of it counts.
            return self.count_anew();
        };
        self.tally.runtime_ns = self.clock.now_ns() - from_ns;
        self.tally.cpu_time = topology::thread_cpu_time().saturating_sub(self.life.cpu_from);
    }

    /// The disk does not answer any more: reports without it.
    fn abandon(&mut self, shard: &mut Shard) {
        let waiting = Counted(self.in_flight.into(), "request");
        let seconds = self.patience().as_secs_f64();
        let why = format!("gave up {waiting} without an answer for {seconds} s");
        self.tally.ended_early.get_or_insert(why);
        self.stop_measuring();
        self.end(shard);
    }

    fn end(&mut self, shard: &mut Shard) {
        self.life.phase = Phase::Ended;
        self.parked = None;
        // The channel is closed on its own shard, while that still turns.
        (self.channel, self.copy) = (None, None);
        let tally = std::mem::replace(&mut self.tally, Tally::new(false, false));
        self.tell(Event::Ended(self.setup.worker, Box::new(tally)));
        shard.remove(self.id);
        shard.stop();
    }

    /// The run has gone if nobody listens; then there is nobody to tell.
    fn tell(&self, event: Event) {
        let _ = self.setup.events.send(event);
    }

    /// Shows the counters of one direction to whoever draws the progress: after every request,
    /// because nobody knows when the next one ends.
    #[inline]
    pub(super) fn show(&self, write: bool) {
        let counters = &self.setup.counters.sides[usize::from(write)];
        let side = &self.tally.sides[usize::from(write)];
        counters.ios.store(side.ios, Relaxed);
        counters.bytes.store(side.bytes, Relaxed);
        let latency = side.latency.as_ref().unwrap_or(&side.service);
        counters.wait_ns.store(latency.sum_ns(), Relaxed);
    }

    pub(super) fn show_errors(&self) {
        let counters = &self.setup.counters;
        counters.errors.store(self.tally.errors.total(), Relaxed);
    }

    /// Nothing counts of what there was before.
    fn count_anew(&mut self) {
        self.tally.begin_measuring();
        self.show(false);
        self.show(true);
        self.show_errors();
    }
}

/// What wakes a job that waits.
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

    /// Wakes the job when its phase may be over.
    fn wake_at_phase_end(&self, shard: &mut Shard) {
        let until_ns = match self.life.phase {
            Phase::Ramp { until_ns } | Phase::Measure { until_ns } => until_ns,
            Phase::Drain | Phase::ReadBack { .. } => self.life.alive_ns + nanos(self.patience()),
            Phase::Probe | Phase::Ready | Phase::Ended => return,
        };
        self.wake(shard, TIMER_PHASE, until_ns);
    }

    pub(super) fn wait_for_arrival(&mut self, shard: &mut Shard) {
        let Some(next_ns) = self.arrivals.next_ns() else {
            return;
        };
        if !std::mem::replace(&mut self.life.arrival_timer, true) {
            self.wake(shard, TIMER_ARRIVAL, next_ns);
        }
    }

    /// Any ending of the channel makes room; without one of ours, only time can.
    pub(super) fn wait_for_room(&mut self, shard: &mut Shard) {
        if self.in_flight == 0 && !std::mem::replace(&mut self.life.retry_timer, true) {
            self.wake(shard, TIMER_RETRY, self.clock.now_ns() + nanos(RETRY));
        }
    }

    /// A timer has rung; what is to be done shows when the job is pumped.
    pub(super) fn woken(&mut self, shard: &mut Shard, slot: u32) {
        match slot {
            TIMER_ARRIVAL => self.life.arrival_timer = false,
            TIMER_RETRY => self.life.retry_timer = false,
            // The end of a stall moves with every ending: look again.
            _ if matches!(self.life.phase, Phase::Drain | Phase::ReadBack { .. })
                && !self.is_stalled() =>
            {
                self.wake_at_phase_end(shard);
            }
            _ => {}
        }
    }
}

/// A length of time in nanoseconds; 146 years is the same as for ever.
fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos())
        .unwrap_or(u64::MAX)
        .min(u64::MAX / 4)
}
