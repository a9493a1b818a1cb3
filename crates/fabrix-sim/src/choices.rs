//! Choices: where every decision of a world comes from, so that a world can be repeated.

/// A source of choices: SplitMix64 with this state.
#[derive(Clone, Debug)]
pub(crate) struct Choices(u64);

impl Choices {
    /// The choices of a seed. `part` separates the choices of parts of one world, so that a part
    /// that chooses once more does not change the others.
    pub(crate) fn of_part(seed: u64, part: u64) -> Self {
        let mut choices = Self(seed ^ part.wrapping_mul(0xA076_1D64_78BD_642F));
        choices.word();
        choices
    }

    /// A number of 64 bits.
    pub(crate) fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        word ^ (word >> 31)
    }

    /// A number below `limit`, which is not zero.
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        let product = u128::from(self.word()) * u128::from(limit);
        u64::try_from(product >> 64).expect("below the limit")
    }

    /// A number from `low` to `high`.
    pub(crate) fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }

    /// True once in `times`.
    pub(crate) fn once_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    /// One of the items, of which there is one at least.
    pub(crate) fn one_of<T: Copy>(&mut self, items: &[T]) -> T {
        let index = self.below(items.len() as u64);
        items[usize::try_from(index).expect("an index")]
    }

    /// An index below `length`.
    pub(crate) fn index(&mut self, length: usize) -> usize {
        usize::try_from(self.below(length as u64)).expect("an index")
    }
}
