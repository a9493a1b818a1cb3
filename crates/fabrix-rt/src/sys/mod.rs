//! The unsafe code of the runtime: one block per fact, with the reason why it is sound and the
//! reason why it cannot be safe.
//!
//! Every function that leaves this folder is safe to call with any arguments. Memory that the
//! kernel may access is owned here until the kernel no longer accesses it. Policy stands in the
//! folders above.
#![allow(unsafe_code)]

pub(crate) mod affinity;
pub(crate) mod arena;
pub(crate) mod clock;
pub(crate) mod counting;
pub(crate) mod entry;
pub(crate) mod epoll;
pub(crate) mod fallocate;
pub(crate) mod file;
pub(crate) mod gather;
pub(crate) mod mmap;
pub(crate) mod process;
pub(crate) mod random;
pub(crate) mod socket;
pub(crate) mod terminal;
pub(crate) mod uring;

use std::io;

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
