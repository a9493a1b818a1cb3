//! `fabrix serve`: exports disks until a signal, or until the command of `--run` ends.

mod gateways;

use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode, ExitStatus};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use fabrix_target::{Catalog, Export, Limits, Listen, ReservationStore, Target, TargetConfig};
use signal_hook::consts::SIGTERM;

use self::gateways::gateways;
use super::terminal::{say, show};
use super::{doctor, notices};
use crate::access::{Allowed, initiators};
use crate::api::{Server, socket_path, target_router};
use crate::args::ServeArgs;
use crate::disks::Opener;
use crate::export_names::ExportNames;
use crate::failure::Failure;
use crate::group::{Group, Wanted};
use crate::log;
use crate::served::{ExportOpener, Served, catalog, check_addresses, failure, listen_address};
use crate::shards::{Shards, raise_open_files};
use crate::signals::end_a_service;
use crate::state::State;

/// Connections of all hosts together.
const MAX_CONNECTIONS: usize = 16_384;
/// Unauthenticated connections of one address: enough for eight hosts with 128 processors each that
/// connect at once.
const MAX_UNAUTHENTICATED: usize = 1024;
/// Largest transfer of one command: 1 MiB, or less if a disk has a smaller limit.
const MAX_TRANSFER_BYTES: u32 = 1 << 20;
/// Longest wait for commands in progress when serving ends.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);

pub(crate) fn run(args: &ServeArgs) -> Result<ExitCode, Failure> {
    // A format from the user applies from the first line on.
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
    let gateways = gateways(args, &listen)?;
    check_options(args, &listen)?;
    warn_of_locked_memory(&listen);
    let allowed = Allowed::new(
        args.allow.iter().chain(&args.initiator),
        args.chap.is_some(),
    )?;
    listen
        .iter()
        .try_for_each(|listen| allowed.check(*listen))?;
    let initiators = initiators(&allowed, args.chap.as_deref(), args.mutual_chap.as_deref())?;
    let names = names(args, &listen);
    let opener = Opener::new(&args.remote, args.engine.engine, &names.scope)?;
    let state = State::open(args.state.as_deref())?;
    let export_opener = ExportOpener::new(opener, args.read_only, state.clone());
    let exports = (1..).zip(&args.disks);
    let exports = exports.map(|(number, text)| export_opener.open(number, text));
    let exports = exports.collect::<Result<Vec<_>, Failure>>()?;
    let group = join(args, &exports, (&listen, &names))?;
    let gateways = match &group {
        Some(group) => group.gateways(gateways.referrals)?,
        None => gateways,
    };
    let (reasons, received) = channel();
    let signals = reasons.clone();
    end_a_service(move |signal| signals.send(EndReason::Signal(signal)).is_ok())?;
    log::begin(args.log_format);
    let shards = Shards::start(&args.engine)?;
    let access = (allowed.hosts(), initiators);
    // The catalog holds the only references to the devices, so a removed disk is closed.
    let mut catalog = catalog(
        (&names.nqn, &names.iqn),
        args.api.is_some(),
        exports,
        access,
        (listen, gateways),
    );
    if let Some(group) = &group {
        group.prepare(&mut catalog, state.as_deref())?;
    }
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
    let outcome = serve_in_group(args, &served, group, (reasons, &received));
    drain(&served.target);
    shards.stop();
    outcome
}

/// The names from the user, or those of the group, or those of this machine.
fn names(args: &ServeArgs, listen: &[Listen]) -> ExportNames {
    let of_group = |kind: &str| {
        let group = args.gateway_group.as_ref()?;
        Some(format!("{kind}.2026-01.io.fabrix:gateways-{group}"))
    };
    let nqn = args.nqn.clone().or_else(|| of_group("nqn"));
    let iqn = args.iqn.clone().or_else(|| of_group("iqn"));
    ExportNames::new(nqn.as_deref(), iqn.as_deref(), listen)
}

/// Joins the gateway group, if the user names one.
fn join(
    args: &ServeArgs,
    exports: &[Export],
    (listen, names): (&[Listen], &ExportNames),
) -> Result<Option<Group>, Failure> {
    let wanted = args.gateway_group.as_ref().map(|group| Wanted {
        group,
        disks: &args.disks,
        exports,
        listen,
        names,
    });
    wanted.map(|wanted| Group::join(&wanted)).transpose()
}

/// Serves as a member of the group, if there is one, and leaves it in the end.
fn serve_in_group(
    args: &ServeArgs,
    served: &Arc<Served>,
    group: Option<Group>,
    (reasons, received): (Sender<EndReason>, &Receiver<EndReason>),
) -> Result<ExitCode, Failure> {
    served.follow_sizes()?;
    let member = group.map(|group| group.start(served)).transpose()?;
    let outcome = serve(args, served, reasons, received);
    if let Some(member) = member {
        member.leave();
    }
    outcome
}

/// Refuses options for access over a protocol that is not served. Through `--api` an address may be
/// added later. Names (`--nqn`, `--iqn`) are only names, and scripts give both.
fn check_options(args: &ServeArgs, listen: &[Listen]) -> Result<(), Failure> {
    if let Some(api) = &args.api {
        return socket_path(api).map(drop);
    }
    if listen.iter().any(|listen| !listen.protocol.is_nvme()) {
        return Ok(());
    }
    let options = [
        ("--chap", args.chap.is_some()),
        ("--initiator", !args.initiator.is_empty()),
    ];
    let without = options.iter().find(|(_, given)| *given);
    without.map_or(Ok(()), |(option, _)| {
        Err(Failure::usage(format!(
            "{option} is for iSCSI, which is not served: add --listen iscsi://ADDR, or leave it out"
        )))
    })
}

/// Says before any memory is locked for RDMA that little may be.
fn warn_of_locked_memory(listen: &[Listen]) {
    let has_rdma = listen.iter().any(|it| it.protocol.is_rdma());
    if has_rdma && let Some(warning) = doctor::little_locked_memory() {
        say(format_args!("warning: {warning}"));
    }
}

/// Prints the exports and waits for a reason to end.
fn serve(
    args: &ServeArgs,
    served: &Arc<Served>,
    reasons: Sender<EndReason>,
    received: &Receiver<EndReason>,
) -> Result<ExitCode, Failure> {
    let path = args.api.as_deref().map(socket_path).transpose()?;
    let start = |path: PathBuf| Server::start(&path, target_router(Arc::clone(served)));
    let _until_the_end = path.map(start).transpose()?;
    show(args.output, || served.text(), || served.json())?;
    match &args.run {
        Some(command) => {
            let process = run_command(command, &served.local_uri(1), reasons)?;
            wait_for(process, received)
        }
        None => {
            let _signal = received.recv();
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
    let limits = disks.map(|export| export.device.geometry().max_transfer_bytes);
    let smallest = limits.chain([MAX_TRANSFER_BYTES]).min();
    TargetConfig {
        catalog,
        limits: Limits {
            max_io_queues: 64,
            max_queue_entries: 128,
            max_transfer_bytes: smallest.unwrap_or(MAX_TRANSFER_BYTES),
        },
        reservation_store,
        counts: args.api.is_some(),
        max_connections: MAX_CONNECTIONS,
        max_unauthenticated: MAX_UNAUTHENTICATED,
        notify: Box::new(notices::log_notice),
    }
}

/// The reason why serving ends.
enum EndReason {
    /// SIGINT or SIGTERM.
    Signal(i32),
    /// The command of `--run` has ended.
    Command(std::io::Result<ExitStatus>),
}

/// Waits for the command of `--run`. After a signal, waits [`DRAIN_TIMEOUT`] at most.
///
/// Forwards SIGTERM to the command. SIGINT is not forwarded: the terminal sends it to the command
/// too, and a second one would end it at once.
fn wait_for(process: u32, received: &Receiver<EndReason>) -> Result<ExitCode, Failure> {
    let mut reason = received.recv().ok();
    if let Some(EndReason::Signal(signal)) = reason {
        if signal == SIGTERM {
            terminate(process);
        }
        reason = received.recv_timeout(DRAIN_TIMEOUT).ok();
    }
    let Some(EndReason::Command(status)) = reason else {
        terminate(process);
        return Err(Failure::io(format!(
            "--run: the command has not ended; SIGTERM was sent to process {process}, which may still run"
        )));
    };
    status
        .map(exit_code)
        .map_err(|error| Failure::io(format!("--run: waiting for the command failed: {error}")))
}

/// Sends SIGTERM to a process, by a shell: the standard library sends only SIGKILL.
fn terminate(process: u32) {
    let _already_ended = Command::new("sh")
        .arg("-c")
        .arg(format!("kill -TERM {process}"))
        .status();
}

/// The exit status of a command, as a shell reports it: 128 plus the number of a signal.
fn exit_code(status: ExitStatus) -> ExitCode {
    let code = status
        .code()
        .or_else(|| status.signal().map(|signal| 128 + signal));
    ExitCode::from(code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1))
}

/// Starts the user's command with `$uri` set and returns its process id. Sends its exit status to
/// `reasons`.
fn run_command(command: &str, uri: &str, reasons: Sender<EndReason>) -> Result<u32, Failure> {
    let mut child = Command::new("sh");
    child.arg("-c").arg(command).env("uri", uri);
    // The command usually calls this program, whose folder may not be in PATH.
    if let Some(own) = std::env::current_exe()
        .ok()
        .and_then(|exe| exe.parent().map(ToOwned::to_owned))
    {
        let inherited = std::env::var_os("PATH").unwrap_or_default();
        let inherited = std::env::split_paths(&inherited);
        let path = std::env::join_paths(std::iter::once(own).chain(inherited));
        if let Ok(path) = path {
            child.env("PATH", path);
        }
    }
    let started = child.spawn();
    let mut child =
        started.map_err(|error| Failure::io(format!("--run: cannot start a shell: {error}")))?;
    let process = child.id();
    std::thread::spawn(move || {
        let _serving_has_ended = reasons.send(EndReason::Command(child.wait()));
    });
    Ok(process)
}

/// Waits until all connections have ended, for [`DRAIN_TIMEOUT`] at most.
fn drain(target: &Target) {
    target.drain();
    let until = Instant::now() + DRAIN_TIMEOUT;
    while target.connections() > 0 && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(5));
    }
    // A host or initiator cannot keep its connection open for so long. Only a disk can.
    let left = target.connections();
    if left > 0 {
        say(format_args!(
            "ended although the disk of {left} connection{} does not answer: writes that were not acknowledged may or \
             may not be stored",
            if left == 1 { "" } else { "s" }
        ));
    }
}
