//! Options for the path to a disk, shared by several subcommands: processors, the kernel interface,
//! and connections to remote disks.

use std::net::IpAddr;
use std::time::Duration;

use clap::{Args, Command, FromArgMatches};
use fabrix_rt::SpinPolicy;
use fabrix_rt::engine::Engine;

use super::values::{Cores, HostId, Limit};
use super::values::{
    parse_cores, parse_engine, parse_limit, parse_pause, parse_spin, parse_time, parse_uuid,
};

/// Processors and kernel interface of the data path.
#[derive(Args, Clone)]
pub(crate) struct EngineArgs {
    /// Processors to use, each with one event loop, like 0,2-3
    #[arg(long, value_name = "LIST", value_parser = parse_cores)]
    pub(crate) cores: Option<Cores>,
    /// Kernel interface for I/O
    #[arg(long, value_parser = parse_engine, default_value = "auto", value_name = "auto|io-uring|epoll")]
    pub(crate) engine: Engine,
    /// Whether an event loop polls for the next event before it sleeps. auto: up to 50 us, while
    /// four of five events follow within that time; an idle loop sleeps. never: least energy, and
    /// some 10 us more per request at depth 1. always: a loop never sleeps, and takes a whole
    /// processor
    #[arg(long, value_parser = parse_spin, default_value = "auto", value_name = "auto|never|always")]
    pub(crate) spin: SpinPolicy,
}

/// Connections to remote disks: the options of `nvme connect`.
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
    /// This host's NQN [default: /etc/nvme/hostnqn, or one derived from the host's id]
    #[arg(short = 'q', long, value_name = "HOSTNQN")]
    pub(crate) hostnqn: Option<String>,
    /// This host's id, a UUID [default: /etc/nvme/hostid, the UUID in the host's NQN, or one
    /// derived from this machine's id]
    #[arg(short = 'I', long, value_name = "UUID", value_parser = parse_uuid)]
    pub(crate) hostid: Option<HostId>,
    /// Address of this machine that connections come from
    #[arg(short = 'w', long, value_name = "ADDR")]
    pub(crate) host_traddr: Option<IpAddr>,
    /// This machine's name to iSCSI targets
    #[arg(long, value_name = "IQN")]
    pub(crate) initiator_name: Option<String>,
    /// NVMe's keep-alive timeout; 0: no keep-alive. For iSCSI it times our NOP-Out pings
    #[arg(short = 'k', long, value_name = "TIME", default_value = "5s", value_parser = parse_time)]
    pub(crate) keep_alive_tmo: Duration,
    /// Pause between attempts to reconnect [default: the first at once, then 50 ms, doubling up to
    /// 5 s]
    #[arg(short = 'c', long, value_name = "TIME", value_parser = parse_pause)]
    #[arg(allow_negative_numbers = true)]
    pub(crate) reconnect_delay: Option<Duration>,
    /// Stop reconnecting this long after the connection was lost: all I/O fails from then on. 0: at
    /// once; -1: never
    #[arg(long, value_name = "TIME", default_value = "-1", value_parser = parse_limit)]
    #[arg(allow_negative_numbers = true)]
    pub(crate) ctrl_loss_tmo: Limit,
    /// Fail I/O this long after the connection was lost, until it is restored. 0: at once; -1:
    /// never
    #[arg(
        long,
        alias = "fast_io_fail_tmo",
        value_name = "TIME",
        default_value = "60s"
    )]
    #[arg(value_parser = parse_limit, allow_negative_numbers = true)]
    pub(crate) fast_io_fail_tmo: Limit,
}

impl Default for RemoteArgs {
    /// The defaults of the command line.
    fn default() -> Self {
        let command = Self::augment_args(Command::new("remote").no_binary_name(true));
        let matches = command.get_matches_from([""; 0]);
        Self::from_arg_matches(&matches).expect("every option has a default")
    }
}
