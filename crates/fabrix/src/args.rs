//! The words of the command line, as people who know nvme-cli, fio and nbdkit expect them.
//!
//! Knows clap and nothing of what the words do: values come out as plain types, checked where one
//! word is enough to see that it is wrong (`values`). What several subcommands say about the way to
//! a disk is in `path`.

mod attach;
mod ctl;
mod path;
mod values;

use std::ffi::OsString;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::OnceLock;

use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};
use fabrix_rt::engine::Engine;

pub(crate) use self::attach::{
    AttachArgs, DetachArgs, DiscoveryArgs, FrontEnd, InsertArgs, ListArgs, RemoveArgs, ResizeArgs,
    TopArgs,
};
pub(crate) use self::ctl::{CtlArgs, CtlVerb, ListenerVerb, NamespaceVerb};
pub(crate) use self::path::{EngineArgs, RemoteArgs};
pub(crate) use self::values::{Cores, HostId, parse_bytes, parse_name, parse_time, parse_uuid};
use self::values::{parse_engine, parse_iqn};
use crate::cli::bench::args::{BenchArgs, ours_first};
use crate::log::LogFormat;
use crate::secrets;

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
        let given = ours_first(&Self::words(), given().to_vec());
        Self::of(&given)
    }

    /// Those of a command line; wrong ones, and questions, end the process.
    pub(crate) fn of(given: &[OsString]) -> Self {
        let matches = Self::words().try_get_matches_from(given);
        Self::from_matches(&matches.unwrap_or_else(|error| end(&error, given)))
    }

    /// All words. `-l` is `--ctrl-loss-tmo` to who knows `nvme connect`, and `--listen` to who
    /// serves.
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

/// The words that this process was started with. Others see them without secrets as soon as they
/// are read here.
pub(crate) fn given() -> &'static [OsString] {
    static GIVEN: OnceLock<Vec<OsString>> = OnceLock::new();
    GIVEN.get_or_init(|| {
        let words: Vec<OsString> = std::env::args_os().collect();
        secrets::hide(&words);
        words
    })
}

/// Ends the process with what is wrong with its words, which is said without secrets.
fn end(error: &clap::Error, given: &[OsString]) -> ! {
    let mut said = error.render().to_string();
    for (word, shown) in given.iter().zip(secrets::shown(given)) {
        if let (Some(word), Some(shown)) = (word.to_str(), shown.to_str())
            && word != shown
        {
            // Of `--option=value` the value may stand alone in the sentence.
            let value = |word: &str| word.split_once('=').map(|(_, value)| value.to_owned());
            said = said.replace(word, shown);
            if let (Some(value), Some(shown)) = (value(word), value(shown)) {
                said = said.replace(&value, &shown);
            }
        }
    }
    if said == error.render().to_string() {
        error.exit();
    }
    eprint!("{said}");
    std::process::exit(error.exit_code())
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
    /// Where to listen, for nvme+tcp:// or iscsi://; may be repeated. NVMe's port 8009 answers
    /// discovery only. With ,announce=ADDR[:PORT] discovery tells that address instead, where
    /// something translates addresses. An address of one link has a zone, like [fe80::1%eth0]
    #[arg(
        short,
        long,
        value_name = "PROTOCOL://ADDR[:PORT]",
        default_value = "nvme+tcp://127.0.0.1:4420"
    )]
    pub(crate) listen: Vec<String>,
    /// The subsystem's NQN, which no other target may have [default:
    /// nqn.2026-01.io.fabrix:disks-ID, where ID is made from this machine and the first --listen]
    #[arg(short = 'n', long, value_name = "NQN")]
    pub(crate) nqn: Option<String>,
    /// The iSCSI target's name, where `--listen` has an iscsi:// address [default:
    /// iqn.2026-01.io.fabrix:disks-ID]
    #[arg(long, value_name = "IQN", value_parser = parse_iqn)]
    pub(crate) iqn: Option<String>,
    /// Host NQN or iSCSI initiator that may connect, or `any`; may be repeated. Needed on any
    /// address but loopback
    #[arg(long, value_name = "HOSTNQN|IQN")]
    pub(crate) allow: Vec<String>,
    /// iSCSI initiator that may log in; may be repeated. The same as --allow IQN
    #[arg(long, value_name = "IQN", value_parser = parse_iqn)]
    pub(crate) initiator: Vec<String>,
    /// What initiators prove with CHAP, 12 bytes of secret at least. Others see a command line:
    /// @FILE reads it from a file that only you may read
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
    /// Where reservations are stored that outlive this process, for all disks [default: for local
    /// files and block devices $XDG_STATE_HOME/fabrix, for root /var/lib/fabrix, else
    /// ~/.local/state/fabrix; for others nowhere]
    #[arg(long, value_name = "DIR")]
    pub(crate) state: Option<PathBuf>,
    /// Run a shell command with $uri set to the first disk, and end with its exit status
    #[arg(long, value_name = "CMD")]
    pub(crate) run: Option<String>,
    /// How lines of the log look on standard error [default: journald where the journal reads it,
    /// else text]
    #[arg(
        long,
        value_enum,
        value_name = "text|journald|json",
        hide_possible_values = true
    )]
    pub(crate) log_format: Option<LogFormat>,
    /// How to print the exports
    #[arg(short, long, value_enum, default_value = "text")]
    pub(crate) output: Format,
}

/// Arguments of `discover`.
#[derive(Args)]
pub(crate) struct DiscoverArgs {
    /// The target: nvme+tcp://ADDR[:PORT], without a port 8009 and then 4420; or
    /// iscsi://ADDR[:PORT]
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
    pub(crate) report: PathBuf,
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

const AFTER_HELP: &str = "\
Start here:
  fabrix demo                                   what this machine does, as a report
  fabrix serve ram:1G --run 'fabrix bench $uri' serve and measure in one line
  fabrix doctor                                 what would make it faster";

pub(crate) const DISKS_HELP: &str = "\
Disks:
  ram:1G                          memory
  null:1T                         reads zeroes, forgets writes
  /path, vm.img or file:PATH,size=1G  a file (made if size= is given) or a block device; direct=off for buffered
  raid0:chunk=256k,(A,B,...)      a stripe of any disks
  nvme+tcp://HOST[:4420][/NQN[/NSID]]  a remote disk
  iscsi://[USER%SECRET@]HOST[:3260][/IQN[/LUN]]  another one; target_user= and target_password= for mutual CHAP.
                                  USER%@FILE@ and target_password=@FILE read the secret from a file of yours
  Options after a comma: name=..., block=512|4096, physical=512|4096, ro, inject=delay:5ms,
  inject=error:0.1%. block is the unit of every address; physical what hosts are told to align to (4096)
  A comma or a parenthesis in a path has a backslash before it: '/srv/a\\,b.img'
Sizes count in 1024: 4k, 1M, 1G.";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Arguments::command().debug_assert();
    }
}
