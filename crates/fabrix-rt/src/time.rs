//! The shard's clock: nanoseconds of CLOCK_MONOTONIC, as a type that cannot be mistaken for a
//! length.

use std::ops::{Add, Sub};
use std::time::Duration;

use crate::sys;

/// A moment: nanoseconds of CLOCK_MONOTONIC, which starts at some point before the process did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Nanos(pub u64);

impl Nanos {
    /// The last moment there is; a deadline that never comes.
    pub const MAX: Self = Self(u64::MAX);

    /// Reads the clock (about 20 ns). Tasks ask [`Shard::now`](crate::Shard::now) instead.
    pub fn now() -> Self {
        Self(sys::clock::monotonic_ns())
    }

    /// How long ago `earlier` was; zero when it has not come yet.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

/// Later by a length; stops at [`Nanos::MAX`].
impl Add<Duration> for Nanos {
    type Output = Self;
    fn add(self, length: Duration) -> Self {
        let ns = u64::try_from(length.as_nanos()).unwrap_or(u64::MAX);
        Self(self.0.saturating_add(ns))
    }
}

/// Earlier by a length; stops at the clock's zero.
impl Sub<Duration> for Nanos {
    type Output = Self;
    fn sub(self, length: Duration) -> Self {
        let ns = u64::try_from(length.as_nanos()).unwrap_or(u64::MAX);
        Self(self.0.saturating_sub(ns))
    }
}

/// The length between two moments; zero when the right one is later.
impl Sub for Nanos {
    type Output = Duration;
    fn sub(self, earlier: Self) -> Duration {
        self.since(earlier)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_never_wraps_around() {
        assert_eq!(Nanos::MAX + Duration::from_secs(1), Nanos::MAX);
        assert_eq!(Nanos(5) - Nanos(9), Duration::ZERO);
        assert_eq!(Nanos(5) - Duration::from_nanos(9), Nanos(0));
        assert_eq!(Nanos(9) - Nanos(5), Duration::from_nanos(4));
    }
}
