//! The demonstration: the table as data, and the report that it leaves.

use std::time::Duration;

use super::harness::{fabrix, figure, path_in, scratch};

#[test]
fn the_quick_demo_measures_13_workloads_and_writes_a_report_of_its_own() {
    let folder = scratch();
    let report = path_in(&folder, "report");
    let ended = fabrix(&[
        "demo", "--quick", "-o", "json", "--size", "64M", "--report", &report,
    ]);
    ended.exits(0).says(&["the report is ", &report]);
    assert!(
        ended.took < Duration::from_secs(40),
        "quick is not {:?}",
        ended.took
    );
    let json = ended.json();
    assert_eq!(json["schema"], 1);
    assert!(figure(&json, "/remote_to_wire_iops") > 0.0);
    assert!(json["warnings"].is_array());
    let rows = json["rows"].as_array().expect("rows are a list");
    assert_eq!(rows.len(), 13);
    let names: Vec<&str> = rows.iter().filter_map(|row| row["name"].as_str()).collect();
    assert!(names.contains(&"4k random 50% write"), "{names:?}");
    if cfg!(debug_assertions) {
        ended.says(&["this is a debug build"]);
    }
    for row in rows {
        for side in ["local", "remote"] {
            for key in [
                "iops",
                "bw_bytes",
                "lat_us/mean",
                "lat_us/p99",
                "cpu_cores/initiator",
            ] {
                assert!(figure(row, &format!("/{side}/{key}")) > 0.0, "{row:#}");
            }
        }
        assert!(figure(row, "/remote/cpu_cores/target") > 0.0, "{row:#}");
        for key in ["remote_to_local_iops", "wire_iops", "remote_to_wire_iops"] {
            assert!(figure(row, &format!("/{key}")) > 0.0, "{row:#}");
        }
    }
    let read = |name: &str| std::fs::read_to_string(format!("{report}/{name}")).expect(name);
    let written: serde_json::Value = serde_json::from_str(&read("results.json")).expect("JSON");
    assert_eq!(written["rows"], json["rows"]);
    assert_eq!(
        read("results.csv").lines().count(),
        14,
        "a header and 13 rows"
    );
    let page = read("index.html");
    assert!(page.contains("of what the wire can do"));
    assert!(page.contains("<svg"), "there are charts");
    for outside in [
        "http:", "https:", "src=", "<link", "@import", "url(", "//cdn",
    ] {
        assert!(
            !page.contains(outside),
            "`{outside}` refers to something outside of the page"
        );
    }
}
