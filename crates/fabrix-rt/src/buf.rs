//! Buffers of one shard: page-aligned, counted without atomics, freed on drop.
//!
//! The memory itself is in `sys/arena.rs`. A [`Buf`] keeps its arena alive, so it may outlive its
//! shard. It cannot leave its thread.

use std::fmt;
use std::ptr::NonNull;

pub(crate) use crate::sys::arena::Arena;
use crate::sys::arena::Chunk;

/// A range of a shard's arena. Clones share the bytes; only a `Buf` without clones can change them.
///
/// A new buffer holds old bytes: memory is used again without being cleared. A task fills a buffer
/// before it sends it.
#[derive(Clone)]
pub struct Buf {
    chunk: Chunk,
}

impl Buf {
    pub(crate) fn new(chunk: Chunk) -> Self {
        Self { chunk }
    }

    /// Bytes, exactly as many as were asked for.
    #[inline]
    pub fn len(&self) -> usize {
        self.chunk.len()
    }

    /// Whether the buffer was taken with zero bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bytes to read.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        self.chunk.bytes()
    }

    /// The bytes to change. Panics if a clone exists, which is a mistake of the owner and never of
    /// a peer.
    #[inline(always)]
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        assert!(
            self.is_unique(),
            "a shared Buf was about to be changed: {} holders",
            self.chunk.holders()
        );
        self.chunk.bytes_mut()
    }

    /// Address of the first byte, for a device. The bytes stay mapped while this buffer exists.
    #[inline]
    pub fn start(&self) -> NonNull<u8> {
        self.chunk.source(0, 0)
    }

    /// Number of the slab that holds the buffer, as listeners of the shard know it
    /// ([`MemoryListener`](crate::MemoryListener)).
    pub fn slab(&self) -> u32 {
        self.chunk.slab()
    }

    /// Whether no clone exists.
    #[inline(always)]
    pub fn is_unique(&self) -> bool {
        self.chunk.holders() == 1
    }

    pub(crate) fn chunk(&self) -> &Chunk {
        &self.chunk
    }
}

impl fmt::Debug for Buf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Buf({} bytes, {} holders)",
            self.len(),
            self.chunk.holders()
        )
    }
}
