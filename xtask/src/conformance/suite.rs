//! What `iscsi-test-cu` prints: a line when a test begins, whatever it has to say, and `passed` or
//! `FAILED`.
//!
//! Its results are read with its own count at the end in hand, so that a test that is not
//! understood is an error.

/// The suite, from Debian's libiscsi-bin.
pub(super) const PROGRAM: &str = "iscsi-test-cu";

/// One test that ran, or said why not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Tested {
    /// `Suite.Test`.
    pub(super) name: String,
    pub(super) passed: bool,
    /// Why it, or a part of it, was skipped.
    pub(super) skipped: Option<String>,
    /// What it expected and did not find.
    pub(super) failures: Vec<String>,
}

/// Reads all results.
pub(super) fn read(text: &str) -> Result<Vec<Tested>, String> {
    let mut all = Vec::new();
    let (mut suite, mut test) = (String::new(), None::<Tested>);
    let mut counted = None;
    for line in text.lines() {
        if let Some(name) = line.strip_prefix("Suite: ") {
            name.trim().clone_into(&mut suite);
        } else if let Some(begun) = line.strip_prefix("  Test: ") {
            all.extend(test.take());
            let (name, rest) = begun.split_once(" ...").unwrap_or((begun, ""));
            let mut begun = Tested {
                name: format!("{suite}.{name}"),
                ..Tested::default()
            };
            begun.said(rest);
            test = Some(begun);
        } else if let Some(counts) = line.trim_start().strip_prefix("tests ") {
            counted = ran(counts);
        } else if let Some(test) = &mut test {
            test.said(line);
        }
    }
    all.extend(test);
    match counted {
        Some(ran) if ran == all.len() => Ok(all),
        Some(ran) => Err(format!(
            "the suite counts {ran} tests, and {} were read",
            all.len()
        )),
        None => Err("the suite did not come to its end".to_owned()),
    }
}

impl Tested {
    /// Takes what the suite says while the test runs, and the word at its end.
    fn said(&mut self, line: &str) {
        if let Some((_, why)) = line.split_once("[SKIPPED]") {
            let why = why.trim().trim_end_matches('.');
            let why = why.trim_end_matches(" Skipping test");
            self.skipped.get_or_insert_with(|| why.to_owned());
        }
        self.passed |= line.starts_with("passed");
        let numbered = line.trim_start().split_once(". ");
        let expectation =
            numbered.filter(|(number, what)| number.parse::<u32>().is_ok() && what.contains(".c:"));
        self.failures
            .extend(expectation.map(|(_, what)| what.to_owned()));
    }
}

/// How many tests ran: the second number of `615    615    607      8        0`.
fn ran(counts: &str) -> Option<usize> {
    counts.split_whitespace().nth(1)?.parse().ok()
}

/// Portal and the rest of `iscsi://portal/name/lun`.
pub(super) fn split_url(url: &str) -> Option<(&str, &str)> {
    url.strip_prefix("iscsi://")?.split_once('/')
}

/// The portals in what `iscsi-ls` prints: `Target:NAME Portal:ADDRESS,GROUP`.
pub(super) fn portals(discovered: &str) -> Vec<String> {
    let portals = discovered.lines().filter_map(|line| {
        let (_, portal) = line.split_once("Portal:")?;
        Some(portal.split(',').next()?.trim().to_owned())
    });
    portals.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = "
Suite: GetLBAStatus
  Test: Simple ...passed
  Test: UnmapSingle ...FAILED
    1. test_get_lba_status_unmap_single.c:135  - CU_FAIL(\"[FAILED] not mapped\")
Suite: iSCSITMF
  Test: AbortTaskSimpleAsync ...    [FAILED] not a result
passed
  Test: LogicalUnitReset ...    [SKIPPED] Media is not removable. Skipping test.
passed    [FAILED] of the next one

Run Summary:    Type  Total    Ran Passed Failed Inactive
              suites      2      2    n/a      0        0
               tests      4      4      3      1        0
             asserts     10     10      9      1      n/a
";

    #[test]
    fn reads_how_each_test_ended_wherever_the_word_stands() {
        let all = read(OUTPUT).expect("well formed");
        let words = all
            .iter()
            .map(|test| (&*test.name, test.passed, test.skipped.as_deref()));
        let expected = [
            ("GetLBAStatus.Simple", true, None),
            ("GetLBAStatus.UnmapSingle", false, None),
            ("iSCSITMF.AbortTaskSimpleAsync", true, None),
            (
                "iSCSITMF.LogicalUnitReset",
                true,
                Some("Media is not removable."),
            ),
        ];
        assert!(words.eq(expected));
        assert_eq!(all[1].failures.len(), 1);
    }

    #[test]
    fn output_that_ends_early_or_counts_otherwise_is_an_error() {
        let (early, _) = OUTPUT.split_once("Run Summary").expect("it is there");
        assert!(read(early).is_err());
        let more = OUTPUT.replace("tests      4      4", "tests      5      5");
        assert!(read(&more).expect_err("one is missing").contains('5'));
    }
}
