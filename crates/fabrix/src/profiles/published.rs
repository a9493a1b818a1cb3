//! Published tables as data: what others measured on other machines, to be shown beside ours and never mixed with it.
//!
//! One CSV file each below `published/`, in the order and with the words of the publication.

use crate::failure::Failure;
use crate::report::sheet::{Cell, Column, Shown, Table};

/// A table that somebody published.
pub(crate) struct Published {
    /// What `--published` calls it.
    pub(crate) name: &'static str,
    /// Who measured what on what.
    pub(crate) about: &'static str,
    csv: &'static str,
}

macro_rules! published {
    ($($name:literal: $about:literal,)*) => {
        [$(Published {
            name: $name,
            about: $about,
            csv: include_str!(concat!("published/", $name, ".csv")),
        },)*]
    };
}

const ALL: [Published; 14] = published! {
    "starwind-ram-local": "StarWind's article on its NVMe-oF initiator: RAM disk, local; 2x Xeon E5-2683 v3",
    "starwind-ram-loopback": "StarWind's article: RAM disk through SPDK over loopback",
    "starwind-ram-rdma": "StarWind's article: RAM disk through SPDK over RDMA, 100 Gb/s, Windows initiator",
    "starwind-optane-local": "StarWind's article: Optane 900P, local",
    "starwind-optane-loopback": "StarWind's article: Optane 900P through SPDK over loopback",
    "starwind-optane-rdma": "StarWind's article: Optane 900P through SPDK over RDMA, 100 Gb/s, Windows initiator",
    "starwind-search-ram": "StarWind's article: the search on the local RAM disk, IOPS of 4k random reads",
    "starwind-search-optane": "StarWind's article: the search on the local Optane 900P",
    "starwind-latency": "StarWind's article: numjobs=1 iodepth=1, RAM disk and Optane, local and over RDMA",
    "stgt-null": "A. Nezhinsky on stgt with a null backing store over iSER, InfiniBand DDR: MB/s and CPU percent",
    "stgt-chain": "A. Nezhinsky on stgt over iSER: the chain A to B to C, MB/s",
    "stgt-bidirectional": "A. Nezhinsky on stgt over iSER: both directions at once, MB/s",
    "zetavault-nvmef": "Zetavault's NVMe native against NVMe over fabrics: Intel P3700, Xeon E5-1620 v4",
    "diskspd-100gbe": "four striped Intel P3600 over SMB3 and 100 GbE with DiskSpd, MB/s",
};

/// The table of that name; `list` as a name is answered with all of them.
///
/// Errors: a sentence with the names there are.
pub(crate) fn find(name: &str) -> Result<&'static Published, Failure> {
    static TABLES: [Published; 14] = ALL;
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

impl Published {
    /// The table as published. A column whose name has a colon stands under a group.
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
        table
    }

    /// Adds one column of this table to a measured one, row by row of the same name.
    pub(crate) fn beside(&self, measured: &mut Table, column: &str) {
        let values = self.column(column);
        measured.columns.push(Column {
            group: "published, another machine".into(),
            name: column.to_owned(),
        });
        for row in &mut measured.rows {
            let value = values
                .iter()
                .find(|(name, _)| row.first() == Some(&Cell::text(name)));
            row.push(Cell::optional(
                value.map(|(_, value)| *value),
                Shown::Grouped,
            ));
        }
    }

    /// One column of the table by its whole name, with the first cell of each row.
    pub(crate) fn column(&self, name: &str) -> Vec<(String, f64)> {
        let mut lines = self.csv.lines().filter(|line| !line.starts_with('#'));
        let Some(at) = lines
            .next()
            .and_then(|head| head.split(',').position(|column| column == name))
        else {
            return Vec::new();
        };
        let value = |line: &str| {
            let cells: Vec<&str> = line.split(',').collect();
            Some((cells.first()?.to_string(), cells.get(at)?.parse().ok()?))
        };
        lines.filter_map(value).collect()
    }
}

fn cell(text: &str) -> Cell {
    match text.parse::<f64>() {
        _ if text.is_empty() => Cell::Empty,
        Ok(number) => {
            let decimals = text
                .split_once('.')
                .map_or(0, |(_, decimals)| decimals.len());
            Cell::Number(
                number,
                if decimals == 0 {
                    Shown::Grouped
                } else {
                    Shown::Fixed(decimals)
                },
            )
        }
        Err(_) => Cell::text(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let find = |name| {
            find(name)
                .map_err(|error| error.to_string())
                .expect("it is there")
        };
        let rdma = find("starwind-ram-rdma").column("IOPS");
        assert_eq!(rdma.len(), 13);
        assert!(rdma.contains(&("4k random read".to_owned(), 460_792.0)));
        assert!(
            find("zetavault-nvmef")
                .column("IOPS: Ethernet")
                .contains(&("read 4K 1w".to_owned(), 187_173.0))
        );
        assert_eq!(
            find("stgt-chain").column("READ").last(),
            Some(&("512".to_owned(), 800.0))
        );
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
