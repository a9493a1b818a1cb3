//! DiskSpd's command line, with its text and XML output, its XML profiles, and a published set
//! of its workloads (`set`).

mod flags;
mod output;
mod profile;
mod set;
mod xml;

use std::process::ExitCode;

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
    let opened = flags
        .targets
        .iter()
        .map(|target| session.open(&flags.uri(target)));
    let mut disks = opened.collect::<Result<Vec<Disk>, _>>()?;
    if flags.cached {
        let advice = |disk: &mut Disk| disk.around_cache = "leave -Sb out";
        disks.iter_mut().for_each(advice);
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
        true => xml::results(&flags, &runs),
        false => output::text(&flags, &words, &runs),
    };
    let report = Report {
        profile: "diskspd".into(),
        title: format!("diskspd {}", shown(&args.words)),
        lead: "DiskSpd's words; MiB/s is 2^20 bytes, as DiskSpd counts".into(),
        ..views::sheet(runs)
    };
    session.finish_as(&text, report)
}
