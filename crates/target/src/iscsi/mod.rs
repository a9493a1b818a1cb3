//! iSCSI for disks: one task per connection, which is one session.
//!
//! [`Connection`] logs in and lives, a `session` has commands in progress. A `job` is what disks do for a command,
//! `execute` hands its requests to them, `copy` finds the disks of EXTENDED COPY, `management` ends commands early.
//! What initiators are told of disks stands in `units`, and which sessions there are in `sessions`. What bytes and
//! commands mean is `proto`'s.

mod connection;
mod copy;
mod execute;
mod job;
mod management;
mod session;
mod sessions;
mod status;
mod units;

pub(crate) use connection::Connection;
pub(crate) use sessions::Sessions;
pub(crate) use units::Units;
