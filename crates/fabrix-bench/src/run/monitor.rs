//! Readings during a run: time, progress, rates and processor use.

use std::time::{Duration, Instant};

use super::{Part, Phase, Progress};
use crate::cpu::Snapshot;
use crate::latency::real;
use crate::results::{Results, Tally};
use crate::series::{Moved, Series};
use crate::steady::SteadyDetector;

/// State of the readings of a run.
pub(super) struct Monitor<'a> {
    pub(super) began: Instant,
    parts: Vec<PartMonitor<'a>>,
    /// Planned start and end of the measurement over all parts. A job that ends early shortens it.
    window: (Instant, Instant),
    /// CPU counters at the start and at the end of the measurement.
    cpu: (Option<Snapshot>, Option<Snapshot>),
    last_progress: (Instant, Moved),
}

/// Readings of one part.
struct PartMonitor<'a> {
    part: Part<'a>,
    series: Series,
    detector: Option<SteadyDetector>,
    steady: bool,
}

impl<'a> Monitor<'a> {
    pub(super) fn new(parts: &[Part<'a>]) -> Self {
        let began = Instant::now();
        let latest =
            |time: fn(&Part<'_>) -> Duration| parts.iter().map(time).max().unwrap_or_default();
        let ramp = latest(|part| part.job.ramp);
        let all = latest(|part| part.job.ramp + part.job.runtime);
        let monitor = |part: &Part<'a>| PartMonitor {
            part: *part,
            series: Series::default(),
            detector: part.job.steady.map(SteadyDetector::new),
            steady: false,
        };
        let mut monitor = Self {
            began,
            parts: parts.iter().map(monitor).collect(),
            window: (began + ramp, began + all),
            cpu: (None, None),
            last_progress: (began, Moved::default()),
        };
        monitor.sample(|_| [Moved::default(); 3]);
        monitor
    }

    /// Time of the next progress report or CPU reading.
    pub(super) fn next_reading(&self, next_progress: Instant) -> Instant {
        match &self.cpu {
            (None, _) => self.window.0.min(next_progress),
            (_, None) => self.window.1.min(next_progress),
            _ => next_progress,
        }
    }

    /// Reads the CPU counters at the start and at the end of the measurement.
    pub(super) fn sample(&mut self, counted: impl Fn(usize) -> [Moved; 3]) {
        let now = Instant::now();
        if self.cpu.0.is_none() && now >= self.window.0 {
            self.cpu.0 = Some(Snapshot::take());
            for (index, part) in self.parts.iter_mut().enumerate() {
                part.series.begin(counted(index));
            }
        }
        if self.cpu.1.is_none() && now >= self.window.1 {
            self.cpu.1 = Some(Snapshot::take());
            self.read_series(now, &counted);
        }
    }

    /// Adds a point to every series.
    fn read_series(&mut self, now: Instant, counted: &impl Fn(usize) -> [Moved; 3]) {
        let at = now.saturating_duration_since(self.window.0);
        for (index, part) in self.parts.iter_mut().enumerate() {
            let point = part.series.read(at, counted(index));
            if let Some(detector) = &mut part.detector {
                part.steady = part.steady || detector.read(&point);
            }
        }
    }

    /// Records that a job has ended. The first one that ends early also ends the measurement.
    pub(super) fn ended(&mut self) {
        self.window.1 = self.window.1.min(Instant::now());
    }

    /// Whether every part has a steady-state condition and has reached it.
    pub(super) fn is_steady(&self) -> bool {
        self.parts.iter().all(|part| part.steady)
    }

    pub(super) fn progress(
        &mut self,
        errors: u64,
        counted: impl Fn(usize) -> [Moved; 3],
    ) -> Progress {
        let now = Instant::now();
        if self.cpu.0.is_some() && self.cpu.1.is_none() {
            self.read_series(now, &counted);
        }
        let mut sum = Moved::default();
        (0..self.parts.len())
            .flat_map(&counted)
            .for_each(|side| sum.add(side));
        let (last_at, last) = std::mem::replace(&mut self.last_progress, (now, sum));
        let seconds = now.duration_since(last_at).as_secs_f64().max(1e-9);
        let moved = sum.since(last);
        let phase = match () {
            () if now < self.window.0 => Phase::Ramp,
            () if now < self.window.1 => Phase::Measuring,
            () => Phase::Finishing,
        };
        let planned = self
            .parts
            .iter()
            .map(|monitor| monitor.part.job.ramp + monitor.part.job.runtime);
        Progress {
            phase,
            elapsed: now.duration_since(self.began),
            planned: planned.max().unwrap_or_default(),
            ios: sum.ios,
            iops: real(moved.ios.into()) / seconds,
            bw_bytes: real(moved.bytes.into()) / seconds,
            errors,
        }
    }

    pub(super) fn results(self, tallies: &[Vec<Tally>]) -> Vec<Results> {
        let end = self.cpu.1.unwrap_or_else(Snapshot::take);
        let begin = self.cpu.0.unwrap_or_else(|| end.clone());
        let mut machine = end.since(&begin);
        machine.contain(tallies.iter().flatten().map(Tally::cores).sum());
        let result = |(monitor, tallies): (PartMonitor<'_>, &Vec<Tally>)| {
            let job = monitor.part.job;
            let mut sum = Tally::new(job.rate.is_some(), job.verify.is_some());
            tallies.iter().for_each(|tally| sum.add(tally));
            let mut cpu = machine;
            cpu.job_cores = tallies.iter().map(Tally::cores).sum();
            Results {
                job: job.clone(),
                jobs: tallies
                    .iter()
                    .map(|tally| tally.result(&job.percentiles))
                    .collect(),
                aggregate: sum.result(&job.percentiles),
                cpu,
                series: monitor.series.points(),
                steady: monitor.detector.map(|detector| detector.attained()),
            }
        };
        self.parts.into_iter().zip(tallies).map(result).collect()
    }
}
