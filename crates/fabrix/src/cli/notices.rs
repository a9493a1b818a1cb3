//! What happens in a target as lines for who runs it, few enough to be read.
//!
//! Some notices anybody on the network can cause as often as he likes, before he has said who he is. Of those one is
//! said a second, with the number of those that were left out; everything else is always said.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use fabrix_target::Notice;

use super::terminal::say;

/// Says notices.
#[derive(Default)]
pub(crate) struct Notices {
    strangers: Mutex<Limiter>,
}

impl Notices {
    /// Says one, or counts it.
    pub(crate) fn tell(&self, notice: &Notice) {
        if !notice.is_a_strangers() {
            return say(notice);
        }
        match self.lock(|limiter| limiter.admit(Instant::now())) {
            Some(0) => say(notice),
            Some(more) => say(format_args!(
                "{notice} (and {more} more that were not said)"
            )),
            None => {}
        }
    }

    fn lock<T>(&self, look: impl FnOnce(&mut Limiter) -> T) -> T {
        let limiter = self.strangers.lock();
        look(&mut limiter.unwrap_or_else(PoisonError::into_inner))
    }
}

impl Drop for Notices {
    fn drop(&mut self) {
        let more = self.lock(|limiter| limiter.left_out);
        if more > 0 {
            say(format_args!(
                "{more} more connections of strangers were closed"
            ));
        }
    }
}

/// Lets one through a second.
#[derive(Default)]
struct Limiter {
    last: Option<Instant>,
    left_out: u64,
}

impl Limiter {
    /// How many were left out before this one; none: it is left out as well.
    fn admit(&mut self, now: Instant) -> Option<u64> {
        let too_soon = |last| now.saturating_duration_since(last) < PERIOD;
        if self.last.is_some_and(too_soon) {
            self.left_out += 1;
            return None;
        }
        self.last = Some(now);
        Some(std::mem::take(&mut self.left_out))
    }
}

const PERIOD: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_one_line_a_second_and_none_is_forgotten() {
        let (mut limiter, start) = (Limiter::default(), Instant::now());
        let at = |ms| start + Duration::from_millis(ms);
        let said: Vec<_> = (0..2500).filter_map(|ms| limiter.admit(at(ms))).collect();
        assert_eq!(said, [0, 999, 999]);
        assert_eq!(limiter.left_out, 499, "to be said with the next");
        assert_eq!(limiter.admit(at(60_000)), Some(499));
        assert_eq!(limiter.admit(at(61_000)), Some(0));
    }

    #[test]
    fn only_what_strangers_cause_is_left_out() {
        let peer = ([192, 0, 2, 1], 5).into();
        assert!(Notice::TooManyStrangers { peer }.is_a_strangers());
        let what = String::new();
        assert!(Notice::Violation { peer, what }.is_a_strangers());
        assert!(!Notice::LoggedOut { session: 1 }.is_a_strangers());
        let why = String::new();
        assert!(!Notice::Disk { nsid: 1, why }.is_a_strangers());
    }
}
