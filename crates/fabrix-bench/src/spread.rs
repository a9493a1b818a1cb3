//! Repeats of one measurement: the median, the least, the greatest, and how far they lie apart.

/// What several repeats gave.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Spread {
    /// How many repeats there were.
    pub count: usize,
    /// The one in the middle; between the middle two of an even number.
    pub median: f64,
    /// The least.
    pub min: f64,
    /// The greatest.
    pub max: f64,
    /// The mean.
    pub mean: f64,
}

impl Spread {
    /// Sums up repeats; all zero without any. Values that are no numbers are left out.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Self {
        let mut sorted: Vec<f64> = values
            .into_iter()
            .filter(|value| value.is_finite())
            .collect();
        sorted.sort_by(f64::total_cmp);
        let count = sorted.len();
        let (Some(min), Some(max)) = (sorted.first(), sorted.last()) else {
            return Self::default();
        };
        Self {
            count,
            median: f64::midpoint(sorted[(count - 1) / 2], sorted[count / 2]),
            min: *min,
            max: *max,
            mean: sorted.iter().sum::<f64>() / count as f64,
        }
    }

    /// The distance between the least and the greatest, in percent of the median.
    pub fn percent(&self) -> f64 {
        if self.median == 0.0 {
            return 0.0;
        }
        (self.max - self.min) / self.median * 100.0
    }
}

/// Which of the repeats has the median: of an even number the lower of the two in the middle.
/// `None` without any.
pub fn middle(values: &[f64]) -> Option<usize> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|one, other| values[*one].total_cmp(&values[*other]));
    order.get(values.len().checked_sub(1)? / 2).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_of_odd_and_even_numbers_is_found() {
        let odd = Spread::of([5.0, 1.0, 9.0]);
        assert_eq!(
            (odd.count, odd.median, odd.min, odd.max),
            (3, 5.0, 1.0, 9.0)
        );
        assert!((odd.percent() - 160.0).abs() < 1e-9);
        let even = Spread::of([4.0, 1.0, 2.0, f64::NAN, 9.0]);
        assert_eq!((even.count, even.median, even.mean), (4, 3.0, 4.0));
        assert_eq!(middle(&[5.0, 1.0, 9.0]), Some(0));
        assert_eq!(middle(&[4.0, 1.0, 2.0, 9.0]), Some(2));
    }

    #[test]
    fn nothing_is_all_zero() {
        assert_eq!(Spread::of([]), Spread::default());
        assert_eq!((middle(&[]), Spread::of([0.0]).percent()), (None, 0.0));
    }
}
