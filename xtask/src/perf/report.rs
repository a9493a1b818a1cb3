//! What a run leaves behind: one line per pair and row on the terminal, one JSON file per pair, one
//! summary.
//!
//! The tables are Markdown. Writes only into a folder of its own.

use super::noise::{Noise, describe_machine};
use super::rows::{Floor, Row};
use super::side::Measured;
use super::stats::Summary;
use crate::process::{command, output};
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

const HEADING: &str = "\
| row | median | least .. most | 95 % of medians | floor | pairs | spoiled | verdict |
|---|---|---|---|---|---|---|---|";
const BESIDE_HEADING: &str = "\
| ours / the other | IOPS | p50, us | p99, us |
|---|---|---|---|";

/// One measurement of each side, and whether it counts.
#[derive(Default)]
pub(super) struct Pair {
    /// Ours, and the other side if there is one.
    pub(super) sides: Vec<Measured>,
    pub(super) figure: f64,
    pub(super) noise: Vec<Noise>,
    pub(super) spoiled: Option<String>,
    /// Sides that were measured once more and do not count.
    pub(super) again: usize,
}

pub(super) struct Report {
    /// The folder of this run's files.
    folder: PathBuf,
    table: Vec<String>,
    /// The figures of both sides, of rows that have two.
    beside: Vec<String>,
    rows: Vec<Value>,
    failed: Vec<&'static str>,
}

impl Report {
    /// Makes a folder below `parent`, named by the time in seconds.
    pub(super) fn create(parent: &Path) -> Result<Self, String> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let folder = parent.join(now.map_or(0, |since| since.as_secs()).to_string());
        fs::create_dir_all(&folder)
            .map_err(|error| format!("cannot create {}: {error}", folder.display()))?;
        Ok(Self {
            folder,
            table: Vec::new(),
            beside: Vec::new(),
            rows: Vec::new(),
            failed: Vec::new(),
        })
    }

    fn write(&self, name: &str, value: &Value) -> Result<(), String> {
        let path = self.folder.join(name);
        fs::write(&path, format!("{value:#}\n"))
            .map_err(|error| format!("cannot write {}: {error}", path.display()))
    }

    /// Shows a pair and keeps its raw results.
    pub(super) fn pair(&mut self, row: &Row, index: usize, pair: &Pair) -> Result<(), String> {
        let mut note = match pair.again {
            0 => String::new(),
            again => format!("  sides measured again: {again}"),
        };
        if let Some(why) = &pair.spoiled {
            note += &format!("  not counted: {why}");
        }
        println!("{} pair {}: {:.3}{note}", row.name, index + 1, pair.figure);
        let noise: Vec<Value> = pair.noise.iter().map(|noise| noise.to_json()).collect();
        let raw = |side: usize| pair.sides.get(side).map(|side| &side.raw);
        let raw = json!({
            "row": row.name, "pair": index + 1, "figure": pair.figure, "spoiled": pair.spoiled,
            "sides_again": pair.again, "noise": noise, "ours": raw(0), "other": raw(1),
        });
        let name = format!("{}-{:02}.json", row.name, index + 1);
        self.write(&name, &raw)
    }

    /// Judges a row by its pairs, or by the reason why there are none.
    pub(super) fn row(&mut self, row: &Row, pairs: &Result<Vec<Pair>, String>) {
        let judged = match pairs {
            Ok(pairs) => {
                self.beside.extend(beside(row, pairs));
                Judged::of(row, pairs)
            }
            Err(failure) => {
                eprintln!("{}: {failure}", row.name);
                Judged::nothing(format!("not measured: {failure}"))
            }
        };
        if !judged.met {
            self.failed.push(row.name);
        }
        self.add(row, &judged);
    }

    /// A row that this machine cannot measure: it fails nothing.
    pub(super) fn skipped(&mut self, row: &Row, why: &str) {
        println!("{}: skipped: {why}", row.name);
        self.add(row, &Judged::nothing(format!("skipped: {why}")));
    }

    fn add(&mut self, row: &Row, judged: &Judged) {
        self.table.push(judged.line(row));
        self.rows.push(judged.to_json(row));
    }

    /// Prints the tables, writes the summary, and fails when a row did.
    pub(super) fn finish(self) -> Result<(), String> {
        println!("\n{HEADING}\n{}", self.table.join("\n"));
        if !self.beside.is_empty() {
            println!("\n{BESIDE_HEADING}\n{}", self.beside.join("\n"));
        }
        // Where the program runs without a repository there is no commit to name.
        let commit = output(command("git").args(["describe", "--always", "--dirty"]));
        let commit = commit.unwrap_or_default();
        let (machine, commit) = (describe_machine(), commit.trim());
        let whole = json!({ "machine": machine, "commit": commit, "rows": self.rows });
        self.write("summary.json", &whole)?;
        println!("\nraw results: {}", self.folder.display());
        match self.failed.len() {
            0 => Ok(()),
            _ => Err(format!(
                "the floor is missed by: {}",
                self.failed.join(", ")
            )),
        }
    }
}

/// A row's figures against its floor.
#[derive(Default)]
struct Judged {
    summary: Option<Summary>,
    counted: usize,
    /// Pairs, and single sides of pairs, that do not count.
    spoiled: usize,
    met: bool,
    verdict: String,
}

impl Judged {
    fn of(row: &Row, pairs: &[Pair]) -> Self {
        let good = pairs.iter().filter(|pair| pair.spoiled.is_none());
        let figures: Vec<f64> = good.map(|pair| pair.figure).collect();
        let (counted, lost) = (figures.len(), pairs.len() - figures.len());
        let summary = Summary::of(&figures).filter(|_| counted >= lost);
        let met = summary.is_some_and(|summary| row.floor.is_met(summary.median));
        let verdict = match summary {
            None => "not measured: the machine was not quiet",
            Some(_) if met => "met",
            Some(_) => "MISSED",
        };
        Self {
            summary,
            counted,
            spoiled: lost + pairs.iter().map(|pair| pair.again).sum::<usize>(),
            met,
            verdict: verdict.to_owned(),
        }
    }

    fn nothing(verdict: String) -> Self {
        Self {
            verdict,
            ..Self::default()
        }
    }

    fn line(&self, row: &Row) -> String {
        let range = |range: Option<(f64, f64)>| {
            range.map_or_else(
                || "-".to_owned(),
                |(low, high)| format!("{low:.3} .. {high:.3}"),
            )
        };
        let summary = self.summary;
        let median = summary.map_or_else(
            || "-".to_owned(),
            |summary| format!("{:.3}", summary.median),
        );
        let spread = range(summary.map(|summary| (summary.least, summary.most)));
        let interval = range(summary.and_then(|summary| summary.interval));
        let (name, floor, verdict) = (row.name, row.floor, &self.verdict);
        let (counted, spoiled) = (self.counted, self.spoiled);
        format!(
            "| {name} | {median} | {spread} | {interval} | {floor} | {counted} | {spoiled} | {verdict} |"
        )
    }

    fn to_json(&self, row: &Row) -> Value {
        let floor = match row.floor {
            Floor::AtLeast(bound) => json!({ "at_least": bound }),
            Floor::AtMost(bound) => json!({ "at_most": bound }),
        };
        json!({
            "row": row.name, "group": row.group, "floor": floor, "verdict": self.verdict,
            "met": self.met, "pairs": self.counted, "spoiled": self.spoiled,
            "median": self.summary.map(|summary| summary.median),
            "least": self.summary.map(|summary| summary.least),
            "most": self.summary.map(|summary| summary.most),
            "interval": self.summary.and_then(|summary| summary.interval),
        })
    }
}

/// The medians of both sides over a row's pairs that count; None for a row with one side, or
/// without such pairs.
fn beside(row: &Row, pairs: &[Pair]) -> Option<String> {
    let counted = pairs.iter().filter(|pair| pair.spoiled.is_none());
    let sides: Vec<&[Measured; 2]> = counted
        .filter_map(|pair| pair.sides.first_chunk())
        .collect();
    let cells = ["iops", "p50", "p99"].map(|name| {
        let [ours, other] = [0, 1].map(|at| {
            let all: Vec<f64> = sides.iter().map(|pair| pair[at].number(name)).collect();
            match Summary::of(&all).map_or(0.0, |summary| summary.median) {
                // Zero is what a side does not tell.
                0.0 => "-".to_owned(),
                figure if figure >= 1000.0 => format!("{figure:.0}"),
                figure => format!("{figure:.1}"),
            }
        });
        format!("{ours} / {other}")
    });
    (!sides.is_empty()).then(|| format!("| {} | {} |", row.name, cells.join(" | ")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::perf::rows;

    /// Pairs of the first row, whose floor is 0.80; a spoiled one is written as a negative number.
    fn pairs(figures: &[f64]) -> Vec<Pair> {
        let side = |iops: f64| Measured::of([("iops", iops), ("p50", 1e6 / iops)], Value::Null);
        let pair = |&figure: &f64| Pair {
            sides: vec![side(figure.abs() * 50_000.0), side(50_000.0)],
            figure: figure.abs(),
            spoiled: (figure < 0.0).then(|| "steal".to_owned()),
            ..Pair::default()
        };
        figures.iter().map(pair).collect()
    }

    fn check(figures: &[f64], met: bool, part: &str) {
        let row = &rows::all()[0];
        let judged = Judged::of(row, &pairs(figures));
        assert_eq!(judged.met, met);
        let line = judged.line(row);
        assert!(line.contains(part), "{line}");
    }

    #[test]
    fn the_median_of_what_counts_decides() {
        let line = "| 0.850 | 0.700 .. 0.900 | - | at least 0.80 | 3 | 0 | met |";
        check(&[0.7, 0.85, 0.9], true, line);
        check(&[0.7, 0.75, 0.9], false, "| MISSED |");
        check(&[-0.1, 0.75, 0.9], true, "| 0.825 | 0.750 .. 0.900 |");
        check(&[-0.7, -0.7, 0.9], false, "| not measured: the machine was");
        check(&[], false, "not measured");
    }

    #[test]
    fn both_sides_stand_beside_each_other_with_the_medians_of_what_counts() {
        let row = &rows::all()[0];
        let line = beside(row, &pairs(&[0.8, 1.0, 1.2, -9.0])).expect("three pairs count");
        let expected = format!("| {} | 50000 / 50000 | 20.0 / 20.0 | - / - |", row.name);
        assert_eq!(line, expected);
        assert_eq!(beside(row, &pairs(&[-1.0])), None);
    }
}
