//! iSCSI for disks: one task per connection, which is one session.
//!
//! A `connection` logs in and lives, a `session` has commands in progress (`waiting`: those that
//! wait for a disk), and `commands` says what becomes of each. A `job` is what disks do for a
//! command, `execute` hands its requests to them, `copy` finds the disks of EXTENDED COPY,
//! `management` ends commands early, `access` says who may log in, `targets` to which target. What
//! initiators are told of disks stands in `units`, and which sessions there are in `sessions`.
//! `tcp` makes connections of sockets: no other file here knows what carries PDUs. What bytes and
//! commands mean is `proto`'s.

pub(crate) mod access;
mod commands;
mod connection;
mod context;
mod copy;
mod execute;
mod job;
mod management;
mod session;
mod sessions;
mod status;
pub(crate) mod targets;
pub(crate) mod tcp;
pub(crate) mod units;
mod waiting;

pub use access::{Chap, Initiators};
pub(crate) use sessions::Sessions;
