//! Latencies that change the job: a limit that ends it (`max_latency`), and a target to which the
//! depth is adjusted (`latency_target`).

use std::time::Duration;

use fabrix_rt::{Shard, topology};

use super::Worker;
use super::lifecycle::JobPhase;
use crate::job::Job;
use crate::search::{Search, SearchEnd, Step};

/// State of a job whose latencies are watched.
pub(super) struct Watch {
    /// Longest latency of reads, writes and trims in nanoseconds. [`u64::MAX`]: no limit.
    most_ns: [u64; 3],
    search: Option<Search>,
}

impl Watch {
    /// None if no latency of the job is watched.
    pub(super) fn new(job: &Job) -> Option<Self> {
        let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let is_watched =
            job.latency_target.is_some() || job.max_latency.iter().any(Option::is_some);
        is_watched.then(|| Self {
            most_ns: job.max_latency.map(|most| most.map_or(u64::MAX, nanos)),
            search: job
                .latency_target
                .map(|target| Search::new(target, job.iodepth)),
        })
    }
}

impl Worker {
    /// Begins the search for the depth with the measurement.
    pub(super) fn begin_search(&mut self) {
        let now_ns = self.clock.now_ns();
        if let Some(search) = self.watch.as_mut().and_then(|watch| watch.search.as_mut()) {
            search.from_ns = now_ns;
            search.begin(now_ns);
            self.tally.search = Some(SearchEnd::Unfinished);
            self.adjust_depth();
        }
    }

    /// Keeps as many slots back as the depth of the search demands.
    fn adjust_depth(&mut self) {
        let search = self.watch.as_ref().and_then(|watch| watch.search.as_ref());
        let depth = search.map_or(self.setup.job.iodepth, |search| search.depth);
        self.tally.depth = depth;
        self.kept_back = (self.setup.job.iodepth - depth) as usize;
        while self.resting.len() < self.kept_back
            && let Some(slot) = self.idle.pop_back()
        {
            self.resting.push_back(slot);
        }
        self.free_resting();
    }

    /// Frees the slots that are not kept back.
    pub(super) fn free_resting(&mut self) {
        while self.resting.len() > self.kept_back
            && let Some(slot) = self.resting.pop_front()
        {
            self.idle.push_back(slot);
        }
    }

    /// Looks at the latency of a request that has ended. True: its slot is kept back.
    pub(super) fn watch_latency(&mut self, shard: &mut Shard, slot: u32) -> bool {
        let (now_ns, request) = (self.clock.now_ns(), &self.slots[slot as usize]);
        let (direction, start_ns) = (request.access.direction, request.start_ns);
        let Some(watch) = self.watch.as_mut().filter(|_| self.lifecycle.counts) else {
            return false;
        };
        let latency_ns = now_ns.saturating_sub(start_ns);
        let most_ns = watch.most_ns[direction.index()];
        if latency_ns > most_ns {
            let (took, most) = (
                Duration::from_nanos(latency_ns),
                Duration::from_nanos(most_ns),
            );
            let why = format!(
                "a {} took {took:?}, more than max_latency={most:?}",
                direction.word()
            );
            self.end_early(shard, why);
            return false;
        }
        let is_measured = matches!(self.lifecycle.phase, JobPhase::Measure { .. });
        // Requests that started before the window had another depth.
        let search = watch
            .search
            .as_mut()
            .filter(|search| is_measured && start_ns >= search.begun_ns);
        let (step, has_missed, from_ns) = search.map_or((Step::Same, false, now_ns), |search| {
            let step = search.count(latency_ns, now_ns);
            (step, search.has_missed, search.from_ns)
        });
        match step {
            Step::Same => {}
            Step::Window => {
                self.tally.search = Some(match has_missed {
                    true => SearchEnd::Missed,
                    false => SearchEnd::Unfinished,
                });
                self.adjust_depth();
            }
            Step::Last => {
                let took = Duration::from_nanos(now_ns.saturating_sub(from_ns));
                self.tally.search = Some(SearchEnd::Found(took));
                self.tally.begin_measuring();
                self.lifecycle.measured_from_ns = Some(now_ns);
                self.lifecycle.cpu_from = topology::thread_cpu_time();
                self.adjust_depth();
            }
            Step::Found => self.drain(shard),
            Step::Missed => {
                self.tally.search = Some(SearchEnd::Missed);
                let took = Duration::from_nanos(latency_ns);
                let why = format!(
                    "a {} alone took {took:?}, more than latency_target; raise it, or write latency_percentile=99",
                    direction.word()
                );
                self.end_early(shard, why);
            }
        }
        let is_kept_back = self.resting.len() < self.kept_back;
        if is_kept_back {
            self.resting.push_back(slot);
        }
        is_kept_back
    }
}
