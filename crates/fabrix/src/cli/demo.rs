//! `fabrix demo`: a RAM disk measured as it is and through our target and our host over loopback, as one report.
//!
//! The workloads are those of a published comparison of NVMe-oF targets: 4k and 64k, sequential and random, read,
//! write and half of each, and 8k random with 70 % writes.

use std::net::SocketAddr;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use fabrix_bench::workloads::{Reading, fill, thirteen};
use fabrix_bench::{Cell, Config, Job, Matrix, Row};
use fabrix_block::Device;
use fabrix_block::exclusive::Exclusive;
use fabrix_block::spec::Size;
use fabrix_rt::ShardConfig;
use fabrix_target::{Export, Initiators, Listen, SubsystemConfig, Target, TargetConfig};
use indicatif::{ProgressBar, ProgressStyle};

use super::bench::{run_failure, stop_flag};
use super::terminal::{print, say};
use crate::args::{Cores, DemoArgs, EngineArgs, Format, RemoteArgs};
use crate::disks::{Opener, host_options};
use crate::failure::Failure;
use crate::report;
use crate::shards::{Shards, raise_open_files};

/// What is measured each time: one job that keeps so many requests in flight.
const IODEPTH: u32 = 32;
const NQN: &str = "nqn.2026-01.io.fabrix:demo";

pub(crate) fn run(args: &DemoArgs) -> Result<ExitCode, Failure> {
    raise_open_files();
    let stop = stop_flag()?;
    let disk = ram_disk(args)?;
    let stage = Stage::set(args, Arc::clone(&disk))?;
    let (runtime, ramp) = if args.quick { (400, 80) } else { (2_400, 300) };
    let (runtime, ramp) = (Duration::from_millis(runtime), Duration::from_millis(ramp));
    let jobs = thirteen(Reading::Names, 1, IODEPTH, runtime, ramp);
    let bar = progress_bar(jobs.len() * 2);
    stage.measure(&disk, &fill(disk.geometry()), &stop, None)?;
    let mut rows = Vec::new();
    for job in &jobs {
        bar.set_message(format!("{}, local", job.name));
        let local = stage.measure(&disk, job, &stop, None)?;
        bar.inc(1);
        bar.set_message(format!("{}, over NVMe/TCP", job.name));
        let remote = stage.measure(&stage.remote, job, &stop, Some(&stage.shards))?;
        bar.inc(1);
        rows.push(Row {
            name: job.name.clone(),
            local,
            remote,
        });
    }
    bar.finish_and_clear();
    stage.strike();
    let matrix = Matrix {
        local: format!("ram:{}", Size(args.size)),
        remote: "NVMe/TCP over loopback".to_owned(),
        rows,
    };
    publish(args, &matrix)
}

fn ram_disk(args: &DemoArgs) -> Result<Arc<dyn Device>, Failure> {
    let remote = RemoteArgs {
        hdr_digest: false,
        data_digest: false,
        nr_io_queues: 1,
        queue_size: 128,
        hostnqn: None,
        initiator: None,
        fast_io_fail_tmo: Duration::from_secs(10),
    };
    Opener::new(&remote, args.engine, NQN)?.open(&format!("ram:{}", Size(args.size)), 0, false)
}

/// The target, and the disk as seen through it.
struct Stage {
    shards: Shards,
    target: Target,
    remote: Arc<dyn Device>,
    config: Config,
}

impl Stage {
    /// Target on the first processor, load on the second, where there are two.
    fn set(args: &DemoArgs, disk: Arc<dyn Device>) -> Result<Self, Failure> {
        let cpus = fabrix_rt::topology::cpus();
        let engine = EngineArgs {
            cores: (cpus.len() > 1).then(|| Cores(vec![cpus[0]])),
            engine: args.engine,
        };
        let shards = Shards::start(engine.cores.as_ref(), engine.engine)?;
        let config = TargetConfig {
            subsystem: SubsystemConfig {
                nqn: NQN.to_owned(),
                serial: disk.identity().serial.clone(),
                model: "Fabrix demo".to_owned(),
                firmware: env!("CARGO_PKG_VERSION").chars().take(8).collect(),
                hosts: None,
                max_io_queues: 8,
                max_queue_entries: 128,
                grows: false,
                max_transfer_bytes: disk.geometry().max_transfer_bytes,
            },
            exports: vec![Export {
                nsid: 1,
                device: Exclusive::wrap(disk),
            }],
            iscsi_name: "iqn.2026-01.io.fabrix:demo".to_owned(),
            initiators: Initiators::anybody(),
            keeper: None,
            listen: vec![Listen::nvme_tcp(SocketAddr::from(([127, 0, 0, 1], 0)))],
            max_connections: 64,
            max_strangers: 64,
            notify: Box::new(|_| {}),
        };
        let target = Target::start(config, shards.remotes()).map_err(Failure::io)?;
        let address = fabrix_host::Address {
            host: "127.0.0.1".to_owned(),
            port: target.addresses()[0].port(),
            subsystem: Some(NQN.to_owned()),
            nsid: Some(1),
        };
        let options = fabrix_host::Options {
            engine: args.engine,
            ..host_options(None)?
        };
        let remote = Arc::new(fabrix_host::connect(&address, &options)?);
        let config = Config {
            shard: ShardConfig {
                engine: args.engine,
                ..ShardConfig::default()
            },
            pin: cpus.get(1).copied().into_iter().collect(),
            ..Config::default()
        };
        Ok(Self {
            shards,
            target,
            remote,
            config,
        })
    }

    /// One job on one disk; `target` says whose CPU is counted besides.
    fn measure(
        &self,
        disk: &Arc<dyn Device>,
        job: &Job,
        stop: &Arc<AtomicBool>,
        target: Option<&Shards>,
    ) -> Result<Cell, Failure> {
        let config = Config {
            stop: Some(Arc::clone(stop)),
            ..self.config.clone()
        };
        let before = target.map(|shards| (Instant::now(), shards.cpu_time()));
        let results = fabrix_bench::run(&[Arc::clone(disk)], job, &config, &mut |_| {});
        let results = results.map_err(|error| run_failure(&disk.identity().name, &error))?;
        if stop.load(Ordering::Relaxed) {
            return Err(Failure::io("interrupted"));
        }
        if let Some(first) = &results.aggregate.errors.first {
            return Err(Failure::io(format!("{}: {first}", job.name)));
        }
        let cores = before.zip(target).map(|((at, used), shards)| {
            let used = shards.cpu_time().saturating_sub(used);
            used.as_secs_f64() / at.elapsed().as_secs_f64()
        });
        Ok(Cell::new(&results, cores))
    }

    fn strike(self) {
        self.target.drain();
        self.shards.stop();
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
    let directory = &args.report;
    let write = |name: &str, text: &str| {
        let path = directory.join(name);
        std::fs::write(&path, text)
            .map_err(|error| Failure::io(format!("{}: {error}", path.display())))
    };
    std::fs::create_dir_all(directory)
        .map_err(|error| Failure::io(format!("{}: {error}", directory.display())))?;
    write("index.html", &report::html::page(matrix, &context))?;
    write("results.json", &format!("{json:#}\n"))?;
    write("results.csv", &report::matrix::csv(matrix))?;
    match args.output {
        Format::Text => print(&report::matrix::text(matrix))?,
        Format::Json => print(&format!("{json:#}\n"))?,
    }
    say(format_args!("the report is {}", shown(directory)));
    Ok(ExitCode::SUCCESS)
}

fn shown(directory: &Path) -> String {
    let page = directory.join("index.html");
    page.canonicalize().unwrap_or(page).display().to_string()
}
