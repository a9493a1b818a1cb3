//! NVMe over Fabrics as a host: a remote namespace as a disk.
//!
//! - `channel`: the disk. Each of its channels has a session.
//! - `plan`, `limits`: address of a session, and its queues.
//! - `session`: one controller seen from one shard. `bringup` connects it, `keep_alive` supervises
//!   it, `events` asks it for changes.
//! - `transfer`: requests as commands. `fused` sends Compare and Write.
//! - `queue`: one connection, an admin queue or an I/O queue. `tcp` and `rdma` are its transports,
//!   of which `transport` chooses one.
//! - `command`, `known_disk`: tables from requests to commands, and from Identify data to a disk.

mod bringup;
mod channel;
mod command;
mod events;
mod fused;
mod keep_alive;
mod known_disk;
mod limits;
mod plan;
mod queue;
mod rdma;
mod resets;
mod session;
mod tcp;
mod transfer;
mod transport;

pub use channel::RemoteDisk;
pub(crate) use plan::Plan;
