//! Addresses after fio's zones: each part of the region has a share of the requests.

use crate::job::{Zone, ZoneSize};
use crate::random::Random;

/// The zones of one direction.
#[derive(Debug)]
pub(super) struct Zones(Vec<Part>);

/// One zone in places.
#[derive(Debug)]
struct Part {
    /// Threshold of a 32-bit draw. The last one is 2^32.
    below: u64,
    first: u64,
    places: u64,
}

impl Zones {
    /// Zones of a region. A zone that is shorter than a place has one place.
    pub(super) fn new(zones: &[Zone], region_places: u64, place_bytes: u64) -> Self {
        let (mut percent, mut size_percent, mut bytes, mut behind) = (0, 0, 0_u64, 0);
        let part = |zone: &Zone| {
            percent += zone.percent;
            let at = |percent: u32| region_places.saturating_mul(percent.into()) / 100;
            let (first, end) = match zone.size {
                ZoneSize::Percent(size) => {
                    let first = at(size_percent);
                    size_percent += size;
                    (first, at(size_percent))
                }
                ZoneSize::Bytes(size) => {
                    let first = bytes / place_bytes;
                    bytes = bytes.saturating_add(size);
                    (first, bytes / place_bytes)
                }
                ZoneSize::Rest => (behind, region_places),
            };
            behind = end;
            let first = first.min(region_places - 1);
            Part {
                below: (u64::from(percent) << 32) / 100,
                first,
                places: end.min(region_places).saturating_sub(first).max(1),
            }
        };
        Self(zones.iter().map(part).collect())
    }

    /// Draws a place.
    #[inline]
    pub(super) fn draw(&self, random: &mut Random) -> u64 {
        let draw = random.next() >> 32;
        let part = self.0.iter().find(|part| draw < part.below);
        let part = part.expect("the shares of zones add up to 100 %");
        part.first + random.below(part.places)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_zone_has_its_share_of_requests_and_of_the_region() {
        let zone = |percent, size| Zone {
            percent,
            size: ZoneSize::Percent(size),
        };
        let zones = Zones::new(&[zone(60, 10), zone(30, 20), zone(10, 70)], 1000, 4096);
        let mut random = Random::new(1);
        let mut hits = [0_u32; 3];
        for _ in 0..100_000 {
            match zones.draw(&mut random) {
                0..100 => hits[0] += 1,
                100..300 => hits[1] += 1,
                300..1000 => hits[2] += 1,
                outside => panic!("{outside} is outside"),
            }
        }
        for (hits, expected) in hits.into_iter().zip([60_000, 30_000, 10_000_u32]) {
            assert!(hits.abs_diff(expected) < 1000, "{hits} for {expected}");
        }
    }

    #[test]
    fn the_rest_lies_behind_the_other_zones() {
        let zone = |percent, size| Zone { percent, size };
        for first in [ZoneSize::Percent(25), ZoneSize::Bytes(4 << 12)] {
            let zones = Zones::new(&[zone(50, first), zone(50, ZoneSize::Rest)], 16, 4096);
            let mut random = Random::new(1);
            let mut hits = [0; 16];
            (0..16_000).for_each(|_| {
                hits[usize::try_from(zones.draw(&mut random)).expect("below 16")] += 1;
            });
            assert!(hits[..4].iter().all(|hits| *hits > 1500));
            assert!(hits[4..].iter().all(|hits| (400..1000).contains(hits)));
        }
    }

    #[test]
    fn zones_beyond_the_region_stay_inside() {
        let zone = |percent, bytes| Zone {
            percent,
            size: ZoneSize::Bytes(bytes),
        };
        let zones = Zones::new(&[zone(50, 1 << 20), zone(50, u64::MAX)], 16, 4096);
        let mut random = Random::new(1);
        assert!((0..1000).all(|_| zones.draw(&mut random) < 16));
    }
}
