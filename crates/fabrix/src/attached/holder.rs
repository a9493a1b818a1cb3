//! The process that keeps one disk attached.
//!
//! The main thread waits for events. A shard moves data on a second thread, and the control socket
//! is served on a third.

use std::fs::File;
use std::os::unix::process::parent_id;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fabrix_attach::FrontEndEvent;
use fabrix_block::filter::stats::Stats;
use fabrix_block::spec::Disk;
use fabrix_block::{Device, Spec};
use fabrix_rt::process;
use serde_json::Value;

use super::begin::{Begun, begin};
use super::choose::choose;
use super::held::{Held, HolderEvent};
use super::paths::Paths;
use super::records::{Claim, Record, Records};
use super::takeover;
use crate::api::{Server, attachment};
use crate::args::{AttachArgs, FrontEnd};
use crate::cli::notices::disk_failed;
use crate::cli::terminal::{say, show};
use crate::disks::{Opener, leads_to_discovery};
use crate::failure::{Failure, Kind};
use crate::log::{self, LogFormat};
use crate::signals::end_a_service;

/// Interval of the connection attempts with `--wait`.
const TRY_EVERY: Duration = Duration::from_secs(1);

/// Attaches a disk and keeps it attached until it is detached. `ready` is called once with the
/// state after the attachment. `caller` is the process that waits for `ready`. With a caller, this
/// process then goes to the background, and it gives up if the caller ends before.
pub(crate) fn hold(
    args: &AttachArgs,
    caller: Option<u32>,
    ready: impl FnOnce(&Value) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let records = Records::open()?;
    let left = takeover::find(&records, args)?;
    let candidates = match left {
        Some(_) => vec![Ok(FrontEnd::Ublk)],
        None => choose(args.front_end, sockets(args), args.engine.engine)?,
    };
    let name = left.as_ref().map(|left| left.name.as_str());
    let mut claim = records.claim(name.or(args.name.as_deref()))?;
    // Until the takeover succeeds, the record must survive a failure.
    claim.keep(left.is_some());
    let (sender, events) = channel();
    let paths = Arc::new(Paths::default());
    let disk_sender = sender.clone();
    let (moved_sender, moved) = channel();
    let watch = paths.watch(
        move |name| {
            let _it_is_over = disk_sender.send(HolderEvent::DiskChanged(Some(name)));
        },
        move || {
            let _nobody_asks = moved_sender.send(());
        },
    );
    let ours = Arc::clone(&paths);
    let opener = Opener::new(
        &args.remote,
        args.engine.engine,
        &format!("attach/{}", claim.name),
    )?
    .watched(watch)
    .telling_paths(Arc::new(move |roster| ours.opened(roster)))
    .over(left.as_ref().map_or(&[][..], |left| &left.roster));
    let opened = open(args, &opener, caller)?;
    let counted = {
        let name = claim.name.clone();
        Stats::telling(opened, move |failed| disk_failed(&name, failed))
    };
    let disk: Arc<dyn Device> = Arc::clone(&counted) as Arc<dyn Device>;
    records.refuse_twice(&claim.name, &args.uri, &*disk)?;
    let size_sender = sender.clone();
    let _until_detached = disk.watch(Box::new(move || {
        let _it_is_over = size_sender.send(HolderEvent::DiskChanged(None));
    }));
    let stop_sender = sender.clone();
    end_a_service(move |_| stop_sender.send(HolderEvent::StopRequested).is_ok())?;
    let Begun {
        kind,
        front,
        shards,
    } = begin(candidates, &claim, (args, left.as_ref()), &disk, |kind| {
        event_handler(kind, sender.clone())
    })?;
    claim.keep(false);
    front.notes().for_each(say);
    let record = Record {
        subsystem: subsystem(&args.uri, &*disk),
        roster: left.map_or_else(Vec::new, |left| left.roster),
        ..Record::new(&claim, (kind, front.device()), (&args.uri, &*disk))
    };
    let held = Arc::new(Held {
        record: Mutex::new(record),
        disk: Mutex::new(disk),
        changing: Mutex::new(()),
        opener,
        file: claim.record_file(),
        counted,
        paths,
        kind,
        front,
        sender: Mutex::new(sender),
    });
    follow_discovery(&held, &args.uri, moved);
    let kept = serve_until_detached((args, caller), &held, &claim, &events, ready);
    // An ended front end needs no shard. After a failure, the front end is ended by force, together
    // with waiting requests.
    if kept.is_err() {
        let _already_over = held.front.end(true);
    }
    shards.stop();
    kept
}

/// Asks discovery again whenever a path was lost or is back, if the URI of the disk leads there.
fn follow_discovery(held: &Arc<Held>, uri: &str, moved: Receiver<()>) {
    if held.paths.locations().0.is_empty() || !leads_to_discovery(uri) {
        return;
    }
    let (held, uri) = (Arc::clone(held), uri.to_owned());
    std::thread::spawn(move || {
        while moved.recv().is_ok() {
            while moved.try_recv().is_ok() {}
            held.look_for_paths(&uri);
        }
    });
}

fn serve_until_detached(
    (args, caller): (&AttachArgs, Option<u32>),
    held: &Arc<Held>,
    claim: &Claim,
    events: &Receiver<HolderEvent>,
    ready: impl FnOnce(&Value) -> Result<(), Failure>,
) -> Result<(), Failure> {
    if caller_has_ended(caller) {
        let sentence = "the command that asked for this disk has ended before it was attached";
        return Err(Failure::io(sentence));
    }
    held.file.write(&held.record())?;
    if let Some(file) = &args.devid_file {
        held.record().write_device(file)?;
    }
    let _until_the_end = Server::start(&claim.path("sock"), attachment::router(Arc::clone(held)))?;
    ready(&held.json())?;
    if caller.is_some() {
        go_to_background(claim, args.log_format)?;
    } else {
        log::begin(args.log_format);
    }
    let mut stop_requested = false;
    loop {
        match events.recv() {
            // An earlier candidate has ended with its shard.
            Ok(HolderEvent::FrontEndEnded(kind)) if kind != held.kind => {}
            Ok(HolderEvent::FrontEndEnded(_)) | Err(_) => {
                held.front.over();
                return Ok(());
            }
            Ok(HolderEvent::DiskChanged(name)) => {
                if let Err(failure) = held.resize(name.as_ref()) {
                    log::error(format_args!(
                        "the disk has changed, and the change could not be applied: {failure}"
                    ));
                }
            }
            // A second request ends by force.
            Ok(HolderEvent::StopRequested) => {
                if let Err(failure) = held.detach(stop_requested) {
                    log::warn(format_args!("{failure}; ask again to end all the same"));
                }
                stop_requested = true;
            }
        }
    }
}

/// Whether the caller has ended. The kernel then gives its children another parent.
fn caller_has_ended(caller: Option<u32>) -> bool {
    caller.is_some_and(|caller| caller != parent_id())
}

/// Whether a Unix socket and a TCP port were requested.
fn sockets(args: &AttachArgs) -> (bool, bool) {
    (args.socket.is_some(), args.listen.is_some())
}

/// Opens the disk. With `--wait`, retries until the target is reachable or the caller has ended.
fn open(
    args: &AttachArgs,
    opener: &Opener,
    caller: Option<u32>,
) -> Result<Arc<dyn Device>, Failure> {
    let mut announced = false;
    loop {
        match opener.open(&args.uri, args.read_only) {
            Err(failure) if args.wait && failure.kind() == Kind::Connect => {
                if !std::mem::replace(&mut announced, true) {
                    say(format_args!("{failure}; waiting for it"));
                }
                std::thread::sleep(TRY_EVERY);
                if caller_has_ended(caller) {
                    return Err(failure);
                }
            }
            opened => return opened,
        }
    }
}

/// The target's name for the disk's subsystem. The opened disk knows the name found by discovery.
fn subsystem(uri: &str, disk: &dyn Device) -> Option<String> {
    let remote = |text: &str| match Spec::parse(text).ok()?.disk {
        Disk::Remote(remote) => remote.nqn,
        Disk::Multipath { paths, .. } => paths.into_iter().find_map(|path| path.nqn),
        _ => None,
    };
    remote(&disk.identity().name).or_else(|| remote(uri))
}

/// Releases everything that the caller waits for or could remove: outputs, terminal and working
/// directory.
fn go_to_background(claim: &Claim, format: Option<LogFormat>) -> Result<(), Failure> {
    let cannot = |error| Failure::io(format!("cannot go to the background: {error}"));
    let file = File::create(claim.path("log")).map_err(cannot)?;
    let nothing = File::options()
        .write(true)
        .open("/dev/null")
        .map_err(cannot)?;
    process::redirect(&nothing, &file).map_err(cannot)?;
    log::begin(format);
    std::env::set_current_dir("/").map_err(cannot)
}

fn event_handler(kind: FrontEnd, sender: Sender<HolderEvent>) -> fabrix_attach::EventHandler {
    Box::new(move |event| match event {
        FrontEndEvent::Ended => {
            let _nobody_waits = sender.send(HolderEvent::FrontEndEnded(kind));
        }
        FrontEndEvent::Violation(sentence) => {
            log::warn(format_args!("a client was cut off: {sentence}"))
        }
    })
}

/// Prints the result of an attachment.
pub(crate) fn announce(args: &AttachArgs, now: &Value) -> Result<(), Failure> {
    let device = now["device"].as_str().unwrap_or_default();
    show(args.output, || format!("{device}\n"), || now)
}
