//! Rate limits for frequent lines: the first ones are logged, the rest are counted, and the counts
//! are logged.
//!
//! The bookkeeping depends only on keys and times. A key groups similar lines, for example by kind
//! and address. Peers can cause new keys, so their number is limited. Lines beyond the limit share
//! one key.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use serde_json::json;

use super::Line;

/// Rate limit of lines with the same key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limit {
    /// Lines per period.
    pub(crate) lines: u32,
    pub(crate) period: Duration,
}

/// All current counts.
#[derive(Default)]
pub(super) struct Tallies {
    all: HashMap<String, Tally>,
}

struct Tally {
    limit: Limit,
    /// Start of the period.
    since: Instant,
    /// Lines logged in this period.
    logged: u32,
    /// Lines counted in this period.
    counted: u64,
    /// First counted line, which represents the others.
    example: Option<Line>,
}

impl Tallies {
    /// Returns a line that is to be logged now, or counts it.
    pub(super) fn admit(
        &mut self,
        key: &str,
        limit: Limit,
        now: Instant,
        line: impl FnOnce() -> Line,
    ) -> Option<Line> {
        let is_full = self.all.len() >= KEYS_MAX && !self.all.contains_key(key);
        let (key, limit) = match is_full {
            true => (SHARED_KEY, SHARED_LIMIT),
            false => (key, limit),
        };
        let tally = self.all.entry(key.to_owned()).or_insert(Tally {
            limit,
            since: now,
            logged: 0,
            counted: 0,
            example: None,
        });
        if tally.logged < limit.lines {
            tally.logged += 1;
            return Some(line());
        }
        tally.counted += 1;
        tally.example.get_or_insert_with(line);
        None
    }

    /// Lines for all counts whose period has ended. A key without lines for a whole period is
    /// forgotten.
    pub(super) fn due(&mut self, now: Instant) -> Vec<Line> {
        let mut lines = Vec::new();
        self.all.retain(|_, tally| {
            if now < tally.ends() {
                return true;
            }
            let count = tally.count();
            let goes_on = count.is_some();
            lines.extend(count);
            // The count itself is the allowed line of the next period.
            (tally.since, tally.logged) = (now, tally.limit.lines);
            goes_on
        });
        lines
    }

    /// All counts, before the end of their period.
    pub(super) fn rest(&mut self) -> Vec<Line> {
        let all = self.all.drain();
        all.filter_map(|(_, mut tally)| tally.count()).collect()
    }

    /// End of the earliest period.
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.all.values().map(Tally::ends).min()
    }
}

impl Tally {
    fn ends(&self) -> Instant {
        self.since + self.limit.period
    }

    /// The counted lines as one line.
    fn count(&mut self) -> Option<Line> {
        let count = std::mem::take(&mut self.counted);
        let mut line = self.example.take()?;
        if count > 1 {
            let within = self.limit.period;
            line.message = format!("{} ({count} times within {within:?})", line.message);
            line.fields.push(("count", json!(count)));
        }
        Some(line)
    }
}

/// Largest number of keys.
const KEYS_MAX: usize = 256;
/// Shared key when the number of keys is at its limit.
const SHARED_KEY: &str = "others";
const SHARED_LIMIT: Limit = Limit {
    lines: 1,
    period: Duration::from_secs(1),
};

#[cfg(test)]
mod tests {
    use super::super::Level;
    use super::*;

    const ONE_A_SECOND: Limit = Limit {
        lines: 1,
        period: Duration::from_secs(1),
    };

    fn line(message: &str) -> Line {
        Line::new(Level::Warning, message)
    }

    fn messages(lines: &[Line]) -> Vec<&str> {
        lines.iter().map(|line| line.message.as_str()).collect()
    }

    #[test]
    fn a_flood_is_one_line_a_period_and_none_is_forgotten() {
        let (mut tallies, start) = (Tallies::default(), Instant::now());
        let at = |ms| start + Duration::from_millis(ms);
        let mut logged = Vec::new();
        for ms in 0..2500 {
            logged.extend(tallies.due(at(ms)));
            let text = format!("refused at {ms} ms");
            logged.extend(tallies.admit("refused", ONE_A_SECOND, at(ms), || line(&text)));
        }
        let expected = [
            "refused at 0 ms",
            "refused at 1 ms (999 times within 1s)",
            "refused at 1000 ms (1000 times within 1s)",
        ];
        assert_eq!(messages(&logged), expected);
        assert_eq!(logged[1].fields, [("count", json!(999))]);
        assert_eq!(
            messages(&tallies.rest()),
            ["refused at 2000 ms (500 times within 1s)"]
        );
    }

    #[test]
    fn what_has_stopped_is_forgotten_and_said_at_once_when_it_comes_again() {
        let (mut tallies, start) = (Tallies::default(), Instant::now());
        let at = |s| start + Duration::from_secs(s);
        let admit = |tallies: &mut Tallies, s| {
            let logged = tallies.admit("a key", ONE_A_SECOND, at(s), || line("refused"));
            logged.is_some()
        };
        assert!(admit(&mut tallies, 0));
        assert_eq!(tallies.next_due(), Some(at(1)));
        assert!(tallies.due(at(1)).is_empty());
        assert!(tallies.all.is_empty());
        assert!(admit(&mut tallies, 1));
    }

    #[test]
    fn keys_have_limits_of_their_own() {
        let (mut tallies, now) = (Tallies::default(), Instant::now());
        let few = Limit {
            lines: 3,
            ..ONE_A_SECOND
        };
        let mut often = |key: &str, limit| {
            let logged = (0..5).filter(|_| tallies.admit(key, limit, now, || line(key)).is_some());
            logged.count()
        };
        assert_eq!(often("one", ONE_A_SECOND), 1);
        assert_eq!(often("two", few), 3);
    }

    #[test]
    fn more_keys_than_fit_are_counted_together() {
        let (mut tallies, now) = (Tallies::default(), Instant::now());
        let mut logged = 0;
        for number in 0..10_000 {
            let key = format!("an address {number}");
            let admitted = tallies.admit(&key, ONE_A_SECOND, now, || line(&key));
            logged += usize::from(admitted.is_some());
        }
        assert_eq!(logged, KEYS_MAX + 1);
        assert_eq!(tallies.all.len(), KEYS_MAX + 1);
        let rest = tallies.rest();
        assert_eq!(rest.len(), 1);
        assert!(rest[0].message.contains("(9743 times"), "{rest:?}");
    }
}
