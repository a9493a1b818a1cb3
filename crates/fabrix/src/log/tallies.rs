//! What may happen often: the first times are said, the rest is counted, and the counts are said.
//!
//! Pure bookkeeping over keys and times. A key is what makes two lines alike: a kind and an
//! address, for instance. Keys may come from peers, so there are only so many of them at a time;
//! what finds no place is counted together.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use serde_json::json;

use super::Line;

/// How often lines of one key are said.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limit {
    /// Lines that are said in a period.
    pub(crate) lines: u32,
    pub(crate) period: Duration,
}

/// What is counted now.
#[derive(Default)]
pub(super) struct Tallies {
    all: HashMap<String, Tally>,
}

struct Tally {
    limit: Limit,
    /// When the period began.
    since: Instant,
    /// Lines that were said in it.
    said: u32,
    /// Lines that were not.
    left_out: u64,
    /// The first of those that were not said: it stands for the others.
    example: Option<Line>,
}

impl Tallies {
    /// Takes a line: gives it back if it is to be said now, and counts it otherwise.
    pub(super) fn admit(
        &mut self,
        key: &str,
        limit: Limit,
        now: Instant,
        line: impl FnOnce() -> Line,
    ) -> Option<Line> {
        let is_crowded = self.all.len() >= KEYS_MAX && !self.all.contains_key(key);
        let (key, limit) = match is_crowded {
            true => (OTHERS, LIMIT_OF_OTHERS),
            false => (key, limit),
        };
        let tally = self.all.entry(key.to_owned()).or_insert(Tally {
            limit,
            since: now,
            said: 0,
            left_out: 0,
            example: None,
        });
        if tally.said < limit.lines {
            tally.said += 1;
            return Some(line());
        }
        tally.left_out += 1;
        tally.example.get_or_insert_with(line);
        None
    }

    /// The counts whose period is over. A key of which nothing came in a whole period is forgotten.
    pub(super) fn due(&mut self, now: Instant) -> Vec<Line> {
        let mut lines = Vec::new();
        self.all.retain(|_, tally| {
            if now < tally.ends() {
                return true;
            }
            let count = tally.count();
            let goes_on = count.is_some();
            lines.extend(count);
            // The count is the line of the next period.
            (tally.since, tally.said) = (now, tally.limit.lines);
            goes_on
        });
        lines
    }

    /// All counts, whether their period is over or not.
    pub(super) fn rest(&mut self) -> Vec<Line> {
        let all = self.all.drain();
        all.filter_map(|(_, mut tally)| tally.count()).collect()
    }

    /// When the next period is over.
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.all.values().map(Tally::ends).min()
    }
}

impl Tally {
    fn ends(&self) -> Instant {
        self.since + self.limit.period
    }

    /// What was left out, as one line.
    fn count(&mut self) -> Option<Line> {
        let count = std::mem::take(&mut self.left_out);
        let mut line = self.example.take()?;
        if count > 1 {
            let within = self.limit.period;
            line.message = format!("{} ({count} times within {within:?})", line.message);
            line.fields.push(("count", json!(count)));
        }
        Some(line)
    }
}

/// Keys at a time.
const KEYS_MAX: usize = 256;
/// What is counted together when there are as many keys as allowed.
const OTHERS: &str = "others";
const LIMIT_OF_OTHERS: Limit = Limit {
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
        let mut said = Vec::new();
        for ms in 0..2500 {
            said.extend(tallies.due(at(ms)));
            let text = format!("refused at {ms} ms");
            said.extend(tallies.admit("refused", ONE_A_SECOND, at(ms), || line(&text)));
        }
        let expected = [
            "refused at 0 ms",
            "refused at 1 ms (999 times within 1s)",
            "refused at 1000 ms (1000 times within 1s)",
        ];
        assert_eq!(messages(&said), expected);
        assert_eq!(said[1].fields, [("count", json!(999))]);
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
            let said = tallies.admit("a key", ONE_A_SECOND, at(s), || line("refused"));
            said.is_some()
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
            let said = (0..5).filter(|_| tallies.admit(key, limit, now, || line(key)).is_some());
            said.count()
        };
        assert_eq!(often("one", ONE_A_SECOND), 1);
        assert_eq!(often("two", few), 3);
    }

    #[test]
    fn more_keys_than_fit_are_counted_together() {
        let (mut tallies, now) = (Tallies::default(), Instant::now());
        let mut said = 0;
        for number in 0..10_000 {
            let key = format!("an address {number}");
            let admitted = tallies.admit(&key, ONE_A_SECOND, now, || line(&key));
            said += usize::from(admitted.is_some());
        }
        assert_eq!(said, KEYS_MAX + 1);
        assert_eq!(tallies.all.len(), KEYS_MAX + 1);
        let rest = tallies.rest();
        assert_eq!(rest.len(), 1);
        assert!(rest[0].message.contains("(9743 times"), "{rest:?}");
    }
}
