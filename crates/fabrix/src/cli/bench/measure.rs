//! Runs planned jobs, one stage after the other, and prints their results.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use fabrix_bench::Counted;

use super::disk_util::DiskUtil;
use super::entries::entries;
use super::form::Form;
use super::outputs;
use super::plan::{Plan, Planned, log_path};
use super::session::{Disk, Session, Step};
use super::shared_files;
use crate::cli::terminal::{print, say};
use crate::failure::Failure;
use crate::report;
use crate::report::sheet::{Report, Run};

/// Checks everything that can be wrong with a plan.
///
/// Errors: a sentence. Nothing has been written then.
pub(super) fn check(session: &Session, plan: &Plan) -> Result<(), Failure> {
    outputs::check(plan, session.args.report.as_deref())?;
    let all = || plan.stages.iter().flatten();
    for one in all() {
        let checked = one.job.check_on(one.disk.device.geometry());
        checked.map_err(|error| Failure::usage(format!("{}: {error}", one.disk.label)))?;
    }
    shared_files::check(&plan.stages)?;
    let writing = all().filter(|one| one.job.rw.writes());
    let written: Vec<Disk> = writing.map(|one| one.disk.clone()).collect();
    session.guard(&written)
}

/// Measures all stages of a checked plan and prints the results.
pub(super) fn measure(mut session: Session, plan: &Plan) -> Result<ExitCode, Failure> {
    let all = || plan.stages.iter().flatten();
    // All jobs are read at the same time, so the shortest interval applies.
    let every = all().filter_map(|one| one.logs.every).min();
    session.config.progress_every = every
        .unwrap_or(plan.log_every)
        .clamp(Duration::from_millis(10), Duration::from_secs(3600));
    session.show_each();
    if all().any(|one| one.written.is_some()) {
        session.join_names();
    }
    let mut runs: Vec<Run> = Vec::new();
    let disk_util = DiskUtil::begin(all().map(|one| one.disk.uri.as_str()));
    for stage in &plan.stages {
        let parts: Vec<Step<'_>> = stage
            .iter()
            .map(|one| Step::new(&one.disk, &one.job).at(one.start))
            .collect();
        let mut found = session.together(&parts, plan.count).unwrap_or_default();
        for (run, one) in found.iter_mut().zip(stage) {
            run.written.clone_from(&one.written);
        }
        runs.extend(found);
        if session.is_over() {
            break;
        }
    }
    let disk_util = disk_util.end();
    if runs.is_empty() {
        return session.nothing();
    }
    let planned: Vec<&Planned> = all().collect();
    for (run, one) in runs.iter_mut().zip(&planned) {
        run.group = one.group;
        run.missed = one.least.missed(&run.results);
    }
    let missed = runs.iter().find_map(|run| run.missed.clone());
    // A file that cannot be written is reported at the end, so that no result is lost.
    let logged = write_logs(&planned, &runs);
    let entries = entries(&runs, &planned);
    let mut report = sheet(runs);
    session.assess(&mut report);
    let results = Report {
        runs: entries,
        notes: report.notes.clone(),
        warnings: report.warnings.clone(),
        ..Report::default()
    };
    let shown = show(plan, &results, &disk_util);
    let code = session.end_assessed(report, 0);
    let code = logged.and(shown).and(code)?;
    missed.map_or(Ok(code), |sentence| Err(Failure::io(sentence)))
}

/// Prints the results, or writes them to a file. A file that cannot be written leaves the results
/// on stdout.
fn show(plan: &Plan, results: &Report, disk_util: &DiskUtil) -> Result<(), Failure> {
    let document = report::json::runs(results, disk_util.json(), &report::context());
    let of_runs = || results.runs.iter().map(report::text::run);
    let form = |form: &Form| match form {
        Form::Text => of_runs().collect::<String>() + &disk_util.text(),
        Form::Json => format!("{document:#}\n"),
        Form::JsonPlus => format!("{:#}\n", report::json::with_bins(document.clone(), results)),
        Form::Terse => report::terse::text(&document),
        Form::Normal => heads(plan) + &report::normal::text(&document) + &disk_util.text(),
    };
    let text: String = plan.forms.iter().map(form).collect();
    let Some(path) = &plan.file else {
        return print(&text);
    };
    std::fs::write(path, &text).map_err(|error| {
        let lost = print(&text).err();
        lost.unwrap_or_else(|| Failure::at(path)(error))
    })
}

/// fio's first lines: one for each section.
fn heads(plan: &Plan) -> String {
    let mut heads = String::new();
    let planned: Vec<&Planned> = plan.stages.iter().flatten().collect();
    // A job with files of its own is planned once for each file.
    let sections = planned.chunk_by(|one, next| one.is_clone_of(next));
    for section in sections {
        let (one, is_alone) = (section[0], section.len() == 1);
        heads += &report::normal::head(&one.job, one.group, one.written.as_ref());
        if !is_alone || one.job.numjobs > 1 {
            heads += "...\n";
        }
    }
    heads
}

/// Writes the readings over time. Logs have the job's number in their name, as in fio, unless they
/// are shared.
fn write_logs(planned: &[&Planned], runs: &[Run]) -> Result<(), Failure> {
    let mut files: BTreeMap<PathBuf, String> = BTreeMap::new();
    for (index, (run, one)) in runs.iter().zip(planned).enumerate() {
        for (what, text) in report::log::logs(&run.results, one.start.delay) {
            if let Some(path) = log_path(&one.logs, what, index) {
                *files.entry(path).or_default() += &text;
            }
        }
    }
    files
        .iter()
        .try_for_each(|(path, text)| std::fs::write(path, text).map_err(Failure::at(path)))
}

fn sheet(runs: Vec<Run>) -> Report {
    Report {
        profile: "run".into(),
        title: title(&runs),
        lead: runs
            .iter()
            .map(|run| report::text::asked(&run.results))
            .collect::<Vec<_>>()
            .join("; "),
        ..report::views::sheet(runs)
    }
}

/// Title of a page: the job or the number of jobs, and the disk or the number of disks.
fn title(runs: &[Run]) -> String {
    let disks: BTreeSet<&str> = runs.iter().map(|run| run.disk.as_str()).collect();
    let several = || Counted(disks.len() as u64, "disk").to_string();
    let on = match disks.first() {
        Some(disk) if disks.len() == 1 => (*disk).to_owned(),
        _ => several(),
    };
    match runs {
        [run] => format!("{} on {on}", run.name),
        _ => format!("{} on {on}", Counted(runs.len() as u64, "job")),
    }
}

/// Prints sentences before a measurement.
pub(super) fn say_all(sentences: &[String]) {
    for sentence in sentences {
        say(sentence);
    }
}
