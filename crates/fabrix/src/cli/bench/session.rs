//! The measurements of one command: opens disks, protects existing data, runs jobs, and outputs the
//! results. All profiles share this code.
//!
//! After an interrupt or a failing disk the remaining measurements are skipped. The results so far
//! are printed, and the exit code tells the reason.

mod additional;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fabrix_bench::{Config, Counted, Job, Part, Progress, RunError, spread};
use fabrix_block::spec::{self, without_secrets};
use fabrix_block::{Device, Spec};
use fabrix_host::multipath::Policy;
use fabrix_rt::ShardConfig;

use super::args::{CommonArgs, SweepArgs};
pub(crate) use super::disk::{Disk, Step};
use super::interrupts::{AtOnce, stop_flag};
use super::progress::Bar;
use super::publish::{make_folder, publish, write};
use super::verdict::failure_of;
use super::warnings::Warnings;
use crate::args::{Format, RemoteArgs};
use crate::cli::terminal::{print, say};
use crate::disks::Opener;
use crate::failure::{Failure, Kind};
use crate::guard;
use crate::profiles::loopback::{Loopback, Transport};
use crate::report::sheet::{Repeat, Report, Run};
use crate::shards::raise_open_files;
use additional::is_long_enough;

/// The measurements of one command.
pub(crate) struct Session {
    pub(crate) args: CommonArgs,
    pub(crate) opener: Opener,
    pub(crate) config: Config,
    pub(crate) stop: Arc<AtomicBool>,
    at_once: AtOnce,
    bar: Bar,
    /// Reason for skipping the remaining measurements.
    trouble: Option<Failure>,
    warnings: Warnings,
    /// Number of finished stages. Jobs that run side by side are a stage.
    stages: u32,
}

impl Session {
    pub(crate) fn begin(args: &CommonArgs) -> Result<Self, Failure> {
        raise_open_files();
        make_folder(args.report.as_deref())?;
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
            // A remote disk may be silent for this long before it fails a request.
            drain: (args.remote.fast_io_fail_tmo.0)
                .map_or(Duration::MAX, |longest| usual.drain + longest),
            ..usual
        };
        Ok(Self {
            opener: Opener::new(&args.remote, args.engine.engine, "bench")?,
            args: args.clone(),
            config,
            stop: stop_flag()?,
            at_once: AtOnce::begin()?,
            bar: Bar::hidden(),
            trouble: None,
            warnings: Warnings::begin(args.engine.spin),
            stages: 0,
        })
    }

    /// Opens a disk. Its label contains no secrets.
    ///
    /// Errors: also a disk that the files of `--report` would replace.
    pub(crate) fn open(&self, uri: &str) -> Result<Disk, Failure> {
        let disk = match self.stages == 0 && is_remote(uri) {
            true => self.at_once.during(|| open(&self.opener, uri))?,
            false => open(&self.opener, uri)?,
        };
        let report = self.args.report.as_deref();
        match report.and_then(|folder| replaced(folder, &disk)) {
            None => Ok(disk),
            Some(path) => Err(Failure::usage(format!(
                "--report: the files of the report would replace the disk {}; choose another folder",
                path.display()
            ))),
        }
    }

    /// Opens a disk that is not measured together with the others, so it may be the same disk
    /// reached in another way.
    fn open_alone(&self, uri: &str) -> Result<Disk, Failure> {
        open(&self.opener.apart(), uri)
    }

    /// Opens a disk with several paths under a policy. Its label is the policy.
    pub(crate) fn open_under(&self, uri: &str, policy: Policy) -> Result<Disk, Failure> {
        let disk = open(&self.opener.apart().under(policy), uri)?;
        Ok(Disk {
            label: policy.to_string(),
            ..disk
        })
    }

    /// The same disk accessed over loopback through a target in this process.
    pub(crate) fn over_loopback(&self, disk: &Disk, transport: Transport) -> Result<Disk, Failure> {
        self.over_loopback_with(disk, transport, &self.args.remote)
    }

    /// [`Self::over_loopback`] with other options for the connection than the command's.
    pub(crate) fn over_loopback_with(
        &self,
        disk: &Disk,
        transport: Transport,
        remote: &RemoteArgs,
    ) -> Result<Disk, Failure> {
        let engine = self.args.engine.engine;
        let stage = Loopback::serve(&disk.device, transport, remote, engine)?;
        Ok(Disk {
            label: format!("{} over {transport}", disk.label),
            uri: disk.uri.clone(),
            device: stage.device(),
            files: Vec::new(),
            via: Some(Rc::new(stage)),
            around_cache: disk.around_cache,
        })
    }

    /// Starts a writing profile. Opens the disk, its loopback variant, and the disks to compare
    /// with.
    pub(crate) fn sweep(args: &SweepArgs) -> Result<(Self, Vec<Disk>), Failure> {
        let mut session = Self::begin(&args.step.common)?;
        let mut disks = vec![session.open(&args.uri)?];
        if args.loopback {
            session.leave_cores_to_targets();
            disks.push(session.over_loopback(&disks[0], Transport::NvmeTcp)?);
        }
        for uri in &args.against {
            disks.push(session.open_alone(uri)?);
        }
        let size = args.step.size;
        disks.iter().try_for_each(|disk| disk.check_size(size))?;
        session.guard(&disks)?;
        Ok((session, disks))
    }

    /// Keeps the load away from the cores of targets in this process, unless the user chose cores.
    pub(crate) fn leave_cores_to_targets(&mut self) {
        if self.config.pin.is_empty() {
            self.config.pin = Loopback::load_cores();
        }
    }

    /// Pins jobs to the processors that they name, unless the command line chose cores.
    ///
    /// Errors: a sentence when the jobs name different processors.
    pub(crate) fn pin_jobs<'a>(
        &mut self,
        mut wanted: impl Iterator<Item = Option<&'a [usize]>>,
    ) -> Result<(), Failure> {
        let first = wanted.next().flatten();
        if !wanted.all(|cpus| cpus == first) {
            return Err(Failure::usage(
                "jobs with different values of cpus_allowed are not supported; write it in [global]",
            ));
        }
        if let (true, Some(cpus)) = (self.config.pin.is_empty(), first) {
            self.config.pin = cpus.to_vec();
        }
        Ok(())
    }

    /// Refuses disks that carry data, unless writing is allowed.
    pub(crate) fn guard(&self, disks: &[Disk]) -> Result<(), Failure> {
        if self.args.allow_write {
            return Ok(());
        }
        disks
            .iter()
            .flat_map(Disk::parts)
            .filter(|disk| !disk.device.geometry().read_only)
            .try_for_each(|disk| guard::refuse_used(&disk.device, &disk.uri, &disk.label))
    }

    /// Counts runs of one name in warnings: they are jobs of one section.
    pub(super) fn join_names(&mut self) {
        self.warnings.join_names();
    }

    /// Prints the number of measurements and their total duration.
    pub(crate) fn plan(&mut self, steps: usize, each: Duration) {
        let all = each * u32::try_from(steps).unwrap_or(u32::MAX);
        if all > Duration::from_secs(20) {
            say(format_args!(
                "{}, about {} s in all",
                Counted(steps as u64, "measurement"),
                all.as_secs()
            ));
        }
        self.bar = Bar::all(steps);
    }

    /// Shows a bar with rates for each measurement.
    pub(crate) fn show_each(&mut self) {
        self.bar = Bar::Each;
    }

    /// Measures a job `count` times. The run holds the median repeat. None: the measurements have
    /// ended, and [`Self::finish`] reports the reason.
    pub(crate) fn measure(&mut self, disk: &Disk, job: &Job, count: u32) -> Option<Run> {
        self.together(&[Step::new(disk, job)], count)?.pop()
    }

    /// [`Self::measure`], or None if the disk does not support the job.
    pub(crate) fn measure_taken(&mut self, disk: &Disk, job: &Job, count: u32) -> Option<Run> {
        match disk.takes(job) {
            true => self.measure(disk, job, count),
            false => None,
        }
    }

    /// [`Self::measure`] for several jobs side by side.
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
        self.stages += 1;
        // After trouble the last repeat is shown, because it contains the reason. Otherwise the
        // median is.
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
                copy_to: step.destination(),
                start: step.start,
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
                self.trouble = Some(run_failure(&first.disk.label, &error));
                return None;
            }
        };
        let interrupted = self.stop.load(Ordering::Relaxed);
        let mut found = Vec::new();
        for ((step, results), before) in parts.iter().zip(outcome).zip(before) {
            let cores = before.zip(step.target_time()).map(|(before, after)| {
                let (wall, used) = (after.0 - before.0, after.1.saturating_sub(before.1));
                used.as_secs_f64() / wall.as_secs_f64()
            });
            if self.trouble.is_none() {
                self.trouble = failure_of(&step.disk.label, &results, interrupted);
            }
            found.push(Run {
                name: step.job.name.clone(),
                disk: step.disk.label.clone(),
                repeats: vec![Repeat::of(&results)],
                results,
                target_cores: cores,
                missed: None,
                group: self.stages,
                written: None,
            });
        }
        if self.trouble.is_none() {
            found.iter().for_each(|run| self.warnings.machine(run));
            parts.iter().for_each(|step| self.warnings.disk(step.disk));
        }
        // Partial results are shown if they contain any request.
        let all =
            |run: &Run| run.results.aggregate.total.ios + run.results.aggregate.errors.total();
        let nothing = found.iter().all(|run| all(run) == 0);
        (self.trouble.is_none() || !nothing).then_some(found)
    }

    /// Whether the measurements have ended early.
    pub(crate) fn is_over(&self) -> bool {
        self.trouble.is_some()
    }

    /// Adds the generator's limit (if `headroom` is set) and the warnings to a report.
    fn complete(&mut self, report: &mut Report, headroom: bool) {
        if headroom {
            report.notes.extend(self.headroom(&report.runs));
        }
        self.bar.finish();
        for run in &report.runs {
            self.warnings.figures(run);
        }
        report
            .warnings
            .extend(self.warnings.sentences(&report.runs));
    }

    /// Ends without results, with the reason.
    pub(crate) fn nothing(self) -> Result<ExitCode, Failure> {
        self.bar.finish();
        self.trouble.map_or(Ok(ExitCode::SUCCESS), Err)
    }

    /// Completes the report, prints and writes it, and returns the exit code.
    pub(crate) fn finish(mut self, mut report: Report) -> Result<ExitCode, Failure> {
        if report.runs.is_empty() && self.is_over() {
            return self.nothing();
        }
        self.complete(&mut report, true);
        self.incomplete(&mut report);
        publish(&report, self.args.report.as_deref(), self.args.output)?;
        Ok(self.exit())
    }

    /// [`Self::finish`] for a command with its own text output, which replaces the report's text.
    pub(crate) fn finish_as(self, text: &str, report: Report) -> Result<ExitCode, Failure> {
        if self.args.output == Format::Json {
            return self.finish(report);
        }
        print(text)?;
        self.end(report)
    }

    /// Adds the warnings to a report, and the generator's limit after runs of a second and more.
    pub(crate) fn assess(&mut self, report: &mut Report) {
        let headroom = self.args.report.is_some() || is_long_enough(&report.runs);
        self.complete(report, headroom);
    }

    /// [`Self::finish`] after the results were printed. Prints additional notes and warnings.
    fn end(mut self, mut report: Report) -> Result<ExitCode, Failure> {
        let known = report.notes.len();
        self.assess(&mut report);
        self.end_assessed(report, known)
    }

    /// [`Self::finish`] after the results were printed and assessed. Prints the warnings, and the
    /// notes behind the first `known`.
    pub(crate) fn end_assessed(
        self,
        mut report: Report,
        known: usize,
    ) -> Result<ExitCode, Failure> {
        for note in &report.notes[known..] {
            say(note);
        }
        for warning in &report.warnings {
            say(format_args!("warning: {warning}"));
        }
        self.incomplete(&mut report);
        write(&report, self.args.report.as_deref())?;
        Ok(self.exit())
    }

    fn incomplete(&self, report: &mut Report) {
        if let Some(trouble) = &self.trouble {
            let sentence = format!("not complete: {trouble}");
            report.warnings.insert(0, sentence);
        }
    }

    /// Reports the trouble, if any, and returns the exit code.
    pub(crate) fn exit(self) -> ExitCode {
        self.bar.finish();
        self.trouble
            .map_or(ExitCode::SUCCESS, |trouble| trouble.report())
    }
}

fn open(opener: &Opener, uri: &str) -> Result<Disk, Failure> {
    let shown = without_secrets(uri);
    Ok(Disk {
        label: shown.clone(),
        uri: shown,
        device: opener.open_for_load(uri, false)?,
        files: Vec::new(),
        via: None,
        around_cache: "leave direct=off out",
    })
}

/// The disk's file, if it has the name of one that a report in this folder may contain.
fn replaced(folder: &Path, disk: &Disk) -> Option<PathBuf> {
    let kinds = ["html", "json", "csv", "svg"];
    let is_ours = |path: &PathBuf| {
        let kind = path.extension().and_then(|kind| kind.to_str());
        kind.is_some_and(|kind| kinds.contains(&kind))
    };
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut files = entries.map(|entry| entry.path()).filter(is_ours);
    files.find(|path| disk.is_file(path))
}

/// The run with the median repeat, or with the last one, and the figures of all repeats.
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

/// Whether a target has to be reached to open a disk.
fn is_remote(uri: &str) -> bool {
    let spec = Spec::parse(uri);
    spec.is_ok_and(|spec| {
        matches!(
            spec.disk,
            spec::Disk::Remote(_) | spec::Disk::Multipath { .. }
        )
    })
}

/// The failure of a run on the disk `name`.
pub(crate) fn run_failure(name: &str, error: &RunError) -> Failure {
    let kind = match error {
        RunError::Job(_) => Kind::Usage,
        RunError::Start(_) | RunError::Lost(_) => Kind::Io,
    };
    Failure::new(kind, format!("{name}: {error}"))
}
