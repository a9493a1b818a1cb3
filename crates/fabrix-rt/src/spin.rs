//! How long a shard looks for the next completion before it sleeps in the kernel.
//!
//! Waking a sleeping thread costs about as much as a small request. So a shard spins while
//! completions follow each other closely, and sleeps at once while they do not. Two states and one
//! counter decide: a completion that comes within the policy's limit adds one to the counter, a
//! later one takes four away, and the shard spins while the counter is above half. An idle shard
//! therefore never spins, one long silence does not stop a busy shard, and a load of which every
//! other completion is late sleeps.

use std::time::Duration;

/// When a shard spins instead of sleeping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpinPolicy {
    /// Sleeps at once: least CPU, some 10 us more per request at depth 1.
    Never,
    /// Spins for `most` before it sleeps, as long as completions usually follow within that time.
    /// An idle shard uses no CPU.
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

/// The state of one shard's waits.
#[derive(Debug)]
pub(crate) struct Spin {
    policy: SpinPolicy,
    /// From 0 to [`COUNT_MAX`]: how closely completions followed each other lately.
    count: u32,
}

impl Spin {
    /// A shard that sleeps, under the adaptive policy.
    pub(crate) fn new(policy: SpinPolicy) -> Self {
        Self { policy, count: 0 }
    }

    /// How long to spin before the next sleep.
    pub(crate) fn window(&self) -> Duration {
        match self.policy {
            SpinPolicy::Never => Duration::ZERO,
            SpinPolicy::Always => Duration::MAX,
            SpinPolicy::Adaptive { most } if self.count > COUNT_MAX / 2 => most,
            SpinPolicy::Adaptive { .. } => Duration::ZERO,
        }
    }

    /// A completion has come after a wait of this length.
    pub(crate) fn record(&mut self, gap: Duration) {
        if let SpinPolicy::Adaptive { most } = self.policy {
            self.count = match gap <= most {
                true => COUNT_MAX.min(self.count + 1),
                false => self.count.saturating_sub(LATE),
            };
        }
    }
}

const COUNT_MAX: u32 = 32;
/// What a late completion takes away: spinning pays only if four of five come in time.
const LATE: u32 = 4;

#[cfg(test)]
mod tests {
    use super::*;

    const SOON: Duration = Duration::from_micros(15);
    const LATE: Duration = Duration::from_millis(1);

    fn after(gaps: impl IntoIterator<Item = Duration>) -> Spin {
        let mut spin = Spin::new(SpinPolicy::default());
        gaps.into_iter().for_each(|gap| spin.record(gap));
        spin
    }

    fn spins(spin: &Spin) -> bool {
        spin.window() == Duration::from_micros(50)
    }

    #[test]
    fn an_idle_shard_does_not_spin() {
        assert_eq!(after([]).window(), Duration::ZERO);
        assert_eq!(after([LATE; 100]).window(), Duration::ZERO);
    }

    #[test]
    fn a_busy_shard_spins_and_one_silence_does_not_stop_it() {
        let mut spin = after([SOON; 40]);
        assert!(spins(&spin));
        spin.record(Duration::from_secs(3));
        assert!(spins(&spin));
        for _ in 0..4 {
            spin.record(LATE);
        }
        assert_eq!(spin.window(), Duration::ZERO, "silences in a row do");
    }

    #[test]
    fn a_load_of_which_every_other_completion_is_late_sleeps() {
        let gaps = [SOON, LATE].into_iter().cycle().take(1000);
        assert_eq!(after(gaps).window(), Duration::ZERO);
    }

    #[test]
    fn never_and_always_mean_it() {
        assert_eq!(Spin::new(SpinPolicy::Never).window(), Duration::ZERO);
        assert_eq!(Spin::new(SpinPolicy::Always).window(), Duration::MAX);
    }
}
