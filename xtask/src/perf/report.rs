//! What a run leaves behind: one line per pair and row on the terminal, one JSON file per pair, one
//! summary.
//!
//! The table is Markdown, as docs/PERFORMANCE.md holds it. Writes only into a folder of its own
//! below `target/perf/`.

use super::beside;
use super::machine::{Noise, describe};
use super::rows::{Goal, Row};
use super::side::Measured;
use super::stats::Summary;
use crate::process::{command, output};
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

const HEADING: &str = "\
| row | median | least .. most | 95 % of medians | goal | pairs | spoiled | verdict | aim | reached |
|---|---|---|---|---|---|---|---|---|---|";

/// One measurement of each side, and whether it counts.
#[derive(Default)]
pub(super) struct Pair {
    /// Ours, and the other side if there is one.
    pub(super) sides: Vec<Measured>,
    pub(super) figure: f64,
    pub(super) noise: Noise,
    pub(super) spoiled: Option<String>,
    /// Sides that were measured once more and do not count.
    pub(super) again: usize,
}

pub(super) struct Report {
    folder: PathBuf,
    seconds: u32,
    table: Vec<String>,
    /// The figures of both sides, of rows that have two.
    beside: Vec<String>,
    rows: Vec<Value>,
    failed: Vec<&'static str>,
}

impl Report {
    /// Makes a folder for this run, named by the time in seconds.
    pub(super) fn create(parent: &Path, seconds: u32) -> Result<Self, String> {
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |since| since.as_secs());
        let folder = parent.join(now.to_string());
        fs::create_dir_all(&folder)
            .map_err(|error| format!("cannot create {}: {error}", folder.display()))?;
        Ok(Self {
            folder,
            seconds,
            table: Vec::new(),
            beside: Vec::new(),
            rows: Vec::new(),
            failed: Vec::new(),
        })
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
        let raw = |side: usize| pair.sides.get(side).map(|side| &side.raw);
        let raw = json!({
            "row": row.name, "pair": index + 1, "seconds": self.seconds, "figure": pair.figure,
            "spoiled": pair.spoiled, "sides_again": pair.again, "noise": pair.noise.to_json(),
            "ours": raw(0), "other": raw(1),
        });
        self.write(&format!("{}-{:02}.json", row.name, index + 1), &raw)
    }

    /// Judges a row by its pairs, or by the reason why there are none.
    pub(super) fn row(&mut self, row: &Row, pairs: &Result<Vec<Pair>, String>) {
        let judged = match pairs {
            Ok(pairs) => {
                self.beside.extend(beside::line(row, pairs));
                judge(row, pairs)
            }
            Err(failure) => {
                eprintln!("{}: {failure}", row.name);
                Judged::nothing(format!("not measured: {failure}"))
            }
        };
        if !judged.good {
            self.failed.push(row.name);
        }
        self.table.push(judged.line(row));
        self.rows.push(judged.to_json(row));
    }

    /// A row that this machine cannot measure: it fails nothing.
    pub(super) fn skipped(&mut self, row: &Row, why: &str) {
        println!("{}: skipped: {why}", row.name);
        let judged = Judged::nothing(format!("skipped: {why}"));
        self.table.push(judged.line(row));
        self.rows.push(judged.to_json(row));
    }

    /// Prints the table, writes the summary, and fails when a row did.
    pub(super) fn finish(self) -> Result<(), String> {
        let commit = output(command("git").args(["describe", "--always", "--dirty"]));
        let summary = json!({
            "machine": describe(), "commit": commit.unwrap_or_default().trim(), "rows": self.rows,
        });
        self.write("summary.json", &summary)?;
        println!("\n{HEADING}\n{}", self.table.join("\n"));
        if !self.beside.is_empty() {
            println!("\n{}\n{}", beside::HEADING, self.beside.join("\n"));
        }
        println!("\nraw results: {}", self.folder.display());
        match self.failed.len() {
            0 => Ok(()),
            _ => Err(format!(
                "the goal is not met by: {}",
                self.failed.join(", ")
            )),
        }
    }

    fn write(&self, name: &str, value: &Value) -> Result<(), String> {
        let path = self.folder.join(name);
        fs::write(&path, format!("{value:#}\n"))
            .map_err(|error| format!("cannot write {}: {error}", path.display()))
    }
}

/// A row's figures against its goal.
struct Judged {
    summary: Option<Summary>,
    counted: usize,
    /// Pairs, and single sides of pairs, that do not count.
    spoiled: usize,
    good: bool,
    verdict: String,
}

fn judge(row: &Row, pairs: &[Pair]) -> Judged {
    let good = pairs.iter().filter(|pair| pair.spoiled.is_none());
    let figures: Vec<f64> = good.map(|pair| pair.figure).collect();
    let (counted, lost) = (figures.len(), pairs.len() - figures.len());
    let spoiled = lost + pairs.iter().map(|pair| pair.again).sum::<usize>();
    let Some(summary) = Summary::of(&figures).filter(|_| counted >= lost) else {
        let verdict = "not measured: the machine was not quiet".to_owned();
        return Judged {
            counted,
            spoiled,
            ..Judged::nothing(verdict)
        };
    };
    let good = row.goal.is_met(summary.median);
    let verdict = if good { "met" } else { "MISSED" }.to_owned();
    Judged {
        summary: Some(summary),
        counted,
        spoiled,
        good,
        verdict,
    }
}

impl Judged {
    fn nothing(verdict: String) -> Self {
        Self {
            summary: None,
            counted: 0,
            spoiled: 0,
            good: false,
            verdict,
        }
    }

    fn line(&self, row: &Row) -> String {
        let dash = || "-".to_owned();
        let range = |low: f64, high: f64| format!("{low:.3} .. {high:.3}");
        let summary = self.summary;
        let median = summary.map_or_else(dash, |summary| format!("{:.3}", summary.median));
        let spread = summary.map_or_else(dash, |summary| range(summary.least, summary.most));
        let interval = summary.and_then(|summary| summary.interval);
        let interval = interval.map_or_else(dash, |(low, high)| range(low, high));
        let (name, goal, aim, verdict) = (row.name, row.goal, row.aim, &self.verdict);
        let reached = summary.map_or("-", |summary| match row.aim.is_met(summary.median) {
            true => "yes",
            false => "no",
        });
        let (counted, spoiled) = (self.counted, self.spoiled);
        let judged = format!("{goal} | {counted} | {spoiled} | {verdict} | {aim} | {reached}");
        format!("| {name} | {median} | {spread} | {interval} | {judged} |")
    }

    fn to_json(&self, row: &Row) -> Value {
        let bound = |goal| match goal {
            Goal::AtLeast(bound) => json!({ "at_least": bound }),
            Goal::AtMost(bound) => json!({ "at_most": bound }),
        };
        let reached = self.summary.map(|summary| row.aim.is_met(summary.median));
        json!({
            "row": row.name, "group": row.group.word(), "goal": bound(row.goal), "aim": bound(row.aim),
            "aim_reached": reached, "verdict": self.verdict, "met": self.good,
            "median": self.summary.map(|summary| summary.median),
            "least": self.summary.map(|summary| summary.least),
            "most": self.summary.map(|summary| summary.most),
            "interval": self.summary.and_then(|summary| summary.interval).map(|(low, high)| [low, high]),
            "pairs": self.counted, "spoiled": self.spoiled,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::perf::rows::ROWS;

    /// Pairs of the first row, whose goal is "at least 0.60"; a spoiled one is written as a
    /// negative number.
    fn pairs(figures: &[f64]) -> Vec<Pair> {
        let pair = |&figure: &f64| Pair {
            sides: Vec::new(),
            figure: figure.abs(),
            noise: Noise::default(),
            spoiled: (figure < 0.0).then(|| "steal".to_owned()),
            again: 0,
        };
        figures.iter().map(pair).collect()
    }

    fn check(figures: &[f64], good: bool, part: &str) {
        let judged = judge(&ROWS[0], &pairs(figures));
        assert_eq!(judged.good, good);
        let line = judged.line(&ROWS[0]);
        assert!(line.contains(part), "{line}");
    }

    #[test]
    fn the_median_decides() {
        check(
            &[0.5, 0.65, 0.7],
            true,
            "| 0.650 | 0.500 .. 0.700 | - | at least 0.60 | 3 | 0 | met | at least 0.90 | no |",
        );
        check(&[0.5, 0.55, 0.7], false, "| MISSED |");
        check(&[0.9], true, "| met | at least 0.90 | yes |");
    }

    #[test]
    fn spoiled_pairs_do_not_count() {
        check(
            &[-0.1, 0.65, 0.7],
            true,
            "| 0.675 | 0.650 .. 0.700 | - | at least 0.60 | 2 | 1 | met | at least 0.90 | no |",
        );
    }

    #[test]
    fn a_noisy_machine_shows_nothing() {
        check(
            &[-0.7, -0.7, 0.7],
            false,
            "| not measured: the machine was not quiet |",
        );
        check(&[], false, "not measured");
    }
}
