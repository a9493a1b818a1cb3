//! `fabrix detach` and `fabrix resize`: send requests to the process of an attachment, and clean up
//! after a dead one.

use std::process::ExitCode;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::json;

use super::terminal::{say, show};
use crate::api::{Client, attachment};
use crate::args::{DetachArgs, ResizeArgs};
use crate::attached::declared::Declared;
use crate::attached::kernel;
use crate::attached::records::leftovers::remove_leftovers;
use crate::attached::records::{Found, Records};
use crate::failure::Failure;

/// Time limit for the end of a process after its disk is detached.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Time without an answer after which the user is told what is waited for.
const PATIENCE: Duration = Duration::from_secs(2);
const POLL_INTERVAL: Duration = Duration::from_millis(10);

pub(crate) fn run(args: &DetachArgs) -> Result<ExitCode, Failure> {
    let records = Records::open()?;
    let declared = Declared::open()?;
    if args.which != "all" {
        let found = match records.find(&args.which) {
            // A declaration can be removed without an attachment.
            Err(_) if args.forget && declared.forget(&args.which)? => {
                show_detached(args, &[])?;
                return Ok(ExitCode::SUCCESS);
            }
            found => found?,
        };
        detach(&records, &found, args.force)?;
        forget(&declared, &found.record.name, args.forget)?;
        show_detached(args, &[found.record.name])?;
        return Ok(ExitCode::SUCCESS);
    }
    let (mut last, mut detached) = (None, Vec::new());
    for found in records.all()? {
        let gone = detach(&records, &found, args.force);
        let name = &found.record.name;
        match gone.and_then(|()| forget(&declared, name, args.forget)) {
            Ok(()) => detached.push(found.record.name),
            Err(failure) => {
                say(&failure);
                last = Some(failure);
            }
        }
    }
    show_detached(args, &detached)?;
    Ok(last.map_or(ExitCode::SUCCESS, |failure| failure.code()))
}

/// Prints the names of the detached disks, if JSON was asked for.
fn show_detached(args: &DetachArgs, names: &[String]) -> Result<(), Failure> {
    show(args.output, String::new, || json!({ "detached": names }))
}

pub(crate) fn resize(args: &ResizeArgs) -> Result<ExitCode, Failure> {
    let records = Records::open()?;
    let found = records.find(&args.which)?;
    if found.record.controller.is_some() {
        return Err(Failure::usage("the kernel takes over sizes by itself"));
    }
    let client = Client::of_attachment(records.socket(&found.record.name));
    let resized = client.ask("POST", attachment::RESIZE, &json!({}))?;
    show(args.output, String::new, || resized)?;
    Ok(ExitCode::SUCCESS)
}

/// Removes the declaration of a detached disk, or mentions that it remains.
fn forget(declared: &Declared, name: &str, forgets: bool) -> Result<(), Failure> {
    if forgets {
        declared.forget(name)?;
    } else if declared.has(name) {
        say(format_args!(
            "{name} comes back at the next start: {} declares it; `fabrix detach {name} --forget` takes that back",
            declared.path(name).display()
        ));
    }
    Ok(())
}

/// Detaches a disk and waits until its process has ended.
pub(crate) fn detach(records: &Records, found: &Found, force: bool) -> Result<(), Failure> {
    let record = &found.record;
    if !found.alive {
        remove_leftovers(record, &records.mount_point(&record.name));
        // Claiming and releasing the name removes its files.
        return records.claim(Some(&record.name)).map(drop);
    }
    if record.controller.is_some() {
        kernel::detach(record, force)?;
        return records.claim(Some(&record.name)).map(drop);
    }
    let client = Client::of_attachment(records.socket(&record.name));
    let asked = thread::scope(|scope| {
        let (answered, answer) = channel::<()>();
        scope.spawn(move || {
            if answer.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout) {
                say(format_args!(
                    "{0}: waiting for its last requests; if its target cannot be reached, `fabrix detach {0} --force` \
                     ends it at once, and they fail",
                    record.name
                ));
            }
        });
        let asked = client.ask("DELETE", attachment::ATTACHMENT, &json!({ "force": force }));
        drop(answered);
        asked
    });
    if let Err(failure) = asked
        && records.is_locked(&record.name)
    {
        return Err(failure);
    }
    let until = Instant::now() + TIMEOUT;
    while records.is_locked(&record.name) {
        if Instant::now() > until {
            return Err(Failure::io(format!(
                "{} is still open in some program, or mounted in another namespace; it goes when that has ended, or \
                 with --force",
                record.device.display()
            )));
        }
        thread::sleep(POLL_INTERVAL);
    }
    Ok(())
}
