//! Published tables as data: measurements of others on other machines. They are shown beside ours
//! and never mixed with them.
//!
//! Each is a CSV file in `published/`, with the order and words of the publication.

use crate::cli::bench::args::TableArgs;
use crate::failure::Failure;
use crate::report::sheet::{Cell, Column, PUBLISHED, Shown, Table};

/// A published table.
pub(crate) struct Published {
    /// Name for `--published`.
    pub(crate) name: &'static str,
    /// Name of the measured table with the same rows, if there is one.
    pub(crate) rows_of: &'static str,
    /// Origin: author, subject and machine.
    pub(crate) about: &'static str,
    csv: &'static str,
}

macro_rules! published {
    ($($name:literal of $rows:literal: $about:literal,)*) => {
        [$(Published {
            name: $name,
            rows_of: $rows,
            about: $about,
            csv: include_str!(concat!("published/", $name, ".csv")),
        },)*]
    };
}

const ALL: [Published; 15] = published! {
    "starwind-ram-local" of "workloads":
        "StarWind's article on its NVMe-oF initiator: RAM disk, local; 2x Xeon E5-2683 v3",
    "starwind-ram-loopback" of "workloads": "StarWind's article: RAM disk through SPDK over loopback",
    "starwind-ram-rdma" of "workloads":
        "StarWind's article: RAM disk through SPDK over RDMA, 100 Gb/s, Windows initiator",
    "starwind-optane-local" of "workloads": "StarWind's article: Optane 900P, local",
    "starwind-optane-loopback" of "workloads": "StarWind's article: Optane 900P through SPDK over loopback",
    "starwind-optane-rdma" of "workloads":
        "StarWind's article: Optane 900P through SPDK over RDMA, 100 Gb/s, Windows initiator",
    "starwind-search-ram" of "search": "StarWind's article: the search on the local RAM disk, IOPS of 4k random reads",
    "starwind-search-optane" of "search": "StarWind's article: the search on the local Optane 900P",
    "starwind-latency" of "latency":
        "StarWind's article: numjobs=1 iodepth=1, RAM disk and Optane, local and over RDMA",
    "stgt-null" of "": "A. Nezhinsky on stgt with a null backing store over iSER, InfiniBand DDR: MB/s and CPU percent",
    "stgt-chain" of "": "A. Nezhinsky on stgt over iSER: the chain A to B to C, MB/s",
    "stgt-initiators" of "":
        "A. Nezhinsky on stgt over iSER: two initiators at once, on one device and on two, 1 KB commands",
    "stgt-bidirectional" of "": "A. Nezhinsky on stgt over iSER: both directions at once, MB/s",
    "zetavault-nvmef" of "": "Zetavault's NVMe native against NVMe over fabrics: Intel P3700, Xeon E5-1620 v4",
    "diskspd-100gbe" of "set": "four striped Intel P3600 over SMB3 and 100 GbE with DiskSpd, MB/s",
};

/// The table with this name. The name `list` returns the list of all tables as an error.
///
/// Errors: a sentence with the known names.
pub(crate) fn find(name: &str) -> Result<&'static Published, Failure> {
    static TABLES: [Published; 15] = ALL;
    TABLES
        .iter()
        .find(|table| table.name == name)
        .ok_or_else(|| {
            let names: Vec<String> = TABLES
                .iter()
                .map(|table| format!("  {:26}{}", table.name, table.about))
                .collect();
            Failure::usage(format!(
                "--published {name}: there are\n{}",
                names.join("\n")
            ))
        })
}

/// The table of `--published`, if the user has named one.
pub(crate) fn requested(args: &TableArgs) -> Result<Option<&'static Published>, Failure> {
    args.published.as_deref().map(find).transpose()
}

impl Published {
    /// The table as published. A colon in a column's name separates group and name.
    pub(crate) fn table(&self) -> Table {
        let mut lines = self.csv.lines().filter(|line| !line.starts_with('#'));
        let head: Vec<&str> = lines.next().unwrap_or_default().split(',').collect();
        let columns = head
            .iter()
            .map(|name| name.split_once(": ").unwrap_or(("", name)));
        let title = format!("Published, on another machine: {}", self.about);
        let mut table = Table::new(&format!("published-{}", self.name), &title, columns);
        for line in lines {
            table.push(line.split(',').map(cell).collect());
        }
        let figures = table.columns.iter_mut().skip(1);
        figures.for_each(|column| column.published = true);
        table
    }

    /// Adds the columns of this table to a measured one. MB/s are left out if there are IOPS.
    /// `name` converts the name of a measured row to the published one.
    pub(crate) fn beside(&self, measured: &mut Table, name: impl Fn(&str) -> String) {
        let table = self.table();
        let iops = table
            .columns
            .iter()
            .any(|column| column.name == "IOPS" || column.group == "IOPS");
        let bandwidth = |column: &Column| column.name == "MB/s" || column.group == "MB/s";
        let columns = table.columns.into_iter().enumerate().skip(1);
        for (at, column) in columns.filter(|(_, column)| !(iops && bandwidth(column))) {
            let group = match column.group.as_str() {
                "" => PUBLISHED.to_owned(),
                group => format!("{PUBLISHED}: {group}"),
            };
            for row in &mut measured.rows {
                let wanted = match row.first() {
                    Some(Cell::Text(text)) => cell(&name(text)),
                    _ => Cell::Empty,
                };
                let found = table.rows.iter().find(|cells| cells[0] == wanted);
                row.push(found.map_or(Cell::Empty, |cells| cells[at].clone()));
            }
            measured.columns.push(Column { group, ..column });
        }
    }

    /// Adds this table to the measured one with the same rows, and appends it as published.
    pub(crate) fn join(&self, tables: &mut Vec<Table>) {
        let measured = tables.iter_mut().find(|table| table.name == self.rows_of);
        if let Some(measured) = measured {
            // The rows of the search are named by their depth.
            self.beside(measured, |row| row.trim_start_matches("depth ").to_owned());
        }
        tables.push(self.table());
    }
}

fn cell(text: &str) -> Cell {
    match text.parse::<f64>() {
        _ if text.is_empty() => Cell::Empty,
        Ok(number) => {
            let decimals = text.split_once('.').map(|(_, decimals)| decimals.len());
            Cell::Number(number, decimals.map_or(Shown::Grouped, Shown::Fixed))
        }
        Err(_) => Cell::text(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::plain;

    #[test]
    fn every_table_is_whole() {
        for published in ALL {
            let table = published.table();
            assert!(table.rows.len() >= 3, "{}", published.name);
            let numbers = table.rows.iter().flat_map(|row| &row[1..]);
            let missing = numbers.filter(|cell| matches!(cell, Cell::Text(_))).count();
            assert_eq!(
                missing, 0,
                "{} has words where numbers stand",
                published.name
            );
        }
    }

    #[test]
    fn a_figure_stands_where_it_was_published() {
        let figure = |name: &str, row: &str, (group, column): (&str, &str)| {
            let Ok(published) = find(name) else {
                panic!("{name} is there")
            };
            let table = published.table();
            let mut columns = table.columns.iter();
            let at =
                columns.position(|it| (it.group.as_str(), it.name.as_str()) == (group, column));
            let mut rows = table.rows.iter();
            let row = rows.find(|cells| cells[0] == cell(row)).expect("the row");
            (table.rows.len(), row[at.expect("the column")].clone())
        };
        let grouped = |value| Cell::Number(value, Shown::Grouped);
        let rdma = figure("starwind-ram-rdma", "4k random read", ("", "IOPS"));
        assert_eq!(rdma, (13, grouped(460_792.0)));
        let fabric = figure("zetavault-nvmef", "read 4K 1w", ("IOPS", "Ethernet"));
        assert_eq!(fabric.1, grouped(187_173.0));
        assert_eq!(figure("stgt-chain", "512", ("", "READ")).1, grouped(800.0));
    }

    #[test]
    fn a_published_figure_stands_beside_ours_and_is_marked() {
        let Ok(published) = find("starwind-search-ram") else {
            panic!("it is there")
        };
        let mut table = Table::new(
            "search",
            "The search",
            [("", "4k random read"), ("IOPS", "1")],
        );
        for depth in ["depth 1", "depth 3"] {
            table.push(vec![Cell::text(depth), Cell::Number(5.0, Shown::Grouped)]);
        }
        let mut tables = vec![table];
        published.join(&mut tables);
        assert_eq!(tables.len(), 2);
        assert_eq!(
            tables[0].rows[0][5],
            Cell::Number(422_235.0, Shown::Grouped)
        );
        assert_eq!(tables[0].rows[1][5], Cell::Empty, "there is no such row");
        let csv = plain::csv(&tables[0]);
        let marked = "4k random read,IOPS: 1,\"published, another machine: 1\",";
        assert!(csv.starts_with(marked), "{csv}");
        let whole = plain::csv(&tables[1]);
        assert!(
            whole.starts_with("depth,\"published, another machine: 1\","),
            "{whole}"
        );
        assert!(plain::table(&tables[0]).contains("published, another machine"));
    }

    #[test]
    fn a_name_that_is_none_is_answered_with_all_names() {
        let error = find("list").err().expect("it is no table").to_string();
        assert!(
            ALL.iter().all(|table| error.contains(table.name)),
            "{error}"
        );
    }
}
