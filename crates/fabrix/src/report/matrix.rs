//! The demonstration's table as aligned text, JSON and CSV. `html.rs` creates the page with charts.

use fabrix_bench::Counted;
use fabrix_bench::matrix::{Cell, Matrix, Row};
use serde_json::{Value, json};

use super::Context;
use super::json::document;
use super::number::percent;
use super::plain::{self, quoted};
use super::sheet::{Cell as TableCell, Shown, Table};

/// The lead, the table and the warnings for a terminal, with a final newline.
pub(crate) fn text(matrix: &Matrix) -> String {
    let (lead, table) = (lead(matrix), plain::table(&table(matrix)));
    let mut text = format!("{lead}\n{}\n\n{table}", meaning(matrix));
    for warning in &matrix.warnings {
        text += &format!("warning: {warning}\n");
    }
    text
}

/// The result as a sentence.
pub(super) fn lead(matrix: &Matrix) -> String {
    format!(
        "The remote disk does {} of what the wire can do.",
        percent(matrix.wire_ratio())
    )
}

/// The explanation of the result.
pub(super) fn meaning(matrix: &Matrix) -> String {
    format!(
        "The wire is bare TCP sockets on this machine, with as many requests in flight and as much data, but \
         without protocol and disk. The percentage is that of the IOPS, the geometric mean of {}.",
        Counted(matrix.rows.len() as u64, "workload")
    )
}

/// The table. The titles of both sides stand above their columns.
pub(super) fn table(matrix: &Matrix) -> Table {
    let local = format!("local: {}", matrix.local);
    let remote = format!("remote: {}", matrix.remote);
    let side = ["IOPS", "MB/s", "mean us", "p99 us"];
    let locals = side.into_iter().chain(["CPU"]);
    let remotes = side.into_iter().chain(["CPU ini", "CPU tgt", "rem/loc"]);
    let columns = [("", "workload")].into_iter();
    let columns = columns.chain(locals.map(|name| (local.as_str(), name)));
    let columns = columns.chain(remotes.map(|name| (remote.as_str(), name)));
    let columns = columns.chain([("wire: bare TCP", "IOPS"), ("wire: bare TCP", "rem/wire")]);
    let mut table = Table::new("matrix", "All figures", columns);
    for row in &matrix.rows {
        let mut cells = vec![TableCell::text(&row.name)];
        cells.extend(side_cells(&row.local));
        cells.extend(side_cells(&row.remote));
        let target = TableCell::optional(row.remote.cpu_target, Shown::Fixed(2));
        cells.extend([
            target,
            TableCell::optional(row.ratio(), Shown::Percent),
            TableCell::Number(row.wire_iops, Shown::Grouped),
            TableCell::optional(row.wire_ratio(), Shown::Percent),
        ]);
        table.push(cells);
    }
    table
}

fn side_cells(cell: &Cell) -> [TableCell; 5] {
    [
        TableCell::Number(cell.iops, Shown::Grouped),
        TableCell::Number(cell.bw_bytes / 1e6, Shown::Short),
        TableCell::Number(cell.mean_us, Shown::Time),
        TableCell::Number(cell.p99_us, Shown::Time),
        TableCell::Number(cell.cpu_initiator, Shown::Fixed(2)),
    ]
}

/// The table as a JSON document.
pub(crate) fn json(matrix: &Matrix, context: &Context) -> Value {
    let rows: Vec<Value> = matrix.rows.iter().map(row_json).collect();
    let mut document = document(context);
    document["local"] = json!(matrix.local);
    document["remote"] = json!(matrix.remote);
    document["remote_to_wire_iops"] = json!(matrix.wire_ratio());
    document["warnings"] = json!(matrix.warnings);
    document["rows"] = json!(rows);
    document
}

fn row_json(row: &Row) -> Value {
    json!({
        "name": row.name,
        "local": cell_json(&row.local),
        "remote": cell_json(&row.remote),
        "wire_iops": row.wire_iops,
        "remote_to_local_iops": row.ratio(),
        "remote_to_wire_iops": row.wire_ratio(),
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
    text += ",remote_to_local_iops,wire_iops,remote_to_wire_iops\r\n";
    for row in &matrix.rows {
        text += &quoted(&row.name);
        for cell in [&row.local, &row.remote] {
            text += &cell_csv(cell);
        }
        text += &format!(
            ",{},{:.1},{}\r\n",
            optional(row.ratio()),
            row.wire_iops,
            optional(row.wire_ratio())
        );
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
        assert!(fields.iter().all(|count| *count == 16), "{fields:?}");
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
