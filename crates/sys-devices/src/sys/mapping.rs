//! Memory that this process shares with another one or with a driver: a mapped range of a file.
//!
//! The other side may change every byte at any time. So no Rust reference into the memory ever
//! exists: all access is copies and single atomic words, and a copy is taken for nothing but bytes.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::{self, NonNull};

use super::check;

/// A mapped range of a file. The mapping begins at a page, up to `skip_bytes` before the range.
#[derive(Debug)]
pub(crate) struct Mapping {
    start: NonNull<u8>,
    whole_bytes: usize,
    skip_bytes: usize,
    bytes: usize,
}

// SAFETY: the mapping is only memory; all access goes through raw copies and atomics, which any
// thread may make.
// WHY UNSAFE: a raw pointer is not Send by itself, and the thread that maps is not the one that
// copies.
unsafe impl Send for Mapping {}
// SAFETY: as for Send; no `&u8` or `&mut u8` into the memory is ever formed.
// WHY UNSAFE: as for Send.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `bytes` of a file from `offset + skip_bytes` on. `offset` is a multiple of the file's
    /// page size, and the caller has checked that the range lies inside the file. Access to pages
    /// that the other process cuts off later ends this process (SIGBUS).
    pub(super) fn new(
        file: BorrowedFd<'_>,
        offset: u64,
        (skip_bytes, bytes): (usize, usize),
        (protection, flags): (libc::c_int, libc::c_int),
    ) -> io::Result<Self> {
        let invalid = || io::Error::from_raw_os_error(libc::EINVAL);
        let whole_bytes = skip_bytes.checked_add(bytes).ok_or_else(invalid)?;
        let offset = libc::off_t::try_from(offset).map_err(|_| invalid())?;
        // SAFETY: a new mapping at an address of the kernel's choice touches nothing that exists.
        // WHY UNSAFE: std cannot map memory.
        let start = unsafe {
            libc::mmap(
                ptr::null_mut(),
                whole_bytes,
                protection,
                flags,
                file.as_raw_fd(),
                offset,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Self {
            start: NonNull::new(start.cast())
                .expect("Linux maps nothing at address zero unless asked"),
            whole_bytes,
            skip_bytes,
            bytes,
        })
    }

    /// Limits access to the first `bytes`.
    pub(super) fn shorten(&mut self, bytes: usize) {
        self.bytes = self.bytes.min(bytes);
    }

    /// Bytes.
    pub(super) fn len(&self) -> usize {
        self.bytes
    }

    /// Copies out. Bytes that the other side writes at the same time may be old or new. Panics
    /// unless the range lies inside.
    pub(super) fn read(&self, offset: usize, out: &mut [u8]) {
        let from = self.pointer(offset, out.len());
        // SAFETY: the range was checked; `out` is Rust's memory and so lies outside every mapping.
        // WHY UNSAFE: a slice of memory that others write must not be formed.
        unsafe { ptr::copy_nonoverlapping(from.as_ptr(), out.as_mut_ptr(), out.len()) }
    }

    /// The address of a range. Panics unless the range lies inside.
    pub(super) fn pointer(&self, offset: usize, bytes: usize) -> NonNull<u8> {
        let inside = offset
            .checked_add(bytes)
            .is_some_and(|end| end <= self.bytes);
        assert!(
            inside,
            "{bytes} bytes from {offset} of {} mapped ones",
            self.bytes
        );
        // SAFETY: the offset lies inside the mapping or at its end, by what was just asserted.
        // WHY UNSAFE: pointer arithmetic.
        unsafe { self.start.add(self.skip_bytes + offset) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: this is the range that `new` has mapped, and its only owner gives it up.
        // WHY UNSAFE: munmap takes an address.
        let unmapped = check(unsafe { libc::munmap(self.start.as_ptr().cast(), self.whole_bytes) });
        debug_assert!(unmapped.is_ok(), "munmap of our own pages");
    }
}
