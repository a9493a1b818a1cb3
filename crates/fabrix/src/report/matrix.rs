//! The demonstration's table as aligned text, JSON and CSV. `html.rs` creates the page with charts.

use fabrix_bench::Counted;
use fabrix_bench::matrix::{Cell, Matrix, Row};
use serde_json::{Value, json};

use super::Context;
use super::json::document;
use super::number::{percent, time};
use super::plain::{self, quoted};
use super::sheet::{Cell as TableCell, Shown, Table};

/// The lead, the main columns and the warnings for a terminal, with a final newline.
pub(crate) fn text(matrix: &Matrix) -> String {
    let table = plain::table(&table(matrix).with_columns(&MAIN_COLUMNS));
    let [wire, runs] = meaning(matrix);
    let mut text = format!(
        "{}\n{wire}\n{runs}\n\n{table}\nThe report has more columns, with processor time.\n",
        lead(matrix)
    );
    for warning in &matrix.warnings {
        text += &format!("warning: {warning}\n");
    }
    text
}

/// The result as a sentence.
pub(super) fn lead(matrix: &Matrix) -> String {
    let (least, greatest) = matrix
        .wire_ratios()
        .fold((f64::INFINITY, 0.0_f64), |(least, greatest), ratio| {
            (least.min(ratio), greatest.max(ratio))
        });
    let range = (greatest > 0.0).then_some([least, greatest]);
    let [least, greatest] = [0, 1].map(|index| percent(range.map(|range| range[index])));
    format!(
        "The remote disk does {} of what the wire can do (geometric mean): {least} to {greatest} in {}.",
        percent(matrix.wire_ratio()),
        Counted(matrix.rows.len() as u64, "workload")
    )
}

/// What the lead compares, and how often it was measured.
pub(super) fn meaning(matrix: &Matrix) -> [String; 2] {
    [
        "The wire: bare TCP sockets on this machine, no protocol and no disk, measured once per request size."
            .to_owned(),
        format!(
            "Each workload ran once for {}, one job with iodepth={}. The spread between runs was not measured.",
            time(matrix.runtime_ms as f64 * 1e6),
            matrix.iodepth
        ),
    ]
}

/// The table. The titles of both sides stand above their columns.
pub(super) fn table(matrix: &Matrix) -> Table {
    let local = format!("local: {}", matrix.local);
    let remote = format!("remote: {}", matrix.remote);
    let side = ["IOPS", "MB/s", "mean us", "p99 us"];
    let remotes = ["of wire", "of local"].into_iter().chain(side);
    let remotes = remotes.chain(["CPU ini", "CPU tgt"]);
    let locals = side.into_iter().chain(["CPU"]);
    let columns = [("", "workload")].into_iter();
    let columns = columns.chain(remotes.map(|name| (remote.as_str(), name)));
    let columns = columns.chain(locals.map(|name| (local.as_str(), name)));
    let columns = columns.chain([("bare TCP", "IOPS")]);
    let mut table = Table::new("matrix", "All figures", columns);
    for row in &matrix.rows {
        let mut cells = vec![
            TableCell::text(&row.name),
            TableCell::optional(row.wire_ratio(), Shown::Percent),
            TableCell::optional(row.ratio(), Shown::Percent),
        ];
        cells.extend(side_cells(&row.remote));
        cells.push(TableCell::optional(row.remote.cpu_target, Shown::Fixed(2)));
        cells.extend(side_cells(&row.local));
        cells.push(TableCell::Number(row.wire_iops, Shown::Grouped));
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
    document["iodepth"] = json!(matrix.iodepth);
    document["runtime_ms"] = json!(matrix.runtime_ms);
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

/// Columns of [`table`] for a terminal of 100 columns: workload; of wire, IOPS, MB/s, mean and p99
/// of the remote disk; IOPS and mean of the local disk; IOPS of the wire.
const MAIN_COLUMNS: [usize; 9] = [0, 1, 3, 4, 5, 6, 9, 11, 14];

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
    fn the_table_fits_a_terminal_also_with_large_figures() {
        let mut matrix = sample::matrix();
        matrix.rows[0].local.iops = 1_234_567.0;
        matrix.rows[0].remote.iops = 1_234_567.0;
        matrix.rows[0].wire_iops = 1_234_567.0;
        matrix.rows[0].remote.bw_bytes = 12.3e9;
        matrix.warnings.clear();
        let text = text(&matrix);
        let widest = text.lines().skip(3).map(|line| line.chars().count()).max();
        assert!(widest <= Some(100), "{text}");
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
