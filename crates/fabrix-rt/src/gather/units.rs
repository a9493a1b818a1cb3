//! Positions at which a send of several system calls is cut: between two units.
//!
//! A unit is a PDU, which the receiver processes as a whole. If a call ends inside a unit, the
//! receiver has to keep its beginning until the rest comes, and some receivers become slower. SPDK
//! 24.09 returns to its poller after every 33 KB that end inside a unit. It took a quarter fewer
//! writes of 4 KiB from us than from its own host.

/// Some of the positions at which units of a send end, in order.
pub(super) struct Units {
    ends: Vec<usize>,
    next: usize,
}

impl Units {
    /// For a send of at most `parts` parts. A unit has two or three.
    pub(super) fn new(parts: usize) -> Self {
        Self {
            ends: Vec::with_capacity(parts / 2 + 1),
            next: APART_BYTES,
        }
    }

    pub(super) fn clear(&mut self) {
        self.ends.clear();
        self.next = APART_BYTES;
    }

    /// A unit begins at this byte, so the one before ends here.
    #[inline(always)]
    pub(super) fn begin(&mut self, at: usize) {
        if at >= self.next && self.ends.len() < self.ends.capacity() {
            self.ends.push(at);
            self.next = at + APART_BYTES;
        }
    }

    /// Best end of a call that sends from `from` to `most` at most: `most`, or the end of a unit at
    /// most an eighth of the length before it.
    pub(super) fn end_within(&self, from: usize, most: usize) -> usize {
        let index = self.ends.partition_point(|end| *end <= most);
        let least = most - (most - from) / 8;
        match self.ends[..index].last() {
            Some(end) if *end >= least => *end,
            _ => most,
        }
    }
}

/// Least distance of two noted ends.
const APART_BYTES: usize = 8 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: usize = 256 << 10;

    fn of(bytes: usize) -> Units {
        let mut units = Units::new(200);
        (0..100).for_each(|index| units.begin(index * bytes));
        units
    }

    #[test]
    fn a_call_ends_where_a_short_unit_does() {
        const WRITE: usize = 72 + 4096;
        let mut units = of(WRITE);
        let first = units.end_within(0, MOST);
        assert!(first.is_multiple_of(WRITE) && (7 * MOST / 8..=MOST).contains(&first));
        let second = units.end_within(first, first + 3 * WRITE);
        assert!(second.is_multiple_of(WRITE) && second > first);
        units.clear();
        assert_eq!(units.end_within(0, MOST), MOST);
    }

    #[test]
    fn a_call_does_not_send_much_less_for_the_sake_of_a_long_unit() {
        assert_eq!(of(24 + (128 << 10)).end_within(0, MOST), MOST);
        assert_eq!(of(3 * MOST).end_within(5, MOST), MOST);
    }
}
