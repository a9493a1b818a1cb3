//! Tables and figures for all profiles: overview, latency distribution, and rates over time.

use fabrix_bench::results::{Side, Verified};

use super::sheet::{Axis, Cell, Curve, Drawing, Figure, Report, Run, Shown, Table};

/// The standard report of runs: overview, latency distribution, and rates over time.
pub(crate) fn sheet(runs: Vec<Run>) -> Report {
    Report {
        tables: [Some(overview(&runs)), directions(&runs), outcomes(&runs)]
            .into_iter()
            .flatten()
            .collect(),
        figures: vec![tails(&runs), course(&runs)],
        runs,
        ..Report::default()
    }
}

/// The results of all runs, one row each.
pub(crate) fn overview(runs: &[Run]) -> Table {
    let repeated = runs.iter().any(|run| run.repeats.len() > 1);
    let targets = runs.iter().any(|run| run.target_cores.is_some());
    let mut columns = vec![
        ("", "workload"),
        ("", "disk"),
        ("", "IOPS"),
        ("", "MB/s"),
        ("latency us", "mean"),
        ("latency us", "p50"),
        ("latency us", "p99"),
        ("latency us", "p99.9"),
        ("CPU", "%"),
        ("CPU", "us/IO"),
    ];
    if targets {
        columns.extend([("CPU of the target", "%"), ("CPU of the target", "us/IO")]);
    }
    if repeated {
        columns.extend([
            ("IOPS over the repeats", "min"),
            ("IOPS over the repeats", "max"),
            ("IOPS over the repeats", "spread"),
        ]);
    }
    let mut table = Table::new("overview", "All runs", columns);
    for run in runs {
        let percentile = |percent| Cell::optional(run.percentile_us(percent), Shown::Time);
        let mut row = vec![
            Cell::text(&run.name),
            Cell::text(&run.disk),
            Cell::Number(run.iops(), Shown::Grouped),
            Cell::Number(run.bw_bytes() / 1e6, Shown::Short),
            Cell::Number(run.mean_us(), Shown::Time),
            percentile(50.0),
            percentile(99.0),
            percentile(99.9),
            Cell::Number(run.results.cpu.job_cores * 100.0, Shown::Fixed(0)),
            Cell::optional(run.job_us_per_io(), Shown::Fixed(2)),
        ];
        if targets {
            let percent = run.target_cores.map(|cores| cores * 100.0);
            row.push(Cell::optional(percent, Shown::Fixed(0)));
            row.push(Cell::optional(run.target_us_per_io(), Shown::Fixed(2)));
        }
        if repeated {
            let iops = run.spread(|repeat| repeat.iops);
            row.extend([
                Cell::Number(iops.min, Shown::Grouped),
                Cell::Number(iops.max, Shown::Grouped),
                Cell::Number(iops.percent() / 100.0, Shown::Percent),
            ]);
        }
        table.push(row);
    }
    table
}

/// The directions of jobs that read and write, one row each. None without such jobs.
fn directions(runs: &[Run]) -> Option<Table> {
    let columns = [
        ("", "workload"),
        ("", "disk"),
        ("", "direction"),
        ("", "IOPS"),
        ("", "MB/s"),
        ("latency us", "mean"),
        ("latency us", "p50"),
        ("latency us", "p99"),
        ("latency us", "p99.9"),
    ];
    let mut table = Table::new("directions", "Reads and writes apart", columns);
    for run in runs {
        let sides = sides(run);
        for (_, name, side) in sides.iter().filter(|_| sides.len() > 1) {
            let percentile = |percent| {
                let ns = side.latency.percentile_ns(percent);
                Cell::optional(ns.map(|ns| ns as f64 / 1e3), Shown::Time)
            };
            table.push(vec![
                Cell::text(&run.name),
                Cell::text(&run.disk),
                Cell::text(*name),
                Cell::Number(side.iops, Shown::Grouped),
                Cell::Number(side.bw_bytes / 1e6, Shown::Short),
                Cell::Number(side.latency.mean_ns / 1e3, Shown::Time),
                percentile(50.0),
                percentile(99.0),
                percentile(99.9),
            ]);
        }
    }
    (!table.rows.is_empty()).then_some(table)
}

/// The directions of a job's load with their indexes. The reads of a verification are no load.
fn sides(run: &Run) -> Vec<(usize, &'static str, &Side)> {
    let all = &run.results.aggregate;
    let sides = [
        (0, "reads", &all.read),
        (1, "writes", &all.write),
        (2, "trims", &all.trim),
    ];
    let is_load = |at: usize| at > 0 || run.results.job.rw.reads();
    let moved = sides.into_iter();
    moved
        .filter(|(at, _, side)| side.ios > 0 && is_load(*at))
        .collect()
}

/// Verified blocks and failed requests, for jobs that have any. None without such jobs.
fn outcomes(runs: &[Run]) -> Option<Table> {
    let columns = [
        ("", "workload"),
        ("", "disk"),
        ("requests", "done"),
        ("requests", "failed"),
        ("verified blocks", "read"),
        ("verified blocks", "wrong"),
        ("", "first fault"),
    ];
    let mut table = Table::new("outcomes", "Faults and verification", columns);
    for run in runs {
        let all = &run.results.aggregate;
        let failed = all.errors.total();
        let count = |count: u64| Cell::Number(count as f64, Shown::Grouped);
        let verify = all.verify.as_ref();
        if failed == 0 && verify.is_none() {
            continue;
        }
        let checked = |of: fn(&Verified) -> u64| verify.map_or(Cell::Empty, |one| count(of(one)));
        let wrong = verify.and_then(|verify| verify.first_error.as_ref());
        let first = all.errors.first.as_ref().or(wrong);
        table.push(vec![
            Cell::text(&run.name),
            Cell::text(&run.disk),
            count(all.total.ios),
            count(failed),
            checked(|verify| verify.blocks_checked),
            checked(|verify| verify.errors),
            Cell::text(first.map_or("none", String::as_str)),
        ]);
    }
    (!table.rows.is_empty()).then_some(table)
}

/// The latency of slow requests: latency against rarity.
pub(crate) fn tails<'a>(runs: impl IntoIterator<Item = &'a Run>) -> Figure {
    let line = |run: &Run| {
        let latency = &run.results.aggregate.total.latency;
        let slow = latency
            .percentiles_ns
            .iter()
            .filter(|(percent, _)| (50.0..100.0).contains(percent))
            // Percentiles rarer than one request of the run only repeat the maximum.
            .filter(|(percent, _)| rarity(*percent) <= latency.count.max(2) as f64 * 1.001);
        Curve {
            name: format!("{}, {}", run.name, run.disk),
            points: slow
                .map(|(percent, ns)| (rarity(*percent), *ns as f64 / 1e3))
                .collect(),
            mark: None,
        }
    };
    let runs: Vec<&Run> = runs.into_iter().collect();
    let mut unit =
        "percentiles of the latency: p99 is what one request in 100 exceeds; less is better"
            .to_owned();
    if runs.iter().any(|run| run.results.job.is_open_loop()) {
        unit += PLANNED;
    }
    Figure {
        name: "tails".into(),
        title: "The slow ones".into(),
        unit,
        drawing: Drawing::Lines {
            across: Axis::log("percentile").named(NINES.map(nine).into()),
            up: Axis::time("latency"),
            lines: runs.into_iter().map(line).collect(),
        },
    }
}

/// The beginning of a latency, where requests have times of their own.
const PLANNED: &str =
    "; counted from the planned start of each request, scheduling and wake-up included";

/// Position of a percentile on the axis (one in N requests), and its name.
fn nine(percent: f64) -> (f64, String) {
    (rarity(percent), format!("p{percent}"))
}

fn rarity(percent: f64) -> f64 {
    100.0 / (100.0 - percent)
}

/// Percentiles with names on the axis.
const NINES: [f64; 8] = [50.0, 90.0, 99.0, 99.9, 99.99, 99.999, 99.9999, 99.99999];

/// The rates over time, of each direction where there are several.
pub(crate) fn course<'a>(runs: impl IntoIterator<Item = &'a Run>) -> Figure {
    let line = |run: &Run, name: &str, directions: &[usize]| Curve {
        name: format!("{}{name}, {}", run.name, run.disk),
        points: run
            .results
            .series
            .iter()
            .map(|point| (point.at.as_secs_f64() * 1e6, point.iops_of(directions)))
            .collect(),
        mark: None,
    };
    let lines = |run: &Run| match &sides(run)[..] {
        several @ [_, _, ..] => several
            .iter()
            .map(|(at, name, _)| line(run, &format!(" {name}"), &[*at]))
            .collect(),
        _ => vec![line(run, "", &[0, 1, 2])],
    };
    Figure {
        name: "course".into(),
        title: "Over time".into(),
        unit: "requests per second".into(),
        drawing: Drawing::Lines {
            across: Axis {
                time: true,
                ..Axis::linear("time")
            },
            up: Axis::linear("IOPS"),
            lines: runs.into_iter().flat_map(lines).collect(),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample;

    /// A run with these results.
    fn run(results: fabrix_bench::Results) -> Run {
        Run {
            name: "job".into(),
            disk: "ram:1G".into(),
            repeats: Vec::new(),
            results,
            target_cores: None,
            missed: None,
            group: 0,
            written: None,
        }
    }

    #[test]
    fn faults_and_verified_blocks_have_a_table() {
        assert!(outcomes(&[run(sample::results())]).is_none());
        let table = outcomes(&[run(sample::trouble())]).expect("there is trouble");
        let numbers = |at: usize| table.rows[0][at].clone();
        assert_eq!(numbers(3), Cell::Number(3.0, Shown::Grouped));
        assert_eq!(numbers(5), Cell::Number(2.0, Shown::Grouped));
        assert!(matches!(numbers(6), Cell::Text(first) if first.contains("job 0")));
    }

    #[test]
    fn a_mix_has_its_directions_apart() {
        let mut results = sample::results();
        results.aggregate.write = results.aggregate.read.clone();
        results.aggregate.write.ios = 0;
        results.aggregate.trim.ios = 0;
        assert!(directions(&[run(results.clone())]).is_none());
        results.aggregate.write.ios = 7;
        let mixed = [run(results)];
        let table = directions(&mixed).expect("a mix");
        let named: Vec<&Cell> = table.rows.iter().map(|row| &row[2]).collect();
        assert_eq!(named, [&Cell::text("reads"), &Cell::text("writes")]);
        let Drawing::Lines { lines, .. } = course(&mixed).drawing else {
            panic!("the course has lines");
        };
        let names: Vec<&str> = lines.iter().map(|line| line.name.as_str()).collect();
        assert_eq!(names, ["job reads, ram:1G", "job writes, ram:1G"]);
    }

    #[test]
    fn no_percentile_is_drawn_that_is_rarer_than_one_request_of_all() {
        let mut results = sample::results();
        let latency = &mut results.aggregate.total.latency;
        latency.count = 1000;
        latency.percentiles_ns = [50.0, 99.0, 99.9, 99.99]
            .map(|percent| (percent, 1000))
            .into();
        let run = run(results);
        let Drawing::Lines { lines, .. } = tails([&run]).drawing else {
            panic!("tails are lines");
        };
        let rare: Vec<f64> = lines[0]
            .points
            .iter()
            .map(|point| point.0.round())
            .collect();
        assert_eq!(rare, [2.0, 100.0, 1000.0]);
    }
}
