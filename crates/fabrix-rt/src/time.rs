//! Points in time of a shard, as a type of their own beside lengths of time.

use std::ops::{Add, Sub};
use std::time::Duration;

/// A point in time: nanoseconds since some point before the start of the process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Nanos(pub u64);

impl Nanos {
    /// The latest point in time: a deadline that never comes.
    pub const MAX: Self = Self(u64::MAX);

    /// Time from `earlier` to this point; zero if `earlier` is later.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

/// Adds a length of time, saturating at [`Nanos::MAX`].
impl Add<Duration> for Nanos {
    type Output = Self;
    fn add(self, length: Duration) -> Self {
        let ns = u64::try_from(length.as_nanos()).unwrap_or(u64::MAX);
        Self(self.0.saturating_add(ns))
    }
}

/// Subtracts a length of time, saturating at zero.
impl Sub<Duration> for Nanos {
    type Output = Self;
    fn sub(self, length: Duration) -> Self {
        let ns = u64::try_from(length.as_nanos()).unwrap_or(u64::MAX);
        Self(self.0.saturating_sub(ns))
    }
}

/// Time between two points; zero if the right one is later.
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
