//! The timers of a shard, in order of their deadlines.

use std::collections::BTreeMap;

use crate::{Nanos, Token};

/// Id of a timer. An id of an expired timer may be cancelled without effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TimerId {
    at: Nanos,
    number: u64,
}

/// All timers that are neither expired nor cancelled.
///
/// A task on the I/O path sets no timer per request. It has one timer, and checks at its expiry
/// whether the deadline has moved meanwhile.
#[derive(Debug)]
pub(crate) struct Timers {
    waiting: BTreeMap<TimerId, Token>,
    next_number: u64,
}

impl Timers {
    pub(crate) fn new() -> Self {
        // This entry never expires. With it the map is never empty and keeps its memory.
        let last = TimerId {
            at: Nanos::MAX,
            number: u64::MAX,
        };
        Self {
            waiting: BTreeMap::from([(last, Token::NOBODY)]),
            next_number: 0,
        }
    }

    pub(crate) fn set(&mut self, token: Token, at: Nanos) -> TimerId {
        let id = TimerId {
            at,
            number: self.next_number,
        };
        self.next_number += 1;
        self.waiting.insert(id, token);
        id
    }

    pub(crate) fn cancel(&mut self, id: TimerId) {
        self.waiting.remove(&id);
    }

    /// The next deadline.
    pub(crate) fn next(&self) -> Option<Nanos> {
        let at = self.waiting.first_key_value().map(|(id, _)| id.at);
        at.filter(|at| *at != Nanos::MAX)
    }

    /// A mark between the timers that are set and those that are set later.
    pub(crate) fn mark(&self) -> u64 {
        self.next_number
    }

    /// Removes the first timer due at `now` that was set before `mark`. So a timer that is set for
    /// the past while others expire waits for the next turn.
    pub(crate) fn expire(&mut self, now: Nanos, mark: u64) -> Option<Token> {
        let due = |id: &TimerId| id.at <= now && id.at != Nanos::MAX;
        let (&id, _) = self
            .waiting
            .iter()
            .take_while(|(id, _)| due(id))
            .find(|(id, _)| id.number < mark)?;
        self.waiting.remove(&id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TaskId;

    fn token(slot: u32) -> Token {
        Token {
            task: TaskId::NOBODY,
            slot,
        }
    }

    #[test]
    fn timers_expire_in_order_of_deadline_then_of_setting() {
        let mut timers = Timers::new();
        for (slot, at) in [(1, 30), (2, 10), (3, 20), (4, 10)] {
            timers.set(token(slot), Nanos(at));
        }
        assert_eq!(timers.next(), Some(Nanos(10)));
        let mark = timers.mark();
        let order: Vec<_> = std::iter::from_fn(|| timers.expire(Nanos(25), mark))
            .map(|t| t.slot)
            .collect();
        assert_eq!(order, [2, 4, 3]);
        assert_eq!(timers.next(), Some(Nanos(30)));
    }

    #[test]
    fn a_cancelled_timer_never_expires_and_a_second_cancel_harms_nobody() {
        let mut timers = Timers::new();
        let first = timers.set(token(1), Nanos(5));
        timers.set(token(2), Nanos(5));
        timers.cancel(first);
        timers.cancel(first);
        assert_eq!(timers.expire(Nanos(9), timers.mark()), Some(token(2)));
        assert_eq!(timers.expire(Nanos(9), timers.mark()), None);
        assert_eq!(timers.next(), None);
    }

    #[test]
    fn a_timer_set_while_others_expire_waits_for_the_next_turn() {
        let mut timers = Timers::new();
        timers.set(token(1), Nanos(5));
        let mark = timers.mark();
        assert_eq!(timers.expire(Nanos(9), mark), Some(token(1)));
        timers.set(token(2), Nanos(1));
        assert_eq!(timers.expire(Nanos(9), mark), None);
        assert_eq!(timers.expire(Nanos(9), timers.mark()), Some(token(2)));
    }

    #[test]
    fn a_timer_for_ever_is_no_deadline() {
        let mut timers = Timers::new();
        timers.set(token(1), Nanos::MAX);
        assert_eq!(timers.next(), None);
        assert_eq!(timers.expire(Nanos::MAX, timers.mark()), None);
    }
}
