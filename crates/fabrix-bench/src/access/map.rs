//! Visits every unit of a region once per pass, with requests of several lengths (fio's random
//! map).
//!
//! A bit per unit tells whether the current pass has visited it. As in fio, a request starts at the
//! next free unit behind a random one, and ends before the next visited unit. It may therefore be
//! shorter than drawn, and a pass moves exactly the bytes of the region. Starts lie mostly at the
//! begin of a free stretch, so that few requests become shorter.

use crate::random::Random;

/// The visited units of a region.
#[derive(Debug)]
pub(super) struct Map {
    random: Random,
    units: u64,
    /// One bit per unit, set when the pass has visited it. The bits behind the last unit are set.
    visited: Vec<u64>,
    /// One bit per word of `visited`, set when all its bits are set.
    full: Vec<u64>,
    /// Units that the current pass has not visited.
    left: u64,
}

impl Map {
    /// The map of a region of `units`, which are at least 1 and at most `MAP_UNITS_MAX`.
    pub(super) fn new(units: u64, seed: u64) -> Self {
        let words = units.div_ceil(64);
        Self {
            random: Random::new(seed),
            units,
            visited: vec![0; index(words)],
            full: vec![0; index(words.div_ceil(64))],
            left: 0,
        }
    }

    /// The next request: its first unit, and its length of at most `units`.
    #[inline]
    pub(super) fn draw(&mut self, units: u32) -> (u64, u32) {
        if self.left == 0 {
            self.begin_pass();
        }
        let behind = self.random.below(self.units);
        let first = self.next_free(behind).or_else(|| self.next_free(0));
        let first = first.expect("the pass has free units");
        let end = self.units.min(first + u64::from(units));
        let mut length = 0;
        for unit in first..end {
            if !self.visit(unit) {
                break;
            }
            length += 1;
        }
        self.left -= u64::from(length);
        (first, length)
    }

    fn begin_pass(&mut self) {
        self.left = self.units;
        fill(&mut self.visited, self.units);
        fill(&mut self.full, self.units.div_ceil(64));
    }

    /// Marks a unit as visited. False: it is visited already.
    #[inline]
    fn visit(&mut self, unit: u64) -> bool {
        let (word, bit) = place(unit);
        let is_free = self.visited[word] & bit == 0;
        self.visited[word] |= bit;
        if self.visited[word] == u64::MAX {
            let (of_full, bit) = place(word as u64);
            self.full[of_full] |= bit;
        }
        is_free
    }

    /// The first free unit from `unit` on.
    #[inline]
    fn next_free(&self, unit: u64) -> Option<u64> {
        let (word, _) = place(unit);
        first_clear(self.visited[word], unit % 64).map_or_else(
            || {
                let word = self.next_word(word as u64 + 1)?;
                let bits = self.visited[index(word)];
                first_clear(bits, 0).map(|bit| word * 64 + bit)
            },
            |bit| Some(word as u64 * 64 + bit),
        )
    }

    /// The first word with a free unit, from `word` on.
    fn next_word(&self, word: u64) -> Option<u64> {
        let (first, _) = place(word);
        let found = first_clear(*self.full.get(first)?, word % 64);
        let found = found.map(|bit| first as u64 * 64 + bit);
        found.or_else(|| {
            let rest = &self.full[first + 1..];
            let more = rest.iter().position(|bits| *bits != u64::MAX)?;
            let bit = first_clear(rest[more], 0)?;
            Some((first + 1 + more) as u64 * 64 + bit)
        })
    }
}

/// Clears the first `count` bits, and sets those behind.
fn fill(words: &mut [u64], count: u64) {
    words.fill(0);
    if let (Some(last), 1..) = (words.last_mut(), count % 64) {
        *last = u64::MAX << (count % 64);
    }
}

/// The first clear bit of a word, from bit `from` on.
#[inline]
fn first_clear(word: u64, from: u64) -> Option<u64> {
    let clear = !word & (u64::MAX << from);
    (clear != 0).then(|| clear.trailing_zeros().into())
}

/// Word and bit of a number.
#[inline]
fn place(number: u64) -> (usize, u64) {
    (index(number / 64), 1 << (number % 64))
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
