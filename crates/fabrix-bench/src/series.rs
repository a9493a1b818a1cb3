//! The rates of a run over time, from periodic readings of the counters.
//!
//! Memory is bounded: when there are too many points, neighbours are merged and each point covers
//! twice the time.

use std::time::Duration;

use crate::latency::real;

/// Counters of one direction in one interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moved {
    /// Successful requests.
    pub ios: u64,
    /// Bytes of the successful requests.
    pub bytes: u64,
    /// Sum of their latencies in nanoseconds.
    pub wait_ns: u64,
}

impl Moved {
    /// Difference to an earlier reading. Counters that were reset in between count from zero.
    pub(crate) fn since(self, earlier: Self) -> Self {
        if self.ios < earlier.ios {
            return self;
        }
        Self {
            ios: self.ios - earlier.ios,
            bytes: self.bytes.saturating_sub(earlier.bytes),
            wait_ns: self.wait_ns.saturating_sub(earlier.wait_ns),
        }
    }

    pub(crate) fn add(&mut self, other: Self) {
        self.ios += other.ios;
        self.bytes += other.bytes;
        self.wait_ns = self.wait_ns.saturating_add(other.wait_ns);
    }

    /// Mean latency in nanoseconds, or 0 without requests.
    pub fn mean_ns(&self) -> f64 {
        if self.ios == 0 {
            return 0.0;
        }
        real(self.wait_ns.into()) / real(self.ios.into())
    }
}

/// An interval of the measured time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Point {
    /// End of the interval, from the start of the measurement.
    pub at: Duration,
    /// Length of the interval.
    pub span: Duration,
    /// Counters per direction: reads, writes, trims.
    pub sides: [Moved; 3],
}

impl Point {
    /// Counters of all directions together.
    fn sum(&self) -> Moved {
        let mut sum = Moved::default();
        self.sides.iter().for_each(|side| sum.add(*side));
        sum
    }

    /// Merges two neighbouring intervals.
    pub fn joined(first: Self, second: Self) -> Self {
        let mut sides = first.sides;
        let pairs = sides.iter_mut().zip(second.sides);
        pairs.for_each(|(sum, more)| sum.add(more));
        Self {
            at: second.at,
            span: first.span + second.span,
            sides,
        }
    }

    /// Requests per second in all directions.
    pub fn iops(&self) -> f64 {
        self.iops_of(&[0, 1, 2])
    }

    /// Requests per second in these directions, which are indexes of `sides`.
    pub fn iops_of(&self, directions: &[usize]) -> f64 {
        let ios: u64 = directions.iter().map(|side| self.sides[*side].ios).sum();
        real(ios.into()) / self.span.as_secs_f64().max(1e-9)
    }

    /// Bytes per second in all directions.
    pub fn bw_bytes(&self) -> f64 {
        real(self.sum().bytes.into()) / self.span.as_secs_f64().max(1e-9)
    }
}

/// A growing list of points.
#[derive(Debug, Default)]
pub(crate) struct Series {
    points: Vec<Point>,
    /// Number of readings per point.
    every: u32,
    open: Option<(Point, u32)>,
    last: ([Moved; 3], Duration),
}

impl Series {
    /// Starts the series. `counted` belongs to the ramp and is subtracted.
    pub(crate) fn begin(&mut self, counted: [Moved; 3]) {
        *self = Self {
            every: 1,
            last: (counted, Duration::ZERO),
            ..Self::default()
        };
    }

    /// Adds a reading, taken `at` after the start. Returns the interval since the previous reading.
    pub(crate) fn read(&mut self, at: Duration, counted: [Moved; 3]) -> Point {
        let (before, earlier) = std::mem::replace(&mut self.last, (counted, at));
        let point = Point {
            at,
            span: at.saturating_sub(earlier),
            sides: std::array::from_fn(|side| counted[side].since(before[side])),
        };
        let (sum, readings) = match self.open.take() {
            Some((open, readings)) => (Point::joined(open, point), readings + 1),
            None => (point, 1),
        };
        if readings < self.every {
            self.open = Some((sum, readings));
            return point;
        }
        self.points.push(sum);
        if self.points.len() >= POINTS_MAX {
            self.points = self
                .points
                .chunks(2)
                .map(|pair| {
                    pair.iter()
                        .copied()
                        .reduce(Point::joined)
                        .unwrap_or_default()
                })
                .collect();
            self.every = self.every.saturating_mul(2);
        }
        point
    }

    /// All points. The last one may be shorter than the others.
    pub(crate) fn points(mut self) -> Vec<Point> {
        self.points.extend(self.open.map(|(open, _)| open));
        self.points
    }
}

/// Largest number of points.
const POINTS_MAX: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(ios: u64) -> [Moved; 3] {
        let side = Moved {
            ios,
            bytes: ios * 4096,
            wait_ns: ios * 100,
        };
        [side, Moved::default(), Moved::default()]
    }

    #[test]
    fn a_long_run_keeps_few_points_and_loses_no_request() {
        let mut series = Series::default();
        series.begin(counted(500));
        for tick in 1..=100_000_u32 {
            series.read(
                Duration::from_millis(u64::from(tick) * 10),
                counted(500 + u64::from(tick) * 7),
            );
        }
        let points = series.points();
        assert!(
            (POINTS_MAX / 2 - 1..POINTS_MAX).contains(&points.len()),
            "{}",
            points.len()
        );
        let ios: u64 = points.iter().map(|point| point.sides[0].ios).sum();
        assert_eq!(ios, 700_000);
        let spans: Vec<Duration> = points.iter().map(|point| point.span).collect();
        let whole = Duration::from_millis(320);
        assert!(
            spans[..spans.len() - 1].iter().all(|span| *span == whole),
            "old points are as long as new ones"
        );
        assert!(
            points
                .iter()
                .all(|point| (point.iops() - 700.0).abs() < 1.0)
        );
    }

    #[test]
    fn counters_that_begin_anew_give_no_nonsense() {
        let mut series = Series::default();
        series.begin(counted(1_000_000));
        let point = series.read(Duration::from_secs(1), counted(10));
        assert_eq!(point.sides[0].ios, 10);
        assert!((point.sides[0].mean_ns() - 100.0).abs() < 1e-9);
    }
}
