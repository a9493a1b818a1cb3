//! Images of Ceph's block storage (RBD), by librados and librbd.
//!
//! Both libraries are opened at run time, so the program runs without them. This crate knows
//! clusters, pools and images, and no disk of ours. Unsafe code stands in `sys/`.
//!
//! - A [`Cluster`] is one client of a cluster. Calls that talk to the cluster wait for it, so they
//!   belong on a thread that may wait.
//! - An [`Image`] is open once in a process, and all shards share it. It is closed by a thread of
//!   its own, because that waits, too: see [`finish`].
//! - [`Objects`] are small things beside images, which several clients change in turn.
//! - [`Requests`] are those of one shard in progress. They never wait. Their [`Endings`] wake the
//!   shard.

mod closing;
mod error;
mod sys;

pub use closing::finish;
pub use error::{Error, INSTALL};
pub use sys::cluster::{Access, Cluster};
pub use sys::endings::Endings;
pub use sys::image::{Facts, Image, Name, Watch};
pub use sys::library::version;
pub use sys::object::Objects;
pub use sys::requests::{Ended, Requests, Work};
