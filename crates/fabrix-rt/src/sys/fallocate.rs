//! fallocate(2).

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use super::check;
use super::file::to_offset;
use crate::Allocate;

/// Gives the space of a range back, or zeroes it. The size of the file stays.
pub(crate) fn allocate(
    file: BorrowedFd<'_>,
    how: Allocate,
    offset: u64,
    bytes: u64,
) -> io::Result<()> {
    let (offset, bytes) = (to_offset(offset)?, to_offset(bytes)?);
    // SAFETY: takes four numbers and touches no memory.
    // WHY UNSAFE: std has no fallocate.
    check(unsafe { libc::fallocate(file.as_raw_fd(), mode(how), offset, bytes) })?;
    Ok(())
}

/// Flags of fallocate(2).
pub(crate) fn mode(how: Allocate) -> libc::c_int {
    libc::FALLOC_FL_KEEP_SIZE
        | match how {
            Allocate::PunchHole => libc::FALLOC_FL_PUNCH_HOLE,
            Allocate::ZeroRange => libc::FALLOC_FL_ZERO_RANGE,
        }
}
