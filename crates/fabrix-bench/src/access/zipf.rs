//! Addresses after Zipf's law: the probability of rank `k` is proportional to `1/k^theta`.
//!
//! Ranks are drawn by rejection-inversion, which needs no table and constant time. They are then
//! scattered over the region, so that frequent places are not adjacent. Source: Hörmann,
//! Derflinger, "Rejection-inversion to generate variates from monotone discrete distributions", ACM
//! Transactions on Modeling and Computer Simulation 6(3), 1996.

use super::scatter::Scatter;
use crate::random::{Random, whole};

/// Zipf's law over a number of places.
#[derive(Debug)]
pub(super) struct Zipf {
    places: u64,
    theta: f64,
    scatter: Scatter,
    /// The integral of the density at the left end of the first rank and at the right end of the
    /// last.
    ends: (f64, f64),
    /// Distance from the rank below which a draw is accepted without further computation.
    accept_distance: f64,
}

impl Zipf {
    /// A law over at least one place, with `theta` above 0.
    pub(super) fn new(places: u64, theta: f64, scatter: Scatter) -> Self {
        let mut law = Self {
            places,
            theta,
            scatter,
            ends: (0.0, 0.0),
            accept_distance: 0.0,
        };
        law.ends = (law.integral(1.5) - 1.0, law.integral(places as f64 + 0.5));
        law.accept_distance = 2.0 - law.inverse(law.integral(2.5) - law.density(2.0));
        law
    }

    /// Draws a place.
    pub(super) fn draw(&self, random: &mut Random) -> u64 {
        self.scatter.place(self.rank(random) - 1)
    }

    /// Draws a rank, starting at 1.
    fn rank(&self, random: &mut Random) -> u64 {
        let (first, last) = self.ends;
        loop {
            let area = last + random.unit() * (first - last);
            let exact = self.inverse(area);
            let rank = exact.round().clamp(1.0, self.places as f64);
            if rank - exact <= self.accept_distance
                || area >= self.integral(rank + 0.5) - self.density(rank)
            {
                return whole(rank);
            }
        }
    }

    fn density(&self, x: f64) -> f64 {
        x.powf(-self.theta)
    }

    /// The integral of the density from 1 to `x`.
    fn integral(&self, x: f64) -> f64 {
        let power = 1.0 - self.theta;
        if power.abs() < NEARLY_ONE {
            return x.ln();
        }
        (x.powf(power) - 1.0) / power
    }

    fn inverse(&self, area: f64) -> f64 {
        let power = 1.0 - self.theta;
        if power.abs() < NEARLY_ONE {
            return area.exp();
        }
        (1.0 + area * power).max(0.0).powf(1.0 / power)
    }
}

/// Exponents this close to 1 use the logarithm as integral: the general formula loses its
/// precision.
const NEARLY_ONE: f64 = 1e-9;

#[cfg(test)]
mod tests {
    use super::*;

    /// Counts of the first ranks in 200,000 draws.
    fn ranks(units: u64, theta: f64) -> Vec<u32> {
        let (law, mut random) = (
            Zipf::new(units, theta, Scatter::new(units, 1, None)),
            Random::new(5),
        );
        let mut hits = vec![0; 17];
        for _ in 0..200_000 {
            let rank = law.rank(&mut random);
            assert!((1..=units).contains(&rank), "rank {rank} of {units}");
            if let Some(hits) = hits.get_mut(usize::try_from(rank).expect("small")) {
                *hits += 1;
            }
        }
        hits
    }

    #[test]
    fn ranks_come_in_the_proportions_of_the_law() {
        for theta in [0.5, 0.99, 1.0, 1.2, 2.5] {
            let hits = ranks(1000, theta);
            let zeta: f64 = (1..=1000).map(|rank| f64::from(rank).powf(-theta)).sum();
            for rank in [1_u32, 2, 5] {
                let expected = 200_000.0 * f64::from(rank).powf(-theta) / zeta;
                let off = (f64::from(hits[rank as usize]) - expected).abs();
                // Tolerance: five standard deviations of a count.
                assert!(
                    off < 5.0 * expected.sqrt() + 1.0,
                    "theta {theta}, rank {rank}: {hits:?}"
                );
            }
        }
    }

    #[test]
    fn one_place_and_very_many_places_work() {
        assert_eq!(ranks(1, 1.2)[1], 200_000);
        assert!(ranks(1 << 45, 0.8).iter().sum::<u32>() > 0);
    }

    #[test]
    fn the_often_asked_places_do_not_lie_side_by_side() {
        let (law, mut random) = (
            Zipf::new(1 << 20, 1.2, Scatter::new(1 << 20, 1, None)),
            Random::new(5),
        );
        let mut units: Vec<u64> = (0..1000).map(|_| law.draw(&mut random)).collect();
        units.sort_unstable();
        units.dedup();
        assert!(
            units.len() < 700,
            "{} different units of 1000 draws",
            units.len()
        );
        let side_by_side = units
            .windows(2)
            .filter(|pair| pair[1] - pair[0] == 1)
            .count();
        assert!(side_by_side < 5, "{side_by_side}");
        assert!(units.iter().any(|place| *place > 1 << 19));
    }
}
