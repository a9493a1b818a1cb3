//! The time as seen by a job: the times of completions and of request starts.
//!
//! Reading the clock takes about 20 ns and serialises the processor. With many requests in flight
//! this is a twentieth of the host's work per request. A turn of the shard delivers many
//! completions at once. Eight of them take about a microsecond, which bounds the error of the time.

use fabrix_rt::Nanos;

/// The clock with its last reading.
pub(super) struct Clock {
    now_ns: u64,
    /// Turn whose completions are being counted.
    turn: Nanos,
    /// Completions of this turn since the last reading.
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

    /// Time of the last reading in nanoseconds.
    #[inline]
    pub(super) fn now_ns(&self) -> u64 {
        self.now_ns
    }

    /// Reads the clock.
    #[inline]
    pub(super) fn read(&mut self) {
        self.now_ns = Nanos::now().0;
        self.endings = 0;
    }

    /// Counts a completion of the turn that began at `turn`. Reads the clock if needed.
    #[inline]
    pub(super) fn ending(&mut self, turn: Nanos) {
        self.endings += 1;
        if turn != self.turn || self.endings >= ENDINGS_MOST {
            self.turn = turn;
            self.read();
        }
    }
}

/// Completions per clock reading. The first completion of a turn always causes a reading.
const ENDINGS_MOST: u32 = 8;

#[cfg(test)]
mod tests {
    use super::*;

    /// The clock after each of `count` completions of one turn.
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
