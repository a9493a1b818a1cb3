//! `fabrix attach`: a disk as a disk of this machine, kept by a process of its own.

use std::ffi::OsString;
use std::io::{BufRead, BufReader};
use std::process::{Command, ExitCode, Stdio};

use fabrix_block::spec::without_secrets;
use serde_json::{Value, json};

use super::terminal::print;
use crate::args::AttachArgs;
use crate::attached::holder::{announce, hold};
use crate::attached::records::Records;
use crate::failure::{Failure, Kind};

pub(crate) fn run(args: &AttachArgs) -> Result<ExitCode, Failure> {
    if args.in_background {
        return in_background(args);
    }
    if args.idempotent
        && let Some(there) = already(args)?
    {
        announce(args, &there)?;
        return Ok(ExitCode::SUCCESS);
    }
    if args.foreground {
        hold(args, |now| announce(args, now))?;
        return Ok(ExitCode::SUCCESS);
    }
    let words: Vec<OsString> = std::env::args_os().skip(1).collect();
    let now = launch(&words)?;
    announce(args, &now)?;
    Ok(ExitCode::SUCCESS)
}

/// The same disk, if it is attached; under the same name, if one was given.
fn already(args: &AttachArgs) -> Result<Option<Value>, Failure> {
    let same = |record: &crate::attached::records::Record| {
        record.uri == without_secrets(&args.uri)
            && args.name.as_ref().is_none_or(|name| *name == record.name)
    };
    let all = Records::open()?.all()?;
    let found = all
        .into_iter()
        .find(|found| found.alive && same(&found.record));
    Ok(found.map(|found| serde_json::to_value(found.record).unwrap_or_default()))
}

/// Starts this program again with `words`, as a process that stays, and waits until the disk is attached.
pub(crate) fn launch(words: &[OsString]) -> Result<Value, Failure> {
    let cannot = |error| {
        Failure::io(format!(
            "cannot start the process that keeps the disk: {error}"
        ))
    };
    let program = std::env::current_exe().map_err(cannot)?;
    let mut child = Command::new(program)
        .args(words)
        .arg("--in-background")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(cannot)?;
    let mut line = String::new();
    if let Some(stdout) = child.stdout.take() {
        let _nothing_more_comes = BufReader::new(stdout).read_line(&mut line);
    }
    let Ok(told) = serde_json::from_str::<Value>(&line) else {
        // Its arguments are wrong, which it has said itself, or it has died.
        let status = child.wait().map_err(cannot)?;
        return Err(Failure::io(format!(
            "the process that keeps the disk has ended: {status}"
        )));
    };
    let Some(sentence) = told["error"].as_str() else {
        return Ok(told);
    };
    let _it_has_ended = child.wait();
    let kind = match told["exit_code"].as_u64() {
        Some(2) => Kind::Usage,
        Some(3) => Kind::Connect,
        _ => Kind::Io,
    };
    Err(Failure::new(kind, sentence))
}

/// The process that stays: tells in one line what has become of it.
fn in_background(args: &AttachArgs) -> Result<ExitCode, Failure> {
    fabrix_rt::process::new_session().map_err(Failure::io)?;
    let mut told = false;
    let held = hold(args, |now| {
        told = true;
        print(&format!("{now}\n"))
    });
    match held {
        Err(failure) if !told => {
            let error = json!({ "error": failure.to_string(), "exit_code": failure.kind() as u8 });
            print(&format!("{error}\n"))?;
            Ok(ExitCode::from(failure.kind() as u8))
        }
        held => held.map(|()| ExitCode::SUCCESS),
    }
}
