//! Choices: where every decision of a world comes from, so that a world can be repeated.
//!
//! They come from a seed, or from the bytes of a fuzzer. Behind the last byte every choice is the
//! smallest one, so that few bytes mean a small and quiet world.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// A source of choices for one part of a world.
#[derive(Clone, Debug)]
pub(crate) struct Choices {
    /// State of SplitMix64.
    state: u64,
    bytes: Option<Bytes>,
}

/// Bytes that all parts of a world consume together.
#[derive(Clone, Debug)]
pub(crate) struct Bytes {
    all: Arc<[u8]>,
    next: Arc<AtomicUsize>,
}

impl Choices {
    /// The choices of a seed. `part` separates the choices of parts of one world, so that a part
    /// that chooses once more does not change the others.
    pub(crate) fn of_seed(seed: u64, part: u64) -> Self {
        let state = seed ^ part.wrapping_mul(0xA076_1D64_78BD_642F);
        let mut choices = Self { state, bytes: None };
        choices.word();
        choices
    }

    /// Choices from bytes. `part` separates identities, which do not come from the bytes.
    pub(crate) fn of_bytes(bytes: &Bytes, part: u64) -> Self {
        Self {
            bytes: Some(bytes.clone()),
            ..Self::of_seed(0, part)
        }
    }

    /// A number of 64 bits: an identity, a challenge. It is no choice, so it takes no bytes.
    pub(crate) fn word(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut word = self.state;
        word = (word ^ (word >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        word ^ (word >> 31)
    }

    /// A number below `limit`, which is not zero.
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        if let Some(bytes) = &self.bytes {
            return bytes.below(limit);
        }
        let product = u128::from(self.word()) * u128::from(limit);
        u64::try_from(product >> 64).expect("below the limit")
    }

    /// A number from `low` to `high`.
    pub(crate) fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }

    /// True once in `times`. The smallest choice is false.
    pub(crate) fn once_in(&mut self, times: u64) -> bool {
        self.below(times) == times - 1
    }

    /// One of the items, of which there is one at least. The smallest choice is the first.
    pub(crate) fn one_of<T: Copy>(&mut self, items: &[T]) -> T {
        let index = self.below(items.len() as u64);
        items[usize::try_from(index).expect("an index")]
    }

    /// An index below `length`.
    pub(crate) fn index(&mut self, length: usize) -> usize {
        usize::try_from(self.below(length as u64)).expect("an index")
    }
}

impl Bytes {
    pub(crate) fn new(bytes: &[u8]) -> Self {
        Self {
            all: bytes.into(),
            next: Arc::default(),
        }
    }

    /// Takes as many bytes as a number below `limit` has.
    fn below(&self, limit: u64) -> u64 {
        let bits = u64::BITS - (limit - 1).leading_zeros();
        let count = usize::try_from(bits.div_ceil(8)).expect("eight at most");
        let next = self.next.fetch_add(count, Relaxed);
        let taken = self.all.iter().skip(next).take(count);
        let number = taken
            .rev()
            .fold(0, |number, byte| number << 8 | u64::from(*byte));
        number % limit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_share_the_bytes_and_choose_the_smallest_behind_them() {
        let bytes = Bytes::new(&[7, 1, 2]);
        let (mut one, mut other) = (Choices::of_bytes(&bytes, 1), Choices::of_bytes(&bytes, 2));
        assert_eq!(one.below(1), 0, "no choice takes no byte");
        assert_eq!(one.below(256), 7);
        assert_eq!(other.below(1000), 0x0201);
        assert_eq!(one.between(3, 9), 3);
        assert!(!other.once_in(2));
        assert_ne!(one.word(), other.word());
    }

    #[test]
    fn a_choice_is_below_its_limit() {
        let bytes = Bytes::new(&[0xFF; 24]);
        let mut choices = Choices::of_bytes(&bytes, 0);
        assert_eq!(choices.below(u64::MAX), 0);
        assert!(choices.below(3) < 3);
        let mut choices = Choices::of_seed(1, 0);
        assert!((0..100).all(|_| choices.below(3) < 3));
    }
}
