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
use fabrix_bench::{Config, CopyTo, Job, Part, Progress, RunError, spread};
use fabrix_block::spec::without_secrets;
use fabrix_block::spec::{Disk as SpecDisk, Size};
use fabrix_block::{Device, Spec};
use fabrix_rt::{ShardConfig, SpinPolicy};

use super::args::CommonArgs;
use super::progress::Bar;
use super::verdict::trouble_of;
use crate::args::Format;
use crate::cli::terminal::{print, say};
use crate::disks::Opener;
use crate::failure::{Failure, Kind};
use crate::profiles::loopback::{Loopback, Transport};
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

/// One of the jobs that are measured side by side.
#[derive(Clone, Copy)]
pub(crate) struct Step<'a> {
    disk: &'a Disk,
    job: &'a Job,
    /// A copy: the disk that is written, and where on it the job's region comes to lie.
    copy_to: Option<(&'a Disk, u64)>,
}

impl<'a> Step<'a> {
    /// A job on a disk.
    pub(crate) fn new(disk: &'a Disk, job: &'a Job) -> Self {
        Self {
            disk,
            job,
            copy_to: None,
        }
    }

    /// What the job reads is written to another disk, from a byte on.
    pub(crate) fn copy(self, to: &'a Disk, offset: u64) -> Self {
        Self {
            copy_to: Some((to, offset)),
            ..self
        }
    }

    /// The clock, and the CPU time of the target in this process that the disk is reached through.
    fn target_time(&self) -> Option<(Instant, Duration)> {
        let via = self.disk.via.as_ref()?;
        Some((Instant::now(), via.cpu_time()))
    }
}

/// The measurements of one command.
pub(crate) struct Session {
    pub(crate) args: CommonArgs,
    opener: Opener,
    pub(crate) config: Config,
    pub(crate) stop: Arc<AtomicBool>,
    bar: Bar,
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
            bar: Bar::hidden(),
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

    /// Where the target of a disk is and who asks it, for a disk over NVMe/TCP.
    pub(crate) fn nvme(
        &self,
        uri: &str,
    ) -> Result<Option<(fabrix_host::Address, fabrix_host::Options)>, Failure> {
        self.opener.nvme(uri)
    }

    /// The same disk as seen over loopback, through a target in this process.
    pub(crate) fn over_loopback(&self, disk: &Disk, transport: Transport) -> Result<Disk, Failure> {
        let (remote, engine) = (&self.args.remote, self.args.engine.engine);
        let stage = Loopback::serve(&disk.device, transport, remote, engine)?;
        Ok(Disk {
            label: format!("{} over {transport}", disk.label),
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
            disks.push(self.over_loopback(&disks[0], Transport::NvmeTcp)?);
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
        self.bar = Bar::all(steps);
    }

    /// Shows each measurement with its rates, instead of where all of them stand.
    pub(crate) fn show_each(&mut self) {
        self.bar = Bar::Each;
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
        self.together(&[Step::new(disk, job)], count)?.pop()
    }

    /// The same for several jobs side by side.
    pub(crate) fn together(&mut self, parts: &[Step<'_>], count: u32) -> Option<Vec<Run>> {
        let mut repeats: Vec<Vec<Run>> = parts.iter().map(|_| Vec::new()).collect();
        for _ in 0..count {
            let Some(once) = self.once(parts) else {
                break;
            };
            for (all, run) in repeats.iter_mut().zip(once) {
                all.push(run);
            }
        }
        // In trouble the last repeat says what happened, otherwise the one in the middle is shown.
        let over = self.is_over();
        let runs: Vec<Run> = repeats
            .into_iter()
            .filter_map(|runs| shown(runs, over))
            .collect();
        (runs.len() == parts.len()).then_some(runs)
    }

    fn once(&mut self, parts: &[Step<'_>]) -> Option<Vec<Run>> {
        let first = parts.first().filter(|_| self.trouble.is_none())?;
        let devices: Vec<[Arc<dyn Device>; 1]> = parts
            .iter()
            .map(|step| [Arc::clone(&step.disk.device)])
            .collect();
        let runs: Vec<Part<'_>> = parts
            .iter()
            .zip(&devices)
            .map(|(step, devices)| Part {
                devices,
                job: step.job,
                copy_to: step.copy_to.map(|(disk, offset)| CopyTo {
                    device: &disk.device,
                    offset,
                }),
            })
            .collect();
        let config = Config {
            stop: Some(Arc::clone(&self.stop)),
            ..self.config.clone()
        };
        let before: Vec<_> = parts.iter().map(Step::target_time).collect();
        let bar = self.bar.begin(first.job, &first.disk.label);
        let outcome = fabrix_bench::run_together(&runs, &config, &mut |progress: &Progress| {
            bar.show(progress);
        });
        bar.end();
        let outcome = match outcome {
            Ok(outcome) => outcome,
            Err(error) => {
                self.trouble = Some(run_failure(&first.disk.uri, &error));
                return None;
            }
        };
        let mut found = Vec::new();
        for ((step, results), before) in parts.iter().zip(outcome).zip(before) {
            let cores = before.zip(step.target_time()).map(|(before, after)| {
                let (wall, used) = (after.0 - before.0, after.1.saturating_sub(before.1));
                used.as_secs_f64() / wall.as_secs_f64()
            });
            if self.trouble.is_none() {
                self.trouble = trouble_of(&step.disk.uri, &results);
            }
            found.push(Run {
                name: step.job.name.clone(),
                disk: step.disk.label.clone(),
                repeats: vec![Repeat::of(&results)],
                results,
                target_cores: cores,
            });
        }
        if self.trouble.is_none() && self.stop.load(Ordering::Relaxed) {
            self.trouble = Some(Failure::io(
                "interrupted: what was measured until then is shown",
            ));
        }
        if self.trouble.is_none() {
            found.iter().for_each(|run| self.doubt(run));
            parts.iter().for_each(|step| self.doubt_disk(step.disk));
        }
        // What was measured until then is worth showing, if it is anything at all.
        let all =
            |run: &Run| run.results.aggregate.total.ios + run.results.aggregate.errors.total();
        let nothing = found.iter().all(|run| all(run) == 0);
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

    /// The same for a disk: what lies in the page cache is read from memory.
    fn doubt_disk(&mut self, disk: &Disk) {
        let bytes = disk.device.geometry().bytes();
        if !Spec::parse(&disk.uri).is_ok_and(|spec| is_cached(&spec))
            || !report::host::has_room(bytes)
        {
            return;
        }
        let doubt = format!(
            "{} goes through the page cache (direct=off), and memory has room for all of it: figures may be those of \
             memory; leave direct=off out",
            disk.uri
        );
        if !self.doubts.contains(&doubt) {
            self.doubts.push(doubt);
        }
    }

    /// Says why the figures of these runs may be wrong, on the terminal.
    pub(crate) fn warn(&mut self, runs: &[Run]) {
        for doubt in self.all_doubts(runs) {
            say(format_args!("warning: {doubt}"));
        }
    }

    fn all_doubts(&mut self, runs: &[Run]) -> Vec<String> {
        let mut doubts = std::mem::take(&mut self.doubts);
        if self.args.engine.spin == SpinPolicy::Always && !runs.is_empty() {
            doubts.push(SPINS.to_owned());
        }
        doubts.extend(Reading::take().doubts(&self.begun));
        doubts.extend(unsteady(runs));
        doubts
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

    /// Adds to a report what the generator could have done, and why its figures may be wrong.
    pub(crate) fn complete(&mut self, report: &mut Report) {
        report.notes.extend(self.headroom(&report.runs));
        self.bar.finish();
        report.warnings.extend(self.all_doubts(&report.runs));
        if let Some(trouble) = &self.trouble {
            report
                .warnings
                .insert(0, format!("not complete: {trouble}"));
        }
    }

    /// Nothing was measured: why not.
    pub(crate) fn nothing(self) -> Result<ExitCode, Failure> {
        self.bar.finish();
        self.trouble.map_or(Ok(ExitCode::SUCCESS), Err)
    }

    /// Completes the report, prints and writes it, and gives the exit code.
    pub(crate) fn finish(mut self, mut report: Report) -> Result<ExitCode, Failure> {
        if report.runs.is_empty() && self.is_over() {
            return self.nothing();
        }
        self.complete(&mut report);
        publish(&report, self.args.report.as_deref(), self.args.output)?;
        Ok(self.exit())
    }

    /// The exit code of what happened; says the trouble there was.
    pub(crate) fn exit(self) -> ExitCode {
        self.bar.finish();
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

/// The run whose repeat stands in the middle, or the last of all, with the figures of all.
fn shown(mut runs: Vec<Run>, last: bool) -> Option<Run> {
    let iops: Vec<f64> = runs.iter().map(Run::iops).collect();
    let repeats = runs.iter().flat_map(|run| run.repeats.clone()).collect();
    let index = if last {
        runs.len().checked_sub(1)
    } else {
        spread::middle(&iops)
    };
    let mut run = runs.swap_remove(index?);
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

/// Whether reads and writes of a disk, or of a part of it, pass through the page cache.
fn is_cached(spec: &Spec) -> bool {
    match &spec.disk {
        SpecDisk::File { direct, .. } => !direct,
        SpecDisk::Raid0 { members, .. } => members.iter().any(is_cached),
        SpecDisk::Ram { .. } | SpecDisk::Null { .. } | SpecDisk::Remote(_) => false,
    }
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

const SPINS: &str = "the generator spins (--spin always): it keeps its processors busy whatever it does, and CPU \
                     figures say nothing about the work";
/// Larger regions are not filled unasked.
const FILL_MOST: u64 = 16 << 30;
/// Cores of other programs that are worth a warning.
const OTHERS_MOST: f64 = 0.25;
/// A run that uses more than this of what the generator can do says more about the generator than about the disk.
const HEADROOM_LEAST: f64 = 0.7;
/// Repeats further apart than this, in percent of the median, are worth a warning.
const SPREAD_MOST: f64 = 20.0;
