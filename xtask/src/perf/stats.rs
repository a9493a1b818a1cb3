//! The few statistics that a handful of ratios allows.

/// How often the sample is drawn again for the interval.
const RESAMPLES: usize = 2000;

/// What a row's figures come to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Summary {
    pub(super) median: f64,
    pub(super) least: f64,
    pub(super) most: f64,
    /// 95 % bootstrap interval of the median; with fewer than five figures it would only repeat the
    /// range.
    pub(super) interval: Option<(f64, f64)>,
}

impl Summary {
    /// None when there is no figure at all.
    pub(super) fn of(figures: &[f64]) -> Option<Self> {
        let sorted = sorted(figures.to_vec());
        Some(Self {
            least: *sorted.first()?,
            most: *sorted.last()?,
            median: median(&sorted),
            interval: (sorted.len() >= 5).then(|| bootstrap(&sorted)),
        })
    }

    /// Whether the figures say on which side of a bound the median is.
    pub(super) fn tells(&self, bound: f64) -> bool {
        self.interval
            .is_none_or(|(low, high)| bound < low || high < bound)
    }
}

fn sorted(mut figures: Vec<f64>) -> Vec<f64> {
    figures.sort_by(f64::total_cmp);
    figures
}

/// Of a sorted sample that is not empty.
fn median(sorted: &[f64]) -> f64 {
    let last = sorted.len() - 1;
    f64::midpoint(sorted[last / 2], sorted[last.div_ceil(2)])
}

/// Draws the sample again and again, from a fixed seed: the same figures give the same interval.
fn bootstrap(figures: &[f64]) -> (f64, f64) {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut draw = || figures[xorshift(&mut state) % figures.len()];
    let resampled =
        (0..RESAMPLES).map(|_| median(&sorted(figures.iter().map(|_| draw()).collect())));
    let medians = sorted(resampled.collect());
    let tail = RESAMPLES / 40;
    (medians[tail], medians[RESAMPLES - 1 - tail])
}

fn xorshift(state: &mut u64) -> usize {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    usize::try_from(*state >> 33).expect("31 bits fit")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_an_even_sample_lies_between_the_two_in_the_middle() {
        let summary = Summary::of(&[4.0, 1.0, 3.0, 2.0]).expect("four figures");
        let found = (summary.median, summary.least, summary.most);
        assert_eq!((found, summary.interval), ((2.5, 1.0, 4.0), None));
        assert_eq!(Summary::of(&[]), None);
    }

    #[test]
    fn the_interval_holds_the_median_and_leaves_out_one_stray() {
        let figures = [0.70, 0.71, 0.69, 0.70, 0.72, 0.70, 0.71, 0.30, 0.70, 0.71];
        let summary = Summary::of(&figures).expect("ten figures");
        let (low, high) = summary.interval.expect("enough of them");
        assert!(low <= summary.median && summary.median <= high);
        assert!(low > 0.65 && high < 0.73, "{low} .. {high}");
        assert!(!summary.tells(summary.median) && summary.tells(0.6) && summary.tells(0.75));
    }
}
