//! Scatters the ranks of a distribution over the places of a region.

use crate::random::{mix, scaled, whole};

/// A mapping from ranks, which start at 0, to places.
#[derive(Debug)]
pub(super) struct Scatter {
    places: u64,
    /// Seed of the mapping. All jobs of a run share it, so they share the frequent places.
    seed: u64,
    /// Place of the most frequent rank. None: the seed decides.
    center: Option<u64>,
}

impl Scatter {
    /// A mapping to at least one place. `center` is a share of the region from 0 to 1.
    pub(super) fn new(places: u64, seed: u64, center: Option<f64>) -> Self {
        let place = |share: f64| whole(share * places as f64).min(places - 1);
        Self {
            places,
            seed: mix(seed),
            center: center.map(place),
        }
    }

    /// The place of a rank.
    pub(super) fn place(&self, rank: u64) -> u64 {
        match (rank, self.center) {
            (0, Some(center)) => center,
            _ => scaled(mix(rank ^ self.seed), self.places),
        }
    }
}
