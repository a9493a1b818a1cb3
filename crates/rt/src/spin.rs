//! How long to look for the next ending before waiting in the kernel for it.
//!
//! Waking a sleeping thread costs about as much as a small request takes, so while endings follow
//! each other closely it pays to look; when they do not, looking is heat. The shard remembers the
//! usual gap (a moving average) and looks at most twice as long, and not at all when the gap is
//! longer than it may look.
//!
//! Some disks work in rounds: they take what is there, and end all of it at once. Whoever sleeps through such a round
//! lets the disk stand still while he wakes. So when many answers are awaited the shard looks through a whole round,
//! if rounds were short so far, and gives way to whoever else wants its processor.

use std::rc::Rc;
use std::time::Duration;

/// When a shard spins instead of sleeping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpinPolicy {
    /// Sleeps at once: least CPU, some 10 us more per request at depth 1.
    Never,
    /// Spins as long as endings usually follow within `most`, and up to 20 times as long while 8 or more answers of
    /// disks or targets are awaited ([`Shard::await_answer`](crate::Shard::await_answer)) that usually come within half
    /// of that; an idle shard uses no CPU.
    Adaptive {
        /// Longest time to spin before one sleep, when fewer are awaited.
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

/// An answer of somebody slower than the shard, of a disk or a target: awaited as long as this is held.
#[derive(Debug)]
pub struct Awaited {
    _one_more: Rc<()>,
}

/// How many answers a shard awaits: every [`Awaited`] is one more holder.
#[derive(Clone, Debug, Default)]
pub(crate) struct Answers(Rc<()>);

impl Answers {
    pub(crate) fn one_more(&self) -> Awaited {
        Awaited {
            _one_more: Rc::clone(&self.0),
        }
    }

    /// The shard and its driver hold it themselves.
    fn are_many(&self) -> bool {
        Rc::strong_count(&self.0).saturating_sub(2) >= MANY
    }
}

/// The memory of one shard's waits.
#[derive(Debug)]
pub(crate) struct Spin {
    policy: SpinPolicy,
    awaited: Answers,
    usual_gap_ns: u64,
    /// The same while many answers are awaited.
    usual_round_ns: u64,
}

impl Spin {
    pub(crate) fn new(policy: SpinPolicy, awaited: Answers) -> Self {
        let usual_gap_ns = match policy {
            SpinPolicy::Adaptive { most } => 2 * nanos(most),
            _ => 0,
        };
        Self {
            policy,
            awaited,
            usual_gap_ns,
            usual_round_ns: usual_gap_ns * u64::from(ROUND),
        }
    }

    /// How long to look before sleeping, nothing having come so far.
    pub(crate) fn window(&self) -> Duration {
        match self.policy {
            SpinPolicy::Never => Duration::ZERO,
            SpinPolicy::Always => Duration::MAX,
            SpinPolicy::Adaptive { most } if self.are_rounds_short(most) => round(most),
            SpinPolicy::Adaptive { most } if self.usual_gap_ns > nanos(most) => Duration::ZERO,
            SpinPolicy::Adaptive { most } => {
                most.min(Duration::from_nanos(2 * self.usual_gap_ns) + SLACK)
            }
        }
    }

    /// Whether who has looked so long lets others have the processor between two looks: in a round there is time, and
    /// the kernel may need it to end what is awaited.
    pub(crate) fn gives_way(&self, looked: Duration) -> bool {
        matches!(self.policy, SpinPolicy::Adaptive { most } if self.are_rounds_short(most) && looked > SLACK)
    }

    /// An ending has come after such a wait.
    pub(crate) fn record(&mut self, gap: Duration) {
        let SpinPolicy::Adaptive { most } = self.policy else {
            return;
        };
        // One long silence must not outweigh the next thousand endings.
        let mix = |usual_ns, most| (usual_ns * 7 + nanos(gap).min(4 * nanos(most))) / 8;
        self.usual_gap_ns = mix(self.usual_gap_ns, most);
        if self.awaited.are_many() {
            self.usual_round_ns = mix(self.usual_round_ns, round(most));
        }
    }

    fn are_rounds_short(&self, most: Duration) -> bool {
        self.awaited.are_many() && self.usual_round_ns <= nanos(round(most)) / 2
    }
}

/// How long a shard looks while many answers are awaited.
fn round(most: Duration) -> Duration {
    most.saturating_mul(ROUND)
}

fn nanos(length: Duration) -> u64 {
    u64::try_from(length.as_nanos())
        .unwrap_or(u64::MAX)
        .min(LONGEST_NS)
}

/// So many answers at once are many.
const MANY: usize = 8;
/// So many times longer a shard looks while many are awaited: 1 ms instead of 50 us.
const ROUND: u32 = 20;
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

    fn adaptive(awaited: &Answers) -> Spin {
        Spin::new(ADAPTIVE, awaited.clone())
    }

    fn few(policy: SpinPolicy) -> Spin {
        Spin::new(policy, Answers::default())
    }

    #[test]
    fn an_idle_shard_does_not_spin() {
        let mut spin = adaptive(&Answers::default());
        assert_eq!(spin.window(), Duration::ZERO);
        for _ in 0..100 {
            spin.record(Duration::from_millis(1));
        }
        assert_eq!(spin.window(), Duration::ZERO);
    }

    #[test]
    fn a_busy_shard_soon_spins_and_one_silence_does_not_stop_it() {
        let mut spin = adaptive(&Answers::default());
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
    fn while_many_answers_are_awaited_a_shard_looks_through_a_short_round() {
        let answers = Answers::default();
        let mut spin = adaptive(&answers);
        let mut many: Vec<Awaited> = (0..MANY).map(|_| answers.one_more()).collect();
        assert_eq!(spin.window(), Duration::ZERO, "nothing is known of rounds");
        for _ in 0..20 {
            spin.record(Duration::from_micros(300));
        }
        assert_eq!(spin.window(), Duration::from_millis(1));
        assert!(!spin.gives_way(SLACK) && spin.gives_way(2 * SLACK));
        many.pop();
        assert_eq!(spin.window(), Duration::ZERO, "few, and seldom");
    }

    #[test]
    fn long_rounds_are_slept_through() {
        let answers = Answers::default();
        let mut spin = adaptive(&answers);
        let _many: Vec<Awaited> = (0..MANY).map(|_| answers.one_more()).collect();
        for gap_us in [300, 1000] {
            for _ in 0..30 {
                spin.record(Duration::from_micros(gap_us));
            }
        }
        assert_eq!(spin.window(), Duration::ZERO);
    }

    #[test]
    fn never_and_always_mean_it() {
        assert_eq!(few(SpinPolicy::Never).window(), Duration::ZERO);
        assert_eq!(few(SpinPolicy::Always).window(), Duration::MAX);
        let mut spin = few(SpinPolicy::Adaptive {
            most: Duration::MAX,
        });
        spin.record(Duration::MAX);
        spin.window();
    }
}
