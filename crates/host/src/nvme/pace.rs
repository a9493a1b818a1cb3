//! Whether a queue had better take its answers in portions.
//!
//! A controller with all it can do is not always helped by a host that takes each answer the moment it comes and asks
//! anew. What one processor has just written the other reads at once, and it is far away when its memory is used again;
//! and a controller that always has all commands works through all of them before it looks at anything else. Whether a
//! rest after what was received makes it answer more is tried out, as Linux does with the interrupts of network cards
//! (its DIM): some milliseconds with and without in turns; then what was better for a while. Who gains nothing by it
//! never rests, and nobody does who awaits few answers.
//!
//! Knows times and numbers only.

use std::time::Duration;

use fabrix_rt::Nanos;

/// What was tried last, and what came of it.
pub(crate) struct Pace {
    rests: bool,
    trial: Option<Trial>,
    /// When the next trial begins.
    trial_at: Nanos,
    /// How long the last verdict is kept.
    kept: Duration,
    asked_at: Nanos,
}

/// Some periods with rests and some without.
struct Trial {
    /// Which one this is.
    period: usize,
    began: Nanos,
    /// All answers until then.
    answers: u64,
    /// What the periods without and with rests brought so far.
    sums: [Sum; 2],
}

#[derive(Clone, Copy, Default)]
struct Sum {
    answers: u64,
    time: Duration,
}

impl Pace {
    /// Nothing was tried so far.
    pub(crate) fn new() -> Self {
        Self {
            rests: false,
            trial: None,
            trial_at: Nanos(0),
            kept: KEPT_LEAST,
            asked_at: Nanos(0),
        }
    }

    /// How long to rest before the next receive, with so many commands in progress and so many answers so far; None:
    /// not at all.
    pub(crate) fn rest(
        &mut self,
        now: Nanos,
        in_progress: usize,
        answers: u64,
    ) -> Option<Duration> {
        let silence = now.since(self.asked_at);
        self.asked_at = now;
        if in_progress < MANY || silence > SILENCE_MOST {
            self.trial = None; // what a trial saw would be the load's doing
        }
        if in_progress < MANY {
            return None;
        }
        if let Some(trial) = &mut self.trial
            && trial.is_over(now, answers)
        {
            let pays = trial.pays(self.rests);
            self.keep(now, pays);
        }
        let rests = match &self.trial {
            Some(trial) => trial.rests(),
            None if now < self.trial_at => self.rests,
            None => self.trial.insert(Trial::begin(now, answers)).rests(),
        };
        rests.then(|| EACH * u32::try_from(in_progress.min(IN_PROGRESS_MOST)).unwrap_or(0))
    }

    /// A trial has ended. The same verdict again is kept twice as long.
    fn keep(&mut self, now: Nanos, pays: bool) {
        let is_new = pays != std::mem::replace(&mut self.rests, pays);
        self.kept = if is_new {
            KEPT_LEAST
        } else {
            (self.kept * 2).min(KEPT_MOST)
        };
        self.trial = None;
        self.trial_at = now + self.kept;
    }
}

impl Trial {
    fn begin(now: Nanos, answers: u64) -> Self {
        Self {
            period: 0,
            began: now,
            answers,
            sums: [Sum::default(); 2],
        }
    }

    /// Without, with, with, without, and so on: what changes steadily meanwhile favours neither.
    fn rests(&self) -> bool {
        matches!(self.period % 4, 1 | 2)
    }

    /// Ends the period if it is old enough; whether it was the last.
    fn is_over(&mut self, now: Nanos, answers: u64) -> bool {
        let time = now.since(self.began);
        if time < PERIOD {
            return false;
        }
        let sum = &mut self.sums[usize::from(self.rests())];
        sum.answers += answers - self.answers;
        sum.time += time;
        (self.period, self.began, self.answers) = (self.period + 1, now, answers);
        self.period == PERIODS
    }

    /// Whether there were more answers in the same time with rests. Who does not rest so far does only if that is
    /// clear.
    fn pays(&self, rests: bool) -> bool {
        let [without, with] = self.sums;
        let least = if rests { 101 } else { 103 };
        u128::from(with.answers) * without.time.as_nanos() * 100
            >= u128::from(without.answers) * with.time.as_nanos() * least
    }
}

/// Fewer commands in progress are answered as they come.
const MANY: usize = 48;
/// A rest is so long for each command in progress, a third of the time that the fastest controllers take for it...
const EACH: Duration = Duration::from_nanos(500);
/// ...and no longer than for so many.
const IN_PROGRESS_MOST: usize = 256;
/// Many turns of host and controller.
const PERIOD: Duration = Duration::from_millis(4);
/// In one trial.
const PERIODS: usize = 16;
/// Nobody asks for so long only if the load has stopped.
const SILENCE_MOST: Duration = Duration::from_millis(2);
/// A verdict is kept for so long at first, and at most.
const KEPT_LEAST: Duration = Duration::from_millis(125);
const KEPT_MOST: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    /// A controller that answers so many commands in a millisecond, as the host asks every 50 us.
    struct Controller {
        pace: Pace,
        now: Nanos,
        answers: u64,
    }

    impl Controller {
        fn new() -> Self {
            Self {
                pace: Pace::new(),
                now: Nanos(1_000_000_000),
                answers: 0,
            }
        }

        /// For so long; the share of the receives behind which it rested.
        fn serves(&mut self, time: Duration, in_progress: usize, per_ms: [u64; 2]) -> f64 {
            let (end, mut rests, mut asked) = (self.now + time, 0_u32, 0_u32);
            let mut rested = false;
            while self.now < end {
                self.now = self.now + Duration::from_micros(50);
                self.answers += per_ms[usize::from(rested)] / 20;
                rested = self
                    .pace
                    .rest(self.now, in_progress, self.answers)
                    .is_some();
                (asked, rests) = (asked + 1, rests + u32::from(rested));
            }
            f64::from(rests) / f64::from(asked)
        }
    }

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_queue_rests_where_it_is_answered_more_then() {
        let mut controller = Controller::new();
        controller.serves(SECOND, 128, [500, 540]);
        assert!(controller.serves(3 * SECOND, 128, [500, 540]) > 0.9);
        controller.serves(2 * SECOND, 128, [500, 460]);
        assert!(
            controller.serves(3 * SECOND, 128, [500, 460]) < 0.1,
            "and stops where it is not"
        );
    }

    #[test]
    fn what_makes_no_difference_is_not_done() {
        let mut controller = Controller::new();
        controller.serves(SECOND, 128, [500, 500]);
        assert!(controller.serves(3 * SECOND, 128, [500, 500]) < 0.1);
    }

    #[test]
    fn few_in_progress_are_never_kept_waiting() {
        let mut controller = Controller::new();
        controller.serves(SECOND, 128, [500, 540]);
        assert_eq!(controller.serves(SECOND, MANY - 1, [500, 540]), 0.0);
    }

    #[test]
    fn a_rest_is_short() {
        let mut pace = Pace::new();
        pace.rests = true;
        pace.trial_at = Nanos(u64::MAX);
        assert_eq!(pace.rest(Nanos(1), 100, 0), Some(Duration::from_micros(50)));
        assert_eq!(
            pace.rest(Nanos(1), 60_000, 0),
            Some(Duration::from_micros(128))
        );
    }

    #[test]
    fn a_trial_that_the_load_disturbed_does_not_count() {
        let mut controller = Controller::new();
        for _ in 0..100 {
            // Longer than without rests, which come first, and never to the end of a trial.
            controller.serves(PERIOD * 5, 128, [500, 900]);
            controller.now = controller.now + SECOND;
        }
        assert!(!controller.pace.rests);
    }
}
