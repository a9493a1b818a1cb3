//! Counts what the test programs report: passed, failed, skipped.
//!
//! It reads the lines that the standard test harness prints with `--show-output`, and the one line
//! of ours: a test that cannot run here prints `SKIPPED: name: why` and returns. It prints nothing
//! and knows no tests by name.

/// How a suite of tests ended: those that passed, those that failed, and those skipped as a list
/// allows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) passed: usize,
    pub(crate) failed: usize,
    pub(crate) skipped: usize,
}

/// The sum over all test programs seen so far.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    returned: usize,
    failed: usize,
    skips: Vec<Skip>,
    ignored: usize,
    in_successes: bool,
}

/// A test that did not run, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Skip {
    pub(crate) name: String,
    pub(crate) why: String,
}

impl Tally {
    /// Takes one line of a test program; true when a reader wants to see it.
    pub(crate) fn line(&mut self, line: &str) -> bool {
        if let Some(skip) = Skip::parse(line) {
            self.skips.push(skip);
            return true;
        }
        if let Some(skip) = ignored(line) {
            self.skips.push(skip);
            self.ignored += 1;
            return true;
        }
        match line.trim_end() {
            "successes:" => self.in_successes = true,
            "failures:" => self.in_successes = false,
            _ => {}
        }
        if let Some(result) = line.strip_prefix("test result: ") {
            self.in_successes = false;
            self.returned += count(result, " passed");
            self.failed += count(result, " failed");
            return true;
        }
        let routine =
            line.trim().is_empty() || (line.starts_with("test ") && line.ends_with(" ok"));
        !self.in_successes && !routine
    }

    /// Tests that ran and found what they expect. One that prints why it skips returns too, but has
    /// shown nothing.
    pub(crate) fn passed(&self) -> usize {
        let said_so = self.skips.len() - self.ignored;
        self.returned.saturating_sub(said_so)
    }

    pub(crate) fn failed(&self) -> usize {
        self.failed
    }

    pub(crate) fn skips(&self) -> &[Skip] {
        &self.skips
    }
}

impl Skip {
    /// `SKIPPED: name: why`
    fn parse(line: &str) -> Option<Self> {
        let (name, why) = line.trim().strip_prefix("SKIPPED: ")?.split_once(": ")?;
        Some(Self {
            name: name.to_owned(),
            why: why.to_owned(),
        })
    }
}

/// `test name ... ignored` or `test name ... ignored, why`
fn ignored(line: &str) -> Option<Skip> {
    let (name, state) = line.strip_prefix("test ")?.split_once(" ... ")?;
    let why = state
        .strip_prefix("ignored")?
        .trim_start_matches([',', ' ']);
    let why = if why.is_empty() {
        "ignored without a reason"
    } else {
        why
    };
    Some(Skip {
        name: name.to_owned(),
        why: why.to_owned(),
    })
}

/// The number in front of `label` in `ok. 5 passed; 0 failed; ...`.
fn count(result: &str, label: &str) -> usize {
    let end = result.find(label).unwrap_or(0);
    let digits = result[..end]
        .rsplit(|c: char| !c.is_ascii_digit())
        .next()
        .unwrap_or("");
    digits.parse().unwrap_or(0)
}

/// The skips that may happen in CI, from lines of `name: reason`; `#` begins a comment.
pub(crate) fn parse_allowed(text: &str) -> Result<Vec<String>, String> {
    let lines = text
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with('#'));
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
running 3 tests
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

running 1 test
test d ... FAILED

failures:

---- d stdout ----
it broke

test result: FAILED. 10 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s
";

    fn read(text: &str) -> (Tally, Vec<&str>) {
        let mut tally = Tally::default();
        let shown = text.lines().filter(|line| tally.line(line)).collect();
        (tally, shown)
    }

    #[test]
    fn sums_over_all_programs() {
        let (tally, _) = read(TWO_PROGRAMS);
        assert_eq!(
            (tally.passed(), tally.failed(), tally.skips().len()),
            (11, 1, 2)
        );
    }

    #[test]
    fn a_skip_keeps_its_name_and_reason() {
        let (tally, _) = read(TWO_PROGRAMS);
        let named: Vec<_> = tally
            .skips()
            .iter()
            .map(|skip| (&*skip.name, &*skip.why))
            .collect();
        assert_eq!(named, [("c", "needs a NIC"), ("b", "no second core")]);
    }

    #[test]
    fn shows_failures_and_skips_but_not_the_output_of_what_passed() {
        let (_, shown) = read(TWO_PROGRAMS);
        assert!(shown.contains(&"it broke") && shown.contains(&"SKIPPED: b: no second core"));
        assert!(!shown.contains(&"noise") && !shown.contains(&"test a ... ok"));
    }

    #[test]
    fn an_allowed_skip_needs_a_reason() {
        let allowed = parse_allowed("# why\n\nrdma: no NIC in CI\n");
        assert_eq!(allowed.expect("well formed"), ["rdma"]);
        assert!(parse_allowed("rdma\n").is_err());
        assert!(parse_allowed("rdma: \n").is_err());
    }
}
