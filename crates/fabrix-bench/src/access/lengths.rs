//! Lengths of requests: one, several with their shares, or a range.

use crate::job::{Share, Sizes};
use crate::random::Random;

/// Lengths of requests in units.
#[derive(Debug)]
pub(super) enum Lengths {
    One(u32),
    /// Lengths, each with the 32-bit draw below which it is chosen. The last threshold is 2^32.
    Split(Vec<(u64, u32)>),
    /// Multiples of the shortest, and the longest.
    Range {
        shortest: u32,
        longest: u32,
    },
}

impl Lengths {
    pub(super) fn new(sizes: Sizes<'_>, unit_bytes: u32) -> Self {
        let units = |bytes: u32| (bytes / unit_bytes).max(1);
        let (shortest, longest) = (units(sizes.shortest_bytes()), units(sizes.longest_bytes()));
        if shortest == longest {
            return Self::One(shortest);
        }
        if sizes.range.is_some() {
            return Self::Range { shortest, longest };
        }
        let mut percent = 0;
        let bound = |share: Share| {
            percent += share.percent;
            ((u64::from(percent) << 32) / 100, units(share.bytes))
        };
        Self::Split(sizes.iter().map(bound).collect())
    }

    #[inline]
    pub(super) fn draw(&self, random: &mut Random) -> u32 {
        match self {
            Self::One(only) => *only,
            Self::Split(lengths) => {
                let draw = random.next() >> 32;
                let chosen = lengths.iter().find(|(below, _)| draw < *below);
                chosen.expect("the last length has the whole range").1
            }
            Self::Range { shortest, longest } => {
                let draw = random.below(u64::from(*longest));
                let draw = u32::try_from(draw).expect("below a number of 32 bits");
                let length = u64::from(*shortest) + u64::from(draw / shortest * shortest);
                u32::try_from(length).map_or(*longest, |length| length.min(*longest))
            }
        }
    }
}
