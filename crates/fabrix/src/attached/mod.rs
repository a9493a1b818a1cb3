//! Disks that are attached to this machine: one process each, and what is known of it from outside.
//!
//! [`records`] is the folder with a file, a lock and a control socket for each; [`front`] the ways a disk can look;
//! [`holder`] the process that keeps one attached; [`declared`] the folder of those that are to be attached at every
//! start.

pub(crate) mod declared;
pub(crate) mod front;
pub(crate) mod holder;
mod paths;
pub(crate) mod records;
