//! `fabrix path`: the paths of attached disks, and which of them get requests.

use std::process::ExitCode;

use serde_json::{Value, json};

use super::list;
use super::terminal::show;
use crate::api::{Client, attachment};
use crate::args::{PathArgs, PathVerb};
use crate::attached::declared::has_relative_secret;
use crate::attached::records::{Found, Records};
use crate::disks::path;
use crate::failure::Failure;
use crate::report::plain;

pub(crate) fn run(args: &PathArgs) -> Result<ExitCode, Failure> {
    let records = Records::open()?;
    let switch = |index: Option<usize>, change: &str| {
        let body = json!({ "index": index, "change": change });
        ("POST", body)
    };
    let (which, (method, body)) = match &args.verb {
        PathVerb::List { which } => return print(&records, which.as_deref(), args),
        PathVerb::Add { which, uri } => (which, ("PUT", json!({ "uri": lasting(uri)? }))),
        PathVerb::Remove { which, path } => (which, ("DELETE", json!({ "index": path }))),
        PathVerb::Fail { which, path } => (which, switch(Some(*path), "fail")),
        PathVerb::Restore { which, path } => (which, switch(Some(*path), "restore")),
        PathVerb::Prefer { which, path } => (which, switch(path.0, "prefer")),
    };
    let found = records.find(which)?;
    if found.record.controller.is_some() {
        return Err(Failure::usage(match method {
            "POST" => {
                "the kernel chooses among its paths: see /sys/class/nvme-subsystem/*/iopolicy"
            }
            _ => "the kernel has paths of its own: see `nvme connect` and `nvme disconnect`",
        }));
    }
    let client = Client::of_attachment(records.socket(&found.record.name));
    let changed = client.ask(method, attachment::PATHS, &body)?;
    show(args.output, String::new, || changed)?;
    Ok(ExitCode::SUCCESS)
}

/// The URI of a path for the process of a disk, which works in another folder.
///
/// # Errors
/// It is no URI of a path, or names the file of a secret relative to this folder.
fn lasting(uri: &str) -> Result<&str, Failure> {
    match has_relative_secret(&path(uri)?) {
        false => Ok(uri),
        true => Err(Failure::usage(
            "the process of the disk needs the whole path of the file of the secret, from / on",
        )),
    }
}

fn print(records: &Records, which: Option<&str>, args: &PathArgs) -> Result<ExitCode, Failure> {
    let found: Vec<Found> = match which {
        Some(which) => vec![records.find(which)?],
        None => records.all()?,
    };
    let all: Vec<Value> = found.iter().map(|it| list::state(records, it)).collect();
    let disk =
        |one: &Value| json!({ "name": one["name"], "state": one["state"], "paths": one["paths"] });
    let json = || json!({ "schema": 1, "disks": all.iter().map(disk).collect::<Vec<_>>() });
    show(args.output, || table(&all), json)?;
    Ok(ExitCode::SUCCESS)
}

fn table(all: &[Value]) -> String {
    let mut rows = vec![HEADING.map(str::to_owned)];
    for one in all {
        let paths = one["paths"].as_array().map_or(&[][..], Vec::as_slice);
        rows.extend(paths.iter().map(|path| row(&one["name"], path)));
    }
    let mut text = plain::columns(&rows);
    if all.is_empty() {
        text.push_str("(nothing is attached)\n");
    }
    text
}

const HEADING: [&str; 7] = [
    "name",
    "path",
    "address",
    "state",
    "access",
    "reconnects",
    "switch",
];

fn row(name: &Value, path: &Value) -> [String; HEADING.len()] {
    let word = |value: &Value| value.as_str().unwrap_or("-").to_owned();
    // The kernel's own host tells less of its paths.
    let number = |value: &Value| {
        let number = value.as_u64();
        number.map_or_else(|| "-".to_owned(), |number| number.to_string())
    };
    let scheme = path["scheme"].as_str();
    let scheme = scheme.map_or_else(String::new, |scheme| format!("{scheme}://"));
    let switch = match (path["failed"] == true, path["preferred"] == true) {
        (true, _) => "failed",
        (false, true) => "preferred",
        (false, false) => "-",
    };
    [
        word(name),
        number(&path["index"]),
        format!("{scheme}{}", word(&path["address"])),
        word(&path["state"]),
        word(&path["access"]),
        number(&path["reconnects"]),
        switch.to_owned(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_of_the_kernel_has_dashes_for_what_it_does_not_tell() {
        let path = json!({ "address": "traddr=10.0.0.1", "state": "live" });
        let text = table(&[json!({ "name": "one", "paths": [path] })]);
        let line = text.lines().nth(1).expect("a path");
        let words: Vec<&str> = line.split_whitespace().collect();
        assert_eq!(
            words,
            ["one", "-", "traddr=10.0.0.1", "live", "-", "-", "-"]
        );
        assert!(table(&[]).contains("nothing is attached"));
    }
}
