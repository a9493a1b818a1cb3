//! `fabrix bench`: one job on one disk, in fio's words.

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fabrix_bench::arrivals::{Pacing, Rate};
use fabrix_bench::{Config, Job, Progress, RUNTIME_MAX, Results, RunError};
use fabrix_block::Device;
use fabrix_block::spec::without_secrets;
use fabrix_rt::{ShardConfig, spawn};
use indicatif::{ProgressBar, ProgressStyle};

use super::terminal;
use crate::args::{BenchArgs, Format};
use crate::disks::Opener;
use crate::failure::{Failure, Kind};
use crate::shards::raise_open_files;
use crate::{guard, report};

pub(crate) fn run(args: &BenchArgs) -> Result<ExitCode, Failure> {
    raise_open_files();
    let job = job(args)?;
    let device =
        Opener::new(&args.remote, args.engine.engine, "bench")?.open(&args.uri, 0, false)?;
    if let Some(time) = args.hold {
        return hold(args, &device, time);
    }
    if job.rw.writes() && !args.allow_write {
        guard::refuse_used(&device, &without_secrets(&args.uri))?;
    }
    let mut config = config(args);
    config.stop = Some(stop_flag()?);
    let bar = progress_bar(&job);
    let results = fabrix_bench::run(&[device], &job, &config, &mut |progress| {
        show(&bar, &job, progress);
    });
    bar.finish_and_clear();
    let results = results.map_err(|error| run_failure(&without_secrets(&args.uri), &error))?;
    print(args, &results)?;
    Ok(verdict(&without_secrets(&args.uri), &results))
}

fn job(args: &BenchArgs) -> Result<Job, Failure> {
    let block_bytes = u32::try_from(args.bs)
        .map_err(|_| Failure::usage(format!("--bs {}: an I/O has at most 1M", args.bs)))?;
    let usual_runtime = match args.number_ios {
        Some(_) => RUNTIME_MAX,
        None => Job::default().runtime,
    };
    Ok(Job {
        name: args.rw.name().to_owned(),
        rw: args.rw,
        block_bytes,
        iodepth: args.iodepth,
        numjobs: args.numjobs,
        runtime: args.runtime.unwrap_or(usual_runtime),
        number_ios: args.number_ios,
        ramp: args.ramp,
        rwmixread: args.rwmixread.into(),
        offset: args.offset,
        size: args.size,
        verify: args.verify,
        rate: args.rate_iops.map(|iops| Rate {
            iops,
            pacing: Pacing::Poisson,
        }),
        ..Job::default()
    })
}

fn config(args: &BenchArgs) -> Config {
    let usual = Config::default();
    Config {
        shard: ShardConfig {
            engine: args.engine.engine,
            ..ShardConfig::default()
        },
        pin: args
            .engine
            .cores
            .as_ref()
            .map_or_else(Vec::new, |cores| cores.0.clone()),
        // A remote disk may be silent for so long before it fails what it was asked.
        drain: usual.drain + args.remote.fast_io_fail_tmo,
        ..usual
    }
}

/// Becomes true with the first interrupt; the results until then are printed.
pub(crate) fn stop_flag() -> Result<Arc<AtomicBool>, Failure> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        // The second interrupt ends the program at once.
        signal_hook::flag::register_conditional_shutdown(signal, 130, Arc::clone(&stop))
            .and_then(|_| signal_hook::flag::register(signal, Arc::clone(&stop)))
            .map_err(|error| Failure::io(format!("cannot wait for signals: {error}")))?;
    }
    Ok(stop)
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

fn print(args: &BenchArgs, results: &Results) -> Result<(), Failure> {
    match args.output {
        Format::Text => terminal::print(&report::text::summary(results)),
        Format::Json => terminal::print(&format!(
            "{:#}\n",
            report::json::run(results, &report::context())
        )),
    }
}

/// What the exit code says of the results.
fn verdict(uri: &str, results: &Results) -> ExitCode {
    let all = &results.aggregate;
    if let Some(verified) = all.verify.as_ref().filter(|verified| verified.errors > 0) {
        let (count, first) = (
            verified.errors,
            verified.first_error.as_deref().unwrap_or_default(),
        );
        return Failure::new(
            Kind::Verify,
            format!("{uri}: {count} blocks differ; the first: {first}"),
        )
        .report();
    }
    if all.errors.total() > 0 {
        let (count, first) = (
            all.errors.total(),
            all.errors.first.as_deref().unwrap_or_default(),
        );
        return Failure::io(format!("{uri}: {count} I/Os failed; the first: {first}")).report();
    }
    if let Some(why) = &all.ended_early {
        return Failure::io(format!("{uri}: ended early: {why}")).report();
    }
    ExitCode::SUCCESS
}

/// Why a run on the disk `name` gave nothing.
pub(crate) fn run_failure(name: &str, error: &RunError) -> Failure {
    let kind = match error {
        RunError::Job(_) => Kind::Usage,
        RunError::Start(_) | RunError::Lost(_) => Kind::Io,
    };
    Failure::new(kind, format!("{name}: {error}"))
}

/// Connects as many channels as there would be jobs, and leaves them idle.
fn hold(args: &BenchArgs, device: &Arc<dyn Device>, time: Duration) -> Result<ExitCode, Failure> {
    let stop = stop_flag()?;
    let device = Arc::clone(device);
    let (count, uri) = (args.numjobs, without_secrets(&args.uri));
    let (tell, told) = std::sync::mpsc::channel();
    let config = ShardConfig {
        engine: args.engine.engine,
        ..ShardConfig::default()
    };
    let pinned = args
        .engine
        .cores
        .as_ref()
        .and_then(|cores| cores.0.first().copied());
    let thread = spawn(config, pinned, move |shard| {
        let opened: Result<Vec<_>, _> = (0..count).map(|_| device.open(shard)).collect();
        // The shard keeps what it opened for as long as it runs.
        let _gone = tell.send(opened.map(std::mem::forget));
    })
    .map_err(|error| Failure::io(format!("cannot start: {error}")))?;
    if let Ok(Err(error)) = told.recv() {
        return Err(Failure::new(Kind::Connect, format!("{uri}: {error}")));
    }
    let until = std::time::Instant::now() + time;
    while std::time::Instant::now() < until && !stop.load(Ordering::Relaxed) {
        std::thread::sleep(Duration::from_millis(20));
    }
    thread.remote.stop();
    let _panicked = thread.join.join();
    Ok(ExitCode::SUCCESS)
}
