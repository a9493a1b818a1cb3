//! `fabrix list`: what is attached, as a table or as data.

use std::process::ExitCode;
use std::time::SystemTime;

use serde_json::{Value, json};

use super::terminal::print;
use crate::api::{Client, attachment};
use crate::args::{Format, ListArgs};
use crate::attached::kernel;
use crate::attached::records::{Found, Records};
use crate::failure::Failure;

pub(crate) fn run(args: &ListArgs) -> Result<ExitCode, Failure> {
    let records = Records::open()?;
    let all: Vec<Value> = records
        .all()?
        .iter()
        .map(|found| state(&records, found))
        .collect();
    match args.output {
        Format::Json => print(&format!("{}\n", json!({ "schema": 1, "attachments": all })))?,
        Format::Text => print(&table(&all))?,
    }
    Ok(ExitCode::SUCCESS)
}

/// What the process says of itself, or that there is none.
fn state(records: &Records, found: &Found) -> Value {
    if found.alive && found.record.controller.is_some() {
        return kernel::state(&found.record);
    }
    let client = Client::new(
        records.socket(&found.record.name),
        "the process of this attachment",
    )
    .that_looks();
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
    let mut text = line(
        [
            "id", "name", "device", "as", "size", "state", "since", "lost", "reads", "writes",
            "uri",
        ]
        .map(str::to_owned),
    );
    for one in all {
        let word = |key: &str| one[key].as_str().unwrap_or_default().to_owned();
        let requests = |key: &str| one[key]["requests"].as_u64().unwrap_or(0).to_string();
        text.push_str(&line([
            one["id"].to_string(),
            word("name"),
            word("device"),
            word("as"),
            fabrix_block::spec::Size(one["size_bytes"].as_u64().unwrap_or(0)).to_string(),
            word("state"),
            age(one["since"].as_u64().unwrap_or(0)),
            one["reconnects"].as_u64().unwrap_or(0).to_string(),
            requests("read"),
            requests("write"),
            word("uri"),
        ]));
    }
    if all.is_empty() {
        text.push_str("(nothing is attached)\n");
    }
    text
}

fn line(words: [String; 11]) -> String {
    let [
        id,
        name,
        device,
        kind,
        size,
        state,
        since,
        lost,
        reads,
        writes,
        uri,
    ] = words;
    format!(
        "{id:<4} {name:<12} {device:<24} {kind:<6} {size:<9} {state:<12} {since:<6} {lost:<5} {reads:<9} {writes:<9} \
         {uri}\n"
    )
}

/// How long ago a time was, in its largest unit.
fn age(since: u64) -> String {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let seconds = now.map_or(0, |now| now.as_secs().saturating_sub(since));
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{}m", seconds / 60),
        3600..86_400 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86_400),
    }
}
