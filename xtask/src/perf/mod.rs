//! Our speed against others on this machine, row by row, in turns; and how it grows with shards.
//!
//! A figure without its machine says nothing, so every figure here is a ratio: the same load
//! against our target and against plain TCP sockets, fio, or another target, seconds apart, in the
//! order A B B A. A side during which something else ran is measured again. What is compared stands
//! in `rows.rs`, what a side is in `side.rs`; the raw results stay below `target/perf/`.

mod attach;
mod ceiling;
mod fabrix;
mod fio;
mod iscsi;
mod noise;
mod report;
mod rows;
mod side;
mod spdk;
mod started;
mod stats;

use crate::process::{cargo, run as run_program, target_folder};
use fio::DiskFile;
use noise::Ticks;
use report::{Pair, Report};
use rows::Row;
use side::{DISK_BYTES, Disk};
use started::Started;
use stats::Summary;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The folder of files that are to lie in memory.
const MEMORY_FOLDER: &str = "/dev/shm";
/// How long a program may take until it serves.
const START_TIME_MAX: Duration = Duration::from_secs(20);
/// So many pairs are measured with the same processes; then with new ones, because where their
/// memory lies is luck.
const PAIRS_OF_ONE_START: usize = 5;
/// So many times as many are measured of a row for which those that were asked for do not tell.
const TIMES_MORE: usize = 3;
/// Sides of one pair that are measured again because something disturbed them.
const AGAIN_MOST: usize = 3;

/// Where the programs are, and where files may be.
struct Programs {
    fabrix: PathBuf,
    ceiling: PathBuf,
    iscsi_limit: PathBuf,
    files: PathBuf,
}

impl Programs {
    /// In a folder as cargo fills it, or with the examples beside the program.
    fn in_folder(folder: &Path, files: &Path) -> Self {
        let example = |name: &str| {
            let beside = folder.join(name);
            if beside.is_file() {
                beside
            } else {
                folder.join("examples").join(name)
            }
        };
        Self {
            fabrix: folder.join("fabrix"),
            ceiling: example("ceiling"),
            iscsi_limit: example("iscsi_limit"),
            files: files.to_owned(),
        }
    }

    /// Where the file of a disk is, if it is one.
    fn path(&self, disk: Disk) -> Option<PathBuf> {
        let name = format!("fabrix-perf-{}.img", std::process::id());
        match disk {
            Disk::Tmpfs => Some(Path::new(MEMORY_FOLDER).join(name)),
            Disk::File => Some(self.files.join(name)),
            Disk::Ram | Disk::Null => None,
        }
    }

    /// The disk as `fabrix serve` takes it.
    fn disk(&self, disk: Disk) -> String {
        let gib = DISK_BYTES >> 30;
        match self.path(disk) {
            Some(path) => format!("file:{}", path.display()),
            None if disk == Disk::Null => format!("null:{gib}G"),
            None => format!("ram:{gib}G"),
        }
    }
}

/// What the command line asked for.
#[derive(clap::Parser)]
#[command(
    after_help = "Without cargo, where the programs have been brought: xtask perf --scale --bin FOLDER"
)]
pub(crate) struct Options {
    /// 2 pairs of 2 s per row: does it still work
    #[arg(long, conflicts_with_all = ["full", "scale"])]
    quick: bool,
    /// Every row, 10 pairs of 2 s, about two hours: figures to quote
    #[arg(long, conflicts_with = "scale")]
    full: bool,
    /// Every row: digests, files, open loops, iSCSI, ...; some need other programs
    #[arg(long, conflicts_with = "scale")]
    all: bool,
    /// So many pairs per row (5), three times as many where those do not tell
    #[arg(long, conflicts_with = "scale")]
    pairs: Option<NonZeroUsize>,
    /// So many seconds per measurement (3)
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    seconds: Option<u32>,
    /// Only the rows whose name begins with WORD, or whose group is called so
    #[arg(long, value_name = "WORD", conflicts_with = "scale")]
    only: Option<String>,
    /// The programs of this folder (fabrix, examples/ceiling) instead of building them
    #[arg(long, value_name = "FOLDER")]
    bin: Option<PathBuf>,
    /// 1, 2, 4 and 8 shards against as many pairs of bare sockets: 1 pair per row, without floors
    #[arg(long)]
    scale: bool,
}

impl Options {
    fn pairs(&self) -> usize {
        let usual = if self.full { 10 } else { 5 };
        let usual = if self.quick { 2 } else { usual };
        let usual = if self.scale { 1 } else { usual };
        self.pairs.map_or(usual, NonZeroUsize::get)
    }

    fn seconds(&self) -> u32 {
        let short = self.quick || self.full || self.scale;
        self.seconds.unwrap_or(if short { 2 } else { 3 })
    }

    /// The rows whose name begins so, or whose group is called so; without such a word the usual
    /// ones, or all.
    fn rows(&self) -> Result<Vec<Row>, String> {
        if self.scale {
            return Ok(rows::scale());
        }
        let mut rows = rows::all();
        let Some(word) = &self.only else {
            rows.retain(|row| self.all || self.full || row.is_usual());
            return Ok(rows);
        };
        let name = |row: &Row| format!("{} ({})", row.name, row.group);
        let names: Vec<_> = rows.iter().map(name).collect();
        rows.retain(|row| row.name.starts_with(word.as_str()) || row.group == word);
        match rows.is_empty() {
            false => Ok(rows),
            true => Err(format!(
                "no row begins with what --only says, and no group is called so; there are: {}",
                names.join(", ")
            )),
        }
    }
}

/// Measures what was asked for and prints the table; fails when a row misses its floor.
pub(crate) fn run(options: &Options) -> Result<(), String> {
    let rows = options.rows()?;
    let (programs, results) = match &options.bin {
        Some(folder) => {
            let folder = folder.canonicalize();
            let folder = folder.map_err(|error| format!("--bin: no such folder: {error}"))?;
            (Programs::in_folder(&folder, &folder), folder.join("perf"))
        }
        None => {
            let folder = target_folder()?;
            build()?;
            let programs = Programs::in_folder(&folder.join("release"), &folder);
            (programs, folder.join("perf"))
        }
    };
    for program in [&programs.fabrix, &programs.ceiling] {
        if !program.is_file() {
            return Err(format!("there is no {}: build it first", program.display()));
        }
    }
    if std::thread::available_parallelism().map_or(1, usize::from) < 2 {
        return Err("two processors are needed: one for each end".to_owned());
    }
    let mut report = Report::create(&results)?;
    for row in rows {
        match row.sides().try_for_each(|side| side.refusal(&programs)) {
            Ok(()) => {
                let pairs = measure_row(&row, options, &programs, &mut report);
                report.row(&row, &pairs);
            }
            Err(why) => report.skipped(&row, &why),
        }
    }
    report.finish()
}

/// Builds the release binaries.
fn build() -> Result<(), String> {
    println!("building the release binaries");
    let mut build = cargo();
    build.args(["build", "--quiet", "--release", "--package", "fabrix"]);
    build.args(["--package", "fabrix-rt", "--bin", "fabrix"]);
    build.args(["--example", "ceiling"]);
    build.args(["--package", "fabrix-target", "--example", "iscsi_limit"]);
    run_program(&mut build)
}

/// The pairs of one row. What was spoiled is made up for, as long as no more than half of all is.
fn measure_row(
    row: &Row,
    options: &Options,
    programs: &Programs,
    report: &mut Report,
) -> Result<Vec<Pair>, String> {
    let mut _files_until_the_row_ends = Vec::new();
    for side in row.sides() {
        _files_until_the_row_ends.extend(DiskFile::for_side(side, programs)?);
    }
    let wanted = options.pairs();
    let mut pairs: Vec<Pair> = Vec::new();
    let mut started = Vec::new();
    loop {
        let needed = needed(row, &pairs, wanted);
        let sides: usize = pairs.iter().map(|pair| 2 + pair.again).sum();
        if good_figures(&pairs).count() >= needed || sides >= needed * 4 {
            return Ok(pairs);
        }
        if pairs.len().is_multiple_of(PAIRS_OF_ONE_START) {
            // First the old ones end: a processor and its memory are for one of a kind.
            started.clear();
            started = Started::all(row, programs)?;
        }
        let pair = measure_pair(row, &started, pairs.len(), options.seconds())?;
        report.pair(row, pairs.len(), &pair)?;
        pairs.push(pair);
    }
}

/// How many pairs are to count: as many as are wanted, and more if those do not say on which side
/// of the floor the median is. The later ones do not decide that: who looked after each could stop
/// where it pleased him.
fn needed(row: &Row, pairs: &[Pair], wanted: usize) -> usize {
    let first: Vec<f64> = good_figures(pairs).take(wanted).collect();
    let tells = |summary: Summary| summary.tells(row.floor.bound());
    if first.len() < wanted || Summary::of(&first).is_none_or(tells) {
        wanted
    } else {
        wanted * TIMES_MORE
    }
}

fn good_figures(pairs: &[Pair]) -> impl Iterator<Item = f64> {
    let good = pairs.iter().filter(|pair| pair.spoiled.is_none());
    good.map(|pair| pair.figure)
}

/// One pair, in an order that turns with `index`: A B, B A, A B, ...; or our side alone where there
/// is no other. A side that was disturbed is measured again.
fn measure_pair(
    row: &Row,
    started: &[Started<'_>],
    index: usize,
    seconds: u32,
) -> Result<Pair, String> {
    let mut pair = Pair::default();
    for turn in 0..started.len() {
        let at = (turn + index) % started.len();
        let (measured, noise) = loop {
            let before = Ticks::now()?;
            let measured = started[at].measure(seconds)?;
            let noise = Ticks::now()?.noise_since(&before, row.is_the_kernels());
            if noise.spoils().is_none() || pair.again == AGAIN_MOST {
                break (measured, noise);
            }
            pair.again += 1;
        };
        pair.spoiled = pair.spoiled.or_else(|| noise.spoils());
        // Ours stands first.
        let place = at.min(pair.sides.len());
        pair.noise.insert(place, noise);
        pair.sides.insert(place, measured);
    }
    let numbers = pair.sides.iter().map(|side| row.number_of(side));
    let numbers: Vec<f64> = numbers.collect::<Result<_, _>>()?;
    pair.figure = numbers[0] / numbers.get(1).unwrap_or(&1.0);
    Ok(pair)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    fn parse(line: &str) -> Result<Options, String> {
        let words = std::iter::once("perf").chain(line.split_whitespace());
        Options::try_parse_from(words).map_err(|error| error.to_string())
    }

    fn names(line: &str) -> Vec<&'static str> {
        let rows = parse(line).and_then(|options| options.rows());
        rows.expect("rows").iter().map(|row| row.name).collect()
    }

    #[test]
    fn numbers_refine_quick_and_full_and_strange_ones_are_refused() {
        let options = parse("--full --pairs 3 --only 4k").expect("all known");
        assert_eq!((options.pairs(), options.seconds()), (3, 2));
        let scale = parse("--scale").expect("all known");
        let rows = scale.rows().expect("rows").len();
        assert_eq!((rows, scale.pairs(), scale.seconds()), (32, 1, 2));
        for wrong in [
            "--fast",
            "--pairs",
            "--pairs 0",
            "--seconds soon",
            "--scale --only 4k",
            "--scale --full",
        ] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_row_is_named_by_how_it_begins_or_by_its_group() {
        assert_eq!(names("").len(), 8);
        assert_eq!(names("--full").len(), rows::all().len());
        assert_eq!(names("--only 4k-randread-1").len(), 2);
        let iscsi = names("--only iscsi");
        assert!(iscsi.len() > 3 && iscsi.iter().all(|name| name.starts_with("iscsi-")));
        assert!(names("--only open-loop").contains(&"p99-at-10k-iops"));
        let none = parse("--only randread").and_then(|options| options.rows());
        let failure = none.expect_err("no such row");
        assert!(failure.contains("4k-randread-32 (wire)"), "{failure}");
    }

    #[test]
    fn where_the_pairs_do_not_tell_three_times_as_many_are_measured() {
        // The first row's floor is 0.80.
        let needed = |figures: &[f64]| {
            let pair = |&figure: &f64| Pair {
                figure,
                ..Pair::default()
            };
            let pairs: Vec<_> = figures.iter().map(pair).collect();
            needed(&rows::all()[0], &pairs, 5)
        };
        assert_eq!(needed(&[0.9, 0.91, 0.92, 0.93, 0.94]), 5);
        assert_eq!(needed(&[0.7, 0.75, 0.79, 0.82, 0.85]), 15);
        assert_eq!(needed(&[0.7, 0.75, 0.82, 0.85]), 5, "not all are there");
        let and_later = [0.9, 0.91, 0.92, 0.93, 0.94, 0.8, 0.8, 0.8];
        assert_eq!(needed(&and_later), 5, "which later ones do not change");
    }
}
