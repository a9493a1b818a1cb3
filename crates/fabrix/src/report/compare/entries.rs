//! Reads the jobs of a results file: ours, the demonstration's, or fio's. Unknown keys are ignored.
//! A file without known keys is an error.

use fabrix_bench::spread::Spread;
use serde_json::Value;

/// One job of a file.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Entry {
    pub(crate) name: String,
    /// The disk. fio does not report it.
    pub(crate) disk: String,
    pub(crate) iops: f64,
    pub(crate) mean_us: f64,
    /// Spread of the repeats in percent of the median, for IOPS and mean latency. None without
    /// repeats.
    pub(crate) spread_percent: Option<(f64, f64)>,
    /// Whether requests failed or the job ended early.
    pub(crate) failed: bool,
    /// Stage of the job (`groupid`). Jobs of different stages ran one after the other.
    pub(crate) stage: i64,
}

/// The jobs of a results file. Jobs of a stage with the same name and disk are merged.
///
/// Errors: a sentence when the format is unknown.
pub(crate) fn entries(text: &str) -> Result<Vec<Entry>, String> {
    let value = document(text)?;
    let mut entries: Vec<Entry> = Vec::new();
    if let Some(rows) = value["rows"].as_array() {
        rows.iter()
            .flat_map(demo_row)
            .for_each(|entry| add(&mut entries, entry));
    } else if let Some(runs) = value["runs"].as_array() {
        for run in runs {
            let entry = job(&run["jobs"][0], &run["repeats"]).map(|entry| Entry {
                name: text_at(run, "name"),
                disk: text_at(run, "disk"),
                ..entry
            });
            entry.into_iter().for_each(|entry| add(&mut entries, entry));
        }
    } else {
        // fio stores the results of remote clients under a separate key, with a sum at the end.
        let jobs = ["jobs", "client_stats"].map(|key| value[key].as_array());
        let jobs = jobs.into_iter().flatten().flatten();
        let each = jobs.filter(|one| one["jobname"] != "All clients");
        each.filter_map(|one| job(one, &one["repeats"]))
            .for_each(|entry| add(&mut entries, entry));
    }
    if entries.is_empty() {
        return Err("it has no jobs: it is neither a result of `fabrix bench` nor of `fio --output-format=json`".into());
    }
    Ok(entries)
}

/// The first JSON object that starts a line. fio may print text before and after it.
fn document(text: &str) -> Result<Value, String> {
    let start = match text.strip_prefix('\u{feff}').unwrap_or(text) {
        text if text.trim_start().starts_with('{') => text.trim_start(),
        text => text
            .split_once("\n{")
            .map_or(text, |(before, _)| &text[before.len() + 1..]),
    };
    let mut values = serde_json::Deserializer::from_str(start).into_iter::<Value>();
    match values.next() {
        Some(Ok(value)) => Ok(value),
        Some(Err(error)) => Err(format!("it is not JSON: {error}")),
        None => Err("it is not JSON: it is empty".into()),
    }
}

fn text_at(value: &Value, key: &str) -> String {
    value[key].as_str().unwrap_or_default().to_owned()
}

fn add(entries: &mut Vec<Entry>, entry: Entry) {
    let key = |one: &Entry| (one.name.clone(), one.disk.clone(), one.stage);
    let same = |known: &&mut Entry| key(known) == key(&entry);
    let Some(known) = entries.iter_mut().find(same) else {
        return entries.push(entry);
    };
    let all = known.iops + entry.iops;
    if all > 0.0 {
        known.mean_us = (known.mean_us * known.iops + entry.mean_us * entry.iops) / all;
    }
    known.iops = all;
    known.failed |= entry.failed;
}

/// Both sides of a row of the demonstration's table.
fn demo_row(row: &Value) -> Vec<Entry> {
    let side = |disk: &str| {
        let cell = &row[disk];
        Some(Entry {
            name: text_at(row, "name"),
            disk: disk.to_owned(),
            iops: cell["iops"].as_f64()?,
            mean_us: cell["lat_us"]["mean"].as_f64()?,
            ..Entry::default()
        })
    };
    ["local", "remote"].into_iter().filter_map(side).collect()
}

/// A job with fio's keys, all directions together.
fn job(job: &Value, repeats: &Value) -> Option<Entry> {
    job["read"]["iops"].as_f64()?;
    let (mut iops, mut waited_ns) = (0.0, 0.0);
    // The reads of a job that writes are those of its verification, after the measurement.
    let rw = job["job options"]["rw"].as_str().unwrap_or_default();
    let only_writes = rw.ends_with("write") && rw != "readwrite";
    let sides = ["read", "write", "trim"]
        .into_iter()
        .skip(only_writes.into());
    for side in sides.map(|name| &job[name]) {
        let rate = side["iops"].as_f64().unwrap_or(0.0);
        // fio before version 3 reports microseconds.
        let mean_ns = side["lat_ns"]["mean"].as_f64();
        let mean_ns = mean_ns.or_else(|| Some(side["lat"]["mean"].as_f64()? * 1e3));
        iops += rate;
        waited_ns += rate * mean_ns.unwrap_or(0.0);
    }
    let mean_us = if iops > 0.0 {
        waited_ns / iops / 1e3
    } else {
        0.0
    };
    let over = |path: &str| {
        let repeats = repeats.as_array().into_iter().flatten();
        Spread::of(repeats.filter_map(|one| one.pointer(path)?.as_f64()))
    };
    let (rates, means) = (over("/iops"), over("/lat_us/mean"));
    let repeated = rates.count > 1;
    Some(Entry {
        name: text_at(job, "jobname"),
        disk: text_at(job, "disk"),
        iops: if repeated { rates.median } else { iops },
        mean_us: if means.count > 1 {
            means.median
        } else {
            mean_us
        },
        spread_percent: repeated.then(|| (rates.percent(), means.percent())),
        stage: job["groupid"].as_i64().unwrap_or(0),
        failed: job["error"].as_i64().unwrap_or(0) != 0 || job["ended_early"].is_string(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn fio(iops: f64) -> Value {
        let side = |iops: f64| json!({"iops": iops, "bw_bytes": iops * 4096.0, "lat_ns": {"mean": 1e9 / iops}});
        let jobs =
            json!([{"jobname": "a", "error": 0, "read": side(iops), "write": side(iops / 4.0)}]);
        json!({"fio version": "fio-3.33", "jobs": jobs})
    }

    #[test]
    fn fios_file_is_read_with_all_directions_together() {
        let mut value = fio(1000.0);
        let entries = |value: &Value| entries(&value.to_string()).expect("it is fio's");
        assert_eq!(
            (entries(&value)[0].name.as_str(), entries(&value)[0].iops),
            ("a", 1250.0)
        );
        assert!((entries(&value)[0].mean_us - 1600.0).abs() < 1e-9);
        value["jobs"][0]["trim"] = json!({"iops": 750.0, "lat_ns": {"mean": 0.0}});
        assert!((entries(&value)[0].iops - 2000.0).abs() < 1e-9);
        value["jobs"][0]["job options"] = json!({"rw": "randwrite", "verify": "md5"});
        assert!((entries(&value)[0].iops - 1000.0).abs() < 1e-9);
        value["jobs"][0]["error"] = json!(5);
        assert!(entries(&value)[0].failed);
    }

    #[test]
    fn only_jobs_that_ran_at_the_same_time_are_added() {
        let mut value = fio(1000.0);
        let job = value["jobs"][0].clone();
        let mut later = job.clone();
        later["groupid"] = json!(1);
        value["jobs"] = json!([job, job, later]);
        let found = entries(&value.to_string()).expect("it is fio's");
        let iops: Vec<f64> = found.iter().map(|one| one.iops).collect();
        assert_eq!(iops, [2500.0, 1250.0]);
    }

    #[test]
    fn what_fio_says_around_its_json_is_left_out() {
        let text = format!(
            "fio: {{a}} warning\n{}\n\nRun status group 0 (all jobs):\n",
            fio(10.0)
        );
        assert_eq!(entries(&text).expect("it is fio's").len(), 1);
        let mut value = fio(10.0);
        let jobs = value["jobs"].take();
        let sum = json!({"jobname": "All clients", "read": {"iops": 9.0}});
        value = json!({"client_stats": [jobs[0], sum]});
        assert_eq!(entries(&value.to_string()).expect("a server's").len(), 1);
    }

    #[test]
    fn our_own_file_is_read_with_its_repeats() {
        let read = json!({"iops": 90.0, "bw_bytes": 1, "lat_ns": {"mean": 5.0}});
        let job = json!({"jobname": "x", "read": read, "write": {"iops": 0.0}});
        let repeat = |iops: f64| json!({"iops": iops, "lat_us": {"mean": 1.0}});
        let repeats = json!([repeat(90.0), repeat(100.0), repeat(110.0)]);
        let run = json!({"name": "x", "disk": "ram:1G", "jobs": [job], "repeats": repeats});
        let entries =
            entries(&json!({"schema": 1, "runs": [run]}).to_string()).expect("it is ours");
        let one = &entries[0];
        assert_eq!((&*one.name, &*one.disk, one.iops), ("x", "ram:1G", 100.0));
        assert_eq!(one.spread_percent, Some((20.0, 0.0)));
    }

    #[test]
    fn what_is_no_result_is_told_apart() {
        for (text, part) in [
            ("", "it is empty"),
            ("{}", "no jobs"),
            ("{\"jobs\": [{}]}", "no jobs"),
            ("{\"jobs\": [{\"read\": {\"iops\"", "not JSON: EOF"),
            ("[1, 2]", "no jobs"),
            ("hello", "not JSON"),
        ] {
            let error = entries(text).expect_err(text);
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
