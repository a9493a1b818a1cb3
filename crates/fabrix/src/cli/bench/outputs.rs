//! The files that a command writes its results to. They are checked before the measurement: each
//! can be written, and none is a disk, a job file, or another result.

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};

use super::file_id::FileId;
use super::plan::{Plan, log_path};
use super::publish::{REPORT_FILES, check_place};
use super::session::Disk;
use crate::failure::Failure;

/// Checks the results' files of a plan, and those of a report in the folder `report`.
///
/// Errors: a sentence that names the file.
pub(super) fn check(plan: &Plan, report: Option<&Path>) -> Result<(), Failure> {
    let file = plan.file.iter().map(|path| ("--output", path.clone()));
    let logs = logs(plan).into_iter().map(|path| ("a log", path));
    let named: Vec<(&str, PathBuf)> = file.chain(logs).collect();
    named.iter().try_for_each(|(_, path)| check_place(path))?;
    let of_report = REPORT_FILES
        .iter()
        .filter_map(|name| Some(report?.join(name)));
    let all = named
        .into_iter()
        .chain(of_report.map(|path| ("--report", path)));
    let disks = plan.stages.iter().flatten().map(|one| &one.disk);
    let disks: Vec<&Disk> = disks.collect();
    let mut known: HashMap<FileId, &str> = HashMap::new();
    for path in &plan.inputs {
        known.insert(FileId::of(path), "the file of jobs");
    }
    for (what, path) in all {
        let shown = path.display();
        let replaced = match disks.iter().any(|disk| disk.is_file(&path)) {
            true => Some("a disk of the jobs"),
            // Nothing is lost in /dev/null.
            false if path.exists() && !path.is_file() => None,
            false => known.insert(FileId::of(&path), what),
        };
        if let Some(replaced) = replaced {
            return Err(Failure::usage(format!(
                "{shown} ({what}): the results would replace {replaced}; choose another name"
            )));
        }
    }
    Ok(())
}

/// The logs of all jobs. Jobs may share a log.
fn logs(plan: &Plan) -> BTreeSet<PathBuf> {
    let jobs = plan.stages.iter().flatten().enumerate();
    let paths = jobs.flat_map(|(index, one)| {
        ["bw", "iops", "lat", "clat"].map(|what| log_path(&one.logs, what, index))
    });
    paths.flatten().collect()
}
