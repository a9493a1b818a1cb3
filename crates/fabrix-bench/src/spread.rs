//! Statistics of repeated measurements: median, minimum, maximum and relative spread.

/// Statistics of several repeats.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Spread {
    /// Number of repeats.
    pub count: usize,
    /// Median. For an even number of repeats, the mean of the two middle values.
    pub median: f64,
    /// Minimum.
    pub min: f64,
    /// Maximum.
    pub max: f64,
    /// Arithmetic mean.
    pub mean: f64,
}

impl Spread {
    /// The statistics of `values`. All fields are 0 without values. Infinities and NaN are ignored.
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

    /// Maximum minus minimum, in percent of the median.
    pub fn percent(&self) -> f64 {
        if self.median == 0.0 {
            return 0.0;
        }
        (self.max - self.min) / self.median * 100.0
    }
}

/// Index of the repeat with the median. For an even number, the lower of the two middle values.
/// None without repeats.
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
