//! The disks of a command's jobs: one for each file, device or URI, and a stripe for each list of
//! files. Files are made, or made longer, with the length that their jobs need.

use std::collections::HashMap;
use std::fs::OpenOptions;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use fabrix_bench::Start;
use fabrix_block::spec::without_secrets;

use super::args::FioArgs;
use super::file_id::FileId;
use super::measure::say_all;
use super::plan::Planned;
use super::session::{Disk, Session};
use crate::failure::Failure;
use crate::profiles::job_file::{Listed, Logs, Target};
use crate::report::sheet::Written;

/// The disks of a command. Jobs on one disk share it: a RAM disk opened twice would be two disks.
#[derive(Default)]
pub(super) struct Opened {
    disks: Vec<Known>,
    /// Stripes with their chunks in bytes.
    stripes: Vec<(u32, Disk)>,
    /// New and longer files, with the length that they had before.
    changed: Vec<(PathBuf, Option<u64>)>,
    /// New and longer files whose first job reads.
    unwritten: Vec<Disk>,
}

/// An open disk.
struct Known {
    target: Target,
    file: Option<FileId>,
    disk: Disk,
}

impl Opened {
    /// Opens the disks of all jobs.
    pub(super) fn stages(
        &mut self,
        session: &Session,
        stages: &[Vec<Listed>],
        named: Option<&str>,
        args: &FioArgs,
    ) -> Result<Vec<Vec<Planned>>, Failure> {
        let of_job = |listed: &Listed| {
            let unit = listed.job.block_bytes.into();
            let targets = listed.place.targets(named, listed.job.numjobs, unit);
            targets.map_err(Failure::usage)
        };
        let of_stage = |stage: &Vec<Listed>| stage.iter().map(of_job).collect();
        let mut targets: Vec<Vec<Vec<Vec<Target>>>> = stages
            .iter()
            .map(of_stage)
            .collect::<Result<_, Failure>>()?;
        lengthen(targets.iter_mut().flatten().flatten().flatten());
        let mut planned = Vec::new();
        for (stage, targets) in stages.iter().zip(&targets) {
            let mut all: Vec<Planned> = Vec::new();
            // Index of the last part of each job. A job that waits for it starts after that part.
            let mut last = Vec::new();
            for (listed, targets) in stage.iter().zip(targets) {
                let after = listed.waits_in_stage.map(|index| last[index]);
                let mut parts = self.plan(session, listed, targets, args)?;
                for one in &mut parts {
                    one.start.after = after;
                    if let (Some(uri), Some(written)) = (named, &mut one.written) {
                        let keys = ["filename", "directory"];
                        written.own.retain(|(key, _)| !keys.contains(&key.as_str()));
                        let uri = without_secrets(uri);
                        written.own.push(("filename".to_owned(), uri));
                    }
                }
                all.extend(parts);
                last.push(all.len() - 1);
            }
            planned.push(all);
        }
        Ok(planned)
    }

    /// Opens the disks of a job. A job with files of its own becomes one job for each file.
    fn plan(
        &mut self,
        session: &Session,
        listed: &Listed,
        targets: &[Vec<Target>],
        args: &FioArgs,
    ) -> Result<Vec<Planned>, Failure> {
        let mut planned = Vec::new();
        for files in targets {
            let disk = Disk {
                around_cache: around_cache(listed),
                ..self.disk(session, files, listed)?
            };
            let bytes = disk.device.geometry().bytes();
            let job = listed.clone().for_disk(bytes, files.len() as u64);
            let mut job = job.map_err(Failure::usage)?;
            if targets.len() > 1 {
                job.numjobs = 1;
            }
            let logs = match &args.write_logs {
                Some(prefix) => Logs::all(&prefix.to_string_lossy()),
                None => listed.logs.clone(),
            };
            planned.push(Planned {
                start: Start {
                    after: None,
                    delay: listed.start_delay,
                    ends_all: listed.exit_all,
                },
                least: listed.least,
                group: listed.group,
                group_reporting: listed.group_reporting,
                written: Some(listed.written.clone()),
                ..Planned::new(disk, job, logs)
            });
        }
        Ok(planned)
    }

    /// The disk of a job: one, or a stripe over its files.
    fn disk(
        &mut self,
        session: &Session,
        targets: &[Target],
        listed: &Listed,
    ) -> Result<Disk, Failure> {
        let reads = listed.job.rw.reads();
        let opened = targets
            .iter()
            .map(|target| self.open(session, target, reads));
        let opened = opened.collect::<Result<Vec<Disk>, Failure>>();
        let mut disks = opened.map_err(|failure| named_with_others(failure, targets))?;
        let Some(chunk_bytes) = listed.chunk_bytes.filter(|_| disks.len() > 1) else {
            return Ok(disks.remove(0));
        };
        let name = &listed.job.name;
        if let Some((one, other)) = twice(&disks) {
            let (one, other) = (targets[one].name(), targets[other].name());
            return Err(Failure::usage(format!(
                "job `{name}`: {one} and {other} in its list of files are one file; name each file once"
            )));
        }
        let lengths = || disks.iter().map(|disk| disk.device.geometry().bytes());
        if listed.job.size.is_none() && lengths().min() != lengths().max() {
            return Err(Failure::usage(format!(
                "job `{name}`: its files differ in length; write size= for all of them together, or one section for \
                 each file"
            )));
        }
        // The stripe of the same files is one disk for all jobs.
        let is_it = |(chunk, stripe): &&(u32, Disk)| {
            let mut pairs = stripe.files.iter().zip(&disks);
            *chunk == chunk_bytes
                && stripe.files.len() == disks.len()
                && pairs.all(|(one, other)| Arc::ptr_eq(&one.device, &other.device))
        };
        if let Some((_, stripe)) = self.stripes.iter().find(is_it) {
            return Ok(stripe.clone());
        }
        let stripe = Disk::stripe(chunk_bytes, disks)?;
        self.stripes.push((chunk_bytes, stripe.clone()));
        Ok(stripe)
    }

    /// Opens a disk, unless it is open. `reads`: whether its job reads.
    fn open(&mut self, session: &Session, target: &Target, reads: bool) -> Result<Disk, Failure> {
        let path = target.path();
        let file = path.as_deref().map(FileId::of);
        let is_it = |known: &&Known| {
            known.target.key == target.key || (file.is_some() && known.file == file)
        };
        if let Some(known) = self.disks.iter().find(is_it) {
            if known.target.options() == target.options() {
                return Ok(known.disk.clone());
            }
            return Err(Failure::usage(format!(
                "{}: jobs use this file with and without the page cache or with other options of the URI, and it is \
                 opened once here; write the same direct= in all of them, or a command for each",
                target.name()
            )));
        }
        let changes = self.changed.len();
        let disk = self.open_long(session, target)?;
        if reads && self.changed.len() > changes {
            self.unwritten.push(disk.clone());
        }
        self.disks.push(Known {
            target: target.clone(),
            file: path.as_deref().map(FileId::of),
            disk: disk.clone(),
        });
        Ok(disk)
    }

    /// Opens a disk. A file that is not there is made, and a shorter one is made longer.
    fn open_long(&mut self, session: &Session, target: &Target) -> Result<Disk, Failure> {
        let (Some(path), Some(bytes)) = (target.path(), target.bytes) else {
            return named(session, target, &target.uri);
        };
        match path.metadata() {
            Ok(found) if found.is_file() && found.len() < bytes && !target.has_size() => {
                self.changed.push((path.clone(), Some(found.len())));
                set_length(&path, bytes).map_err(Failure::at(&path))?;
                let disk = named(session, target, &target.uri)?;
                session.guard(std::slice::from_ref(&disk))?;
                Ok(disk)
            }
            Ok(_) => named(session, target, &target.uri),
            Err(_) => {
                if path.symlink_metadata().is_err() {
                    self.changed.push((path, None));
                }
                named(session, target, &target.with_bytes(bytes))
            }
        }
    }

    /// Fills new files that are read before they are written.
    pub(super) fn fill(&self, session: &mut Session) {
        for disk in &self.unwritten {
            say_all(session.fill(disk, None).as_slice());
        }
    }

    /// Removes new files and gives others their former lengths, because the command is refused.
    pub(super) fn undo(&self) {
        for (path, length) in &self.changed {
            // The reason of the refusal says more than a failure here.
            let _failed = match length {
                Some(bytes) => set_length(path, *bytes),
                None => std::fs::remove_file(path),
            };
        }
    }
}

/// Opens the disk of a target. A file is called by its path, as the user wrote it.
fn named(session: &Session, target: &Target, uri: &str) -> Result<Disk, Failure> {
    let mut disk = session.open(uri)?;
    if let Some(path) = target.path() {
        disk.label = path.display().to_string();
    }
    Ok(disk)
}

/// Gives all targets of one file the largest length that any of them needs.
fn lengthen<'a>(targets: impl Iterator<Item = &'a mut Target>) {
    let mut all: Vec<(FileId, &mut Target)> = targets
        .filter_map(|target| Some((FileId::of(&target.path()?), target)))
        .collect();
    let mut longest: HashMap<FileId, u64> = HashMap::new();
    for (file, target) in &all {
        let bytes = longest.entry(file.clone()).or_default();
        *bytes = target.bytes.unwrap_or(0).max(*bytes);
    }
    for (file, target) in &mut all {
        target.bytes = longest.get(file).copied().filter(|bytes| *bytes > 0);
    }
}

fn set_length(path: &Path, bytes: u64) -> std::io::Result<()> {
    let file = OpenOptions::new().write(true).open(path)?;
    file.set_len(bytes)
}

/// Indices of two disks that are one.
fn twice(disks: &[Disk]) -> Option<(usize, usize)> {
    let first = |disk: &Disk| {
        disks
            .iter()
            .position(|one| Arc::ptr_eq(&one.device, &disk.device))
    };
    let mut firsts = disks.iter().map(first).enumerate();
    firsts.find_map(|(index, first)| Some((first.filter(|first| *first < index)?, index)))
}

/// The failure of one of several files, which the user may have meant to be one.
fn named_with_others(failure: Failure, targets: &[Target]) -> Failure {
    if targets.len() == 1 {
        return failure;
    }
    let names = targets.iter().map(Target::name).collect::<Vec<_>>();
    // Together they may be a disk with a secret, written wrongly.
    let names = without_secrets(&names.join(":"));
    let sentence = format!("{failure} (`{names}` names {} files)", targets.len());
    Failure::new(failure.kind(), sentence)
}

/// Advice to a job that may use the page cache.
fn around_cache(listed: &Listed) -> &'static str {
    let Written { global, own } = &listed.written;
    let asked = |(key, _): &(String, String)| key == "direct" || key == "buffered";
    match listed.place.direct {
        true => "leave direct=off out",
        false if global.iter().chain(own).any(asked) => "write direct=1",
        false => "add direct=1",
    }
}
