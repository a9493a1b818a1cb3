//! Disks that are attached to this machine: one process each, and what is known of it from outside.
//!
//! [`records`] is the folder with a file, a lock and a control socket for each; [`front`] the ways a disk can look;
//! [`holder`] the process that keeps one attached.

pub(crate) mod front;
pub(crate) mod holder;
mod kernel_nbd;
pub(crate) mod records;
