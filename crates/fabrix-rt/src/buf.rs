//! Buffers of one shard: page-aligned, counted without atomics, freed on drop.
//!
//! The size classes and the limit are decided here; the memory itself is `sys/arena.rs`. A [`Buf`]
//! keeps its arena alive, so it may outlive its shard. It cannot leave its thread.

use std::fmt;

pub(crate) use crate::sys::arena::Arena;
use crate::sys::arena::Chunk;

/// Memory of this shard's arena. A clone shares the same bytes; who wants to change them must be
/// alone.
///
/// The memory is used again without being cleared: what is in it is old. Whoever sends it has
/// filled it.
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

    /// Whether it was taken with zero bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bytes to read.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        self.chunk.bytes()
    }

    /// The bytes to change. Panics when somebody else holds a clone: the owner's mistake, never a
    /// peer's.
    #[inline(always)]
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        assert!(
            self.is_unique(),
            "a shared Buf was about to be changed: {} holders",
            self.chunk.holders()
        );
        self.chunk.bytes_mut()
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
