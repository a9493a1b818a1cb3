//! Which of two ways of doing the same brings more just now, found out by doing it in both.
//!
//! What a machine does well depends on its processors, its caches, its kernel and on the peer, and changes within
//! seconds. No formula knows that. So both ways are used in turns for some milliseconds and what came of each is
//! compared, as Linux does with the interrupts of network cards (its DIM); what brought more is kept for a while. A
//! load that stops and starts decides nothing.
//!
//! Knows times and numbers only.

use std::time::Duration;

use crate::Nanos;

/// What was tried last, and what came of it. The first way is the usual one, and the second has to be clearly better.
#[derive(Debug)]
pub struct Trial {
    period: Duration,
    second: bool,
    periods: Option<Periods>,
    /// When the ways are compared next.
    next_at: Nanos,
    /// How long the last verdict is kept.
    kept: Duration,
    asked_at: Nanos,
}

/// Some of one way and some of the other.
#[derive(Debug)]
struct Periods {
    /// Which one this is.
    index: usize,
    began: Nanos,
    /// All that was done until then.
    done: u64,
    /// What the periods of the first and of the second way brought so far.
    sums: [Sum; 2],
}

#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    done: u64,
    time: Duration,
}

impl Trial {
    /// Nothing was tried so far. Each way is used for so long at a time, many turns of what is compared; two trials of
    /// the same load differ in it, or each would see what the other does.
    pub fn new(period: Duration) -> Self {
        Self {
            period,
            second: false,
            periods: None,
            next_at: Nanos(0),
            kept: KEPT_LEAST,
            asked_at: Nanos(0),
        }
    }

    /// Whether it is done in the second way now, so much having been done so far in both. To be asked each time, or
    /// [`stop`](Self::stop)ped.
    #[inline]
    pub fn is_second(&mut self, now: Nanos, done: u64) -> bool {
        if now.since(self.asked_at) > SILENCE_MOST {
            self.stop();
        }
        self.asked_at = now;
        match &mut self.periods {
            None if now < self.next_at => self.second,
            None => self.periods.insert(Periods::begin(now, done)).are_second(),
            Some(periods) if now.since(periods.began) < self.period => periods.are_second(),
            Some(_) => self.ends(now, done),
        }
    }

    /// The load is not what it was: what is being tried would show that and not the ways.
    pub fn stop(&mut self) {
        self.periods = None;
    }

    /// A period has ended. The same verdict again is kept twice as long.
    #[inline(never)]
    fn ends(&mut self, now: Nanos, done: u64) -> bool {
        let Some(periods) = &mut self.periods else {
            return self.second;
        };
        if periods.end(now, done) < PERIODS {
            return periods.are_second();
        }
        let second = periods.second_pays(self.second);
        self.periods = None;
        let is_new = second != std::mem::replace(&mut self.second, second);
        self.kept = if is_new {
            KEPT_LEAST
        } else {
            (self.kept * 2).min(KEPT_MOST)
        };
        self.next_at = now + self.kept;
        second
    }
}

impl Periods {
    fn begin(now: Nanos, done: u64) -> Self {
        Self {
            index: 0,
            began: now,
            done,
            sums: [Sum::default(); 2],
        }
    }

    /// First, second, second, first, and so on: what changes steadily meanwhile favours neither.
    fn are_second(&self) -> bool {
        matches!(self.index % 4, 1 | 2)
    }

    /// How many have ended with this one.
    fn end(&mut self, now: Nanos, done: u64) -> usize {
        let sum = &mut self.sums[usize::from(self.are_second())];
        sum.done += done - self.done;
        sum.time += now.since(self.began);
        (self.index, self.began, self.done) = (self.index + 1, now, done);
        self.index
    }

    /// Whether the second way brought more in the same time. What is not done so far has to be clearly better.
    fn second_pays(&self, second: bool) -> bool {
        let [first, other] = self.sums;
        let least = if second { 101 } else { 103 };
        u128::from(other.done) * first.time.as_nanos() * 100
            >= u128::from(first.done) * other.time.as_nanos() * least
    }
}

/// In one comparison.
const PERIODS: usize = 16;
/// Nobody asks for so long only if the load has stopped.
const SILENCE_MOST: Duration = Duration::from_millis(2);
/// A verdict is kept for so long at first, and at most.
const KEPT_LEAST: Duration = Duration::from_millis(125);
const KEPT_MOST: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    const PERIOD: Duration = Duration::from_millis(4);
    const SECOND: Duration = Duration::from_secs(1);

    /// Something that is done so often in a millisecond in either way, and asks every 50 us.
    struct Load {
        trial: Trial,
        now: Nanos,
        done: u64,
    }

    impl Load {
        fn new() -> Self {
            Self {
                trial: Trial::new(PERIOD),
                now: Nanos(1_000_000_000),
                done: 0,
            }
        }

        /// For so long; the share that was done in the second way.
        fn runs(&mut self, time: Duration, per_ms: [u64; 2]) -> f64 {
            let (end, mut seconds, mut asked) = (self.now + time, 0_u32, 0_u32);
            let mut second = false;
            while self.now < end {
                self.now = self.now + Duration::from_micros(50);
                self.done += per_ms[usize::from(second)] / 20;
                second = self.trial.is_second(self.now, self.done);
                (asked, seconds) = (asked + 1, seconds + u32::from(second));
            }
            f64::from(seconds) / f64::from(asked)
        }
    }

    #[test]
    fn the_better_way_is_used_and_left_when_it_no_longer_is() {
        let mut load = Load::new();
        load.runs(SECOND, [500, 540]);
        assert!(load.runs(3 * SECOND, [500, 540]) > 0.9);
        load.runs(2 * SECOND, [500, 460]);
        assert!(load.runs(3 * SECOND, [500, 460]) < 0.1);
    }

    #[test]
    fn what_makes_no_difference_is_not_done() {
        let mut load = Load::new();
        load.runs(SECOND, [500, 500]);
        assert!(load.runs(3 * SECOND, [500, 500]) < 0.1);
    }

    #[test]
    fn what_the_load_disturbed_does_not_count() {
        let mut load = Load::new();
        for _ in 0..100 {
            // Longer than the first way, which comes first, and never to the end of a trial.
            load.runs(PERIOD * 5, [500, 900]);
            load.now = load.now + SECOND;
        }
        for _ in 0..100 {
            load.runs(PERIOD * 5, [500, 900]);
            load.trial.stop();
        }
        assert!(!load.trial.second);
    }
}
