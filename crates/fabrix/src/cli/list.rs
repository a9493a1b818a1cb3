//! `fabrix list`: prints the attachments, as a table or as JSON.

use std::process::ExitCode;

use serde_json::{Value, json};

use super::terminal::{quoted, show};
use crate::api::{Client, attachment};
use crate::args::ListArgs;
use crate::attached::kernel;
use crate::attached::records::{Found, Records};
use crate::clock::since_1970;
use crate::failure::Failure;
use crate::report::plain;

pub(crate) fn run(args: &ListArgs) -> Result<ExitCode, Failure> {
    let records = Records::open()?;
    let all: Vec<Value> = records
        .all()?
        .iter()
        .map(|found| state(&records, found))
        .collect();
    let json = || json!({ "schema": 1, "attachments": all });
    show(args.output, || table(&all), json)?;
    Ok(ExitCode::SUCCESS)
}

/// State reported by the process of an attachment, or the record with `dead` or `silent`.
pub(super) fn state(records: &Records, found: &Found) -> Value {
    if found.alive && found.record.controller.is_some() {
        return kernel::state(&found.record);
    }
    let socket = records.socket(&found.record.name);
    let client = Client::of_attachment(socket).for_queries();
    let told = match found.alive {
        true => client.ask("GET", attachment::ATTACHMENT, &json!({})).ok(),
        false => None,
    };
    told.unwrap_or_else(|| {
        let mut known = serde_json::to_value(&found.record).unwrap_or_default();
        known["state"] = json!(if found.alive { "silent" } else { "dead" });
        known
    })
}

fn table(all: &[Value]) -> String {
    let head = [HEADING.map(str::to_owned)].into_iter();
    let mut text = plain::columns(&head.chain(all.iter().map(row)).collect::<Vec<_>>());
    text.push_str(&faults(all));
    if all.is_empty() {
        text.push_str("(nothing is attached)\n");
    }
    text
}

/// One line with name and reason for each unusable disk.
pub(super) fn faults(all: &[Value]) -> String {
    let line = |one: &Value| {
        let (name, fault) = (one["name"].as_str()?, one["fault"].as_str()?);
        Some(format!("{name}: {fault}\n"))
    };
    all.iter().filter_map(line).collect()
}

const HEADING: [&str; 13] = [
    "id",
    "name",
    "device",
    "as",
    "size",
    "state",
    "paths",
    "since",
    "reconnects",
    "reads",
    "writes",
    "subsystem",
    "uri",
];

fn row(one: &Value) -> [String; HEADING.len()] {
    let word = |key: &str| one[key].as_str().unwrap_or("-").to_owned();
    let requests = |key: &str| one[key]["requests"].as_u64().unwrap_or(0).to_string();
    [
        one["id"].to_string(),
        word("name"),
        word("device"),
        word("as"),
        fabrix_block::spec::Size(one["size_bytes"].as_u64().unwrap_or(0)).to_string(),
        word("state"),
        paths(&one["paths"]),
        age(one["since"].as_u64().unwrap_or(0)),
        one["reconnects"].as_u64().unwrap_or(0).to_string(),
        requests("read"),
        requests("write"),
        word("subsystem"),
        quoted(&word("uri")),
    ]
}

/// Number of the paths that can take requests, and of all paths.
pub(super) fn paths(paths: &Value) -> String {
    match paths.as_array().map_or(&[][..], Vec::as_slice) {
        [] => "-".to_owned(),
        all => {
            let open = all.iter().filter(|path| is_open(path));
            format!("{}/{}", open.count(), all.len())
        }
    }
}

/// Whether neither target nor administrator keeps requests from a connected path.
fn is_open(path: &Value) -> bool {
    path["state"] == "connected" && path["failed"] != true && path["access"] != "inaccessible"
}

/// Age of a time in its largest unit.
fn age(since: u64) -> String {
    let seconds = since_1970().as_secs().saturating_sub(since);
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{}m", seconds / 60),
        3600..86_400 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_name_moves_the_columns_and_says_how_many_paths_take_requests() {
        let path = |state: &str| json!({ "state": state });
        let failed = json!({ "state": "connected", "failed": true });
        let inaccessible = json!({ "state": "connected", "access": "inaccessible" });
        let one = json!({
            "id": 1, "name": "one", "device": "/run/user/1000/fabrix/a-long-name.disk", "as": "file",
            "size_bytes": 1 << 30, "state": "reconnecting", "since": 0, "uri": "nvme+tcp://h", "subsystem": "nqn.x",
            "paths": [path("connected"), path("reconnecting"), failed, inaccessible], "read": { "requests": 7 },
        });
        let two = json!({ "id": 2, "name": "two", "device": "/dev/loop0", "as": "fuse", "uri": "ram:1M" });
        let text = table(&[one, two]);
        let lines: Vec<&str> = text.lines().collect();
        let column = |word: &str| lines[0].find(&format!(" {word}")).expect("a column") + 1;
        assert!(lines[1][column("paths")..].starts_with("1/4 "), "{text}");
        assert!(lines[1][column("reads")..].starts_with("7 "), "{text}");
        assert!(lines[1].ends_with("  nqn.x      nvme+tcp://h"), "{text}");
        assert!(lines[2][column("paths")..].starts_with("- "), "{text}");
        assert!(lines[2][column("uri")..].starts_with("ram:1M"), "{text}");
    }
}
