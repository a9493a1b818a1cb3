//! Arguments for attached disks: `attach`, `detach`, `list`, `top`, `resize`, and the equivalents
//! of StarNVMeoF_Ctrl.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};

use super::path::{EngineArgs, RemoteArgs};
use super::values::{DISKS_HELP, Format, parse_interval, parse_name};
use crate::log::LogFormat;

/// The interface by which an attached disk becomes a device, file or socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum FrontEnd {
    /// The first one that is available to this user on this machine: ublk, nbd, fuse, file,
    /// nbd-socket.
    Auto,
    /// A block device, /dev/ublkbN; needs root and a kernel with ublk.
    Ublk,
    /// A block device, /dev/nbdN, of the kernel's NBD client; needs root.
    Nbd,
    /// A block device, /dev/loopN, over FUSE; needs root.
    Fuse,
    /// A regular file, over FUSE.
    File,
    /// A socket that speaks NBD, a Unix socket or one of TCP.
    NbdSocket,
    /// A Unix socket that speaks vhost-user-blk, for virtual machines.
    VhostUser,
    /// The block device of the kernel's own NVMe/TCP host; needs root.
    Kernel,
}

impl FrontEnd {
    /// Its word on the command line and in records.
    pub(crate) fn word(self) -> String {
        let value = self.to_possible_value();
        value.map_or_else(String::new, |value| value.get_name().to_owned())
    }
}

/// Arguments of `attach`.
#[derive(Args)]
#[command(after_help = format!("{ATTACHED_HELP}\n\n{DISKS_HELP}"))]
pub(crate) struct AttachArgs {
    /// The disk, as a URI
    #[arg(value_name = "URI", default_value = "", hide_default_value = true)]
    #[arg(required_unless_present_any = ["declared", "unit"])]
    pub(crate) uri: String,
    /// How to attach it. A block device (root): ublk, nbd for the kernel's NBD client, fuse for a
    /// loop device over FUSE, kernel for the kernel's NVMe/TCP host as `nvme connect` does. Else:
    /// file over FUSE, nbd-socket for programs that speak NBD, vhost-user for virtual machines
    #[arg(
        long = "as",
        value_enum,
        default_value = "auto",
        hide_possible_values = true
    )]
    #[arg(value_name = "auto|ublk|nbd|fuse|file|nbd-socket|vhost-user|kernel")]
    pub(crate) front_end: FrontEnd,
    /// Its name, for `detach` and `list`
    #[arg(long, value_name = "NAME", value_parser = parse_name)]
    pub(crate) name: Option<String>,
    /// Path of the socket, for `--as nbd-socket` or `--as vhost-user`
    #[arg(long, value_name = "PATH")]
    pub(crate) socket: Option<PathBuf>,
    /// Speak NBD over TCP on this address of loopback: nbd://ADDR[:PORT] [default port: 10809].
    /// There is no authentication and no encryption
    #[arg(long, value_name = "nbd://ADDR[:PORT]", conflicts_with = "socket")]
    pub(crate) listen: Option<String>,
    /// Permit an address of --listen that is not loopback: everybody who reaches it can read and
    /// write the disk
    #[arg(long, value_name = "any", value_parser = ["any"], requires = "listen")]
    pub(crate) allow: Option<String>,
    /// Refuse every write
    #[arg(short, long)]
    pub(crate) read_only: bool,
    /// Attach it at every start too: writes NAME.toml to /etc/fabrix/attach.d
    #[arg(long)]
    pub(crate) persist: bool,
    /// Attach every disk that --persist has declared and that is not attached, or the one called
    /// --name
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
    pub(crate) devid_file: Option<PathBuf>,
    /// Stay in the foreground until the disk is detached
    #[arg(long)]
    pub(crate) foreground: bool,
    /// Format of the log, which goes to standard error with --foreground, else to NAME.log
    /// [default: journald if the journal reads standard error, else text]
    #[arg(
        long,
        value_enum,
        value_name = "text|journald|json",
        hide_possible_values = true
    )]
    pub(crate) log_format: Option<LogFormat>,
    #[command(flatten)]
    pub(crate) remote: RemoteArgs,
    #[command(flatten)]
    pub(crate) engine: EngineArgs,
    /// How to print the attached disk
    #[arg(short, long, value_enum, default_value = "text")]
    pub(crate) output: Format,
}

/// Arguments of `detach`.
#[derive(Args)]
pub(crate) struct DetachArgs {
    /// The attached disk: a device or file, a name, a number, or `all`
    #[arg(value_name = "DEV|NAME|all")]
    pub(crate) which: String,
    /// Detach even if it is in use, or if its target cannot be reached: I/O in progress fails
    #[arg(long)]
    pub(crate) force: bool,
    /// Do not attach it at the next start either: undoes --persist
    #[arg(long)]
    pub(crate) forget: bool,
    /// How to print the names of the detached disks; text: nothing
    #[arg(short, long, value_enum, default_value = "text")]
    pub(crate) output: Format,
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
    /// Time between two tables
    #[arg(short, long, value_name = "TIME", default_value = "1s", value_parser = parse_interval)]
    pub(crate) interval: Duration,
    /// End after this number of tables [default: at q or Ctrl-C]
    #[arg(short = 'n', long, value_name = "N")]
    pub(crate) count: Option<u64>,
    /// How to print it; json: one line each time
    #[arg(short, long, value_enum, default_value = "text")]
    pub(crate) output: Format,
}

/// Arguments of `resize`.
#[derive(Args)]
pub(crate) struct ResizeArgs {
    /// The attached disk: a device or file, a name, or a number
    #[arg(value_name = "DEV|NAME")]
    pub(crate) which: String,
    /// How to print the disk with its new size; text: nothing
    #[arg(short, long, value_enum, default_value = "text")]
    pub(crate) output: Format,
}

/// Arguments of `path`.
#[derive(Args)]
pub(crate) struct PathArgs {
    #[command(subcommand)]
    pub(crate) verb: PathVerb,
    /// How to print the paths, or the disk after a change; a change prints nothing as text
    #[arg(short, long, global = true, value_enum, default_value = "text")]
    pub(crate) output: Format,
}

/// What is done with the paths of attached disks.
#[derive(Subcommand)]
pub(crate) enum PathVerb {
    /// List the paths of a disk, or of all
    List {
        /// The attached disk: a device or file, a name, or a number
        #[arg(value_name = "DEV|NAME")]
        which: Option<String>,
    },
    /// Add a path to a disk that was attached as multipath:(URI,...)
    Add {
        /// The attached disk: a device or file, a name, or a number
        #[arg(value_name = "DEV|NAME")]
        which: String,
        /// Where the path leads, like nvme+tcp://ADDR:PORT/NQN/NSID. It gets the lowest free number
        #[arg(value_name = "URI")]
        uri: String,
    },
    /// Remove a path: it gets no more requests, and those in progress there still end
    Remove {
        /// The attached disk: a device or file, a name, or a number
        #[arg(value_name = "DEV|NAME")]
        which: String,
        /// The path, as `fabrix path list` counts them
        #[arg(value_parser = parse_path)]
        path: usize,
    },
    /// Send no more requests over a path; those in progress there go on
    Fail {
        /// The attached disk: a device or file, a name, or a number
        #[arg(value_name = "DEV|NAME")]
        which: String,
        /// The path, as `fabrix path list` counts them
        #[arg(value_parser = parse_path)]
        path: usize,
    },
    /// Send requests over a path again
    Restore {
        /// The attached disk: a device or file, a name, or a number
        #[arg(value_name = "DEV|NAME")]
        which: String,
        /// The path, as `fabrix path list` counts them
        #[arg(value_parser = parse_path)]
        path: usize,
    },
    /// Send all requests over a path while it can be used
    Prefer {
        /// The attached disk: a device or file, a name, or a number
        #[arg(value_name = "DEV|NAME")]
        which: String,
        /// The path, as `fabrix path list` counts them; `none`: the policy decides again
        #[arg(value_parser = parse_preferred)]
        path: Preferred,
    },
}

/// The path that is preferred. None: the policy decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Preferred(pub(crate) Option<usize>);

fn parse_path(text: &str) -> Result<usize, String> {
    let wrong = |_| format!("`{text}` is not the number of a path");
    text.parse().map_err(wrong)
}

fn parse_preferred(text: &str) -> Result<Preferred, String> {
    let wrong = |_| format!("`{text}` is not the number of a path, nor `none`");
    match text {
        "none" => Ok(Preferred(None)),
        number => number.parse().map(Some).map(Preferred).map_err(wrong),
    }
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

const ATTACHED_HELP: &str = "\
It prints the device, file or socket, and a background process keeps it attached:
  fabrix list; fabrix top         list what is attached; show its I/O
  mkfs.ext4 /dev/loop0 && mount /dev/loop0 /mnt
  umount /mnt && fabrix detach NAME|/dev/loop0
  fabrix detach NAME --force      at once, even if its target cannot be reached: I/O in progress fails
As root the first choice is a block device, else a file, else a socket: `fabrix doctor` says what this machine has.";
