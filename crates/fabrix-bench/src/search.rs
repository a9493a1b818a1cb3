//! The search for the highest depth whose latencies stay below a target (fio's `latency_target`).
//!
//! The depth begins at 1. It doubles after each good window until a window is bad, and then halves
//! the distance to the last bad depth. This is pure arithmetic; the worker supplies the latencies.
//! Source: fio 3.33, where the same steps lead to the same depth.

use std::time::Duration;

/// The condition of the search.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LatencyTarget {
    /// Latency that the requests have to keep (`latency_target`).
    pub target: Duration,
    /// Length of a window (`latency_window`).
    pub window: Duration,
    /// Percentage of the requests of a window that have to keep the latency
    /// (`latency_percentile`). 100: the first slower request ends a window.
    pub percentile: f64,
    /// Whether the search goes on until the end of the job (`latency_run`). False: the job ends
    /// with a window at the depth that was found.
    pub keeps_running: bool,
}

impl LatencyTarget {
    /// Checks the numbers. The error is the end of a sentence about the job.
    pub(crate) fn check(&self) -> Result<(), String> {
        if self.target.is_zero() {
            return Err("latency_target=0 cannot be kept; leave it out".into());
        }
        if !(self.percentile > 0.0 && self.percentile <= 100.0) {
            let percentile = self.percentile;
            return Err(format!(
                "latency_percentile={percentile} is not above 0 and up to 100"
            ));
        }
        Ok(())
    }
}

/// Outcome of a search, from the best to the worst.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SearchEnd {
    /// The search ended after this time. The results are those of the window that followed.
    Found(Duration),
    /// The search went on until the end of the job. The results are those of all its windows.
    Unfinished,
    /// No depth keeps the target: at the end a single request in flight missed it.
    Missed,
}

/// State of a search.
#[derive(Debug)]
pub(crate) struct Search {
    target: LatencyTarget,
    iodepth: u32,
    pub(crate) depth: u32,
    /// Highest depth that was good, and lowest one that was bad.
    good: u32,
    bad: u32,
    /// Good windows in a row just below the bad depth.
    stable: u32,
    /// Start of the search.
    pub(crate) from_ns: u64,
    /// Start of the window, and its requests: all, and those above the target.
    pub(crate) begun_ns: u64,
    ios: u64,
    slow: u64,
    is_last: bool,
    /// Whether the latest window missed the target with a single request in flight.
    pub(crate) has_missed: bool,
}

/// The effect of a request on the job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// The window goes on.
    Same,
    /// A window begins, at another depth or the same.
    Window,
    /// The last window begins: the depth is found.
    Last,
    /// The last window is over.
    Found,
    /// A single request in flight is slower than the target.
    Missed,
}

impl Search {
    pub(crate) fn new(target: LatencyTarget, iodepth: u32) -> Self {
        Self {
            target,
            iodepth,
            depth: 1,
            good: 1,
            bad: iodepth,
            stable: 0,
            from_ns: 0,
            begun_ns: 0,
            ios: 0,
            slow: 0,
            is_last: false,
            has_missed: false,
        }
    }

    /// Begins a window.
    pub(crate) fn begin(&mut self, now_ns: u64) {
        (self.begun_ns, self.ios, self.slow) = (now_ns, 0, 0);
    }

    /// Counts a request that ends at `now_ns`.
    pub(crate) fn count(&mut self, latency_ns: u64, now_ns: u64) -> Step {
        let is_slow = u128::from(latency_ns) > self.target.target.as_nanos();
        self.ios += 1;
        self.slow += u64::from(is_slow);
        if is_slow && self.target.percentile >= 100.0 {
            return self.failed(now_ns);
        }
        let age = Duration::from_nanos(now_ns.saturating_sub(self.begun_ns));
        if age < self.target.window {
            return Step::Same;
        }
        let kept = (self.ios - self.slow) as f64 / self.ios as f64 * 100.0;
        match kept >= self.target.percentile {
            true => self.succeeded(now_ns),
            false => self.failed(now_ns),
        }
    }

    fn failed(&mut self, now_ns: u64) -> Step {
        // The results are those of a window that kept the target, so another one has to follow.
        self.is_last = false;
        if self.depth == 1 {
            self.has_missed = true;
            // With a lower percentile fio goes on at this depth.
            self.begin(now_ns);
            return match self.target.percentile >= 100.0 {
                true => Step::Missed,
                false => Step::Window,
            };
        }
        self.bad = self.depth;
        if self.depth == self.good {
            self.good -= 1;
        }
        self.depth = u32::midpoint(self.depth, self.good);
        self.stable = 0;
        self.begin(now_ns);
        Step::Window
    }

    fn succeeded(&mut self, now_ns: u64) -> Step {
        let before = self.depth;
        self.has_missed = false;
        self.good = before;
        if before + 1 == self.bad {
            // The window was good three times: the depth that was bad is tried again.
            self.stable += 1;
            if self.stable >= 3 {
                (self.bad, self.stable) = (self.bad + 1, 0);
            }
        }
        let next = match self.bad == self.iodepth {
            true => before.saturating_mul(2),
            false => u32::midpoint(before, self.bad),
        };
        self.depth = next.min(self.iodepth);
        self.begin(now_ns);
        if self.target.keeps_running || self.depth != before {
            return Step::Window;
        }
        match std::mem::replace(&mut self.is_last, true) {
            false => Step::Last,
            true => Step::Found,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The depths of a search on a disk whose latency is 10 us per request in flight.
    fn depths(target_us: u64, percentile: f64, iodepth: u32) -> (Vec<u32>, Step) {
        let target = LatencyTarget {
            target: Duration::from_micros(target_us),
            window: Duration::from_millis(1),
            percentile,
            keeps_running: false,
        };
        let mut search = Search::new(target, iodepth);
        let mut depths = vec![search.depth];
        for at in 1..100_000 {
            let step = search.count(u64::from(search.depth) * 10_000, at * 10_000);
            match step {
                Step::Same => {}
                Step::Window => depths.push(search.depth),
                Step::Last => depths.push(0),
                Step::Found | Step::Missed => return (depths, step),
            }
        }
        panic!("the search does not end: {depths:?}");
    }

    #[test]
    fn the_search_ends_at_the_highest_depth_that_keeps_the_target() {
        for percentile in [99.0, 100.0] {
            let (found, step) = depths(105, percentile, 32);
            assert_eq!(found, [1, 2, 4, 8, 16, 12, 10, 11, 10, 0]);
            assert_eq!(step, Step::Found);
        }
        assert_eq!(depths(1000, 100.0, 32).0, [1, 2, 4, 8, 16, 32, 0]);
        assert_eq!(depths(1000, 100.0, 1).0, [1, 0]);
    }

    #[test]
    fn a_single_request_that_is_too_slow_ends_the_search() {
        assert_eq!(depths(5, 100.0, 32), (vec![1], Step::Missed));
    }

    #[test]
    fn a_lower_percentile_that_is_missed_is_remembered_until_it_is_kept() {
        let target = LatencyTarget {
            target: Duration::from_micros(5),
            window: Duration::ZERO,
            percentile: 99.0,
            keeps_running: false,
        };
        let mut search = Search::new(target, 16);
        assert!(!search.has_missed);
        assert_eq!(search.count(10_000, 10_000), Step::Window);
        assert!(search.has_missed && search.depth == 1);
        search.count(1000, 20_000);
        assert!(!search.has_missed && search.depth == 2);
    }
}
