//! A socket to generic netlink.

use std::fs::File;
use std::io;
use std::os::fd::FromRawFd;

use super::check;

/// A new socket. Writes go to the kernel, reads return its answers.
pub(crate) fn generic() -> io::Result<File> {
    let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC;
    // SAFETY: takes three numbers and touches no memory.
    // WHY UNSAFE: std has no netlink.
    let descriptor = check(unsafe { libc::socket(libc::AF_NETLINK, kind, libc::NETLINK_GENERIC) })?;
    // SAFETY: the kernel has just given us this descriptor; nobody else owns it.
    // WHY UNSAFE: ownership of a number cannot be checked.
    Ok(unsafe { File::from_raw_fd(descriptor) })
}
