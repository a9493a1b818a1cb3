//! Starts of the parts of a run: at once, after a time, or after the end of another part.

use std::time::{Duration, Instant};

use super::Part;

/// Start of a part, and the effect of its end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Start {
    /// Index of the part whose end this part awaits. It is smaller than the part's own index.
    pub after: Option<usize>,
    /// Time from then, or from the start of the run, to the start of the part.
    pub delay: Duration,
    /// Whether the first job of this part that ends also ends all other parts.
    pub ends_all: bool,
}

/// The parts that have not started yet.
pub(super) struct Starts {
    parts: Vec<Pending>,
}

/// State of a part.
struct Pending {
    start: Start,
    /// Time of the start. None: another part has to end first, or the part has started.
    at: Option<Instant>,
    /// Jobs that have not ended.
    jobs: u32,
}

impl Starts {
    pub(super) fn new(parts: &[Part<'_>], began: Instant) -> Self {
        let pending = |part: &Part<'_>| Pending {
            start: part.start,
            at: (part.start.after.is_none()).then(|| began + part.start.delay),
            jobs: part.job.numjobs,
        };
        Self {
            parts: parts.iter().map(pending).collect(),
        }
    }

    /// The parts that start now.
    pub(super) fn due(&mut self, now: Instant) -> Vec<usize> {
        let due =
            |(index, part): (usize, &mut Pending)| part.at.take_if(|at| *at <= now).map(|_| index);
        self.parts.iter_mut().enumerate().filter_map(due).collect()
    }

    /// Time of the next start.
    pub(super) fn next(&self) -> Option<Instant> {
        self.parts.iter().filter_map(|part| part.at).min()
    }

    /// Records the end of a job of a part. True: all other parts end too.
    pub(super) fn ended(&mut self, index: usize, now: Instant) -> bool {
        let part = &mut self.parts[index];
        part.jobs -= 1;
        let (is_last, ends_all) = (part.jobs == 0, part.start.ends_all);
        let waiting = self.parts.iter_mut().filter(|_| is_last);
        for part in waiting.filter(|part| part.start.after == Some(index)) {
            part.at = Some(now + part.start.delay);
        }
        ends_all
    }

    /// Starts no more parts.
    pub(super) fn cancel(&mut self) {
        for part in &mut self.parts {
            (part.at, part.start.after) = (None, None);
        }
    }
}

/// Planned times from the start of the run to the end of each part.
pub(super) fn planned(parts: &[Part<'_>]) -> Vec<Duration> {
    let mut ends: Vec<Duration> = Vec::new();
    for part in parts {
        let from = part.start.after.map_or(Duration::ZERO, |index| ends[index]);
        ends.push(from + part.start.delay + part.job.ramp + part.job.runtime);
    }
    ends
}
