//! What the suite may skip, and where it errs itself: a file that this program obeys and people
//! read.
//!
//! Every line names runs, a test (or `Suite.*`) and a reason. A line that nothing answers to is an
//! error, so the list says what is so today.

use super::suite::Tested;
use crate::tally::Counts;
use std::fs;
use std::path::Path;

/// Where the list is.
pub(super) const FILE: &str = "xtask/conformance.txt";

/// The list.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Exceptions(Vec<Exception>);

#[derive(Debug, PartialEq, Eq)]
struct Exception {
    kind: Kind,
    runs: Vec<String>,
    /// `Suite.Test` or `Suite.*`.
    test: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// The test, or a part of it, does not run.
    Skip,
    /// The test errs: it has to fail.
    Fault,
}

/// What is to be said about one run.
#[derive(Debug, Default)]
pub(super) struct Verdict {
    pub(super) counts: Counts,
    /// Sentences, one for each count of what failed.
    pub(super) wrong: Vec<String>,
}

impl Exceptions {
    pub(super) fn read(path: &Path) -> Result<Self, String> {
        let text =
            fs::read_to_string(path).map_err(|error| format!("cannot read {FILE}: {error}"))?;
        Self::parse(&text)
    }

    /// Lines of `skip RUNS TEST: reason` or `fault RUNS TEST: reason`, with commas between runs;
    /// `#` begins a comment.
    fn parse(text: &str) -> Result<Self, String> {
        let lines = text.lines().map(str::trim);
        let lines = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
        lines
            .map(Exception::parse)
            .collect::<Result<_, _>>()
            .map(Self)
    }

    /// Every line is about a run that there is.
    pub(super) fn check_runs(&self, runs: &[&str]) -> Result<(), String> {
        let mut named = self.0.iter().flat_map(|line| &line.runs);
        let stray = named.find(|run| !runs.contains(&run.as_str()));
        stray.map_or(Ok(()), |run| {
            Err(format!("{FILE}: there is no run `{run}`"))
        })
    }

    /// Holds the results of a run against the list.
    pub(super) fn judge(&self, run: &str, tested: &[Tested]) -> Verdict {
        let mut verdict = Verdict::default();
        for test in tested {
            let listed = |kind| {
                let mut lines = self.0.iter();
                lines.any(|line| line.kind == kind && line.is_of(run) && line.is_about(&test.name))
            };
            match (test.passed, &test.skipped) {
                (false, _) if listed(Kind::Fault) => verdict.counts.skipped += 1,
                (false, _) => verdict.fail(format!(
                    "FAILED: {run}: {}\n    {}",
                    test.name,
                    test.failures.join("\n    ")
                )),
                (true, Some(_)) if listed(Kind::Skip) => verdict.counts.skipped += 1,
                (true, Some(why)) => verdict.fail(format!(
                    "FAILED: {run}: {} was skipped ({why}) and is not listed in {FILE}",
                    test.name
                )),
                (true, None) => verdict.counts.passed += 1,
            }
        }
        for line in self.0.iter().filter(|line| line.is_of(run)) {
            let answers = |test: &Tested| {
                line.is_about(&test.name)
                    && match line.kind {
                        Kind::Skip => test.skipped.is_some(),
                        Kind::Fault => !test.passed,
                    }
            };
            if !tested.iter().any(answers) {
                verdict.fail(format!(
                    "FAILED: {run}: {} ran and passed: take its line out of {FILE}",
                    line.test
                ));
            }
        }
        verdict
    }
}

impl Exception {
    fn parse(line: &str) -> Result<Self, String> {
        let wrong = || format!("{FILE}: `{line}` is not `skip|fault RUNS TEST: reason`");
        let (head, reason) = line.split_once(": ").ok_or_else(wrong)?;
        let words: Vec<_> = head.split_whitespace().collect();
        let [kind, runs, test] = words[..] else {
            return Err(wrong());
        };
        let kind = match kind {
            "skip" => Kind::Skip,
            "fault" => Kind::Fault,
            _ => return Err(wrong()),
        };
        if reason.trim().is_empty() || !test.contains('.') {
            return Err(wrong());
        }
        Ok(Self {
            kind,
            runs: runs.split(',').map(str::to_owned).collect(),
            test: test.to_owned(),
        })
    }

    fn is_of(&self, run: &str) -> bool {
        self.runs.iter().any(|named| named == run)
    }

    fn is_about(&self, name: &str) -> bool {
        match self.test.strip_suffix('*') {
            Some(suite) => name.starts_with(suite),
            None => name == self.test,
        }
    }
}

impl Verdict {
    fn fail(&mut self, sentence: String) {
        self.counts.failed += 1;
        self.wrong.push(sentence);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &str =
        "# why\nskip disk Eject.*: no tray\nfault disk,tape Status.One: it counts wrongly\n";

    fn tested(name: &str, passed: bool, skipped: bool) -> Tested {
        Tested {
            name: name.to_owned(),
            passed,
            skipped: skipped.then(|| "no tray".to_owned()),
            ..Tested::default()
        }
    }

    fn judged(tests: &[Tested]) -> (usize, usize, usize) {
        let counts = Exceptions::parse(LIST)
            .expect("well formed")
            .judge("disk", tests)
            .counts;
        (counts.passed, counts.failed, counts.skipped)
    }

    #[test]
    fn what_is_listed_may_happen_and_nothing_else() {
        let [eject, one] = [
            tested("Eject.Now", true, true),
            tested("Status.One", false, false),
        ];
        assert_eq!(judged(&[eject.clone(), one.clone()]), (0, 0, 2));
        let fails = tested("Status.Two", false, false);
        assert_eq!(judged(&[eject.clone(), one.clone(), fails]), (0, 1, 2));
        let skips = tested("Other.One", true, true);
        assert_eq!(judged(&[eject, one, skips]), (0, 1, 2));
    }

    #[test]
    fn a_line_that_nothing_answers_to_fails() {
        let passes = [
            tested("Eject.Now", true, false),
            tested("Status.One", true, false),
        ];
        assert_eq!(judged(&passes), (2, 2, 0));
    }

    #[test]
    fn a_line_has_a_kind_a_run_a_test_and_a_reason() {
        for wrong in [
            "skip disk A.B",
            "skip disk A.B: ",
            "skip A.B: why",
            "maybe disk A.B: why",
            "skip disk A: why",
        ] {
            assert!(Exceptions::parse(wrong).is_err(), "{wrong}");
        }
        let list = Exceptions::parse(LIST).expect("well formed");
        assert!(list.check_runs(&["disk", "tape"]).is_ok() && list.check_runs(&["disk"]).is_err());
    }
}
