//! The wall clock.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Time since 1970-01-01 UTC. Zero for a clock before that.
pub(crate) fn since_1970() -> Duration {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.unwrap_or_default()
}
