//! Latency statistics: recorded without allocation, summarised at the end.
//!
//! An HDR histogram holds three significant digits from 1 ns to 100 s. It is allocated before the
//! first request. Mean, minimum and maximum are exact. Latencies above 100 s count as 100 s in the
//! percentiles only.

use hdrhistogram::Histogram;

/// The default percentiles, equal to fio's default list.
pub const PERCENTILES: [f64; 17] = [
    1.0, 5.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0, 80.0, 90.0, 95.0, 99.0, 99.5, 99.9, 99.95,
    99.99,
];

/// Number of bounds of the distribution.
const BOUNDS: usize = 31;

/// Upper bounds of fio's latency distribution in nanoseconds: 2 to 1000 ns, us and ms, then 2 s.
const BOUNDS_NS: [u64; BOUNDS] = {
    let steps = [2, 4, 10, 20, 50, 100, 250, 500, 750, 1000];
    let units = [1, 1_000, 1_000_000];
    let mut bounds = [2_000_000_000; BOUNDS];
    let mut at = 0;
    while at < BOUNDS - 1 {
        bounds[at] = steps[at % 10] * units[at / 10];
        at += 1;
    }
    bounds
};

/// Highest latency that the histogram distinguishes: 100 s.
const HIGHEST_NS: u64 = 100_000_000_000;

/// A collection of recorded latencies.
#[derive(Clone, Debug)]
pub struct Recorder {
    histogram: Histogram<u64>,
    sum_ns: u128,
    min_ns: u64,
    max_ns: u64,
}

impl Default for Recorder {
    fn default() -> Self {
        Self::new()
    }
}

impl Recorder {
    /// An empty recorder. All memory is allocated here.
    pub fn new() -> Self {
        let histogram = Histogram::new_with_bounds(1, HIGHEST_NS, 3)
            .expect("1 ns to 100 s with 3 digits is legal");
        Self {
            histogram,
            sum_ns: 0,
            min_ns: u64::MAX,
            max_ns: 0,
        }
    }

    /// Records the latency of one request, in nanoseconds.
    #[inline]
    pub fn record(&mut self, ns: u64) {
        self.histogram.saturating_record(ns);
        self.sum_ns += u128::from(ns);
        self.min_ns = self.min_ns.min(ns);
        self.max_ns = self.max_ns.max(ns);
    }

    /// Clears all recorded latencies. Requests in flight are recorded when they end.
    pub fn reset(&mut self) {
        self.histogram.reset();
        (self.sum_ns, self.min_ns, self.max_ns) = (0, u64::MAX, 0);
    }

    /// Adds the latencies of another recorder.
    pub fn add(&mut self, other: &Self) {
        self.histogram
            .add(&other.histogram)
            .expect("all recorders have the same bounds");
        self.sum_ns += other.sum_ns;
        self.min_ns = self.min_ns.min(other.min_ns);
        self.max_ns = self.max_ns.max(other.max_ns);
    }

    /// Sum of all latencies in nanoseconds.
    pub(crate) fn sum_ns(&self) -> u64 {
        u64::try_from(self.sum_ns).unwrap_or(u64::MAX)
    }

    /// The statistics for the report, with the values of the given percentiles.
    pub fn summary(&self, percentiles: &[f64]) -> Latency {
        let count = self.histogram.len();
        if count == 0 {
            return Latency::default();
        }
        let at = |percent: f64| {
            self.histogram
                .value_at_quantile(percent / 100.0)
                .clamp(self.min_ns, self.max_ns)
        };
        Latency {
            count,
            min_ns: self.min_ns,
            max_ns: self.max_ns,
            mean_ns: real(self.sum_ns) / real(u128::from(count)),
            stddev_ns: self.histogram.stdev(),
            percentiles_ns: percentiles
                .iter()
                .map(|percent| (*percent, at(*percent)))
                .collect(),
            counts: self.counts(),
            bins_ns: self.bins(),
        }
    }

    fn bins(&self) -> Vec<(u64, u64)> {
        let recorded = self.histogram.iter_recorded();
        recorded
            .map(|bin| (bin.value_iterated_to(), bin.count_since_last_iteration()))
            .collect()
    }

    fn counts(&self) -> Vec<u64> {
        let mut counts = vec![0; BOUNDS + 1];
        for recorded in self.histogram.iter_recorded() {
            let ns = recorded.value_iterated_to();
            counts[BOUNDS_NS.partition_point(|bound| *bound <= ns)] +=
                recorded.count_since_last_iteration();
        }
        counts
    }
}

/// The latency distribution of one kind of request. All fields are 0 without requests.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Latency {
    /// Number of requests.
    pub count: u64,
    /// Exact minimum.
    pub min_ns: u64,
    /// Exact maximum.
    pub max_ns: u64,
    /// Exact mean.
    pub mean_ns: f64,
    /// Standard deviation with 3 significant digits.
    pub stddev_ns: f64,
    /// The requested percentiles with their values, with 3 significant digits.
    pub percentiles_ns: Vec<(f64, u64)>,
    /// Number of requests in each of fio's 32 ranges: below 2, 4, 10, 20, 50, 100, 250, 500, 750
    /// and 1000 ns, the same in us and in ms, below 2 s, and the rest. Empty without requests.
    pub counts: Vec<u64>,
    /// Latencies that occurred, with 3 significant digits, and the number of requests of each.
    pub bins_ns: Vec<(u64, u64)>,
}

impl Latency {
    /// The value of a percentile. None if the percentile was not requested.
    pub fn percentile_ns(&self, percent: f64) -> Option<u64> {
        let found = self
            .percentiles_ns
            .iter()
            .find(|(known, _)| (known - percent).abs() < 1e-9);
        found.map(|(_, ns)| *ns)
    }
}

/// A count as a floating-point number. Exact up to 2^53.
pub(crate) fn real(count: u128) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_right_to_three_digits_and_the_rest_exact() {
        let mut recorder = Recorder::new();
        (1..=100_000).for_each(|ns| recorder.record(ns));
        let latency = recorder.summary(&PERCENTILES);
        assert_eq!(
            (latency.count, latency.min_ns, latency.max_ns),
            (100_000, 1, 100_000)
        );
        assert!((latency.mean_ns - 50_000.5).abs() < 1e-6);
        let binned: u64 = latency.bins_ns.iter().map(|(_, count)| count).sum();
        assert_eq!(binned, latency.count);
        for (percent, ns) in latency.percentiles_ns {
            let exact = percent * 1000.0;
            let error = (real(u128::from(ns)) - exact).abs() / exact;
            assert!(error < 0.001, "{percent}: {ns}");
        }
    }

    #[test]
    fn requests_are_counted_in_the_ranges_of_fio() {
        let mut recorder = Recorder::new();
        for ns in [
            0,
            1,
            2,
            999,
            1_000,
            1_999,
            2_000,
            800_000,
            1_500_000,
            3_000_000_000,
        ] {
            recorder.record(ns);
        }
        let counts = recorder.summary(&[]).counts;
        let found: Vec<(usize, u64)> = (0..).zip(counts).filter(|(_, count)| *count > 0).collect();
        assert_eq!(
            found,
            [
                (0, 2),
                (1, 1),
                (9, 1),
                (10, 2),
                (11, 1),
                (19, 1),
                (20, 1),
                (31, 1)
            ]
        );
    }

    #[test]
    fn nothing_recorded_is_all_zero() {
        assert_eq!(Recorder::new().summary(&PERCENTILES), Latency::default());
    }

    #[test]
    fn merging_equals_recording_in_one_place() {
        let (mut one, mut two, mut both) = (Recorder::new(), Recorder::new(), Recorder::new());
        for ns in 0..5000 {
            let part = if ns % 3 == 0 { &mut one } else { &mut two };
            part.record(ns * 17);
            both.record(ns * 17);
        }
        one.add(&two);
        assert_eq!(one.summary(&PERCENTILES), both.summary(&PERCENTILES));
    }

    #[test]
    fn a_stall_beyond_the_bounds_keeps_its_true_maximum() {
        let mut recorder = Recorder::new();
        recorder.record(300_000_000_000);
        assert_eq!(recorder.summary(&PERCENTILES).max_ns, 300_000_000_000);
    }
}
