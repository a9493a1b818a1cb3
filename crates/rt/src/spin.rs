//! How long to look for the next ending before waiting in the kernel for it.
//!
//! Waking a sleeping thread costs about as much as a small request takes, so while endings follow
//! each other closely it pays to look; when they do not, looking is heat. The shard remembers the
//! usual gap (a moving average) and looks at most twice as long, and not at all when the gap is
//! longer than it may look.

use std::time::Duration;

/// When a shard spins instead of sleeping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpinPolicy {
    /// Sleeps at once: least CPU, some 10 us more per request at depth 1.
    Never,
    /// Spins as long as endings usually follow within `most`; an idle shard uses no CPU.
    Adaptive {
        /// Longest time to spin before one sleep.
        most: Duration,
    },
    /// Spins for ever: one whole CPU.
    Always,
}

/// 50 us: two to five round trips of a local network.
impl Default for SpinPolicy {
    fn default() -> Self {
        Self::Adaptive {
            most: Duration::from_micros(50),
        }
    }
}

/// The memory of one shard's waits.
#[derive(Debug)]
pub(crate) struct Spin {
    policy: SpinPolicy,
    usual_gap_ns: u64,
}

impl Spin {
    pub(crate) fn new(policy: SpinPolicy) -> Self {
        let usual_gap_ns = match policy {
            SpinPolicy::Adaptive { most } => 2 * nanos(most),
            _ => 0,
        };
        Self {
            policy,
            usual_gap_ns,
        }
    }

    /// How long to look before sleeping, nothing having come so far.
    pub(crate) fn window(&self) -> Duration {
        match self.policy {
            SpinPolicy::Never => Duration::ZERO,
            SpinPolicy::Always => Duration::MAX,
            SpinPolicy::Adaptive { most } if self.usual_gap_ns > nanos(most) => Duration::ZERO,
            SpinPolicy::Adaptive { most } => {
                most.min(Duration::from_nanos(2 * self.usual_gap_ns) + SLACK)
            }
        }
    }

    /// An ending has come after such a wait.
    pub(crate) fn record(&mut self, gap: Duration) {
        if let SpinPolicy::Adaptive { most } = self.policy {
            // One long silence must not outweigh the next thousand endings.
            let gap_ns = nanos(gap).min(4 * nanos(most));
            self.usual_gap_ns = (self.usual_gap_ns * 7 + gap_ns) / 8;
        }
    }
}

fn nanos(length: Duration) -> u64 {
    u64::try_from(length.as_nanos())
        .unwrap_or(u64::MAX)
        .min(LONGEST_NS)
}

/// Gaps vary: a window of exactly twice a short gap would sleep too often.
const SLACK: Duration = Duration::from_micros(5);
/// A day; keeps the sums above far from overflow.
const LONGEST_NS: u64 = 86_400 * 1_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    const ADAPTIVE: SpinPolicy = SpinPolicy::Adaptive {
        most: Duration::from_micros(50),
    };

    #[test]
    fn an_idle_shard_does_not_spin() {
        let mut spin = Spin::new(ADAPTIVE);
        assert_eq!(spin.window(), Duration::ZERO);
        for _ in 0..100 {
            spin.record(Duration::from_millis(1));
        }
        assert_eq!(spin.window(), Duration::ZERO);
    }

    #[test]
    fn a_busy_shard_soon_spins_and_one_silence_does_not_stop_it() {
        let mut spin = Spin::new(ADAPTIVE);
        for _ in 0..20 {
            spin.record(Duration::from_micros(15));
        }
        let window = spin.window();
        assert!(
            window > Duration::from_micros(15) && window <= Duration::from_micros(50),
            "{window:?}"
        );
        spin.record(Duration::from_secs(3));
        assert!(spin.window() > Duration::ZERO);
        spin.record(Duration::from_secs(3));
        spin.record(Duration::from_secs(3));
        assert_eq!(spin.window(), Duration::ZERO);
    }

    #[test]
    fn never_and_always_mean_it() {
        assert_eq!(Spin::new(SpinPolicy::Never).window(), Duration::ZERO);
        assert_eq!(Spin::new(SpinPolicy::Always).window(), Duration::MAX);
        let mut spin = Spin::new(SpinPolicy::Adaptive {
            most: Duration::MAX,
        });
        spin.record(Duration::MAX);
        spin.window();
    }
}
