//! `fabrix bench fio`: runs fio's job files and command lines on disks of any kind.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use fabrix_bench::Start;
use fabrix_block::Spec;
use fabrix_block::spec::{Disk as SpecDisk, without_secrets};

use super::args::FioArgs;
use super::measure::{measure, say_all};
use super::plan::{Plan, Planned};
use super::session::{Disk, Session};
use crate::cli::terminal::{print, quoted};
use crate::failure::Failure;
use crate::profiles::job_file::sections::{self, CommandLine, Outside, Section, Setting};
use crate::profiles::job_file::{Jobs, Listed, Logs, Target, table};
use crate::report::sheet::Written;
use crate::texts;

pub(crate) fn run(args: &FioArgs) -> Result<ExitCode, Failure> {
    if let Some(key) = &args.cmdhelp {
        return help(key);
    }
    let variable = |name: &str| std::env::var(name).ok();
    let mut errors = Vec::new();
    let line = sections::of_words(&args.words, &variable, &mut errors);
    let (files, disk) = files_and_disk(&line)?;
    let outside = Outside {
        variable: &variable,
        file: &|path| read(path),
    };
    let mut groups: Vec<Vec<Section>> = Vec::new();
    for path in files {
        let text = read(Path::new(path)).map_err(Failure::usage)?;
        if args
            .output_file()
            .is_some_and(|output| is_same(output, Path::new(path)))
        {
            return Err(Failure::usage(format!(
                "--output={path}: the results would replace the file of jobs"
            )));
        }
        groups.push(sections::of_file(
            Path::new(path),
            &text,
            &outside,
            &mut errors,
        ));
    }
    let mut over = Vec::new();
    if line.has_job() {
        // As in fio, the jobs of the line are those before the first file's.
        let first = groups.first_mut().map(std::mem::take).unwrap_or_default();
        let first = [line.sections.clone(), first].concat();
        groups.splice(..groups.len().min(1), [first]);
    } else if !groups.is_empty() {
        over = line.defaults();
    }
    if groups.is_empty() && errors.is_empty() {
        return Err(Failure::usage(NO_JOB));
    }
    if args.showcmd {
        fail(&errors)?;
        let lines = groups
            .iter()
            .flat_map(|group| command_lines(group, &over, disk));
        return print(&lines.collect::<String>()).map(|()| ExitCode::SUCCESS);
    }
    let mut jobs = Jobs::default();
    for group in &groups {
        match Jobs::of(group, &over, &args.section) {
            Ok(more) => jobs.append(more),
            Err(wrong) => errors.extend(wrong),
        }
    }
    fail(&errors)?;
    if !over.is_empty() {
        let keys: Vec<&str> = over.iter().map(|one| one.key.as_str()).collect();
        say_all(&[format!(
            "{} of the command line: for all jobs of the file",
            keys.join(", ")
        )]);
    }
    say_all(&jobs.notes());
    if let Some(one) = jobs
        .stages
        .iter()
        .flatten()
        .find(|one| args.readonly && one.job.rw.writes())
    {
        let name = &one.job.name;
        return Err(Failure::usage(format!(
            "job `{name}` writes, and --readonly refuses that"
        )));
    }
    if args.parse_only {
        return Ok(ExitCode::SUCCESS);
    }
    let mut session = Session::begin(&args.common())?;
    session.pin_jobs(jobs.stages.iter().flatten().map(|one| one.cpus.as_deref()))?;
    let stages = jobs.stages.into_iter();
    let mut opened = Opened::default();
    let stages = stages.map(|stage| opened.stage(&mut session, &stage, disk, args));
    let stages = stages.collect::<Result<Vec<Vec<Planned>>, Failure>>()?;
    if session.is_over() {
        return session.nothing();
    }
    measure(
        session,
        &Plan {
            stages,
            count: args.count,
            log_every: args.log_every,
            forms: args.forms(),
            file: args.output_file().map(Path::to_owned),
        },
    )
}

/// Prints what keys do.
fn help(key: &str) -> Result<ExitCode, Failure> {
    let text = match key {
        "all" => table::text(),
        key => table::find(key)
            .map(table::Key::row)
            .ok_or_else(|| Failure::usage(table::unknown(key)))?,
    };
    print(&text).map(|()| ExitCode::SUCCESS)
}

/// Sorts the words that are no options: job files, and at most one disk.
fn files_and_disk(line: &CommandLine) -> Result<(Vec<&str>, Option<&str>), Failure> {
    let mut files = Vec::new();
    let mut disk = None;
    for word in &line.words {
        let is_jobs = |text: String| sections::is_job_file(&text);
        let is_file = Path::new(word)
            .metadata()
            .is_ok_and(|found| found.is_file());
        let named = Path::new(word).extension().is_some_and(|end| end == "fio");
        if named || (is_file && read(Path::new(word)).is_ok_and(is_jobs)) {
            files.push(word.as_str());
        } else if let Some(first) = disk.replace(word.as_str()) {
            return Err(Failure::usage(format!(
                "{} and {}: one disk can be named for all jobs; name others by filename=",
                without_secrets(first),
                without_secrets(word)
            )));
        }
    }
    Ok((files, disk))
}

/// Fails with all sentences.
fn fail(errors: &[String]) -> Result<(), Failure> {
    if errors.is_empty() {
        return Ok(());
    }
    Err(Failure::usage(errors.join("\n")))
}

/// Whether two paths lead to one file.
fn is_same(one: &Path, other: &Path) -> bool {
    let found = one.canonicalize();
    found.is_ok() && found.ok() == other.canonicalize().ok()
}

/// Text of a job file.
fn read(path: &Path) -> Result<String, String> {
    texts::read(path, FILE_BYTES_MAX).map_err(|error| format!("{}: {error}", path.display()))
}

/// The jobs of sections as command lines. `disk` replaces their own.
fn command_lines(sections: &[Section], over: &[Setting], disk: Option<&str>) -> Vec<String> {
    let is_place = |key: &str| ["filename", "directory"].contains(&key);
    let mut global: Vec<&Setting> = Vec::new();
    let mut lines = Vec::new();
    for section in sections {
        if section.is_global() {
            global.extend(&section.settings);
            continue;
        }
        let mut text = format!("fabrix bench --name={}", quoted(&section.name));
        for setting in global.iter().copied().chain(&section.settings).chain(over) {
            let key = setting.key.trim_start_matches('-');
            if key != "name" && !(disk.is_some() && is_place(key)) {
                text += &format!(" --{key}={}", quoted(&without_secrets(&setting.value)));
            }
        }
        if let Some(disk) = disk {
            text += &format!(" --filename={}", quoted(&without_secrets(disk)));
        }
        lines.push(text + "\n");
    }
    lines
}

/// The disks of a command. Jobs on one disk share it: a RAM disk opened twice would be two disks.
/// Each has the key of its target.
#[derive(Default)]
struct Opened(Vec<(String, Disk)>);

impl Opened {
    /// Opens the disks of the jobs of a stage.
    fn stage(
        &mut self,
        session: &mut Session,
        stage: &[Listed],
        named: Option<&str>,
        args: &FioArgs,
    ) -> Result<Vec<Planned>, Failure> {
        let mut all: Vec<Planned> = Vec::new();
        // Index of the last part of each job. A job that waits for it starts after that part.
        let mut last = Vec::new();
        for listed in stage {
            let after = listed.waits_in_stage.map(|index| last[index]);
            let mut planned = self.plan(session, listed, named, args)?;
            planned.iter_mut().for_each(|one| one.start.after = after);
            all.extend(planned);
            last.push(all.len() - 1);
        }
        Ok(all)
    }

    /// Opens the disks of a job. A job with files of its own becomes one job for each file.
    fn plan(
        &mut self,
        session: &mut Session,
        listed: &Listed,
        named: Option<&str>,
        args: &FioArgs,
    ) -> Result<Vec<Planned>, Failure> {
        let unit = listed.job.block_bytes.into();
        let targets = listed.place.targets(named, listed.job.numjobs, unit);
        let targets = targets.map_err(Failure::usage)?;
        let several = targets.len() > 1;
        let mut planned = Vec::new();
        for targets in targets {
            let disk = Disk {
                around_cache: around_cache(listed),
                ..self.disk(session, &targets, listed)?
            };
            let bytes = disk.device.geometry().bytes();
            let job = listed.clone().for_disk(bytes, targets.len() as u64);
            let mut job = job.map_err(Failure::usage)?;
            if several {
                job.numjobs = 1;
            }
            for (part, target) in disk.parts().iter().zip(&targets) {
                if target.made.is_some() && job.rw.reads() {
                    say_all(session.fill(part, None).as_slice());
                }
            }
            let logs = match &args.write_logs {
                Some(prefix) => Logs::all(&prefix.to_string_lossy()),
                None => listed.logs.clone(),
            };
            let mut written = listed.written.clone();
            if let Some(uri) = named {
                let keys = ["filename", "directory"];
                written.own.retain(|(key, _)| !keys.contains(&key.as_str()));
                let uri = without_secrets(uri);
                written.own.push(("filename".to_owned(), uri));
            }
            planned.push(Planned {
                start: Start {
                    after: None,
                    delay: listed.start_delay,
                    ends_all: listed.exit_all,
                },
                least: listed.least,
                group: listed.group,
                group_reporting: listed.group_reporting,
                written: Some(written),
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
        let opened = targets.iter().map(|target| self.open(session, target));
        let opened = opened.collect::<Result<Vec<Disk>, Failure>>();
        let mut disks = opened.map_err(|failure| named_with_others(failure, targets))?;
        let Some(chunk_bytes) = listed.chunk_bytes.filter(|_| disks.len() > 1) else {
            return Ok(disks.remove(0));
        };
        let lengths = || disks.iter().map(|disk| disk.device.geometry().bytes());
        if listed.job.size.is_none() && lengths().min() != lengths().max() {
            let name = &listed.job.name;
            return Err(Failure::usage(format!(
                "job `{name}`: its files differ in length; write size= for all of them together, or one section for \
                 each file"
            )));
        }
        // The stripe of the same files is one disk for all jobs.
        let keys: Vec<&str> = targets.iter().map(|target| target.key.as_str()).collect();
        let key = format!("{chunk_bytes} {}", keys.join(" "));
        if let Some((_, known)) = self.0.iter().find(|(known, _)| *known == key) {
            return Ok(known.clone());
        }
        let stripe = Disk::stripe(chunk_bytes, disks)?;
        self.0.push((key, stripe.clone()));
        Ok(stripe)
    }

    fn open(&mut self, session: &Session, target: &Target) -> Result<Disk, Failure> {
        if let Some((_, known)) = self.0.iter().find(|(key, _)| *key == target.key) {
            return Ok(known.clone());
        }
        let path = file_of(&target.key);
        let is_same = |(key, _): &(String, Disk)| file_of(key) == path;
        if let Some(path) = path.as_ref().filter(|_| self.0.iter().any(is_same)) {
            return Err(Failure::usage(format!(
                "{}: jobs use this file with and without the page cache, and it is opened once here; write the same \
                 direct= in all of them, or a command for each",
                path.display()
            )));
        }
        let mut disk = session.open(&target.uri)?;
        // The path says all that the user wrote of a file.
        if let Some(path) = path_of(&target.uri) {
            disk.label = path;
        }
        self.0.push((target.key.clone(), disk.clone()));
        Ok(disk)
    }
}

/// The failure of one of several files, which the user may have meant to be one.
fn named_with_others(failure: Failure, targets: &[Target]) -> Failure {
    if targets.len() == 1 {
        return failure;
    }
    let name =
        |target: &Target| path_of(&target.key).unwrap_or_else(|| without_secrets(&target.key));
    let names = targets.iter().map(name).collect::<Vec<_>>().join(":");
    let sentence = format!("{failure} (`{names}` names {} files)", targets.len());
    Failure::new(failure.kind(), sentence)
}

/// The path of a disk that is a file.
fn path_of(uri: &str) -> Option<String> {
    match Spec::parse(uri).ok()?.disk {
        SpecDisk::File { path, .. } => Some(path),
        _ => None,
    }
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

/// The file or device that a URI means.
fn file_of(uri: &str) -> Option<PathBuf> {
    Path::new(&path_of(uri)?).canonicalize().ok()
}

const NO_JOB: &str = "there is no job: name a file of jobs, or begin a job with --name=NAME; fio's options \
                      and defaults apply only to such jobs";
/// Largest job file in bytes.
const FILE_BYTES_MAX: u64 = 1 << 20;
