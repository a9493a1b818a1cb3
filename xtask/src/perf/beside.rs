//! The figures of both sides, beside each other: what stands behind a ratio.

use super::report::Pair;
use super::rows::Row;
use super::side::Measured;
use super::stats::Summary;

pub(super) const HEADING: &str = "\
| ours / the other | IOPS | p50, us | p99, us |
|---|---|---|---|";

/// A figure of a side; zero is one that it does not tell.
type Figure = fn(&Measured) -> f64;

/// The medians of a row's pairs that count; nothing for a row with one side, or without such pairs.
pub(super) fn line(row: &Row, pairs: &[Pair]) -> Option<String> {
    let counted = pairs.iter().filter(|pair| pair.spoiled.is_none());
    let sides: Vec<[&Measured; 2]> = counted
        .filter_map(|pair| pair.sides.iter().collect::<Vec<_>>().try_into().ok())
        .collect();
    if sides.is_empty() {
        return None;
    }
    let figures: [Figure; 3] = [|side| side.iops, |side| side.p50_us, |side| side.p99_us];
    let cells = figures.map(|figure| {
        let [ours, other] = [0, 1].map(|at| {
            let all: Vec<f64> = sides.iter().map(|pair| figure(pair[at])).collect();
            shown(Summary::of(&all).map_or(0.0, |summary| summary.median))
        });
        format!("{ours} / {other}")
    });
    Some(format!("| {} | {} |", row.name, cells.join(" | ")))
}

/// Whole where there are many digits.
fn shown(figure: f64) -> String {
    match figure {
        figure if figure <= 0.0 => "-".to_owned(),
        figure if figure >= 1000.0 => format!("{figure:.0}"),
        figure => format!("{figure:.1}"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::machine::Noise;
    use super::super::rows::ROWS;
    use super::*;

    fn pair(iops: [f64; 2], spoiled: bool) -> Pair {
        let side = |iops: f64| Measured {
            iops,
            p50_us: 1e6 / iops,
            ..Measured::default()
        };
        Pair {
            sides: iops.map(side).into(),
            figure: iops[0] / iops[1],
            noise: Noise::default(),
            spoiled: spoiled.then(|| "steal".to_owned()),
            again: 0,
        }
    }

    #[test]
    fn both_sides_stand_beside_each_other_with_the_medians_of_what_counts() {
        let pairs = [
            pair([50_000.0, 40_000.0], false),
            pair([60_000.0, 50_000.0], false),
            pair([70_000.0, 45_000.0], false),
            pair([1.0, 1.0], true),
        ];
        let line = line(&ROWS[0], &pairs).expect("three pairs count");
        let expected = format!("| {} | 60000 / 45000 | 16.7 / 22.2 | - / - |", ROWS[0].name);
        assert_eq!(line, expected);
    }

    #[test]
    fn a_row_without_another_side_has_nothing_beside_it() {
        let mut alone = pair([1.0, 1.0], false);
        alone.sides.pop();
        assert_eq!(line(&ROWS[0], &[alone]), None);
        assert_eq!(line(&ROWS[0], &[pair([1.0, 1.0], true)]), None);
    }
}
