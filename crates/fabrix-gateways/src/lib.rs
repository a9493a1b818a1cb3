//! Which gateway of a group serves which disks.
//!
//! A group is several gateways (processes of `fabrix serve`) that export the same disks of one
//! storage cluster under the same names. Each ANA group of disks is served by one gateway at a
//! time. The gateways decide that by a [`State`] that the cluster stores: who changes it says which
//! version it has read, and fails if there is a newer one.
//!
//! [`Gateway`] is one gateway as a machine without I/O. It asks for one [`Action`] after the other
//! and gets their [`Outcome`]s. It knows neither the cluster nor how disks are served, and it has
//! no clock.
//!
//! No two gateways write to a disk, because of the fence: the cluster refuses all requests of a
//! client that was shut out. A gateway takes the disks of another one only after it has shut out
//! that one's client. Time decides when a gateway is given up, never whether data is safe.

mod gateway;
mod peers;
mod state;

pub use gateway::{About, Action, Gateway, Outcome, Refusal};
pub use peers::{BEAT, LEASE};
pub use state::{GatewayNumber, MEMBERS_MOST, Member, State, controller_ids};
