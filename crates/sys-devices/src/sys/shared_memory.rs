//! Memory that this process shares with another one: a mapped range of a file.
//!
//! The other process may change every byte at any time. So no Rust reference into the memory ever
//! exists: all access is copies and single atomic words, and a copy is taken for nothing but bytes.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU16, Ordering};

use fabrix_rt::Lent;

use super::check;

/// A range of a file, mapped for reading and writing. The mapping begins at a page, up to
/// `skip_bytes` before the range.
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
    /// Maps `bytes` of a file from `offset + skip_bytes` on. `offset` is a multiple of the file's
    /// page size, and the caller has checked that the range lies inside the file. Access to pages
    /// that the other process cuts off later ends this process (SIGBUS).
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

    /// Limits access to the first `bytes`.
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

    /// Copies in what a disk has lent. Panics unless the range lies inside.
    pub(crate) fn write_lent(&self, offset: usize, lent: &Lent) {
        let to = self.pointer(offset, lent.len());
        // SAFETY: `to` was checked. `Lent::start` points to `lent.len()` bytes that stay mapped
        // while the loan lives. The two mappings do not overlap: the kernel has chosen both
        // addresses. WHY UNSAFE: slices of memory that others write must not be formed.
        unsafe { ptr::copy_nonoverlapping(lent.start().as_ptr(), to.as_ptr(), lent.len()) }
    }

    /// Reads a word, sequentially consistent. Panics unless it is inside and aligned.
    pub(crate) fn load(&self, offset: usize) -> u16 {
        self.word(offset).load(Ordering::SeqCst)
    }

    /// Writes a word, sequentially consistent. Panics unless it is inside and aligned.
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
        // SAFETY: this is the range that `new` has mapped, and its only owner gives it up.
        // WHY UNSAFE: munmap takes an address.
        let result = unsafe { libc::munmap(self.start.as_ptr().cast(), self.whole_bytes) };
        debug_assert!(result == 0, "munmap of our own pages");
    }
}

/// A new file of zeroes without a name, in memory. Seals keep anybody from changing its length.
pub(crate) fn new_file(bytes: u64) -> io::Result<File> {
    let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
    // SAFETY: the name is a literal that ends in a zero; the kernel only reads it.
    // WHY UNSAFE: std has no memfd_create.
    let descriptor = check(unsafe { libc::memfd_create(c"fabrix".as_ptr(), flags) })?;
    // SAFETY: the kernel has just given us this descriptor; nobody else owns it.
    // WHY UNSAFE: ownership of a number cannot be checked.
    let file = unsafe { File::from_raw_fd(descriptor) };
    file.set_len(bytes)?;
    let seals = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
    // SAFETY: takes three numbers and touches no memory.
    // WHY UNSAFE: std has no seals.
    check(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, seals) })?;
    Ok(file)
}
