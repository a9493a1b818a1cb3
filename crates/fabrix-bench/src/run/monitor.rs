//! Time, progress, rates and processor use of a run: everything that is read while the threads
//! work.

use std::time::{Duration, Instant};

use super::{Part, Phase, Progress};
use crate::cpu::Snapshot;
use crate::latency::real;
use crate::results::{Results, Tally};
use crate::series::{Moved, Series};
use crate::steady::Judge;

/// What is known of a run while it lasts.
pub(super) struct Watch<'a> {
    pub(super) began: Instant,
    parts: Vec<PartWatch<'a>>,
    /// When measuring begins and ends, if nothing ends it before; of all parts.
    window: (Instant, Instant),
    /// CPU at the beginning and at the end of the measured time.
    cpu: (Option<Snapshot>, Option<Snapshot>),
    told: (Instant, u64, u64),
}

/// One part.
struct PartWatch<'a> {
    part: Part<'a>,
    series: Series,
    judge: Option<Judge>,
    steady: bool,
}

impl<'a> Watch<'a> {
    pub(super) fn new(parts: &[Part<'a>]) -> Self {
        let began = Instant::now();
        let latest =
            |time: fn(&Part<'_>) -> Duration| parts.iter().map(time).max().unwrap_or_default();
        let ramp = latest(|part| part.job.ramp);
        let all = latest(|part| part.job.ramp + part.job.runtime);
        let watch = |part: &Part<'a>| PartWatch {
            part: *part,
            series: Series::default(),
            judge: part.job.steady.map(Judge::new),
            steady: false,
        };
        let mut watch = Self {
            began,
            parts: parts.iter().map(watch).collect(),
            window: (began + ramp, began + all),
            cpu: (None, None),
            told: (began, 0, 0),
        };
        watch.sample(|_| [Moved::default(); 2]);
        watch
    }

    /// Until when nothing is to be done: the next progress or CPU sample.
    pub(super) fn wake(&self, next_progress: Instant) -> Instant {
        match &self.cpu {
            (None, _) => self.window.0.min(next_progress),
            (_, None) => self.window.1.min(next_progress),
            _ => next_progress,
        }
    }

    /// Reads the CPU counters when the measured time begins and when it ends.
    pub(super) fn sample(&mut self, counted: impl Fn(usize) -> [Moved; 2]) {
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

    /// One more point of every series, while the measured time lasts.
    fn read_series(&mut self, now: Instant, counted: &impl Fn(usize) -> [Moved; 2]) {
        let at = now.saturating_duration_since(self.window.0);
        for (index, part) in self.parts.iter_mut().enumerate() {
            let point = part.series.read(at, counted(index));
            if let Some(judge) = &mut part.judge {
                part.steady = part.steady || judge.read(&point);
            }
        }
    }

    /// A job has ended; when it is the first and before its time, the window ends here.
    pub(super) fn ended(&mut self) {
        self.window.1 = self.window.1.min(Instant::now());
    }

    /// Whether every part asked for a steady state and has reached it.
    pub(super) fn is_steady(&self) -> bool {
        self.parts.iter().all(|part| part.steady)
    }

    pub(super) fn progress(
        &mut self,
        errors: u64,
        counted: impl Fn(usize) -> [Moved; 2],
    ) -> Progress {
        let now = Instant::now();
        if self.cpu.0.is_some() && self.cpu.1.is_none() {
            self.read_series(now, &counted);
        }
        let mut sum = Moved::default();
        (0..self.parts.len())
            .flat_map(&counted)
            .for_each(|side| sum.add(side));
        let (told_at, told_ios, told_bytes) = self.told;
        let seconds = now.duration_since(told_at).as_secs_f64().max(1e-9);
        // The counters start over when measuring begins.
        let begun_anew = sum.ios < told_ios;
        let since = |now: u64, before: u64| {
            if begun_anew {
                now
            } else {
                now.saturating_sub(before)
            }
        };
        let (ios, bytes) = (since(sum.ios, told_ios), since(sum.bytes, told_bytes));
        self.told = (now, sum.ios, sum.bytes);
        let phase = match () {
            () if now < self.window.0 => Phase::Ramp,
            () if now < self.window.1 => Phase::Measuring,
            () => Phase::Finishing,
        };
        let planned = self
            .parts
            .iter()
            .map(|watch| watch.part.job.ramp + watch.part.job.runtime);
        Progress {
            phase,
            elapsed: now.duration_since(self.began),
            planned: planned.max().unwrap_or_default(),
            ios: sum.ios,
            iops: real(ios.into()) / seconds,
            bw_bytes: real(bytes.into()) / seconds,
            errors,
        }
    }

    pub(super) fn results(self, tallies: &[Vec<Tally>]) -> Vec<Results> {
        let end = self.cpu.1.unwrap_or_else(Snapshot::take);
        let begin = self.cpu.0.unwrap_or_else(|| end.clone());
        let machine = end.since(&begin);
        let result = |(watch, tallies): (PartWatch<'_>, &Vec<Tally>)| {
            let job = watch.part.job;
            let mut sum = Tally::new(job.rate.is_some(), job.verify);
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
                series: watch.series.points(),
                steady: watch.judge.map(|judge| judge.attained()),
            }
        };
        self.parts.into_iter().zip(tallies).map(result).collect()
    }
}
