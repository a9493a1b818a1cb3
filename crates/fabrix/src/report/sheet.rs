//! What a profile leaves: tables, figures, the runs behind them, and what has to be said about
//! them.
//!
//! Plain values that every writer reads: text, JSON, CSV and the page. A profile fills them and
//! knows no format.

use fabrix_bench::Results;
use fabrix_bench::spread::Spread;

/// Everything one command found out.
#[derive(Clone, Debug, Default)]
pub(crate) struct Report {
    /// The profile's word on the command line.
    pub(crate) profile: String,
    /// What the page is called.
    pub(crate) title: String,
    /// Whose method it is, and what was measured on what.
    pub(crate) lead: String,
    /// What a reader must know to read the figures.
    pub(crate) notes: Vec<String>,
    /// Why the figures may be wrong.
    pub(crate) warnings: Vec<String>,
    pub(crate) tables: Vec<Table>,
    pub(crate) figures: Vec<Figure>,
    pub(crate) runs: Vec<Run>,
}

/// One measurement, perhaps repeated.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    pub(crate) name: String,
    /// The disk, as it was named.
    pub(crate) disk: String,
    /// The repeat that stands in the middle.
    pub(crate) results: Results,
    /// Every repeat.
    pub(crate) repeats: Vec<Repeat>,
    /// Cores that the target kept busy, where that can be seen.
    pub(crate) target_cores: Option<f64>,
}

/// The figures of one repeat.
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

    /// A percentile of the latency of the middle repeat, reads and writes together, in
    /// microseconds.
    pub(crate) fn percentile_us(&self, percent: f64) -> Option<f64> {
        let latency = &self.results.aggregate.total.latency;
        latency.percentile_ns(percent).map(|ns| ns as f64 / 1e3)
    }

    pub(crate) fn spread(&self, of: fn(&Repeat) -> f64) -> Spread {
        Spread::of(self.repeats.iter().map(of))
    }

    /// Processor time of the load generator's threads for one request, in microseconds.
    pub(crate) fn job_us_per_io(&self) -> Option<f64> {
        self.us_per_io(self.results.cpu.job_cores)
    }

    /// The same of the target, where it can be seen.
    pub(crate) fn target_us_per_io(&self) -> Option<f64> {
        self.us_per_io(self.target_cores?)
    }

    fn us_per_io(&self, cores: f64) -> Option<f64> {
        let iops = self.results.aggregate.total.iops;
        (iops > 0.0).then(|| cores * 1e6 / iops)
    }
}

/// Rows of figures under a head.
#[derive(Clone, Debug, Default)]
pub(crate) struct Table {
    /// What files call it: letters, digits and dashes.
    pub(crate) name: String,
    pub(crate) title: String,
    pub(crate) columns: Vec<Column>,
    pub(crate) rows: Vec<Vec<Cell>>,
}

/// One column.
#[derive(Clone, Debug, Default)]
pub(crate) struct Column {
    /// What stands over several columns together; empty for one that stands alone.
    pub(crate) group: String,
    pub(crate) name: String,
    /// Whether somebody else published it: measured on another machine, and no figure of ours.
    pub(crate) published: bool,
}

impl Column {
    /// The name where there is no line of groups above it: with the group, and with the mark of
    /// what is not ours.
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

/// What marks the figures of others, wherever they stand.
pub(crate) const PUBLISHED: &str = "published, another machine";

impl Table {
    /// An empty table; `columns` are groups and names.
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

    /// A row, which must have as many cells as there are columns.
    pub(crate) fn push(&mut self, row: Vec<Cell>) {
        assert_eq!(
            row.len(),
            self.columns.len(),
            "a row of {} fits its head",
            self.name
        );
        self.rows.push(row);
    }

    /// The columns that stand under one group, in order: the group and how many there are.
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

/// What stands in a row under a column.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Cell {
    /// A name.
    Text(String),
    /// A number, and how people read it.
    Number(f64, Shown),
    /// Nothing was measured.
    Empty,
}

/// How a number is shown; programs get it whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shown {
    /// Whole, with thousands apart.
    Grouped,
    /// About three digits.
    Short,
    /// So many decimals.
    Fixed(usize),
    /// A part of one, in percent.
    Percent,
}

impl Cell {
    pub(crate) fn text(text: impl Into<String>) -> Self {
        Self::Text(text.into())
    }

    pub(crate) fn optional(value: Option<f64>, shown: Shown) -> Self {
        value.map_or(Self::Empty, |value| Self::Number(value, shown))
    }
}

/// A picture of some of the figures.
#[derive(Clone, Debug)]
pub(crate) struct Figure {
    /// What files call it.
    pub(crate) name: String,
    pub(crate) title: String,
    /// What is drawn, in which unit, and which way is better.
    pub(crate) unit: String,
    pub(crate) drawing: Drawing,
}

/// The kinds of pictures.
#[derive(Clone, Debug)]
pub(crate) enum Drawing {
    /// Groups of bars: one bar for each series.
    Bars {
        series: Vec<String>,
        groups: Vec<(String, Vec<Option<f64>>)>,
    },
    /// Bars of parts that add up: each part is of one series.
    Stacks {
        series: Vec<String>,
        rows: Vec<(String, Vec<f64>)>,
    },
    /// Lines over an axis.
    Lines {
        across: Axis,
        up: Axis,
        lines: Vec<Curve>,
    },
    /// A field of values.
    Heat {
        columns: Vec<String>,
        rows: Vec<(String, Vec<Option<f64>>)>,
    },
}

/// An axis of [`Drawing::Lines`].
#[derive(Clone, Debug)]
pub(crate) struct Axis {
    pub(crate) name: String,
    /// Powers of two or ten lie at equal distances.
    pub(crate) log: bool,
    /// The values that are written on the axis, and how; empty where round ones are.
    pub(crate) named: Vec<(f64, String)>,
}

impl Axis {
    pub(crate) fn linear(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            log: false,
            named: Vec::new(),
        }
    }

    pub(crate) fn log(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            log: true,
            named: Vec::new(),
        }
    }

    /// Writes these values on the axis, and no others.
    pub(crate) fn named(mut self, named: Vec<(f64, String)>) -> Self {
        self.named = named;
        self
    }
}

/// One line of [`Drawing::Lines`].
#[derive(Clone, Debug, Default)]
pub(crate) struct Curve {
    pub(crate) name: String,
    pub(crate) points: Vec<(f64, f64)>,
    /// A point to be named: its index and the name.
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
