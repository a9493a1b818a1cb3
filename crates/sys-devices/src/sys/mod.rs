//! All unsafe code of this crate: system calls of the device drivers, and mapped memory.
//!
//! Every function that leaves this folder is safe to call with any arguments.
#![allow(unsafe_code)]

pub(crate) mod descriptors;
pub(crate) mod loop_device;
mod mapping;
pub(crate) mod mount;
pub(crate) mod netlink;
pub(crate) mod shared_memory;
pub(crate) mod ublk;

use std::io;

/// Bytes of a page of memory.
pub(crate) fn page_bytes() -> usize {
    // SAFETY: takes a number and touches no memory.
    // WHY UNSAFE: std does not tell.
    let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(bytes).expect("every machine has pages")
}

/// The result of a system call that says -1 and sets errno.
fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result)
    }
}

/// The same for a system call that counts bytes.
fn check_bytes(result: libc::ssize_t) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}
