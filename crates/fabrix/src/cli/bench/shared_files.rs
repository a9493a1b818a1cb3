//! Refuses jobs that verify a file while its blocks are written elsewhere than they expect: files
//! may belong to several stripes, or to a stripe and to a job of their own.
//!
//! Jobs on one disk are no matter of this check: the load generator compares their blocks.

use std::sync::Arc;

use super::plan::Planned;
use super::session::Disk;
use crate::failure::Failure;

/// Checks the jobs of all stages against each other.
///
/// Errors: a sentence that names both jobs and the file.
pub(super) fn check(stages: &[Vec<Planned>]) -> Result<(), Failure> {
    for (index, stage) in stages.iter().enumerate() {
        for verifying in stage.iter().filter(|one| one.job.verify.is_some()) {
            if let Some((writing, file)) = other_layout(verifying, stage) {
                return Err(Failure::usage(format!(
                    "jobs `{}` and `{}` share {file}, which one of them has in a list of files, and run at the same \
                     time: a file that a job verifies may be written by no other job; separate them with stonewall, \
                     or write other files",
                    verifying.job.name, writing.job.name
                )));
            }
            let before = stages[..index].iter().flatten();
            if let Some((writing, file)) = other_layout(verifying, before)
                && !verifying.job.rw.writes()
            {
                return Err(Failure::usage(format!(
                    "job `{}` verifies {file}, which job `{}` writes in another list of files or with another bs: the \
                     blocks of a list then have other places; write the same filename= and bs= in both",
                    verifying.job.name, writing.job.name
                )));
            }
        }
    }
    Ok(())
}

/// A job that writes a file of another one on a disk of its own, and that file.
fn other_layout<'a>(
    one: &'a Planned,
    others: impl IntoIterator<Item = &'a Planned>,
) -> Option<(&'a Planned, &'a str)> {
    let mut writing = others
        .into_iter()
        .filter(|other| other.job.percent_read() < 100);
    writing.find_map(|other| Some((other, shared(&one.disk, &other.disk)?)))
}

/// Name of a file that two different disks have in common.
fn shared<'a>(one: &'a Disk, other: &Disk) -> Option<&'a str> {
    let is_same = |one: &Disk, other: &Disk| Arc::ptr_eq(&one.device, &other.device);
    if is_same(one, other) {
        return None;
    }
    let mut files = one.parts().iter();
    let file = files.find(|file| other.parts().iter().any(|part| is_same(file, part)))?;
    Some(&file.label)
}
