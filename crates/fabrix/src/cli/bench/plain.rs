//! `fabrix bench URI`: measures one job of the command line, or the jobs of a file.

use std::hash::{BuildHasher, RandomState};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use fabrix_bench::arrivals::{Pacing, Rate};
use fabrix_bench::job::parse_split;
use fabrix_bench::steady::Steady;
use fabrix_bench::{Job, RUNTIME_MAX};
use fabrix_block::Spec;
use fabrix_block::spec::parse_size;

use super::args::{PlainArgs, RateProcess, profiles};
use super::hold::hold;
use super::publish::check_place;
use super::session::{Disk, Session, Step};
use crate::cli::terminal::show;
use crate::failure::Failure;
use crate::profiles::job_file::{self, Logs};
use crate::report;
use crate::report::sheet::{Report, Run};
use fabrix_block::spec::without_secrets;

pub(crate) fn run(args: &PlainArgs) -> Result<ExitCode, Failure> {
    let uri = args.uri.as_deref().unwrap_or_default();
    if Path::new(uri).extension().is_some_and(|end| end == "fio") {
        return run_file(args, Path::new(uri));
    }
    if let Some(more) = &args.disk {
        return Err(Failure::usage(match Spec::parse(uri) {
            Ok(_) => format!(
                "{}: only a file of jobs (NAME.fio) takes a second word",
                without_secrets(more)
            ),
            Err(_) => format!(
                "`{}` is no profile, no disk and no file of jobs (NAME.fio); the profiles are {}",
                without_secrets(uri),
                profiles()
            ),
        }));
    }
    let job = job(args)?;
    let session = Session::begin(&args.common)?;
    let disk = session.open(uri)?;
    if let Some(time) = args.hold {
        return hold(args, &disk.uri, &disk.device, time);
    }
    let logs = Logs::default();
    measure(args, session, &[vec![Planned { disk, job, logs }]])
}

/// A job, its disk, and its logs.
struct Planned {
    disk: Disk,
    job: Job,
    logs: Logs,
}

/// Runs the jobs of a file: one stage after the other, the jobs of a stage side by side.
fn run_file(args: &PlainArgs, path: &Path) -> Result<ExitCode, Failure> {
    let text = std::fs::read_to_string(path).map_err(Failure::usage_at(path))?;
    let listed = job_file::parse(&text, &|name| std::env::var(name).ok());
    let listed = listed.map_err(Failure::usage_at(path))?;
    let session = Session::begin(&args.common)?;
    let mut opened: Vec<Disk> = Vec::new();
    let mut stages = Vec::new();
    for stage in listed {
        let mut jobs = Vec::new();
        for one in stage {
            let uri = args.disk.as_ref().or(one.filename.as_ref());
            let uri = uri.ok_or_else(|| {
                let name = &one.job.name;
                let why = format!("job `{name}` has no filename=; name a disk after the file");
                Failure::usage_at(path)(why)
            })?;
            // Jobs on one disk share it. A RAM disk opened twice would be two disks.
            let known = opened
                .iter()
                .find(|disk| disk.uri == without_secrets(uri))
                .cloned();
            let disk = known.map_or_else(|| session.open(uri), Ok)?;
            opened.push(disk.clone());
            let logs = one.logs.clone();
            let job = one.on(disk.device.geometry().bytes());
            let job = job.map_err(Failure::usage_at(path))?;
            jobs.push(Planned { disk, job, logs });
        }
        stages.push(jobs);
    }
    measure(args, session, &stages)
}

/// Measures all stages and prints the results.
fn measure(
    args: &PlainArgs,
    mut session: Session,
    stages: &[Vec<Planned>],
) -> Result<ExitCode, Failure> {
    args.write_logs.as_deref().map_or(Ok(()), check_place)?;
    let all = || stages.iter().flatten();
    let writing = all().filter(|one| one.job.rw.writes());
    let written: Vec<Disk> = writing.map(|one| one.disk.clone()).collect();
    session.guard(&written)?;
    // All jobs are read at the same time, so the shortest interval applies.
    let every = all().filter_map(|one| one.logs.every).min();
    session.config.progress_every = every
        .unwrap_or(args.log_every)
        .clamp(Duration::from_millis(10), Duration::from_secs(3600));
    session.show_each();
    let mut runs: Vec<Run> = Vec::new();
    for stage in stages {
        let parts: Vec<Step<'_>> = stage
            .iter()
            .map(|one| Step::new(&one.disk, &one.job))
            .collect();
        runs.extend(session.together(&parts, args.count).unwrap_or_default());
        if session.is_over() {
            break;
        }
    }
    if runs.is_empty() {
        return session.nothing();
    }
    let logs: Vec<&Logs> = all().map(|one| &one.logs).collect();
    write_logs(args, &logs, &runs)?;
    let text = || runs.iter().map(report::text::run).collect();
    let json = || report::json::runs(&runs, &report::context());
    show(args.common.output, text, || format!("{:#}", json()))?;
    session.end(sheet(runs))
}

fn job(args: &PlainArgs) -> Result<Job, Failure> {
    let block_bytes = u32::try_from(args.bs)
        .map_err(|_| Failure::usage(format!("--bs {}: an I/O has at most 1M", args.bs)))?;
    let loops = args.loops.filter(|_| !args.time_based);
    let bounded = args.number_ios.is_some() || loops.is_some();
    let usual_runtime = if bounded {
        RUNTIME_MAX
    } else {
        Job::default().runtime
    };
    let split = args
        .bssplit
        .as_deref()
        .map(|text| parse_split(text, parse_size));
    let steady = args
        .steadystate
        .as_deref()
        .map(|text| Steady::parse(text, args.ss_dur, args.ss_ramp));
    let usual = Job::default();
    Ok(Job {
        name: args.rw.name().to_owned(),
        rw: args.rw,
        block_bytes,
        split: split
            .transpose()
            .map_err(Failure::usage)?
            .unwrap_or_default(),
        iodepth: args.iodepth,
        numjobs: args.numjobs,
        runtime: args.runtime.unwrap_or(usual_runtime),
        number_ios: args.number_ios,
        loops,
        ramp: args.ramp,
        rwmixread: args.rwmixread.into(),
        offset: args.offset,
        size: args.size,
        distribution: args.random_distribution,
        verify: args.verify,
        steady: steady.transpose().map_err(Failure::usage)?,
        rate: args.rate_iops.map(|iops| Rate {
            iops,
            pacing: match args.rate_process {
                RateProcess::Poisson => Pacing::Poisson,
                RateProcess::Linear => Pacing::Fixed,
            },
        }),
        percentiles: args
            .percentile_list
            .clone()
            .map_or(usual.percentiles, |list| list.0),
        offset_increment: usual.offset_increment,
        random_map: !args.norandommap,
        seed: args.randseed.unwrap_or_else(other_seed),
        continue_on_error: usual.continue_on_error,
        contents: args.contents.contents(),
    })
}

/// A seed that is another one for each run, and short enough to type.
fn other_seed() -> u64 {
    RandomState::new().hash_one(0) >> 32
}

/// Writes the readings over time, named by the jobs of a file or by the command line. Logs of a
/// file's jobs have the job's number in their name, as in fio.
fn write_logs(args: &PlainArgs, logs: &[&Logs], runs: &[Run]) -> Result<(), Failure> {
    let prefix = args.write_logs.as_ref();
    let asked = prefix.map(|prefix| Logs::all(&prefix.to_string_lossy()));
    for (index, (run, own)) in runs.iter().zip(logs).enumerate() {
        let logs = asked.as_ref().unwrap_or(own);
        let number = match asked.is_some() && runs.len() == 1 {
            true => String::new(),
            false => format!(".{}", index + 1),
        };
        let names = [&logs.bw, &logs.iops, &logs.lat];
        for (name, (what, text)) in names.into_iter().zip(report::log::logs(&run.results)) {
            let Some(name) = name else {
                continue;
            };
            let path = format!("{name}_{what}{number}.log");
            std::fs::write(&path, text).map_err(Failure::at(Path::new(&path)))?;
        }
    }
    Ok(())
}

fn sheet(runs: Vec<Run>) -> Report {
    Report {
        profile: "run".into(),
        title: runs
            .first()
            .map_or_else(String::new, |run| format!("{} on {}", run.name, run.disk)),
        lead: runs
            .iter()
            .map(|run| report::text::asked(&run.results.job))
            .collect::<Vec<_>>()
            .join("; "),
        ..report::views::sheet(runs)
    }
}
