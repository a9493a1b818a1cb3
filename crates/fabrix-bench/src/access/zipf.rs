//! Places after Zipf's law: the one of rank `k` comes in proportion to `1/k^theta`.
//!
//! Ranks are drawn by rejection-inversion, which needs no table and no time that grows with the
//! number of places; then they are scattered over the region, so that the often asked places do not
//! lie side by side.
//! Source: Hörmann, Derflinger, "Rejection-inversion to generate variates from monotone discrete
//! distributions", ACM Transactions on Modeling and Computer Simulation 6(3), 1996.

use crate::random::{Random, mix};

/// The law over a number of places.
#[derive(Debug)]
pub(super) struct Zipf {
    places: u64,
    theta: f64,
    /// Names which place has which rank; the same for all jobs of a run, so that they share the
    /// often asked ones.
    scatter: u64,
    /// The integral of the density at the left end of the first rank and at the right end of the
    /// last one.
    ends: (f64, f64),
    /// So near to its rank, a draw needs no further look.
    sure: f64,
}

impl Zipf {
    /// `theta` is above 0, and there is at least one place.
    pub(super) fn new(places: u64, theta: f64, scatter: u64) -> Self {
        let mut law = Self {
            places,
            theta,
            scatter: mix(scatter),
            ends: (0.0, 0.0),
            sure: 0.0,
        };
        law.ends = (law.integral(1.5) - 1.0, law.integral(places as f64 + 0.5));
        law.sure = 2.0 - law.inverse(law.integral(2.5) - law.density(2.0));
        law
    }

    /// The next place.
    pub(super) fn draw(&self, random: &mut Random) -> u64 {
        let scattered = mix(self.rank(random) ^ self.scatter);
        let product = u128::from(scattered) * u128::from(self.places);
        u64::try_from(product >> 64).expect("the high half of a 128-bit product has 64 bits")
    }

    /// The next rank, from 1.
    fn rank(&self, random: &mut Random) -> u64 {
        let (first, last) = self.ends;
        loop {
            let area = last + random.unit() * (first - last);
            let exact = self.inverse(area);
            let rank = exact.round().clamp(1.0, self.places as f64);
            if rank - exact <= self.sure || area >= self.integral(rank + 0.5) - self.density(rank) {
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

/// An exponent so near to 1 has the logarithm as its integral, as far as these numbers can tell.
const NEARLY_ONE: f64 = 1e-9;

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "ranks are whole numbers from 1 to a number of places"
)]
fn whole(rank: f64) -> u64 {
    rank as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How often each of the first ranks came in 200 000 draws.
    fn ranks(places: u64, theta: f64) -> Vec<u32> {
        let (law, mut random) = (Zipf::new(places, theta, 1), Random::new(5));
        let mut hits = vec![0; 17];
        for _ in 0..200_000 {
            let rank = law.rank(&mut random);
            assert!((1..=places).contains(&rank), "rank {rank} of {places}");
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
                // Five standard deviations of a count.
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
        let (law, mut random) = (Zipf::new(1 << 20, 1.2, 1), Random::new(5));
        let mut places: Vec<u64> = (0..1000).map(|_| law.draw(&mut random)).collect();
        places.sort_unstable();
        places.dedup();
        assert!(
            places.len() < 700,
            "{} different places of 1000 draws",
            places.len()
        );
        let side_by_side = places
            .windows(2)
            .filter(|pair| pair[1] - pair[0] == 1)
            .count();
        assert!(side_by_side < 5, "{side_by_side}");
        assert!(places.iter().any(|place| *place > 1 << 19));
    }
}
