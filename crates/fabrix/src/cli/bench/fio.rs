//! `fabrix bench fio`: runs fio's job files and command lines on disks of any kind.

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use fabrix_block::spec::without_secrets;

use super::args::FioArgs;
use super::measure::{check, measure, say_all};
use super::opened::Opened;
use super::plan::Plan;
use super::session::Session;
use crate::cli::terminal::{print, quoted};
use crate::failure::Failure;
use crate::profiles::job_file::sections::{self, CommandLine, Outside, Section, Setting};
use crate::profiles::job_file::{Jobs, table};
use crate::texts;

pub(crate) fn run(args: &FioArgs) -> Result<ExitCode, Failure> {
    if let Some(key) = &args.cmdhelp {
        return help(key);
    }
    let variable = |name: &str| std::env::var(name).ok();
    let mut errors = Vec::new();
    let line = sections::of_words(&args.words, &variable, &mut errors);
    let (files, disk) = files_and_disk(&line)?;
    // The files of jobs, with those that they include.
    let inputs = RefCell::new(Vec::new());
    let outside = Outside {
        variable: &variable,
        file: &|path| {
            inputs.borrow_mut().push(path.to_owned());
            read(path)
        },
    };
    let mut groups: Vec<Vec<Section>> = Vec::new();
    for path in files {
        let text = read(Path::new(path)).map_err(Failure::usage)?;
        inputs.borrow_mut().push(PathBuf::from(path));
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
    let mut opened = Opened::default();
    let planned = opened
        .stages(&session, &jobs.stages, disk, args)
        .and_then(|stages| {
            let plan = Plan {
                stages,
                count: args.count,
                log_every: args.log_every,
                forms: args.forms(),
                file: args.output_file().map(Path::to_owned),
                inputs: inputs.take(),
            };
            check(&session, &plan).map(|()| plan)
        });
    let plan = planned.inspect_err(|_| opened.undo())?;
    opened.fill(&mut session);
    if session.is_over() {
        return session.nothing();
    }
    measure(session, &plan)
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

const NO_JOB: &str = "there is no job: name a file of jobs, or begin a job with --name=NAME; fio's options \
                      and defaults apply only to such jobs";
/// Largest job file in bytes.
const FILE_BYTES_MAX: u64 = 1 << 20;
