//! Shrinking: a world that is wrong is run again with fewer requests, planned faults and hosts, as
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
    // Without faults and with one host, a fault is easier to understand than with few requests.
    search.drop_all_faults();
    search.drop_hosts();
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
        self.keeps(Cut {
            faults: Some(faults),
            ..self.smallest.cut.clone()
        })
    }

    fn keeps_requests(&mut self, requests: u64) -> bool {
        self.keeps(Cut {
            requests: Some(requests),
            ..self.smallest.cut.clone()
        })
    }

    /// Drops one host after the other, and keeps one at least.
    fn drop_hosts(&mut self) {
        for number in self.smallest.attempt.record.hosts.clone() {
            let mut fewer = self.smallest.attempt.record.hosts.clone();
            fewer.remove(&number);
            if !fewer.is_empty() {
                self.keeps(Cut {
                    hosts: Some(fewer),
                    ..self.smallest.cut.clone()
                });
            }
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Report;
    use crate::run::Run;
    use crate::trace::{self, Entry};

    /// Wrong with three requests, the second fault and the third host.
    fn run(run: &Run) -> Report {
        let mut report = Report::default();
        let faults = (1..5).filter(|number| run.cut().keeps_fault(*number));
        let faults: Vec<u64> = faults.collect();
        for number in &faults {
            trace::note(|| Entry::new("world:", "strikes").fault(*number));
        }
        let hosts: Vec<u64> = (1..4).filter(|number| run.keeps_host(*number)).collect();
        if run.requests(40) >= 3 && faults.contains(&2) && hosts.contains(&3) {
            report.faults.push("it is wrong".to_owned());
        }
        report
    }

    #[test]
    fn what_is_not_needed_is_dropped() {
        let kind = Kind { name: "test", run };
        let shrunk = shrink(&kind, &Source::Seed(1)).expect("it is wrong");
        assert_eq!(
            shrunk.cut.to_string(),
            " --requests 3 --faults 2 --hosts 3",
            "{shrunk}"
        );
        assert_eq!(shrunk.attempt.report.faults, ["it is wrong"]);
        assert_eq!(shrunk.attempt.record.faults(), [2].into());
    }

    #[test]
    fn a_world_that_is_right_is_not_shrunk() {
        let run = |_: &Run| Report::default();
        let kind = Kind { name: "test", run };
        assert!(shrink(&kind, &Source::Seed(1)).is_none());
    }
}
