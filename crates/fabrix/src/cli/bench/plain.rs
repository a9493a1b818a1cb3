//! `fabrix bench URI`: one job of the command line, or the jobs of a file, measured and printed.

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use fabrix_bench::arrivals::{Pacing, Rate};
use fabrix_bench::job::parse_split;
use fabrix_bench::steady::Steady;
use fabrix_bench::{Job, Part, Progress, RUNTIME_MAX, run_together, spread};
use fabrix_block::Device;
use fabrix_block::spec::parse_size;
use indicatif::{ProgressBar, ProgressStyle};

use super::args::{PlainArgs, RateProcess};
use super::hold::hold;
use super::session::{Disk, Session, run_failure, write};
use super::verdict::trouble_of;
use crate::args::Format;
use crate::cli::terminal;
use crate::failure::Failure;
use crate::profiles::job_file::{self, Listed};
use crate::report;
use crate::report::sheet::{Repeat, Report, Run};
use fabrix_block::spec::without_secrets;

pub(crate) fn run(args: &PlainArgs) -> Result<ExitCode, Failure> {
    let uri = args.uri.as_deref().unwrap_or_default();
    if Path::new(uri).extension().is_some_and(|end| end == "fio") {
        return run_file(args, Path::new(uri));
    }
    if let Some(more) = &args.disk {
        return Err(Failure::usage(format!(
            "{more}: only a file of jobs (NAME.fio) takes a second word"
        )));
    }
    let job = job(args)?;
    let session = Session::begin(&args.common)?;
    let disk = session.open(uri)?;
    if let Some(time) = args.hold {
        return hold(args, &disk.uri, &disk.device, time);
    }
    measure(args, session, &[vec![(disk, job)]])
}

/// Runs the jobs of a file: stage after stage, the jobs of a stage side by side.
fn run_file(args: &PlainArgs, path: &Path) -> Result<ExitCode, Failure> {
    let text = std::fs::read_to_string(path)
        .map_err(|error| Failure::usage(format!("{}: {error}", path.display())))?;
    let listed = job_file::parse(&text, &|name| std::env::var(name).ok());
    let listed =
        listed.map_err(|sentence| Failure::usage(format!("{}: {sentence}", path.display())))?;
    let session = Session::begin(&args.common)?;
    let mut opened: Vec<Disk> = Vec::new();
    let mut stages = Vec::new();
    for stage in listed {
        let mut jobs = Vec::new();
        for one in stage {
            let uri = args
                .disk
                .as_ref()
                .or(one.filename.as_ref())
                .ok_or_else(|| {
                    Failure::usage(format!(
                        "{}: job `{}` has no filename=; name a disk after the file",
                        path.display(),
                        one.job.name
                    ))
                })?;
            // Jobs on one disk share it: a RAM disk opened twice would be two.
            let known = opened
                .iter()
                .find(|disk| disk.uri == without_secrets(uri))
                .cloned();
            let disk = known.map_or_else(|| session.open(uri), Ok)?;
            opened.push(disk.clone());
            let job = finished(one, &disk.device);
            jobs.push((
                disk,
                job.map_err(|sentence| Failure::usage(format!("{}: {sentence}", path.display())))?,
            ));
        }
        stages.push(jobs);
    }
    measure(args, session, &stages)
}

/// A job whose sizes in percent are those of its disk.
fn finished(listed: Listed, device: &Arc<dyn Device>) -> Result<Job, String> {
    listed.on(device.geometry().bytes())
}

/// Measures stages and prints what came of them.
fn measure(
    args: &PlainArgs,
    mut session: Session,
    stages: &[Vec<(Disk, Job)>],
) -> Result<ExitCode, Failure> {
    let writing = stages.iter().flatten().filter(|(_, job)| job.rw.writes());
    let written: Vec<Disk> = writing.map(|(disk, _)| disk.clone()).collect();
    session.guard(&written)?;
    session.config.progress_every = args
        .log_every
        .clamp(Duration::from_millis(10), Duration::from_secs(3600));
    let mut runs: Vec<Run> = Vec::new();
    let mut trouble = None;
    for stage in stages {
        let (found, ended) = measure_stage(args, &session, stage)?;
        runs.extend(found);
        trouble = ended;
        if trouble.is_some() {
            break;
        }
    }
    write_logs(args, &runs)?;
    print(args, &runs)?;
    if args.common.report.is_some() {
        // The report asks a disk that costs nothing too, so it comes last.
        let headroom = if trouble.is_none() {
            session.headroom(&runs)
        } else {
            None
        };
        let report = sheet(runs, headroom);
        write(&report, args.common.report.as_deref())?;
    }
    Ok(trouble.map_or(ExitCode::SUCCESS, |trouble| trouble.report()))
}

/// One stage, so often as asked: its runs, and why nothing may follow.
fn measure_stage(
    args: &PlainArgs,
    session: &Session,
    stage: &[(Disk, Job)],
) -> Result<(Vec<Run>, Option<Failure>), Failure> {
    let devices: Vec<[Arc<dyn Device>; 1]> = stage
        .iter()
        .map(|(disk, _)| [Arc::clone(&disk.device)])
        .collect();
    let parts: Vec<Part<'_>> = stage
        .iter()
        .zip(&devices)
        .map(|((_, job), devices)| Part { devices, job })
        .collect();
    let mut config = session.config.clone();
    config.stop = Some(Arc::clone(&session.stop));
    let mut all: Vec<Vec<Run>> = stage.iter().map(|_| Vec::new()).collect();
    let mut trouble = None;
    for _ in 0..args.count {
        let bar = progress_bar(&stage[0].1);
        let outcome = run_together(&parts, &config, &mut |progress| {
            show(&bar, &stage[0].1, progress)
        });
        bar.finish_and_clear();
        let outcome = outcome.map_err(|error| run_failure(&stage[0].0.uri, &error))?;
        for (((disk, job), results), all) in stage.iter().zip(outcome).zip(&mut all) {
            trouble = trouble.or_else(|| trouble_of(&disk.uri, &results));
            all.push(Run {
                name: job.name.clone(),
                disk: disk.label.clone(),
                repeats: vec![Repeat::of(&results)],
                results,
                target_cores: None,
            });
        }
        if trouble.is_some() {
            break;
        }
    }
    // In trouble the last repeat says what happened, otherwise the one in the middle is shown.
    let shown = |mut runs: Vec<Run>| {
        let iops: Vec<f64> = runs.iter().map(Run::iops).collect();
        let repeats = runs.iter().flat_map(|run| run.repeats.clone()).collect();
        let index = if trouble.is_some() {
            runs.len().checked_sub(1)
        } else {
            spread::middle(&iops)
        };
        let mut run = runs.swap_remove(index?);
        run.repeats = repeats;
        Some(run)
    };
    let runs = all.into_iter().filter_map(shown).collect();
    Ok((runs, trouble))
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
        seed: usual.seed,
        continue_on_error: usual.continue_on_error,
    })
}

fn progress_bar(job: &Job) -> ProgressBar {
    let bar = ProgressBar::new(match job.number_ios {
        Some(ios) => ios.saturating_mul(job.numjobs.into()),
        None => millis(job.runtime + job.ramp),
    });
    if let Ok(style) = ProgressStyle::with_template("{prefix} [{bar:30}] {msg}") {
        bar.set_style(style);
    }
    bar.set_prefix(job.name.clone());
    bar
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

fn show(bar: &ProgressBar, job: &Job, progress: &Progress) {
    bar.set_position(match job.number_ios {
        Some(_) => progress.ios,
        None => millis(progress.elapsed),
    });
    let phase = match progress.phase {
        fabrix_bench::Phase::Ramp => "ramp",
        fabrix_bench::Phase::Measuring => "",
        fabrix_bench::Phase::Finishing => "finishing",
    };
    bar.set_message(format!(
        "{:.0} IOPS, {:.1} MB/s {phase}",
        progress.iops,
        progress.bw_bytes / 1e6
    ));
}

fn print(args: &PlainArgs, runs: &[Run]) -> Result<(), Failure> {
    match args.common.output {
        Format::Text => {
            let texts: Vec<String> = runs.iter().map(report::text::run).collect();
            terminal::print(&texts.concat())
        }
        Format::Json => {
            let document = report::json::runs(runs, &report::context());
            terminal::print(&format!("{document:#}\n"))
        }
    }
}

/// Writes the readings over time; several runs have their number in the name, as in fio.
fn write_logs(args: &PlainArgs, runs: &[Run]) -> Result<(), Failure> {
    let Some(prefix) = &args.write_logs else {
        return Ok(());
    };
    for (index, run) in runs.iter().enumerate() {
        let number = if runs.len() > 1 {
            format!(".{}", index + 1)
        } else {
            String::new()
        };
        for (end, text) in report::log::logs(&run.results) {
            let (what, _) = end.split_once('.').unwrap_or((end, ""));
            let path = format!("{}_{what}{number}.log", prefix.display());
            std::fs::write(&path, text).map_err(|error| Failure::io(format!("{path}: {error}")))?;
        }
    }
    Ok(())
}

fn sheet(runs: Vec<Run>, headroom: Option<String>) -> Report {
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
        notes: headroom.into_iter().collect(),
        warnings: Vec::new(),
        tables: vec![report::views::overview(&runs)],
        figures: vec![report::views::course(&runs), report::views::tails(&runs)],
        runs,
    }
}
