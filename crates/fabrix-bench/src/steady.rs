//! Detects the steady state of a disk with fio's criteria (`steadystate`, `ss_dur`, `ss_ramp`).
//!
//! A run is steady when, over a window, no reading deviates from the mean by more than the limit,
//! or when the regression line through the readings is flatter than the limit. This is pure
//! arithmetic over the readings.

use std::collections::VecDeque;
use std::time::Duration;

use crate::series::Point;

/// A steady-state condition.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Steady {
    /// Whether to judge bytes per second. False: requests per second.
    pub bandwidth: bool,
    /// Whether to judge the slope of the regression line. False: the deviation from the mean.
    pub slope: bool,
    /// Limit in percent of the mean, for a slope in percent of the mean per second.
    pub limit_percent: f64,
    /// Time over which the condition must hold (`ss_dur`).
    pub window: Duration,
    /// Time at the start that is not judged (`ss_ramp`).
    pub ramp: Duration,
}

/// Result of a steady-state condition.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Attained {
    /// Time from the start of the measurement until the state was reached. None: never reached.
    pub at: Option<Duration>,
    /// Last judged value, in percent of the mean.
    pub percent: f64,
}

impl Steady {
    /// Parses fio's words: `iops:5%`, `bw:2%`, `iops_slope:0.3%`, `bw_slope:0.3%`.
    ///
    /// Errors: a sentence that shows the form.
    pub fn parse(text: &str, window: Duration, ramp: Duration) -> Result<Self, String> {
        let wrong = || {
            format!(
                "steadystate={text} is not understood; write iops:5%, bw:5%, iops_slope:0.3% or bw_slope:0.3%"
            )
        };
        let (what, limit) = text.split_once(':').ok_or_else(wrong)?;
        let (bandwidth, slope) = match what {
            "iops" => (false, false),
            "bw" => (true, false),
            "iops_slope" => (false, true),
            "bw_slope" => (true, true),
            _ => return Err(wrong()),
        };
        let limit_percent = limit
            .strip_suffix('%')
            .and_then(|number| number.parse().ok());
        let limit_percent = limit_percent.filter(|limit: &f64| *limit > 0.0 && limit.is_finite());
        if window.is_zero() {
            return Err(
                "ss_dur=0 leaves nothing to judge; say how long it must be steady, for example \
             ss_dur=10"
                    .into(),
            );
        }
        Ok(Self {
            bandwidth,
            slope,
            limit_percent: limit_percent.ok_or_else(wrong)?,
            window,
            ramp,
        })
    }
}

/// Evaluates a steady-state condition reading by reading.
#[derive(Debug)]
pub(crate) struct SteadyDetector {
    steady: Steady,
    readings: VecDeque<(f64, f64)>,
    attained: Attained,
}

impl SteadyDetector {
    pub(crate) fn new(steady: Steady) -> Self {
        let attained = Attained {
            at: None,
            percent: f64::INFINITY,
        };
        Self {
            steady,
            readings: VecDeque::new(),
            attained,
        }
    }

    /// Adds a reading. Returns true when the state is steady now.
    pub(crate) fn read(&mut self, point: &Point) -> bool {
        if point.at <= self.steady.ramp {
            return false;
        }
        let value = if self.steady.bandwidth {
            point.bw_bytes()
        } else {
            point.iops()
        };
        let now = point.at.as_secs_f64();
        self.readings.push_back((now, value));
        let window = self.steady.window.as_secs_f64();
        let mut whole = false;
        while self.readings.len() > READINGS_MAX
            || self
                .readings
                .front()
                .is_some_and(|(at, _)| now - at >= window)
        {
            self.readings.pop_front();
            whole = true;
        }
        if !whole || self.readings.len() < READINGS_MIN {
            return false;
        }
        self.attained.percent = if self.steady.slope {
            self.slope()
        } else {
            self.deviation()
        };
        let steady = self.attained.percent <= self.steady.limit_percent;
        if steady {
            self.attained.at = Some(point.at);
        }
        steady
    }

    pub(crate) fn attained(&self) -> Attained {
        self.attained
    }

    fn mean(&self, of: fn(&(f64, f64)) -> f64) -> f64 {
        self.readings.iter().map(of).sum::<f64>() / self.readings.len() as f64
    }

    /// Largest deviation from the mean, in percent of the mean.
    fn deviation(&self) -> f64 {
        let mean = self.mean(|(_, value)| *value);
        let most = self
            .readings
            .iter()
            .map(|(_, value)| (value - mean).abs())
            .fold(0.0, f64::max);
        percent(most, mean)
    }

    /// Slope of the regression line, in percent of the mean per second.
    fn slope(&self) -> f64 {
        let (at, value) = (self.mean(|(at, _)| *at), self.mean(|(_, value)| *value));
        let both = self
            .readings
            .iter()
            .map(|(x, y)| (x - at) * (y - value))
            .sum::<f64>();
        let square = self
            .readings
            .iter()
            .map(|(x, _)| (x - at).powi(2))
            .sum::<f64>();
        percent((both / square).abs(), value)
    }
}

fn percent(part: f64, whole: f64) -> f64 {
    if whole > 0.0 {
        part / whole * 100.0
    } else {
        f64::INFINITY
    }
}

/// Fewest readings that allow a judgement, and the most that are kept.
const READINGS_MIN: usize = 3;
const READINGS_MAX: usize = 100_000;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::series::Moved;

    /// Time at which a run with the given requests per second is found steady.
    fn judged(text: &str, ios: impl Iterator<Item = u64>) -> Option<Duration> {
        let steady = Steady::parse(text, Duration::from_secs(5), Duration::from_secs(2))
            .expect("it is fio's form");
        let mut detector = SteadyDetector::new(steady);
        for (at, ios) in (1..).zip(ios) {
            let point = Point {
                at: Duration::from_secs(at),
                span: Duration::from_secs(1),
                sides: [
                    Moved {
                        ios,
                        ..Moved::default()
                    },
                    Moved::default(),
                    Moved::default(),
                ],
            };
            if detector.read(&point) {
                break;
            }
        }
        detector.attained().at
    }

    #[test]
    fn a_disk_that_slows_down_is_steady_only_when_it_has_slowed_down() {
        let falling = || (0..60_u64).map(|at| 1000 - 20 * at.min(30));
        let at = judged("iops:2%", falling()).expect("it is flat from 31 s on");
        assert!(
            (Duration::from_secs(31)..=Duration::from_secs(37)).contains(&at),
            "{at:?}"
        );
        assert!(judged("iops_slope:0.5%", falling()) >= Some(Duration::from_secs(31)));
    }

    #[test]
    fn what_swings_is_never_steady_and_its_slope_is() {
        let swinging = || (0..60_u64).map(|at| if at % 2 == 0 { 900 } else { 1100 });
        assert_eq!(judged("iops:5%", swinging()), None);
        assert!(judged("iops_slope:5%", swinging()).is_some());
    }

    #[test]
    fn nothing_at_all_is_not_steady() {
        assert_eq!(judged("iops:5%", std::iter::repeat_n(0, 60)), None);
    }

    #[test]
    fn words_that_are_none_are_answered_with_the_form() {
        for text in ["iops", "iops:5", "latency:5%", "iops:-1%", "iops:x%"] {
            let error =
                Steady::parse(text, Duration::from_secs(1), Duration::ZERO).expect_err(text);
            assert!(error.contains("write iops:5%"), "{error}");
        }
        assert!(Steady::parse("iops:5%", Duration::ZERO, Duration::ZERO).is_err());
    }
}
