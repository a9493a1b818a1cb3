//! System calls for files that std lacks: durable writes, holes, wake-up counters.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd};

use super::{check, check_bytes};

/// Writes at an offset. With `durable` the call returns when the data is on the medium.
pub(crate) fn write_at(
    file: BorrowedFd<'_>,
    bytes: &[u8],
    offset: u64,
    durable: bool,
) -> io::Result<usize> {
    let part = libc::iovec {
        iov_base: bytes.as_ptr().cast_mut().cast(),
        iov_len: bytes.len(),
    };
    let flags = if durable { libc::RWF_DSYNC } else { 0 };
    let offset = to_offset(offset)?;
    // SAFETY: the kernel reads one iovec, and the slice that it names. Both outlive the call.
    // WHY UNSAFE: std has no pwritev2.
    check_bytes(unsafe { libc::pwritev2(file.as_raw_fd(), &raw const part, 1, offset, flags) })
}

/// Whether the file system of a file keeps its files in memory. No, if the file system does not
/// say. For a device this is the file system of its name, and /dev lies in memory.
pub(crate) fn is_in_memory(file: BorrowedFd<'_>) -> bool {
    // SAFETY: a statfs is plain numbers; zero is valid for all of them.
    // WHY UNSAFE: it has private padding, so it cannot be written as a literal.
    let mut about: libc::statfs = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel writes one statfs into `about`, which outlives the call.
    // WHY UNSAFE: std has no fstatfs.
    check(unsafe { libc::fstatfs(file.as_raw_fd(), &raw mut about) }).is_ok()
        && [libc::TMPFS_MAGIC, libc::HUGETLBFS_MAGIC].contains(&about.f_type)
}

/// Offset of the next data from `offset` on. None: a hole up to the end of the file.
pub(crate) fn next_data(file: BorrowedFd<'_>, offset: u64) -> io::Result<Option<u64>> {
    match seek(file, offset, libc::SEEK_DATA) {
        Err(error) if error.raw_os_error() == Some(libc::ENXIO) => Ok(None),
        found => found.map(Some),
    }
}

/// Offset of the next hole from `offset` on, at the latest the end of the file.
pub(crate) fn next_hole(file: BorrowedFd<'_>, offset: u64) -> io::Result<u64> {
    seek(file, offset, libc::SEEK_HOLE)
}

fn seek(file: BorrowedFd<'_>, offset: u64, whence: libc::c_int) -> io::Result<u64> {
    // SAFETY: takes three numbers and touches no memory.
    // WHY UNSAFE: std seeks to positions only.
    let found = unsafe { libc::lseek64(file.as_raw_fd(), to_offset(offset)?, whence) };
    u64::try_from(found).map_err(|_| io::Error::last_os_error())
}

/// Sets nonblocking mode.
pub(crate) fn set_nonblocking(file: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: takes two numbers and touches no memory.
    // WHY UNSAFE: std sets this for sockets only.
    let flags = check(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GETFL) })?;
    // SAFETY: takes three numbers and touches no memory.
    // WHY UNSAFE: as above.
    check(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETFL, flags | libc::O_NONBLOCK) })?;
    Ok(())
}

/// A new eventfd in blocking mode.
pub(crate) fn event() -> io::Result<File> {
    // SAFETY: takes two numbers and touches no memory.
    // WHY UNSAFE: std has no eventfd.
    let descriptor = check(unsafe { libc::eventfd(0, libc::EFD_CLOEXEC) })?;
    // SAFETY: the kernel has just made this descriptor, so nobody else owns it.
    // WHY UNSAFE: ownership of a number cannot be checked.
    Ok(unsafe { File::from_raw_fd(descriptor) })
}

/// A signed offset of the kernel. Errors: EINVAL for an offset that is too large.
pub(super) fn to_offset(value: u64) -> io::Result<i64> {
    i64::try_from(value).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))
}
