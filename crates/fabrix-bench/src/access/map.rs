//! Visits every unit of a region once per pass, with requests of several lengths (fio's random
//! map).
//!
//! A bit per unit tells whether the current pass has visited it. Requests start at free units in
//! the order of a [`Permutation`]. As in fio, a request ends before the next visited unit, so it
//! may be shorter than drawn, and a pass moves exactly the bytes of the region.

use super::permutation::Permutation;

/// The visited units of a region.
#[derive(Debug)]
pub(super) struct Map {
    order: Permutation,
    units: u64,
    /// One bit per unit.
    bits: Vec<u64>,
    /// Value of the bits of visited units. Every pass inverts it, so that no pass has to clear the
    /// bits.
    visited: bool,
    /// Units that the current pass has not visited.
    left: u64,
}

impl Map {
    /// The map of a region of `units`, which are at least 1 and at most `MAP_UNITS_MAX`.
    pub(super) fn new(units: u64, seed: u64) -> Self {
        Self {
            order: Permutation::new(units, seed),
            units,
            bits: vec![0; index(units.div_ceil(64))],
            visited: true,
            left: units,
        }
    }

    /// The next request: its first unit, and its length of at most `units`.
    #[inline]
    pub(super) fn draw(&mut self, units: u32) -> (u64, u32) {
        if self.left == 0 {
            self.left = self.units;
            self.visited = !self.visited;
        }
        let first = loop {
            // Free units are left, and the order reaches each of them.
            let unit = self.order.draw();
            if self.is_free(unit) {
                break unit;
            }
        };
        let end = self.units.min(first + u64::from(units));
        let mut length = 0;
        for unit in first..end {
            if !self.is_free(unit) {
                break;
            }
            self.bits[index(unit / 64)] ^= 1 << (unit % 64);
            length += 1;
        }
        self.left -= u64::from(length);
        (first, length)
    }

    #[inline]
    fn is_free(&self, unit: u64) -> bool {
        let bit = self.bits[index(unit / 64)] >> (unit % 64) & 1;
        (bit == 1) != self.visited
    }
}

fn index(word: u64) -> usize {
    usize::try_from(word).expect("the job was checked against MAP_UNITS_MAX")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pass_visits_each_unit_once_with_requests_of_any_length() {
        for units in [1, 7, 64, 1000, 4097] {
            let mut map = Map::new(units, units);
            for pass in 0..3 {
                let mut hits = vec![0; index(units)];
                let mut left = units;
                for draw in 0.. {
                    if left == 0 {
                        break;
                    }
                    let (first, length) = map.draw([1, 4, 16][draw % 3]);
                    assert!(length > 0 && first + u64::from(length) <= units);
                    (first..first + u64::from(length)).for_each(|unit| hits[index(unit)] += 1);
                    left -= u64::from(length);
                }
                assert!(
                    hits.iter().all(|hits| *hits == 1),
                    "{units} units, pass {pass}"
                );
            }
        }
    }
}
