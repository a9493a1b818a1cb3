//! `fabrix attach`: attaches a disk to this machine. A separate process keeps it attached.
//!
//! That process is this program again. It reads the command line from standard input, because other
//! users can see arguments and an address may contain a secret.

use std::ffi::{OsStr, OsString};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::parent_id;
use std::process::{Command, ExitCode, Stdio};

use fabrix_block::spec::without_secrets;
use serde_json::Value;

use super::terminal::{print, say};
use crate::args::{Arguments, AttachArgs, FrontEnd, Verb, given, with_program};
use crate::attached::declared::Declared;
use crate::attached::holder::{announce, hold};
use crate::attached::kernel;
use crate::attached::records::{Record, Records};
use crate::failure::Failure;

pub(crate) fn run(args: &AttachArgs) -> Result<ExitCode, Failure> {
    if args.unit {
        print(&unit())?;
        return Ok(ExitCode::SUCCESS);
    }
    if args.declared {
        return attach_declared(args);
    }
    let words: Vec<OsString> = given().iter().skip(1).cloned().collect();
    if args.persist {
        Declared::check(&words)?;
    }
    if args.idempotent
        && let Some(there) = already(args)?
    {
        announce(args, &there)?;
        return persist(args, &there, &words);
    }
    if args.front_end == FrontEnd::Kernel {
        let now = kernel::attach(args)?;
        announce(args, &now)?;
        return persist(args, &now, &words);
    }
    if args.foreground {
        let ready = |now: &Value| {
            announce(args, now)?;
            persist(args, now, &words).map(drop)
        };
        hold(args, None, ready)?;
        return Ok(ExitCode::SUCCESS);
    }
    let now = launch(&words)?;
    announce(args, &now)?;
    persist(args, &now, &words)
}

/// The record of the same disk, with the same name if one was given.
fn already(args: &AttachArgs) -> Result<Option<Value>, Failure> {
    let same = |record: &Record| {
        record.uri == without_secrets(&args.uri)
            && args.name.as_ref().is_none_or(|name| *name == record.name)
    };
    let all = Records::open()?.all()?;
    let found = all
        .into_iter()
        .find(|found| found.alive && same(&found.record));
    if let (Some(found), Some(file)) = (&found, &args.devid_file) {
        found.record.write_device(file)?;
    }
    Ok(found.map(|found| serde_json::to_value(found.record).unwrap_or_default()))
}

/// Declares the attached disk if `--persist` is set.
fn persist(args: &AttachArgs, now: &Value, words: &[OsString]) -> Result<ExitCode, Failure> {
    if !args.persist {
        return Ok(ExitCode::SUCCESS);
    }
    let name = now["name"].as_str().unwrap_or_default();
    let written = Declared::open()?.write(name, words).map_err(|failure| {
        Failure::new(
            failure.kind(),
            format!("{name} is attached, and not declared for the next start: {failure}"),
        )
    });
    say(format_args!(
        "{name} is declared in {}; at every start: `fabrix attach --declared`, or once `fabrix attach --unit > \
         /etc/systemd/system/fabrix-attach@.service` and `systemctl enable fabrix-attach@{name}`",
        written?.display()
    ));
    Ok(ExitCode::SUCCESS)
}

/// Attaches all declared disks that are not attached. A failure does not stop the others.
fn attach_declared(args: &AttachArgs) -> Result<ExitCode, Failure> {
    let declared = Declared::open()?;
    let names = match &args.name {
        Some(name) => vec![name.clone()],
        None => declared.names()?,
    };
    let there = Records::open()?.all()?;
    let mut last = None;
    for name in names {
        if there
            .iter()
            .any(|found| found.alive && found.record.name == name)
        {
            continue;
        }
        let attached = declared.words(&name).and_then(|mut words| {
            if args.wait && !words.iter().any(|word| word == "--wait") {
                words.push("--wait".into());
            }
            bring_back(&words)
        });
        match attached {
            Ok(now) => announce(args, &now)?,
            Err(failure) => {
                say(format_args!("{name}: {failure}"));
                last = Some(failure);
            }
        }
    }
    Ok(last.map_or(ExitCode::SUCCESS, |failure| failure.code()))
}

/// Attaches a declared disk.
fn bring_back(words: &[OsString]) -> Result<Value, Failure> {
    match Arguments::of(&with_program(words)).verb {
        Verb::Attach(args) if args.front_end == FrontEnd::Kernel => kernel::attach(&args),
        _ => launch(words),
    }
}

/// The systemd unit with the path of this program.
fn unit() -> String {
    let text = include_str!("../../../../contrib/systemd/fabrix-attach@.service");
    match std::env::current_exe() {
        Ok(program) => text.replace("/usr/bin/fabrix", &in_unit(&program.display().to_string())),
        Err(_) => text.to_owned(),
    }
}

/// Quotes a word for a command line of systemd. Source: systemd.service(5), "Command lines".
fn in_unit(word: &str) -> String {
    let word = word.replace('%', "%%").replace('$', "$$");
    let is_plain = |c: char| !c.is_whitespace() && !"\"'\\;".contains(c);
    match word.chars().all(is_plain) {
        true => word,
        false => format!("\"{}\"", word.replace('\\', "\\\\").replace('"', "\\\"")),
    }
}

/// Starts the process that keeps the disk, sends it the command line of `attach`, and waits until
/// the disk is attached.
pub(crate) fn launch(words: &[OsString]) -> Result<Value, Failure> {
    let cannot = |error| {
        Failure::io(format!(
            "cannot start the process that keeps the disk: {error}"
        ))
    };
    let program = std::env::current_exe().map_err(cannot)?;
    let mut child = Command::new(program)
        .arg("hold")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(cannot)?;
    if let Some(mut stdin) = child.stdin.take() {
        let told: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
        // If the process has already ended, its reason is read below.
        let _gone = stdin.write_all(&told.join(&0));
    }
    let mut line = String::new();
    if let Some(stdout) = child.stdout.take() {
        let _nothing_more_comes = BufReader::new(stdout).read_line(&mut line);
    }
    let Ok(told) = serde_json::from_str::<Value>(&line) else {
        // The process has reported wrong arguments itself, or has died.
        let status = child.wait().map_err(cannot)?;
        return Err(Failure::io(format!(
            "the process that keeps the disk has ended: {status}"
        )));
    };
    let Some(failure) = Failure::of_json(&told) else {
        return Ok(told);
    };
    let _it_has_ended = child.wait();
    Err(failure)
}

/// The process that keeps the disk. It prints the result of the attachment as one line of JSON.
pub(crate) fn hold_in_background() -> Result<ExitCode, Failure> {
    let caller = parent_id();
    let mut told = Vec::new();
    let read = std::io::stdin()
        .lock()
        .take(WORDS_BYTES_MAX)
        .read_to_end(&mut told);
    read.map_err(Failure::io)?;
    let words = told.split(|byte| *byte == 0);
    let words: Vec<OsString> = words
        .map(|word| OsStr::from_bytes(word).to_owned())
        .collect();
    let Verb::Attach(args) = Arguments::of(&with_program(&words)).verb else {
        return Err(Failure::usage("`hold` takes the words of `attach`"));
    };
    fabrix_rt::process::new_session().map_err(Failure::io)?;
    let mut told = false;
    let held = hold(&args, Some(caller), |now| {
        told = true;
        print(&format!("{now}\n"))
    });
    match held {
        Err(failure) if !told => {
            print(&format!("{}\n", failure.json()))?;
            Ok(failure.code())
        }
        held => held.map(|()| ExitCode::SUCCESS),
    }
}

/// Longest command line in bytes.
const WORDS_BYTES_MAX: u64 = 4 << 20;
