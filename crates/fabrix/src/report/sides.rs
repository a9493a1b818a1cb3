//! The charts of the demonstration's page, with the local and the remote side of each workload.

use fabrix_bench::matrix::{Cell, Matrix, Row};

use super::number::{cores, grouped, percent, short, time};
use super::scale::{Scale, counts, percents};
use super::svg::{Chart, Group, Line, Mark, draw};

fn card(title: &str, unit: &str, legend: &[(&str, &str)], chart: &Chart) -> String {
    let keys: Vec<String> = legend
        .iter()
        .map(|(class, name)| format!("<span class=\"key {class}\"></span>{name} "))
        .collect();
    format!(
        "<section class=\"card\">\n<h2>{title} <small>{unit}</small></h2>\n<p class=\"legend\">{}</p>\n{}</section>\n",
        keys.concat(),
        draw(chart)
    )
}

const SIDES: [(&str, &str); 2] = [("local", "local"), ("remote", "remote")];
const SIDES_AND_WIRE: [(&str, &str); 3] = [SIDES[0], SIDES[1], ("s2", "wire: bare TCP")];

pub(super) fn iops(matrix: &Matrix) -> String {
    let rows = rows(matrix, |name| name.starts_with("4k"));
    let chart = pairs(
        "Requests per second of the 4 KiB workloads",
        &rows,
        |cell| cell.iops,
        |row| row.wire_iops,
        grouped,
    );
    card(
        "IOPS, 4 KiB",
        "requests per second, more is better",
        &SIDES_AND_WIRE,
        &chart,
    )
}

pub(super) fn bandwidth(matrix: &Matrix) -> String {
    let rows = rows(matrix, |name| !name.starts_with("4k"));
    let chart = pairs(
        "Bandwidth of the 64 and 8 KiB workloads",
        &rows,
        |cell| cell.bw_bytes / 1e6,
        |row| row.wire_iops * row.block_bytes / 1e6,
        short,
    );
    card(
        "Bandwidth, 64 and 8 KiB",
        "MB/s (10<sup>6</sup> bytes), more is better",
        &SIDES_AND_WIRE,
        &chart,
    )
}

fn rows(matrix: &Matrix, wanted: fn(&str) -> bool) -> Vec<&Row> {
    matrix.rows.iter().filter(|row| wanted(&row.name)).collect()
}

/// One bar per side and row, and one for the wire.
fn pairs(
    label: &str,
    rows: &[&Row],
    value: fn(&Cell) -> f64,
    wire: fn(&Row) -> f64,
    text: fn(f64) -> String,
) -> Chart {
    let greatest = rows
        .iter()
        .flat_map(|row| [value(&row.local), value(&row.remote), wire(row)])
        .fold(0.0, f64::max);
    let bar = |class, value: f64| Line::bar(class, value, text(value));
    let scale = Scale::linear(greatest, counts);
    let mut chart = chart(label, scale, rows, |class, cell| bar(class, value(cell)));
    for (group, row) in chart.groups.iter_mut().zip(rows) {
        group.lines.push(bar("s2", wire(row)));
    }
    chart
}

/// One line per side and row.
fn chart(
    label: &str,
    scale: Scale,
    rows: &[&Row],
    line: impl Fn(&'static str, &Cell) -> Line,
) -> Chart {
    let group = |row: &&Row| Group {
        name: row.name.clone(),
        lines: vec![line("local", &row.local), line("remote", &row.remote)],
    };
    Chart {
        label: label.into(),
        scale,
        rule: None,
        groups: rows.iter().map(group).collect(),
    }
}

pub(super) fn ratio(matrix: &Matrix) -> String {
    let of = |row: &Row| row.wire_ratio().unwrap_or(0.0) * 100.0;
    let greatest = matrix.rows.iter().map(of).fold(100.0, f64::max);
    let group = |row: &Row| Group {
        name: row.name.clone(),
        lines: vec![Line::bar("remote", of(row), percent(row.wire_ratio()))],
    };
    let groups = matrix.rows.iter().map(group).collect();
    let label = "Remote requests per second in percent of those of bare TCP sockets".into();
    let chart = Chart {
        label,
        scale: Scale::linear(greatest, percents),
        rule: Some(100.0),
        groups,
    };
    card(
        "Remote / wire",
        "IOPS; the line is what bare TCP sockets reach",
        &SIDES[1..],
        &chart,
    )
}

pub(super) fn latency(matrix: &Matrix) -> String {
    let values = matrix.rows.iter().flat_map(|row| [row.local, row.remote]);
    let values = values.flat_map(|cell| [cell.mean_us, cell.p99_us]);
    let line = |class, cell: &Cell| Line {
        marks: vec![Mark::Span {
            class,
            dot: cell.mean_us,
            tick: cell.p99_us,
        }],
        label: format!("{} / {}", time(cell.mean_us * 1e3), time(cell.p99_us * 1e3)),
    };
    let rows = rows(matrix, |_| true);
    let chart = chart(
        "Mean and 99th percentile of the latency",
        Scale::log(values),
        &rows,
        line,
    );
    card(
        "Latency",
        "dot: mean, tick: 99th percentile; logarithmic, less is better",
        &SIDES,
        &chart,
    )
}

pub(super) fn cpu(matrix: &Matrix) -> String {
    let total = |cell: &Cell| cell.cpu_initiator + cell.cpu_target.unwrap_or(0.0);
    let greatest = matrix
        .rows
        .iter()
        .flat_map(|row| [total(&row.local), total(&row.remote)])
        .fold(0.0, f64::max);
    let line = |class, cell: &Cell| Line {
        marks: vec![
            Mark::Bar {
                class,
                from: 0.0,
                to: cell.cpu_initiator,
            },
            Mark::Bar {
                class: "target",
                from: cell.cpu_initiator,
                to: total(cell),
            },
        ],
        label: cpu_label(cell),
    };
    let rows = rows(matrix, |_| true);
    let chart = chart(
        "Cores kept busy by initiator and target",
        Scale::linear(greatest, counts),
        &rows,
        line,
    );
    let legend = [
        ("local", "local"),
        ("remote", "remote: initiator"),
        ("target", "remote: target"),
    ];
    card("CPU", "cores busy, less is better", &legend, &chart)
}

fn cpu_label(cell: &Cell) -> String {
    match cell.cpu_target {
        Some(target) => format!(
            "{} + {}",
            cores(Some(cell.cpu_initiator)),
            cores(Some(target))
        ),
        None => cores(Some(cell.cpu_initiator)),
    }
}
