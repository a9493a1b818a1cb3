//! NVMe over Fabrics as a host: a remote namespace as a disk. `tcp` is the one file that names a
//! transport.
//!
//! Read downwards: `channel` is the disk; each of its channels has a `session`, one controller seen
//! from one shard, which leaves in `parting`, hears of changes in `events` and whose requests are
//! `transfer`'s, or `pair`'s when they travel as two commands; `queue` is one connection of it, and
//! `pace` says when that looks for answers. `command` and `seen` are tables: requests to commands,
//! and what Identify said to a disk's geometry. `plan` says who we are.

mod bring;
mod channel;
mod command;
mod events;
mod pair;
mod parting;
mod plan;
mod queue;
mod seen;
mod session;
mod tcp;
mod transfer;

pub use channel::RemoteDisk;
pub(crate) use channel::sized_elsewhere;
pub(crate) use plan::Plan;
