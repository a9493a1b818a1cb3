//! Our speed against others on this machine, row by row, in turns.
//!
//! A figure without its machine says nothing, so every figure here is a ratio: the same load
//! against our target and against plain TCP sockets, fio, or another target, seconds apart, in the
//! order A B B A. A side during which something else ran, or the processors moved, is measured
//! again. What is compared stands in `rows.rs`, what a side is in `side.rs`; the raw results stay
//! below `target/perf/`.

mod against;
mod attach;
mod beside;
mod connections;
mod fabrix;
mod fio;
mod iscsi;
mod machine;
mod pairs;
mod processes;
mod report;
mod rows;
mod side;
mod spdk;
mod started;
mod stats;

use crate::no_os::target_folder;
use crate::process::{cargo, command, output, run as run_program};
use fio::DiskFile;
use report::{Pair, Report};
use rows::{Goal, Load, ROWS, Row};
use side::{DISK_BYTES, Disk};
use started::Started;
use stats::Summary;
use std::path::{Path, PathBuf};

/// Both ends are pinned: the target to the first, whoever asks to the second.
const CPUS: [usize; 2] = [0, 1];
/// Files that are to lie in memory.
const MEMORY_FOLDER: &str = "/dev/shm";

/// So many pairs are measured with the same processes; then with new ones, because where their
/// memory lies is luck.
const PAIRS_OF_ONE_START: usize = 5;
/// So many times as many are measured of a row for which those that were asked for do not tell.
const TIMES_MORE: usize = 3;

/// Where the programs are, and where files may be.
struct Programs {
    fabrix: PathBuf,
    ceiling: PathBuf,
    iscsi_limit: PathBuf,
    distance: PathBuf,
    files: PathBuf,
}

impl Programs {
    fn in_folder(folder: &Path, files: &Path) -> Self {
        Self {
            fabrix: folder.join("fabrix"),
            ceiling: folder.join("examples/ceiling"),
            iscsi_limit: folder.join("examples/iscsi_limit"),
            distance: folder.join("examples/distance"),
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

    /// Whether our host reaches remote disks over iSCSI; its help says so.
    fn reaches_iscsi(&self) -> Result<(), String> {
        let mut help = command(&self.fabrix.to_string_lossy());
        let text = output(help.args(["bench", "--help"]))?;
        let why = "our own host does not speak iSCSI in this version".to_owned();
        text.contains("iscsi://").then_some(()).ok_or(why)
    }
}

/// What the command line asked for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Options {
    pairs: usize,
    seconds: u32,
    /// Rows of every group, not only of the usual ones.
    all: bool,
    only: Option<String>,
    /// Another build of fabrix to compare with, instead of everything else.
    against: Option<PathBuf>,
}

impl Options {
    pub(crate) fn parse(arguments: &[String]) -> Result<Self, String> {
        let mut options = Self {
            pairs: 5,
            seconds: 3,
            all: false,
            only: None,
            against: None,
        };
        let mut arguments = arguments.iter().map(String::as_str);
        while let Some(argument) = arguments.next() {
            let mut value = || {
                arguments
                    .next()
                    .ok_or_else(|| format!("{argument} needs a value"))
            };
            match argument {
                "--quick" => (options.pairs, options.seconds) = (2, 2),
                "--full" => (options.pairs, options.seconds, options.all) = (10, 2, true),
                "--all" => options.all = true,
                "--pairs" => options.pairs = positive(argument, value()?)?,
                "--seconds" => options.seconds = positive(argument, value()?)?,
                "--only" => options.only = Some(value()?.to_owned()),
                "--against" => options.against = Some(value()?.into()),
                other => return Err(format!("perf does not know `{other}`")),
            }
        }
        Ok(options)
    }

    /// The rows whose name begins so, or whose group is called so; without such a word the usual
    /// ones, or all.
    fn rows(&self) -> Result<Vec<&'static Row>, String> {
        let Some(word) = &self.only else {
            if self.against.is_some() && !self.all {
                return Ok(against::usual());
            }
            let wanted = |row: &&Row| self.all || row.group.is_usual();
            return Ok(ROWS.iter().filter(wanted).collect());
        };
        let wanted = |row: &&Row| row.name.starts_with(word.as_str()) || row.group.word() == word;
        let rows: Vec<_> = ROWS.iter().filter(wanted).collect();
        if rows.is_empty() {
            let names: Vec<_> = ROWS
                .iter()
                .map(|row| format!("{} ({})", row.name, row.group.word()))
                .collect();
            return Err(format!(
                "no row begins with what --only says, and no group is called so; there are: {}",
                names.join(", ")
            ));
        }
        Ok(rows)
    }
}

fn positive<T: std::str::FromStr + Default + PartialEq>(
    name: &str,
    text: &str,
) -> Result<T, String> {
    let number = text.parse().ok().filter(|number| *number != T::default());
    number.ok_or_else(|| format!("{name}: `{text}` is not a positive number"))
}

/// Measures every row and prints the table; fails when a row misses its goal.
pub(crate) fn run(options: &Options) -> Result<(), String> {
    let rows = options.rows()?;
    if std::thread::available_parallelism().map_or(1, usize::from) < CPUS.len() {
        return Err("two processors are needed: one for each end".to_owned());
    }
    println!("building the release binaries");
    run_program(cargo().args(["build", "--quiet", "--release", "--package", "fabrix"]))?;
    for (package, example) in [
        ("fabrix-rt", "ceiling"),
        ("fabrix-rt", "distance"),
        ("fabrix-target", "iscsi_limit"),
    ] {
        let mut build = cargo();
        build.args(["build", "--quiet", "--release", "--package", package]);
        run_program(build.args(["--example", example]))?;
    }
    let folder = target_folder()?;
    let programs = Programs::in_folder(&folder.join("release"), &folder);
    if let Some(other) = &options.against {
        return against::run(options, &programs, other);
    }
    let mut report = Report::create(&folder.join("perf"), options.seconds)?;
    for row in rows {
        match row.load.refusal(&programs) {
            Ok(()) => {
                let pairs = measure_row(row, options, &programs, &mut report);
                report.row(row, &pairs);
            }
            Err(why) => report.skipped(row, &why),
        }
    }
    report.finish()
}

/// The pairs of one row. What was spoiled is made up for, as long as no more than half of all is.
fn measure_row(
    row: &Row,
    options: &Options,
    programs: &Programs,
    report: &mut Report,
) -> Result<Vec<Pair>, String> {
    let _until_the_row_ends = row.load.files(programs)?;
    let wanted = row.load.pairs(options.pairs);
    let mut pairs: Vec<Pair> = Vec::new();
    let mut started = Vec::new();
    loop {
        let needed = needed(row, &pairs, wanted);
        if count_good(&pairs) >= needed || count_sides(&pairs) >= needed * 4 {
            return Ok(pairs);
        }
        if pairs.len().is_multiple_of(PAIRS_OF_ONE_START) {
            // First the old ones end: a processor and its memory are for one of a kind.
            started.clear();
            started = row.load.start(programs)?;
        }
        let pair = pairs::measure(row, &mut started, pairs.len(), options.seconds, programs)?;
        report.pair(row, pairs.len(), &pair)?;
        pairs.push(pair);
    }
}

/// How many pairs are to count: as many as are wanted, and more if those do not say on which side
/// of the goal, or of the aim, the median is. The later ones do not decide that: who looked after
/// each could stop where it pleased him.
fn needed(row: &Row, pairs: &[Pair], wanted: usize) -> usize {
    let good = pairs.iter().filter(|pair| pair.spoiled.is_none());
    let first: Vec<f64> = good.map(|pair| pair.figure).take(wanted).collect();
    let tells = |summary: Summary| {
        let bounds = [row.goal, row.aim].map(Goal::bound);
        bounds.iter().all(|bound| summary.tells(*bound))
    };
    if first.len() < wanted || Summary::of(&first).is_none_or(tells) {
        wanted
    } else {
        wanted * TIMES_MORE
    }
}

fn count_good(pairs: &[Pair]) -> usize {
    pairs.iter().filter(|pair| pair.spoiled.is_none()).count()
}

fn count_sides(pairs: &[Pair]) -> usize {
    pairs.iter().map(|pair| 2 + pair.again).sum()
}

impl Load {
    /// Why this machine cannot measure it, if so.
    fn refusal(&self, programs: &Programs) -> Result<(), String> {
        match self {
            Self::Sides { ours, other, .. } => {
                ours.refusal(programs)?;
                other
                    .as_ref()
                    .map_or(Ok(()), |other| other.refusal(programs))
            }
            Self::Connections { count, .. } => connections::refusal(*count),
        }
    }

    /// Its sides, ours first, ready to be measured.
    fn start<'a>(&self, programs: &'a Programs) -> Result<Vec<Started<'a>>, String> {
        let Self::Sides { ours, other, .. } = self else {
            return Ok(Vec::new());
        };
        let mut started = vec![Started::start(ours, programs)?];
        if let Some(other) = other {
            let shared = started[0].share(other);
            started.push(shared.map_or_else(|| Started::start(other, programs), Ok)?);
        }
        Ok(started)
    }

    /// The files that its sides need, made and filled.
    fn files(&self, programs: &Programs) -> Result<Vec<DiskFile>, String> {
        let Self::Sides { ours, other, .. } = self else {
            return Ok(Vec::new());
        };
        let mut files = Vec::new();
        for side in std::iter::once(ours).chain(other) {
            files.extend(DiskFile::for_side(side, programs)?);
        }
        Ok(files)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Options, String> {
        Options::parse(
            &line
                .split_whitespace()
                .map(str::to_owned)
                .collect::<Vec<_>>(),
        )
    }

    fn names(line: &str) -> Vec<&'static str> {
        let rows = parse(line).and_then(|options| options.rows());
        rows.expect("rows").iter().map(|row| row.name).collect()
    }

    #[test]
    fn later_options_refine_earlier_ones() {
        let options = parse("--full --pairs 3 --only 4k").expect("all known");
        assert_eq!(
            options,
            Options {
                pairs: 3,
                seconds: 2,
                all: true,
                only: Some("4k".to_owned()),
                against: None,
            }
        );
    }

    #[test]
    fn refuses_what_it_does_not_know() {
        assert!(parse("--fast").is_err());
        assert!(parse("--pairs").is_err());
        assert!(parse("--pairs 0").is_err());
        assert!(parse("--seconds soon").is_err());
    }

    #[test]
    fn where_the_pairs_do_not_tell_three_times_as_many_are_measured() {
        // The first row's goal is 0.60 and its aim 0.90.
        let needed = |figures: &[f64]| {
            let pair = |&figure: &f64| Pair {
                figure,
                ..Pair::default()
            };
            needed(&ROWS[0], &figures.iter().map(pair).collect::<Vec<_>>(), 5)
        };
        assert_eq!(needed(&[0.7, 0.71, 0.72, 0.73, 0.74]), 5);
        assert_eq!(needed(&[0.8, 0.85, 0.89, 0.92, 0.95]), 15);
        assert_eq!(needed(&[0.5, 0.55, 0.59, 0.62, 0.65]), 15);
        assert_eq!(needed(&[0.8, 0.85, 0.92, 0.95]), 5, "not all are there");
        let and_later = [0.7, 0.71, 0.72, 0.73, 0.74, 0.9, 0.9, 0.9];
        assert_eq!(needed(&and_later), 5, "which later ones do not change");
    }

    #[test]
    fn without_words_only_the_usual_rows_run() {
        assert_eq!(names("").len(), 9);
        assert_eq!(names("--all").len(), ROWS.len());
        assert_eq!(names("--full").len(), ROWS.len());
        assert!(
            names("--against other")
                .iter()
                .all(|name| !name.starts_with("idle"))
        );
    }

    #[test]
    fn a_row_is_named_by_how_it_begins_or_by_its_group() {
        assert_eq!(names("--only 4k-randread-1").len(), 2);
        assert_eq!(names("--only 4k-randread-1-").len(), 1);
        assert!(
            parse("--only randread")
                .expect("well formed")
                .rows()
                .is_err()
        );
        let iscsi = names("--only iscsi");
        assert!(iscsi.len() > 3 && iscsi.iter().all(|name| name.starts_with("iscsi-")));
        assert!(names("--only open-loop").contains(&"p99-at-10k-iops"));
    }

    #[test]
    fn a_filter_that_matches_nothing_names_the_rows() {
        let options = parse("--only no-such-row").expect("well formed");
        let failure = options.rows().expect_err("no such row");
        assert!(failure.contains(ROWS[0].name), "{failure}");
    }
}
