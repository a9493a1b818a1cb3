//! DiskSpd's command line, with its text and XML output, its XML profiles, and a published set
//! of its workloads (`set`).

mod flags;
mod output;
mod profile;
mod set;
mod xml;

use std::process::ExitCode;

use fabrix_block::spec::{Size, without_secrets};

use crate::cli::bench::args::{WordsArgs, shown};
use crate::cli::bench::session::{Disk, Session, Step};
use crate::cli::terminal::say;
use crate::failure::Failure;
use crate::report::sheet::Report;
use crate::report::views;
use flags::Flags;

pub(crate) fn run(args: &WordsArgs) -> Result<ExitCode, Failure> {
    if args.words.first().is_some_and(|word| word == "set") {
        return set::run(args);
    }
    let words = profile::expand(&args.words)?;
    let flags = Flags::parse(&words).map_err(Failure::usage)?;
    if !flags.without_effect.is_empty() {
        say(format_args!(
            "without effect here: {}",
            flags.without_effect.join(" ")
        ));
    }
    if flags.shares_position {
        say(format_args!(
            "-si: the threads share one position, so they are one thread with {} requests in flight",
            flags.job.iodepth
        ));
    }
    let mut session = Session::begin(&args.common)?;
    let targets = flags.targets.iter();
    let opened = targets.map(|target| open(&mut session, &flags, target));
    let disks = opened.collect::<Result<Vec<Disk>, _>>()?;
    if session.is_over() {
        return session.nothing();
    }
    if flags.job.rwmixread < 100 {
        session.guard(&disks)?;
    }
    if !flags.cores.is_empty() {
        session.config.pin.clone_from(&flags.cores);
    }
    if let Some(every) = flags.interval {
        session.config.progress_every = every;
    }
    session.plan(1, flags.job.runtime + flags.job.ramp);
    let parts: Vec<Step<'_>> = disks
        .iter()
        .map(|disk| Step::new(disk, &flags.job))
        .collect();
    let Some(runs) = session.together(&parts, 1) else {
        return session.nothing();
    };
    let text = match flags.xml {
        true => xml::results(&flags, &disks, &runs),
        false => output::text(&flags, &words, &disks, &runs),
    };
    let report = Report {
        profile: "diskspd".into(),
        title: format!("diskspd {}", shown(&args.words)),
        lead: "DiskSpd's words; MiB/s is 2^20 bytes, as DiskSpd counts".into(),
        ..views::sheet(runs)
    };
    session.finish_as(&text, report)
}

/// Opens a target under its own name. With `-c` a file gets the size, and is filled before it is
/// read.
fn open(session: &mut Session, flags: &Flags, target: &str) -> Result<Disk, Failure> {
    let changed = match flags.create_bytes {
        Some(bytes) => resize(session, flags, target, bytes)?,
        None => false,
    };
    let disk = Disk {
        label: without_secrets(target),
        around_cache: "write -Su",
        ..session.open(&flags.uri(target))?
    };
    if changed && flags.job.rw.reads() {
        session.fill(&disk, None).into_iter().for_each(say);
    }
    Ok(disk)
}

/// Gives an existing file the size of `-c`. Returns whether the file has another size now, or is
/// still to be made.
fn resize(session: &Session, flags: &Flags, target: &str, bytes: u64) -> Result<bool, Failure> {
    let Some(path) = Flags::file(target) else {
        say(format_args!(
            "-c: only files get a size; {} stays as it is",
            without_secrets(target)
        ));
        return Ok(false);
    };
    let Ok(found) = path.metadata() else {
        return Ok(true);
    };
    if found.len() == bytes {
        return Ok(false);
    }
    if found.len() > 0 {
        session.guard(&[session.open(&flags.uri(target))?])?;
    }
    let file = std::fs::OpenOptions::new().write(true).open(path);
    let sized = file.and_then(|file| file.set_len(bytes));
    sized.map_err(Failure::at(path))?;
    say(format_args!(
        "-c: {target} had {} and has {} now",
        Size(found.len()),
        Size(bytes)
    ));
    Ok(true)
}
