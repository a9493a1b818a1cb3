//! Where a send that goes in several calls is cut: where a unit ends.
//!
//! A unit is what its receiver works on as a whole, a PDU. What a call leaves of one comes a moment
//! later, and a receiver that keeps up has to put its beginning aside meanwhile. Some do less in a
//! turn from then on: SPDK 24.09 goes back to its poller for every 33 KB that it reads, as long as
//! that ends inside of a unit, and took a quarter fewer writes of 4 KiB from us than from its own
//! host.
//!
//! Knows positions only.

/// Some of the ends of a send's units, in order.
pub(super) struct Units {
    ends: Vec<usize>,
    next: usize,
}

impl Units {
    /// For a send of so many parts: a unit is two or three.
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

    /// A unit begins at this byte, and so one ends here.
    #[inline(always)]
    pub(super) fn begin(&mut self, at: usize) {
        if at >= self.next && self.ends.len() < self.ends.capacity() {
            self.ends.push(at);
            self.next = at + APART_BYTES;
        }
    }

    /// Where a call had better end that sends from a byte to another at most: there, or up to an
    /// eighth before it.
    pub(super) fn end_within(&self, from: usize, most: usize) -> usize {
        let index = self.ends.partition_point(|end| *end <= most);
        let least = most - (most - from) / 8;
        match self.ends[..index].last() {
            Some(end) if *end >= least => *end,
            _ => most,
        }
    }
}

/// Ends that are nearer to each other than this are not told apart.
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
