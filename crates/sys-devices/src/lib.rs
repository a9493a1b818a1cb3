//! Interfaces of the Linux kernel for block devices and files that a process of ours serves: loop,
//! NBD, ublk, FUSE mounts, and what a vhost-user back end shares with a virtual machine.
//!
//! This crate knows system calls, ioctls and netlink messages. It does not know who serves a device
//! or what is asked of it. Unsafe code stands in `sys/`.

pub mod descriptors;
pub mod loop_device;
pub mod mounts;
pub mod nbd_device;
mod shared_memory;
mod sys;
pub mod ublk;

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

pub use shared_memory::SharedMemory;

/// Opens a block device that no mount, swap or other driver uses, and writes its cached data back.
///
/// Errors: `ResourceBusy` for a claimed device, and what failed while writing back.
pub fn claim(device: &Path) -> io::Result<File> {
    let claimed = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_EXCL)
        .open(device)?;
    claimed.sync_all()?;
    Ok(claimed)
}

/// Bytes of a page of this machine's memory.
pub fn page_bytes() -> usize {
    sys::page_bytes()
}
