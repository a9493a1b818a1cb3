//! Files of results: what the documentation says of their keys, and how two of them are compared.

use serde_json::Value;
use std::collections::BTreeSet;

use super::harness::{bench, fabrix, path_in, scratch};

/// The list of keys in the documentation.
fn documented() -> Vec<String> {
    let page = include_str!("../../../../docs/BENCH.md");
    let (_, list) = page
        .split_once("<!-- results.json -->")
        .expect("the list begins");
    let (list, _) = list.split_once("<!-- end -->").expect("the list ends");
    let rows = list.lines().skip(3).filter_map(|row| row.split('|').nth(1));
    let keys = rows.flat_map(|keys| keys.split('`').skip(1).step_by(2).map(str::to_owned));
    keys.collect()
}

/// The paths of all leaves of a document, in the words of the documentation.
fn paths(value: &Value, path: &str, into: &mut BTreeSet<String>) {
    match value {
        Value::Object(members) if !members.is_empty() => {
            for (name, member) in members {
                let path = if path.is_empty() {
                    name.clone()
                } else {
                    format!("{path}.{name}")
                };
                paths(member, &shortened(&path), into);
            }
        }
        Value::Array(elements) if !elements.is_empty() => {
            let path = shortened(&format!("{path}[]"));
            elements
                .iter()
                .for_each(|element| paths(element, &path, into));
        }
        _ => drop(into.insert(path.to_owned())),
    }
}

fn shortened(path: &str) -> String {
    match path {
        "runs[]" => "RUN",
        "RUN.jobs[]" | "RUN.per_job[]" => "JOB",
        "JOB.read" | "JOB.write" | "JOB.trim" => "SIDE",
        "SIDE.slat_ns" | "SIDE.clat_ns" | "SIDE.lat_ns" => "LAT",
        other => other,
    }
    .to_owned()
}

/// Whether a documented key is the path: `*` stands for any name.
fn says(key: &str, path: &str) -> bool {
    match key.strip_suffix(".*") {
        Some(start) => path == start || path.starts_with(&format!("{start}.")),
        None => key == path || format!("{path}[]") == key,
    }
}

#[test]
fn every_key_of_a_result_is_documented_and_the_other_way_round() {
    let folder = scratch();
    let mut found = BTreeSet::new();
    let quick = [
        "--runtime",
        "0.2",
        "--log-every",
        "0.05",
        "--count",
        "2",
        "--size",
        "1M",
        "-o",
        "json",
    ];
    let report = path_in(&folder, "report");
    let steady = [
        "bench",
        "ram:8M",
        "--steadystate",
        "iops:90%",
        "--ss-dur",
        "0.1",
        "--report",
        &report,
    ];
    let verified = [
        "bench",
        "ram:8M",
        "--rw",
        "randwrite",
        "--verify",
        "--report",
        &report,
    ];
    for words in [&steady[..], &verified] {
        fabrix(&[words, &quick].concat()).exits(0);
        let text = std::fs::read_to_string(format!("{report}/results.json")).expect("results");
        let document: Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!(document["schema"], 1);
        paths(&document, "", &mut found);
    }
    let keys = documented();
    for path in &found {
        assert!(
            keys.iter().any(|key| says(key, path)),
            "`{path}` is not documented"
        );
    }
    for key in &keys {
        assert!(
            found.iter().any(|path| says(key, path)),
            "`{key}` is documented and not there"
        );
    }
}

#[test]
fn results_of_ours_and_of_fio_are_compared_in_any_order() {
    let folder = scratch();
    let file = |name: &str, text: &str| {
        let path = path_in(&folder, name);
        std::fs::write(&path, text).expect("a scratch file");
        path
    };
    let side = |iops: f64| format!(r#"{{"iops": {iops}, "bw": 1, "lat_ns": {{"mean": 1000.0}}}}"#);
    let fios = |iops: f64| {
        let (read, write) = (side(iops), side(0.0));
        format!(
            "fio: this platform is new\n{{\"fio version\": \"fio-3.33\", \"jobs\": [\n{{\"jobname\": \"a\", \
             \"error\": 0, \"read\": {read}, \"write\": {write}}}]}}\nRun status: {{}}\n"
        )
    };
    let ours = format!(
        r#"{{"schema": 1, "runs": [{{"name": "a", "disk": "ram:1G", "repeats": [], "jobs": [{{"read": {}}}]}}]}}"#,
        side(1000.0)
    );
    let (ours, fast, slow) = (
        file("ours.json", &ours),
        file("fast.json", &fios(1100.0)),
        file("slow.json", &fios(500.0)),
    );
    let compare = |a: &str, b: &str| fabrix(&["bench", "compare", a, b, "--fail-over", "5"]);
    compare(&ours, &fast).exits(0);
    compare(&ours, &slow)
        .exits(6)
        .says(&["a: 50.0 % fewer IOPS"]);
    compare(&slow, &ours).exits(0);
    compare(&fast, &slow).exits(6);
    let other = file("other.json", &fios(1.0).replace("\"a\"", "\"b\""));
    compare(&ours, &other)
        .exits(2)
        .says(&["nothing to compare"]);
    let cut = file("cut.json", &fios(1.0)[..60]);
    compare(&cut, &ours)
        .exits(2)
        .says(&["cut.json", "not JSON"]);
    let folder = path_in(&folder, "");
    compare(&ours, &folder).exits(2).says(&[&folder]);
    compare(&ours, "/nowhere/at/all.json")
        .exits(2)
        .says(&["/nowhere/at/all.json"]);
}

/// Runs `bench` twice: the warnings of the text, and those of the JSON with the document.
fn warnings(args: &[&str]) -> (String, Value) {
    let text = fabrix(&[&["bench"], args].concat());
    text.exits(0);
    (text.stderr, bench(args))
}

#[track_caller]
fn is_warned(args: &[&str], part: &str) {
    let (text, document) = warnings(args);
    let line = |line: &str| line.contains("warning: ") && line.contains(part);
    assert!(text.lines().any(line), "{part}: {text}");
    let all = document["warnings"].to_string();
    assert!(all.contains(part), "{part}: {all}");
}

#[test]
fn an_offered_load_that_is_not_reached_is_said() {
    let slow = "ram:1M,inject=delay:5ms";
    let load = ["--runtime", "300ms", "--rate_iops", "1000"];
    is_warned(
        &[&[slow][..], &load].concat(),
        "of the 1,000 IOPS that were offered",
    );
    let reached = ["ram:1M", "--runtime", "300ms", "--rate_iops", "100"];
    let (text, _) = warnings(&reached);
    assert!(!text.contains("were offered"), "{text}");
}

#[test]
fn a_mean_above_the_99th_percentile_is_explained() {
    let document = bench(&["ram:1M", "--runtime", "300ms"]);
    let latency = &document["jobs"][0]["read"]["clat_ns"];
    let p99 = latency["percentile"]["99.000000"].as_f64();
    let is_above = latency["mean"].as_f64() > p99;
    let warnings = document["warnings"].to_string();
    let is_said = warnings.contains("is above its 99th percentile");
    assert_eq!(is_said, is_above, "{latency} {warnings}");
    assert!(!warnings.contains("headroom"), "{warnings}");
}

#[test]
fn the_cores_of_a_run_add_up_and_the_generator_is_not_slower_than_itself() {
    for runtime in ["20ms", "1s"] {
        let args = ["ram:8M", "--runtime", runtime, "--numjobs", "2"];
        let (_, document) = warnings(&args);
        let cpu = &document["cpu"];
        let cores = |key: &str| cpu[key].as_f64().unwrap_or_else(|| panic!("{key}: {cpu}"));
        let process = cores("user_cores") + cores("system_cores");
        let rounding = 0.011;
        assert!(cores("job_cores") <= process + rounding, "{cpu}");
        assert!(process <= cores("machine_cores") + rounding, "{cpu}");
        let notes = document["notes"].to_string();
        let used = notes.split("which used ").nth(1);
        if let Some(percent) = used.and_then(|text| text.split(' ').next()?.parse::<f64>().ok()) {
            assert!(percent <= 100.0, "{notes}");
        }
    }
}
