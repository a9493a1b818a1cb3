//! What a run of checks and tests comes to: counts, skips, failures, times, and one last line.
//!
//! A test that cannot run prints `SKIPPED: name: why` and returns. On a developer's machine a skip
//! is only counted. In CI every skip that `xtask/skips.txt` does not list is a failure.

use crate::process::root;
use std::time::Duration;

const SKIPS_FILE: &str = "xtask/skips.txt";

/// What one step of a run found.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) passed: usize,
    pub(crate) failed: usize,
    /// Skips that a list of the suite itself allows.
    pub(crate) skipped: usize,
    /// Skips that `xtask/skips.txt` has to allow: name and reason.
    pub(crate) skips: Vec<(String, String)>,
    /// Failures beyond single tests, each a sentence.
    pub(crate) failures: Vec<String>,
}

/// Why a step has no counts.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    Failed(String),
    /// A tool is missing and cannot be installed.
    Skipped(String),
}

impl From<String> for Stop {
    fn from(failure: String) -> Self {
        Self::Failed(failure)
    }
}

/// The steps of a run so far.
#[derive(Default)]
pub(crate) struct Summary {
    /// The skips that are allowed; None: all are.
    allowed: Option<Vec<String>>,
    counts: Counts,
    times: Vec<(String, Duration, &'static str)>,
}

impl Summary {
    /// Strict about skips where the environment says `CI=true` or `CI=1`.
    pub(crate) fn new() -> Result<Self, String> {
        let strict = std::env::var("CI").is_ok_and(|ci| ci == "true" || ci == "1");
        let text = std::fs::read_to_string(root().join(SKIPS_FILE))
            .map_err(|error| format!("cannot read {SKIPS_FILE}: {error}"))?;
        let allowed = parse_allowed(&text).map_err(|wrong| format!("{SKIPS_FILE}: {wrong}"))?;
        Ok(Self {
            allowed: strict.then_some(allowed),
            ..Self::default()
        })
    }

    /// Adds what a step found.
    pub(crate) fn step(&mut self, name: &str, time: Duration, outcome: Result<Counts, Stop>) {
        let failed_before = self.counts.failed;
        let mut word = "ok";
        match outcome {
            Ok(counts) => self.add(name, counts),
            Err(Stop::Failed(why)) => self.fail(format!("{name}: {why}")),
            Err(Stop::Skipped(why)) => {
                word = "skipped";
                self.skip(name, &why);
            }
        }
        if self.counts.failed > failed_before {
            word = "FAILED";
        }
        self.times.push((name.to_owned(), time, word));
    }

    fn add(&mut self, name: &str, counts: Counts) {
        self.counts.passed += counts.passed;
        self.counts.skipped += counts.skipped;
        self.counts.failed += counts.failed;
        if counts.failed > 0 {
            let which = format!("{} of {name}: see above", counts.failed);
            self.counts.failures.push(which);
        }
        for (name, why) in &counts.skips {
            self.skip(name, why);
        }
        for failure in counts.failures {
            self.fail(failure);
        }
    }

    fn skip(&mut self, name: &str, why: &str) {
        let allowed = self.allowed.as_ref();
        if allowed.is_none_or(|names| names.iter().any(|allowed| allowed == name)) {
            self.counts.skipped += 1;
        } else {
            self.fail(format!(
                "{name} was skipped ({why}) and is not listed in {SKIPS_FILE}"
            ));
        }
    }

    fn fail(&mut self, failure: String) {
        self.counts.failed += 1;
        self.counts.failures.push(failure);
    }

    /// Prints the times, the failures and the last line; true when nothing failed.
    pub(crate) fn print(&self) -> bool {
        println!();
        for (name, time, word) in &self.times {
            println!("{name:11} {:7.1} s  {word}", time.as_secs_f64());
        }
        let total: Duration = self.times.iter().map(|(_, time, _)| *time).sum();
        println!("{:11} {:7.1} s\n", "together", total.as_secs_f64());
        for failure in &self.counts.failures {
            println!("failed: {failure}");
        }
        println!("{}", self.counts.last_line());
        self.counts.failed == 0
    }
}

impl Counts {
    /// The line that CI and people look for.
    pub(crate) fn last_line(&self) -> String {
        let Self {
            passed,
            failed,
            skipped,
            ..
        } = self;
        format!("{passed} passed, {failed} failed, {skipped} skipped")
    }
}

/// Reads what test programs print with `--show-output`.
#[derive(Default)]
pub(crate) struct Tally {
    pub(crate) counts: Counts,
    /// True inside of the output of tests that passed.
    in_successes: bool,
}

impl Tally {
    /// Takes one line of a test program; true when a reader wants to see it.
    pub(crate) fn line(&mut self, line: &str) -> bool {
        if let Some((name, why)) = line
            .trim()
            .strip_prefix("SKIPPED: ")
            .and_then(|rest| rest.split_once(": "))
        {
            self.counts.skips.push((name.to_owned(), why.to_owned()));
            return true;
        }
        let test = line.strip_prefix("test ");
        if let Some((name, why)) = test.and_then(|test| test.split_once(" ... ignored")) {
            let why = why.trim_start_matches(", ").to_owned();
            self.counts.skips.push((name.to_owned(), why));
            // `finish` subtracts every skip, and the harness has not counted this test.
            self.counts.passed += 1;
            return true;
        }
        if let Some(result) = line.strip_prefix("test result: ") {
            self.in_successes = false;
            self.counts.passed += number_before(result, " passed");
            self.counts.failed += number_before(result, " failed");
            return true;
        }
        match line.trim_end() {
            "successes:" => self.in_successes = true,
            "failures:" => self.in_successes = false,
            _ => {}
        }
        let passed = test.is_some() && line.ends_with(" ok");
        !self.in_successes && !passed && !line.trim().is_empty()
    }

    /// The counts, in which a skipped test is not a passed one.
    pub(crate) fn finish(mut self) -> Counts {
        self.counts.passed = self.counts.passed.saturating_sub(self.counts.skips.len());
        self.counts
    }
}

/// The 5 of `ok. 5 passed; 0 failed; ...`, for the label " passed".
fn number_before(result: &str, label: &str) -> usize {
    let before = result.split(label).next().unwrap_or_default();
    let digits = before.rsplit(' ').next().unwrap_or_default();
    digits.parse().unwrap_or(0)
}

/// The names in lines of `name: reason`; `#` begins a comment.
fn parse_allowed(text: &str) -> Result<Vec<String>, String> {
    let lines = text.lines().map(str::trim);
    let lines = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines
        .map(|line| match line.split_once(": ") {
            Some((name, reason)) if !reason.trim().is_empty() => Ok(name.to_owned()),
            _ => Err(format!("`{line}` gives no reason: write `name: reason`")),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO_PROGRAMS: &str = "
test a ... ok
test b ... ok
test c ... ignored, needs a NIC

successes:

---- b stdout ----
noise
SKIPPED: b: no second core

successes:
    a
    b

test result: ok. 2 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s

test d ... FAILED

failures:

---- d stdout ----
it broke

test result: FAILED. 10 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s
";

    #[test]
    fn sums_over_all_programs_and_shows_failures_and_skips_alone() {
        let mut tally = Tally::default();
        let lines = TWO_PROGRAMS.lines();
        let shown: Vec<_> = lines.filter(|line| tally.line(line)).collect();
        assert!(shown.contains(&"it broke") && shown.contains(&"SKIPPED: b: no second core"));
        assert!(!shown.contains(&"noise") && !shown.contains(&"test a ... ok"));
        let counts = tally.finish();
        assert_eq!((counts.passed, counts.failed), (11, 1));
        let skips = [("c", "needs a NIC"), ("b", "no second core")];
        let skips = skips.map(|(name, why)| (name.to_owned(), why.to_owned()));
        assert_eq!(counts.skips, skips);
    }

    #[test]
    fn a_skip_that_is_not_listed_fails_in_ci_alone() {
        let last_line = |strict: bool, name: &str, outcome| {
            let allowed = parse_allowed("# why\n\nrdma: no NIC in CI\n").expect("well formed");
            let mut summary = Summary {
                allowed: strict.then_some(allowed),
                ..Summary::default()
            };
            summary.step(name, Duration::ZERO, outcome);
            summary.counts.last_line()
        };
        let skipped = || Err(Stop::Skipped("no tool".to_owned()));
        assert_eq!(
            last_line(false, "peers", skipped()),
            "0 passed, 0 failed, 1 skipped"
        );
        assert_eq!(
            last_line(true, "peers", skipped()),
            "0 passed, 1 failed, 0 skipped"
        );
        assert_eq!(
            last_line(true, "rdma", skipped()),
            "0 passed, 0 failed, 1 skipped"
        );
        let test_skipped = Counts {
            passed: 3,
            skips: vec![("a".to_owned(), "why".to_owned())],
            ..Counts::default()
        };
        assert_eq!(
            last_line(true, "tests", Ok(test_skipped)),
            "3 passed, 1 failed, 0 skipped"
        );
        assert!(parse_allowed("rdma: \n").is_err());
    }

    #[test]
    fn a_failure_is_never_hidden_behind_passed_tests() {
        let mut summary = Summary::default();
        let tests = Counts {
            passed: 5,
            failed: 1,
            skipped: 2,
            failures: vec!["it hung".to_owned()],
            ..Counts::default()
        };
        summary.step("tests", Duration::ZERO, Ok(tests));
        summary.step(
            "fmt",
            Duration::ZERO,
            Err("not formatted".to_owned().into()),
        );
        assert_eq!(summary.counts.last_line(), "5 passed, 3 failed, 2 skipped");
        assert!(!summary.print());
    }
}
