//! iSCSI for disks: one task per connection, which is one session.
//!
//! - `connection`: the login and the end of a connection. `sessions`: the list of all sessions.
//! - `session`: the commands in progress. `commands`: their first step. `waiting`: those at a disk.
//! - `job`: the disk requests of a command. `execute`: their submission. `copy`: EXTENDED COPY.
//! - `management`: aborts and resets.
//! - `access`: the proof of an initiator. `targets`: the targets that it may use.
//! - `alua`: access states of logical units. `ports`: the ports of targets.
//! - `units`: disks as logical units. `tcp`: connections over sockets. `rdma`: connections of iSER.
//!
//! `proto` knows the bytes of PDUs and commands. Only `tcp` and `rdma` know what carries PDUs.

pub(crate) mod access;
mod alua;
mod commands;
mod connection;
mod context;
mod copy;
mod execute;
mod job;
mod management;
pub(crate) mod ports;
pub(crate) mod rdma;
mod session;
mod sessions;
mod status;
pub(crate) mod targets;
pub(crate) mod tcp;
pub(crate) mod units;
mod waiting;

pub use access::{Chap, Initiators};
pub(crate) use sessions::Sessions;
