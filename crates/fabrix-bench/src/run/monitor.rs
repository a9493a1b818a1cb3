//! Readings during a run: time, progress, rates and processor use.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::starts::planned;
use super::{Part, Phase, Progress};
use crate::cpu::Snapshot;
use crate::latency::real;
use crate::results::{Recorded, Results, Tally};
use crate::series::{Moved, Series};
use crate::steady::SteadyDetector;

/// State of the readings of a run.
pub(super) struct Monitor<'a> {
    pub(super) began: Instant,
    parts: Vec<PartMonitor<'a>>,
    /// Planned start and end of the measurement over all parts.
    window: (Instant, Instant),
    /// End of the processor readings: the planned end, or that of the last job if it is earlier.
    cpu_end: Instant,
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
    /// Jobs that have not ended.
    jobs: u32,
    /// Whether the series has its last point.
    is_closed: bool,
}

impl<'a> Monitor<'a> {
    pub(super) fn new(parts: &[Part<'a>]) -> Self {
        let began = Instant::now();
        let latest =
            |time: fn(&Part<'_>) -> Duration| parts.iter().map(time).max().unwrap_or_default();
        let ramp = latest(|part| part.job.ramp);
        let all = planned(parts).into_iter().max().unwrap_or_default();
        let monitor = |part: &Part<'a>| PartMonitor {
            part: *part,
            series: Series::default(),
            detector: part.job.steady.map(SteadyDetector::new),
            steady: false,
            jobs: part.job.numjobs,
            is_closed: false,
        };
        let mut monitor = Self {
            began,
            parts: parts.iter().map(monitor).collect(),
            window: (began + ramp, began + all),
            cpu_end: began + all,
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
            (_, None) => self.cpu_end.min(next_progress),
            _ if Instant::now() < self.window.1 => self.window.1.min(next_progress),
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
        if self.cpu.1.is_none() && now >= self.cpu_end {
            self.cpu.1 = Some(Snapshot::take());
        }
        if now >= self.window.1 {
            self.read_series(now, &counted);
            self.parts.iter_mut().for_each(|part| part.is_closed = true);
        }
    }

    /// Adds a point to every series that is not closed.
    fn read_series(&mut self, now: Instant, counted: &impl Fn(usize) -> [Moved; 3]) {
        let at = now.saturating_duration_since(self.window.0);
        let parts = self.parts.iter_mut().enumerate();
        for (index, part) in parts.filter(|(_, part)| !part.is_closed) {
            let point = part.series.read(at, counted(index));
            if let Some(detector) = &mut part.detector {
                part.steady = part.steady || detector.read(&point);
            }
        }
    }

    /// Records that a job of a part has ended. The last one of a part ends its series, and the last
    /// one of all the processor readings.
    pub(super) fn ended(&mut self, index: usize, counted: impl Fn(usize) -> [Moved; 3]) {
        let now = Instant::now();
        self.parts[index].jobs -= 1;
        if self.parts.iter().all(|part| part.jobs == 0) {
            self.cpu_end = self.cpu_end.min(now);
        }
        let part = &mut self.parts[index];
        if part.jobs == 0 && !std::mem::replace(&mut part.is_closed, true) && self.cpu.0.is_some() {
            let at = now.saturating_duration_since(self.window.0);
            part.series.read(at, counted(index));
        }
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
        if self.cpu.0.is_some() {
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
        Progress {
            phase,
            elapsed: now.duration_since(self.began),
            planned: self.window.1.duration_since(self.began),
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
        let window = machine.window;
        let cores = |tally: &Tally| tally.cores(window);
        machine.contain(tallies.iter().flatten().map(cores).sum());
        let result = |(monitor, tallies): (PartMonitor<'_>, &Vec<Tally>)| {
            let job = monitor.part.job;
            let mut sum = Tally::new(job.is_open_loop(), job.verify.is_some());
            tallies.iter().for_each(|tally| sum.add(tally));
            let mut cpu = machine;
            cpu.job_cores = tallies.iter().map(cores).sum();
            Results {
                job: job.clone(),
                others: Vec::new(),
                jobs: tallies
                    .iter()
                    .map(|tally| tally.result(&job.percentiles))
                    .collect(),
                aggregate: sum.result(&job.percentiles),
                cpu,
                series: monitor.series.points(),
                steady: monitor.detector.map(|detector| detector.attained()),
                recorded: Recorded(Some(Arc::new(sum))),
            }
        };
        self.parts.into_iter().zip(tallies).map(result).collect()
    }
}
