//! The words of the command line, as people who know nvme-cli, fio and nbdkit expect them.
//!
//! Knows clap and nothing of what the words do: values come out as plain types, checked where one word is enough
//! to see that it is wrong.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};

use crate::cli::bench::args::{BenchArgs, ours_first};

use fabrix_block::spec::parse_size;
use fabrix_rt::SpinPolicy;
use fabrix_rt::engine::Engine;

/// Networked block storage in user space: serve disks, reach them, measure the whole path.
#[derive(Parser)]
#[command(name = "fabrix", version, max_term_width = 100, after_help = AFTER_HELP)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) verb: Verb,
}

impl Arguments {
    /// Those of this process; wrong ones, and questions, end it.
    pub(crate) fn read() -> Self {
        let words = Self::words();
        let given = ours_first(&words, std::env::args_os().collect());
        Self::from_matches(&words.get_matches_from(given))
    }

    /// All words. `-l` is `--ctrl-loss-tmo` to who knows `nvme connect`, and `--listen` to who serves.
    pub(crate) fn words() -> clap::Command {
        Self::command().mut_subcommand("attach", |attach| {
            attach.mut_arg("ctrl_loss_tmo", |loss| loss.short('l'))
        })
    }

    /// What was found among [`words`](Self::words).
    pub(crate) fn from_matches(matches: &clap::ArgMatches) -> Self {
        Self::from_arg_matches(matches).unwrap_or_else(|error| error.exit())
    }
}

/// What the program does.
#[derive(Subcommand)]
pub(crate) enum Verb {
    /// Export disks over NVMe/TCP and iSCSI until interrupted
    Serve(Box<ServeArgs>),
    /// Make a disk, local or remote, a disk of this machine
    Attach(Box<AttachArgs>),
    /// The process that keeps a disk attached: `attach` in words that come by standard input
    #[command(hide = true)]
    Hold,
    /// Take an attached disk away
    Detach(DetachArgs),
    /// Say what is attached
    #[command(alias = "ls")]
    List(ListArgs),
    /// Show what attached disks and exports do, again and again
    Top(TopArgs),
    /// Take over the size that an attached disk has now
    Resize(ResizeArgs),
    /// `discover`, in the words of StarNVMeoF_Ctrl
    #[command(hide = true)]
    Discovery(DiscoveryArgs),
    /// `attach`, in the words of StarNVMeoF_Ctrl
    #[command(hide = true)]
    Insert(InsertArgs),
    /// `detach`, in the words of StarNVMeoF_Ctrl
    #[command(hide = true)]
    Remove(RemoveArgs),
    /// Change what a running `serve --api` serves, while hosts are connected
    Ctl(CtlArgs),
    /// Ask a target which subsystems it offers
    Discover(DiscoverArgs),
    /// Measure a disk, local or remote, in fio's words
    Bench(Box<BenchArgs>),
    /// Serve a RAM disk, measure it locally and over NVMe/TCP, and write a report
    Demo(DemoArgs),
    /// Say what this machine can do, and what to change where it cannot
    Doctor(DoctorArgs),
}

/// How results are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For people.
    Text,
    /// For programs: stable keys, bytes and nanoseconds as integers.
    Json,
}

/// Arguments of `serve`.
#[derive(Args)]
#[command(after_help = DISKS_HELP)]
pub(crate) struct ServeArgs {
    /// Disks to export, as URIs; they become namespaces 1, 2, 3, ...
    #[arg(required = true, value_name = "DISK")]
    pub(crate) disks: Vec<String>,
    /// Where to listen, for nvme+tcp:// or iscsi://; may be repeated. NVMe's port 8009 answers discovery only
    #[arg(
        short,
        long,
        value_name = "PROTOCOL://ADDR[:PORT]",
        default_value = "nvme+tcp://127.0.0.1:4420"
    )]
    pub(crate) listen: Vec<String>,
    /// The subsystem's NQN
    #[arg(
        short = 'n',
        long,
        value_name = "NQN",
        default_value = "nqn.2026-01.io.fabrix:disks"
    )]
    pub(crate) nqn: String,
    /// The iSCSI target's name, where `--listen` has an iscsi:// address
    #[arg(
        long,
        value_name = "IQN",
        default_value = "iqn.2026-01.io.fabrix:disks",
        value_parser = parse_iqn
    )]
    pub(crate) iqn: String,
    /// Host NQN or iSCSI initiator that may connect, or `any`; may be repeated. Needed on any address but loopback
    #[arg(long, value_name = "HOSTNQN|IQN")]
    pub(crate) allow: Vec<String>,
    /// iSCSI initiator that may log in; may be repeated. The same as --allow IQN
    #[arg(long, value_name = "IQN", value_parser = parse_iqn)]
    pub(crate) initiator: Vec<String>,
    /// What initiators prove with CHAP, 12 bytes of secret at least. Others see a command line: @FILE reads it from a
    /// file that only you may read
    #[arg(long, value_name = "USER%SECRET|@FILE")]
    pub(crate) chap: Option<String>,
    /// What is proved to initiators that ask; another secret
    #[arg(long, value_name = "USER%SECRET|@FILE", requires = "chap")]
    pub(crate) mutual_chap: Option<String>,
    /// Refuse every write
    #[arg(short, long)]
    pub(crate) read_only: bool,
    #[command(flatten)]
    pub(crate) engine: EngineArgs,
    #[command(flatten)]
    pub(crate) remote: RemoteArgs,
    /// Answer `fabrix ctl` on this socket, which only you may open
    #[arg(long, value_name = "unix:PATH")]
    pub(crate) api: Option<String>,
    /// Where reservations are stored that outlive this process, for all disks [default: for local files and block
    /// devices $XDG_STATE_HOME/fabrix, for root /var/lib/fabrix, else ~/.local/state/fabrix; for others nowhere]
    #[arg(long, value_name = "DIR")]
    pub(crate) state: Option<PathBuf>,
    /// Run a shell command with $uri set to the first disk, and end with its exit status
    #[arg(long, value_name = "CMD")]
    pub(crate) run: Option<String>,
    /// How to print the exports
    #[arg(short, long, value_enum, default_value = "text")]
    pub(crate) output: Format,
}

/// Which processors and which kernel interface the data path uses.
#[derive(Args, Clone)]
pub(crate) struct EngineArgs {
    /// Processors to use, one loop each, like 0,2-3
    #[arg(long, value_name = "LIST", value_parser = parse_cores)]
    pub(crate) cores: Option<Cores>,
    /// How to talk to the kernel
    #[arg(long, value_parser = parse_engine, default_value = "auto", value_name = "auto|io-uring|epoll")]
    pub(crate) engine: Engine,
    /// Whether a loop looks for the next event before it sleeps. auto: up to 50 us while events follow each other
    /// closely, so an idle loop costs nothing and a busy one answers at once. never: least energy, and some 10 us
    /// more per request at depth 1. always: no wake-up is ever waited for, and each loop takes a whole processor
    #[arg(long, value_parser = parse_spin, default_value = "auto", value_name = "auto|never|always")]
    pub(crate) spin: SpinPolicy,
}

/// How remote disks are reached: the words of `nvme connect`.
#[derive(Args, Clone)]
pub(crate) struct RemoteArgs {
    /// CRC32C over every header
    #[arg(short = 'g', long)]
    pub(crate) hdr_digest: bool,
    /// CRC32C over all data
    #[arg(short = 'G', long)]
    pub(crate) data_digest: bool,
    /// I/O queues of a connection
    #[arg(short = 'i', long, value_name = "N", default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=64))]
    pub(crate) nr_io_queues: u16,
    /// Entries per I/O queue
    #[arg(short = 'Q', long, value_name = "N", default_value_t = 128)]
    #[arg(value_parser = clap::value_parser!(u16).range(2..=1024))]
    pub(crate) queue_size: u16,
    /// This host's NQN
    #[arg(short = 'q', long, value_name = "HOSTNQN")]
    pub(crate) hostnqn: Option<String>,
    /// This host's id, a UUID [default: /etc/nvme/hostid, or one made from the machine's id]
    #[arg(short = 'I', long, value_name = "UUID", value_parser = parse_uuid)]
    pub(crate) hostid: Option<HostId>,
    /// Address of this machine that connections come from
    #[arg(short = 'w', long, value_name = "ADDR")]
    pub(crate) host_traddr: Option<IpAddr>,
    /// This machine's name to iSCSI targets
    #[arg(long, value_name = "IQN")]
    pub(crate) initiator_name: Option<String>,
    /// How long either side may be silent; 0: nobody asks. In iSCSI our pings
    #[arg(short = 'k', long, value_name = "TIME", default_value = "5s", value_parser = parse_time)]
    pub(crate) keep_alive_tmo: Duration,
    /// Pause between tries to connect again [default: the first at once, then 50 ms, doubling up to 5 s]
    #[arg(short = 'c', long, value_name = "TIME", value_parser = parse_time)]
    pub(crate) reconnect_delay: Option<Duration>,
    /// Give up after this long without a connection, everything fails from then on; -1: never. For `attach` also -l
    #[arg(long, value_name = "TIME", default_value = "-1", value_parser = parse_loss)]
    #[arg(allow_negative_numbers = true)]
    pub(crate) ctrl_loss_tmo: Loss,
    /// Fail I/O after this long without a connection; reconnecting goes on
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = parse_time)]
    pub(crate) fast_io_fail_tmo: Duration,
}

/// The id of this host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HostId(pub(crate) [u8; 16]);

/// How long a controller is sought that is lost; None: for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Loss(pub(crate) Option<Duration>);

impl Default for RemoteArgs {
    /// What the command line says if nothing is written.
    fn default() -> Self {
        Self {
            hdr_digest: false,
            data_digest: false,
            nr_io_queues: 1,
            queue_size: 128,
            hostnqn: None,
            hostid: None,
            host_traddr: None,
            initiator_name: None,
            keep_alive_tmo: Duration::from_secs(5),
            reconnect_delay: None,
            ctrl_loss_tmo: Loss(None),
            fast_io_fail_tmo: Duration::from_secs(60),
        }
    }
}

/// What an attached disk looks like.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum FrontEnd {
    /// The first that this machine and this user can have: ublk, nbd, fuse, file, nbd-socket.
    Auto,
    /// A block device, /dev/ublkbN; needs root and a kernel with ublk.
    Ublk,
    /// A block device, /dev/nbdN, of the kernel's NBD client; needs root.
    Nbd,
    /// A block device, /dev/loopN, over FUSE; needs root.
    Fuse,
    /// A regular file, over FUSE.
    File,
    /// A Unix socket that speaks NBD.
    NbdSocket,
    /// A Unix socket that speaks vhost-user-blk, for virtual machines.
    VhostUser,
    /// The block device of the kernel's own NVMe/TCP host; needs root.
    Kernel,
}

/// Arguments of `attach`.
#[derive(Args)]
#[command(after_help = format!("{ATTACHED_HELP}\n\n{DISKS_HELP}"))]
pub(crate) struct AttachArgs {
    /// The disk, as a URI
    #[arg(value_name = "URI", default_value = "", hide_default_value = true)]
    #[arg(required_unless_present_any = ["declared", "unit"])]
    pub(crate) uri: String,
    /// What it is to look like: a block device (root) by ublk, by the kernel's NBD client or over FUSE, a file over
    /// FUSE, a Unix socket for programs that speak NBD, or one for virtual machines; kernel: hand it to the kernel's
    /// NVMe/TCP host, as `nvme connect` does (root)
    #[arg(
        long = "as",
        value_enum,
        default_value = "auto",
        hide_possible_values = true
    )]
    #[arg(value_name = "auto|ublk|nbd|fuse|file|nbd-socket|vhost-user|kernel")]
    pub(crate) front_end: FrontEnd,
    /// What to call it, for `detach` and `list`
    #[arg(long, value_name = "NAME", value_parser = parse_name)]
    pub(crate) name: Option<String>,
    /// Where the socket is to be, of `--as nbd-socket` or `--as vhost-user`
    #[arg(long, value_name = "PATH")]
    pub(crate) socket: Option<std::path::PathBuf>,
    /// Refuse every write
    #[arg(short, long)]
    pub(crate) read_only: bool,
    /// Attach it at every start too: writes NAME.toml to /etc/fabrix/attach.d
    #[arg(long)]
    pub(crate) persist: bool,
    /// Attach every disk that --persist has declared and that is not attached, or the one called --name
    #[arg(long, visible_alias = "all", conflicts_with_all = ["uri", "persist", "foreground"])]
    pub(crate) declared: bool,
    /// Print the systemd unit that attaches a declared disk at every start
    #[arg(long, conflicts_with_all = ["uri", "persist", "declared"])]
    pub(crate) unit: bool,
    /// Wait until the target can be reached
    #[arg(long)]
    pub(crate) wait: bool,
    /// Succeed if the same disk is attached already
    #[arg(long)]
    pub(crate) idempotent: bool,
    /// Write the device's path to this file
    #[arg(long, value_name = "FILE")]
    pub(crate) devid_file: Option<std::path::PathBuf>,
    /// Stay in the foreground until the disk is detached
    #[arg(long)]
    pub(crate) foreground: bool,
    #[command(flatten)]
    pub(crate) remote: RemoteArgs,
    #[command(flatten)]
    pub(crate) engine: EngineArgs,
    /// How to print what is attached then
    #[arg(short, long, value_enum, default_value = "text")]
    pub(crate) output: Format,
}

/// Arguments of `detach`.
#[derive(Args)]
pub(crate) struct DetachArgs {
    /// Which: a device or file, a name, a number, or `all`
    #[arg(value_name = "DEV|NAME|all")]
    pub(crate) which: String,
    /// Even if it is in use, or its target is gone: what is in progress fails
    #[arg(long)]
    pub(crate) force: bool,
    /// Do not attach it at the next start either: takes back --persist
    #[arg(long)]
    pub(crate) forget: bool,
}

/// Arguments of `list`.
#[derive(Args)]
pub(crate) struct ListArgs {
    /// How to print it
    #[arg(short, long, value_enum, default_value = "text")]
    pub(crate) output: Format,
}

/// Arguments of `top`.
#[derive(Args)]
pub(crate) struct TopArgs {
    /// Show the exports of the `serve` that answers there too; may be repeated
    #[arg(long, value_name = "unix:PATH")]
    pub(crate) api: Vec<String>,
    /// How long to count
    #[arg(short, long, value_name = "TIME", default_value = "1s", value_parser = parse_interval)]
    pub(crate) interval: Duration,
    /// End after so many tables [default: at q or Ctrl-C]
    #[arg(short = 'n', long, value_name = "N")]
    pub(crate) count: Option<u64>,
    /// How to print it; json: one line each time
    #[arg(short, long, value_enum, default_value = "text")]
    pub(crate) output: Format,
}

/// Arguments of `resize`.
#[derive(Args)]
pub(crate) struct ResizeArgs {
    /// Which: a device or file, a name, or a number
    #[arg(value_name = "DEV|NAME")]
    pub(crate) which: String,
}

/// Arguments of `discovery`.
#[derive(Args)]
pub(crate) struct DiscoveryArgs {
    /// Address of the target
    pub(crate) target_ip: String,
    /// Address of this machine
    pub(crate) local_ip: IpAddr,
}

/// Arguments of `insert`.
#[derive(Args)]
pub(crate) struct InsertArgs {
    /// Address of the target, with or without a port
    #[arg(value_name = "target_ip[:port]")]
    pub(crate) target: String,
    /// Address of this machine
    pub(crate) local_ip: IpAddr,
    /// The subsystem
    #[arg(value_name = "SubNQN")]
    pub(crate) subsystem: String,
    /// This host
    #[arg(value_name = "HostNQN")]
    pub(crate) host: String,
    /// I/O queues
    #[arg(value_parser = clap::value_parser!(u16).range(1..=64))]
    pub(crate) num_io_queues: Option<u16>,
    /// Entries of each
    #[arg(value_parser = clap::value_parser!(u16).range(2..=1024))]
    pub(crate) io_queue_depth: Option<u16>,
}

/// Arguments of `remove`.
#[derive(Args)]
pub(crate) struct RemoveArgs {
    /// The number that `list` shows
    #[arg(value_name = "targetId")]
    pub(crate) target: u32,
}

/// Arguments of `ctl`.
#[derive(Args)]
pub(crate) struct CtlArgs {
    /// The socket of the `serve` that is meant
    #[arg(
        long,
        env = "FABRIX_API",
        value_name = "unix:PATH",
        global = true,
        default_value = "unix:fabrix.sock"
    )]
    pub(crate) api: String,
    #[command(subcommand)]
    pub(crate) verb: CtlVerb,
    /// How to print what is served then
    #[arg(short, long, value_enum, default_value = "text", global = true)]
    pub(crate) output: Format,
}

/// What `ctl` does. Each prints what is served then.
#[derive(Subcommand)]
pub(crate) enum CtlVerb {
    /// Say what is served, where, and to whom
    Show,
    /// Add, remove or resize a disk; connected hosts see it at once
    #[command(subcommand)]
    Namespace(NamespaceVerb),
    /// Listen at one more address, or at one less
    #[command(subcommand)]
    Listener(ListenerVerb),
    /// Say who may connect from now on; connected hosts that may no more have to go
    Allow {
        /// Host NQNs, names of iSCSI initiators, or `any`, which speaks for those of which no name is said
        #[arg(required = true, value_name = "HOSTNQN|IQN")]
        hosts: Vec<String>,
    },
}

/// What `ctl namespace` does.
#[derive(Subcommand)]
pub(crate) enum NamespaceVerb {
    /// Export one more disk
    Add {
        /// The disk, as a URI
        #[arg(value_name = "DISK")]
        disk: String,
        /// Its namespace id; the lowest that is free if left out
        #[arg(long, value_name = "NSID")]
        nsid: Option<u32>,
    },
    /// Export a disk no more
    Remove {
        /// Its namespace id
        #[arg(value_name = "NSID")]
        nsid: u32,
    },
    /// Make a file so large, or see how large a file or block device has become
    Resize {
        /// Its namespace id
        #[arg(value_name = "NSID")]
        nsid: u32,
        /// The new size; left out: the size that it has now
        #[arg(value_parser = parse_bytes, value_name = "SIZE")]
        size: Option<u64>,
    },
}

/// What `ctl listener` does.
#[derive(Subcommand)]
pub(crate) enum ListenerVerb {
    /// Listen there too
    Add {
        /// The address: nvme+tcp://ADDR[:PORT]
        #[arg(value_name = "URI")]
        uri: String,
    },
    /// Listen there no more; connections stay
    Remove {
        /// The address: nvme+tcp://ADDR[:PORT]
        #[arg(value_name = "URI")]
        uri: String,
    },
}

/// Arguments of `discover`.
#[derive(Args)]
pub(crate) struct DiscoverArgs {
    /// The target: nvme+tcp://ADDR[:PORT] or iscsi://ADDR[:PORT]
    #[arg(value_name = "URI")]
    pub(crate) uri: String,
    /// This host's NQN
    #[arg(short = 'q', long, value_name = "HOSTNQN")]
    pub(crate) hostnqn: Option<String>,
    /// Address of this machine that connections come from
    #[arg(short = 'w', long, value_name = "ADDR")]
    pub(crate) host_traddr: Option<IpAddr>,
    /// This machine's name to iSCSI targets
    #[arg(long, value_name = "IQN")]
    pub(crate) initiator_name: Option<String>,
    /// How to print the log
    #[arg(short, long, value_enum, default_value = "text")]
    pub(crate) output: Format,
}

/// Arguments of `demo`.
#[derive(Args)]
pub(crate) struct DemoArgs {
    /// A second for each measurement, and less: under 20 s in all
    #[arg(long)]
    pub(crate) quick: bool,
    /// Where to write index.html, results.json and results.csv
    #[arg(long, default_value = "fabrix-report", value_name = "DIR")]
    pub(crate) report: std::path::PathBuf,
    /// Size of the RAM disk
    #[arg(long, default_value = "1G", value_parser = parse_bytes, value_name = "SIZE")]
    pub(crate) size: u64,
    /// How to talk to the kernel
    #[arg(long, value_parser = parse_engine, default_value = "auto", value_name = "auto|io-uring|epoll")]
    pub(crate) engine: Engine,
    /// How to print the table
    #[arg(short, long, value_enum, default_value = "text")]
    pub(crate) output: Format,
}

/// Arguments of `doctor`.
#[derive(Args)]
pub(crate) struct DoctorArgs {
    /// How to print the findings
    #[arg(short, long, value_enum, default_value = "text")]
    pub(crate) output: Format,
}

/// A list of processors, as given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cores(pub(crate) Vec<usize>);

/// An iSCSI name, in lower case, as initiators compare it.
fn parse_iqn(text: &str) -> Result<String, String> {
    let name = text.to_ascii_lowercase();
    let known = ["iqn.", "eui.", "naa."]
        .iter()
        .any(|prefix| name.starts_with(prefix));
    let printable = name
        .bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || b"-.:".contains(&byte));
    if known && printable && name.len() <= 223 {
        return Ok(name);
    }
    Err(
        "an iSCSI name is like iqn.2026-01.com.example:disks: letters, digits, `-`, `.` and `:`"
            .to_owned(),
    )
}

/// Counting takes time.
fn parse_interval(text: &str) -> Result<Duration, String> {
    match parse_time(text)? {
        time if time < Duration::from_millis(10) => Err("10ms at least".to_owned()),
        time => Ok(time),
    }
}

/// A UUID, with or without its hyphens.
pub(crate) fn parse_uuid(text: &str) -> Result<HostId, String> {
    let wrong = || format!("`{text}` is not a UUID");
    let digits: String = text.chars().filter(|sign| *sign != '-').collect();
    if digits.len() != 32 || !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err(wrong());
    }
    let number = u128::from_str_radix(&digits, 16).map_err(|_| wrong())?;
    Ok(HostId(number.to_be_bytes()))
}

/// A time, or -1 for ever, as `nvme connect` has it.
fn parse_loss(text: &str) -> Result<Loss, String> {
    match text {
        "-1" => Ok(Loss(None)),
        _ => parse_time(text).map(|time| Loss(Some(time))),
    }
}

/// Names become names of files.
pub(crate) fn parse_name(text: &str) -> Result<String, String> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let begins = text
        .bytes()
        .next()
        .is_some_and(|byte| byte.is_ascii_alphabetic());
    if begins && text.len() <= 32 && text.bytes().all(plain) && text != "all" {
        return Ok(text.to_owned());
    }
    Err(
        "a name begins with a letter and has up to 32 letters, digits, `-`, `_` and `.`; `all` means all"
            .to_owned(),
    )
}

pub(crate) fn parse_cores(text: &str) -> Result<Cores, String> {
    let allowed = fabrix_rt::topology::cpus();
    let number = |part: &str| match part.parse::<usize>() {
        Ok(core) if allowed.contains(&core) => Ok(core),
        Ok(core) => Err(format!(
            "processor {core} is not one this process may use: {allowed:?}"
        )),
        Err(_) => Err(format!(
            "`{part}` is not a processor; write a list like 0,2-3"
        )),
    };
    let mut cores = Vec::new();
    for part in text.split(',') {
        match part.split_once('-') {
            Some((first, last)) => cores.extend(number(first)?..=number(last)?),
            None => cores.push(number(part)?),
        }
    }
    if cores.is_empty() {
        return Err(format!(
            "`{text}` names no processor; write a list like 0,2-3"
        ));
    }
    Ok(Cores(cores))
}

pub(crate) fn parse_engine(text: &str) -> Result<Engine, String> {
    match text {
        "auto" => Ok(Engine::Auto),
        "io-uring" | "io_uring" => Ok(Engine::IoUring),
        "epoll" => Ok(Engine::Epoll),
        other => Err(format!(
            "`{other}` is not an engine; write auto, io-uring or epoll"
        )),
    }
}

fn parse_spin(text: &str) -> Result<SpinPolicy, String> {
    match text {
        "auto" => Ok(SpinPolicy::default()),
        "never" => Ok(SpinPolicy::Never),
        "always" => Ok(SpinPolicy::Always),
        other => Err(format!("`{other}`: write auto, never or always")),
    }
}

pub(crate) fn parse_bytes(text: &str) -> Result<u64, String> {
    parse_size(text).map_err(|error| error.to_string())
}

/// Times as fio has them: a plain number counts seconds, units are us, ms, s, m, h; a point is allowed.
pub(crate) fn parse_time(text: &str) -> Result<Duration, String> {
    let digits = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let wrong = || format!("`{text}` is not a time; write 10, 0.5, 500ms, 30s, 5m or 1h");
    let seconds = match &text[digits..] {
        "us" => 1e-6,
        "ms" => 1e-3,
        "" | "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        _ => return Err(wrong()),
    };
    let number: f64 = text[..digits].parse().map_err(|_| wrong())?;
    // Rounded to microseconds: 0.1 s is 100 ms, and not a little more.
    let time = Duration::try_from_secs_f64(number * seconds).map_err(|_| wrong())?;
    Ok(Duration::from_micros(
        u64::try_from((time + Duration::from_nanos(500)).as_micros()).map_err(|_| wrong())?,
    ))
}

const AFTER_HELP: &str = "\
Start here:
  fabrix demo                                   what this machine does, as a report
  fabrix serve ram:1G --run 'fabrix bench $uri' serve and measure in one line
  fabrix doctor                                 what would make it faster";

const ATTACHED_HELP: &str = "\
It prints what can be opened from now on, and a process of its own keeps it:
  fabrix list; fabrix top         what is attached, and what it does
  mkfs.ext4 /dev/loop0 && mount /dev/loop0 /mnt
  umount /mnt && fabrix detach NAME|/dev/loop0
  fabrix detach NAME --force      at once, also when its target is gone: what is in progress fails
As root the first choice is a block device, else a file, else a socket: `fabrix doctor` says what this machine has.";

pub(crate) const DISKS_HELP: &str = "\
Disks:
  ram:1G                          memory
  null:1T                         reads zeroes, forgets writes
  /path or file:PATH,size=1G      a file (made if size= is given) or a block device; direct=off for buffered
  raid0:chunk=256k,(A,B,...)      a stripe of any disks
  nvme+tcp://HOST[:4420][/NQN[/NSID]]  a remote disk
  iscsi://[USER%SECRET@]HOST[:3260][/IQN[/LUN]]  another one; target_user= and target_password= for mutual CHAP
  Options after a comma: name=..., block=512|4096, physical=512|4096, ro, inject=delay:5ms,
  inject=error:0.1%. block is the unit of every address; physical what hosts are told to align to (4096)
Sizes count in 1024: 4k, 1M, 1G.";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        use clap::CommandFactory;
        Arguments::command().debug_assert();
    }

    #[test]
    fn times_count_seconds_unless_they_say_otherwise() {
        assert_eq!(parse_time("10"), Ok(Duration::from_secs(10)));
        assert_eq!(parse_time("250ms"), Ok(Duration::from_millis(250)));
        assert_eq!(parse_time("5m"), Ok(Duration::from_secs(300)));
        assert_eq!(parse_time("0.5"), Ok(Duration::from_millis(500)));
        assert_eq!(parse_time("0.1ms"), Ok(Duration::from_micros(100)));
        assert!(parse_time("1.2.3").is_err() && parse_time(".").is_err());
        assert!(
            parse_time(&"9".repeat(400)).is_err(),
            "more than can be counted"
        );
        assert!(
            parse_time("5 days")
                .unwrap_err()
                .contains("write 10, 0.5, 500ms")
        );
        assert!(parse_time("").is_err());
    }

    #[test]
    fn whether_to_spin_is_one_of_three_words() {
        assert_eq!(parse_spin("never"), Ok(SpinPolicy::Never));
        assert_eq!(parse_spin("always"), Ok(SpinPolicy::Always));
        assert_eq!(parse_spin("auto"), Ok(SpinPolicy::default()));
        assert!(
            parse_spin("10us")
                .unwrap_err()
                .contains("auto, never or always")
        );
    }

    #[test]
    fn a_list_of_processors_names_each() {
        assert!(
            parse_cores("x")
                .unwrap_err()
                .contains("`x` is not a processor")
        );
        assert!(
            parse_cores("100000")
                .unwrap_err()
                .contains("not one this process may use")
        );
    }
}
