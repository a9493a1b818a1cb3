//! Values alone in their cache lines.
//!
//! The allocator of glibc keeps freed small blocks per thread, so a block that one shard gets may
//! lie beside a block of another shard. If both shards write them for every request, each waits for
//! the other's cache. So small values that live as long as a connection or a channel, and that
//! every request writes, are wrapped in [`Apart`].

use std::ops::Deref;

/// A value that shares no cache line, and no pair of lines that the processor prefetches together,
/// with other values. In an `Rc` this covers the counts too.
#[derive(Debug)]
#[repr(align(128))]
pub struct Apart<T>(T);

impl<T> Apart<T> {
    /// Wraps a value.
    pub const fn new(value: T) -> Self {
        Self(value)
    }

    /// The value.
    pub fn into_inner(self) -> T {
        self.0
    }
}

impl<T> Deref for Apart<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}
