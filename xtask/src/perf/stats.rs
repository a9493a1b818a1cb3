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
        let sorted = sorted(figures);
        let (&least, &most) = (sorted.first()?, sorted.last()?);
        let interval = (sorted.len() >= 5).then(|| bootstrap(&sorted));
        Some(Self {
            median: median(&sorted),
            least,
            most,
            interval,
        })
    }

    /// Whether the figures say on which side of a bound the median is.
    pub(super) fn tells(&self, bound: f64) -> bool {
        self.interval
            .is_none_or(|(low, high)| bound < low || high < bound)
    }
}

fn sorted(figures: &[f64]) -> Vec<f64> {
    let mut sorted = figures.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted
}

/// Of a sorted sample that is not empty.
fn median(sorted: &[f64]) -> f64 {
    let middle = sorted.len() / 2;
    if sorted.len().is_multiple_of(2) {
        f64::midpoint(sorted[middle - 1], sorted[middle])
    } else {
        sorted[middle]
    }
}

/// Draws the sample again and again, from a fixed seed: the same figures give the same interval.
fn bootstrap(figures: &[f64]) -> (f64, f64) {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut medians: Vec<f64> = (0..RESAMPLES)
        .map(|_| {
            let drawn: Vec<f64> = figures
                .iter()
                .map(|_| figures[draw(&mut state, figures.len())])
                .collect();
            median(&sorted(&drawn))
        })
        .collect();
    medians.sort_by(f64::total_cmp);
    (
        medians[RESAMPLES / 40],
        medians[RESAMPLES - 1 - RESAMPLES / 40],
    )
}

/// An index below `bound` (xorshift64).
fn draw(state: &mut u64, bound: usize) -> usize {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    usize::try_from(*state >> 33).expect("31 bits fit") % bound
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_an_even_sample_lies_between_the_two_in_the_middle() {
        let summary = Summary::of(&[4.0, 1.0, 3.0, 2.0]).expect("four figures");
        assert_eq!(
            (summary.median, summary.least, summary.most),
            (2.5, 1.0, 4.0)
        );
        assert_eq!(summary.interval, None);
    }

    #[test]
    fn the_interval_holds_the_median_and_leaves_out_one_stray() {
        let figures = [0.70, 0.71, 0.69, 0.70, 0.72, 0.70, 0.71, 0.30, 0.70, 0.71];
        let summary = Summary::of(&figures).expect("ten figures");
        let (low, high) = summary.interval.expect("enough of them");
        assert!(low <= summary.median && summary.median <= high);
        assert!(low > 0.65 && high < 0.73, "{low} .. {high}");
    }

    #[test]
    fn a_bound_within_the_interval_is_not_told_from_the_median() {
        let summary = Summary::of(&[0.8, 0.9, 1.0, 1.1, 1.2]).expect("five figures");
        assert!(!summary.tells(1.05) && !summary.tells(0.8));
        assert!(summary.tells(0.75) && summary.tells(1.25));
    }

    #[test]
    fn nothing_has_no_summary() {
        assert_eq!(Summary::of(&[]), None);
    }
}
