//! Loans: ranges of a region that a disk lends to the tasks of one shard.

use std::fmt;
use std::io;
use std::ptr::NonNull;
use std::rc::Rc;
use std::sync::{Arc, OnceLock};

use crate::Apart;
use crate::region::{HugePages, Region};
use crate::slab::{Memory, Slabs};
use crate::sys::mmap::Mapping;

/// A region as one shard sees it. Loans count in its `Rc`, without atomics.
#[derive(Clone)]
pub struct LocalRegion {
    view: Rc<Apart<View>>,
}

/// What all clones of a [`LocalRegion`] share.
struct View {
    region: Arc<Region>,
    /// None: the view belongs to no shard.
    slab: Option<Known>,
}

/// A region that a shard's listeners know. The end of this value tells them that the shard no
/// longer uses the region.
struct Known {
    slabs: Rc<Slabs>,
    number: u32,
}

impl Drop for Known {
    fn drop(&mut self) {
        self.slabs.remove(self.number);
    }
}

impl Region {
    /// A view without a shard. No listener hears of it; [`Shard::view`](crate::Shard::view) makes
    /// one that listeners know.
    pub fn local(region: &Arc<Self>) -> LocalRegion {
        LocalRegion::new(Arc::clone(region), None)
    }
}

impl LocalRegion {
    /// A view whose region the listeners of `slabs` learn.
    pub(crate) fn known(region: &Arc<Region>, slabs: &Rc<Slabs>) -> Self {
        let number = slabs.add(Memory::Region(Arc::clone(region)));
        let slabs = Rc::clone(slabs);
        Self::new(Arc::clone(region), Some(Known { slabs, number }))
    }

    fn new(region: Arc<Region>, slab: Option<Known>) -> Self {
        Self {
            view: Rc::new(Apart::new(View { region, slab })),
        }
    }

    /// Lends a range. The region stays mapped while the loan lives. The bytes may change meanwhile.
    #[inline(always)]
    pub fn lend(&self, offset: usize, bytes: usize) -> Lent {
        self.view.region.mapping().check(offset, bytes);
        Lent {
            region: self.clone(),
            offset,
            bytes,
        }
    }

    /// The region itself.
    pub fn region(&self) -> &Region {
        &self.view.region
    }
}

impl fmt::Debug for LocalRegion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LocalRegion({} bytes)", self.region().len())
    }
}

/// A range of a region, lent by a disk to a task that sends or copies it.
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

    /// Number of the slab that holds the bytes, as listeners of this shard know it. None: the view
    /// belongs to no shard.
    pub fn slab(&self) -> Option<u32> {
        self.region.view.slab.as_ref().map(|known| known.number)
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
        self.region.region().read(self.offset, out);
    }

    /// Index of the first byte that differs from `expected`.
    pub fn first_difference(&self, expected: &[u8]) -> Option<usize> {
        assert!(
            expected.len() <= self.bytes,
            "{} bytes of {} lent ones",
            expected.len(),
            self.bytes
        );
        self.region.region().first_difference(self.offset, expected)
    }

    /// A part of the range.
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

    /// Whether both loans are of one view: either of them keeps the other's bytes mapped.
    pub(crate) fn keeps(&self, other: &Self) -> bool {
        Rc::ptr_eq(&self.region.view, &other.region.view)
    }

    /// The mapping, and the offset of the range in it.
    pub(crate) fn mapping(&self) -> (&Mapping, usize) {
        (self.region.region().mapping(), self.offset)
    }
}

impl fmt::Debug for Lent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Lent({} bytes from {})", self.bytes, self.offset)
    }
}

/// The zeroes of the process: one megabyte that nobody writes, so the kernel maps a single page for
/// all of it.
pub(crate) fn zeroes() -> io::Result<&'static Arc<Region>> {
    static ZEROES: OnceLock<Arc<Region>> = OnceLock::new();
    if let Some(region) = ZEROES.get() {
        return Ok(region);
    }
    let region = Region::new(ZEROES_BYTES, HugePages::No)?;
    Ok(ZEROES.get_or_init(|| region))
}

pub(crate) const ZEROES_BYTES: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[should_panic(expected = "of a region of 4096")]
    fn a_range_that_overflows_panics() {
        let region = Region::new(4096, HugePages::No).expect("a page");
        Region::local(&region).lend(usize::MAX, 2);
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
