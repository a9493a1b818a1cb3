//! Simulated worlds (`crates/fabrix-sim`): many seeds, on all processors.

mod planted;
mod prove;

use clap::builder::PossibleValuesParser;
use std::hash::{BuildHasher, RandomState};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use crate::process::{command, cores, output, run as run_program, side_by_side, target_folder};
use crate::programs;
use crate::summary::{Counts, Stop};

/// What to run.
#[derive(clap::Args, Default)]
pub(crate) struct Options {
    /// One world, or all: then each seed names its world
    #[arg(
        long,
        value_name = "NAME",
        default_value = "all",
        conflicts_with = "bytes"
    )]
    #[arg(value_parser = PossibleValuesParser::new(WORLDS))]
    world: String,
    /// One seed, with what came of it
    #[arg(long, group = "one", value_parser = clap::value_parser!(u64).range(..SEEDS))]
    seed: Option<u64>,
    /// The input of a fuzzer, as one seed. It names its world
    #[arg(long, value_name = "FILE", group = "one")]
    bytes: Option<PathBuf>,
    /// First seed, and the first that is not run. Without B: on and on
    #[arg(long, value_name = "A..B", value_parser = parse_seeds, conflicts_with = "one")]
    seeds: Option<(u64, u64)>,
    /// Seeds for so long, from a random one if --seeds names none
    #[arg(long, value_name = "M", conflicts_with = "one")]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=100_000))]
    minutes: Option<u64>,
    /// Most requests of each host of one seed
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    requests: Option<u64>,
    /// Planned faults of one seed that happen, by number: 1,4 or none
    #[arg(long, value_name = "LIST")]
    faults: Option<String>,
    /// Hosts of one seed that are there, by number: 2,3 or none
    #[arg(long, value_name = "LIST")]
    hosts: Option<String>,
    /// Writes what happens with one seed to target/sim/WORLD-SEED.jsonl, or bytes-HASH.jsonl
    #[arg(long)]
    trace: bool,
    /// Writes what arrives in the network with one seed to a file for Wireshark, and replaces it
    #[arg(long, value_name = "FILE")]
    pcap: Option<PathBuf>,
    /// Plants mistakes into a copy of the product, and finds each: all, or those with NAME in their
    /// names
    #[arg(long, value_name = "NAME", num_args = 0..=1, default_missing_value = "")]
    #[arg(conflicts_with_all = ["world", "one", "seeds", "minutes"])]
    prove: Option<String>,
}

fn parse_seeds(text: &str) -> Result<(u64, u64), String> {
    let pair = text.split_once("..");
    let pair = pair.and_then(|(first, end)| {
        let end = if end.is_empty() {
            SEEDS
        } else {
            end.parse().ok()?
        };
        Some((first.parse().ok()?, end))
    });
    let (first, end): (u64, u64) =
        pair.ok_or("write the first seed and the first that is not run: 0..1000")?;
    match first < end && end <= SEEDS {
        true => Ok((first, end)),
        false => Err(format!(
            "there is no seed from {first} on and below {end}; the last seed is {}",
            SEEDS - 1
        )),
    }
}

impl Options {
    /// What `cargo xtask test` runs.
    pub(crate) fn of_test() -> Self {
        Self {
            world: "all".to_owned(),
            seeds: Some((0, 10_000)),
            ..Self::default()
        }
    }

    /// What `cargo xtask test --all` runs besides.
    pub(crate) fn of_proof() -> Self {
        Self {
            prove: Some(String::new()),
            ..Self::of_test()
        }
    }

    /// The program with some seeds. What it finds it writes below the target folder.
    fn program(&self, target: &Path, first: u64, end: u64) -> Command {
        let mut program = command(target.join("debug/fabrix-sim"));
        program.arg(&self.world);
        program.args([first, end, TWICE].map(|number| number.to_string()));
        program.arg("--folder").arg(target.join("sim"));
        program
    }

    /// The option that is there and means something for one seed only, though none is named.
    fn stray(&self) -> Option<&'static str> {
        let options = [
            ("--requests", self.requests.is_some()),
            ("--faults", self.faults.is_some()),
            ("--hosts", self.hosts.is_some()),
            ("--trace", self.trace),
            ("--pcap", self.pcap.is_some()),
        ];
        let is_one = self.seed.is_some() || self.bytes.is_some();
        let mut strays = options.into_iter().filter(|(_, is_there)| *is_there);
        strays.next().filter(|_| !is_one).map(|(option, _)| option)
    }

    /// One world, as the options say.
    fn one(&self, target: &Path) -> Result<Command, String> {
        let seed = self.seed.unwrap_or(0);
        let mut one = self.program(target, seed, seed + 1);
        if let Some(path) = &self.bytes {
            one.arg("--bytes").arg(absolute(path)?);
        }
        if let Some(requests) = self.requests {
            one.args(["--requests", &requests.to_string()]);
        }
        if let Some(faults) = &self.faults {
            one.args(["--faults", faults]);
        }
        if let Some(hosts) = &self.hosts {
            one.args(["--hosts", hosts]);
        }
        if let Some(path) = &self.pcap {
            if self
                .bytes
                .as_ref()
                .is_some_and(|bytes| is_same(path, bytes))
            {
                return Err("--bytes and --pcap name one file".to_owned());
            }
            one.arg("--pcap").arg(absolute(path)?);
        }
        if self.trace {
            one.arg("--trace");
        }
        Ok(one)
    }
}

/// Runs worlds. The first seeds run twice, and both runs have to agree.
pub(crate) fn run(options: &Options) -> Result<Counts, Stop> {
    if let Some(option) = options.stray() {
        let sentence = format!("{option} is for one world: name it with --seed N or --bytes FILE");
        return Err(Stop::Failed(sentence));
    }
    if let Some(name) = &options.prove {
        return prove::run(name);
    }
    programs::build()?;
    let target = target_folder()?;
    if options.seed.is_some() || options.bytes.is_some() {
        run_program(&mut options.one(&target)?)?;
        return Ok(passed(1));
    }
    let (first, end) = match (options.seeds, options.minutes) {
        (Some(seeds), _) => seeds,
        (None, None) => (0, 1_000),
        (None, Some(_)) => (RandomState::new().hash_one(0) >> 32, u64::MAX),
    };
    eprintln!("seeds from {first} on");
    let began = Instant::now();
    let ends = options
        .minutes
        .map(|minutes| began + Duration::from_secs(60 * minutes));
    let search = Search {
        first,
        next: AtomicU64::new(first),
        end,
        ends,
        right: AtomicU64::new(0),
        told: Mutex::new(began),
        wrong: AtomicUsize::new(0),
    };
    side_by_side(&vec![(); cores()], cores(), |_, ()| {
        search.work(|first, end| output(&mut options.program(&target, first, end)));
    });
    let right = search.right.into_inner();
    let wrong = search.wrong.into_inner();
    let seconds = began.elapsed().as_secs_f64();
    let least = if wrong == 0 { "" } else { "at least " };
    println!("{least}{right} seeds from {first} on are right, in {seconds:.0} s");
    match wrong {
        0 => Ok(passed(right)),
        1 => Err(Stop::Failed("a world is wrong".to_owned())),
        several => Err(Stop::Failed(format!("{several} worlds are wrong"))),
    }
}

/// A path from where the command was started. Programs start in the root of the repository.
fn absolute(path: &Path) -> Result<PathBuf, String> {
    std::path::absolute(path).map_err(|error| format!("cannot use {}: {error}", path.display()))
}

/// Whether both paths lead to one file that is there.
fn is_same(one: &Path, other: &Path) -> bool {
    let [one, other] = [one, other].map(std::fs::canonicalize);
    one.is_ok_and(|one| other.is_ok_and(|other| one == other))
}

/// The worlds of `crates/fabrix-sim/src/worlds.rs`.
const WORLDS: [&str; 16] = [
    "all",
    "nvme",
    "iscsi",
    "both",
    "power",
    "files",
    "reservations",
    "errors",
    "admin",
    "long",
    "reexport",
    "rdma",
    "paths",
    "gateways",
    "iscsi-paths",
    "gateway-group",
];
/// Seeds in all.
const SEEDS: u64 = 1 << 62;

/// The counts of seeds whose worlds are right.
fn passed(seeds: u64) -> Counts {
    Counts {
        passed: usize::try_from(seeds).unwrap_or(usize::MAX),
        ..Counts::default()
    }
}

/// A search for seeds whose worlds are wrong. All processors take portions of it.
struct Search {
    first: u64,
    next: AtomicU64,
    /// First seed that is not run.
    end: u64,
    /// When no portion is begun any more.
    ends: Option<Instant>,
    /// Seeds that are right.
    right: AtomicU64,
    /// When somebody was last told how far the search is.
    told: Mutex<Instant>,
    /// Portions with a wrong seed.
    wrong: AtomicUsize,
}

impl Search {
    /// Runs portions until there are no more, the time is over, or enough is wrong.
    fn work(&self, run: impl Fn(u64, u64) -> Result<String, String>) {
        while !self.is_over() {
            let start = self.next.fetch_add(PORTION, Relaxed);
            if start >= self.end {
                return;
            }
            let end = self.end.min(start + PORTION);
            match run(start, end) {
                Ok(_) => {
                    self.right.fetch_add(end - start, Relaxed);
                }
                Err(said) => {
                    // At once: a search may be ended at any time.
                    println!("{said}");
                    self.wrong.fetch_add(1, Relaxed);
                }
            }
            self.tell();
        }
    }

    fn is_over(&self) -> bool {
        self.ends.is_some_and(|ends| Instant::now() >= ends)
            || self.wrong.load(Relaxed) >= WRONG_MAX
    }

    /// Tells how far the search is, now and then.
    fn tell(&self) {
        let mut told = self.told.lock().expect("no panic");
        if told.elapsed() >= TELL_AFTER {
            *told = Instant::now();
            let wrong = self.wrong.load(Relaxed);
            eprintln!(
                "{} seeds from {} on are right, {wrong} wrong",
                self.right.load(Relaxed),
                self.first
            );
        }
    }
}

/// Seeds of one process.
const PORTION: u64 = 100;
/// Every seed below this one runs twice.
const TWICE: u64 = 200;
/// More wrong seeds say little more.
const WRONG_MAX: usize = 3;
const TELL_AFTER: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    fn search(end: u64, ends: Option<Instant>) -> Search {
        Search {
            first: 50,
            next: AtomicU64::new(50),
            end,
            ends,
            right: AtomicU64::new(0),
            told: Mutex::new(Instant::now()),
            wrong: AtomicUsize::new(0),
        }
    }

    #[test]
    fn every_world_has_a_name_here() {
        let path = crate::process::root().join("crates/fabrix-sim/src/worlds.rs");
        let text = std::fs::read_to_string(path).expect("the table of worlds");
        let (table, _) = text.split_once("];").expect("the end of the table");
        let names = table.split("name: \"").skip(1);
        let names: Vec<_> = names.filter_map(|rest| rest.split('"').next()).collect();
        assert_eq!(names, WORLDS[1..]);
    }

    #[test]
    fn what_is_for_one_seed_is_told_to_need_one() {
        let mut options = Options::of_test();
        assert_eq!(options.stray(), None);
        options.trace = true;
        assert_eq!(options.stray(), Some("--trace"));
        options.seed = Some(7);
        assert_eq!(options.stray(), None);
    }

    #[test]
    fn a_search_runs_each_seed_once() {
        let search = search(460, None);
        let portions = Mutex::new(Vec::new());
        search.work(|first, end| {
            portions.lock().expect("no panic").push((first, end));
            Ok(String::new())
        });
        let portions = portions.into_inner().expect("no panic");
        assert_eq!(portions.first(), Some(&(50, 150)));
        assert_eq!(portions.last(), Some(&(450, 460)));
        assert_eq!(search.right.into_inner(), 410);
    }

    #[test]
    fn a_search_ends_when_enough_is_wrong_or_the_time_is_over() {
        let many = search(u64::MAX, None);
        many.work(|_, _| Err("wrong".to_owned()));
        assert_eq!(many.wrong.into_inner(), WRONG_MAX);
        let over = search(u64::MAX, Some(Instant::now()));
        over.work(|_, _| unreachable!("the time is over"));
    }
}
