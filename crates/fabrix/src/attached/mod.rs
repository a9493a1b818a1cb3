//! Disks that are attached to this machine: one process each, and what is known of it from outside.
//!
//! [`records`] is the folder with a file, a lock and a control socket for each; [`front`] the ways
//! a disk can look, [`choose`] which of them are tried, and [`begin`] which it gets; [`holder`] the
//! process that keeps one attached; [`takeover`] what outlives such a process; [`declared`] the
//! folder of those that are to be attached at every start; [`kernel`] those that the kernel reaches
//! by itself; [`size`] how large their block devices are.

mod begin;
mod choose;
pub(crate) mod declared;
pub(crate) mod front;
pub(crate) mod holder;
pub(crate) mod kernel;
mod kernel_fuse;
mod kernel_nbd;
mod nbd_port;
mod paths;
pub(crate) mod records;
mod size;
pub(crate) mod takeover;
