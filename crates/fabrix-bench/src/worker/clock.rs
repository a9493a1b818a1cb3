//! The time as a job sees it: when endings came and when requests began.
//!
//! Reading the clock takes about 20 ns and makes the processor finish what it has begun; with many
//! requests in flight that is a twentieth of all that a host does for one. A turn of the shard
//! brings many endings at once, and taking eight of them takes about a microsecond, so that the
//! time is no staler than that.

use fabrix_rt::Nanos;

/// The clock as last read.
pub(super) struct Clock {
    now_ns: u64,
    /// The turn whose endings are counted.
    turn: Nanos,
    /// Endings of this turn since the clock was read.
    endings: u32,
}

impl Clock {
    pub(super) fn new() -> Self {
        Self {
            now_ns: Nanos::now().0,
            turn: Nanos(0),
            endings: 0,
        }
    }

    /// When it was read last, in nanoseconds.
    #[inline]
    pub(super) fn now_ns(&self) -> u64 {
        self.now_ns
    }

    /// Something has happened: what time is it?
    #[inline]
    pub(super) fn read(&mut self) {
        self.now_ns = Nanos::now().0;
        self.endings = 0;
    }

    /// The ending of a request has come, in the turn that began at that time.
    #[inline]
    pub(super) fn ending(&mut self, turn: Nanos) {
        self.endings += 1;
        if turn != self.turn || self.endings >= ENDINGS_MOST {
            self.turn = turn;
            self.read();
        }
    }
}

/// The clock is read with the first ending of a turn, and with each that is so many after the last
/// reading.
const ENDINGS_MOST: u32 = 8;

#[cfg(test)]
mod tests {
    use super::*;

    /// The clock at each of so many endings of one turn.
    fn endings(clock: &mut Clock, turn: Nanos, count: usize) -> Vec<u64> {
        let mut times = Vec::new();
        for _ in 0..count {
            let before = Nanos::now();
            while Nanos::now() == before {}
            clock.ending(turn);
            times.push(clock.now_ns());
        }
        times
    }

    #[test]
    fn the_first_ending_of_a_turn_and_every_eighth_after_it_have_a_time_of_their_own() {
        let mut clock = Clock::new();
        let mut distinct = Vec::new();
        for turn in 1..=2 {
            let mut times = endings(&mut clock, Nanos(turn), 20);
            assert!(times.is_sorted());
            times.dedup();
            distinct.extend(times);
        }
        assert_eq!(distinct.len(), 6);
        distinct.dedup();
        assert_eq!(distinct.len(), 6, "a turn begins with a time of its own");
    }
}
