//! Anonymous memory: mapped, copied, zeroed, given back.
//!
//! No Rust reference into a [`Mapping`] ever exists, so the compiler assumes nothing about its
//! bytes while several threads copy them. A copy that races with a write reads unspecified bytes.
//! Callers accept that; `region.rs` says why.

use std::io;
use std::ptr::{self, NonNull};
use std::sync::atomic::AtomicU64;

use super::check;

/// A range of anonymous memory that starts at a 2 MiB boundary when it is that long.
#[derive(Debug)]
pub(crate) struct Mapping {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: a mapping is memory without an owner thread; all access is raw copies.
// WHY UNSAFE: a raw pointer is not Send by itself, and every shard serves the same RAM disk.
unsafe impl Send for Mapping {}
// SAFETY: as for Send; no `&u8` or `&mut u8` into the memory is ever formed.
// WHY UNSAFE: as for Send.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `bytes` of zeroes without reserving swap for them.
    pub(crate) fn new(bytes: usize) -> io::Result<Self> {
        if bytes == 0 {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "an empty mapping",
            ));
        }
        let whole = bytes.checked_next_multiple_of(PAGE_BYTES);
        let padded = whole.and_then(|whole| whole.checked_add(HUGE_BYTES));
        let Some((whole, padded)) = whole.zip(padded) else {
            return Err(io::Error::new(
                io::ErrorKind::OutOfMemory,
                format!("no room for {bytes} bytes"),
            ));
        };
        let start = map(padded).map_err(|error| {
            io::Error::new(error.kind(), format!("mapping {bytes} bytes: {error}"))
        })?;
        Ok(Self {
            start: trim(start, padded, whole),
            bytes,
        })
    }

    /// Bytes.
    pub(crate) fn len(&self) -> usize {
        self.bytes
    }

    /// Address of the first byte.
    pub(crate) fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// Panics unless the range lies inside.
    #[inline(always)]
    pub(crate) fn check(&self, offset: usize, bytes: usize) {
        let inside = offset
            .checked_add(bytes)
            .is_some_and(|end| end <= self.bytes);
        assert!(
            inside,
            "{bytes} bytes from {offset} of a region of {}",
            self.bytes
        );
    }

    /// Address of a range. Panics unless the range lies inside.
    #[inline(always)]
    pub(crate) fn pointer(&self, offset: usize, bytes: usize) -> NonNull<u8> {
        self.check(offset, bytes);
        // SAFETY: `check` has shown that the offset lies inside the mapping or at its end.
        // WHY UNSAFE: pointer arithmetic.
        unsafe { self.start.add(offset) }
    }

    /// Copies out.
    pub(crate) fn read(&self, offset: usize, out: &mut [u8]) {
        let from = self.pointer(offset, out.len());
        // SAFETY: the range was checked. `out` comes from Rust's allocator or stack, so it does not
        // overlap a mapping.
        // WHY UNSAFE: no slice of memory that other threads write may be formed.
        unsafe { ptr::copy_nonoverlapping(from.as_ptr(), out.as_mut_ptr(), out.len()) }
    }

    /// Copies in.
    pub(crate) fn write(&self, offset: usize, bytes: &[u8]) {
        let to = self.pointer(offset, bytes.len());
        // SAFETY: the range was checked. `bytes` comes from Rust's allocator or stack, so it does
        // not overlap a mapping. WHY UNSAFE: no slice of memory that other threads read may be
        // formed.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), to.as_ptr(), bytes.len()) }
    }

    /// Zeroes a range of at least [`GIVE_BACK_BYTES`] by giving its whole pages back to the kernel,
    /// which maps new zeroes at the next access.
    pub(crate) fn renew(&self, offset: usize, bytes: usize) {
        self.check(offset, bytes);
        let first_page = offset.next_multiple_of(PAGE_BYTES);
        let end = offset + bytes;
        let end_page = end / PAGE_BYTES * PAGE_BYTES;
        if !self.give_back(first_page, end_page - first_page) {
            return self.clear(offset, bytes);
        }
        self.clear(offset, first_page - offset);
        self.clear(end_page, end - end_page);
    }

    /// Index of the first byte that differs from `expected`.
    pub(crate) fn first_difference(&self, offset: usize, expected: &[u8]) -> Option<usize> {
        let mut start = 0;
        for piece in expected.chunks(COMPARE_BYTES) {
            let here = self.pointer(offset + start, piece.len());
            // SAFETY: both ranges are readable for the length given.
            // WHY UNSAFE: a slice of memory that other threads write must not be formed.
            let order =
                unsafe { libc::memcmp(here.as_ptr().cast(), piece.as_ptr().cast(), piece.len()) };
            if order != 0 {
                let mut copy = [0; COMPARE_BYTES];
                self.read(offset + start, &mut copy[..piece.len()]);
                // The copy is equal if another shard has changed the bytes meanwhile.
                if let Some(at) = piece.iter().zip(&copy).position(|(a, b)| a != b) {
                    return Some(start + at);
                }
            }
            start += piece.len();
        }
        None
    }

    /// Asks for transparent huge pages. False if the kernel has them disabled.
    pub(crate) fn ask_for_huge_pages(&self) -> bool {
        let mode = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled")
            .unwrap_or_default();
        !mode.contains("[never]")
            && !mode.is_empty()
            && self.advise(0, self.bytes, libc::MADV_HUGEPAGE).is_ok()
    }

    /// Maps all pages now.
    pub(crate) fn populate(&self) -> io::Result<()> {
        self.advise(0, self.bytes, libc::MADV_POPULATE_WRITE)
    }

    fn give_back(&self, offset: usize, bytes: usize) -> bool {
        self.advise(offset, bytes, libc::MADV_DONTNEED).is_ok()
    }

    fn advise(&self, offset: usize, bytes: usize, advice: libc::c_int) -> io::Result<()> {
        let start = self.pointer(offset, bytes);
        // SAFETY: the range lies inside this private mapping. None of the advices used here unmaps
        // it, and no reference into it exists whose bytes could change. WHY UNSAFE: madvise takes
        // an address.
        check(unsafe { libc::madvise(start.as_ptr().cast(), bytes, advice) })?;
        Ok(())
    }

    /// Writes zeroes to a range. Its pages stay.
    pub(crate) fn clear(&self, offset: usize, bytes: usize) {
        let to = self.pointer(offset, bytes);
        // SAFETY: the range was checked.
        // WHY UNSAFE: a slice of memory that other threads read must not be formed.
        unsafe { ptr::write_bytes(to.as_ptr(), 0, bytes) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        unmap(self.start, self.bytes.next_multiple_of(PAGE_BYTES));
    }
}

/// Atomic words, zero at first. The kernel gives each page at the first write.
#[derive(Debug)]
pub(crate) struct Words(Mapping);

impl Words {
    /// A list of `words` words. Errors: as of a mapping.
    pub(crate) fn new(words: usize) -> io::Result<Self> {
        let bytes = words.max(1).saturating_mul(size_of::<AtomicU64>());
        Mapping::new(bytes).map(Self)
    }

    /// One word. Panics behind the last one.
    pub(crate) fn get(&self, index: usize) -> &AtomicU64 {
        let offset = index.saturating_mul(size_of::<AtomicU64>());
        let word = self.0.pointer(offset, size_of::<AtomicU64>());
        // SAFETY: the range was checked, and a mapping starts at a page, so the word is aligned.
        // The mapping is private to this value, so every access to it is atomic. The reference
        // lives no longer than the mapping. WHY UNSAFE: mapped memory has no type.
        unsafe { AtomicU64::from_ptr(word.as_ptr().cast()) }
    }
}

fn map(bytes: usize) -> io::Result<NonNull<u8>> {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a new anonymous mapping at an address of the kernel's choice touches nothing that
    // exists.
    // WHY UNSAFE: std cannot map memory.
    let start = unsafe { libc::mmap(ptr::null_mut(), bytes, protection, flags, -1, 0) };
    if start == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    Ok(NonNull::new(start.cast()).expect("Linux maps nothing at address zero unless asked"))
}

/// Keeps `keep` bytes from the first 2 MiB boundary and gives back what lies around them.
fn trim(start: NonNull<u8>, bytes: usize, keep: usize) -> NonNull<u8> {
    let before = start.as_ptr().align_offset(HUGE_BYTES);
    assert!(before + keep <= bytes, "the padding is one huge page");
    // SAFETY: `before` is below the padding, so the sum lies inside the mapping.
    // WHY UNSAFE: pointer arithmetic.
    let aligned = unsafe { start.add(before) };
    unmap(start, before);
    // SAFETY: `before + keep <= bytes`.
    // WHY UNSAFE: pointer arithmetic.
    unmap(unsafe { aligned.add(keep) }, bytes - before - keep);
    aligned
}

fn unmap(start: NonNull<u8>, bytes: usize) {
    if bytes > 0 {
        // SAFETY: every caller owns exactly this range of whole pages and does not use it again.
        // WHY UNSAFE: munmap takes an address.
        let result = unsafe { libc::munmap(start.as_ptr().cast(), bytes) };
        debug_assert!(result == 0, "munmap of our own pages");
    }
}

/// Smallest page of all supported machines. Larger pages only make giving back coarser.
const PAGE_BYTES: usize = 4096;
const HUGE_BYTES: usize = 2 << 20;
/// Shortest range whose pages are worth giving back: below it, writing zeroes is faster than
/// changing page tables.
pub(crate) const GIVE_BACK_BYTES: usize = 64 << 10;
const COMPARE_BYTES: usize = 4096;
