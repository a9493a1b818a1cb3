//! One run of a world: where its choices come from, and how much of it happens.

use std::collections::BTreeSet;

use crate::choices::{Bytes, Choices};

/// One run of a world.
#[derive(Debug)]
pub struct Run {
    source: Source,
    cut: Cut,
}

#[derive(Debug)]
enum Source {
    Seed(u64),
    Bytes(Bytes),
}

/// What a run leaves out, so that a fault is found in less. Everything else is chosen as without
/// the cut.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cut {
    /// Most requests of a host.
    pub requests: Option<u64>,
    /// Planned faults that happen, by number. The first one is 1.
    pub faults: Option<BTreeSet<u64>>,
}

impl Run {
    /// A run of a seed.
    pub fn of_seed(seed: u64, cut: Cut) -> Self {
        let source = Source::Seed(seed);
        Self { source, cut }
    }

    /// A run whose choices are bytes.
    pub fn of_bytes(bytes: &[u8], cut: Cut) -> Self {
        let source = Source::Bytes(Bytes::new(bytes));
        Self { source, cut }
    }

    /// The choices of a part of the world.
    pub(crate) fn choices(&self, part: u64) -> Choices {
        match &self.source {
            Source::Seed(seed) => Choices::of_seed(*seed, part),
            Source::Bytes(bytes) => Choices::of_bytes(bytes, part),
        }
    }

    /// How many requests a host submits in this run, of so many that were chosen.
    pub(crate) fn requests(&self, chosen: u64) -> u64 {
        self.cut.requests.map_or(chosen, |most| most.min(chosen))
    }

    pub(crate) fn cut(&self) -> &Cut {
        &self.cut
    }
}

impl Cut {
    /// Whether a planned fault happens.
    pub(crate) fn keeps_fault(&self, number: u64) -> bool {
        self.faults
            .as_ref()
            .is_none_or(|kept| kept.contains(&number))
    }
}
