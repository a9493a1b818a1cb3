//! How many requests were in flight, in fio's ranges.

/// Number of ranges.
const RANGES: usize = 7;

/// Requests by the number of requests in flight at their start, themselves included. The ranges
/// begin at 1, 2, 4, 8, 16, 32 and 64, as in fio's `iodepth_level`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Depths([u64; RANGES]);

impl Depths {
    /// fio's names of the ranges.
    pub const NAMES: [&'static str; RANGES] = ["1", "2", "4", "8", "16", "32", ">=64"];

    /// Counts a request that starts as one of `in_flight`.
    #[inline]
    pub(crate) fn count(&mut self, in_flight: usize) {
        let range = in_flight.max(1).ilog2() as usize;
        self.0[range.min(RANGES - 1)] += 1;
    }

    pub(crate) fn add(&mut self, other: &Self) {
        for (mine, theirs) in self.0.iter_mut().zip(other.0) {
            *mine += theirs;
        }
    }

    /// Percentage of the requests in each range.
    pub fn percentages(&self) -> [f64; RANGES] {
        let all = self.0.iter().sum::<u64>().max(1) as f64;
        self.0.map(|count| count as f64 * 100.0 / all)
    }

    /// Most requests that can have been in flight: the end of the last range with a request. None
    /// without requests, and without an end.
    pub fn most(&self) -> Option<u32> {
        let range = self.0.iter().rposition(|count| *count > 0)?;
        (range < RANGES - 1).then(|| (2 << range) - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_counted_in_fios_ranges() {
        let mut depths = Depths::default();
        assert_eq!((depths.most(), depths.percentages()[0]), (None, 0.0));
        depths.count(1);
        assert_eq!(depths.most(), Some(1));
        for in_flight in [2, 3, 4] {
            depths.count(in_flight);
        }
        assert_eq!(depths.percentages(), [25.0, 50.0, 25.0, 0.0, 0.0, 0.0, 0.0]);
        assert_eq!(depths.most(), Some(7));
        depths.count(4096);
        assert_eq!((depths.most(), depths.0[6]), (None, 1));
    }
}
