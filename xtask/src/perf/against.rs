//! Two builds of fabrix, one against the other: what did a change give?
//!
//! Both targets run all the time, each with a disk of its own (an idle one sleeps), and are asked
//! in turns, so that the machine has no time to change its mind between them: A B B A, a moment
//! each. Where one side's own two differ by a fifth, something else happened, and the four are
//! dropped.

use super::rows::{Group, Load, Number, ROWS, Row};
use super::side::Side;
use super::stats::Summary;
use super::{Options, Programs, fabrix};
use std::path::Path;

/// How often each load is asked for, A B B A counting as one.
const ROUNDS: usize = 20;
const TIME: [&str; 4] = ["--ramp", "100ms", "--runtime", "400ms"];
/// A side that differs so much from itself says nothing about the other.
const OWN_CHANGE_MAX: f64 = 1.2;
/// With fewer than this share of rounds left, a load was not measured.
const LEFT_MIN: usize = 5;

/// Prints a line per load: this build over the other. Above 1 this build is faster, for p50 below
/// 1.
pub(super) fn run(options: &Options, programs: &Programs, other: &Path) -> Result<(), String> {
    println!("this build / {}", other.display());
    println!(
        "| row | median | least .. most | 95 % of medians | rounds | dropped |\n|---|---|---|---|---|---|"
    );
    for row in options.rows()? {
        let Some((side, number)) = load(row) else {
            println!(
                "| {} | - | - | - | 0 | it is not a load of one connection over NVMe/TCP |",
                row.name
            );
            continue;
        };
        let figures = figures(&side, number, programs, other)?;
        println!("{}", line(row, &figures));
    }
    Ok(())
}

/// The rows that this is about if nobody names any.
pub(super) fn usual() -> Vec<&'static Row> {
    ROWS.iter()
        .filter(|row| row.group == Group::Wire || row.group == Group::Mix)
        .collect()
}

fn load(row: &Row) -> Option<(Side, Number)> {
    match row.load {
        Load::Sides { ours, number, .. } if ours.is_plain() => Some((ours, number)),
        _ => None,
    }
}

/// A ratio for each round that counts.
fn figures(
    side: &Side,
    number: Number,
    programs: &Programs,
    other: &Path,
) -> Result<Vec<f64>, String> {
    let start = |program: &Path| {
        let target = fabrix::Target::start(program, side, programs)?;
        target.fill()?;
        Ok::<_, String>(target)
    };
    let (a, b) = (start(&programs.fabrix)?, start(other)?);
    let time = TIME.map(str::to_owned);
    let ask = |program: &Path, target: &fabrix::Target| {
        let measured = fabrix::bench(program, target.uri(), side, &time)?;
        number.of(&measured)
    };
    let mut figures = Vec::new();
    for _ in 0..ROUNDS {
        let first = ask(&programs.fabrix, &a)?;
        let others = [ask(other, &b)?, ask(other, &b)?];
        let own = [first, ask(&programs.fabrix, &a)?];
        figures.extend(ratio(own, others));
    }
    Ok(figures)
}

/// This build's over the other's, if both stayed as fast as they were.
fn ratio(own: [f64; 2], others: [f64; 2]) -> Option<f64> {
    let steady =
        |[first, second]: [f64; 2]| first.max(second) / first.min(second) <= OWN_CHANGE_MAX;
    (steady(own) && steady(others)).then(|| (own[0] + own[1]) / (others[0] + others[1]))
}

fn line(row: &Row, figures: &[f64]) -> String {
    let dropped = ROUNDS.saturating_sub(figures.len());
    let summary = Summary::of(figures).filter(|_| figures.len() >= LEFT_MIN);
    let Some(summary) = summary else {
        return format!(
            "| {} | - | - | - | {} | {dropped}: not measured |",
            row.name,
            figures.len()
        );
    };
    let (low, high) = summary.interval.unwrap_or((summary.least, summary.most));
    format!(
        "| {} | {:.3} | {:.3} .. {:.3} | {low:.3} .. {high:.3} | {} | {dropped} |",
        row.name,
        summary.median,
        summary.least,
        summary.most,
        figures.len()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_side_that_changed_its_own_speed_drops_the_round() {
        let close = |found: Option<f64>, wanted: f64| {
            found.is_some_and(|found| (found - wanted).abs() < 1e-9)
        };
        assert!(close(ratio([110.0, 110.0], [100.0, 100.0]), 1.1));
        assert!(close(ratio([100.0, 120.0], [110.0, 110.0]), 1.0));
        assert_eq!(ratio([100.0, 121.0], [100.0, 100.0]), None);
        assert_eq!(ratio([100.0, 100.0], [160.0, 100.0]), None);
    }

    #[test]
    fn too_few_rounds_are_no_measurement() {
        let row = usual()[0];
        assert!(line(row, &[1.0; 4]).contains("16: not measured"));
        assert!(line(row, &[1.1; 20]).contains("| 1.100 |"));
    }
}
