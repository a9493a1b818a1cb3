//! NVMe over Fabrics for disks: one task per connection, whatever transport carries it. `tcp` is
//! the one file that names a transport.
//!
//! A `connection` is born unknown, and its Connect command makes it an admin queue (`admin`) or an
//! I/O queue (`io`). `waiting` has commands that wait for a disk, and `reserve` is what
//! reservations do to them. The two files where the protocol meets disks are `io` and `status`.

mod admin;
mod connection;
mod context;
mod execute;
mod fused;
pub(crate) mod inventory;
mod io;
mod reserve;
mod status;
pub(crate) mod tcp;
#[cfg(test)]
mod tests;
mod waiting;

/// The port that is for discovery alone, by the standard.
pub const DISCOVERY_PORT: u16 = 8009;
