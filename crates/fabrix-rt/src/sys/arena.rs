//! One shard's buffers: chunks of slabs, counted without atomics.
//!
//! Slabs are mapped when needed, up to a limit, and cut into chunks of one size class; a free chunk
//! waits in its class's list, whose memory was taken with the slab, so taking and dropping never
//! allocate. A chunk in somebody's hands is one pointer, because requests carry it from hand to
//! hand.

use std::cell::{Cell, RefCell};
use std::io;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;
use std::rc::Rc;
use std::slice;

use super::mmap::Mapping;

/// The memory of one shard's buffers.
pub(crate) struct Arena {
    tables: RefCell<Tables>,
}

struct Tables {
    slabs: Vec<Mapping>,
    /// How many chunks were cut of each class.
    chunks: [usize; CLASSES],
    free: [Vec<Rc<Place>>; CLASSES],
    limit_bytes: usize,
    mapped_bytes: usize,
    used_bytes: usize,
}

/// Where a chunk lies, and how much of it was asked for. Who holds it holds this: the list of free
/// chunks, or the [`Chunk`]s of those who have taken it.
struct Place {
    start: NonNull<u8>,
    class: usize,
    bytes: Cell<u32>,
    /// While the chunk is in somebody's hands, its memory stays mapped.
    arena: Cell<Option<Rc<Arena>>>,
}

/// One holder's share of a chunk.
pub(crate) struct Chunk {
    place: ManuallyDrop<Rc<Place>>,
}

impl Arena {
    /// An arena that maps at most `limit_bytes`.
    pub(crate) fn new(limit_bytes: usize) -> Rc<Self> {
        let tables = Tables {
            slabs: Vec::new(),
            chunks: [0; CLASSES],
            free: Default::default(),
            limit_bytes,
            mapped_bytes: 0,
            used_bytes: 0,
        };
        Rc::new(Self {
            tables: RefCell::new(tables),
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
            tables.grow(class);
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

    /// A chunk that nobody holds any more.
    fn take_back(&self, place: Rc<Place>) {
        let mut tables = self.tables.borrow_mut();
        tables.used_bytes -= class_bytes(place.class);
        tables.free[place.class].push(place); // reserved with the slab
    }
}

impl Tables {
    /// Maps one more slab for a class and lists its chunks. Without memory the class stays empty.
    fn grow(&mut self, class: usize) {
        let chunk_bytes = class_bytes(class);
        let slab_bytes = chunk_bytes.max(SLAB_BYTES);
        if self.limit_bytes - self.mapped_bytes < slab_bytes {
            return;
        }
        let Ok(slab) = self.map(slab_bytes, chunk_bytes) else {
            return;
        };
        let count = slab_bytes / chunk_bytes;
        self.chunks[class] += count;
        self.free[class].reserve(self.chunks[class]);
        for index in (0..count).rev() {
            let place = Place {
                start: slab.pointer(index * chunk_bytes, chunk_bytes),
                class,
                bytes: Cell::new(0),
                arena: Cell::new(None),
            };
            self.free[class].push(Rc::new(place));
        }
        self.slabs.push(slab);
    }

    fn map(&mut self, slab_bytes: usize, chunk_bytes: usize) -> io::Result<Mapping> {
        let slab = Mapping::new(slab_bytes)?;
        if chunk_bytes >= HUGE_FROM_BYTES {
            slab.ask_for_huge_pages();
        }
        self.mapped_bytes += slab_bytes;
        Ok(slab)
    }
}

impl Chunk {
    /// Bytes asked for.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.place.bytes.get() as usize
    }

    /// The bytes.
    #[inline]
    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: the chunk is mapped and initialised (the kernel's zeroes at first) as long as the
        // arena lives, which `Place::arena` sees to. Nobody writes it while two hold it
        // (`bytes_mut` and `target` insist on being alone), and nobody else while one does.
        // WHY UNSAFE: the memory is mapped by hand to be page-aligned and counted without atomics.
        unsafe { slice::from_raw_parts(self.place.start.as_ptr(), self.len()) }
    }

    /// The bytes, to be changed. Panics when shared.
    #[inline(always)]
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        let start = self.target(0, self.len());
        // SAFETY: as in `bytes`; `target` has shown that this is the only holder, and `&mut self`
        // that it is used once at a time.
        // WHY UNSAFE: as in `bytes`.
        unsafe { slice::from_raw_parts_mut(start.as_ptr(), self.len()) }
    }

    /// Where somebody may read `bytes` from `start`. Panics outside the chunk.
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

    /// Where the only holder may write. Panics outside the chunk, and when it is shared.
    #[inline(always)]
    pub(crate) fn target(&self, start: usize, bytes: usize) -> NonNull<u8> {
        assert!(
            self.holders() == 1,
            "a Buf to be filled is held by {}",
            self.holders()
        );
        self.source(start, bytes)
    }

    /// How many hold it.
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
        // SAFETY: nobody looks at the field after `drop`.
        // WHY UNSAFE: the last holder gives its place back, which ends in the list of free chunks
        // and not here.
        let place = unsafe { ManuallyDrop::take(&mut self.place) };
        if Rc::strong_count(&place) == 1 {
            give_back(place);
        }
    }
}

/// The last holder lets go.
#[inline(never)]
fn give_back(place: Rc<Place>) {
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
/// Smaller chunks are what idle connections hold, who fill little of them: what they do not touch
/// is to cost nothing.
const HUGE_FROM_BYTES: usize = 64 << 10;
const _: () = assert!(CHUNK_MIN_BYTES << (CLASSES - 1) == CHUNK_MAX_BYTES);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_is_aligned_and_as_long_as_asked() {
        let arena = Arena::new(64 << 20);
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
        let arena = Arena::new(16 << 20);
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
        let arena = Arena::new(4 << 20);
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
        let arena = Arena::new(4 << 20);
        let mut chunk = arena.take(10).expect("room");
        drop(arena);
        chunk.bytes_mut().copy_from_slice(b"0123456789");
        assert_eq!(chunk.clone().bytes(), b"0123456789");
    }

    #[test]
    #[should_panic(expected = "held by 2")]
    fn a_shared_buffer_is_not_changed() {
        let arena = Arena::new(4 << 20);
        let mut chunk = arena.take(10).expect("room");
        let _other = chunk.clone();
        chunk.bytes_mut();
    }
}
