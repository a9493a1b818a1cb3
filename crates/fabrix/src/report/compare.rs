//! Two files of results beside each other: ours or fio's, by the names of their jobs.
//!
//! Pure: texts come in, a table and a verdict go out. A difference within the spread of the repeats is noise; where a
//! file has no repeats, nothing is known of its noise, and the table says so.

use serde_json::Value;

use super::sheet::{Cell, Shown, Table};

/// One job of a file.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Entry {
    pub(crate) name: String,
    pub(crate) iops: f64,
    pub(crate) bw_bytes: f64,
    pub(crate) mean_us: f64,
    /// How far repeats lay apart, in percent of the median; `None` without repeats.
    pub(crate) spread_percent: Option<f64>,
}

/// The jobs of a file of results, by name; several with one name and disk are one.
///
/// Errors: a sentence when the text is none of the formats.
pub(crate) fn entries(text: &str) -> Result<Vec<Entry>, String> {
    // fio may say something before its JSON.
    let text = text.find('{').map_or(text, |start| &text[start..]);
    let value: Value =
        serde_json::from_str(text).map_err(|error| format!("it is not JSON: {error}"))?;
    let mut entries: Vec<Entry> = Vec::new();
    if let Some(rows) = value["rows"].as_array() {
        rows.iter()
            .flat_map(demo_row)
            .for_each(|entry| add(&mut entries, entry));
    } else if let Some(runs) = value["runs"].as_array() {
        for run in runs {
            let name = format!("{}, {}", text_at(run, "name"), text_at(run, "disk"));
            job(&run["jobs"][0], Some(name), &run["repeats"])
                .into_iter()
                .for_each(|entry| add(&mut entries, entry));
        }
    } else if let Some(jobs) = value["jobs"].as_array() {
        let each = jobs
            .iter()
            .filter_map(|one| job(one, None, &one["repeats"]));
        each.for_each(|entry| add(&mut entries, entry));
    }
    if entries.is_empty() {
        return Err("it has no jobs: it is neither a result of `fabrix bench` nor of `fio --output-format=json`".into());
    }
    Ok(entries)
}

fn text_at<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_default()
}

fn add(entries: &mut Vec<Entry>, entry: Entry) {
    let Some(known) = entries.iter_mut().find(|known| known.name == entry.name) else {
        return entries.push(entry);
    };
    let all = known.iops + entry.iops;
    if all > 0.0 {
        known.mean_us = (known.mean_us * known.iops + entry.mean_us * entry.iops) / all;
    }
    known.iops = all;
    known.bw_bytes += entry.bw_bytes;
}

/// A row of the demonstration's table: its two sides.
fn demo_row(row: &Value) -> Vec<Entry> {
    let side = |name: &str| {
        let cell = &row[name];
        Some(Entry {
            name: format!("{}, {name}", text_at(row, "name")),
            iops: cell["iops"].as_f64()?,
            bw_bytes: cell["bw_bytes"].as_f64()?,
            mean_us: cell["lat_us"]["mean"].as_f64()?,
            spread_percent: None,
        })
    };
    ["local", "remote"].into_iter().filter_map(side).collect()
}

/// A job with fio's keys, reads and writes together.
fn job(job: &Value, name: Option<String>, repeats: &Value) -> Option<Entry> {
    let side = |name: &str| {
        let side = &job[name];
        let number = |key: &str| side[key].as_f64();
        // Older versions of fio have no bw_bytes.
        let bw_bytes = number("bw_bytes").or_else(|| Some(number("bw")? * 1024.0));
        (
            number("iops").unwrap_or(0.0),
            bw_bytes.unwrap_or(0.0),
            side["lat_ns"]["mean"].as_f64().unwrap_or(0.0),
        )
    };
    job["read"]["iops"].as_f64()?;
    let (read, write) = (side("read"), side("write"));
    let iops = read.0 + write.0;
    let mean_ns = if iops > 0.0 {
        (read.0 * read.2 + write.0 * write.2) / iops
    } else {
        0.0
    };
    let repeats: Vec<f64> = repeats
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|one| one["iops"].as_f64())
        .collect();
    let spread = fabrix_bench::spread::Spread::of(repeats);
    Some(Entry {
        name: name.unwrap_or_else(|| text_at(job, "jobname").to_owned()),
        iops: if spread.count > 1 {
            spread.median
        } else {
            iops
        },
        bw_bytes: read.1 + write.1,
        mean_us: mean_ns / 1e3,
        spread_percent: (spread.count > 1).then(|| spread.percent()),
    })
}

/// The table of two files, and the sentences about everything that became worse by more than `most_percent` and more
/// than the noise.
pub(crate) fn compare(
    before: &[Entry],
    after: &[Entry],
    most_percent: Option<f64>,
) -> (Table, Vec<String>) {
    let columns = [
        ("", "workload"),
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
    for a in before {
        let Some(b) = after.iter().find(|b| b.name == a.name) else {
            table.push(lonely(a, true));
            continue;
        };
        let change = |a: f64, b: f64| (a > 0.0).then(|| (b - a) / a * 100.0);
        let (iops, mean) = (change(a.iops, b.iops), change(a.mean_us, b.mean_us));
        let noise = a
            .spread_percent
            .into_iter()
            .chain(b.spread_percent)
            .reduce(f64::max);
        let verdict = verdict(iops.unwrap_or(0.0), noise);
        if let (Some(most), Some(iops)) = (most_percent, iops)
            && -iops > most.max(noise.unwrap_or(0.0))
        {
            worse.push(format!(
                "{}: {:.1} % fewer IOPS, and {most} % are allowed",
                a.name, -iops
            ));
        }
        table.push(vec![
            Cell::text(&a.name),
            Cell::Number(a.iops, Shown::Grouped),
            Cell::Number(b.iops, Shown::Grouped),
            signed(iops),
            Cell::Number(a.mean_us, Shown::Short),
            Cell::Number(b.mean_us, Shown::Short),
            signed(mean),
            noise.map_or(Cell::Empty, |noise| Cell::text(format!("±{noise:.1}%"))),
            Cell::text(verdict),
        ]);
    }
    let new = after
        .iter()
        .filter(|b| !before.iter().any(|a| a.name == b.name));
    new.for_each(|b| table.push(lonely(b, false)));
    (table, worse)
}

fn signed(percent: Option<f64>) -> Cell {
    percent.map_or(Cell::Empty, |percent| Cell::text(format!("{percent:+.1}%")))
}

fn verdict(change: f64, noise: Option<f64>) -> &'static str {
    match noise {
        None => "one run each: noise unknown",
        Some(noise) if change.abs() <= noise => "within the noise",
        Some(_) if change > 0.0 => "better",
        Some(_) => "worse",
    }
}

/// A row of a job that only one file has.
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
        only(first, entry.iops, Shown::Grouped),
        only(!first, entry.iops, Shown::Grouped),
        Cell::Empty,
        only(first, entry.mean_us, Shown::Short),
        only(!first, entry.mean_us, Shown::Short),
        Cell::Empty,
        Cell::Empty,
        Cell::text(if first { "only in A" } else { "only in B" }),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn fio(iops: f64) -> String {
        let side = |iops: f64| json!({"iops": iops, "bw_bytes": iops * 4096.0, "lat_ns": {"mean": 1e9 / iops}});
        let jobs = json!([{"jobname": "a", "read": side(iops), "write": side(iops / 4.0)}]);
        format!(
            "fio: a warning\n{}",
            json!({"fio version": "fio-3.33", "jobs": jobs})
        )
    }

    #[test]
    fn fios_file_is_read_with_both_directions_together() {
        let entries = entries(&fio(1000.0)).expect("it is fio's");
        assert_eq!((entries[0].name.as_str(), entries[0].iops), ("a", 1250.0));
        assert!((entries[0].mean_us - 1600.0).abs() < 1e-9, "{entries:?}");
    }

    #[test]
    fn our_own_file_is_read_with_its_repeats() {
        let read = json!({"iops": 90.0, "bw_bytes": 1, "lat_ns": {"mean": 5.0}});
        let job = json!({"jobname": "x", "read": read, "write": {"iops": 0.0}});
        let repeats = json!([{"iops": 90}, {"iops": 100}, {"iops": 110}]);
        let run = json!({"name": "x", "disk": "ram:1G", "jobs": [job], "repeats": repeats});
        let entries =
            entries(&json!({"schema": 1, "runs": [run]}).to_string()).expect("it is ours");
        assert_eq!(
            (entries[0].name.as_str(), entries[0].iops),
            ("x, ram:1G", 100.0)
        );
        assert_eq!(entries[0].spread_percent, Some(20.0));
    }

    #[test]
    fn a_loss_beyond_the_limit_and_the_noise_is_told() {
        let entry = |iops, spread_percent| Entry {
            name: "a".into(),
            iops,
            spread_percent,
            ..Entry::default()
        };
        let worse = |noise| compare(&[entry(100.0, noise)], &[entry(90.0, None)], Some(5.0)).1;
        assert_eq!(
            worse(Some(1.0)),
            ["a: 10.0 % fewer IOPS, and 5 % are allowed"]
        );
        assert!(
            worse(Some(15.0)).is_empty(),
            "repeats of one file differed by more"
        );
        assert_eq!(
            worse(None).len(),
            1,
            "without repeats the limit alone decides"
        );
        assert!(
            compare(&[entry(100.0, None)], &[entry(10.0, None)], None)
                .1
                .is_empty()
        );
    }

    #[test]
    fn jobs_of_one_file_only_are_shown() {
        let entry = |name: &str| Entry {
            name: name.into(),
            ..Entry::default()
        };
        let (table, _) = compare(&[entry("a")], &[entry("b")], None);
        assert_eq!(table.rows.len(), 2);
        assert_eq!(table.rows[1][8], Cell::text("only in B"));
    }

    #[test]
    fn what_is_no_result_is_told_apart() {
        for (text, part) in [
            ("", "not JSON"),
            ("{}", "no jobs"),
            ("{\"jobs\": [{}]}", "no jobs"),
            ("hello", "not JSON"),
        ] {
            let error = entries(text).expect_err(text);
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
