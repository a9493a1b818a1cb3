//! The clock of Linux: CLOCK_MONOTONIC.

use crate::{Nanos, sys};

impl Nanos {
    /// Reads the clock, which takes about 20 ns. Tasks use [`Shard::now`](crate::Shard::now)
    /// instead.
    #[inline]
    pub fn now() -> Self {
        Self(sys::clock::monotonic_ns())
    }
}
