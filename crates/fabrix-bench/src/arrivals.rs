//! Start times of requests: when another request ends (closed loop), or by a schedule (open loop).
//!
//! A closed loop hides stalls: while the disk is stalled, no new request starts. An open loop keeps
//! its schedule and measures latency from the scheduled start, so a stall adds to the latency of
//! every request that it delays. This is pure arithmetic; the worker supplies the time.

use std::time::Duration;

use crate::job::RUNTIME_MAX;
use crate::random::{Random, whole};

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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// Requests per second of each job (`rate_iops`).
    pub iops: u32,
    /// Spacing of the starts.
    pub pacing: Pacing,
}

impl Rate {
    /// Checks the rate. The error is the end of a sentence about the job.
    pub(crate) fn check(self) -> Result<(), String> {
        if (1..=RATE_IOPS_MAX).contains(&self.iops) {
            return Ok(());
        }
        Err(format!(
            "rate_iops={} is outside 1..{RATE_IOPS_MAX}",
            self.iops
        ))
    }
}

/// A closed loop with pauses: `ios` requests, then a pause (DiskSpd's `-i` and `-j`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bursts {
    /// Requests of a burst.
    pub ios: u32,
    /// Time from the last start of a burst to the first start of the next one.
    pub pause: Duration,
}

impl Bursts {
    /// Checks the bursts. The error is the end of a sentence about the job.
    pub(crate) fn check(self) -> Result<(), String> {
        if self.ios == 0 {
            return Err("a burst has at least one request".into());
        }
        if self.pause > RUNTIME_MAX {
            return Err("the pause between two bursts is limited to a year".into());
        }
        Ok(())
    }

    #[inline]
    fn pause_ns(self) -> u64 {
        u64::try_from(self.pause.as_nanos()).unwrap_or(u64::MAX)
    }
}

/// The schedule of a job.
#[derive(Debug)]
pub(crate) enum Arrivals {
    /// Closed loop: start whenever a slot is free.
    Closed,
    /// Closed loop with pauses.
    Bursts {
        bursts: Bursts,
        /// Requests left in the current burst.
        left: u32,
        /// Earliest start of the next request.
        next_ns: u64,
    },
    /// Open loop: start at the times of a schedule.
    Open {
        next_ns: u64,
        mean_ns: f64,
        carry: f64,
        pacing: Pacing,
        random: Random,
    },
}

impl Arrivals {
    /// The schedule of one job. Times are those of the worker's clock, in nanoseconds.
    pub(crate) fn new(rate: Option<Rate>, bursts: Option<Bursts>, seed: u64) -> Self {
        if let Some(bursts) = bursts {
            return Self::Bursts {
                bursts,
                left: bursts.ios,
                next_ns: 0,
            };
        }
        let Some(rate) = rate else {
            return Self::Closed;
        };
        Self::Open {
            next_ns: 0,
            mean_ns: 1e9 / f64::from(rate.iops),
            carry: 0.0,
            pacing: rate.pacing,
            random: Random::new(seed),
        }
    }

    /// Starts the schedule at `now_ns`.
    pub(crate) fn begin(&mut self, now_ns: u64) {
        match self {
            Self::Closed => {}
            Self::Bursts { next_ns, .. } | Self::Open { next_ns, .. } => *next_ns = now_ns,
        }
    }

    /// The scheduled start of the next request, if it is not in the future. Then advances the
    /// schedule.
    #[inline]
    pub(crate) fn due(&mut self, now_ns: u64) -> Option<u64> {
        match self {
            Self::Closed => Some(now_ns),
            Self::Bursts { next_ns, .. } | Self::Open { next_ns, .. } if *next_ns > now_ns => None,
            Self::Bursts {
                bursts,
                left,
                next_ns,
            } => {
                *left -= 1;
                if *left == 0 {
                    *left = bursts.ios;
                    *next_ns = now_ns.saturating_add(bursts.pause_ns());
                }
                Some(now_ns)
            }
            Self::Open {
                next_ns,
                mean_ns,
                carry,
                pacing,
                random,
            } => {
                let meant = *next_ns;
                let gap = *carry + *mean_ns * draw(*pacing, random);
                // The fraction of a nanosecond is carried over. Otherwise a fixed rate would drift.
                *carry = gap.fract();
                *next_ns = meant.saturating_add(whole(gap));
                Some(meant)
            }
        }
    }

    /// Time of the next scheduled start. None in a closed loop.
    pub(crate) fn next_ns(&self) -> Option<u64> {
        match self {
            Self::Closed => None,
            Self::Bursts { next_ns, .. } | Self::Open { next_ns, .. } => Some(*next_ns),
        }
    }
}

/// Draws the next gap as a multiple of the mean gap.
fn draw(pacing: Pacing, random: &mut Random) -> f64 {
    match pacing {
        Pacing::Fixed => 1.0,
        Pacing::Poisson => -random.unit().ln(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn starts(pacing: Pacing, iops: u32, until_ns: u64) -> Vec<u64> {
        let mut arrivals = Arrivals::new(Some(Rate { iops, pacing }), None, 7);
        arrivals.begin(0);
        std::iter::from_fn(|| arrivals.due(until_ns)).collect()
    }

    #[test]
    fn a_fixed_rate_neither_drifts_nor_bunches() {
        let starts = starts(Pacing::Fixed, 300_000, 999_999_999);
        assert!(
            (299_990..=300_010).contains(&starts.len()),
            "{}",
            starts.len()
        );
        assert!(
            starts
                .windows(2)
                .all(|pair| (3333..=3334).contains(&(pair[1] - pair[0])))
        );
    }

    #[test]
    fn poisson_arrivals_have_the_mean_and_the_spread_of_their_name() {
        let starts = starts(Pacing::Poisson, 100_000, 1_000_000_000);
        let count = starts.len();
        assert!((98_500..=101_500).contains(&count), "{count}");
        let long = starts
            .windows(2)
            .filter(|pair| pair[1] - pair[0] > 10_000)
            .count();
        // A gap is longer than the mean with probability 1/e.
        assert!((36_000..=37_700).contains(&long), "{long}");
    }

    #[test]
    fn a_request_that_is_not_due_has_to_wait() {
        let mut arrivals = Arrivals::new(
            Some(Rate {
                iops: 1000,
                pacing: Pacing::Fixed,
            }),
            None,
            1,
        );
        arrivals.begin(500);
        assert_eq!(arrivals.due(499), None);
        assert_eq!(arrivals.due(500), Some(500));
        assert_eq!(arrivals.due(500), None);
        assert_eq!(arrivals.next_ns(), Some(1_000_500));
    }

    #[test]
    fn a_burst_is_followed_by_its_pause() {
        let bursts = Bursts {
            ios: 3,
            pause: Duration::from_nanos(100),
        };
        let mut arrivals = Arrivals::new(None, Some(bursts), 1);
        arrivals.begin(50);
        let starts: Vec<u64> = (50..400)
            .filter(|now| arrivals.due(*now).is_some())
            .collect();
        assert_eq!(
            starts,
            [50, 51, 52, 152, 153, 154, 254, 255, 256, 356, 357, 358]
        );
        assert_eq!(arrivals.next_ns(), Some(458));
    }
}
