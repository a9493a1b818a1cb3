//! Results as the text that fio prints by default, for programs that read it.
//!
//! The values are those of the JSON document, so that both forms agree. Source: fio's
//! documentation, "Interpreting the output".

use std::collections::BTreeMap;

use fabrix_bench::job::Job;
use serde_json::Value;

use super::sheet::Written;

/// fio's first line of a job, before the results.
pub(crate) fn head(job: &Job, group: u32, written: Option<&Written>) -> String {
    let sizes = |write: bool| {
        let sizes = job.sizes(write);
        let bound = |bytes: u32| short(bytes.into(), 1024.0, "B");
        format!(
            "{}-{}",
            bound(sizes.shortest_bytes()),
            bound(sizes.longest_bytes())
        )
    };
    let (reads, writes) = (sizes(false), sizes(true));
    format!(
        "{}: (g={group}): rw={}, bs=(R) {reads}, (W) {writes}, (T) {writes}, ioengine={}, iodepth={}\n",
        job.name,
        job.rw.name(),
        written.and_then(Written::engine).unwrap_or("psync"),
        job.iodepth
    )
}

/// The text of a document that `json::runs` made.
pub(crate) fn text(document: &Value) -> String {
    let version = document["fio version"].as_str().unwrap_or_default();
    let time = document["time"].as_str().unwrap_or_default();
    let jobs = || document["jobs"].as_array().into_iter().flatten();
    let mut text = format!("{version}\n");
    let mut groups: BTreeMap<u64, Vec<&Value>> = BTreeMap::new();
    for job in jobs() {
        text += &one(job, time);
        let group = job["groupid"].as_u64().unwrap_or_default();
        groups.entry(group).or_default().push(job);
    }
    for (number, jobs) in groups {
        text += &group(number, &jobs);
    }
    text
}

/// A job or a group of jobs.
fn one(job: &Value, time: &str) -> String {
    let error = job["error"].as_u64().unwrap_or_default();
    let mut text = format!(
        "\n{}: (groupid={}, jobs={}): err={error:2}: pid={}: {time}\n",
        job["jobname"].as_str().unwrap_or_default(),
        job["groupid"],
        job["jobs"].as_u64().unwrap_or(1),
        std::process::id()
    );
    for name in ["read", "write", "trim", "mixed"] {
        if number(&job[name]["total_ios"]) > 0.0 {
            text += &side(name, &job[name]);
        }
    }
    for (unit, key) in [
        ("nsec", "latency_ns"),
        ("usec", "latency_us"),
        ("msec", "latency_ms"),
    ] {
        text += &ranges(unit, &job[key]);
    }
    if number(&job["sync"]["total_ios"]) > 0.0 {
        text += "  fsync/fdatasync/sync_file_range:\n";
        text += &latency("sync", &job["sync"]["lat_ns"]);
        text += &percentiles("sync", &job["sync"]["lat_ns"]);
    }
    text += &format!(
        "  cpu          : usr={:.2}%, sys={:.2}%, ctx={}, majf={}, minf={}\n",
        number(&job["usr_cpu"]),
        number(&job["sys_cpu"]),
        job["ctx"],
        job["majf"],
        job["minf"]
    );
    if let Some(levels) = job["iodepth_level"].as_object() {
        let cells = DEPTHS.map(|level| {
            let share = levels.get(level).map_or(0.0, number);
            format!("{level}={share:.1}%")
        });
        text += &format!("  IO depths    : {}\n", cells.join(", "));
    }
    let first = if job.get("read").is_some() {
        "read"
    } else {
        "mixed"
    };
    let total = |key: &str| [first, "write", "trim"].map(|side| whole(&job[side][key]));
    text += &format!(
        "     issued rwts: total={},{} short={},0 dropped={},0\n",
        total("total_ios").join(","),
        whole(&job["sync"]["total_ios"]),
        total("short_ios").join(","),
        total("drop_ios").join(",")
    );
    if number(&job["total_err"]) > 0.0 {
        text += &format!(
            "     errors       : total={}, first_error={error}\n",
            job["total_err"]
        );
    }
    text + &format!(
        "     latency   : target={}, window={}, percentile={:.2}%, depth={}\n",
        job["latency_target"],
        job["latency_window"],
        number(&job["latency_percentile"]),
        job["latency_depth"]
    )
}

fn side(name: &str, side: &Value) -> String {
    let (bytes, run) = (&side["io_bytes"], &side["runtime"]);
    let rate = number(&side["bw_bytes"]);
    let zones = if name == "write" {
        "; 0 zone resets"
    } else {
        ""
    };
    let mut text = format!(
        "  {name}: IOPS={}, BW={}/s ({}/s)({}/{run}msec){zones}\n",
        short(number(&side["iops"]), 1000.0, ""),
        short(rate, 1024.0, "B"),
        short(rate, 1000.0, "B"),
        short(number(bytes), 1024.0, "B"),
    );
    for (name, key) in [("slat", "slat_ns"), ("clat", "clat_ns"), (" lat", "lat_ns")] {
        if number(&side[key]["N"]) > 0.0 {
            text += &latency(name, &side[key]);
        }
    }
    text += &percentiles("clat", &side["clat_ns"]);
    if number(&side["bw_samples"]) > 0.0 {
        let mean = number(&side["bw_mean"]);
        let (scale, unit) = if mean > 999_999.0 {
            (1024.0, "MiB")
        } else {
            (1.0, "KiB")
        };
        let of = |key: &str| number(&side[key]) / scale;
        text += &format!(
            "   bw ({unit:>5}/s): min={:5.0}, max={:5.0}, per={:.2}%, avg={:5.2}, stdev={:5.2}, samples={}\n",
            of("bw_min"),
            of("bw_max"),
            number(&side["bw_agg"]),
            of("bw_mean"),
            of("bw_dev"),
            side["bw_samples"]
        );
        text += &format!(
            "   iops        : min={:5}, max={:5}, avg={:5.2}, stdev={:5.2}, samples={}\n",
            number(&side["iops_min"]),
            number(&side["iops_max"]),
            number(&side["iops_mean"]),
            number(&side["iops_stddev"]),
            side["iops_samples"]
        );
    }
    text
}

/// A line of a latency, in the unit that its length suggests.
fn latency(name: &str, latency: &Value) -> String {
    let [min, max, mean, deviation] =
        ["min", "max", "mean", "stddev"].map(|key| number(&latency[key]));
    let is_long = |ns: f64| min > 2.0 * ns && max >= 100.0 * ns && deviation > ns;
    let units = [("msec", 1e6), ("usec", 1e3)];
    let long = units.into_iter().find(|(_, ns)| is_long(*ns));
    let (unit, scale) = long.unwrap_or(("nsec", 1.0));
    format!(
        "    {name} ({unit}): min={}, max={}, avg={:5.2}, stdev={:5.2}\n",
        digits((min / scale).floor(), 6, 1000.0, ""),
        digits((max / scale).floor(), 6, 1000.0, ""),
        mean / scale,
        deviation / scale
    )
}

/// Rows of four percentiles.
fn percentiles(name: &str, latency: &Value) -> String {
    let table = latency["percentile"].as_object();
    let mut table: Vec<(f64, f64)> = table
        .into_iter()
        .flatten()
        .filter_map(|(percent, ns)| Some((percent.parse().ok()?, number(ns))))
        .collect();
    table.sort_by(|one, other| one.0.total_cmp(&other.0));
    let (Some(first), Some(last)) = (table.first(), table.last()) else {
        return String::new();
    };
    let units = [("msec", 1e6), ("usec", 1e3)];
    let is_long = |ns: f64| first.1 > 2.0 * ns && last.1 >= 100.0 * ns;
    let long = units.into_iter().find(|(_, ns)| is_long(*ns));
    let (unit, scale) = long.unwrap_or(("nsec", 1.0));
    let rows = table.chunks(4).map(|row| {
        let cells = row
            .iter()
            .map(|(percent, ns)| format!(" {percent:5.2}th=[{:5.0}]", ns / scale));
        format!("     |{}", cells.collect::<Vec<_>>().join(","))
    });
    let rows: Vec<String> = rows.collect();
    format!("    {name} percentiles ({unit}):\n{}\n", rows.join(",\n"))
}

/// Shares of the latencies in a unit, up to five in a line. Shares of nothing are left out.
fn ranges(unit: &str, shares: &Value) -> String {
    let shares = shares.as_object().into_iter().flatten();
    let mut shares: Vec<(u64, &String, f64)> = shares
        .map(|(name, share)| {
            let bound = name.trim_start_matches(">=").parse().unwrap_or(0);
            (
                bound + u64::from(name.starts_with('>')),
                name,
                number(share),
            )
        })
        .filter(|(.., share)| *share > 0.0)
        .collect();
    shares.sort_by_key(|(bound, ..)| *bound);
    let rows = shares.chunks(5).map(|row| {
        let cells = row
            .iter()
            .map(|(_, name, share)| format!("{name}={:.2}%", share.max(0.01)));
        format!(
            "  lat ({unit})   : {}\n",
            cells.collect::<Vec<_>>().join(", ")
        )
    });
    rows.collect()
}

/// The rates of a group.
fn group(number_of_group: u64, jobs: &[&Value]) -> String {
    let mut text = format!("\nRun status group {number_of_group} (all jobs):\n");
    for (name, key) in [
        ("   READ", "read"),
        ("  WRITE", "write"),
        ("   TRIM", "trim"),
        ("  MIXED", "mixed"),
    ] {
        let sides: Vec<&Value> = jobs.iter().map(|job| &job[key]).collect();
        let used = sides.iter().filter(|side| number(&side["total_ios"]) > 0.0);
        let used: Vec<&&Value> = used.collect();
        if used.is_empty() {
            continue;
        }
        let all = |key: &str| {
            used.iter()
                .map(|side| number(&side[key]))
                .collect::<Vec<_>>()
        };
        let (rates, runs) = (all("bw_bytes"), all("runtime"));
        let bytes: f64 = all("io_bytes").iter().sum();
        let least = |values: &[f64]| values.iter().copied().fold(f64::INFINITY, f64::min);
        let most = |values: &[f64]| values.iter().copied().fold(0.0, f64::max);
        let sum = match used.len() {
            1 => rates[0],
            _ => bytes * 1e3 / most(&runs).max(1.0),
        };
        let both = |bytes: f64| (short(bytes, 1024.0, "B"), short(bytes, 1000.0, "B"));
        let ((sum, sum_kb), (low, low_kb)) = (both(sum), both(least(&rates)));
        let ((high, high_kb), (io, io_kb)) = (both(most(&rates)), both(bytes));
        text += &format!(
            "{name}: bw={sum}/s ({sum_kb}/s), {low}/s-{high}/s ({low_kb}/s-{high_kb}/s), io={io} ({io_kb}), \
             run={:.0}-{:.0}msec\n",
            least(&runs),
            most(&runs)
        );
    }
    text
}

/// A number in four characters: `226k`, `16.0k`, `882Mi`.
fn short(number: f64, kilo: f64, unit: &str) -> String {
    digits(number.floor(), 4, kilo, unit)
}

/// A whole number in at most `most` characters, with the prefix of its magnitude.
fn digits(mut number: f64, most: usize, kilo: f64, unit: &str) -> String {
    let prefixes = ["", "k", "M", "G", "T", "P"];
    let mut at = 0;
    while format!("{:.0}", number.floor()).len() > most && at + 1 < prefixes.len() {
        number /= kilo;
        at += 1;
    }
    let binary = if at > 0 && kilo > 1000.0 { "i" } else { "" };
    // Binary prefixes are capital letters.
    let prefix = match (prefixes[at], binary) {
        ("k", "i") => "K",
        (prefix, _) => prefix,
    };
    let decimals = match most - format!("{:.0}", number.floor()).len() {
        _ if at == 0 => 0,
        0 | 1 => 0,
        room => room - 1,
    };
    format!("{number:.decimals$}{prefix}{binary}{unit}")
}

/// A count, 0 without one.
fn whole(value: &Value) -> String {
    value.as_u64().unwrap_or(0).to_string()
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or(0.0)
}

const DEPTHS: [&str; 7] = ["1", "2", "4", "8", "16", "32", ">=64"];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sheet::Report;
    use crate::report::{json, sample};

    #[test]
    fn numbers_have_fios_form() {
        for (number, text) in [
            (8000.0, "8000"),
            (15_999.9, "16.0k"),
            (226_000.0, "226k"),
            (1_234_567.0, "1235k"),
        ] {
            assert_eq!(short(number, 1000.0, ""), text);
        }
        assert_eq!(short(65_536_000.0, 1024.0, "B"), "62.5MiB");
        assert_eq!(short(65_536.0, 1024.0, "B"), "64.0KiB");
        assert_eq!(digits(8_836_123.0, 6, 1000.0, ""), "8836.1k");
    }

    #[test]
    fn a_run_has_fios_lines() {
        let report = Report {
            runs: vec![sample::run(sample::results())],
            ..Report::default()
        };
        let document = json::runs(&report, serde_json::json!([]), &sample::context());
        let pid = format!("pid={}:", std::process::id());
        let text = text(&document).replace(&pid, "pid=7:");
        sample::golden("normal.txt", &text);
    }
}
