//! Pseudo-random numbers for addresses, mixes and contents: SplitMix64, whose state is one word.
//!
//! The quality suffices for spreading requests, not for secrets. The same seed gives the same
//! sequence. Source: Steele, Lea, Flood, "Fast splittable pseudorandom number generators", OOPSLA
//! 2014, figure 16.

/// A sequence of pseudo-random words.
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    /// A sequence that depends only on `seed`.
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next 64 random bits.
    #[inline]
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        mix(self.0)
    }

    /// A number below `bound`, by multiplication and shift: a division per I/O would be slow. The
    /// bias is below `bound` / 2^64.
    #[inline]
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        scaled(self.next(), bound)
    }

    /// A number in (0, 1]. It is never 0, so its logarithm exists.
    pub(crate) fn unit(&mut self) -> f64 {
        let bits = u32::try_from(self.next() >> 32).expect("32 bits remain");
        (f64::from(bits) + 1.0) / 4_294_967_296.0
    }
}

/// Mixes the bits of a word, so that neighbouring inputs give unrelated outputs.
#[inline]
pub(crate) fn mix(word: u64) -> u64 {
    let word = (word ^ (word >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    word ^ (word >> 31)
}

/// Fills a buffer with incompressible data that deduplication cannot merge.
pub(crate) fn fill(bytes: &mut [u8], seed: u64) {
    let mut random = Random::new(seed);
    let mut chunks = bytes.chunks_exact_mut(8);
    for chunk in &mut chunks {
        chunk.copy_from_slice(&random.next().to_le_bytes());
    }
    let tail = chunks.into_remainder();
    let last = random.next().to_le_bytes();
    tail.copy_from_slice(&last[..tail.len()]);
}

/// Maps a random word to a number below `bound`.
#[inline]
pub(crate) fn scaled(word: u64, bound: u64) -> u64 {
    let product = u128::from(word) * u128::from(bound);
    u64::try_from(product >> 64).expect("the high half of a 128-bit product has 64 bits")
}

/// The whole part of a number that is not negative.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the number is not negative, and the cast saturates"
)]
pub(crate) fn whole(number: f64) -> u64 {
    number as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_stay_below_the_bound_and_reach_both_ends() {
        let mut random = Random::new(1);
        let draws: Vec<u64> = (0..1000).map(|_| random.below(7)).collect();
        assert!(draws.iter().all(|draw| *draw < 7));
        assert!(draws.contains(&0) && draws.contains(&6));
    }

    #[test]
    fn one_seed_gives_one_sequence() {
        let (mut one, mut other) = (Random::new(9), Random::new(9));
        assert!((0..100).all(|_| one.next() == other.next()));
    }

    #[test]
    fn the_unit_draw_is_never_zero_and_never_above_one() {
        let mut random = Random::new(3);
        assert!(
            (0..10_000)
                .map(|_| random.unit())
                .all(|draw| draw > 0.0 && draw <= 1.0)
        );
    }
}
