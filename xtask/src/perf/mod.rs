//! Our speed against bare sockets on this machine, row by row, in turns.
//!
//! A figure without its machine says nothing, so every figure here is a ratio: the same load against our target and
//! against plain TCP sockets that move the same bytes, minutes apart at most, in the order A B B A. A pair during
//! which something else ran is measured again. What is compared stands in `rows.rs`; the raw results stay below
//! `target/perf/`.

mod machine;
mod measure;
mod report;
mod rows;
mod stats;

use crate::no_os::target_folder;
use crate::process::{cargo, run as run_program};
use machine::Watch;
use measure::Programs;
use report::{Pair, Report};
use rows::{ROWS, Row};
use serde_json::Value;

/// Both ends are pinned: the target to the first, whoever asks to the second.
const CPUS: [usize; 2] = [0, 1];

/// What the command line asked for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Options {
    pairs: usize,
    seconds: u32,
    only: Option<String>,
}

impl Options {
    pub(crate) fn parse(arguments: &[String]) -> Result<Self, String> {
        let mut options = Self {
            pairs: 5,
            seconds: 3,
            only: None,
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
                "--full" => (options.pairs, options.seconds) = (10, 5),
                "--pairs" => options.pairs = positive(argument, value()?)?,
                "--seconds" => options.seconds = positive(argument, value()?)?,
                "--only" => options.only = Some(value()?.to_owned()),
                other => return Err(format!("perf does not know `{other}`")),
            }
        }
        Ok(options)
    }

    fn rows(&self) -> Result<Vec<&'static Row>, String> {
        let wanted = |row: &&Row| {
            self.only
                .as_ref()
                .is_none_or(|part| row.name.contains(part))
        };
        let rows: Vec<_> = ROWS.iter().filter(wanted).collect();
        if rows.is_empty() {
            let names: Vec<_> = ROWS.iter().map(|row| row.name).collect();
            return Err(format!(
                "no row matches --only; there are: {}",
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
    let ceiling = ["--package", "fabrix-rt", "--example", "ceiling"];
    run_program(
        cargo()
            .args(["build", "--quiet", "--release"])
            .args(ceiling),
    )?;
    let folder = target_folder()?;
    let programs = Programs::in_folder(&folder.join("release"));
    let mut report = Report::create(&folder.join("perf"), options.seconds)?;
    for row in rows {
        let pairs = measure_row(row, options, &programs, &mut report);
        report.row(row, &pairs);
    }
    report.finish()
}

/// The pairs of one row. Each one that was spoiled is made up for, as long as not every second one is.
fn measure_row(
    row: &Row,
    options: &Options,
    programs: &Programs,
    report: &mut Report,
) -> Result<Vec<Pair>, String> {
    let wanted = row.load.pairs(options.pairs);
    let mut pairs: Vec<Pair> = Vec::new();
    while count_good(&pairs) < wanted && pairs.len() < wanted * 2 {
        let pair = measure_pair(row, pairs.len(), options.seconds, programs)?;
        report.pair(row, pairs.len(), &pair)?;
        pairs.push(pair);
    }
    Ok(pairs)
}

fn count_good(pairs: &[Pair]) -> usize {
    pairs.iter().filter(|pair| pair.spoiled.is_none()).count()
}

/// One measurement of ours and one of the ceiling, in an order that turns with `index`: A B, B A, A B, ...
fn measure_pair(
    row: &Row,
    index: usize,
    seconds: u32,
    programs: &Programs,
) -> Result<Pair, String> {
    let watch = Watch::start(&CPUS)?;
    let ours = || row.load.measure_ours(programs, seconds);
    let ceiling = || row.load.measure_ceiling(programs, seconds);
    let (ours, ceiling): (Value, Value) = if index.is_multiple_of(2) {
        let ours = ours()?;
        (ours, ceiling()?)
    } else {
        let ceiling = ceiling()?;
        (ours()?, ceiling)
    };
    let noise = watch.end()?;
    let spoiled = noise.spoils().filter(|_| row.load.needs_quiet());
    let figure = row.load.figure(&ours, &ceiling)?;
    Ok(Pair {
        ours,
        ceiling,
        figure,
        spoiled,
        noise,
    })
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

    #[test]
    fn later_options_refine_earlier_ones() {
        let options = parse("--full --pairs 3 --only 4k").expect("all known");
        assert_eq!(
            options,
            Options {
                pairs: 3,
                seconds: 5,
                only: Some("4k".to_owned())
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
    fn a_filter_that_matches_nothing_names_the_rows() {
        let options = parse("--only no-such-row").expect("well formed");
        let failure = options.rows().expect_err("no such row");
        assert!(failure.contains(ROWS[0].name), "{failure}");
    }
}
