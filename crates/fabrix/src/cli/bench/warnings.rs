//! Warnings about possibly wrong measurements: other programs, the hypervisor, heat, the page
//! cache, or the load generator.
//!
//! They are collected during the measurements and printed at the end. Each reason is one sentence,
//! which names the runs that it concerns.

use std::time::Duration;

use fabrix_bench::Counted;
use fabrix_bench::search::SearchEnd;
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
    /// Whether runs of one name are jobs of one section, each with a disk of its own.
    joins_names: bool,
    found: Vec<Found>,
    /// Number of runs during which the machine was checked.
    checked: usize,
}

/// A reason with all runs or disks that it concerns: one sentence.
#[derive(Clone)]
struct Found {
    reason: Reason,
    subjects: Vec<Subject>,
}

/// A reason to doubt figures.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reason {
    Neighbour,
    Limit,
    Load,
    Tail,
    Depth,
    Target,
    /// Files in the page cache, with the way around it.
    Cache(&'static str),
}

/// A run or a disk with a reason.
#[derive(Clone)]
struct Subject {
    name: String,
    /// Labels of the disks of the runs with this name. Several: runs of one section.
    disks: Vec<String>,
    /// The figures in doubt.
    figures: String,
}

impl Warnings {
    /// Starts the observation.
    pub(in crate::cli) fn begin(spin: SpinPolicy) -> Self {
        Self {
            begun: Reading::take(),
            spin,
            joins_names: false,
            found: Vec::new(),
            checked: 0,
        }
    }

    /// Counts runs of one name as jobs of one section from now on, instead of naming each.
    pub(super) fn join_names(&mut self) {
        self.joins_names = true;
    }

    /// Checks the figures of a run that is reported.
    pub(in crate::cli) fn figures(&mut self, run: &Run) {
        self.load(run);
        self.tail(run);
        self.depth(run);
        self.target(run);
    }

    /// Checks the machine during a run, which need not be reported.
    pub(in crate::cli) fn machine(&mut self, run: &Run) {
        self.checked += 1;
        let cpu = &run.results.cpu;
        let others = cpu.machine_cores - cpu.user_cores - cpu.system_cores;
        let local = run.target_cores.is_some() || !run.disk.contains("://");
        let known = cpu.window >= WINDOW_LEAST;
        if local && known && others > OTHERS_MOST {
            self.add_run(Reason::Neighbour, run, format!("{others:.1} cores"));
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
            let figures = format!(
                "{} of the {} IOPS that were offered, iodepth={}",
                grouped(total.iops),
                grouped(offered),
                job.iodepth
            );
            self.add_run(Reason::Load, run, figures);
        }
    }

    /// Checks whether a closed loop reached its depth.
    fn depth(&mut self, run: &Run) {
        let (job, all) = (&run.results.job, &run.results.aggregate);
        let is_free = !job.is_open_loop()
            && job.bursts.is_none()
            && job.flow.is_none()
            && job.flushes.every == 0;
        let is_long = all.total.ios > u64::from(all.depth) * DEPTHS_LEAST;
        let most = all.depths.most().filter(|most| *most < all.depth);
        if let (true, true, Some(most)) = (is_free, is_long, most) {
            let most = Counted(most.into(), "request");
            let word = job.latency_target.map_or("iodepth", |_| "depth");
            let figures = format!("{most} of {word}={}", all.depth);
            self.add_run(Reason::Depth, run, figures);
        }
    }

    /// Checks whether a search found a depth that keeps its target.
    fn target(&mut self, run: &Run) {
        let (results, search) = (&run.results, run.results.aggregate.search);
        if let (Some(target), Some(SearchEnd::Missed)) = (results.job.latency_target, search) {
            let most = time(target.target.as_secs_f64() * 1e9);
            let figures = format!("{} % within {most}", target.percentile);
            self.add_run(Reason::Target, run, figures);
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
            let longest = time(latency.max_ns as f64);
            let figures = format!("mean {mean}, p99 {shown}, longest {longest}");
            self.add_run(Reason::Tail, run, figures);
        }
    }

    /// Checks a measured disk: data in the page cache is read from memory.
    pub(super) fn disk(&mut self, disk: &Disk) {
        let cached = Spec::parse(&disk.uri).is_ok_and(|spec| is_cached(&spec));
        if cached && report::host::has_room(disk.device.geometry().bytes()) {
            let subject = Subject {
                name: disk.label.clone(),
                disks: vec![String::new()],
                figures: String::new(),
            };
            self.add(Reason::Cache(disk.around_cache), subject);
        }
    }

    /// Checks whether a run came close to the generator's limit, which is `most` IOPS on a null
    /// disk.
    pub(super) fn headroom(&mut self, run: &Run, iops: f64, most: f64) {
        if iops > most * HEADROOM_LEAST {
            let figures = format!(
                "{} of {} IOPS on a disk that costs nothing",
                grouped(iops),
                grouped(most)
            );
            self.add_run(Reason::Limit, run, figures);
        }
    }

    fn add_run(&mut self, reason: Reason, run: &Run, figures: String) {
        let subject = Subject {
            name: format!("`{}`", run.name),
            disks: vec![run.disk.clone()],
            figures,
        };
        self.add(reason, subject);
    }

    /// Adds a run or a disk to a reason, unless it is known: repeats are named once. A run of a
    /// known section is counted.
    fn add(&mut self, reason: Reason, subject: Subject) {
        let at = self.found.iter().position(|found| found.reason == reason);
        let at = at.unwrap_or_else(|| {
            let subjects = Vec::new();
            self.found.push(Found { reason, subjects });
            self.found.len() - 1
        });
        let subjects = &mut self.found[at].subjects;
        let joins = self.joins_names;
        let is_it =
            |one: &&mut Subject| one.name == subject.name && (joins || one.disks == subject.disks);
        match subjects.iter_mut().find(is_it) {
            None => subjects.push(subject),
            Some(known) if !known.disks.contains(&subject.disks[0]) => {
                known.disks.extend(subject.disks);
            }
            Some(_) => {}
        }
    }

    /// All warnings, including those known only at the end.
    pub(in crate::cli) fn sentences(&self, runs: &[Run]) -> Vec<String> {
        let found = self.found.iter().map(|found| found.sentence(self.checked));
        let spins = self.spin == SpinPolicy::Always && !runs.is_empty();
        found
            .chain(spins.then(|| SPINS.to_owned()))
            .chain(Reading::take().doubts(&self.begun))
            .chain(unsteady(runs))
            .collect()
    }
}

impl Found {
    /// `checked` is the number of all runs.
    fn sentence(&self, checked: usize) -> String {
        let doubted = self.subjects.len();
        let named = self.named();
        match self.reason {
            Reason::Neighbour if doubted > NAMED_MOST && doubted * 2 > checked => {
                format!(
                    "other programs kept processors busy during {doubted} of {checked} runs: measure again on an idle \
                     machine"
                )
            }
            Reason::Neighbour => {
                format!("other programs kept processors busy during {named}: a noisy neighbour")
            }
            Reason::Limit => format!("the load generator is the limit: {named}"),
            Reason::Load => format!(
                "the offered load was not reached by {named}: latencies contain the waiting for the disk or for a \
                 free place of iodepth"
            ),
            Reason::Tail => format!(
                "the mean latency is above its 99th percentile, because a few requests took very long: {named}"
            ),
            Reason::Depth => format!(
                "iodepth was never reached, because the disk answers before the next request starts: at most {named}"
            ),
            Reason::Target => format!(
                "no depth keeps latency_target, because a single request in flight misses it: {named}"
            ),
            Reason::Cache(around) => format!(
                "the page cache serves {named}, and memory has room for all of it: figures may be those of memory; \
                 {around}"
            ),
        }
    }

    /// The first runs or disks with their figures, and the number of the others. Runs have the
    /// names of their disks where these differ.
    fn named(&self) -> String {
        let several = self
            .subjects
            .iter()
            .any(|one| one.disks != self.subjects[0].disks);
        let part = |one: &Subject| {
            let Subject {
                name,
                disks,
                figures,
            } = one;
            let disk = match &disks[..] {
                [disk] if several => format!(" on {disk}"),
                [_] => String::new(),
                _ => {
                    return format!("{name} ({} jobs, the first: {figures})", disks.len());
                }
            };
            match figures.is_empty() {
                true => format!("{name}{disk}"),
                false => format!("{name}{disk} ({figures})"),
            }
        };
        let parts: Vec<String> = self.subjects.iter().take(NAMED_MOST).map(part).collect();
        let others = self.subjects.len() - parts.len();
        match others {
            0 => parts.join(", "),
            _ => format!("{} and {others} more", parts.join(", ")),
        }
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
        _ => false,
    }
}

const SPINS: &str = "the generator spins (--spin always): it keeps its processors busy whatever it does, and CPU \
                     figures say nothing about the work";
/// Requests of a closed loop, in multiples of its depth, after which the depth should be reached.
const DEPTHS_LEAST: u64 = 4;
/// Measured time below which the kernel's ticks of 10 ms tell nothing about other programs.
const WINDOW_LEAST: Duration = Duration::from_millis(100);
/// Busy cores of other programs above which a warning is given.
const OTHERS_MOST: f64 = 0.25;
/// Fraction of the offered load below which a warning is given.
const LOAD_LEAST: f64 = 0.98;
/// Fraction of the generator's limit above which a run says more about the generator than about the
/// disk.
const HEADROOM_LEAST: f64 = 0.7;
/// Runs or disks that a warning names: a line or two of a terminal.
const NAMED_MOST: usize = 5;
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
            missed: None,
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
            doubts.headroom(run, run.iops(), most);
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
            "during `job` (0.9 cores): a noisy neighbour",
            "the load generator is the limit: `job` (100 of 110 IOPS",
            "the generator spins",
            "lie 46 % apart",
        ];
        assert_eq!(doubts.len(), parts.len(), "{doubts:?}");
        for (warning, part) in doubts.iter().zip(parts) {
            assert!(warning.contains(part), "{part}: {doubts:?}");
        }
    }

    #[test]
    fn a_doubt_names_the_first_runs_and_counts_the_others() {
        let mut runs = vec![run(&[100.0], 0.4); 7];
        for (number, run) in runs.iter_mut().enumerate() {
            run.name = format!("job{number}");
        }
        let repeated = runs[0].clone();
        runs.push(repeated);
        let most = "other programs kept processors busy during 7 of 8 runs: measure again on an idle machine";
        assert_eq!(doubted(SpinPolicy::default(), &runs, 1000.0), [most]);
        runs.extend(vec![run(&[100.0], 0.0); 7]);
        let doubts = doubted(SpinPolicy::default(), &runs, 1000.0);
        let named: Vec<String> = (0..NAMED_MOST)
            .map(|number| format!("`job{number}` (0.4 cores)"))
            .collect();
        let named = named.join(", ");
        let expected = format!(
            "other programs kept processors busy during {named} and 2 more: a noisy neighbour"
        );
        assert_eq!(doubts, [expected]);
    }

    #[test]
    fn runs_of_one_name_are_told_apart_by_their_disks() {
        let mut runs = vec![run(&[100.0], 0.4); 2];
        runs[1].disk = "null:1G".into();
        let doubts = doubted(SpinPolicy::default(), &runs, 1000.0);
        let named = "`job` on ram:1G (0.4 cores), `job` on null:1G (0.4 cores)";
        assert!(doubts[0].contains(named), "{doubts:?}");
    }

    #[test]
    fn runs_of_one_section_are_counted() {
        let mut doubts = Warnings::begin(SpinPolicy::default());
        doubts.join_names();
        for number in [0, 1, 2, 2] {
            let mut one = run(&[100.0], 0.4);
            one.disk = format!("x.{number}.0");
            doubts.machine(&one);
        }
        let sentence = &doubts.sentences(&[])[0];
        let named = "during `job` (3 jobs, the first: 0.4 cores): a";
        assert!(sentence.contains(named), "{sentence}");
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
    fn a_few_ticks_are_no_doubt_about_others() {
        let mut short = run(&[100.0], 0.9);
        short.results.cpu.window = Duration::from_millis(20);
        let doubts = doubted(SpinPolicy::default(), &[short], 1000.0);
        assert!(doubts.is_empty(), "{doubts:?}");
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
