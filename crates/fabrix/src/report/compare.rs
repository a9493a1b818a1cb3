//! Compares two files of results by the names of their jobs.
//!
//! This is pure: entries in, table and verdict out. A difference within the spread of the repeats
//! is noise. Without repeats the noise is unknown, and the table says so.

mod entries;

pub(crate) use entries::{Entry, entries};

use super::sheet::{Cell, Shown, Table};

/// The table of two files, and a sentence for every result that became worse by more than
/// `most_percent` and more than the noise.
///
/// Errors: a sentence when the files have no job in common.
pub(crate) fn compare(
    before: &[Entry],
    after: &[Entry],
    most_percent: Option<f64>,
) -> Result<(Table, Vec<String>), String> {
    let columns = [
        ("", "workload"),
        ("", "disk"),
        ("IOPS", "A"),
        ("IOPS", "B"),
        ("IOPS", "change"),
        ("mean latency us", "A"),
        ("mean latency us", "B"),
        ("mean latency us", "change"),
        ("", "noise"),
        ("", "verdict"),
    ];
    let mut table = Table::new("compare", "B against A", columns);
    let mut worse = Vec::new();
    let pairs: Vec<Option<&Entry>> = before.iter().map(|a| partner(a, before, after)).collect();
    if pairs.iter().all(Option::is_none) {
        return Err("no job of A is in B: there is nothing to compare".into());
    }
    for (a, b) in before.iter().zip(&pairs) {
        let Some(b) = b else {
            table.push(lonely(a, true));
            worse.extend(most_percent.map(|_| format!("{}: it is not in B", a.name)));
            continue;
        };
        let pair = Pair::of(a, b);
        worse.extend(most_percent.and_then(|most| pair.worse(most)));
        table.push(pair.row());
    }
    let paired = |b: &Entry| pairs.iter().flatten().any(|known| std::ptr::eq(*known, b));
    let new = after.iter().filter(|b| !paired(b));
    new.for_each(|b| table.push(lonely(b, false)));
    Ok((table, worse))
}

/// The job of B to compare with a job of A: the same on the same disk, in the same stage if there
/// are several, or else the only one with that name in both files.
fn partner<'a>(a: &Entry, before: &[Entry], after: &'a [Entry]) -> Option<&'a Entry> {
    let of_stage = |b: &&Entry| (&b.name, &b.disk, b.stage) == (&a.name, &a.disk, a.stage);
    let same = |b: &&Entry| {
        let twin = |one: &Entry| (&one.name, &one.disk) == (&a.name, &a.disk);
        twin(b) && before.iter().filter(|one| twin(one)).count() == 1
    };
    let only = |all: &[Entry]| all.iter().filter(|one| one.name == a.name).count() == 1;
    let namesake = || after.iter().find(|b| b.name == a.name);
    after
        .iter()
        .find(of_stage)
        .or_else(|| after.iter().find(same))
        .or_else(|| namesake().filter(|_| only(before) && only(after)))
}

/// A job that exists in both files.
struct Pair<'a> {
    a: &'a Entry,
    b: &'a Entry,
    /// Change in percent of A. None if A has no value.
    iops: Option<f64>,
    mean: Option<f64>,
    /// Spread of the repeats in percent, for IOPS and latency. The wider file counts.
    noise: Option<(f64, f64)>,
}

impl<'a> Pair<'a> {
    fn of(a: &'a Entry, b: &'a Entry) -> Self {
        let change = |a: f64, b: f64| (a > 0.0).then(|| (b - a) / a * 100.0);
        let spreads = a.spread_percent.into_iter().chain(b.spread_percent);
        Self {
            a,
            b,
            iops: change(a.iops, b.iops),
            mean: change(a.mean_us, b.mean_us),
            noise: spreads.reduce(|one, other| (one.0.max(other.0), one.1.max(other.1))),
        }
    }

    /// A sentence if B is worse than allowed: slower, or with a fixed rate and higher latency.
    fn worse(&self, most: f64) -> Option<String> {
        let name = &self.a.name;
        if self.b.failed && !self.a.failed {
            return Some(format!("{name}: requests failed in B, and none in A"));
        }
        let (iops_noise, mean_noise) = self.noise.unwrap_or_default();
        let lost = -self.iops.unwrap_or(0.0);
        if lost > most.max(iops_noise) {
            return Some(format!(
                "{name}: {lost:.1} % fewer IOPS, and {most} % are allowed"
            ));
        }
        let later = self.mean.unwrap_or(0.0);
        let same_rate = lost.abs() <= SAME_RATE_PERCENT;
        (same_rate && later > most.max(mean_noise)).then(|| {
            format!("{name}: {later:.1} % more latency at the same rate, and {most} % are allowed")
        })
    }

    fn verdict(&self) -> &'static str {
        let change = self.iops.unwrap_or(0.0);
        match self.noise {
            _ if self.a.failed || self.b.failed => "requests failed",
            None => "one run each: noise unknown",
            Some((noise, _)) if change.abs() <= noise => "within the noise",
            Some(_) if change > 0.0 => "better",
            Some(_) => "worse",
        }
    }

    fn row(&self) -> Vec<Cell> {
        let (a, b) = (self.a, self.b);
        let disk = match (a.disk.as_str(), b.disk.as_str()) {
            (one, other) if one == other => one.to_owned(),
            ("", one) | (one, "") => one.to_owned(),
            (one, other) => format!("{one}, then {other}"),
        };
        let percent = |noise: f64| Cell::text(format!("{noise:.1}%"));
        vec![
            Cell::text(&a.name),
            Cell::text(disk),
            Cell::Number(a.iops, Shown::Grouped),
            Cell::Number(b.iops, Shown::Grouped),
            signed(self.iops),
            Cell::Number(a.mean_us, Shown::Time),
            Cell::Number(b.mean_us, Shown::Time),
            signed(self.mean),
            self.noise.map_or(Cell::Empty, |(iops, _)| percent(iops)),
            Cell::text(self.verdict()),
        ]
    }
}

fn signed(percent: Option<f64>) -> Cell {
    percent.map_or(Cell::Empty, |percent| Cell::text(format!("{percent:+.1}%")))
}

/// The row of a job that exists in only one file.
fn lonely(entry: &Entry, first: bool) -> Vec<Cell> {
    let only = |mine: bool, value: f64, shown| {
        if mine {
            Cell::Number(value, shown)
        } else {
            Cell::Empty
        }
    };
    vec![
        Cell::text(&entry.name),
        Cell::text(&entry.disk),
        only(first, entry.iops, Shown::Grouped),
        only(!first, entry.iops, Shown::Grouped),
        Cell::Empty,
        only(first, entry.mean_us, Shown::Time),
        only(!first, entry.mean_us, Shown::Time),
        Cell::Empty,
        Cell::Empty,
        Cell::text(if first { "only in A" } else { "only in B" }),
    ]
}

/// Runs whose IOPS differ by less than this probably had a fixed rate, so their latency is
/// compared.
const SAME_RATE_PERCENT: f64 = 1.0;

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(name: &str, disk: &str, iops: f64) -> Entry {
        Entry {
            name: name.into(),
            disk: disk.into(),
            iops,
            mean_us: 1e6 / iops,
            ..Entry::default()
        }
    }

    fn told(a: Entry, b: Entry, most: Option<f64>) -> Vec<String> {
        compare(&[a], &[b], most)
            .expect("they have a job in common")
            .1
    }

    #[test]
    fn a_loss_beyond_the_limit_and_the_noise_is_told() {
        let noisy = |iops, noise| Entry {
            spread_percent: Some((noise, noise)),
            ..entry("a", "", iops)
        };
        let once = |iops| entry("a", "", iops);
        let sentence = ["a: 10.0 % fewer IOPS, and 5 % are allowed"];
        assert_eq!(told(noisy(100.0, 1.0), once(90.0), Some(5.0)), sentence);
        let none: [&str; 0] = [];
        assert_eq!(
            told(noisy(100.0, 15.0), once(90.0), Some(5.0)),
            none,
            "repeats of A"
        );
        assert_eq!(
            told(once(100.0), noisy(90.0, 15.0), Some(5.0)),
            none,
            "repeats of B"
        );
        assert_eq!(
            told(once(100.0), once(90.0), Some(5.0)),
            sentence,
            "the limit alone"
        );
        assert_eq!(
            told(once(90.0), once(100.0), Some(5.0)),
            none,
            "it is faster"
        );
        assert_eq!(
            told(once(100.0), once(10.0), None),
            none,
            "nothing was asked"
        );
    }

    #[test]
    fn at_a_given_rate_latency_is_what_gets_worse() {
        let late = |mean_us| Entry {
            mean_us,
            ..entry("a", "", 1000.0)
        };
        let told = told(late(100.0), late(120.0), Some(5.0));
        assert_eq!(
            told,
            ["a: 20.0 % more latency at the same rate, and 5 % are allowed"]
        );
    }

    #[test]
    fn failures_and_missing_jobs_are_no_success() {
        let failed = Entry {
            failed: true,
            ..entry("a", "", 100.0)
        };
        assert_eq!(
            told(entry("a", "", 100.0), failed, Some(5.0)),
            ["a: requests failed in B, and none in A"]
        );
        let (both, one) = (
            [entry("a", "", 1.0), entry("b", "", 1.0)],
            [entry("a", "", 1.0)],
        );
        let (table, worse) = compare(&both, &one, Some(5.0)).expect("one is in both");
        assert_eq!(
            (table.rows.len(), worse),
            (2, vec!["b: it is not in B".to_owned()])
        );
        let (table, worse) = compare(&one, &both, Some(5.0)).expect("one is in both");
        assert_eq!(
            (&table.rows[1][9], worse.len()),
            (&Cell::text("only in B"), 0)
        );
        let nothing = compare(&[entry("a", "", 1.0)], &[entry("b", "", 1.0)], None);
        assert!(
            nothing
                .expect_err("no job in common")
                .contains("nothing to compare")
        );
    }

    #[test]
    fn jobs_find_each_other_by_disk_or_else_by_name() {
        let ours = [
            entry("a", "ram:1G", 1.0),
            entry("a", "null:1G", 2.0),
            entry("b", "ram:1G", 3.0),
        ];
        let fios = [entry("b", "", 3.0), entry("a", "", 4.0)];
        let (table, _) = compare(&ours, &fios, None).expect("b is in both");
        let verdicts: Vec<&Cell> = table.rows.iter().map(|row| &row[9]).collect();
        let words = [
            "only in A",
            "only in A",
            "one run each: noise unknown",
            "only in B",
        ];
        assert_eq!(verdicts, words.map(Cell::text).iter().collect::<Vec<_>>());
        assert_eq!(table.rows[2][1], Cell::text("ram:1G"));
    }
}
