//! Start times of requests: when another request ends (closed loop), or by a schedule (open loop).
//!
//! A closed loop hides stalls: while the disk is stalled, no new request starts. An open loop keeps
//! its schedule and measures latency from the scheduled start, so a stall adds to the latency of
//! every request that it delays. This is pure arithmetic; the worker supplies the time.

mod flow;

use std::time::Duration;

use crate::random::{Random, mix, whole};
pub use flow::FlowShare;
pub(crate) use flow::{Flow, Member};

/// Longest pause between two bursts: a year.
const PAUSE_MAX: Duration = Duration::from_secs(365 * 86_400);
/// Highest offered load of one job, in requests per second.
pub const RATE_IOPS_MAX: u32 = 50_000_000;

/// Spacing of the starts in an open loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pacing {
    /// Equal distances (fio's `rate_process=linear`).
    Fixed,
    /// Independent, exponentially distributed distances (fio's `rate_process=poisson`).
    Poisson,
}

/// An offered load.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rate {
    /// Requests per second of each job (`rate_iops`).
    pub iops: f64,
    /// Spacing of the starts.
    pub pacing: Pacing,
}

impl Rate {
    /// Checks the rate. The error is the end of a sentence about the job.
    pub(crate) fn check(self) -> Result<(), String> {
        if self.iops > 0.0 && self.iops <= f64::from(RATE_IOPS_MAX) {
            return Ok(());
        }
        Err(format!(
            "rate_iops={} is not above 0 and up to {RATE_IOPS_MAX}",
            self.iops
        ))
    }
}

/// A closed loop with pauses: `ios` requests, then a pause (DiskSpd's `-i` and `-j`, fio's
/// `thinktime`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bursts {
    /// Requests of a burst.
    pub ios: u32,
    /// Longest time of a burst, from its first start (`thinktime_iotime`).
    pub time: Option<Duration>,
    /// Time to the first start of the next burst.
    pub pause: Duration,
    /// Whether the pause begins when all requests of the burst are answered, as in fio. False: the
    /// pause begins with the last start of the burst, as in DiskSpd.
    pub quiet: bool,
}

impl Bursts {
    /// Checks the bursts. The error is the end of a sentence about the job.
    pub(crate) fn check(self) -> Result<(), String> {
        if self.ios == 0 {
            return Err("a burst has at least one request".into());
        }
        if self.pause > PAUSE_MAX {
            return Err("the pause between two bursts is limited to a year".into());
        }
        Ok(())
    }
}

/// A duration in nanoseconds.
#[inline]
fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// The next request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Start {
    /// Scheduled start.
    pub(crate) scheduled_ns: u64,
    /// Direction: true for a write. None: the mix decides.
    pub(crate) write: Option<bool>,
}

/// The schedule of a job.
#[derive(Debug)]
pub(crate) enum Arrivals {
    /// Closed loop: start whenever a slot is free.
    Closed,
    /// Closed loop with pauses.
    Bursts(Burst),
    /// Closed loop in proportion to other jobs.
    Flow(Member),
    /// Open loop: start at the times of a schedule.
    Open(Schedule),
    /// Schedules of reads and of writes. A direction without one starts whenever a slot is free.
    Sides([Option<Schedule>; 2]),
}

/// State of a closed loop with pauses.
#[derive(Debug)]
pub(crate) struct Burst {
    bursts: Bursts,
    /// Requests left in the current burst.
    left: u32,
    /// Start of the current burst.
    begun_ns: u64,
    /// Earliest start of the next request. [`NEVER`] while the answers of a burst are awaited.
    next_ns: u64,
}

/// Time of a start that depends on an answer.
const NEVER: u64 = u64::MAX;

impl Burst {
    #[inline]
    fn due(&mut self, now_ns: u64) -> Option<u64> {
        if self.next_ns > now_ns {
            return None;
        }
        if self.left == self.bursts.ios {
            self.begun_ns = now_ns;
        }
        let is_long = |time| now_ns - self.begun_ns >= nanos(time);
        if self.left < self.bursts.ios && self.bursts.time.is_some_and(is_long) {
            self.end(now_ns);
            return None;
        }
        self.left -= 1;
        if self.left == 0 {
            self.end(now_ns);
        }
        Some(now_ns)
    }

    /// Ends a burst.
    fn end(&mut self, now_ns: u64) {
        self.left = self.bursts.ios;
        self.next_ns = match self.bursts.quiet {
            true => NEVER,
            false => now_ns.saturating_add(nanos(self.bursts.pause)),
        };
    }
}

/// The starts of an open loop.
#[derive(Debug)]
pub(crate) struct Schedule {
    next_ns: u64,
    mean_ns: f64,
    carry: f64,
    pacing: Pacing,
    random: Random,
}

impl Schedule {
    fn new(rate: Rate, seed: u64) -> Self {
        Self {
            next_ns: 0,
            mean_ns: 1e9 / rate.iops,
            carry: 0.0,
            pacing: rate.pacing,
            random: Random::new(seed),
        }
    }

    #[inline]
    fn due(&mut self, now_ns: u64) -> Option<u64> {
        if self.next_ns > now_ns {
            return None;
        }
        let meant = self.next_ns;
        let gap = self.carry + self.mean_ns * draw(self.pacing, &mut self.random);
        // The fraction of a nanosecond is carried over. Otherwise a fixed rate would drift.
        self.carry = gap.fract();
        self.next_ns = meant.saturating_add(whole(gap));
        Some(meant)
    }
}

impl Arrivals {
    /// The schedule of one job. Times are those of the worker's clock, in nanoseconds.
    pub(crate) fn new(
        rate: Option<Rate>,
        side_rates: [Option<Rate>; 2],
        bursts: Option<Bursts>,
        flow: Option<Member>,
        seed: u64,
    ) -> Self {
        if let Some(member) = flow {
            return Self::Flow(member);
        }
        if let Some(bursts) = bursts {
            return Self::Bursts(Burst {
                bursts,
                left: bursts.ios,
                begun_ns: 0,
                next_ns: 0,
            });
        }
        match (rate, side_rates) {
            (Some(rate), _) => Self::Open(Schedule::new(rate, seed)),
            (None, [None, None]) => Self::Closed,
            (None, [reads, writes]) => Self::Sides([
                reads.map(|rate| Schedule::new(rate, seed)),
                writes.map(|rate| Schedule::new(rate, mix(seed))),
            ]),
        }
    }

    /// Starts the schedule at `now_ns`.
    pub(crate) fn begin(&mut self, now_ns: u64) {
        match self {
            Self::Closed => {}
            Self::Bursts(burst) => burst.next_ns = now_ns,
            Self::Flow(member) => member.begin(now_ns),
            Self::Open(schedule) => schedule.next_ns = now_ns,
            Self::Sides(sides) => {
                let schedules = sides.iter_mut().flatten();
                schedules.for_each(|schedule| schedule.next_ns = now_ns);
            }
        }
    }

    /// The next request, if its scheduled start is not in the future. Then advances the schedule.
    #[inline]
    pub(crate) fn due(&mut self, now_ns: u64) -> Option<Start> {
        let scheduled_ns = match self {
            Self::Closed => Some(now_ns),
            Self::Bursts(burst) => burst.due(now_ns),
            Self::Flow(member) => member.due(now_ns),
            Self::Open(schedule) => schedule.due(now_ns),
            Self::Sides(sides) => return due_side(sides, now_ns),
        };
        scheduled_ns.map(|scheduled_ns| Start {
            scheduled_ns,
            write: None,
        })
    }

    /// Time of the next scheduled start. None in a closed loop, and while a burst awaits its
    /// answers.
    pub(crate) fn next_ns(&self) -> Option<u64> {
        let next_ns = match self {
            Self::Closed => None,
            Self::Bursts(burst) => Some(burst.next_ns),
            Self::Flow(member) => Some(member.next_ns),
            Self::Open(schedule) => Some(schedule.next_ns),
            Self::Sides(sides) => {
                let schedules = sides.iter().flatten();
                schedules.map(|schedule| schedule.next_ns).min()
            }
        };
        next_ns.filter(|next_ns| *next_ns != NEVER)
    }

    /// Begins the pause of a burst, when all its requests are answered. True: there was such a
    /// burst.
    pub(crate) fn answered(&mut self, now_ns: u64) -> bool {
        match self {
            Self::Bursts(burst) if burst.next_ns == NEVER => {
                burst.next_ns = now_ns.saturating_add(nanos(burst.bursts.pause));
                true
            }
            _ => false,
        }
    }
}

/// The next request of two schedules. The one that is due for longer goes first, and a direction
/// without a schedule goes last.
fn due_side(sides: &mut [Option<Schedule>; 2], now_ns: u64) -> Option<Start> {
    let next = |side: &Option<Schedule>| side.as_ref().map_or(now_ns, |side| side.next_ns);
    let write = match sides {
        [Some(_), None] => next(&sides[0]) > now_ns,
        [None, Some(_)] => next(&sides[1]) <= now_ns,
        _ => next(&sides[1]) < next(&sides[0]),
    };
    let scheduled_ns = match &mut sides[usize::from(write)] {
        Some(schedule) => schedule.due(now_ns)?,
        None => now_ns,
    };
    Some(Start {
        scheduled_ns,
        write: Some(write),
    })
}

/// Draws the next gap as a multiple of the mean gap.
fn draw(pacing: Pacing, random: &mut Random) -> f64 {
    match pacing {
        Pacing::Fixed => 1.0,
        Pacing::Poisson => -random.unit().ln(),
    }
}

#[cfg(test)]
mod tests;
