//! `fabrix demo`: measures a RAM disk locally, and over loopback through our target and host, and
//! writes a report. Bare TCP sockets on loopback are the reference: no remote disk is faster.
//!
//! The workloads come from a published comparison of NVMe-oF targets: 4k and 64k, sequential and
//! random, reads, writes and half of each, and 8k random with 70 % writes.

use std::collections::{BTreeMap, BTreeSet};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use fabrix_bench::workloads::{Reading, fill, thirteen};
use fabrix_bench::{Cell, Config, Job, Matrix, Row};
use fabrix_block::Device;
use fabrix_block::spec::Size;
use fabrix_rt::{ShardConfig, SpinPolicy};
use indicatif::{ProgressBar, ProgressStyle};

use super::bench::interrupts::stop_flag;
use super::bench::publish::write_files;
use super::bench::session::run_failure;
use super::bench::warnings::Warnings;
use super::terminal::{say, show};
use crate::args::{DemoArgs, RemoteArgs};
use crate::disks::Opener;
use crate::failure::Failure;
use crate::profiles::loopback::{Loopback, Transport};
use crate::profiles::net::loopback_iops;
use crate::report;
use crate::report::sheet::{Repeat, Run};
use crate::shards::raise_open_files;

/// Requests in flight of the single job.
const IODEPTH: u32 = 32;
const DEBUG_BUILD: &str = "this is a debug build: figures are too low; use cargo run --release";
const SCOPE: &str = "nqn.2026-01.io.fabrix:demo";

pub(crate) fn run(args: &DemoArgs) -> Result<ExitCode, Failure> {
    raise_open_files();
    let stop = stop_flag()?;
    let is_debug = cfg!(debug_assertions);
    if is_debug {
        say(format_args!("warning: {DEBUG_BUILD}"));
    }
    let disk = ram_disk(args)?;
    let stage = Stage::set(args, &disk)?;
    let (runtime, ramp) = if args.quick { (400, 80) } else { (2_400, 300) };
    let (runtime, ramp) = (Duration::from_millis(runtime), Duration::from_millis(ramp));
    let mut jobs = thirteen(Reading::Names, 1, IODEPTH, runtime, ramp);
    for job in &mut jobs {
        job.name = job.name.replace("50write", "50% write");
    }
    let sizes: BTreeSet<u32> = jobs.iter().map(|job| job.block_bytes).collect();
    let bar = progress_bar(jobs.len() * 2 + sizes.len());
    let mut warnings = Warnings::begin(SpinPolicy::default());
    let mut wire_iops = BTreeMap::new();
    for bytes in sizes {
        bar.set_message(format!("{}, bare TCP sockets", Size(bytes.into())));
        let iops = loopback_iops(bytes, IODEPTH, runtime, &stop);
        not_interrupted(&stop)?;
        wire_iops.insert(bytes, iops?);
        bar.inc(1);
    }
    stage.measure(&disk, &fill(disk.geometry()), &stop, None)?;
    let mut rows = Vec::new();
    for job in &jobs {
        bar.set_message(format!("{}, local", job.name));
        let local = stage.measure(&disk, job, &stop, None)?;
        warnings.figures(&local);
        warnings.machine(&local);
        bar.inc(1);
        bar.set_message(format!("{}, over NVMe/TCP", job.name));
        let remote = stage.measure(&stage.loopback.device(), job, &stop, Some(&stage.loopback))?;
        warnings.figures(&remote);
        warnings.machine(&remote);
        bar.inc(1);
        rows.push(Row {
            name: job.name.clone(),
            local: cell(&local),
            remote: cell(&remote),
            block_bytes: job.block_bytes.into(),
            wire_iops: wire_iops.get(&job.block_bytes).copied().unwrap_or(0.0),
        });
    }
    bar.finish_and_clear();
    drop(stage);
    let mut sentences = warnings.sentences(&[]);
    if is_debug {
        sentences.insert(0, DEBUG_BUILD.to_owned());
    }
    let matrix = Matrix {
        local: label(args),
        remote: "NVMe/TCP over loopback".to_owned(),
        iodepth: IODEPTH,
        runtime_ms: u64::try_from(runtime.as_millis()).unwrap_or(u64::MAX),
        rows,
        warnings: sentences,
    };
    publish(args, &matrix)
}

fn cell(run: &Run) -> Cell {
    Cell::new(&run.results, run.target_cores)
}

fn not_interrupted(stop: &AtomicBool) -> Result<(), Failure> {
    match stop.load(Ordering::Relaxed) {
        true => Err(Failure::io("interrupted")),
        false => Ok(()),
    }
}

fn ram_disk(args: &DemoArgs) -> Result<Arc<dyn Device>, Failure> {
    let opener = Opener::new(&RemoteArgs::default(), args.engine, SCOPE)?;
    opener.open(&label(args), false)
}

fn label(args: &DemoArgs) -> String {
    format!("ram:{}", Size(args.size))
}

/// The disk behind a target, and the configuration of the runs.
struct Stage {
    /// Label of the disk on both ways.
    disk: String,
    loopback: Loopback,
    config: Config,
}

impl Stage {
    /// Runs the target on the first core and the load on the second, if there are two.
    fn set(args: &DemoArgs, disk: &Arc<dyn Device>) -> Result<Self, Failure> {
        let config = Config {
            shard: ShardConfig {
                engine: args.engine,
                ..ShardConfig::default()
            },
            pin: Loopback::load_cores().into_iter().take(1).collect(),
            ..Config::default()
        };
        Ok(Self {
            disk: label(args),
            loopback: Loopback::serve(
                disk,
                Transport::NvmeTcp,
                &RemoteArgs::default(),
                args.engine,
            )?,
            config,
        })
    }

    /// Runs one job on one disk. `target` is the target whose CPU use is measured.
    fn measure(
        &self,
        disk: &Arc<dyn Device>,
        job: &Job,
        stop: &Arc<AtomicBool>,
        target: Option<&Loopback>,
    ) -> Result<Run, Failure> {
        let config = Config {
            stop: Some(Arc::clone(stop)),
            ..self.config.clone()
        };
        let before = target.map(|target| (Instant::now(), target.cpu_time()));
        let results = fabrix_bench::run(&[Arc::clone(disk)], job, &config, &mut |_| {});
        let results = results.map_err(|error| run_failure(&disk.identity().name, &error))?;
        not_interrupted(stop)?;
        if let Some(first) = &results.aggregate.errors.first {
            return Err(Failure::io(format!("{}: {first}", job.name)));
        }
        let cores = before.zip(target).map(|((at, used), target)| {
            let used = target.cpu_time().saturating_sub(used);
            used.as_secs_f64() / at.elapsed().as_secs_f64()
        });
        Ok(Run {
            name: match target {
                None => format!("{}, local", job.name),
                Some(_) => format!("{}, remote", job.name),
            },
            disk: self.disk.clone(),
            repeats: vec![Repeat::of(&results)],
            results,
            target_cores: cores,
            missed: None,
            group: 0,
            written: None,
        })
    }
}

fn progress_bar(steps: usize) -> ProgressBar {
    let bar = ProgressBar::new(steps as u64);
    if let Ok(style) = ProgressStyle::with_template("demo [{bar:40}] {pos}/{len} {msg}") {
        bar.set_style(style);
    }
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}

/// Writes the report and prints the table.
fn publish(args: &DemoArgs, matrix: &Matrix) -> Result<ExitCode, Failure> {
    let context = report::context();
    let json = report::matrix::json(matrix, &context);
    let files = [
        ("index.html", report::html::page(matrix, &context)),
        ("results.json", format!("{json:#}\n")),
        ("results.csv", report::matrix::csv(matrix)),
    ];
    write_files(
        &args.report,
        files.map(|(name, text)| (name.to_owned(), text)),
    )?;
    let text = || report::matrix::text(matrix);
    show(args.output, text, || format!("{json:#}"))?;
    Ok(ExitCode::SUCCESS)
}
