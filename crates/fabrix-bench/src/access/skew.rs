//! Addresses after the Pareto and the normal distribution, with fio's formulas.
//!
//! A rank is drawn first. It is then scattered over the region, so that frequent places are not
//! adjacent. Source: fio's `lib/zipf.c` and `lib/gauss.c`.

use super::scatter::Scatter;
use crate::random::{Random, whole};

/// A distribution over a number of places.
#[derive(Debug)]
pub(super) struct Skew {
    places: u64,
    law: Law,
    scatter: Scatter,
}

#[derive(Debug)]
enum Law {
    /// Exponent of a uniform draw.
    Pareto(f64),
    /// Width in places of the even spread that is added to a mean of twelve draws.
    Normal(f64),
}

impl Skew {
    /// A share of `1 - power` of the draws goes to a share of `power` of the places. `power` lies
    /// between 0 and 1.
    pub(super) fn pareto(places: u64, power: f64, scatter: Scatter) -> Self {
        Self {
            places,
            law: Law::Pareto(power.ln() / (1.0 - power).ln()),
            scatter,
        }
    }

    /// fio's normal distribution: the mean of twelve draws, moved evenly by up to half a deviation.
    /// `deviation` is a percentage of the places. As in fio, it has no more effect above 50.
    pub(super) fn normal(places: u64, deviation: f64, scatter: Scatter) -> Self {
        let width = places as f64 * (deviation / 100.0).min(0.5);
        Self {
            places,
            law: Law::Normal(width),
            scatter,
        }
    }

    /// Draws a place.
    pub(super) fn draw(&self, random: &mut Random) -> u64 {
        self.scatter.place(self.rank(random))
    }

    /// Draws a rank, starting at 0.
    fn rank(&self, random: &mut Random) -> u64 {
        match self.law {
            Law::Pareto(exponent) => whole((self.places - 1) as f64 * random.unit().powf(exponent)),
            Law::Normal(width) => {
                let sum: u64 = (0..12).map(|_| random.below(self.places)).sum();
                let moved = (random.unit() - 0.5) * width;
                let rank = (sum as f64 / 12.0 + moved).max(0.0);
                whole(rank).min(self.places - 1)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Share of 100,000 draws whose rank lies below `below`, in percent.
    fn percent_below(skew: &Skew, below: u64) -> u32 {
        let mut random = Random::new(7);
        let hits = (0..100_000).filter(|_| skew.rank(&mut random) < below);
        u32::try_from(hits.count() / 1000).expect("a percentage")
    }

    #[test]
    fn pareto_gives_the_asked_share_of_units_the_rest_of_the_draws() {
        let skew = Skew::pareto(10_000, 0.2, Scatter::new(10_000, 1, None));
        assert!((79..=81).contains(&percent_below(&skew, 2000)));
    }

    #[test]
    fn two_thirds_of_normal_draws_lie_within_one_deviation() {
        // The mean of twelve draws deviates by a twelfth of the places.
        for (deviation, one) in [(0.0, 833), (10.0, 882)] {
            let skew = Skew::normal(10_000, deviation, Scatter::new(10_000, 1, None));
            let within = percent_below(&skew, 5000 + one) - percent_below(&skew, 5000 - one);
            assert!((66..=70).contains(&within), "{deviation}: {within} %");
            assert!((49..=51).contains(&percent_below(&skew, 5000)));
        }
    }

    #[test]
    fn draws_stay_inside_a_region_of_any_size() {
        for units in [1, 2, 1 << 40] {
            let mut random = Random::new(3);
            let scatter = |center| Scatter::new(units, 1, center);
            for skew in [
                Skew::pareto(units, 0.9, scatter(None)),
                Skew::pareto(units, 0.1, scatter(Some(1.0))),
                Skew::normal(units, 50.0, scatter(None)),
            ] {
                assert!((0..1000).all(|_| skew.draw(&mut random) < units));
            }
        }
    }
}
