//! The memory of a RAM disk: one large mapping that all shards read and write at once.
//!
//! A region gives no reference to its bytes, only copies, comparisons, and addresses for the
//! kernel. Two shards may copy the same bytes at the same time. A torn block is then a legal
//! result: a disk promises nothing about commands in progress on the same block. A task that needs
//! stable bytes copies them. Offsets are checked. A wrong one is a mistake of ours, because the
//! command was checked before, and panics.

use std::io;
use std::ptr::NonNull;
use std::sync::{Arc, PoisonError, RwLock};

use crate::sys::mmap::{GIVE_BACK_BYTES, Mapping};

/// Whether to ask for transparent huge pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HugePages {
    /// Ask; go on without when there are none.
    Try,
    /// Do not ask.
    No,
}

/// Zeroed memory. The kernel gives each page at the first write.
#[derive(Debug)]
pub struct Region {
    mapping: Mapping,
    huge: bool,
    /// Number of [`Pinned`] values of this region. While it is not zero, no page is given back: a
    /// device may have its address.
    holders: RwLock<usize>,
}

impl Region {
    /// Maps `bytes` of zeroes without reserving them.
    ///
    /// Errors: `InvalidInput` for zero bytes; otherwise what mmap says, with the size.
    pub fn new(bytes: usize, huge_pages: HugePages) -> io::Result<Arc<Self>> {
        let mapping = Mapping::new(bytes)?;
        let huge = huge_pages == HugePages::Try && mapping.ask_for_huge_pages();
        Ok(Arc::new(Self {
            mapping,
            huge,
            holders: RwLock::new(0),
        }))
    }

    /// Bytes.
    pub fn len(&self) -> usize {
        self.mapping.len()
    }

    /// Never: an empty region is refused.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether the kernel was asked for huge pages and has them enabled.
    pub fn huge(&self) -> bool {
        self.huge
    }

    /// Copies out of the region.
    pub fn read(&self, offset: usize, out: &mut [u8]) {
        self.mapping.read(offset, out);
    }

    /// Copies into the region.
    pub fn write(&self, offset: usize, bytes: &[u8]) {
        self.mapping.write(offset, bytes);
    }

    /// Makes a range read as zeroes. A long range gives whole pages back to the kernel, unless the
    /// region is pinned.
    pub fn zero(&self, offset: usize, bytes: usize) {
        let long = bytes >= GIVE_BACK_BYTES;
        // The lock is never waited for: it is refused only while a pin begins or ends, and then the
        // pages stay.
        match long.then(|| self.holders.try_read()) {
            Some(Ok(holders)) if *holders == 0 => self.mapping.renew(offset, bytes),
            _ => self.mapping.clear(offset, bytes),
        }
    }

    /// Keeps all pages where they are as long as the value exists, for a device that knows their
    /// addresses. When this function returns, no page is being given back.
    pub fn pin(self: &Arc<Self>) -> Pinned {
        self.count_holders(|holders| holders + 1);
        Pinned(Arc::clone(self))
    }

    fn count_holders(&self, change: impl FnOnce(usize) -> usize) {
        let mut holders = self.holders.write().unwrap_or_else(PoisonError::into_inner);
        *holders = change(*holders);
    }

    /// Where the region first differs from `expected`, counted from `offset`.
    pub fn first_difference(&self, offset: usize, expected: &[u8]) -> Option<usize> {
        self.mapping.first_difference(offset, expected)
    }

    /// Maps all pages now, so that no write waits for one later. Errors: `OutOfMemory`, or what
    /// madvise(2) says.
    pub fn populate(&self) -> io::Result<()> {
        self.mapping.populate()
    }

    pub(crate) fn mapping(&self) -> &Mapping {
        &self.mapping
    }
}

/// A region none of whose pages is replaced or given back.
#[derive(Debug)]
pub struct Pinned(Arc<Region>);

impl Pinned {
    /// Address of the first byte. Shards may change the bytes at any time.
    pub fn start(&self) -> NonNull<u8> {
        self.0.mapping.start()
    }

    /// Bytes.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Never: an empty region is refused.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        self.0.count_holders(|holders| holders - 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_read_and_found_different_where_it_differs() {
        let region = Region::new(1 << 20, HugePages::Try).expect("a megabyte");
        region.write(4090, b"across a page");
        let mut out = [0; 13];
        region.read(4090, &mut out);
        assert_eq!(&out, b"across a page");
        assert_eq!(region.first_difference(4090, b"across a page"), None);
        assert_eq!(region.first_difference(4090, b"across a pagE"), Some(12));
        let mut far = vec![0; 100_000];
        far[90_000] = 1;
        assert_eq!(region.first_difference(8192, &far), Some(90_000));
    }

    #[test]
    fn zeroing_touches_exactly_the_range_however_long() {
        for (offset, bytes) in [
            (1, 10),
            (4096, 65_536),
            (5, 65_536),
            (3, 300_001),
            (0, 1 << 20),
        ] {
            let region = Region::new(1 << 20, HugePages::Try).expect("a megabyte");
            region.write(0, &vec![7; 1 << 20]);
            region.zero(offset, bytes);
            let mut expected = vec![7; 1 << 20];
            expected[offset..offset + bytes].fill(0);
            assert_eq!(
                region.first_difference(0, &expected),
                None,
                "{offset} {bytes}"
            );
        }
    }

    #[test]
    #[should_panic(expected = "of a region of 4096")]
    fn a_range_past_the_end_panics() {
        let region = Region::new(4096, HugePages::No).expect("a page");
        region.write(4090, &[0; 7]);
    }

    #[test]
    fn an_empty_region_is_refused() {
        assert_eq!(
            Region::new(0, HugePages::No).unwrap_err().kind(),
            io::ErrorKind::InvalidInput
        );
    }
}
