//! `fabrix serve`: disks on one side, listeners on the other, until somebody says stop.

use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode, ExitStatus};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use fabrix_target::{Catalog, Export, Limits, ReservationStore, Target, TargetConfig};
use signal_hook::consts::SIGTERM;

use super::notices;
use super::terminal::{print, say};
use crate::access::{Allowed, initiators};
use crate::api::{Server, socket_path, target_router};
use crate::args::{Format, ServeArgs};
use crate::disks::Opener;
use crate::export_names::ExportNames;
use crate::failure::Failure;
use crate::log;
use crate::served::{ExportOpener, Served, catalog, check_addresses, failure, listen_address};
use crate::shards::{Shards, raise_open_files};
use crate::signals::end_a_service;
use crate::state::State;

/// Connections of all hosts together.
const MAX_CONNECTIONS: usize = 16_384;
/// Of those that have not said who they are, so many of one address: eight hosts of 128 processors
/// at once.
const MAX_STRANGERS: usize = 1024;
/// What one command may move; a disk that takes less lowers it.
const MAX_TRANSFER_BYTES: u32 = 1 << 20;
/// How long connections have to finish what they have begun.
const DRAIN: Duration = Duration::from_secs(5);

pub(crate) fn run(args: &ServeArgs) -> Result<ExitCode, Failure> {
    // Whoever asks for a format gets it from the first line on.
    if args.log_format.is_some() {
        log::begin(args.log_format);
    }
    raise_open_files();
    let listen = args
        .listen
        .iter()
        .map(|text| listen_address(text).map_err(|why| Failure::usage(format!("--listen {why}"))))
        .collect::<Result<Vec<_>, _>>()?;
    check_addresses(&listen)?;
    let allowed = Allowed::new(
        args.allow.iter().chain(&args.initiator),
        args.chap.is_some(),
    )?;
    listen
        .iter()
        .try_for_each(|listen| allowed.check(*listen))?;
    let initiators = initiators(&allowed, args.chap.as_deref(), args.mutual_chap.as_deref())?;
    let names = ExportNames::new(args.nqn.as_deref(), args.iqn.as_deref(), &listen);
    let opener = Opener::new(&args.remote, args.engine.engine, &names.scope)?;
    let state = State::open(args.state.as_deref())?;
    let export_opener = ExportOpener::new(opener, args.read_only, state.clone());
    let devices = args.disks.iter().map(|text| export_opener.open(text));
    let devices = devices.collect::<Result<Vec<_>, Failure>>()?;
    let (tell, told) = channel();
    let asked = tell.clone();
    end_a_service(move |signal| asked.send(End::Asked(signal)).is_ok())?;
    log::begin(args.log_format);
    let shards = Shards::start(&args.engine)?;
    let access = (allowed.hosts(), initiators);
    // Nobody else keeps the devices: a disk that is removed is closed, and free for others.
    let exports = (1..).zip(devices);
    let exports = exports.map(|(number, device)| Export { number, device });
    let catalog = catalog(
        (&names.nqn, &names.iqn),
        args.api.is_some(),
        exports.collect(),
        access,
        listen,
    );
    let state = state.map(|state| state as Arc<dyn ReservationStore>);
    let config = target_config(args, catalog, state);
    let target = match Target::start(config, shards.remotes()) {
        Ok(target) => target,
        Err(error) => {
            shards.stop();
            return Err(failure(&error));
        }
    };
    let served = Arc::new(Served::new(
        target,
        (&names.nqn, &names.iqn),
        export_opener,
        &args.disks,
        allowed,
    ));
    let outcome = serve(args, &served, tell, &told);
    drain(&served.target);
    shards.stop();
    outcome
}

/// Says what is served, and waits until serving is to end.
fn serve(
    args: &ServeArgs,
    served: &Arc<Served>,
    tell: Sender<End>,
    told: &Receiver<End>,
) -> Result<ExitCode, Failure> {
    let path = args.api.as_deref().map(socket_path);
    let start = |path: PathBuf| Server::start(&path, target_router(Arc::clone(served)));
    let _until_the_end = path.map(start).transpose()?;
    match args.output {
        Format::Json => print(&format!("{}\n", served.json()))?,
        Format::Text => print(&served.text())?,
    }
    match &args.run {
        Some(command) => {
            let process = run_command(command, &served.uri_here(1), tell)?;
            wait_for(process, told)
        }
        None => {
            let _asked_to_end = told.recv();
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn target_config(
    args: &ServeArgs,
    catalog: Catalog,
    reservation_store: Option<Arc<dyn ReservationStore>>,
) -> TargetConfig {
    let disks = catalog.subsystems.iter().flat_map(|it| &it.namespaces);
    let most = disks.map(|export| export.device.geometry().max_transfer_bytes);
    let most = most.chain([MAX_TRANSFER_BYTES]).min();
    TargetConfig {
        catalog,
        limits: Limits {
            max_io_queues: 64,
            max_queue_entries: 128,
            max_transfer_bytes: most.unwrap_or(MAX_TRANSFER_BYTES),
        },
        reservation_store,
        counts: args.api.is_some(),
        max_connections: MAX_CONNECTIONS,
        max_strangers: MAX_STRANGERS,
        notify: Box::new(notices::tell),
    }
}

/// Why serving ends.
enum End {
    /// SIGINT or SIGTERM has asked for it.
    Asked(i32),
    /// The command of `--run` has ended.
    Command(std::io::Result<ExitStatus>),
}

/// Waits for the command, and after a signal no longer than connections are waited for.
///
/// A terminal sends SIGINT to the command too, and a second one would end it at once: only SIGTERM
/// is handed on.
fn wait_for(process: u32, told: &Receiver<End>) -> Result<ExitCode, Failure> {
    let mut end = told.recv().ok();
    if let Some(End::Asked(signal)) = end {
        if signal == SIGTERM {
            terminate(process);
        }
        end = told.recv_timeout(DRAIN).ok();
    }
    let Some(End::Command(status)) = end else {
        terminate(process);
        return Err(Failure::io(
            "--run: the command did not end when it was asked to; it was told again and left",
        ));
    };
    status
        .map(exit_code)
        .map_err(|error| Failure::io(format!("--run: the command is lost: {error}")))
}

/// Asks a process to end. A shell knows how: the standard library only kills.
fn terminate(process: u32) {
    let _it_has_ended = Command::new("sh")
        .arg("-c")
        .arg(format!("kill -TERM {process}"))
        .status();
}

/// The exit status of a command as a shell tells it: 128 and more for a signal.
fn exit_code(status: ExitStatus) -> ExitCode {
    let code = status
        .code()
        .or_else(|| status.signal().map(|signal| 128 + signal));
    ExitCode::from(code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1))
}

/// Starts the user's command with `$uri` set; a message says how it ended. Gives its process id.
fn run_command(command: &str, uri: &str, tell: Sender<End>) -> Result<u32, Failure> {
    let mut child = Command::new("sh");
    child.arg("-c").arg(command).env("uri", uri);
    // The command is most often this program again, which may not be on the path.
    if let Some(own) = std::env::current_exe()
        .ok()
        .and_then(|exe| exe.parent().map(ToOwned::to_owned))
    {
        let rest = std::env::var_os("PATH").unwrap_or_default();
        let path = std::env::join_paths(std::iter::once(own).chain(std::env::split_paths(&rest)));
        if let Ok(path) = path {
            child.env("PATH", path);
        }
    }
    let started = child.spawn();
    let mut child =
        started.map_err(|error| Failure::io(format!("--run: cannot start a shell: {error}")))?;
    let process = child.id();
    std::thread::spawn(move || {
        let _serving_has_ended = tell.send(End::Command(child.wait()));
    });
    Ok(process)
}

/// Lets connections finish, for a bounded time.
fn drain(target: &Target) {
    target.drain();
    let until = Instant::now() + DRAIN;
    while target.connections() > 0 && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(5));
    }
    // A host or an initiator cannot hold its connection for so long.
    let left = target.connections();
    if left > 0 {
        say(format_args!(
            "ended although the disk of {left} connection{} does not answer: writes that were not acknowledged may be \
             there or not",
            if left == 1 { "" } else { "s" }
        ));
    }
}
