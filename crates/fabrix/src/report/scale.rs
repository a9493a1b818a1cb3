//! Scales for bars: linear from zero or logarithmic, with round ticks.

use super::number::{grouped, round_time};

/// A scale from values to positions.
pub(super) enum Scale {
    /// Linear from zero. `text` writes the values of the ticks.
    Linear {
        end: f64,
        ticks: Vec<f64>,
        text: fn(f64) -> String,
    },
    /// Logarithmic, of microseconds.
    Log {
        begin: f64,
        end: f64,
        ticks: Vec<f64>,
    },
}

impl Scale {
    /// A linear scale from zero to the greatest value. `text` is [`counts`], [`percents`] or
    /// [`times`].
    pub(super) fn linear(greatest: f64, text: fn(f64) -> String) -> Self {
        let greatest = if greatest.is_finite() && greatest > 0.0 {
            greatest
        } else {
            1.0
        };
        let step = step(greatest);
        let ticks = (0..=TICKS_MAX)
            .map(|tick| f64::from(tick) * step)
            .take_while(|value| *value <= greatest);
        Self::Linear {
            end: greatest,
            ticks: ticks.collect(),
            text,
        }
    }

    /// A logarithmic scale around the values, which are microseconds.
    pub(super) fn log(values: impl Iterator<Item = f64> + Clone) -> Self {
        let positive = values.filter(|value| *value > 0.0 && value.is_finite());
        let least = positive.clone().fold(f64::INFINITY, f64::min);
        let greatest = positive.fold(0.0, f64::max);
        let (least, greatest) = if least <= greatest {
            (least, greatest)
        } else {
            (1.0, 10.0)
        };
        let (first, last) = (least.log10().floor(), greatest.log10().ceil());
        let decades = (last - first).max(1.0);
        // Four texts fit beside each other on a phone.
        let apart = (decades / 3.0).ceil().max(1.0);
        let ticks = (0..=TICKS_MAX)
            .map(|tick| f64::from(tick) * apart)
            .take_while(|tick| *tick <= decades);
        Self::Log {
            begin: 10f64.powf(first),
            end: 10f64.powf(first + decades),
            ticks: ticks.map(|tick| 10f64.powf(first + tick)).collect(),
        }
    }

    /// Position of a value as a fraction of the scale.
    pub(super) fn place(&self, value: f64) -> f64 {
        let part = match self {
            Self::Linear { end, .. } => value / end,
            Self::Log { begin, end, .. } => (value.max(*begin) / begin).ln() / (end / begin).ln(),
        };
        if part.is_finite() {
            part.clamp(0.0, 1.0)
        } else {
            0.0
        }
    }

    pub(super) fn ticks(&self) -> impl Iterator<Item = (f64, String)> {
        let (Self::Linear { ticks, .. } | Self::Log { ticks, .. }) = self;
        ticks.iter().map(|value| (*value, self.tick_text(*value)))
    }

    fn tick_text(&self, value: f64) -> String {
        match self {
            Self::Linear { text, .. } => text(value),
            Self::Log { .. } => times(value),
        }
    }
}

/// A count or a rate as the text of a tick: `2.5M`.
pub(super) fn counts(value: f64) -> String {
    match value {
        value if value >= 1e9 => format!("{}G", trimmed(value / 1e9)),
        value if value >= 1e6 => format!("{}M", trimmed(value / 1e6)),
        value if value >= 1e4 => format!("{}k", trimmed(value / 1e3)),
        value if value >= 1e3 => grouped(value),
        value => trimmed(value),
    }
}

/// A number of percent as the text of a tick: `25%`.
pub(super) fn percents(value: f64) -> String {
    format!("{} %", counts(value))
}

/// Microseconds as the text of a tick: `1.5 ms`.
pub(super) fn times(value: f64) -> String {
    if value > 0.0 {
        round_time(value * 1e3)
    } else {
        "0".into()
    }
}

/// A round distance between ticks: 1, 2, 2.5 or 5 times a power of ten, for two to four ticks.
pub(super) fn step(greatest: f64) -> f64 {
    let least = greatest / 4.0;
    let power = 10f64.powf(least.log10().floor());
    let rounds = [1.0, 2.0, 2.5, 5.0].map(|times| times * power);
    let step = rounds.into_iter().find(|step| *step >= least);
    step.unwrap_or(10.0 * power)
}

/// At most three decimals, without trailing zeroes.
fn trimmed(value: f64) -> String {
    let text = format!("{value:.3}");
    text.trim_end_matches('0').trim_end_matches('.').into()
}

const TICKS_MAX: u32 = 12;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_inside() {
        for greatest in [0.7, 1.0, 3.2, 97.0, 458_958.0, 8_226.06, 1e9] {
            let Scale::Linear { ticks, end, .. } = Scale::linear(greatest, counts) else {
                panic!("it is linear")
            };
            assert!((3..=5).contains(&ticks.len()), "{greatest}: {ticks:?}");
            assert!(ticks.iter().all(|tick| *tick <= end));
        }
    }

    #[test]
    fn decades_surround_the_values() {
        let Scale::Log { begin, ticks, .. } = Scale::log([0.6, 52.0, 140.0].into_iter()) else {
            panic!("it is log")
        };
        assert!((begin - 0.1).abs() < 1e-12);
        assert_eq!(ticks.len(), 3, "0.1, 10 and 1000");
    }

    #[test]
    fn values_that_are_no_numbers_draw_nothing_strange() {
        for scale in [
            Scale::linear(f64::NAN, times),
            Scale::linear(0.0, percents),
            Scale::log(std::iter::empty()),
        ] {
            for value in [f64::NAN, f64::INFINITY, -1.0, 0.0, 1e300] {
                assert!((0.0..=1.0).contains(&scale.place(value)));
            }
        }
    }
}
