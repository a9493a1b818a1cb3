//! NVMe over Fabrics for disks: one task per connection. Only `tcp` and `rdma` know what
//! carries the connection.
//!
//! A `connection` has no role until its Connect command makes it an admin queue (`admin`) or an I/O
//! queue (`io`). `waiting` has the commands that wait for a disk. `reserve` applies reservations to
//! commands. `io` and `status` are the two files where the protocol meets disks.

mod admin;
mod ana;
mod connection;
mod context;
mod execute;
mod fused;
pub(crate) mod inventory;
mod io;
pub(crate) mod rdma;
mod reserve;
mod status;
pub(crate) mod tcp;
#[cfg(test)]
mod tests;
mod waiting;

/// The port that the standard reserves for discovery.
pub const DISCOVERY_PORT: u16 = 8009;
