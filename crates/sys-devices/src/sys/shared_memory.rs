//! Memory that this process shares with another one: a mapped range of a file.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd};
use std::ptr;
use std::sync::atomic::{AtomicU16, Ordering};

use fabrix_rt::Lent;

use super::check;
use super::mapping::Mapping;

/// A range of a file, mapped for reading and writing by all threads. An offset outside the range is
/// the caller's mistake and panics.
#[derive(Debug)]
pub struct SharedMemory(Mapping);

impl SharedMemory {
    /// Maps a file from `offset` on: `bytes` bytes behind the first `skip_bytes`, and the rest of
    /// their `whole_bytes`, which stays out of reach.
    pub(crate) fn map_pages(
        file: &File,
        offset: u64,
        (skip_bytes, bytes, whole_bytes): (usize, usize, usize),
    ) -> io::Result<Self> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_SHARED | libc::MAP_NORESERVE;
        let range = (skip_bytes, whole_bytes);
        let mut mapping = Mapping::new(file.as_fd(), offset, range, (protection, flags))?;
        mapping.shorten(bytes);
        Ok(Self(mapping))
    }

    /// Bytes.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Never: an empty range is refused.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Copies out.
    pub fn read(&self, offset: usize, out: &mut [u8]) {
        self.0.read(offset, out);
    }

    /// Copies in.
    pub fn write(&self, offset: usize, bytes: &[u8]) {
        let to = self.0.pointer(offset, bytes.len());
        // SAFETY: the range was checked and is mapped for writing; `bytes` is Rust's memory and so
        // lies outside every mapping.
        // WHY UNSAFE: a slice of memory that others write must not be formed.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), to.as_ptr(), bytes.len()) }
    }

    /// Copies in what a disk has lent.
    pub fn write_lent(&self, offset: usize, lent: &Lent) {
        let to = self.0.pointer(offset, lent.len());
        // SAFETY: `to` was checked. `Lent::start` points to `lent.len()` bytes that stay mapped
        // while the loan lives. The two mappings do not overlap: the kernel has chosen both
        // addresses. WHY UNSAFE: slices of memory that others write must not be formed.
        unsafe { ptr::copy_nonoverlapping(lent.start().as_ptr(), to.as_ptr(), lent.len()) }
    }

    /// Reads two bytes at an even offset as one atomic word, sequentially consistent.
    pub fn load(&self, offset: usize) -> u16 {
        self.word(offset).load(Ordering::SeqCst)
    }

    /// Writes two bytes at an even offset as one atomic word, sequentially consistent.
    pub fn store(&self, offset: usize, value: u16) {
        self.word(offset).store(value, Ordering::SeqCst);
    }

    fn word(&self, offset: usize) -> &AtomicU16 {
        let word = self.0.pointer(offset, size_of::<AtomicU16>());
        assert!(
            word.as_ptr().addr().is_multiple_of(2),
            "a word at {offset} is not aligned"
        );
        // SAFETY: the word lies inside and is aligned; it is reached by this atomic and by raw
        // copies only, and the reference lives no longer than the mapping.
        // WHY UNSAFE: memory of the kernel's has no type.
        unsafe { AtomicU16::from_ptr(word.as_ptr().cast()) }
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
