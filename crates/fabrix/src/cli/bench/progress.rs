//! Progress bars on the terminal: one for a series of measurements, or one per measurement.

use std::time::Duration;

use fabrix_bench::{Job, Phase, Progress};
use indicatif::{ProgressBar, ProgressStyle};

use crate::report::number::grouped;

/// The progress display of a command.
pub(super) enum Bar {
    /// One bar for all measurements.
    All(ProgressBar),
    /// One bar per measurement, with its rates.
    Each,
}

/// The progress display of a running measurement.
pub(super) struct Shown<'a> {
    all: Option<&'a ProgressBar>,
    own: Option<ProgressBar>,
    job: &'a Job,
}

impl Bar {
    /// A bar for `steps` measurements.
    pub(super) fn all(steps: usize) -> Self {
        let bar = ProgressBar::new(steps as u64);
        if let Ok(style) = ProgressStyle::with_template("bench [{bar:30}] {pos}/{len} {msg}") {
            bar.set_style(style);
        }
        bar.enable_steady_tick(Duration::from_millis(200));
        Self::All(bar)
    }

    pub(super) fn hidden() -> Self {
        Self::All(ProgressBar::hidden())
    }

    /// Starts the display of a measurement.
    pub(super) fn begin<'a>(&'a self, job: &'a Job, disk: &str) -> Shown<'a> {
        match self {
            Self::All(bar) => {
                bar.set_message(format!("{}, {disk}", job.name));
                Shown {
                    all: Some(bar),
                    own: None,
                    job,
                }
            }
            Self::Each => Shown {
                all: None,
                own: Some(bar_of(job)),
                job,
            },
        }
    }

    pub(super) fn finish(&self) {
        if let Self::All(bar) = self {
            bar.finish_and_clear();
        }
    }
}

impl Shown<'_> {
    pub(super) fn show(&self, progress: &Progress) {
        let Some(bar) = &self.own else {
            return;
        };
        bar.set_position(match self.job.number_ios {
            Some(_) => progress.ios,
            None => millis(progress.elapsed),
        });
        let phase = match progress.phase {
            Phase::Ramp => "ramp",
            Phase::Measuring => "",
            Phase::Finishing => "finishing",
        };
        bar.set_message(format!(
            "{} IOPS, {:.1} MB/s {phase}",
            grouped(progress.iops),
            progress.bw_bytes / 1e6
        ));
    }

    pub(super) fn end(self) {
        if let Some(bar) = self.own {
            bar.finish_and_clear();
        }
        if let Some(bar) = self.all {
            bar.inc(1);
        }
    }
}

fn bar_of(job: &Job) -> ProgressBar {
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
