//! The workloads with which a published test measured four striped drives, locally and through a
//! file share: `bench diskspd set URI...`. Each disk is measured first as it is and then after
//! filling.

use std::process::ExitCode;
use std::time::Duration;

use fabrix_bench::{Job, Rw};

use super::flags;
use crate::cli::bench::args::WordsArgs;
use crate::cli::bench::session::{Disk, Session};
use crate::failure::Failure;
use crate::profiles::published;
use crate::report::sheet::{Cell, Drawing, Figure, Report, Run, Shown, Table};

/// One workload of the set.
#[derive(Clone, Copy)]
struct Line {
    name: &'static str,
    random: bool,
    block_bytes: u32,
    depth: u32,
    /// Whether the workload also has a write variant.
    writes: bool,
    seconds: u64,
}

const fn line(name: &'static str, random: bool, kib: u32, depth: u32) -> Line {
    Line {
        name,
        random,
        block_bytes: kib << 10,
        depth,
        writes: true,
        seconds: 10,
    }
}

const SET: [Line; 5] = [
    line("sequential 128K Q56", false, 128, 56),
    line("random 4K Q56", true, 4, 56),
    line("sequential 1M Q1", false, 1024, 1),
    line("random 4K Q1", true, 4, 1),
    Line {
        writes: false,
        seconds: 20,
        ..line("sequential 4M Q56 peak", false, 4096, 56)
    },
];

/// States of the disk during a measurement.
const STATES: [&str; 2] = ["as it is", "filled before"];

/// A table row with the runs of all disks in all states.
struct Row {
    line: Line,
    write: bool,
    runs: Vec<Option<Run>>,
}

pub(super) fn run(args: &WordsArgs) -> Result<ExitCode, Failure> {
    let (seconds, uris) = asked(&args.words[1..]).map_err(Failure::usage)?;
    let mut session = Session::begin(&args.common)?;
    let disks = uris.iter().map(|uri| session.open(uri));
    let disks = disks.collect::<Result<Vec<Disk>, Failure>>()?;
    session.guard(&disks)?;
    let labels: Vec<&str> = disks.iter().map(|disk| disk.label.as_str()).collect();
    let mut report = Report {
        profile: "diskspd".into(),
        title: format!("{}: the published DiskSpd set", labels.join(", ")),
        lead: "DiskSpd workloads of a published test of four striped drives over 100 GbE; columns in MB/s \
               (10^6)"
            .into(),
        ..Report::default()
    };
    let mut rows = rows();
    let steps = (rows.len() + 1) * STATES.len() * disks.len();
    session.plan(steps, seconds.unwrap_or(Duration::from_secs(10)));
    for disk in &disks {
        for state in STATES {
            if state == STATES[1] {
                report.notes.extend(session.fill(disk, None));
            }
            for row in &mut rows {
                let run = session.measure_taken(disk, &row.job(seconds), 1);
                row.runs.push(run);
            }
        }
    }
    let state = |label: &&str| STATES.map(|state| format!("{label}, {state}"));
    let heads: Vec<String> = labels.iter().flat_map(state).collect();
    report.tables.push(table(&heads, &rows));
    published::find("diskspd-100gbe")?.join(&mut report.tables);
    report.figures.push(figure(heads, &rows));
    report.runs = rows
        .into_iter()
        .flat_map(|row| row.runs)
        .flatten()
        .collect();
    session.finish(report)
}

/// Parses the duration of each workload, if given, and the disks.
fn asked(words: &[String]) -> Result<(Option<Duration>, Vec<String>), String> {
    let (mut seconds, mut uris) = (None, Vec::new());
    for word in words {
        match word.strip_prefix("-d") {
            Some(number) => seconds = Some(flags::seconds("-d", number)?),
            None if word.starts_with('-') => {
                return Err(format!("{word}: the set takes -d and disks"));
            }
            None => uris.push(word.clone()),
        }
    }
    if uris.is_empty() {
        return Err("which disk: fabrix bench diskspd set URI...".into());
    }
    if seconds == Some(Duration::ZERO) {
        return Err("-d0: measures nothing; say how many seconds".into());
    }
    Ok((seconds, uris))
}

/// The rows of the set. Reads and writes of a workload have separate rows.
fn rows() -> Vec<Row> {
    let row = |(line, write)| Row {
        line,
        write,
        runs: Vec::new(),
    };
    let both = SET.iter().flat_map(|line| [(*line, false), (*line, true)]);
    let wanted = both.filter(|(line, write)| line.writes || !write);
    wanted.map(row).collect()
}

impl Row {
    fn name(&self) -> String {
        let kind = if self.write { "write" } else { "read" };
        format!("{} {kind}", self.line.name)
    }

    fn job(&self, seconds: Option<Duration>) -> Job {
        Job {
            name: self.name(),
            rw: Rw::new(self.line.random, if self.write { 0 } else { 100 }),
            random_map: false,
            block_bytes: self.line.block_bytes,
            iodepth: self.line.depth,
            runtime: seconds.unwrap_or_else(|| Duration::from_secs(self.line.seconds)),
            ramp: Duration::ZERO,
            ..Job::default()
        }
    }
}

fn megabytes(run: &Run) -> f64 {
    run.bw_bytes() / 1e6
}

fn table(heads: &[String], rows: &[Row]) -> Table {
    let columns = heads
        .iter()
        .flat_map(|head| ["MB/s", "IOPS"].map(|name| (head.as_str(), name)));
    let columns = [("", "workload")].into_iter().chain(columns);
    let mut table = Table::new("set", "The set", columns);
    for row in rows {
        let cells = row.runs.iter().map(Option::as_ref).flat_map(|run| {
            [
                Cell::optional(run.map(megabytes), Shown::Fixed(2)),
                Cell::optional(run.map(Run::iops), Shown::Grouped),
            ]
        });
        table.push([Cell::text(row.name())].into_iter().chain(cells).collect());
    }
    table
}

fn figure(heads: Vec<String>, rows: &[Row]) -> Figure {
    let group = |row: &Row| {
        let runs = row.runs.iter().map(Option::as_ref);
        (row.name(), runs.map(|run| run.map(megabytes)).collect())
    };
    Figure {
        name: "set".into(),
        title: "The set".into(),
        unit: "MB/s; more is better".into(),
        drawing: Drawing::Bars {
            time: false,
            series: heads,
            groups: rows.iter().map(group).collect(),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked_in(text: &str) -> Result<(Option<Duration>, Vec<String>), String> {
        asked(&text.split(' ').map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn every_published_row_is_one_of_the_set() {
        let published = published::find("diskspd-100gbe").expect("it is there");
        let names: Vec<Cell> = rows().iter().map(|row| Cell::text(row.name())).collect();
        assert_eq!(names.len(), 9, "the peak is only read");
        for row in published.table().rows {
            assert!(names.contains(&row[0]), "{:?}", row[0]);
        }
    }

    #[test]
    fn the_set_takes_a_time_and_disks() {
        let found = asked_in("-d2 ram:1M null:1G").expect("a time and two disks");
        assert_eq!(found.0, Some(Duration::from_secs(2)));
        assert_eq!(found.1, ["ram:1M", "null:1G"]);
        for (text, part) in [
            ("-d2", "which disk"),
            ("-x ram:1M", "-x: the set takes"),
            ("-d0 ram:1M", "measures nothing"),
            ("-d ram:1M", "is not a number"),
        ] {
            let error = asked_in(text).expect_err(text);
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
