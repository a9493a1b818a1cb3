//! The time for which a shard looks for the next completion before it sleeps in the kernel.
//!
//! Waking a sleeping thread costs about as much as a small request. So a shard spins while
//! completions follow each other closely. One counter decides: a completion within the policy's
//! limit adds one to it, a later one subtracts four, and the shard spins while the counter is above
//! half. It follows that
//!
//! - an idle shard does not spin,
//! - one long silence does not stop a busy shard from spinning,
//! - a load of which every other completion is late does not make a shard spin.

use std::time::Duration;

/// When a shard spins instead of sleeping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpinPolicy {
    /// Never spin: least CPU time, about 10 us more per request at depth 1.
    Never,
    /// Spin for `most` before a sleep, while completions usually follow within that time. An idle
    /// shard uses no CPU time.
    Adaptive {
        /// Longest time to spin before one sleep.
        most: Duration,
    },
    /// Spin for ever: uses one whole CPU.
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

/// State of the policy on one shard.
#[derive(Debug)]
pub(crate) struct Spin {
    policy: SpinPolicy,
    /// Counter of completions within the limit, from 0 to [`COUNT_MAX`].
    count: u32,
}

impl Spin {
    /// Under the adaptive policy a new shard does not spin.
    pub(crate) fn new(policy: SpinPolicy) -> Self {
        Self { policy, count: 0 }
    }

    /// Time to spin before the next sleep.
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
/// Value of a late completion: spinning pays if four of five completions come in time.
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
