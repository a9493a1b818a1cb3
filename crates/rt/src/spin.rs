//! How long to look for the next ending before waiting in the kernel for it.
//!
//! Waking a sleeping thread costs about as much as a small request takes, so while endings follow
//! each other closely it pays to look; when they do not, looking is heat. The shard remembers the
//! usual gap (a moving average) and looks at most twice as long, and not at all when the gap is
//! longer than it may look. How long a disk takes says nothing of when its host asks again: gaps in which an answer is
//! awaited and those in which none is are remembered apart.
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
    fn number(&self) -> Number {
        match Rc::strong_count(&self.0).saturating_sub(2) {
            0 => Number::None,
            1..MANY => Number::Few,
            _ => Number::Many,
        }
    }
}

/// How many answers are awaited.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Number {
    None,
    Few,
    Many,
}

/// The memory of one shard's waits.
#[derive(Debug)]
pub(crate) struct Spin {
    policy: SpinPolicy,
    awaited: Answers,
    /// The usual gap while none, few and many answers are awaited.
    usual_ns: [u64; 3],
}

impl Spin {
    pub(crate) fn new(policy: SpinPolicy, awaited: Answers) -> Self {
        let usual_ns = match policy {
            SpinPolicy::Adaptive { most } => [Number::None, Number::Few, Number::Many]
                .map(|number| 2 * nanos(longest(most, number))),
            _ => [0; 3],
        };
        Self {
            policy,
            awaited,
            usual_ns,
        }
    }

    /// How long to look before sleeping, nothing having come so far.
    pub(crate) fn window(&self) -> Duration {
        match self.policy {
            SpinPolicy::Never => Duration::ZERO,
            SpinPolicy::Always => Duration::MAX,
            SpinPolicy::Adaptive { most } => self.adaptive_window(most),
        }
    }

    fn adaptive_window(&self, most: Duration) -> Duration {
        let number = self.awaited.number();
        let (usual_ns, longest) = (self.usual_ns[number as usize], longest(most, number));
        match number {
            Number::Many if usual_ns <= nanos(longest) / 2 => longest,
            Number::None | Number::Few if usual_ns <= nanos(longest) => {
                longest.min(Duration::from_nanos(2 * usual_ns) + SLACK)
            }
            _ => Duration::ZERO,
        }
    }

    /// Whether who has looked so long lets others have the processor between two looks: in a round there is time, and
    /// the kernel may need it to end what is awaited.
    pub(crate) fn gives_way(&self, looked: Duration) -> bool {
        matches!(self.policy, SpinPolicy::Adaptive { .. })
            && self.awaited.number() == Number::Many
            && looked > SLACK
    }

    /// An ending has come after such a wait.
    pub(crate) fn record(&mut self, gap: Duration) {
        let SpinPolicy::Adaptive { most } = self.policy else {
            return;
        };
        let number = self.awaited.number();
        let usual_ns = &mut self.usual_ns[number as usize];
        // One long silence must not outweigh the next thousand endings.
        let gap_ns = nanos(gap).min(4 * nanos(longest(most, number)));
        *usual_ns = (*usual_ns * 7 + gap_ns) / 8;
    }
}

/// How long a shard looks at most.
fn longest(most: Duration, number: Number) -> Duration {
    match number {
        Number::None | Number::Few => most,
        Number::Many => most.saturating_mul(ROUND),
    }
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
    fn a_slow_disk_does_not_keep_its_shard_from_looking_for_the_next_request() {
        let answers = Answers::default();
        let mut spin = adaptive(&answers);
        for _ in 0..30 {
            spin.record(Duration::from_micros(10));
            let _of_the_disk = answers.one_more();
            spin.record(Duration::from_millis(1));
        }
        assert!(spin.window() > Duration::ZERO);
        let _of_the_disk = answers.one_more();
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
