//! What the suite may skip: a file that this program obeys and people read.
//!
//! Every line names runs, a test (or `Suite.*`) and a reason. A line that nothing answers to is an
//! error, so the list says what is so today.

use super::suite::Tested;
use crate::summary::Counts;
use std::fs;
use std::path::Path;

/// Where the list is.
pub(super) const FILE: &str = "xtask/conformance.txt";

/// The list.
pub(super) struct Exceptions(Vec<Exception>);

/// A test that does not run, or not whole.
struct Exception {
    runs: Vec<String>,
    /// `Suite.Test` or `Suite.*`.
    test: String,
}

impl Exceptions {
    pub(super) fn read(path: &Path) -> Result<Self, String> {
        let text = fs::read_to_string(path);
        Self::parse(&text.map_err(|error| format!("cannot read {FILE}: {error}"))?)
    }

    /// Lines of `skip RUNS TEST: reason`, with commas between runs; `#` begins a comment.
    fn parse(text: &str) -> Result<Self, String> {
        let lines = text.lines().map(str::trim);
        let lines = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
        let line = |line| {
            let wrong = || format!("{FILE}: `{line}` is not `skip RUNS TEST: reason`");
            Exception::parse(line).ok_or_else(wrong)
        };
        lines.map(line).collect::<Result<_, _>>().map(Self)
    }

    /// Every line is about a run that there is.
    pub(super) fn check_runs(&self, runs: &[&str]) -> Result<(), String> {
        let mut named = self.0.iter().flat_map(|line| &line.runs);
        match named.find(|run| !runs.contains(&run.as_str())) {
            None => Ok(()),
            Some(run) => Err(format!("{FILE}: there is no run `{run}`")),
        }
    }

    /// Holds the results of a run against the list, with a line for all that is wrong.
    pub(super) fn judge(&self, run: &str, tested: &[Tested]) -> Counts {
        let of_run = |line: &&Exception| line.runs.iter().any(|named| named == run);
        let lines: Vec<_> = self.0.iter().filter(of_run).collect();
        let mut counts = Counts::default();
        for test in tested {
            let listed = || lines.iter().any(|line| line.is_about(&test.name));
            let wrong = match &test.skipped {
                _ if !test.passed => test.failures.join("\n    "),
                None => {
                    counts.passed += 1;
                    continue;
                }
                Some(_) if listed() => {
                    counts.skipped += 1;
                    continue;
                }
                Some(why) => format!("was skipped ({why}) and is not listed in {FILE}"),
            };
            counts.failed += 1;
            println!("FAILED: {run}: {}: {wrong}", test.name);
        }
        for line in lines {
            let skipped = |test: &Tested| test.skipped.is_some() && line.is_about(&test.name);
            if !tested.iter().any(skipped) {
                counts.failed += 1;
                let test = &line.test;
                println!("FAILED: {run}: {test} was not skipped: take its line out of {FILE}");
            }
        }
        counts
    }
}

impl Exception {
    fn parse(line: &str) -> Option<Self> {
        let (head, reason) = line.split_once(": ")?;
        let words: Vec<_> = head.split_whitespace().collect();
        let ["skip", runs, test] = words[..] else {
            return None;
        };
        (!reason.trim().is_empty() && test.contains('.')).then(|| Self {
            runs: runs.split(',').map(str::to_owned).collect(),
            test: test.to_owned(),
        })
    }

    fn is_about(&self, name: &str) -> bool {
        match self.test.strip_suffix('*') {
            Some(suite) => name.starts_with(suite),
            None => name == self.test,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &str = "# why\nskip disk Eject.*: no tray\nskip disk,tape Status.One: no status\n";

    fn judged(tests: &[(&str, bool, bool)]) -> (usize, usize, usize) {
        let tested = |&(name, passed, skipped): &(&str, bool, bool)| Tested {
            name: name.to_owned(),
            passed,
            skipped: skipped.then(|| "no tray".to_owned()),
            ..Tested::default()
        };
        let tests: Vec<_> = tests.iter().map(tested).collect();
        let list = Exceptions::parse(LIST).expect("well formed");
        let counts = list.judge("disk", &tests);
        (counts.passed, counts.failed, counts.skipped)
    }

    #[test]
    fn what_is_listed_may_be_skipped_and_nothing_else() {
        let [eject, one] = [("Eject.Now", true, true), ("Status.One", true, true)];
        assert_eq!(judged(&[eject, one]), (0, 0, 2));
        assert_eq!(
            judged(&[eject, one, ("Other.Two", false, false)]),
            (0, 1, 2)
        );
        assert_eq!(judged(&[eject, one, ("Other.One", true, true)]), (0, 1, 2));
        let ran = [("Eject.Now", true, false), one];
        assert_eq!(judged(&ran), (1, 1, 1), "a line that nothing answers to");
    }

    #[test]
    fn a_line_has_a_kind_a_run_a_test_and_a_reason() {
        for wrong in [
            "skip disk A.B",
            "skip disk A.B: ",
            "skip A.B: why",
            "maybe disk A.B: why",
        ] {
            assert!(Exceptions::parse(wrong).is_err(), "{wrong}");
        }
        let list = Exceptions::parse(LIST).expect("well formed");
        assert!(list.check_runs(&["disk", "tape"]).is_ok() && list.check_runs(&["disk"]).is_err());
    }
}
