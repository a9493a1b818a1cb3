//! The result of a profile: tables, figures, the underlying runs, notes and warnings.
//!
//! These are plain values. A profile fills them without knowing any format, and the output
//! functions (text, JSON, CSV, page) read them.

use fabrix_bench::Results;
use fabrix_bench::spread::Spread;
use serde::{Serialize, Serializer};

/// The complete result of one command.
#[derive(Clone, Debug, Default)]
pub(crate) struct Report {
    /// Name of the profile on the command line.
    pub(crate) profile: String,
    /// Title of the page.
    pub(crate) title: String,
    /// Origin of the method, and the measured subject.
    pub(crate) lead: String,
    /// Notes needed to read the figures.
    pub(crate) notes: Vec<String>,
    /// Reasons why the figures may be wrong.
    pub(crate) warnings: Vec<String>,
    pub(crate) tables: Vec<Table>,
    pub(crate) figures: Vec<Figure>,
    pub(crate) runs: Vec<Run>,
}

/// One measurement with its repeats.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    pub(crate) name: String,
    /// Label of the disk.
    pub(crate) disk: String,
    /// Results of the median repeat.
    pub(crate) results: Results,
    /// Figures of all repeats.
    pub(crate) repeats: Vec<Repeat>,
    /// Busy cores of the target, if known.
    pub(crate) target_cores: Option<f64>,
    /// Sentence about a rate that the run had to reach and did not.
    pub(crate) missed: Option<String>,
    /// Number of the stage, from 0: fio's `groupid`.
    pub(crate) group: u32,
    /// The job as written. None: it was not written in fio's words.
    pub(crate) written: Option<Written>,
}

/// Options of a job as its user wrote them: fio's names and values.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Written {
    /// Options of the `[global]` sections before the job.
    pub(crate) global: Vec<(String, String)>,
    /// Options of the job's own section.
    pub(crate) own: Vec<(String, String)>,
}

/// How the directions of a job are reported: `unified_rw_reporting`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Unified {
    /// Each direction apart.
    #[default]
    Apart,
    /// All directions together.
    Mixed,
    /// Each direction, and all together.
    Both,
}

impl Unified {
    /// Parses fio's name or number.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        match text {
            "none" | "0" => Ok(Self::Apart),
            "mixed" | "1" => Ok(Self::Mixed),
            "both" | "2" => Ok(Self::Both),
            _ => Err(format!("`{text}` is not known; write none, mixed or both")),
        }
    }
}

impl Written {
    /// How the job wants its directions reported.
    pub(crate) fn unified(&self) -> Unified {
        let value = self.value("unified_rw_reporting");
        value
            .and_then(|value| Unified::parse(value).ok())
            .unwrap_or_default()
    }

    /// fio's engine, as it was written.
    pub(crate) fn engine(&self) -> Option<&str> {
        self.value("ioengine")
    }

    /// The last value of a key.
    fn value(&self, key: &str) -> Option<&str> {
        let mut options = self.own.iter().rev().chain(self.global.iter().rev());
        let found = options.find(|(known, _)| known == key);
        found.map(|(_, value)| value.as_str())
    }
}

/// Figures of one repeat.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Repeat {
    pub(crate) iops: f64,
    pub(crate) bw_bytes: f64,
    pub(crate) mean_us: f64,
}

impl Repeat {
    pub(crate) fn of(results: &Results) -> Self {
        let total = &results.aggregate.total;
        Self {
            iops: total.iops,
            bw_bytes: total.bw_bytes,
            mean_us: total.latency.mean_ns / 1e3,
        }
    }
}

impl Run {
    pub(crate) fn iops(&self) -> f64 {
        self.spread(|repeat| repeat.iops).median
    }

    pub(crate) fn bw_bytes(&self) -> f64 {
        self.spread(|repeat| repeat.bw_bytes).median
    }

    pub(crate) fn mean_us(&self) -> f64 {
        self.spread(|repeat| repeat.mean_us).median
    }

    /// A latency percentile of the median repeat in microseconds, reads and writes together.
    pub(crate) fn percentile_us(&self, percent: f64) -> Option<f64> {
        let latency = &self.results.aggregate.total.latency;
        latency.percentile_ns(percent).map(|ns| ns as f64 / 1e3)
    }

    pub(crate) fn spread(&self, of: fn(&Repeat) -> f64) -> Spread {
        Spread::of(self.repeats.iter().map(of))
    }

    /// Processor time of the load generator's threads per request, in microseconds.
    pub(crate) fn job_us_per_io(&self) -> Option<f64> {
        self.us_per_io(self.results.cpu.job_cores)
    }

    /// Processor time of the target per request in microseconds, if known.
    pub(crate) fn target_us_per_io(&self) -> Option<f64> {
        self.us_per_io(self.target_cores?)
    }

    fn us_per_io(&self, cores: f64) -> Option<f64> {
        let iops = self.results.aggregate.total.iops;
        (iops > 0.0).then(|| cores * 1e6 / iops)
    }
}

/// A table of figures. Serialization gives its form in JSON documents.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Table {
    /// Name for files: letters, digits and dashes.
    pub(crate) name: String,
    pub(crate) title: String,
    pub(crate) columns: Vec<Column>,
    pub(crate) rows: Vec<Vec<Cell>>,
}

/// A column of a table.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Column {
    /// Title above several columns. Empty for a single column.
    pub(crate) group: String,
    pub(crate) name: String,
    /// Whether the figures were published by others and measured on another machine.
    pub(crate) published: bool,
}

impl Column {
    /// Full name with group and mark, for tables without a line of groups.
    pub(crate) fn whole_name(&self) -> String {
        let mark = if self.published && !self.group.starts_with(PUBLISHED) {
            PUBLISHED
        } else {
            ""
        };
        let parts = [mark, &self.group, &self.name];
        let parts: Vec<&str> = parts.into_iter().filter(|part| !part.is_empty()).collect();
        parts.join(": ")
    }
}

/// Mark of published figures in all outputs.
pub(crate) const PUBLISHED: &str = "published, another machine";

impl Table {
    /// An empty table. `columns` contains pairs of group and name.
    pub(crate) fn new<'a>(
        name: &str,
        title: &str,
        columns: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Self {
        let column = |(group, name): (&str, &str)| Column {
            group: group.to_owned(),
            name: name.to_owned(),
            published: false,
        };
        Self {
            name: name.to_owned(),
            title: title.to_owned(),
            columns: columns.into_iter().map(column).collect(),
            rows: Vec::new(),
        }
    }

    /// Adds a row. It must have as many cells as there are columns.
    pub(crate) fn push(&mut self, row: Vec<Cell>) {
        assert_eq!(
            row.len(),
            self.columns.len(),
            "a row of {} fits its head",
            self.name
        );
        self.rows.push(row);
    }

    /// The table with some of its columns.
    pub(crate) fn with_columns(&self, columns: &[usize]) -> Self {
        let cells = |row: &Vec<Cell>| columns.iter().map(|at| row[*at].clone()).collect();
        Self {
            columns: columns.iter().map(|at| self.columns[*at].clone()).collect(),
            rows: self.rows.iter().map(cells).collect(),
            ..self.clone()
        }
    }

    /// The groups in order, each with its number of columns.
    pub(crate) fn groups(&self) -> Vec<(&str, usize)> {
        let mut groups: Vec<(&str, usize)> = Vec::new();
        for column in &self.columns {
            match groups.last_mut() {
                Some((group, count)) if *group == column.group => *count += 1,
                _ => groups.push((&column.group, 1)),
            }
        }
        groups
    }
}

/// Content of a cell.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Cell {
    /// A name.
    Text(String),
    /// A number with its display format.
    Number(f64, Shown),
    /// No measurement.
    Empty,
}

/// Display format of a number. Programs get the unrounded value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shown {
    /// Rounded, with grouped thousands.
    Grouped,
    /// About three significant digits.
    Short,
    /// Fixed number of decimals.
    Fixed(usize),
    /// A fraction, shown in percent.
    Percent,
    /// Microseconds, shown as ns, µs, ms or s by size. The column's name ends with `us` for
    /// programs, and people see the unit in each cell.
    Time,
}

impl Cell {
    pub(crate) fn text(text: impl Into<String>) -> Self {
        Self::Text(text.into())
    }

    pub(crate) fn optional(value: Option<f64>, shown: Shown) -> Self {
        value.map_or(Self::Empty, |value| Self::Number(value, shown))
    }
}

impl Serialize for Cell {
    /// Writes the unrounded value.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Text(text) => serializer.serialize_str(text),
            Self::Number(value, _) if value.is_finite() => serializer.serialize_f64(*value),
            Self::Number(..) | Self::Empty => serializer.serialize_none(),
        }
    }
}

/// A figure.
#[derive(Clone, Debug)]
pub(crate) struct Figure {
    /// Name for files.
    pub(crate) name: String,
    pub(crate) title: String,
    /// Subject, unit, and the better direction.
    pub(crate) unit: String,
    pub(crate) drawing: Drawing,
}

/// Kinds of drawings.
#[derive(Clone, Debug)]
pub(crate) enum Drawing {
    /// Groups of bars, one bar per series. `time`: whether the values are microseconds.
    Bars {
        series: Vec<String>,
        groups: Vec<(String, Vec<Option<f64>>)>,
        time: bool,
    },
    /// Stacked bars of microseconds, one part per series.
    Stacks {
        series: Vec<String>,
        rows: Vec<(String, Vec<f64>)>,
    },
    /// Line chart.
    Lines {
        across: Axis,
        up: Axis,
        lines: Vec<Curve>,
    },
    /// Heat map.
    Heat {
        columns: Vec<String>,
        rows: Vec<(String, Vec<Option<f64>>)>,
    },
}

/// An axis of [`Drawing::Lines`].
#[derive(Clone, Debug)]
pub(crate) struct Axis {
    pub(crate) name: String,
    /// Whether the axis is logarithmic.
    pub(crate) log: bool,
    /// Whether the values are microseconds, shown as ns, µs, ms or s by size.
    pub(crate) time: bool,
    /// Values to show on the axis with their texts. Empty: round values.
    pub(crate) named: Vec<(f64, String)>,
}

impl Axis {
    pub(crate) fn linear(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            log: false,
            time: false,
            named: Vec::new(),
        }
    }

    pub(crate) fn log(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            log: true,
            time: false,
            named: Vec::new(),
        }
    }

    /// A logarithmic axis of microseconds.
    pub(crate) fn time(name: &str) -> Self {
        Self {
            time: true,
            ..Self::log(name)
        }
    }

    /// Shows only these values on the axis.
    pub(crate) fn named(mut self, named: Vec<(f64, String)>) -> Self {
        self.named = named;
        self
    }
}

/// A line of [`Drawing::Lines`].
#[derive(Clone, Debug, Default)]
pub(crate) struct Curve {
    pub(crate) name: String,
    pub(crate) points: Vec<(f64, f64)>,
    /// A marked point: index and text.
    pub(crate) mark: Option<(usize, String)>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_figures_of_others_are_marked_in_every_name() {
        let column = |group: &str| Column {
            group: group.into(),
            name: "IOPS".into(),
            published: true,
        };
        assert_eq!(column("").whole_name(), "published, another machine: IOPS");
        assert_eq!(
            column("native").whole_name(),
            "published, another machine: native: IOPS"
        );
        assert_eq!(
            column(PUBLISHED).whole_name(),
            "published, another machine: IOPS"
        );
    }

    #[test]
    fn columns_of_one_group_are_counted_together() {
        let table = Table::new(
            "t",
            "T",
            [
                ("", "name"),
                ("local", "a"),
                ("local", "b"),
                ("remote", "a"),
            ],
        );
        assert_eq!(table.groups(), [("", 1), ("local", 2), ("remote", 1)]);
    }
}
