//! Derives the failure and exit code of a run from its results.

use fabrix_bench::{Counted, Results};

use crate::failure::{Failure, Kind};

/// The worst failure in the results: wrong data, failed requests, an interrupt, or an early end.
pub(crate) fn failure_of(uri: &str, results: &Results, interrupted: bool) -> Option<Failure> {
    let all = &results.aggregate;
    if let Some(verified) = all.verify.as_ref().filter(|verified| verified.errors > 0) {
        let first = verified.first_error.as_deref().unwrap_or_default();
        let wrong = Counted(verified.errors, "wrong block");
        let sentence = format!("{uri}: {wrong}; the first: {first}");
        return Some(Failure::new(Kind::Verify, sentence));
    }
    if all.errors.total() > 0 {
        let first = all.errors.first.as_deref().unwrap_or_default();
        return Some(Failure::io(format!(
            "{uri}: {} failed; the first: {first}",
            Counted(all.errors.total(), "I/O")
        )));
    }
    if interrupted {
        return Some(Failure::io(
            "interrupted: what was measured until then is shown",
        ));
    }
    let why = all.ended_early.as_ref()?;
    Some(Failure::io(format!("{uri}: ended early: {why}")))
}
