//! A value alone in its cache lines.
//!
//! A small block of memory can be one that another thread gave back: an allocator that keeps such
//! blocks at hand for each thread, as glibc's does, then puts what two shards write for every
//! request side by side, and each waits for the other's caches. So what is small, lives as long as
//! a connection or a channel and is written for every request lies apart.

use std::ops::Deref;

/// A value that shares its cache lines with nothing, prefetched pairs of them included. In an `Rc`
/// that is true of the counts as well.
#[derive(Debug)]
#[repr(align(128))]
pub struct Apart<T>(T);

impl<T> Apart<T> {
    /// Puts it apart.
    pub const fn new(value: T) -> Self {
        Self(value)
    }

    /// What was apart.
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
