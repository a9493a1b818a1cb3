//! NVMe over TCP for disks: one task per connection.
//!
//! [`Connection`] is born unknown, and its Connect command makes it an admin queue (`admin`) or an
//! I/O queue (`io`). `waiting` has commands that wait for a disk, and `reserve` is what
//! reservations do to them. The two files where the protocol meets disks are `io` and `status`.

mod admin;
mod connection;
mod desk;
mod execute;
mod fused;
mod inventory;
mod io;
mod reserve;
mod status;
mod waiting;

pub(crate) use connection::Connection;
pub(crate) use inventory::inventory;

/// The port that is for discovery alone, by the standard.
pub const DISCOVERY_PORT: u16 = 8009;
