//! Visits every number below a bound once, in pseudo-random order.
//!
//! The order is a bijection of the numbers below a power of two. Numbers above the bound are
//! skipped. It needs no memory per number. After the last number the next pass begins, in another
//! order.

use crate::random::mix;

/// Rounds of the bijection. Three rounds leave no visible relation between neighbours.
const ROUNDS: usize = 3;

/// The numbers below `count`, each once per pass.
#[derive(Clone, Debug)]
pub(super) struct Permutation {
    count: u64,
    /// All bits of the smallest power of two that holds `count`.
    mask: u64,
    shift: u32,
    /// Odd multipliers, and addends.
    keys: [(u64, u64); ROUNDS],
    seed: u64,
    pass: u64,
    next: u64,
}

impl Permutation {
    /// An order of the numbers below `count`, which is at least 1.
    pub(super) fn new(count: u64, seed: u64) -> Self {
        let bits = u64::BITS - (count - 1).leading_zeros();
        let mut permutation = Self {
            count,
            mask: u64::MAX.checked_shr(u64::BITS - bits).unwrap_or(0),
            shift: (bits / 2).max(1),
            keys: [(1, 0); ROUNDS],
            seed,
            pass: 0,
            next: 0,
        };
        permutation.choose_keys();
        permutation
    }

    /// The next number.
    #[inline]
    pub(super) fn draw(&mut self) -> u64 {
        loop {
            let drawn = self.image(self.next);
            self.advance();
            // At most every second number is outside.
            if drawn < self.count {
                return drawn;
            }
        }
    }

    #[inline]
    fn image(&self, number: u64) -> u64 {
        let mut word = number;
        for (factor, addend) in self.keys {
            word = word.wrapping_mul(factor).wrapping_add(addend) & self.mask;
            word ^= word >> self.shift;
        }
        word
    }

    #[inline]
    fn advance(&mut self) {
        if self.next == self.mask {
            self.next = 0;
            self.pass += 1;
            self.choose_keys();
        } else {
            self.next += 1;
        }
    }

    fn choose_keys(&mut self) {
        let mut word = mix(self.seed ^ mix(self.pass));
        for key in &mut self.keys {
            let factor = mix(word) | 1;
            word = mix(word.wrapping_add(1));
            *key = (factor, word);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_is_drawn_once_per_pass_for_every_count() {
        for count in (1..=130).chain([1023, 1024, 1025, 4096, 5000]) {
            let mut permutation = Permutation::new(count, 7 + count);
            for pass in 0..3 {
                let mut seen = vec![false; usize::try_from(count).expect("small")];
                for _ in 0..count {
                    let drawn = usize::try_from(permutation.draw()).expect("small");
                    assert!(!seen[drawn], "count {count}, pass {pass}: {drawn} twice");
                    seen[drawn] = true;
                }
            }
        }
    }

    #[test]
    fn passes_and_seeds_have_orders_of_their_own() {
        let order = |permutation: &mut Permutation| -> Vec<u64> {
            (0..1000).map(|_| permutation.draw()).collect()
        };
        let (mut one, mut other) = (Permutation::new(1000, 1), Permutation::new(1000, 2));
        let (first, second) = (order(&mut one), order(&mut one));
        assert!(first != second && first != order(&mut other));
        assert!(
            first == order(&mut Permutation::new(1000, 1)),
            "one seed, one order"
        );
    }

    #[test]
    fn neighbours_are_far_apart_and_evenly_so() {
        let mut permutation = Permutation::new(1 << 20, 3);
        let draws: Vec<u64> = (0..1 << 16).map(|_| permutation.draw()).collect();
        let mut quarters = [0_u32; 4];
        for pair in draws.windows(2) {
            let distance = pair[0].abs_diff(pair[1]);
            quarters[usize::try_from(distance >> 18).expect("below four")] += 1;
        }
        // Distances of independent draws: 7/16, 5/16, 3/16 and 1/16 of all.
        for (quarter, share) in quarters.into_iter().zip([7, 5, 3, 1]) {
            let expected = (1 << 16) / 16 * share;
            assert!(
                quarter.abs_diff(expected) < expected / 10 + 400,
                "{quarters:?}"
            );
        }
    }
}
