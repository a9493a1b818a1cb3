//! The process that keeps one disk attached: from opening it to the last answer.
//!
//! The main thread waits; a shard of its own moves data; the control socket answers on a third
//! thread.

use std::fs::File;
use std::net::SocketAddr;
use std::os::unix::process::parent_id;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use fabrix_attach::Told;
use fabrix_block::filter::stats::Stats;
use fabrix_block::spec::{Disk, without_secrets};
use fabrix_block::{Device, Durability, OpenError, OpenErrorKind, Spec};
use fabrix_rt::process;
use serde_json::{Value, json};

use super::begin::{Begun, begin};
use super::choose::choose;
use super::front::Front;
use super::kernel;
use super::paths::Paths;
use super::records::{Claim, Record, Records};
use super::takeover;
use crate::api::{Server, attachment};
use crate::args::{AttachArgs, FrontEnd};
use crate::cli::notices::disk_failed;
use crate::cli::terminal::{print, say};
use crate::counters;
use crate::disks::{Opener, Watch};
use crate::failure::{Failure, Kind};
use crate::log::{self, LogFormat};
use crate::signals::end_a_service;

/// An attached disk, as its control socket knows it.
pub(crate) struct Held {
    record: Mutex<Record>,
    disk: Mutex<Arc<dyn Device>>,
    resizing: Mutex<()>,
    counted: Arc<Stats>,
    paths: Arc<Paths>,
    kind: FrontEnd,
    front: Front,
    tell: Mutex<Sender<News>>,
}

/// What the main thread waits for.
pub(crate) enum News {
    /// A front end of this kind is over, and nothing of it is left to keep.
    Over(FrontEnd),
    /// A signal asks for the end.
    Asked,
    /// The disk has another size, as the path to there says.
    Changed(SocketAddr),
}

/// How often `--wait` tries to reach the target.
const TRY_EVERY: Duration = Duration::from_secs(1);

/// Attaches a disk and keeps it so until it is detached. `ready` hears what has been attached,
/// once. With a `caller`, the process that waits for that, it goes to the background then, and
/// gives up when the caller goes before.
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
    // Until the device has been taken over, what is known of it must not be lost.
    claim.keep(left.is_some());
    let (tell, told) = channel();
    let paths = Arc::<Paths>::default();
    let opened = open(args, &claim, paths.watch(tell.clone()), caller)?;
    let counted = {
        let name = claim.name.clone();
        Stats::telling(opened, move |failed| disk_failed(&name, failed))
    };
    let disk: Arc<dyn Device> = Arc::clone(&counted) as Arc<dyn Device>;
    records.refuse_twice(&claim.name, &args.uri, &*disk)?;
    let asked = tell.clone();
    end_a_service(move |_| asked.send(News::Asked).is_ok())?;
    let Begun {
        kind,
        front,
        shards,
    } = begin(candidates, &claim, (args, left.as_ref()), &disk, |kind| {
        telling(kind, tell.clone())
    })?;
    claim.keep(false);
    front.notes().for_each(say);
    let record = record(args, &claim, kind, (&front, &*disk));
    let held = Arc::new(Held {
        record: Mutex::new(record),
        disk: Mutex::new(disk),
        resizing: Mutex::new(()),
        counted,
        paths,
        kind,
        front,
        tell: Mutex::new(tell),
    });
    let kept = keep((args, caller), &held, &claim, &told, ready);
    // What is over needs no shard any more; what has failed on the way is let go with everything
    // that waits for it.
    if kept.is_err() {
        let _already_over = held.front.end(true);
    }
    shards.stop();
    kept
}

fn keep(
    (args, caller): (&AttachArgs, Option<u32>),
    held: &Arc<Held>,
    claim: &Claim,
    told: &Receiver<News>,
    ready: impl FnOnce(&Value) -> Result<(), Failure>,
) -> Result<(), Failure> {
    if has_gone(caller) {
        let sentence = "the command that asked for this disk has ended before it was attached";
        return Err(Failure::io(sentence));
    }
    claim.write(&held.record())?;
    if let Some(file) = &args.devid_file {
        held.record().write_device(file)?;
    }
    let _until_the_end = Server::start(&claim.path("sock"), attachment::router(Arc::clone(held)))?;
    ready(&held.json())?;
    if caller.is_some() {
        leave_terminal(claim, args.log_format)?;
    } else {
        log::begin(args.log_format);
    }
    let mut asked = false;
    loop {
        match told.recv() {
            // One that was tried before this one has ended with its shard.
            Ok(News::Over(kind)) if kind != held.kind => {}
            Ok(News::Over(_)) | Err(_) => {
                held.front.over();
                return Ok(());
            }
            Ok(News::Changed(address)) => {
                if let Err(failure) = held.resize(Some(address)) {
                    log::error(format_args!(
                        "the disk has changed, and that could not be taken over: {failure}"
                    ));
                }
            }
            // Asked twice, it is meant.
            Ok(News::Asked) => {
                if let Err(failure) = held.detach(asked) {
                    log::warn(format_args!("{failure}; ask again to end all the same"));
                }
                asked = true;
            }
        }
    }
}

/// Whether the process that waits for the disk has ended: its children get another parent.
fn has_gone(caller: Option<u32>) -> bool {
    caller.is_some_and(|caller| caller != parent_id())
}

/// Whether a Unix socket was asked for, and whether one of TCP.
fn sockets(args: &AttachArgs) -> (bool, bool) {
    (args.socket.is_some(), args.listen.is_some())
}

/// Opens the disk; with `--wait` as soon as it can be reached, if somebody still waits for that.
fn open(
    args: &AttachArgs,
    claim: &Claim,
    watch: Watch,
    caller: Option<u32>,
) -> Result<Arc<dyn Device>, Failure> {
    let opener = Opener::new(
        &args.remote,
        args.engine.engine,
        &format!("attach/{}", claim.name),
    )?
    .watched(watch);
    let mut told = false;
    loop {
        match opener.open(&args.uri, args.read_only) {
            Err(failure) if args.wait && failure.kind() == Kind::Connect => {
                if !std::mem::replace(&mut told, true) {
                    say(format_args!("{failure}; waiting for it"));
                }
                std::thread::sleep(TRY_EVERY);
                if has_gone(caller) {
                    return Err(failure);
                }
            }
            opened => return opened,
        }
    }
}

fn record(
    args: &AttachArgs,
    claim: &Claim,
    kind: FrontEnd,
    (front, disk): (&Front, &dyn Device),
) -> Record {
    let geometry = disk.geometry();
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    Record {
        id: claim.id,
        name: claim.name.clone(),
        device: front.device(),
        front_end: word(kind).to_owned(),
        uri: without_secrets(&args.uri),
        subsystem: subsystem(&args.uri, disk),
        uuid: disk.identity().uuid_text(),
        controller: None,
        size_bytes: geometry.bytes(),
        block_bytes: geometry.block_bytes,
        read_only: geometry.read_only,
        pid: std::process::id(),
        since: since.map_or(0, |since| since.as_secs()),
    }
}

/// What the target calls what it exports there: as its disk says, which may have been found by
/// discovery.
fn subsystem(uri: &str, disk: &dyn Device) -> Option<String> {
    let remote = |text: &str| match Spec::parse(text).ok()?.disk {
        Disk::Remote(remote) => remote.nqn,
        _ => None,
    };
    remote(&disk.identity().name).or_else(|| remote(uri))
}

pub(super) fn word(kind: FrontEnd) -> &'static str {
    match kind {
        FrontEnd::Auto => "auto",
        FrontEnd::Ublk => takeover::FRONT_END,
        FrontEnd::Fuse => "fuse",
        FrontEnd::File => "file",
        FrontEnd::Nbd => "nbd",
        FrontEnd::NbdSocket => "nbd-socket",
        FrontEnd::VhostUser => "vhost-user",
        FrontEnd::Kernel => kernel::WORD,
    }
}

/// Lets go of everything that the caller waits for or could take away: outputs, terminal, folder.
fn leave_terminal(claim: &Claim, format: Option<LogFormat>) -> Result<(), Failure> {
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

fn telling(kind: FrontEnd, tell: Sender<News>) -> fabrix_attach::Tell {
    Box::new(move |told| match told {
        Told::Over => {
            let _nobody_waits = tell.send(News::Over(kind));
        }
        Told::Violation(sentence) => log::warn(format_args!("a client was cut off: {sentence}")),
    })
}

impl Held {
    fn record(&self) -> Record {
        self.record
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// What is attached, and what it has done so far.
    pub(crate) fn json(&self) -> Value {
        let record = self.record();
        let mut all = serde_json::to_value(&record).unwrap_or_default();
        let volatile = self
            .disk
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .geometry()
            .durability
            == Durability::None;
        all["state"] = json!(self.paths.state());
        all["fault"] = json!(self.paths.fault());
        all["paths"] = self.paths.json();
        all["reconnects"] = json!(self.paths.reconnects());
        all["volatile"] = json!(volatile);
        all["zero_copy"] = json!(self.front.zero_copy());
        if let Some(over_uring) = self.front.over_uring() {
            all["io_uring"] = json!(over_uring.is_ok());
        }
        for (name, counts) in counters::summary(&self.counted) {
            all[name] = counts;
        }
        all
    }

    /// What it has done so far, in detail.
    pub(crate) fn counters(&self) -> Value {
        let record = self.record();
        json!({
            "schema": 1,
            "name": record.name,
            "device": record.device,
            "state": self.paths.state(),
            "fault": self.paths.fault(),
            "reconnects": self.paths.reconnects(),
            "counters": counters::detailed(&self.counted),
        })
    }

    /// Takes it away: see [`Front::end`]. By force it is over at once, whoever still holds the
    /// device: what he asks of it from then on fails.
    pub(crate) fn detach(&self, force: bool) -> Result<(), Failure> {
        self.front.end(force)?;
        if force {
            let tell = self.tell.lock().unwrap_or_else(PoisonError::into_inner);
            let _it_is_over_already = tell.send(News::Over(self.kind));
        }
        Ok(())
    }

    /// Takes over the size that the disk has now; `told_by` is the path that said that it has
    /// changed, if one did.
    pub(crate) fn resize(&self, told_by: Option<SocketAddr>) -> Result<(), Failure> {
        let _one_at_a_time = self.resizing.lock().unwrap_or_else(PoisonError::into_inner);
        let disk = Arc::clone(&self.disk.lock().unwrap_or_else(PoisonError::into_inner));
        let fresh = disk.remeasure(None); // a target may take its time
        if let Some(fault) = fresh.as_ref().err().and_then(fault) {
            self.paths.set_fault(told_by, Some(&fault));
        }
        let fresh = fresh?;
        self.front.resized(&fresh)?;
        self.paths.set_fault(told_by, None);
        let mut record = self.record.lock().unwrap_or_else(PoisonError::into_inner);
        record.size_bytes = fresh.geometry().bytes();
        *self.disk.lock().unwrap_or_else(PoisonError::into_inner) = fresh;
        Ok(())
    }
}

/// What has become of a disk. Who could not be asked has said nothing of it.
fn fault(error: &OpenError) -> Option<String> {
    matches!(
        error.kind,
        OpenErrorKind::NotFound | OpenErrorKind::Unsupported
    )
    .then(|| error.to_string())
}

/// What is printed of an attachment.
pub(crate) fn announce(args: &AttachArgs, now: &Value) -> Result<(), Failure> {
    let device = now["device"].as_str().unwrap_or_default();
    match args.output {
        crate::args::Format::Json => print(&format!("{now}\n")),
        crate::args::Format::Text => print(&format!("{device}\n")),
    }
}
