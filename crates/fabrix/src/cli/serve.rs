//! `fabrix serve`: disks on one side, listeners on the other, until somebody says stop.

use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitCode, ExitStatus};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use fabrix_block::exclusive::Exclusive;
use fabrix_block::filter::read_only::ReadOnly;
use fabrix_block::spec::{Disk, Remote, Size};
use fabrix_block::{Device, Durability, Spec};
use fabrix_target::{Export, SubsystemConfig, Target, TargetConfig};
use serde_json::{Value, json};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use super::terminal::{print, say};
use crate::args::{Format, ServeArgs};
use crate::disks::Opener;
use crate::failure::{Failure, Kind};
use crate::shards::{Shards, raise_open_files};

/// Connections of all hosts together.
const MAX_CONNECTIONS: usize = 16_384;
/// What one command may move; a disk that takes less lowers it.
const MAX_TRANSFER_BYTES: u32 = 1 << 20;
/// How long connections have to finish what they have begun.
const DRAIN: Duration = Duration::from_secs(5);

pub(crate) fn run(args: &ServeArgs) -> Result<ExitCode, Failure> {
    raise_open_files();
    let listen = args
        .listen
        .iter()
        .map(|text| listen_address(text))
        .collect::<Result<Vec<_>, _>>()?;
    let hosts = allowed(&args.allow, &listen)?;
    let devices = open_disks(args)?;
    let (tell, told) = channel();
    stop_signals(tell.clone())?;
    let shards = Shards::start(args.engine.cores.as_ref(), args.engine.engine)?;
    let config = target_config(args, &devices, listen, hosts);
    let target = match Target::start(config, shards.remotes()) {
        Ok(target) => target,
        Err(error) => {
            shards.stop();
            return Err(start_failure(&error));
        }
    };
    let exports = Exports {
        args,
        devices: &devices,
        addresses: target.addresses(),
    };
    exports.print()?;
    let outcome = match &args.run {
        Some(command) => {
            run_command(command, &exports.uri(0), tell).and_then(|process| wait_for(process, &told))
        }
        None => {
            let _asked_to_end = told.recv();
            Ok(ExitCode::SUCCESS)
        }
    };
    drain(&target);
    shards.stop();
    outcome
}

/// Opens the disks and puts in front of each what exporting needs.
fn open_disks(args: &ServeArgs) -> Result<Vec<Arc<dyn Device>>, Failure> {
    let opener = Opener::new(&args.remote, args.engine.engine, &args.nqn)?;
    let mut devices: Vec<Arc<dyn Device>> = Vec::new();
    for (index, text) in args.disks.iter().enumerate() {
        let copy = args.disks[..index]
            .iter()
            .filter(|other| *other == text)
            .count();
        let mut device = opener.open(text, copy)?;
        if args.read_only && !device.geometry().read_only {
            device = ReadOnly::new(device);
        }
        if device.geometry().durability == Durability::None && !is_remote(text) {
            say(format_args!(
                "{text}: what is written there is gone when this process ends"
            ));
        }
        devices.push(Exclusive::wrap(device));
    }
    Ok(devices)
}

fn is_remote(text: &str) -> bool {
    matches!(Spec::parse(text).map(|spec| spec.disk), Ok(Disk::Remote(_)))
}

fn target_config(
    args: &ServeArgs,
    devices: &[Arc<dyn Device>],
    listen: Vec<SocketAddr>,
    hosts: Option<Vec<String>>,
) -> TargetConfig {
    let serial = devices
        .first()
        .map_or_else(String::new, |device| device.identity().serial.clone());
    let smallest = devices
        .iter()
        .map(|device| device.geometry().max_transfer_bytes)
        .min();
    let export = |(device, nsid): (&Arc<dyn Device>, u32)| Export {
        nsid,
        device: Arc::clone(device),
    };
    TargetConfig {
        subsystem: SubsystemConfig {
            nqn: args.nqn.clone(),
            serial,
            model: "Fabrix".to_owned(),
            firmware: env!("CARGO_PKG_VERSION").chars().take(8).collect(),
            hosts,
            max_io_queues: 64,
            max_queue_entries: 128,
            max_transfer_bytes: smallest
                .map_or(MAX_TRANSFER_BYTES, |bytes| bytes.min(MAX_TRANSFER_BYTES)),
        },
        exports: devices.iter().zip(1..).map(export).collect(),
        listen,
        max_connections: MAX_CONNECTIONS,
        notify: Box::new(|notice| say(notice)),
    }
}

/// A listening address, as `nvme+tcp://ADDR[:PORT]`; port 0 lets the system choose.
fn listen_address(text: &str) -> Result<SocketAddr, Failure> {
    let wrong = |why: &str| {
        Failure::usage(format!(
            "--listen {text}: {why}; write nvme+tcp://ADDR[:PORT], like nvme+tcp://0.0.0.0"
        ))
    };
    let place = text
        .strip_prefix("nvme+tcp://")
        .ok_or_else(|| wrong("not an nvme+tcp address"))?;
    let place = place.strip_suffix('/').unwrap_or(place);
    let port = fabrix_host::DEFAULT_PORT;
    if let Ok(ip) = place.trim_matches(['[', ']']).parse::<IpAddr>() {
        return Ok(SocketAddr::new(ip, port));
    }
    let with_port = if place.contains(':') {
        place.to_owned()
    } else {
        format!("{place}:{port}")
    };
    let found = with_port
        .to_socket_addrs()
        .map_err(|error| wrong(&error.to_string()))?
        .next();
    found.ok_or_else(|| wrong("the name has no address"))
}

/// Who may connect: everybody on loopback, on other addresses only who is named.
fn allowed(allow: &[String], listen: &[SocketAddr]) -> Result<Option<Vec<String>>, Failure> {
    if allow.iter().any(|host| host == "any") {
        return Ok(None);
    }
    if !allow.is_empty() {
        return Ok(Some(allow.to_vec()));
    }
    match listen.iter().find(|address| !address.ip().is_loopback()) {
        None => Ok(None),
        Some(open) => Err(Failure::usage(format!(
            "listening on {open} opens the disks to a network: say to whom with --allow HOSTNQN, or --allow any"
        ))),
    }
}

fn start_failure(error: &fabrix_target::StartError) -> Failure {
    let kind = match error {
        fabrix_target::StartError::Config(_) => Kind::Usage,
        fabrix_target::StartError::Listen(..) => Kind::Connect,
        fabrix_target::StartError::Shard => Kind::Io,
    };
    Failure::new(kind, error)
}

/// What is served where, for printing.
struct Exports<'a> {
    args: &'a ServeArgs,
    devices: &'a [Arc<dyn Device>],
    addresses: &'a [SocketAddr],
}

impl Exports<'_> {
    /// The address that others are told: an address that means all is replaced by this machine's loopback.
    fn reachable(&self) -> SocketAddr {
        let discovery = fabrix_target::DISCOVERY_PORT;
        let first = self
            .addresses
            .iter()
            .find(|address| address.port() != discovery);
        let mut address = *first
            .or_else(|| self.addresses.first())
            .expect("a target listens somewhere");
        if address.ip().is_unspecified() {
            let loopback: IpAddr = if address.is_ipv4() {
                [127, 0, 0, 1].into()
            } else {
                std::net::Ipv6Addr::LOCALHOST.into()
            };
            address.set_ip(loopback);
        }
        address
    }

    fn uri(&self, index: usize) -> String {
        let address = self.reachable();
        let remote = Remote {
            scheme: "nvme+tcp".to_owned(),
            host: address.ip().to_string(),
            port: Some(address.port()),
            nqn: Some(self.args.nqn.clone()),
            nsid: u32::try_from(index + 1).ok(),
            options: Vec::new(),
        };
        // The text form of a disk knows which characters of a name must be written otherwise.
        Spec::plain(Disk::Remote(remote)).to_string()
    }

    fn connect_command(&self) -> String {
        let address = self.reachable();
        format!(
            "nvme connect -t tcp -a {} -s {} -n {}",
            address.ip(),
            address.port(),
            self.args.nqn
        )
    }

    fn print(&self) -> Result<(), Failure> {
        match self.args.output {
            Format::Json => print(&format!("{}\n", self.json())),
            Format::Text => print(&self.text()),
        }
    }

    fn text(&self) -> String {
        let mut out = String::new();
        for (index, (device, text)) in self.devices.iter().zip(&self.args.disks).enumerate() {
            let geometry = device.geometry();
            let size = Size(geometry.bytes());
            let read_only = if geometry.read_only {
                ", read-only"
            } else {
                ""
            };
            let uri = self.uri(index);
            out += &format!(
                "{uri}  {text}  {size}, {}-byte blocks{read_only}\n",
                geometry.block_bytes
            );
        }
        out + &format!("  {}\n", self.connect_command())
    }

    fn json(&self) -> Value {
        let export = |(index, (device, text)): (usize, (&Arc<dyn Device>, &String))| {
            let (geometry, identity) = (device.geometry(), device.identity());
            json!({
                "nsid": index + 1,
                "uri": self.uri(index),
                "disk": text,
                "name": identity.name,
                "uuid": identity.uuid_text(),
                "size_bytes": geometry.bytes(),
                "block_bytes": geometry.block_bytes,
                "read_only": geometry.read_only,
                "volatile_cache": geometry.volatile_cache,
                "durable": geometry.durability == Durability::Device,
            })
        };
        let exports: Vec<Value> = self
            .devices
            .iter()
            .zip(&self.args.disks)
            .enumerate()
            .map(export)
            .collect();
        let listen: Vec<String> = self.addresses.iter().map(ToString::to_string).collect();
        json!({
            "schema": 1,
            "nqn": self.args.nqn,
            "listen": listen,
            "nvme_connect": self.connect_command(),
            "exports": exports,
        })
    }
}

/// Why serving ends.
enum End {
    /// SIGINT or SIGTERM has asked for it.
    Asked(i32),
    /// The command of `--run` has ended.
    Command(std::io::Result<ExitStatus>),
}

/// SIGINT and SIGTERM, as a message.
fn stop_signals(tell: Sender<End>) -> Result<(), Failure> {
    let mut signals = Signals::new([SIGINT, SIGTERM])
        .map_err(|error| Failure::io(format!("cannot wait for signals: {error}")))?;
    std::thread::spawn(move || {
        for signal in signals.forever() {
            if tell.send(End::Asked(signal)).is_err() {
                break;
            }
        }
    });
    Ok(())
}

/// Waits for the command, and after a signal no longer than connections are waited for.
///
/// A terminal sends SIGINT to the command too, and a second one would end it at once: only SIGTERM is handed on.
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
}
