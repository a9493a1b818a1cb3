//! Results as lines of fio's terse format, version 3: values between semicolons, a line for each
//! job.
//!
//! The values are those of the JSON document, so that both forms agree. Source: fio's
//! documentation, "Terse output".

use serde_json::Value;

/// The lines of a document that `json::runs` made.
pub(crate) fn text(document: &Value) -> String {
    let jobs = document["jobs"].as_array();
    jobs.into_iter()
        .flatten()
        .map(|job| line(document, job) + "\n")
        .collect()
}

fn line(document: &Value, job: &Value) -> String {
    let mut fields = vec![
        "3".to_owned(),
        word(&document["fio version"]),
        word(&job["jobname"]),
        word(&job["groupid"]),
        word(&job["error"]),
    ];
    // fio has the mixed directions in place of the others, or behind them.
    let sides = || ["read", "write", "mixed"].into_iter();
    let tables = sides().chain(["trim"]).map(|name| percentiles(&job[name]));
    let names = tables.max_by_key(Vec::len).unwrap_or_default();
    for found in sides().filter_map(|name| job.get(name)) {
        side(&mut fields, found, &names);
    }
    for key in ["usr_cpu", "sys_cpu"] {
        fields.push(format!("{:.6}%", number(&job[key])));
    }
    fields.extend(["ctx", "majf", "minf"].map(|key| word(&job[key])));
    for level in ["1", "2", "4", "8", "16", "32", ">=64"] {
        fields.push(format!("{:.1}%", number(&job["iodepth_level"][level])));
    }
    latencies(&mut fields, job);
    for disk in document["disk_util"].as_array().into_iter().flatten() {
        let keys = [
            "name",
            "read_ios",
            "write_ios",
            "read_merges",
            "write_merges",
            "read_ticks",
            "write_ticks",
            "in_queue",
        ];
        fields.extend(keys.map(|key| word(&disk[key])));
        fields.push(format!("{:.2}%", number(&disk["util"])));
    }
    let option = |key: &str| {
        let own = job["job options"].get(key);
        own.or_else(|| document["global options"].get(key))
    };
    if option("continue_on_error").is_some() {
        fields.extend(["total_err", "error"].map(|key| word(&job[key])));
    }
    fields.extend(option("description").map(word));
    fields.join(";")
}

/// The percentiles of a direction, with their values in nanoseconds.
fn percentiles(side: &Value) -> Vec<(f64, f64)> {
    let table = side["clat_ns"]["percentile"].as_object();
    let pair = |(percent, ns): (&String, &Value)| Some((percent.parse().ok()?, number(ns)));
    let mut table: Vec<(f64, f64)> = table.into_iter().flatten().filter_map(pair).collect();
    table.sort_by(|one, other| one.0.total_cmp(&other.0));
    table
}

/// A direction. Times are in microseconds. As in fio, percentiles of nothing have their names from
/// another direction, and the value 0.
fn side(fields: &mut Vec<String>, side: &Value, names: &[(f64, f64)]) {
    let whole = |value: &Value| format!("{:.0}", number(value).floor());
    let used = number(&side["total_ios"]) > 0.0;
    fields.extend(["io_kbytes", "bw", "iops", "runtime"].map(|key| whole(&side[key])));
    let latency = |fields: &mut Vec<String>, key: &str| {
        let us = |name: &str| number(&side[key][name]) / 1e3;
        fields.extend(["min", "max"].map(|name| format!("{:.0}", us(name).floor())));
        fields.extend(["mean", "stddev"].map(|name| format!("{:.6}", us(name))));
    };
    latency(fields, "slat_ns");
    latency(fields, "clat_ns");
    let table = percentiles(side);
    for at in 0..PERCENTILES {
        let us = table.get(at).map_or(0.0, |(_, ns)| (ns / 1e3).floor());
        fields.push(match names.get(at) {
            Some((percent, _)) => format!("{percent:.6}%={us:.0}"),
            None => "0%=0".to_owned(),
        });
    }
    latency(fields, "lat_ns");
    fields.extend(["bw_min", "bw_max"].map(|key| whole(&side[key])));
    let share = if used { number(&side["bw_agg"]) } else { 0.0 };
    fields.push(format!("{share:.6}%"));
    fields.extend(["bw_mean", "bw_dev"].map(|key| format!("{:.6}", number(&side[key]))));
}

/// Shares of the latencies: up to 2 µs and so on, with all nanoseconds in the first one.
fn latencies(fields: &mut Vec<String>, job: &Value) {
    let names = [
        "2", "4", "10", "20", "50", "100", "250", "500", "750", "1000",
    ];
    let share = |unit: &str, name: &str| number(&job[unit][name]);
    let shortest: f64 = names.iter().map(|name| share("latency_ns", name)).sum();
    for (at, name) in names.iter().enumerate() {
        let more = if at == 0 { shortest } else { 0.0 };
        fields.push(format!("{:.2}%", share("latency_us", name) + more));
    }
    for name in names.iter().chain(&["2000", ">=2000"]) {
        fields.push(format!("{:.2}%", share("latency_ms", name)));
    }
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or(0.0)
}

/// A value as it stands in a line. A semicolon or a line's end within it would divide the line.
fn word(value: &Value) -> String {
    let text = match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    text.replace(|letter: char| letter == ';' || letter.is_control(), " ")
}

/// Fields for percentiles.
const PERCENTILES: usize = 20;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::json;
    use crate::report::sample;
    use crate::report::sheet::Report;
    use serde_json::json;

    #[test]
    fn a_line_has_fios_fields() {
        let report = Report {
            runs: vec![sample::run(sample::results())],
            ..Report::default()
        };
        let disks = json!([{ "name": "sda", "read_ios": 7, "util": 12.5 }]);
        let document = json::runs(&report, disks, &sample::context());
        let text = text(&document);
        let fields: Vec<&str> = text.trim_end().split(';').collect();
        assert_eq!(fields.len(), 130, "121 and the disk's 9: {text}");
        assert_eq!(fields[0], "3");
        assert_eq!(fields[17], "1.000000%=10");
        assert_eq!(fields[43], "100.000000%", "{text}");
        assert_eq!(
            (fields[121], fields[122], fields[129]),
            ("sda", "7", "12.50%")
        );
    }
}
