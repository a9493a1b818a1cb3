//! The entries of fio's results: one for each job, and one for the jobs of a group that
//! `group_reporting` joins.

use fabrix_bench::Results;

use super::plan::Planned;
use crate::report::sheet::{Repeat, Run};

/// The entries for the runs of planned jobs. Both are in the same order; the last jobs may have no
/// run. Repeated runs stay as they are, because the median of one job is not that of another.
pub(super) fn entries(runs: &[Run], planned: &[&Planned]) -> Vec<Run> {
    let mut entries: Vec<Run> = Vec::new();
    let mut members: Vec<&Run> = Vec::new();
    let mut pairs = runs.iter().zip(planned).peekable();
    while let Some((run, one)) = pairs.next() {
        if run.repeats.len() > 1 || !one.group_reporting {
            entries.extend(each(run));
            continue;
        }
        members.push(run);
        let goes_on = pairs
            .peek()
            .is_some_and(|(_, next)| next.group_reporting && next.group == one.group);
        if !goes_on {
            entries.extend(joined(&members));
            members.clear();
        }
    }
    entries
}

/// The jobs of a run. A repeated run is one entry.
fn each(run: &Run) -> Vec<Run> {
    if run.repeats.len() > 1 || run.results.jobs.len() == 1 {
        return vec![run.clone()];
    }
    let jobs = 0..run.results.jobs.len();
    jobs.filter_map(|index| Some(with(run, run.results.alone(index)?)))
        .collect()
}

/// Several runs as one.
fn joined(members: &[&Run]) -> Option<Run> {
    let results: Vec<&Results> = members.iter().map(|run| &run.results).collect();
    let mut entry = with(members.first()?, Results::joined(&results)?);
    entry.missed = members.iter().find_map(|run| run.missed.clone());
    Some(entry)
}

fn with(run: &Run, results: Results) -> Run {
    Run {
        repeats: vec![Repeat::of(&results)],
        results,
        ..run.clone()
    }
}
