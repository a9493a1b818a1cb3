//! All unsafe code of this crate: calls of libibverbs and librdmacm, and memory that a device reads
//! and writes.
//!
//! Every function that leaves this folder is safe to call with any arguments.
#![allow(unsafe_code)]

mod address;
pub(crate) mod channel;
pub(crate) mod completions;
mod creation;
pub(crate) mod device;
pub(crate) mod id;
pub(crate) mod layout;
#[cfg(test)]
mod layout_test;
pub(crate) mod library;
pub(crate) mod memory;
pub(crate) mod queue_pair;
mod receives;
mod sends;
mod slots;
mod windows;

use std::ffi::c_int;
use std::io;
use std::os::fd::BorrowedFd;

/// The result of a library call that returns 0, or -1 and sets errno.
fn check(result: c_int) -> io::Result<()> {
    match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The result of a library call that returns 0 or an errno.
fn check_errno(result: c_int) -> io::Result<()> {
    match result {
        0 => Ok(()),
        errno => Err(io::Error::from_raw_os_error(errno.abs())),
    }
}

/// Calls on this descriptor do not wait from now on.
fn set_nonblocking(descriptor: c_int) -> io::Result<()> {
    // SAFETY: takes two numbers and touches no memory.
    // WHY UNSAFE: std sets this for sockets only.
    let flags = unsafe { libc::fcntl(descriptor, libc::F_GETFL) };
    if flags < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: takes three numbers and touches no memory.
    // WHY UNSAFE: as above.
    check(unsafe { libc::fcntl(descriptor, libc::F_SETFL, flags | libc::O_NONBLOCK) })
}

/// The descriptor of an object of a library. `owner` is the object's owner: the descriptor stays
/// open as long as the owner is borrowed.
fn borrow_descriptor<T>(_owner: &T, descriptor: c_int) -> BorrowedFd<'_> {
    // SAFETY: the library closes the descriptor with the object, and `_owner` destroys the object
    // when it is dropped, which the borrow forbids.
    // WHY UNSAFE: ownership of a number cannot be checked.
    unsafe { BorrowedFd::borrow_raw(descriptor) }
}
