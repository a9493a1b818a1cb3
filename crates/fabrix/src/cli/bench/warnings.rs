//! Warnings about possibly wrong measurements: other programs, the hypervisor, heat, the page
//! cache, or the load generator.
//!
//! They are collected during the measurements, once per reason, and printed at the end.

use fabrix_bench::Counted;
use fabrix_block::Spec;
use fabrix_block::spec::Disk as SpecDisk;
use fabrix_rt::SpinPolicy;

use super::disk::Disk;
use crate::report;
use crate::report::host::Reading;
use crate::report::number::{grouped, time};
use crate::report::sheet::Run;

/// Warnings of one command.
#[derive(Clone)]
pub(in crate::cli) struct Warnings {
    begun: Reading,
    spin: SpinPolicy,
    /// Reasons with their sentences.
    found: Vec<(Reason, String)>,
}

/// A reason, reported only once.
#[derive(Clone, PartialEq, Eq)]
enum Reason {
    Neighbour,
    Limit,
    /// The run with this name.
    Load(String),
    /// The run with this name.
    Tail(String),
    Depth,
    /// The disk with this URI.
    Cache(String),
}

impl Warnings {
    /// Starts the observation.
    pub(in crate::cli) fn begin(spin: SpinPolicy) -> Self {
        Self {
            begun: Reading::take(),
            spin,
            found: Vec::new(),
        }
    }

    /// Checks the figures of a run that is reported.
    pub(in crate::cli) fn figures(&mut self, run: &Run) {
        self.load(run);
        self.tail(run);
        self.depth(run);
    }

    /// Checks the machine during a run, which need not be reported.
    pub(in crate::cli) fn machine(&mut self, run: &Run) {
        let cpu = &run.results.cpu;
        let others = cpu.machine_cores - cpu.user_cores - cpu.system_cores;
        let local = run.target_cores.is_some() || !run.disk.contains("://");
        if local && others > OTHERS_MOST {
            self.add(Reason::Neighbour, || {
                let name = &run.name;
                format!(
                    "other programs kept {others:.1} cores busy during `{name}`: a noisy neighbour"
                )
            });
        }
    }

    /// Checks whether the offered load was reached.
    fn load(&mut self, run: &Run) {
        let (job, total) = (&run.results.job, &run.results.aggregate.total);
        let Some(iops) = job.offered_iops() else {
            return;
        };
        let offered = iops * f64::from(job.numjobs);
        let planned = offered * total.runtime_ns as f64 / 1e9;
        // Poisson arrivals deviate by the square root of their number.
        let fewest = planned * LOAD_LEAST - 3.0 * planned.sqrt();
        if (total.ios as f64) < fewest {
            self.add(Reason::Load(run.name.clone()), || {
                format!(
                    "`{}` reached {} of the {} IOPS that were offered; its latencies contain the waiting \
                     for the disk or for a free place of iodepth={}",
                    run.name,
                    grouped(total.iops),
                    grouped(offered),
                    job.iodepth
                )
            });
        }
    }

    /// Checks whether a closed loop reached its depth.
    fn depth(&mut self, run: &Run) {
        let (job, all) = (&run.results.job, &run.results.aggregate);
        let is_free = !job.is_open_loop() && job.bursts.is_none() && job.flushes.every == 0;
        let is_long = all.total.ios > u64::from(job.iodepth) * DEPTHS_LEAST;
        let most = all.depths.most().filter(|most| *most < job.iodepth);
        if let (true, true, Some(most)) = (is_free, is_long, most) {
            self.add(Reason::Depth, || {
                format!(
                    "`{}` never had more than {} in flight, although iodepth={}: the disk answers before the next \
                     request starts",
                    run.name,
                    Counted(most.into(), "request"),
                    job.iodepth
                )
            });
        }
    }

    /// Explains a mean latency above the 99th percentile.
    fn tail(&mut self, run: &Run) {
        let latency = &run.results.aggregate.total.latency;
        let Some(p99) = latency.percentile_ns(99.0).map(|ns| ns as f64) else {
            return;
        };
        let (mean, shown) = (time(latency.mean_ns), time(p99));
        if latency.mean_ns > p99 && mean != shown {
            self.add(Reason::Tail(run.name.clone()), || {
                format!(
                    "the mean latency of `{}`, {mean}, is above its 99th percentile, {shown}: a few requests took up \
                     to {}",
                    run.name,
                    time(latency.max_ns as f64)
                )
            });
        }
    }

    /// Checks a measured disk: data in the page cache is read from memory.
    pub(super) fn disk(&mut self, disk: &Disk) {
        let cached = Spec::parse(&disk.uri).is_ok_and(|spec| is_cached(&spec));
        if cached && report::host::has_room(disk.device.geometry().bytes()) {
            self.add(Reason::Cache(disk.uri.clone()), || {
                format!(
                    "{} goes through the page cache (direct=off), and memory has room for all of it: figures may be \
                     those of memory; leave direct=off out, or write direct=1 in a job",
                    disk.uri
                )
            });
        }
    }

    /// Checks whether a run came close to the generator's limit, which is `most` IOPS on a null
    /// disk.
    pub(super) fn headroom(&mut self, name: &str, iops: f64, most: f64) {
        if iops > most * HEADROOM_LEAST {
            self.add(Reason::Limit, || {
                let iops = grouped(iops);
                format!(
                    "the load generator is the limit: it makes {} IOPS on a disk that costs nothing, and \
                     `{name}` had {iops}",
                    grouped(most)
                )
            });
        }
    }

    fn add(&mut self, reason: Reason, sentence: impl FnOnce() -> String) {
        if !self.found.iter().any(|(known, _)| *known == reason) {
            self.found.push((reason, sentence()));
        }
    }

    /// All warnings, including those known only at the end.
    pub(in crate::cli) fn sentences(&self, runs: &[Run]) -> Vec<String> {
        let found = self.found.iter().map(|(_, sentence)| sentence.clone());
        let spins = self.spin == SpinPolicy::Always && !runs.is_empty();
        found
            .chain(spins.then(|| SPINS.to_owned()))
            .chain(Reading::take().doubts(&self.begun))
            .chain(unsteady(runs))
            .collect()
    }
}

/// A sentence about the run with the largest spread of its repeats.
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

/// Whether a disk or a member of it uses the page cache.
fn is_cached(spec: &Spec) -> bool {
    match &spec.disk {
        SpecDisk::File { direct, .. } => !direct,
        SpecDisk::Raid0 { members, .. } => members.iter().any(is_cached),
        SpecDisk::Ram { .. } | SpecDisk::Null { .. } | SpecDisk::Remote(_) => false,
    }
}

const SPINS: &str = "the generator spins (--spin always): it keeps its processors busy whatever it does, and CPU \
                     figures say nothing about the work";
/// Requests of a closed loop, in multiples of its depth, after which the depth should be reached.
const DEPTHS_LEAST: u64 = 4;
/// Busy cores of other programs above which a warning is given.
const OTHERS_MOST: f64 = 0.25;
/// Fraction of the offered load below which a warning is given.
const LOAD_LEAST: f64 = 0.98;
/// Fraction of the generator's limit above which a run says more about the generator than about the
/// disk.
const HEADROOM_LEAST: f64 = 0.7;
/// Spread of repeats, in percent of the median, above which a warning is given.
const SPREAD_MOST: f64 = 20.0;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample;
    use crate::report::sheet::Repeat;

    /// A run whose repeats have the given IOPS, while other programs keep `others` cores busy.
    fn run(iops: &[f64], others: f64) -> Run {
        let mut results = sample::results();
        let cpu = &mut results.cpu;
        cpu.machine_cores = cpu.user_cores + cpu.system_cores + others;
        let repeat = |iops: &f64| Repeat {
            iops: *iops,
            ..Repeat::default()
        };
        Run {
            name: "job".into(),
            disk: "ram:1G".into(),
            repeats: iops.iter().map(repeat).collect(),
            results,
            target_cores: None,
            group: 0,
            written: None,
        }
    }

    /// Warnings about these runs, without those about the machine itself.
    fn doubted(spin: SpinPolicy, runs: &[Run], most: f64) -> Vec<String> {
        let mut doubts = Warnings::begin(spin);
        for run in runs {
            doubts.figures(run);
            doubts.machine(run);
            doubts.headroom(&run.name, run.iops(), most);
        }
        let machine = ["hypervisor", "too hot"];
        let mut sentences = doubts.sentences(runs);
        sentences.retain(|sentence| !machine.iter().any(|word| sentence.contains(word)));
        sentences
    }

    #[test]
    fn a_quiet_run_far_from_the_limit_is_not_doubted() {
        let runs = [run(&[100.0, 101.0, 102.0], 0.1)];
        let doubts = doubted(SpinPolicy::default(), &runs, 1000.0);
        assert!(doubts.is_empty(), "{doubts:?}");
    }

    #[test]
    fn each_doubt_is_said_once() {
        let runs = [run(&[100.0], 0.9), run(&[100.0, 130.0, 160.0], 0.9)];
        let doubts = doubted(SpinPolicy::Always, &runs, 110.0);
        let parts = [
            "a noisy neighbour",
            "the load generator is the limit",
            "the generator spins",
            "lie 46 % apart",
        ];
        assert_eq!(doubts.len(), parts.len(), "{doubts:?}");
        for (warning, part) in doubts.iter().zip(parts) {
            assert!(warning.contains(part), "{part}: {doubts:?}");
        }
    }

    #[test]
    fn an_offered_load_that_was_not_reached_is_said() {
        let mut one = run(&[100.0], 0.0);
        let ios = one.results.aggregate.total.ios;
        let rate = |iops| {
            let pacing = fabrix_bench::arrivals::Pacing::Poisson;
            Some(fabrix_bench::arrivals::Rate { iops, pacing })
        };
        let reached = one.results.aggregate.total.iops;
        assert!(ios > 0 && reached > 1.0, "the sample has requests");
        for (offered, doubts) in [(reached * 0.99, 0), (reached * 1.5, 1)] {
            one.results.job.rate = rate(offered);
            let found = doubted(SpinPolicy::default(), std::slice::from_ref(&one), 1e9);
            assert_eq!(found.len(), doubts, "{offered}: {found:?}");
        }
    }

    #[test]
    fn a_mean_above_the_99th_percentile_is_explained() {
        let mut one = run(&[100.0], 0.0);
        one.results.aggregate.total.latency.mean_ns = 1e9;
        let found = doubted(SpinPolicy::default(), &[one], 1e9);
        assert!(found[0].contains("above its 99th percentile"), "{found:?}");
    }

    #[test]
    fn others_beside_a_remote_disk_may_be_its_target() {
        let mut remote = run(&[100.0], 0.9);
        remote.disk = "nvme+tcp://192.0.2.1".into();
        let doubts = doubted(SpinPolicy::default(), std::slice::from_ref(&remote), 1000.0);
        assert!(doubts.is_empty(), "{doubts:?}");
        remote.target_cores = Some(0.5);
        let doubts = doubted(SpinPolicy::default(), &[remote], 1000.0);
        assert_eq!(
            doubts.len(),
            1,
            "a target in this process is no other program"
        );
    }

    #[test]
    fn a_disk_is_cached_when_a_part_of_it_is() {
        for (text, cached) in [
            ("/a/file", false),
            ("/a/file,direct=off", true),
            ("raid0:(ram:1M,/a/file,direct=off)", true),
            ("ram:1M", false),
        ] {
            let spec = Spec::parse(text);
            assert_eq!(spec.map(|spec| is_cached(&spec)), Ok(cached), "{text}");
        }
    }
}
