//! One run of a world: where its choices come from, and how much of it happens.

use std::collections::BTreeSet;
use std::fmt;

use crate::choices::{Bytes, Choices};
use crate::trace;

/// One run of a world.
#[derive(Debug)]
pub struct Run {
    seed: u64,
    /// Choices that come from bytes, not from the seed.
    bytes: Option<Bytes>,
    cut: Cut,
}

/// Where the choices of a world come from.
#[derive(Clone, Debug)]
pub enum Source {
    /// A seed.
    Seed(u64),
    /// The input of a fuzzer.
    Bytes(Vec<u8>),
}

/// What a run leaves out, so that a fault is found in less. Everything else is chosen as without
/// the cut.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cut {
    /// Most requests of a host.
    pub requests: Option<u64>,
    /// Planned faults that happen, by number. The first one is 1.
    pub faults: Option<BTreeSet<u64>>,
    /// Hosts that are there, by number. The first one is 1.
    pub hosts: Option<BTreeSet<u64>>,
}

impl Run {
    /// A run with these choices, which has not begun.
    pub fn new(source: &Source, cut: &Cut) -> Self {
        let (seed, bytes) = match source {
            Source::Seed(seed) => (*seed, None),
            Source::Bytes(bytes) => (0, Some(Bytes::new(bytes))),
        };
        let cut = cut.clone();
        Self { seed, bytes, cut }
    }

    /// The choices of a part of the world.
    pub(crate) fn choices(&self, part: u64) -> Choices {
        match &self.bytes {
            None => Choices::of_seed(self.seed, part),
            Some(bytes) => Choices::of_bytes(bytes, part),
        }
    }

    /// How many requests a host submits in this run, of so many that were chosen.
    pub(crate) fn requests(&self, chosen: u64) -> u64 {
        let requests = self.cut.requests.map_or(chosen, |most| most.min(chosen));
        trace::note_requests(requests);
        requests
    }

    /// Whether a host is there. A world asks for the hosts that it can do without.
    pub(crate) fn keeps_host(&self, number: u64) -> bool {
        let kept = keeps(self.cut.hosts.as_ref(), number);
        trace::note_host(number, kept);
        kept
    }

    pub(crate) fn cut(&self) -> &Cut {
        &self.cut
    }
}

impl Cut {
    /// Whether a planned fault happens.
    pub(crate) fn keeps_fault(&self, number: u64) -> bool {
        keeps(self.faults.as_ref(), number)
    }
}

/// Whether a number is kept. None: all are.
fn keeps(kept: Option<&BTreeSet<u64>>, number: u64) -> bool {
    kept.is_none_or(|kept| kept.contains(&number))
}

/// The options of `cargo xtask sim`, each with a space before it.
impl fmt::Display for Cut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(requests) = self.requests {
            write!(f, " --requests {requests}")?;
        }
        for (option, kept) in [("--faults", &self.faults), ("--hosts", &self.hosts)] {
            let Some(kept) = kept else {
                continue;
            };
            let numbers: Vec<_> = kept.iter().map(u64::to_string).collect();
            let numbers = match numbers.is_empty() {
                true => "none".to_owned(),
                false => numbers.join(","),
            };
            write!(f, " {option} {numbers}")?;
        }
        Ok(())
    }
}
