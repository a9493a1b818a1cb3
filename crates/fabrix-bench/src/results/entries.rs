//! Other views of results: several runs as one, and one job of a run alone.

use std::sync::Arc;

use super::{Results, Tally, cores};
use crate::series::Point;

/// The counters behind results, with whole histograms. Results from elsewhere have none.
#[derive(Clone, Debug, Default)]
pub struct Recorded(pub(crate) Option<Arc<Tally>>);

impl Results {
    /// Several runs as one (fio's `group_reporting`). The histograms are added, so that percentiles
    /// are those of all requests. The measured time is that from the first start to the last end.
    /// The description of the job is the first one's, with the number of all jobs.
    ///
    /// None without runs.
    pub fn joined(all: &[&Self]) -> Option<Self> {
        let (first, others) = all.split_first()?;
        let mut joined = (*first).clone();
        let mut sum = joined.recorded.0.as_deref().cloned();
        for other in others {
            joined.job.numjobs += other.job.numjobs;
            joined.jobs.extend(other.jobs.iter().cloned());
            joined.others.push(other.job.clone());
            joined.cpu.job_cores += other.cpu.job_cores;
            add_series(&mut joined.series, &other.series);
            if let (Some(sum), Some(more)) = (&mut sum, &other.recorded.0) {
                sum.add(more);
            }
        }
        if let Some(sum) = sum {
            joined.aggregate = sum.result(&joined.job.percentiles);
            joined.recorded = Recorded(Some(Arc::new(sum)));
        }
        Some(joined)
    }

    /// One of the run's jobs alone. Readings over time exist for the whole run only.
    pub fn alone(&self, index: usize) -> Option<Self> {
        let job = self.jobs.get(index)?;
        let mut cpu = self.cpu;
        cpu.job_cores = cores(job.cpu_time, job.total.runtime_ns, cpu.window);
        Some(Self {
            job: self.job.clone(),
            others: Vec::new(),
            jobs: vec![job.clone()],
            aggregate: job.clone(),
            cpu,
            series: Vec::new(),
            steady: None,
            recorded: Recorded::default(),
        })
    }
}

/// Adds points to those with the same place.
fn add_series(sum: &mut Vec<Point>, more: &[Point]) {
    let known = sum.len().min(more.len());
    for (mine, theirs) in sum.iter_mut().zip(more) {
        let sides = mine.sides.iter_mut().zip(theirs.sides);
        sides.for_each(|(mine, theirs)| mine.add(theirs));
    }
    sum.extend_from_slice(&more[known..]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::Job;

    /// Results of one job, which recorded `count` latencies of `ns`.
    fn results(count: u64, ns: u64) -> Results {
        let mut tally = Tally::new(false, false);
        (tally.runtime_ns, tally.until_ns) = (count * 1000, count * 1000);
        for _ in 0..count {
            tally.sides[0].ios += 1;
            tally.sides[0].service.record(ns);
        }
        let one = tally.result(&[50.0, 99.0]);
        Results {
            job: Job {
                percentiles: vec![50.0, 99.0],
                ..Job::default()
            },
            others: Vec::new(),
            jobs: vec![one.clone()],
            aggregate: one,
            cpu: crate::cpu::Cpu::default(),
            series: vec![Point::default(); 2],
            steady: None,
            recorded: Recorded(Some(Arc::new(tally))),
        }
    }

    #[test]
    fn percentiles_of_joined_runs_are_those_of_all_requests() {
        let (fast, slow) = (results(90, 100), results(10, 900));
        let joined = Results::joined(&[&fast, &slow]).expect("two runs");
        let read = &joined.aggregate.read;
        assert_eq!(
            (read.ios, joined.job.numjobs, joined.jobs.len()),
            (100, 2, 2)
        );
        assert_eq!(read.service.percentile_ns(50.0), Some(100));
        assert_eq!(read.service.percentile_ns(99.0), Some(900));
        assert_eq!(read.runtime_ns, 90_000, "the longest");
        assert!((read.service.mean_ns - 180.0).abs() < 1e-9);
        assert_eq!(joined.alone(1).map(|one| one.aggregate.read.ios), Some(10));
    }
}
