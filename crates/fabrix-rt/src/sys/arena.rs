//! The buffers of one shard: chunks of slabs, counted without atomics.
//!
//! An arena maps a slab when a size class has no free chunk, up to a limit, and cuts it into chunks
//! of that class. It gives no slab back before its own end. Free chunks wait in the list of their
//! class. The memory of the list was taken with the slab, so taking and dropping a chunk never
//! allocates. A chunk in use is one pointer, because requests carry it along.

use std::cell::{Cell, RefCell};
use std::mem::ManuallyDrop;
use std::ptr::NonNull;
use std::rc::Rc;
use std::slice;

use super::mmap::Mapping;
use crate::slab::{Memory, Slabs};

/// The memory of one shard's buffers.
pub(crate) struct Arena {
    tables: RefCell<Tables>,
    slabs: Rc<Slabs>,
}

struct Tables {
    /// The mapped slabs and their numbers.
    mapped: Vec<(u32, Rc<Mapping>)>,
    /// How many chunks were cut of each class.
    chunks: [usize; CLASSES],
    free: [Vec<Rc<Allocation>>; CLASSES],
    limit_bytes: usize,
    mapped_bytes: usize,
    used_bytes: usize,
}

/// The place of a chunk. The list of free chunks holds it, or the [`Chunk`]s that share it.
struct Allocation {
    start: NonNull<u8>,
    class: usize,
    /// Bytes that were asked for.
    bytes: Cell<u32>,
    /// Number of the slab.
    slab: u32,
    /// Keeps the slab mapped while the chunk is in use. None while the chunk is free.
    arena: Cell<Option<Rc<Arena>>>,
}

/// One holder's share of a chunk.
pub(crate) struct Chunk {
    place: ManuallyDrop<Rc<Allocation>>,
}

impl Arena {
    /// An arena that maps at most `limit_bytes`.
    pub(crate) fn new(limit_bytes: usize, slabs: Rc<Slabs>) -> Rc<Self> {
        let tables = Tables {
            mapped: Vec::new(),
            chunks: [0; CLASSES],
            free: Default::default(),
            limit_bytes,
            mapped_bytes: 0,
            used_bytes: 0,
        };
        Rc::new(Self {
            tables: RefCell::new(tables),
            slabs,
        })
    }

    /// Takes `bytes`, at most 4 MiB. None: too long, or the limit is reached.
    pub(crate) fn take(self: &Rc<Self>, bytes: usize) -> Option<Chunk> {
        if bytes > CHUNK_MAX_BYTES {
            return None;
        }
        let class = class_of(bytes);
        let mut tables = self.tables.borrow_mut();
        if tables.free[class].is_empty() {
            drop(tables);
            self.grow(class);
            tables = self.tables.borrow_mut();
        }
        // A larger chunk serves as well when the limit leaves nothing else.
        let place = (class..CLASSES).find_map(|class| tables.free[class].pop())?;
        tables.used_bytes += class_bytes(place.class);
        place
            .bytes
            .set(u32::try_from(bytes).expect("at most 4 MiB"));
        place.arena.set(Some(Rc::clone(self)));
        Some(Chunk {
            place: ManuallyDrop::new(place),
        })
    }

    /// Bytes of all chunks in somebody's hands.
    pub(crate) fn used_bytes(&self) -> usize {
        self.tables.borrow().used_bytes
    }

    /// Maps one more slab for a class, tells the listeners, and lists its chunks. Without memory
    /// the class stays empty.
    #[cold]
    fn grow(&self, class: usize) {
        let slab = self.tables.borrow_mut().map(class);
        let Some(slab) = slab else { return };
        let number = self.slabs.add(Memory::Arena(Rc::clone(&slab)));
        self.tables.borrow_mut().cut(slab, number, class);
    }

    /// Lists a chunk as free: its last holder has dropped it.
    fn take_back(&self, place: Rc<Allocation>) {
        let mut tables = self.tables.borrow_mut();
        tables.used_bytes -= class_bytes(place.class);
        tables.free[place.class].push(place); // reserved with the slab
    }
}

impl Tables {
    /// Maps a slab for chunks of a class. None: the limit is reached, or there is no memory.
    fn map(&mut self, class: usize) -> Option<Rc<Mapping>> {
        let chunk_bytes = class_bytes(class);
        let slab_bytes = chunk_bytes.max(SLAB_BYTES);
        if self.limit_bytes - self.mapped_bytes < slab_bytes {
            return None;
        }
        let slab = Mapping::new(slab_bytes).ok()?;
        if chunk_bytes >= HUGE_FROM_BYTES {
            slab.ask_for_huge_pages();
        }
        self.mapped_bytes += slab_bytes;
        Some(Rc::new(slab))
    }

    /// Lists the chunks of a new slab as free.
    fn cut(&mut self, slab: Rc<Mapping>, number: u32, class: usize) {
        let chunk_bytes = class_bytes(class);
        let count = slab.len() / chunk_bytes;
        self.chunks[class] += count;
        self.free[class].reserve(self.chunks[class]);
        for index in (0..count).rev() {
            let place = Allocation {
                start: slab.pointer(index * chunk_bytes, chunk_bytes),
                class,
                bytes: Cell::new(0),
                slab: number,
                arena: Cell::new(None),
            };
            self.free[class].push(Rc::new(place));
        }
        self.mapped.push((number, slab));
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        for (number, _) in &self.tables.get_mut().mapped {
            self.slabs.remove(*number);
        }
    }
}

impl Chunk {
    /// Number of the slab that holds the chunk.
    pub(crate) fn slab(&self) -> u32 {
        self.place.slab
    }

    /// Bytes asked for.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.place.bytes.get() as usize
    }

    /// The bytes.
    #[inline]
    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: `Allocation::arena` keeps the arena alive while the chunk is in use, and the
        // arena keeps its slabs mapped until its own end. The bytes are initialised: the kernel
        // maps zeroes. All writers go through `bytes_mut` or `target`, which panic unless this is
        // the only holder, so nobody writes while a shared slice exists. WHY UNSAFE: the memory is
        // mapped by hand, page-aligned, and counted without atomics.
        unsafe { slice::from_raw_parts(self.place.start.as_ptr(), self.len()) }
    }

    /// The bytes, to be changed. Panics when shared.
    #[inline(always)]
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        let start = self.target(0, self.len());
        // SAFETY: the bytes are mapped and initialised, as `bytes` says. `target` has shown that
        // this is the only holder, and `&mut self` allows no second slice of it. WHY UNSAFE: as in
        // `bytes`.
        unsafe { slice::from_raw_parts_mut(start.as_ptr(), self.len()) }
    }

    /// Address of a range that is to be read. Panics outside the chunk.
    #[inline(always)]
    pub(crate) fn source(&self, start: usize, bytes: usize) -> NonNull<u8> {
        let inside = start
            .checked_add(bytes)
            .is_some_and(|end| end <= self.len());
        assert!(
            inside,
            "{bytes} bytes from {start} of a Buf of {}",
            self.len()
        );
        // SAFETY: the offset lies inside the chunk or at its end.
        // WHY UNSAFE: pointer arithmetic.
        unsafe { self.place.start.add(start) }
    }

    /// Address of a range that the only holder is to write. Panics outside the chunk, and if the
    /// chunk has other holders.
    #[inline(always)]
    pub(crate) fn target(&self, start: usize, bytes: usize) -> NonNull<u8> {
        assert!(
            self.holders() == 1,
            "a Buf to be filled is held by {}",
            self.holders()
        );
        self.source(start, bytes)
    }

    /// Number of holders.
    #[inline(always)]
    pub(crate) fn holders(&self) -> usize {
        Rc::strong_count(&self.place)
    }
}

impl Clone for Chunk {
    #[inline(always)]
    fn clone(&self) -> Self {
        Self {
            place: self.place.clone(),
        }
    }
}

impl Drop for Chunk {
    #[inline(always)]
    fn drop(&mut self) {
        // SAFETY: `drop` runs once, and nothing reads the field after it. WHY UNSAFE: the place of
        // the last holder moves to the list of free chunks instead of being dropped here.
        let place = unsafe { ManuallyDrop::take(&mut self.place) };
        if Rc::strong_count(&place) == 1 {
            give_back(place);
        }
    }
}

/// Gives the place of a chunk without holders back to its arena.
#[inline(never)]
fn give_back(place: Rc<Allocation>) {
    if let Some(arena) = place.arena.take() {
        arena.take_back(place);
    }
}

fn class_of(bytes: usize) -> usize {
    let pages = bytes.div_ceil(CHUNK_MIN_BYTES).max(1).next_power_of_two();
    pages.trailing_zeros() as usize
}

fn class_bytes(class: usize) -> usize {
    CHUNK_MIN_BYTES << class
}

const CHUNK_MIN_BYTES: usize = 4 << 10;
const CHUNK_MAX_BYTES: usize = 4 << 20;
const CLASSES: usize = 11;
const SLAB_BYTES: usize = 2 << 20;
/// Smallest chunks whose slabs ask for huge pages. Idle connections hold smaller chunks and touch
/// little of them, so those slabs stay in small pages.
const HUGE_FROM_BYTES: usize = 64 << 10;
const _: () = assert!(CHUNK_MIN_BYTES << (CLASSES - 1) == CHUNK_MAX_BYTES);

#[cfg(test)]
mod tests {
    use super::*;

    fn arena(limit_bytes: usize) -> Rc<Arena> {
        Arena::new(limit_bytes, Slabs::new())
    }

    #[test]
    fn a_buffer_is_aligned_and_as_long_as_asked() {
        let arena = arena(64 << 20);
        for bytes in [0, 1, 4096, 4097, 100_000, CHUNK_MAX_BYTES] {
            let chunk = arena.take(bytes).expect("room");
            assert_eq!(chunk.len(), bytes);
            assert_eq!(chunk.place.start.as_ptr().align_offset(4096), 0);
            assert_eq!(chunk.bytes().len(), bytes);
        }
        assert!(arena.take(CHUNK_MAX_BYTES + 1).is_none());
        assert_eq!(arena.used_bytes(), 0);
    }

    #[test]
    fn two_buffers_never_overlap() {
        let arena = arena(16 << 20);
        let mut chunks: Vec<_> = (0..1000).map(|_| arena.take(4096).expect("room")).collect();
        for (index, chunk) in chunks.iter_mut().enumerate() {
            chunk
                .bytes_mut()
                .fill(u8::try_from(index % 251).expect("below 251"));
        }
        for (index, chunk) in chunks.iter().enumerate() {
            assert!(
                chunk
                    .bytes()
                    .iter()
                    .all(|byte| usize::from(*byte) == index % 251)
            );
        }
    }

    #[test]
    fn the_limit_is_kept_and_larger_chunks_help_out() {
        let arena = arena(4 << 20);
        let large = arena.take(4 << 20).expect("the whole limit");
        assert!(arena.take(1).is_none());
        drop(large);
        let small = arena.take(1).expect("the large chunk");
        assert_eq!(arena.used_bytes(), 4 << 20);
        drop(small);
        assert_eq!(arena.used_bytes(), 0);
    }

    #[test]
    fn a_buffer_outlives_its_arena() {
        let arena = arena(4 << 20);
        let mut chunk = arena.take(10).expect("room");
        drop(arena);
        chunk.bytes_mut().copy_from_slice(b"0123456789");
        assert_eq!(chunk.clone().bytes(), b"0123456789");
    }

    #[test]
    #[should_panic(expected = "held by 2")]
    fn a_shared_buffer_is_not_changed() {
        let arena = arena(4 << 20);
        let mut chunk = arena.take(10).expect("room");
        let _other = chunk.clone();
        chunk.bytes_mut();
    }
}
