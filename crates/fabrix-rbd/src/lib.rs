//! Images of Ceph (RBD) as disks.
//!
//! Knows the disk interface of `block`, and librbd through `sys-rbd`. Knows no protocol.
//!
//! - [`open`] opens an image as a [`fabrix_block::Device`]. An image is open once in a process, and
//!   all shards use that handle.
//! - `channel` has the requests of one shard.
//! - `status` says what a result of librbd means.
//!
//! What librbd promises, and what follows for the disk, is in `docs/design/rbd.md`.

mod channel;
mod clusters;
mod disk;
mod status;

pub use disk::{RbdDisk, open};
pub use sys_rbd::{Access, Error, INSTALL, Name, finish, version};
