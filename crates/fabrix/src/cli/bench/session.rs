//! One command's measurements: opens its disks, guards what they carry, runs its jobs, and ends with what it has.
//!
//! The profiles say what to measure and what the tables are; here is what they share. After an interrupt, or when a
//! disk fails in the middle, the rest is left out: what was measured until then is printed, and the exit code tells.

use std::path::Path;
use std::process::ExitCode;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use fabrix_bench::workloads::fill;
use fabrix_bench::{Config, Job, Part, Progress, RunError, spread};
use fabrix_block::spec::without_secrets;
use fabrix_block::spec::{Disk as SpecDisk, Size};
use fabrix_block::{Device, Spec};
use fabrix_rt::ShardConfig;
use indicatif::{ProgressBar, ProgressStyle};

use super::args::CommonArgs;
use super::verdict::trouble_of;
use crate::args::Format;
use crate::cli::terminal::{print, say};
use crate::disks::Opener;
use crate::failure::{Failure, Kind};
use crate::profiles::loopback::Loopback;
use crate::report::host::Reading;
use crate::report::sheet::{Repeat, Report, Run};
use crate::shards::raise_open_files;
use crate::{guard, report};

/// A disk that is measured.
#[derive(Clone)]
pub(crate) struct Disk {
    /// What the tables call it.
    pub(crate) label: String,
    pub(crate) uri: String,
    pub(crate) device: Arc<dyn Device>,
    /// The target in this process that it is reached through.
    pub(crate) via: Option<Rc<Loopback>>,
}

/// The measurements of one command.
pub(crate) struct Session {
    pub(crate) args: CommonArgs,
    opener: Opener,
    pub(crate) config: Config,
    pub(crate) stop: Arc<AtomicBool>,
    bar: ProgressBar,
    begun: Reading,
    /// Why the rest was left out.
    trouble: Option<Failure>,
    doubts: Vec<String>,
}

impl Session {
    pub(crate) fn begin(args: &CommonArgs) -> Result<Self, Failure> {
        raise_open_files();
        let usual = Config::default();
        let config = Config {
            shard: ShardConfig {
                engine: args.engine.engine,
                spin: args.engine.spin,
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
        };
        Ok(Self {
            opener: Opener::new(&args.remote, args.engine.engine, "bench")?,
            args: args.clone(),
            config,
            stop: stop_flag()?,
            bar: ProgressBar::hidden(),
            begun: Reading::take(),
            trouble: None,
            doubts: Vec::new(),
        })
    }

    /// Opens a disk. What is shown of it leaves secrets out.
    pub(crate) fn open(&self, uri: &str) -> Result<Disk, Failure> {
        let shown = without_secrets(uri);
        Ok(Disk {
            label: shown.clone(),
            uri: shown,
            device: self.opener.open(uri, 0, false)?,
            via: None,
        })
    }

    /// The same disk as seen over loopback, through a target in this process.
    pub(crate) fn over_loopback(&self, disk: &Disk) -> Result<Disk, Failure> {
        let stage = Loopback::serve(&disk.device, &self.args.remote, self.args.engine.engine)?;
        Ok(Disk {
            label: format!("{} over NVMe/TCP", disk.label),
            uri: disk.uri.clone(),
            device: stage.device(),
            via: Some(Rc::new(stage)),
        })
    }

    /// The disks that a profile measures: the one named, those it is compared with, and itself over loopback.
    pub(crate) fn disks(
        &self,
        uri: &str,
        against: &[String],
        loopback: bool,
    ) -> Result<Vec<Disk>, Failure> {
        let mut disks = vec![self.open(uri)?];
        if loopback {
            disks.push(self.over_loopback(&disks[0])?);
        }
        for uri in against {
            disks.push(self.open(uri)?);
        }
        Ok(disks)
    }

    /// Refuses to write where somebody's data is.
    pub(crate) fn guard(&self, disks: &[Disk]) -> Result<(), Failure> {
        if self.args.allow_write {
            return Ok(());
        }
        disks
            .iter()
            .filter(|disk| !disk.device.geometry().read_only)
            .try_for_each(|disk| guard::refuse_used(&disk.device, &disk.uri))
    }

    /// Says how many measurements there will be, and how long that takes.
    pub(crate) fn plan(&mut self, steps: usize, each: Duration) {
        let all = each * u32::try_from(steps).unwrap_or(u32::MAX);
        if all > Duration::from_secs(20) {
            say(format_args!(
                "{steps} measurements, about {} s in all",
                all.as_secs()
            ));
        }
        self.bar = ProgressBar::new(steps as u64);
        if let Ok(style) = ProgressStyle::with_template("bench [{bar:30}] {pos}/{len} {msg}") {
            self.bar.set_style(style);
        }
        self.bar.enable_steady_tick(Duration::from_millis(200));
    }

    /// Writes a region once, so that what is read was written; says in a sentence what it did or why it did not.
    pub(crate) fn fill(&mut self, disk: &Disk, size: Option<u64>) -> Option<String> {
        let geometry = disk.device.geometry();
        let bytes = size
            .unwrap_or_else(|| geometry.bytes())
            .min(geometry.bytes());
        if geometry.read_only || is_null(&disk.uri) {
            return None;
        }
        if bytes > FILL_MOST {
            return Some(format!(
                "{} was not filled before: {} is more than {}; give --size to fill and measure a part",
                disk.label,
                Size(bytes),
                Size(FILL_MOST)
            ));
        }
        let mut job = fill(geometry);
        job.size = Some(bytes);
        job.number_ios = None;
        job.loops = Some(1);
        self.measure(disk, &job, 1)?;
        Some(format!("{} was filled with random data before", disk.label))
    }

    /// Measures a job so often; the run holds the repeat in the middle. `None`: it is over, and [`Self::finish`] tells
    /// why.
    pub(crate) fn measure(&mut self, disk: &Disk, job: &Job, count: u32) -> Option<Run> {
        self.together(&[(disk, job)], count)?.pop()
    }

    /// The same for several jobs side by side.
    pub(crate) fn together(&mut self, parts: &[(&Disk, &Job)], count: u32) -> Option<Vec<Run>> {
        let mut repeats: Vec<Vec<Run>> = parts.iter().map(|_| Vec::new()).collect();
        for _ in 0..count {
            let Some(once) = self.once(parts) else {
                break;
            };
            for (all, run) in repeats.iter_mut().zip(once) {
                all.push(run);
            }
        }
        let runs: Vec<Run> = repeats.into_iter().filter_map(middle).collect();
        (runs.len() == parts.len()).then_some(runs)
    }

    fn once(&mut self, parts: &[(&Disk, &Job)]) -> Option<Vec<Run>> {
        if self.trouble.is_some() {
            return None;
        }
        if let [(disk, job), ..] = parts {
            self.bar
                .set_message(format!("{}, {}", job.name, disk.label));
        }
        let devices: Vec<[Arc<dyn Device>; 1]> = parts
            .iter()
            .map(|(disk, _)| [Arc::clone(&disk.device)])
            .collect();
        let runs: Vec<Part<'_>> = parts
            .iter()
            .zip(&devices)
            .map(|((_, job), devices)| Part { devices, job })
            .collect();
        let config = Config {
            stop: Some(Arc::clone(&self.stop)),
            ..self.config.clone()
        };
        let before: Vec<_> = parts
            .iter()
            .map(|(disk, _)| {
                disk.via
                    .as_ref()
                    .map(|via| (Instant::now(), via.cpu_time()))
            })
            .collect();
        let outcome = fabrix_bench::run_together(&runs, &config, &mut |_: &Progress| {});
        self.bar.inc(1);
        let outcome = match outcome {
            Ok(outcome) => outcome,
            Err(error) => {
                self.trouble = parts
                    .first()
                    .map(|(disk, _)| run_failure(&disk.uri, &error));
                return None;
            }
        };
        let mut found = Vec::new();
        for (((disk, job), results), before) in parts.iter().zip(outcome).zip(before) {
            let cores = before.zip(disk.via.as_ref()).map(|((at, used), via)| {
                via.cpu_time().saturating_sub(used).as_secs_f64() / at.elapsed().as_secs_f64()
            });
            if self.trouble.is_none() {
                self.trouble = trouble_of(&disk.uri, &results);
            }
            found.push(Run {
                name: job.name.clone(),
                disk: disk.label.clone(),
                repeats: vec![Repeat::of(&results)],
                results,
                target_cores: cores,
            });
        }
        if self.stop.load(Ordering::Relaxed) {
            self.trouble = Some(Failure::io(
                "interrupted: what was measured until then is shown",
            ));
        }
        if self.trouble.is_none() {
            found.iter().for_each(|run| self.doubt(run));
        }
        // What was measured until then is worth showing, if it is anything at all.
        let nothing = found.iter().all(|run| run.results.aggregate.total.ios == 0);
        (self.trouble.is_none() || !nothing).then_some(found)
    }

    /// Collects why the figures of a run may be wrong, each reason once.
    fn doubt(&mut self, run: &Run) {
        let cpu = &run.results.cpu;
        let others = cpu.machine_cores - cpu.user_cores - cpu.system_cores;
        let local = run.target_cores.is_some() || !run.disk.contains("://");
        if local
            && others > OTHERS_MOST
            && !self
                .doubts
                .iter()
                .any(|doubt| doubt.contains("other programs"))
        {
            self.doubts.push(format!(
                "other programs kept {others:.1} cores busy during `{}`: a noisy neighbour",
                run.name
            ));
        }
    }

    /// Says what the generator could have done with the settings of the fastest run, on a disk that costs nothing.
    pub(crate) fn headroom(&mut self, runs: &[Run]) -> Option<String> {
        let asked = runs
            .iter()
            .filter(|run| !is_null(&run.disk) && !run.disk.ends_with("(null:)"));
        let fastest = asked.max_by(|one, other| one.iops().total_cmp(&other.iops()))?;
        let job = Job {
            name: "headroom".into(),
            runtime: Duration::from_millis(300),
            ramp: Duration::from_millis(50),
            size: None,
            offset: 0,
            offset_increment: 0,
            number_ios: None,
            loops: None,
            rate: None,
            verify: false,
            ..fastest.results.job.clone()
        };
        let null = self.open("null:1T").ok()?;
        let most = self.measure(&null, &job, 1)?.iops();
        let (iops, share) = (fastest.iops(), fastest.iops() / most.max(1.0));
        if share > HEADROOM_LEAST {
            self.doubts.push(format!(
                "the load generator is the limit: it makes {most:.0} IOPS on a disk that costs nothing, and \
                 `{}` had {iops:.0}",
                fastest.name
            ));
        }
        Some(format!(
            "the load generator alone makes {most:.0} IOPS with the settings of `{}`, which used {:.0} % of that",
            fastest.name,
            share * 100.0
        ))
    }

    /// Whether something ended the measurements before their end.
    pub(crate) fn is_over(&self) -> bool {
        self.trouble.is_some()
    }

    /// Completes the report, prints and writes it, and gives the exit code.
    pub(crate) fn finish(mut self, mut report: Report) -> Result<ExitCode, Failure> {
        report.notes.extend(self.headroom(&report.runs));
        self.bar.finish_and_clear();
        report.warnings.append(&mut self.doubts);
        report.warnings.extend(Reading::take().doubts(&self.begun));
        report.warnings.extend(unsteady(&report.runs));
        if report.runs.is_empty()
            && let Some(trouble) = self.trouble
        {
            return Err(trouble);
        }
        if let Some(trouble) = &self.trouble {
            report
                .warnings
                .insert(0, format!("not complete: {trouble}"));
        }
        publish(&report, self.args.report.as_deref(), self.args.output)?;
        Ok(self.exit())
    }

    /// The exit code of what happened; says the trouble there was.
    pub(crate) fn exit(self) -> ExitCode {
        self.bar.finish_and_clear();
        self.trouble
            .map_or(ExitCode::SUCCESS, |trouble| trouble.report())
    }
}

/// Prints a report, and writes its files where a folder is named.
pub(crate) fn publish(
    report: &Report,
    directory: Option<&Path>,
    output: Format,
) -> Result<(), Failure> {
    write(report, directory)?;
    match output {
        Format::Text => print(&report::plain::text(report)),
        Format::Json => print(&format!(
            "{:#}\n",
            report::json::report(report, &report::context())
        )),
    }
}

/// Writes the files of a report, where a folder is named.
pub(crate) fn write(report: &Report, directory: Option<&Path>) -> Result<(), Failure> {
    let Some(directory) = directory else {
        return Ok(());
    };
    let context = report::context();
    write_files(
        report,
        &context,
        &report::json::report(report, &context),
        directory,
    )
}

/// Writes the files of a report.
fn write_files(
    report: &Report,
    context: &report::Context,
    json: &serde_json::Value,
    directory: &Path,
) -> Result<(), Failure> {
    let write = |name: &str, text: &str| {
        let path = directory.join(name);
        std::fs::write(&path, text)
            .map_err(|error| Failure::io(format!("{}: {error}", path.display())))
    };
    std::fs::create_dir_all(directory)
        .map_err(|error| Failure::io(format!("{}: {error}", directory.display())))?;
    write("index.html", &report::page::page(report, context))?;
    write("results.json", &format!("{json:#}\n"))?;
    write(
        "results.csv",
        &report::plain::csv(&report::views::overview(&report.runs)),
    )?;
    for table in &report.tables {
        write(&format!("{}.csv", table.name), &report::plain::csv(table))?;
    }
    for figure in &report.figures {
        write(
            &format!("{}.svg", figure.name),
            &report::figure::file(figure),
        )?;
    }
    let page = directory.join("index.html");
    say(format_args!(
        "the report is {}",
        page.canonicalize().unwrap_or(page).display()
    ));
    Ok(())
}

/// The run whose repeat stands in the middle, with the figures of all.
fn middle(mut runs: Vec<Run>) -> Option<Run> {
    let iops: Vec<f64> = runs.iter().map(Run::iops).collect();
    let repeats = runs.iter().flat_map(|run| run.repeats.clone()).collect();
    let mut run = runs.swap_remove(spread::middle(&iops)?);
    run.repeats = repeats;
    Some(run)
}

/// A sentence about runs whose repeats lie far apart.
fn unsteady(runs: &[Run]) -> Option<String> {
    let percent = |run: &&Run| run.spread(|repeat| repeat.iops).percent();
    let worst = runs
        .iter()
        .max_by(|one, other| percent(one).total_cmp(&percent(other)))?;
    let far = percent(&worst);
    (far > SPREAD_MOST).then(|| {
        format!(
            "the repeats of `{}` on {} lie {far:.0} % apart",
            worst.name, worst.disk
        )
    })
}

/// Whether a disk forgets what is written: filling it is in vain.
fn is_null(uri: &str) -> bool {
    Spec::parse(uri).is_ok_and(|spec| matches!(spec.disk, SpecDisk::Null { .. }))
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

/// Why a run on the disk `name` gave nothing.
pub(crate) fn run_failure(name: &str, error: &RunError) -> Failure {
    let kind = match error {
        RunError::Job(_) => Kind::Usage,
        RunError::Start(_) | RunError::Lost(_) => Kind::Io,
    };
    Failure::new(kind, format!("{name}: {error}"))
}

/// Larger regions are not filled unasked.
const FILL_MOST: u64 = 16 << 30;
/// Cores of other programs that are worth a warning.
const OTHERS_MOST: f64 = 0.25;
/// A run that uses more than this of what the generator can do says more about the generator than about the disk.
const HEADROOM_LEAST: f64 = 0.7;
/// Repeats further apart than this, in percent of the median, are worth a warning.
const SPREAD_MOST: f64 = 20.0;
