//! The memory of a RAM disk: one large mapping that all shards read and write at once.
//!
//! Nobody ever gets a reference into it, only copies, raw vectors for the kernel, and comparisons.
//! Two shards may copy the same bytes at the same time, as two guests' CPUs may in a virtual
//! machine monitor, which treats its guests' memory the same way: the disk promises nothing about
//! commands in progress on the same block, so a torn block is a legal answer, and as no Rust
//! reference exists nothing is ever assumed about the bytes. Whoever needs bytes that stay as they
//! are copies them. Offsets are checked; a wrong one is our own mistake (the command was checked
//! before) and panics.

use std::fmt;
use std::io;
use std::ptr::NonNull;
use std::rc::Rc;
use std::sync::{Arc, OnceLock};

use crate::Apart;
use crate::sys::mmap::Mapping;

/// Whether to ask for transparent huge pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HugePages {
    /// Ask; go on without when there are none.
    Try,
    /// Do not ask.
    No,
}

/// Zeroed memory, given by the kernel page by page when first written.
#[derive(Debug)]
pub struct Region {
    mapping: Mapping,
    huge: bool,
}

impl Region {
    /// Maps `bytes` of zeroes without reserving them.
    ///
    /// Errors: `InvalidInput` for zero bytes; otherwise what mmap says, with the size.
    pub fn new(bytes: usize, huge_pages: HugePages) -> io::Result<Arc<Self>> {
        let mapping = Mapping::new(bytes)?;
        let huge = huge_pages == HugePages::Try && mapping.ask_for_huge_pages();
        Ok(Arc::new(Self { mapping, huge }))
    }

    /// This shard's view of a region: lends without atomics. One per channel.
    pub fn local(region: &Arc<Self>) -> LocalRegion {
        LocalRegion {
            region: Rc::new(Apart::new(Arc::clone(region))),
        }
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

    /// Makes a range read as zeroes; whole pages of long ranges go back to the kernel.
    pub fn zero(&self, offset: usize, bytes: usize) {
        self.mapping.zero(offset, bytes);
    }

    /// Where the region first differs from `expected`, counted from `offset`.
    pub fn first_difference(&self, offset: usize, expected: &[u8]) -> Option<usize> {
        self.mapping.first_difference(offset, expected)
    }

    /// Takes all pages now, so that no write waits for one later. Errors: `OutOfMemory`, or what
    /// madvise says.
    pub fn populate(&self) -> io::Result<()> {
        self.mapping.populate()
    }

    pub(crate) fn mapping(&self) -> &Mapping {
        &self.mapping
    }
}

/// One shard's view of a [`Region`]. Every loan counts in the Rc, without atomics; the Arc counts
/// once per view.
#[derive(Clone, Debug)]
pub struct LocalRegion {
    region: Rc<Apart<Arc<Region>>>,
}

impl LocalRegion {
    /// Lends a range; the region stays mapped as long as the loan lives, the bytes may change
    /// meanwhile.
    #[inline(always)]
    pub fn lend(&self, offset: usize, bytes: usize) -> Lent {
        self.region.mapping.check(offset, bytes);
        Lent {
            region: self.clone(),
            offset,
            bytes,
        }
    }

    /// The region itself.
    pub fn region(&self) -> &Region {
        &self.region
    }
}

/// Bytes of a region, lent to whoever sends or copies them.
#[derive(Clone)]
pub struct Lent {
    region: LocalRegion,
    offset: usize,
    bytes: usize,
}

impl Lent {
    /// Bytes.
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Address of the first byte. The bytes stay mapped while this loan lives. Other threads may
    /// change them at any time, so the bytes are copied, and no reference to them is formed.
    pub fn start(&self) -> NonNull<u8> {
        self.mapping().0.pointer(self.offset, self.bytes)
    }

    /// Copies the first `out.len()` bytes.
    pub fn copy_to(&self, out: &mut [u8]) {
        assert!(
            out.len() <= self.bytes,
            "{} bytes of {} lent ones",
            out.len(),
            self.bytes
        );
        self.region.region.read(self.offset, out);
    }

    /// Where these bytes first differ from the first ones of `expected`.
    pub fn first_difference(&self, expected: &[u8]) -> Option<usize> {
        assert!(
            expected.len() <= self.bytes,
            "{} bytes of {} lent ones",
            expected.len(),
            self.bytes
        );
        self.region.region.first_difference(self.offset, expected)
    }

    /// A part of it.
    #[inline(always)]
    pub fn slice(&self, start: usize, bytes: usize) -> Self {
        let inside = start
            .checked_add(bytes)
            .is_some_and(|end| end <= self.bytes);
        assert!(
            inside,
            "{bytes} bytes from {start} of {} lent ones",
            self.bytes
        );
        Self {
            region: self.region.clone(),
            offset: self.offset + start,
            bytes,
        }
    }

    /// Whether what keeps this mapped keeps the other mapped too.
    pub(crate) fn keeps(&self, other: &Self) -> bool {
        Rc::ptr_eq(&self.region.region, &other.region.region)
    }

    pub(crate) fn mapping(&self) -> (&Mapping, usize) {
        (self.region.region.mapping(), self.offset)
    }
}

impl fmt::Debug for Lent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Lent({} bytes from {})", self.bytes, self.offset)
    }
}

/// The zeroes of the process: one megabyte that nobody writes, so the kernel keeps a single page
/// for all of it.
pub(crate) fn zeroes() -> io::Result<LocalRegion> {
    static ZEROES: OnceLock<Arc<Region>> = OnceLock::new();
    if let Some(region) = ZEROES.get() {
        return Ok(Region::local(region));
    }
    let region = Region::new(ZEROES_BYTES, HugePages::No)?;
    Ok(Region::local(ZEROES.get_or_init(|| region)))
}

pub(crate) const ZEROES_BYTES: usize = 1 << 20;

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
    #[should_panic(expected = "of a region of 4096")]
    fn a_range_that_overflows_panics() {
        let region = Region::new(4096, HugePages::No).expect("a page");
        Region::local(&region).lend(usize::MAX, 2);
    }

    #[test]
    fn an_empty_region_is_refused() {
        assert_eq!(
            Region::new(0, HugePages::No).unwrap_err().kind(),
            io::ErrorKind::InvalidInput
        );
    }

    #[test]
    fn a_slice_of_a_loan_keeps_the_region() {
        let region = Region::new(8192, HugePages::No).expect("two pages");
        region.write(100, b"abcdef");
        let lent = Region::local(&region).lend(100, 6).slice(2, 3);
        drop(region);
        let mut out = [0; 3];
        lent.copy_to(&mut out);
        assert_eq!(&out, b"cde");
        assert_eq!(lent.first_difference(b"cdf"), Some(2));
    }
}
