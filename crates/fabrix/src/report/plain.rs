//! A report as text for a terminal, and its tables as CSV.

use super::number::{DASH, fixed, grouped, percent, short, time};
use super::sheet::{Cell, Report, Shown, Table};

/// The complete report, with a final newline.
pub(crate) fn text(report: &Report) -> String {
    let mut text = format!("{}\n{}\n", report.title, report.lead);
    for part in &report.tables {
        text += &format!("\n{}\n{}", part.title, table(part));
    }
    if !report.notes.is_empty() || !report.warnings.is_empty() {
        text.push('\n');
    }
    for note in &report.notes {
        text += &format!("note: {note}\n");
    }
    for warning in &report.warnings {
        text += &format!("warning: {warning}\n");
    }
    text
}

/// One table with aligned columns.
pub(crate) fn table(table: &Table) -> String {
    let rows: Vec<Vec<String>> = table
        .rows
        .iter()
        .map(|row| row.iter().map(shown).collect())
        .collect();
    let head: Vec<String> = (0..table.columns.len())
        .map(|at| headed(table, at, &table.columns[at].name))
        .collect();
    let mut widths: Vec<usize> = head.iter().map(|name| width(name)).collect();
    for row in &rows {
        for (widest, cell) in widths.iter_mut().zip(row) {
            *widest = (*widest).max(width(cell));
        }
    }
    let numeric: Vec<bool> = (0..widths.len()).map(|at| !is_words(table, at)).collect();
    let mut text = banner(table, &mut widths);
    text += &aligned(&head, &widths, &numeric);
    let rule: Vec<String> = widths.iter().map(|width| "-".repeat(*width)).collect();
    text += &aligned(&rule, &widths, &numeric);
    rows.iter()
        .for_each(|row| text += &aligned(row, &widths, &numeric));
    text
}

/// Whether a column contains words. Words are aligned left, numbers right.
pub(super) fn is_words(table: &Table, at: usize) -> bool {
    let mut cells = table.rows.iter().map(|row| &row[at]);
    cells.any(|cell| matches!(cell, Cell::Text(_)))
}

/// The groups of a table as shown to people, each with its number of columns.
pub(super) fn groups(table: &Table) -> Vec<(String, usize)> {
    let mut at = 0;
    let shown = |(group, count): (&str, usize)| {
        let name = headed(table, at, group);
        at += count;
        (name, count)
    };
    table.groups().into_iter().map(shown).collect()
}

/// The name of a column or of its group as shown to people. The unit of times stands in their
/// cells.
pub(super) fn headed(table: &Table, at: usize, name: &str) -> String {
    let mut cells = table.rows.iter().map(|row| &row[at]);
    let times = cells.any(|cell| matches!(cell, Cell::Number(_, Shown::Time)));
    match name.strip_suffix(" us") {
        Some(quantity) if times => quantity.to_owned(),
        Some(quantity) => format!("{quantity} µs"),
        None => name.replace("us/IO", "µs/IO"),
    }
}

/// The line of groups above the head, if there are any. Widens columns that are narrower than their
/// group's name.
fn banner(table: &Table, widths: &mut [usize]) -> String {
    let groups = groups(table);
    if groups.iter().all(|(group, _)| group.is_empty()) {
        return String::new();
    }
    let mut line = String::new();
    let mut at = 0;
    for (group, count) in groups {
        let span = widths[at..at + count].iter().sum::<usize>() + 2 * (count - 1);
        let missing = width(&group).saturating_sub(span);
        widths[at + count - 1] += missing;
        line += &format!("{group}{}  ", " ".repeat(span + missing - width(&group)));
        at += count;
    }
    format!("{}\n", line.trim_end())
}

fn aligned(cells: &[String], widths: &[usize], numeric: &[bool]) -> String {
    let mut line = String::new();
    for ((cell, widest), right) in cells.iter().zip(widths).zip(numeric) {
        let space = " ".repeat(widest - width(cell));
        let (before, after) = if *right {
            (space.as_str(), "")
        } else {
            ("", space.as_str())
        };
        line += &format!("{before}{cell}{after}  ");
    }
    format!("{}\n", line.trim_end())
}

/// Rows of words in aligned columns.
pub(crate) fn columns<const N: usize>(rows: &[[String; N]]) -> String {
    let widest = |at: usize| rows.iter().map(|row| width(&row[at])).max().unwrap_or(0);
    let widths: [usize; N] = std::array::from_fn(widest);
    rows.iter()
        .map(|row| aligned(row, &widths, &[false; N]))
        .collect()
}

fn width(text: &str) -> usize {
    text.chars().count()
}

/// A cell as shown to people.
pub(super) fn shown(cell: &Cell) -> String {
    match cell {
        Cell::Text(text) => text.clone(),
        Cell::Empty => DASH.into(),
        Cell::Number(value, _) if !value.is_finite() => DASH.into(),
        Cell::Number(value, Shown::Grouped) => grouped(*value),
        Cell::Number(value, Shown::Short) => short(*value),
        Cell::Number(value, Shown::Fixed(decimals)) => fixed(*value, *decimals),
        Cell::Number(value, Shown::Percent) => percent(Some(*value)),
        Cell::Number(value, Shown::Time) => time(value * 1e3),
    }
}

/// A table as CSV: one header line, one line per row, plain numbers.
///
/// Source: RFC 4180.
pub(crate) fn csv(table: &Table) -> String {
    let head: Vec<String> = table
        .columns
        .iter()
        .map(|column| quoted(&column.whole_name()))
        .collect();
    let mut text = format!("{}\r\n", head.join(","));
    for row in &table.rows {
        let cells: Vec<String> = row.iter().map(plain).collect();
        text += &format!("{}\r\n", cells.join(","));
    }
    text
}

fn plain(cell: &Cell) -> String {
    match cell {
        Cell::Text(text) => quoted(text),
        Cell::Number(value, _) if value.is_finite() => format!("{value}"),
        Cell::Number(..) | Cell::Empty => String::new(),
    }
}

pub(super) fn quoted(field: &str) -> String {
    if field.contains(['"', ',', '\r', '\n']) {
        return format!("\"{}\"", field.replace('"', "\"\""));
    }
    field.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Table {
        let mut table = Table::new(
            "t",
            "T",
            [
                ("", "workload"),
                ("a long group", "x"),
                ("b", "y"),
                ("b", "z"),
            ],
        );
        table.push(vec![
            Cell::text("4k, random"),
            Cell::Number(1234.5, Shown::Grouped),
            Cell::Number(0.5, Shown::Percent),
            Cell::Empty,
        ]);
        table.push(vec![
            Cell::text("µs"),
            Cell::Number(f64::NAN, Shown::Short),
            Cell::Number(1.25, Shown::Fixed(3)),
            Cell::Number(99.95, Shown::Short),
        ]);
        table
    }

    #[test]
    fn columns_line_up_under_their_groups() {
        let expected = "            a long group  b\n\
                        workload               x      y    z\n\
                        ----------  ------------  -----  ---\n\
                        4k, random         1,234   50 %    -\n\
                        µs                     -  1.250  100\n";
        assert_eq!(table(&sample()), expected);
    }

    #[test]
    fn csv_has_whole_numbers_and_quotes_what_needs_it() {
        let expected = "workload,a long group: x,b: y,b: z\r\n\"4k, random\",1234.5,0.5,\r\nµs,,1.25,99.95\r\n";
        assert_eq!(csv(&sample()), expected);
    }
}
