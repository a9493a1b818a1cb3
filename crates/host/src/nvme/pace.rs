//! Whether a queue had better take its answers in portions.
//!
//! A controller with all it can do is not always helped by a host that takes each answer the moment it comes and asks
//! anew. What one processor has just written the other reads at once, and it is far away when its memory is used again;
//! and a controller that always has all commands works through all of them before it looks at anything else. Whether a
//! rest after what was received makes it answer more is tried out. Who gains nothing by it never rests, and nobody does
//! who awaits few answers.
//!
//! Knows times and numbers only.

use std::time::Duration;

use fabrix_rt::{Nanos, Trial};

/// Whether rests were of use.
pub(crate) struct Pace {
    trial: Trial,
}

impl Pace {
    /// Nothing was tried so far.
    pub(crate) fn new() -> Self {
        Self {
            trial: Trial::new(PERIOD),
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
        if in_progress < MANY {
            self.trial.stop();
            return None;
        }
        let rests = self.trial.is_second(now, answers);
        rests.then(|| EACH * u32::try_from(in_progress.min(IN_PROGRESS_MOST)).unwrap_or(0))
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A queue with so many commands in progress, for a second, at a controller that answers more when it rests; the
    /// rests in the end.
    fn rests(in_progress: usize) -> Vec<Duration> {
        let (mut pace, mut answers, mut rests) = (Pace::new(), 0, Vec::new());
        let mut rest = None;
        for turn in 0..20_000 {
            answers += if rest.is_some() { 27 } else { 25 };
            rest = pace.rest(Nanos(1_000_000_000 + turn * 50_000), in_progress, answers);
            if turn > 19_000 {
                rests.extend(rest);
            }
        }
        rests
    }

    #[test]
    fn a_queue_rests_where_it_is_answered_more_then() {
        let rests = rests(100);
        assert!(rests.len() > 900, "{}", rests.len());
        assert!(rests.iter().all(|rest| *rest == Duration::from_micros(50)));
    }

    #[test]
    fn few_in_progress_are_never_kept_waiting() {
        assert!(rests(MANY - 1).is_empty());
    }

    #[test]
    fn a_rest_is_short() {
        let rests = rests(60_000);
        assert!(rests.iter().all(|rest| *rest == Duration::from_micros(128)));
        assert!(!rests.is_empty());
    }
}
