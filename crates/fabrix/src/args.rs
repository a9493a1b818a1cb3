//! The command line: subcommands and options, named as in nvme-cli, fio and nbdkit where those have
//! the same option.
//!
//! clap parses the words into plain types. `values` checks single values. `path` has the options
//! for the path to a disk, which several subcommands share. The subcommands themselves are in
//! `cli`.

mod attach;
mod ctl;
pub(crate) mod path;
pub(crate) mod values;

use std::ffi::OsString;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::OnceLock;

use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand};
use clap_complete::Shell;
use fabrix_rt::engine::Engine;

pub(crate) use self::attach::{
    AttachArgs, DetachArgs, DiscoveryArgs, FrontEnd, InsertArgs, ListArgs, PathArgs, PathVerb,
    RemoveArgs, ResizeArgs, TopArgs,
};
pub(crate) use self::ctl::{AnaVerb, CtlArgs, CtlVerb, ListenerVerb, NamespaceVerb};
pub(crate) use self::path::{EngineArgs, RemoteArgs};
pub(crate) use self::values::{Cores, Format, HostId, parse_bytes, parse_name, parse_uuid};
use self::values::{DISKS_HELP, parse_engine, parse_iqn};
use crate::cli::bench::args::{BenchArgs, as_fio, ours_first};
use crate::cli::terminal::print;
use crate::failure::Failure;
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
    /// Parses the command line of this process. Errors, `--help` and `--version` end the process.
    pub(crate) fn read() -> Self {
        let words = Self::words();
        let given = ours_first(&words, as_fio(&words, given().to_vec()));
        Self::of(&given)
    }

    /// Parses a command line. Errors, `--help` and `--version` end the process.
    pub(crate) fn of(given: &[OsString]) -> Self {
        let matches = Self::words().try_get_matches_from(given);
        Self::from_matches(&matches.unwrap_or_else(|error| end(&error, given)))
    }

    /// The definition of the command line. `-l` is `--ctrl-loss-tmo` in `attach`, as in `nvme
    /// connect`, and `--listen` in `serve`.
    pub(crate) fn words() -> clap::Command {
        Self::command().mut_subcommand("attach", |attach| {
            attach.mut_arg("ctrl_loss_tmo", |loss| loss.short('l'))
        })
    }

    /// Reads the arguments from matches of [`words`](Self::words).
    pub(crate) fn from_matches(matches: &clap::ArgMatches) -> Self {
        Self::from_arg_matches(matches).unwrap_or_else(|error| error.exit())
    }
}

/// The arguments of this process. The first call also hides secrets in the command line that other
/// users see.
pub(crate) fn given() -> &'static [OsString] {
    static GIVEN: OnceLock<Vec<OsString>> = OnceLock::new();
    GIVEN.get_or_init(|| {
        let words: Vec<OsString> = std::env::args_os().collect();
        secrets::hide(&words);
        words
    })
}

/// A command line from its words behind the program's name.
pub(crate) fn with_program(words: &[OsString]) -> Vec<OsString> {
    [&["fabrix".into()], words].concat()
}

/// Prints an error of the command line without secrets, and ends the process.
fn end(error: &clap::Error, given: &[OsString]) -> ! {
    let original = error.render().to_string();
    let mut message = original.clone();
    for (word, shown) in given.iter().zip(secrets::shown(given)) {
        if let (Some(word), Some(shown)) = (word.to_str(), shown.to_str())
            && word != shown
        {
            // clap may quote only the value of `--option=value`.
            let value = |word: &str| word.split_once('=').map(|(_, value)| value.to_owned());
            message = message.replace(word, shown);
            if let (Some(value), Some(shown)) = (value(word), value(shown)) {
                message = message.replace(&value, &shown);
            }
        }
    }
    if error.use_stderr() && asks_for_json(given) {
        let _closed_or_full = print(&format!(
            "{:#}\n",
            Failure::usage(sentence(&message)).json()
        ));
    }
    if message == original {
        error.exit();
    }
    eprint!("{message}");
    std::process::exit(error.exit_code())
}

/// The sentence of an error of the command line, without advice and usage.
fn sentence(message: &str) -> String {
    let message = message.strip_prefix("error: ").unwrap_or(message);
    let end = message.find("\n\n").unwrap_or(message.len());
    let words: Vec<&str> = message[..end].split_ascii_whitespace().collect();
    words.join(" ")
}

/// Whether a command line asks for JSON. It may be wrong otherwise.
pub(crate) fn asks_for_json(words: &[OsString]) -> bool {
    let names = ["-o", "--output", "--output-format"];
    let pairs = words.iter().zip(words.iter().skip(1));
    let apart = |(name, value): (&OsString, &OsString)| {
        value == "json" && names.iter().any(|known| name == known)
    };
    let joined = |word: &OsString| {
        let value = word.to_str().and_then(|word| word.strip_suffix("json"));
        value.is_some_and(|name| name == "-o" || names.contains(&name.trim_end_matches('=')))
    };
    pairs.into_iter().any(apart) || words.iter().any(joined)
}

/// The subcommands.
#[derive(Subcommand)]
pub(crate) enum Verb {
    /// Export disks over NVMe/TCP, NVMe/RDMA, iSCSI and iSER until interrupted
    Serve(Box<ServeArgs>),
    /// Make a local or remote disk a device of this machine
    Attach(Box<AttachArgs>),
    /// The process that keeps a disk attached: `attach` with arguments from standard input
    #[command(hide = true)]
    Hold,
    /// Remove an attached disk from this machine
    Detach(DetachArgs),
    /// List the attached disks
    #[command(alias = "ls")]
    List(ListArgs),
    /// Show the I/O of attached disks and exports, updated every interval
    Top(TopArgs),
    /// List the paths of attached disks, and choose which of them get requests
    Path(PathArgs),
    /// Resize the device of an attached disk after the disk has changed its size
    Resize(ResizeArgs),
    /// `discover` with the arguments of StarNVMeoF_Ctrl
    #[command(hide = true)]
    Discovery(DiscoveryArgs),
    /// `attach` with the arguments of StarNVMeoF_Ctrl
    #[command(hide = true)]
    Insert(InsertArgs),
    /// `detach` with the arguments of StarNVMeoF_Ctrl
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
    /// Check what this machine supports, and say how to enable what is missing
    Doctor(DoctorArgs),
    /// Print the completions of a shell, for its folder of completions
    Completion(CompletionArgs),
    /// Write the manual pages fabrix.1, fabrix-serve.1 and so on
    Man(ManArgs),
}

/// Arguments of `serve`.
#[derive(Args)]
#[command(after_help = DISKS_HELP)]
pub(crate) struct ServeArgs {
    /// Disks to export, as URIs; they become namespaces 1, 2, 3, ...
    #[arg(required = true, value_name = "DISK")]
    pub(crate) disks: Vec<String>,
    /// Address to listen on, for nvme+tcp://, nvme+rdma://, iscsi:// or iser:// (iSCSI over RDMA);
    /// may be repeated. NVMe's port 8009 answers discovery only. With ,announce=ADDR[:PORT]
    /// discovery reports that address instead, for targets behind address translation. A
    /// link-local address has a zone, like [fe80::1%eth0]
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
    /// The iSCSI target's name, where `--listen` has an iscsi:// or iser:// address [default:
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
    /// CHAP user and secret of initiators; the secret has 12 bytes at least. Other users can see a
    /// command line: @FILE reads both from a file that only you may read
    #[arg(long, value_name = "USER%SECRET|@FILE")]
    pub(crate) chap: Option<String>,
    /// CHAP user and secret by which the target authenticates itself to initiators that ask;
    /// another secret than that of --chap
    #[arg(long, value_name = "USER%SECRET|@FILE", requires = "chap")]
    pub(crate) mutual_chap: Option<String>,
    /// Refuse every write
    #[arg(short, long)]
    pub(crate) read_only: bool,
    /// Address at which another gateway serves the same subsystem (the same --nqn and disks), for
    /// nvme+tcp:// or nvme+rdma://; may be repeated. Discovery lists it with our own. Give each
    /// gateway other controller ids
    #[arg(long, value_name = "PROTOCOL://ADDR[:PORT]")]
    pub(crate) gateway: Vec<String>,
    /// Be one of several gateways to the same images of Ceph, which all have --gateway-group NAME
    /// and the same disks: each ANA group of disks (ana=N) is served by one of them, and by another
    /// one when that one is gone
    #[arg(long, value_name = "NAME", conflicts_with_all = ["gateway", "cntlid_min", "cntlid_max"])]
    pub(crate) gateway_group: Option<String>,
    /// Discovery service of another target, to which discovery refers hosts; may be repeated
    #[arg(long, value_name = "PROTOCOL://ADDR[:PORT]")]
    pub(crate) referral: Vec<String>,
    /// Smallest controller id (CNTLID) of this gateway
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=0xFFEF))]
    pub(crate) cntlid_min: u16,
    /// Greatest controller id (CNTLID) of this gateway
    #[arg(long, value_name = "N", default_value_t = 0xFFEF, value_parser = clap::value_parser!(u16).range(1..=0xFFEF))]
    pub(crate) cntlid_max: u16,
    #[command(flatten)]
    pub(crate) engine: EngineArgs,
    #[command(flatten)]
    pub(crate) remote: RemoteArgs,
    /// Answer `fabrix ctl` on this socket, which only you may open
    #[arg(long, value_name = "unix:PATH")]
    pub(crate) api: Option<String>,
    /// Folder for reservations of all disks, which then outlive this process [default: for local
    /// files and block devices $XDG_STATE_HOME/fabrix, for root /var/lib/fabrix, else
    /// ~/.local/state/fabrix; those of other disks are not stored]
    #[arg(long, value_name = "DIR")]
    pub(crate) state: Option<PathBuf>,
    /// Run a shell command with $uri set to the first disk, and end with its exit status
    #[arg(long, value_name = "CMD")]
    pub(crate) run: Option<String>,
    /// Format of the log on standard error [default: journald if the journal reads standard error,
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
    /// The target: nvme+tcp://ADDR[:PORT], where ports 8009 and then 4420 are tried if none is
    /// given; nvme+rdma:// instead; or iscsi://ADDR[:PORT]; iser:// instead
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
    /// How to print the list
    #[arg(short, long, value_enum, default_value = "text")]
    pub(crate) output: Format,
}

/// Arguments of `demo`.
#[derive(Args)]
pub(crate) struct DemoArgs {
    /// Shorter measurements of 1 s at most: under 20 s in all
    #[arg(long)]
    pub(crate) quick: bool,
    /// Where to write index.html, results.json and results.csv
    #[arg(long, default_value = "fabrix-report", value_name = "DIR")]
    pub(crate) report: PathBuf,
    /// Size of the RAM disk
    #[arg(long, default_value = "1G", value_parser = parse_bytes, value_name = "SIZE")]
    pub(crate) size: u64,
    /// Kernel interface for I/O
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

/// Arguments of `completion`.
#[derive(Args)]
pub(crate) struct CompletionArgs {
    /// The shell
    #[arg(value_enum, value_name = "SHELL")]
    pub(crate) shell: Shell,
}

/// Arguments of `man`.
#[derive(Args)]
pub(crate) struct ManArgs {
    /// The folder to write to
    #[arg(value_name = "DIR")]
    pub(crate) folder: PathBuf,
}

const AFTER_HELP: &str = "\
Start here:
  fabrix demo                                   measure this machine and write a report
  fabrix serve ram:1G --run 'fabrix bench $uri' serve and measure in one line
  fabrix doctor                                 check what would make it faster

Exit codes: 0 done, 1 failed or I/O error (a port in use, too), 2 wrong usage, 3 cannot connect,
5 data differs, 6 slower than `bench compare --fail-over` allows.";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn json_is_asked_for_in_the_forms_that_clap_takes() {
        for (line, asked) in [
            ("fabrix bench ram:1M -o json", true),
            ("fabrix bench ram:1M -ojson", true),
            ("fabrix bench -o=json ram:1M", true),
            ("fabrix bench --output json", true),
            ("fabrix bench --output=json", true),
            ("fabrix bench --output-format=json", true),
            ("fabrix bench ram:1M", false),
            ("fabrix bench -o text json", false),
            ("fabrix bench x.json", false),
            ("fabrix serve --log-format json", false),
        ] {
            let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
            assert_eq!(asks_for_json(&words), asked, "{line}");
        }
    }

    #[test]
    fn an_error_of_the_command_line_is_one_sentence() {
        let message = "error: not provided:\n  <DISK>\n\nUsage: fabrix serve <DISK>...\n";
        assert_eq!(sentence(message), "not provided: <DISK>");
    }
}
