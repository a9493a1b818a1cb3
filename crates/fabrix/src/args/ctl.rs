//! Arguments of `ctl`, which changes a running `serve`.

use clap::{Args, Subcommand};

use super::values::{Format, parse_bytes, parse_nsid};

/// Arguments of `ctl`.
#[derive(Args)]
pub(crate) struct CtlArgs {
    /// The socket that `serve --api` names
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
    /// How to print the exports after the change
    #[arg(short, long, value_enum, default_value = "text", global = true)]
    pub(crate) output: Format,
}

/// Verbs of `ctl`. Each prints the exports after it.
#[derive(Subcommand)]
pub(crate) enum CtlVerb {
    /// Show the exports, their addresses, and who may connect
    Show,
    /// Add, remove or resize a disk; connected hosts see it at once
    #[command(subcommand)]
    Namespace(NamespaceVerb),
    /// Add or remove an address to listen on
    #[command(subcommand)]
    Listener(ListenerVerb),
    /// Show or set the states of ANA groups, which tell hosts what paths to use
    #[command(subcommand)]
    Ana(AnaVerb),
    /// Set who may connect; connected hosts that are no longer allowed are disconnected
    Allow {
        /// Host NQNs, names of iSCSI initiators, or `any`. Beside names of one kind only, `any`
        /// allows all of the other kind
        #[arg(required = true, value_name = "HOSTNQN|IQN")]
        hosts: Vec<String>,
    },
}

/// Verbs of `ctl namespace`.
#[derive(Subcommand)]
pub(crate) enum NamespaceVerb {
    /// Export an additional disk
    Add {
        /// The disk, as a URI
        #[arg(value_name = "DISK")]
        disk: String,
        /// Its namespace id [default: the lowest free one]
        #[arg(long, value_parser = parse_nsid, value_name = "NSID")]
        nsid: Option<u32>,
    },
    /// Stop exporting a disk
    Remove {
        /// Its namespace id
        #[arg(value_parser = parse_nsid, value_name = "NSID")]
        nsid: u32,
    },
    /// Resize a file or an image of Ceph, or apply the size that a disk has now. A smaller size
    /// cuts it, and the data beyond its new end is lost: that needs --shrink
    Resize {
        /// Its namespace id
        #[arg(value_parser = parse_nsid, value_name = "NSID")]
        nsid: u32,
        /// The new size [default: the size that it has now]
        #[arg(value_parser = parse_bytes, value_name = "SIZE")]
        size: Option<u64>,
        /// Permit a smaller size: the data beyond it is lost
        #[arg(long, requires = "size")]
        shrink: bool,
    },
}

/// Verbs of `ctl listener`.
#[derive(Subcommand)]
pub(crate) enum ListenerVerb {
    /// Listen on an additional address
    Add {
        /// The address: nvme+tcp://ADDR[:PORT]
        #[arg(value_name = "URI")]
        uri: String,
    },
    /// Stop listening on an address; its connections stay
    Remove {
        /// The address: nvme+tcp://ADDR[:PORT]
        #[arg(value_name = "URI")]
        uri: String,
    },
}

/// Verbs of `ctl ana`.
#[derive(Subcommand)]
pub(crate) enum AnaVerb {
    /// Show each group with its namespaces, and its state at each listener. Namespace N is LUN N-1
    List,
    /// Serve a group at this gateway of a gateway group. The gateway that serves it ends its
    /// requests first
    Take {
        /// The group
        #[arg(value_name = "GROUP")]
        group: u32,
    },
    /// Set the state of a group. A state without I/O is reached when the commands that came before
    /// have ended; the group is in state `change` until then
    Set {
        /// The group
        #[arg(value_name = "GROUP")]
        group: u32,
        /// optimized, non-optimized, inaccessible or persistent-loss
        #[arg(value_name = "STATE")]
        state: String,
        /// Only at this address: ADDR[:PORT] of NVMe, or a listener as a URI (iscsi://ADDR[:PORT])
        /// [default: all addresses]
        #[arg(long, value_name = "ADDR")]
        listener: Option<String>,
    },
}
