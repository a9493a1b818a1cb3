//! Images of Ceph (RBD) as disks.
//!
//! Knows the disk interface of `block`, and librbd through `sys-rbd`. Knows no protocol.
//!
//! - [`open`] opens an image as a [`fabrix_block::Device`]. An image is open once in a process, and
//!   all shards use that handle.
//! - `channel` has the requests of one shard.
//! - `lock` is the exclusive lock of an image, and whether the cluster refuses this client.
//! - [`GroupStore`] is what the gateways of a group store in the cluster.
//! - `status` says what a result of librbd means.
//!
//! What librbd promises, and what follows for the disk, is in `docs/design/rbd.md`.

mod channel;
mod clusters;
mod disk;
mod group;
mod lock;
mod status;

pub use disk::{RbdDisk, open};
pub use group::GroupStore;
pub use sys_rbd::{Access, Error, INSTALL, Name, finish, version};
