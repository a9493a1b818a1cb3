//! Shrinking: a world that is wrong is run again with fewer requests and fewer planned faults, as
//! long as something is still wrong.

use std::collections::BTreeSet;
use std::fmt;
use std::time::{Duration, Instant};

use crate::attempt::{Attempt, attempt};
use crate::run::{Cut, Source};
use crate::worlds::Kind;

/// The smallest run found that is wrong.
#[derive(Debug)]
pub struct Shrunk {
    /// What it leaves out.
    pub cut: Cut,
    /// The run, recorded.
    pub attempt: Attempt,
    runs: u32,
    /// Requests of a host and planned faults of the whole world.
    whole: (u64, usize),
}

impl fmt::Display for Shrunk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let record = &self.attempt.record;
        write!(
            f,
            "the smallest of {} runs: {} of {} requests of a host, {} of {} planned faults",
            self.runs,
            record.requests,
            self.whole.0,
            record.faults().len(),
            self.whole.1
        )
    }
}

/// Looks for a small run that is wrong. None: the whole world is right.
pub fn shrink(kind: &Kind, source: &Source) -> Option<Shrunk> {
    let attempt = attempt(kind, source, &Cut::default(), true);
    if attempt.report.faults.is_empty() {
        return None;
    }
    let mut search = Search {
        kind,
        source,
        smallest: Shrunk {
            cut: Cut::default(),
            runs: 1,
            whole: (attempt.record.requests, attempt.record.faults().len()),
            attempt,
        },
        ends: Instant::now() + TIME_MAX,
    };
    // Fewer faults first: what remains is easier to understand. Then each helps the other.
    search.drop_all_faults();
    search.drop_requests();
    search.drop_faults();
    search.drop_requests();
    search.drop_idle_faults();
    Some(search.smallest)
}

struct Search<'a> {
    kind: &'a Kind,
    source: &'a Source,
    smallest: Shrunk,
    ends: Instant,
}

impl Search<'_> {
    /// Runs with a cut. True: something is wrong there too, so it is the smallest one.
    fn keeps(&mut self, cut: Cut) -> bool {
        if self.smallest.runs == RUNS_MAX || Instant::now() > self.ends {
            return false;
        }
        self.smallest.runs += 1;
        let attempt = attempt(self.kind, self.source, &cut, true);
        let is_wrong = !attempt.report.faults.is_empty();
        if is_wrong {
            (self.smallest.cut, self.smallest.attempt) = (cut, attempt);
        }
        is_wrong
    }

    fn keeps_faults(&mut self, faults: BTreeSet<u64>) -> bool {
        let requests = self.smallest.cut.requests;
        let faults = Some(faults);
        self.keeps(Cut { requests, faults })
    }

    fn keeps_requests(&mut self, requests: u64) -> bool {
        let faults = self.smallest.cut.faults.clone();
        let requests = Some(requests);
        self.keeps(Cut { requests, faults })
    }

    fn drop_all_faults(&mut self) {
        if !self.smallest.attempt.record.faults().is_empty() {
            self.keeps_faults(BTreeSet::new());
        }
    }

    /// Drops one fault after the other.
    fn drop_faults(&mut self) {
        for number in self.smallest.attempt.record.faults() {
            let mut fewer = self.smallest.attempt.record.faults();
            if fewer.remove(&number) {
                self.keeps_faults(fewer);
            }
        }
    }

    /// Drops the faults that find nothing to strike any more.
    fn drop_idle_faults(&mut self) {
        let struck = self.smallest.attempt.record.faults();
        let kept = self.smallest.cut.faults.as_ref();
        if kept.is_some_and(|kept| *kept != struck) {
            self.keeps_faults(struck);
        }
    }

    /// Halves the requests, then drops fewer and fewer of them.
    fn drop_requests(&mut self) {
        let mut step = self.smallest.attempt.record.requests / 2;
        while step > 0 {
            let most = self.smallest.attempt.record.requests;
            if !(step < most && self.keeps_requests(most - step)) {
                step /= 2;
            }
        }
    }
}

/// More runs bring little.
const RUNS_MAX: u32 = 60;
/// An engineer waits so long.
const TIME_MAX: Duration = Duration::from_secs(10);
