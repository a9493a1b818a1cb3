//! The words of `ctl`, for a `serve` that is running.

use clap::{Args, Subcommand};

use super::Format;
use super::values::{parse_bytes, parse_nsid};

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
        /// Host NQNs, names of iSCSI initiators, or `any`, which speaks for those of which no name
        /// is said
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
        #[arg(long, value_parser = parse_nsid, value_name = "NSID")]
        nsid: Option<u32>,
    },
    /// Export a disk no more
    Remove {
        /// Its namespace id
        #[arg(value_parser = parse_nsid, value_name = "NSID")]
        nsid: u32,
    },
    /// Make a file so large, or see how large a file or block device has become. A smaller size
    /// cuts the file, and what lies behind its new end is gone: that needs --shrink
    Resize {
        /// Its namespace id
        #[arg(value_parser = parse_nsid, value_name = "NSID")]
        nsid: u32,
        /// The new size; left out: the size that it has now
        #[arg(value_parser = parse_bytes, value_name = "SIZE")]
        size: Option<u64>,
        /// The new size may be smaller than the one now: what lies behind it is lost
        #[arg(long, requires = "size")]
        shrink: bool,
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
