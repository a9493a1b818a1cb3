//! Memory that another process has too: a range of its file, mapped.
//!
//! No Rust reference into it ever exists: the other process may change every byte at any time, so
//! all access is copies and single atomic words, and what a copy reads is taken for nothing but
//! bytes.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU16, Ordering};

use super::mmap::Mapping;

/// A range of a file, mapped for reading and writing. The pages before its start belong to it and
/// are not looked at.
#[derive(Debug)]
pub(crate) struct SharedMapping {
    start: NonNull<u8>,
    whole_bytes: usize,
    skip_bytes: usize,
    bytes: usize,
}

// SAFETY: the mapping is only memory; all access goes through raw copies and atomics, which any
// thread may make.
// WHY UNSAFE: a raw pointer is not Send by itself, and the thread that maps is not the one that
// copies.
unsafe impl Send for SharedMapping {}
// SAFETY: as for Send; no `&u8` or `&mut u8` into the memory is ever formed.
// WHY UNSAFE: as for Send.
unsafe impl Sync for SharedMapping {}

impl SharedMapping {
    /// Maps `bytes` of a file from `skip_bytes` behind `offset`, which is a multiple of the file's
    /// pages. All of it lies inside the file, says the caller; what is cut off later cannot be
    /// reached without dying.
    pub(crate) fn new(
        file: BorrowedFd<'_>,
        offset: u64,
        skip_bytes: usize,
        bytes: usize,
    ) -> io::Result<Self> {
        let invalid = || io::Error::from_raw_os_error(libc::EINVAL);
        let whole_bytes = skip_bytes.checked_add(bytes).ok_or_else(invalid)?;
        let offset = libc::off_t::try_from(offset).map_err(|_| invalid())?;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_SHARED | libc::MAP_NORESERVE;
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

    /// Puts what is behind the first `bytes` out of reach.
    pub(crate) fn shorten(&mut self, bytes: usize) {
        self.bytes = self.bytes.min(bytes);
    }

    /// Bytes.
    pub(crate) fn len(&self) -> usize {
        self.bytes
    }

    /// Copies out. Panics unless the range lies inside.
    pub(crate) fn read(&self, offset: usize, out: &mut [u8]) {
        let from = self.pointer(offset, out.len());
        // SAFETY: the range was checked; `out` is Rust's memory and so lies outside every mapping.
        // WHY UNSAFE: a slice of memory that others write must not be formed.
        unsafe { ptr::copy_nonoverlapping(from.as_ptr(), out.as_mut_ptr(), out.len()) }
    }

    /// Copies in. Panics unless the range lies inside.
    pub(crate) fn write(&self, offset: usize, bytes: &[u8]) {
        let to = self.pointer(offset, bytes.len());
        // SAFETY: as for `read`.
        // WHY UNSAFE: as for `read`.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), to.as_ptr(), bytes.len()) }
    }

    /// Copies in what lies in memory of our own that others may write too. Panics unless both
    /// ranges lie inside.
    pub(crate) fn write_mapping(&self, offset: usize, source: (&Mapping, usize), bytes: usize) {
        let to = self.pointer(offset, bytes);
        let from = source.0.pointer(source.1, bytes);
        // SAFETY: both ranges were checked, and two mappings do not overlap: neither is at a fixed
        // address.
        // WHY UNSAFE: slices of memory that others write must not be formed.
        unsafe { ptr::copy_nonoverlapping(from.as_ptr(), to.as_ptr(), bytes) }
    }

    /// Reads a word, in order with everything before and behind. Panics unless it is inside and
    /// aligned.
    pub(crate) fn load(&self, offset: usize) -> u16 {
        self.word(offset).load(Ordering::SeqCst)
    }

    /// Writes a word, in order with everything before and behind. Panics unless it is inside and
    /// aligned.
    pub(crate) fn store(&self, offset: usize, value: u16) {
        self.word(offset).store(value, Ordering::SeqCst);
    }

    fn word(&self, offset: usize) -> &AtomicU16 {
        let word = self.pointer(offset, size_of::<AtomicU16>());
        assert!(
            word.as_ptr().addr().is_multiple_of(2),
            "a word at {offset} is not aligned"
        );
        // SAFETY: the word lies inside and is aligned; it is reached by this atomic and by raw
        // copies only, and the reference lives no longer than the mapping.
        // WHY UNSAFE: memory of the kernel's has no type.
        unsafe { AtomicU16::from_ptr(word.as_ptr().cast()) }
    }

    fn pointer(&self, offset: usize, bytes: usize) -> NonNull<u8> {
        let inside = offset
            .checked_add(bytes)
            .is_some_and(|end| end <= self.bytes);
        assert!(
            inside,
            "{bytes} bytes from {offset} of shared memory of {}",
            self.bytes
        );
        // SAFETY: the offset lies inside the mapping or at its end, by what was just asserted.
        // WHY UNSAFE: pointer arithmetic.
        unsafe { self.start.add(self.skip_bytes + offset) }
    }
}

impl Drop for SharedMapping {
    fn drop(&mut self) {
        // SAFETY: exactly what was mapped, by its only owner.
        // WHY UNSAFE: munmap takes an address.
        let result = unsafe { libc::munmap(self.start.as_ptr().cast(), self.whole_bytes) };
        debug_assert!(result == 0, "munmap of our own pages");
    }
}
