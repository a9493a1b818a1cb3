//! Attached disks of this machine. Each has its own process.
//!
//! - [`records`]: the folder with a record, a lock and a control socket per attachment.
//! - [`front`]: the forms in which a disk is attached.
//! - [`choose`] and [`begin`]: select a form and start it.
//! - [`holder`]: the process that keeps a disk attached. [`held`]: the state of that disk.
//! - [`takeover`]: devices that survive such a process.
//! - [`declared`]: the folder of disks to attach at every start.
//! - [`kernel`]: disks accessed by the kernel's own host.
//! - [`size`]: the sizes of block devices.

mod begin;
mod choose;
pub(crate) mod declared;
pub(crate) mod front;
pub(crate) mod held;
pub(crate) mod holder;
mod in_use;
pub(crate) mod kernel;
mod kernel_fuse;
mod kernel_nbd;
mod nbd_port;
pub(crate) mod paths;
pub(crate) mod records;
mod size;
pub(crate) mod takeover;

pub(crate) use kernel_fuse::has_fuse;
