//! The demonstration's table as aligned text, JSON and CSV. `html.rs` creates the page with charts.

use fabrix_bench::matrix::{Cell, Matrix, Row};
use serde_json::{Value, json};

use super::Context;
use super::json::document;
use super::number::{cores, grouped, mb_per_s, percent, short};
use super::plain::quoted;

/// The columns of one side.
const SIDE: [&str; 4] = ["IOPS", "MB/s", "mean us", "p99 us"];

/// The table for a terminal, with a final newline.
pub(crate) fn text(matrix: &Matrix) -> String {
    let head: Vec<String> = head().into_iter().map(String::from).collect();
    let rows: Vec<Vec<String>> = matrix.rows.iter().map(cells).collect();
    let widths: Vec<usize> = (0..head.len())
        .map(|at| {
            rows.iter()
                .map(|row| row[at].len())
                .chain([head[at].len()])
                .max()
                .unwrap_or(0)
        })
        .collect();
    let mut text = banner(matrix, &widths);
    text += &aligned(&head, &widths);
    let rule: Vec<String> = widths.iter().map(|width| "-".repeat(*width)).collect();
    text += &aligned(&rule, &widths);
    rows.iter().for_each(|row| text += &aligned(row, &widths));
    text
}

/// The figures of a row, in the order of [`head`].
pub(super) fn cells(row: &Row) -> Vec<String> {
    let side = |cell: &Cell| {
        [
            grouped(cell.iops),
            mb_per_s(cell.bw_bytes),
            short(cell.mean_us),
            short(cell.p99_us),
        ]
    };
    let mut cells = vec![row.name.clone()];
    cells.extend(side(&row.local));
    cells.push(cores(Some(row.local.cpu_initiator)));
    cells.extend(side(&row.remote));
    cells.push(cores(Some(row.remote.cpu_initiator)));
    cells.push(cores(row.remote.cpu_target));
    cells.push(percent(row.ratio()));
    cells
}

/// The names of the columns.
pub(super) fn head() -> Vec<&'static str> {
    let mut head = vec!["workload"];
    head.extend(SIDE);
    head.push("CPU");
    head.extend(SIDE);
    head.extend(["CPU ini", "CPU tgt", "rem/loc"]);
    head
}

/// The line with the titles of the local and the remote columns.
fn banner(matrix: &Matrix, widths: &[usize]) -> String {
    let span = |range: &[usize]| range.iter().sum::<usize>() + 2 * (range.len() - 1);
    let local = format!("local: {}", matrix.local);
    let remote = format!("remote: {}", matrix.remote);
    let line = format!(
        "{:name$}  {local:side$}  {remote}",
        "",
        name = widths[0],
        side = span(&widths[1..6])
    );
    format!("{}\n", line.trim_end())
}

fn aligned(cells: &[String], widths: &[usize]) -> String {
    let mut line = format!("{:<width$}", cells[0], width = widths[0]);
    for (cell, width) in cells.iter().zip(widths).skip(1) {
        line += &format!("  {cell:>width$}");
    }
    format!("{}\n", line.trim_end())
}

/// The table as a JSON document.
pub(crate) fn json(matrix: &Matrix, context: &Context) -> Value {
    let rows: Vec<Value> = matrix.rows.iter().map(row_json).collect();
    let mut document = document(context);
    document["local"] = json!(matrix.local);
    document["remote"] = json!(matrix.remote);
    document["rows"] = json!(rows);
    document
}

fn row_json(row: &Row) -> Value {
    json!({
        "name": row.name,
        "local": cell_json(&row.local),
        "remote": cell_json(&row.remote),
        "remote_to_local_iops": row.ratio(),
    })
}

fn cell_json(cell: &Cell) -> Value {
    json!({
        "iops": cell.iops,
        "bw_bytes": cell.bw_bytes,
        "lat_us": { "mean": cell.mean_us, "p99": cell.p99_us },
        "cpu_cores": { "initiator": cell.cpu_initiator, "target": cell.cpu_target },
    })
}

/// The table as CSV: one header line, one line per row, plain numbers.
///
/// Source: RFC 4180.
pub(crate) fn csv(matrix: &Matrix) -> String {
    let mut text = String::from("workload");
    for side in ["local", "remote"] {
        for column in [
            "iops",
            "bw_bytes",
            "mean_us",
            "p99_us",
            "cpu_initiator",
            "cpu_target",
        ] {
            text += &format!(",{side}_{column}");
        }
    }
    text += ",remote_to_local_iops\r\n";
    for row in &matrix.rows {
        text += &quoted(&row.name);
        for cell in [&row.local, &row.remote] {
            text += &cell_csv(cell);
        }
        text += &format!(",{}\r\n", optional(row.ratio()));
    }
    text
}

fn cell_csv(cell: &Cell) -> String {
    format!(
        ",{:.1},{:.0},{:.3},{:.3},{:.3},{}",
        cell.iops,
        cell.bw_bytes,
        cell.mean_us,
        cell.p99_us,
        cell.cpu_initiator,
        optional(cell.cpu_target)
    )
}

fn optional(value: Option<f64>) -> String {
    value.map_or_else(String::new, |value| format!("{value:.3}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample;

    #[test]
    fn the_table_reads_as_it_did() {
        sample::golden("matrix.txt", &text(&sample::matrix()));
    }

    #[test]
    fn the_csv_reads_as_it_did() {
        sample::golden("matrix.csv", &csv(&sample::matrix()));
    }

    #[test]
    fn the_json_reads_as_it_did() {
        let value = json(&sample::matrix(), &sample::context());
        let text = serde_json::to_string_pretty(&value).expect("keys are strings") + "\n";
        sample::golden("matrix.json", &text);
    }

    #[test]
    fn every_line_of_the_csv_has_as_many_fields_as_the_header() {
        let mut matrix = sample::matrix();
        matrix.rows[0].local = Cell::default();
        let csv = csv(&matrix);
        let fields: Vec<usize> = csv.lines().map(|line| line.split(',').count()).collect();
        assert!(fields.iter().all(|count| *count == 14), "{fields:?}");
    }

    #[test]
    fn a_name_with_a_comma_is_quoted() {
        assert_eq!(quoted("a \"b\", c"), "\"a \"\"b\"\", c\"");
    }

    #[test]
    fn a_table_without_rows_has_a_head() {
        assert!(text(&Matrix::default()).contains("workload"));
    }
}
