//! One shard's buffers: chunks of slabs, counted without atomics.
//!
//! Slabs are mapped when needed, up to a limit, and cut into chunks of one size class; a free chunk
//! waits in its class's list, whose memory was taken with the slab, so taking and dropping never
//! allocate.

use std::cell::RefCell;
use std::io;
use std::ptr::NonNull;
use std::rc::Rc;
use std::slice;

use super::mmap::Mapping;

/// The memory of one shard's buffers.
#[derive(Debug)]
pub(crate) struct Arena {
    tables: RefCell<Tables>,
}

#[derive(Debug)]
struct Tables {
    slabs: Vec<Mapping>,
    places: Vec<Place>,
    free: [Vec<u32>; CLASSES],
    limit_bytes: usize,
    mapped_bytes: usize,
    used_bytes: usize,
}

/// Where a chunk lies and who holds it.
#[derive(Debug)]
struct Place {
    start: NonNull<u8>,
    class: usize,
    holders: u32,
}

/// One holder's share of a chunk.
#[derive(Debug)]
pub(crate) struct Chunk {
    arena: Rc<Arena>,
    start: NonNull<u8>,
    place: u32,
    bytes: u32,
}

impl Arena {
    /// An arena that maps at most `limit_bytes`.
    pub(crate) fn new(limit_bytes: usize) -> Rc<Self> {
        let tables = Tables {
            slabs: Vec::new(),
            places: Vec::new(),
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
        let found = &mut tables.places[place as usize];
        debug_assert!(found.holders == 0, "a free chunk has no holder");
        found.holders = 1;
        let (start, class) = (found.start, found.class);
        tables.used_bytes += class_bytes(class);
        drop(tables);
        let bytes = u32::try_from(bytes).expect("at most 4 MiB");
        Some(Chunk {
            arena: Rc::clone(self),
            start,
            place,
            bytes,
        })
    }

    /// Bytes of all chunks in somebody's hands.
    pub(crate) fn used_bytes(&self) -> usize {
        self.tables.borrow().used_bytes
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
        let listed = self
            .places
            .iter()
            .filter(|place| place.class == class)
            .count();
        self.free[class].reserve(listed + count);
        for index in (0..count).rev() {
            let start = slab.pointer(index * chunk_bytes, chunk_bytes);
            let place = u32::try_from(self.places.len()).expect("4 KiB each, so 16 TiB of chunks");
            self.places.push(Place {
                start,
                class,
                holders: 0,
            });
            self.free[class].push(place);
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
    pub(crate) fn len(&self) -> usize {
        self.bytes as usize
    }

    /// The bytes.
    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: the chunk is mapped and initialised (the kernel's zeroes at first) as long as the
        // arena lives, which `self.arena` sees to. Nobody writes it while two hold it (`bytes_mut`
        // and `target` insist on being alone), and nobody else while one does.
        // WHY UNSAFE: the memory is mapped by hand to be page-aligned and counted without atomics.
        unsafe { slice::from_raw_parts(self.start.as_ptr(), self.len()) }
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
        unsafe { self.start.add(start) }
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
    pub(crate) fn holders(&self) -> u32 {
        self.arena.tables.borrow().places[self.place as usize].holders
    }
}

impl Clone for Chunk {
    fn clone(&self) -> Self {
        let mut tables = self.arena.tables.borrow_mut();
        let holders = &mut tables.places[self.place as usize].holders;
        *holders = holders
            .checked_add(1)
            .expect("four billion holders do not fit into memory");
        Self {
            arena: Rc::clone(&self.arena),
            start: self.start,
            place: self.place,
            bytes: self.bytes,
        }
    }
}

impl Drop for Chunk {
    fn drop(&mut self) {
        let mut tables = self.arena.tables.borrow_mut();
        let place = &mut tables.places[self.place as usize];
        place.holders -= 1;
        if place.holders == 0 {
            let class = place.class;
            tables.used_bytes -= class_bytes(class);
            tables.free[class].push(self.place); // reserved with the slab
        }
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
/// Smaller chunks are what idle connections hold, who fill little of them: what they do not touch is to cost nothing.
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
            assert_eq!(chunk.start.as_ptr().align_offset(4096), 0);
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
