//! The bytes of one send in order: copied headers, and payload by reference.
//!
//! A gather takes all its memory when it is made, and pushing never allocates. A caller asks
//! [`Gather::has_room`] before it pushes. `sys/gather.rs` holds the raw vectors that the kernel
//! reads.

mod units;

use std::fmt;

use self::units::Units;
use crate::sys::gather::{Keep, Wire};
use crate::{Buf, Lent};

/// The parts of one send.
pub struct Gather {
    wire: Wire,
    units: Units,
}

/// Most parts that the kernel takes in one call (UIO_MAXIOV).
const PARTS_MAX: usize = 1024;
/// Most bytes that Linux sends in one call (MAX_RW_COUNT). They fit into the i32 result of an
/// operation.
const BYTES_MAX: usize = 0x7fff_f000;

impl Gather {
    /// Room for `bytes_capacity` copied bytes and `parts_capacity` parts, at most 1,024.
    pub fn new(bytes_capacity: usize, parts_capacity: usize) -> Self {
        assert!(
            parts_capacity <= PARTS_MAX,
            "a Gather of {parts_capacity} parts: the kernel takes {PARTS_MAX}"
        );
        Self {
            wire: Wire::new(bytes_capacity, parts_capacity),
            units: Units::new(parts_capacity),
        }
    }

    /// Whether `bytes` more copied bytes and `parts` more parts fit.
    pub fn has_room(&self, bytes: usize, parts: usize) -> bool {
        self.wire.bytes_left() >= bytes
            && self.wire.parts_left() >= parts
            && self.total_bytes() < BYTES_MAX / 2
    }

    /// Marks the start of a unit, which the receiver processes as a whole: a PDU. A call that sends
    /// only a part of the gather ends between two units if it can.
    #[inline(always)]
    pub fn begin_unit(&mut self) {
        self.units.begin(self.wire.total_bytes());
    }

    /// Copies bytes in. Adjacent copies become one part. Panics without room.
    #[inline(always)]
    pub fn push_bytes(&mut self, bytes: &[u8]) {
        self.wire.push_bytes(bytes);
    }

    /// Adds `bytes` of a buffer from `start`. The gather holds the buffer until [`Gather::clear`].
    #[inline(always)]
    pub fn push_buf(&mut self, buf: Buf, start: usize, bytes: usize) {
        self.check_total(bytes);
        self.wire.push_kept(Keep::Buf(buf), start, bytes);
    }

    /// Adds a loan of a disk. The gather holds it until [`Gather::clear`].
    #[inline(always)]
    pub fn push_lent(&mut self, lent: Lent) {
        self.check_total(lent.len());
        self.wire.push_lent(lent);
    }

    /// Bytes pushed since the last clear.
    pub fn total_bytes(&self) -> usize {
        self.wire.total_bytes()
    }

    /// Parts pushed since the last clear.
    pub fn parts(&self) -> usize {
        self.wire.parts()
    }

    /// Whether nothing was pushed.
    pub fn is_empty(&self) -> bool {
        self.total_bytes() == 0
    }

    /// Drops all parts. The memory of the list stays.
    pub fn clear(&mut self) {
        self.wire.clear();
        self.units.clear();
    }

    /// Appends a copy of the unsent bytes, for tests, simulators and captures.
    pub fn copy_to(&mut self, out: &mut Vec<u8>) {
        self.wire.copy_to(out);
    }

    /// Limits the bytes of one system call, at least to one byte. Other tasks of the shard run
    /// between two calls.
    pub(crate) fn send_at_once(&mut self, bytes: usize) {
        self.wire.send_at_once(bytes);
    }

    /// Bytes that the next system call sends.
    pub(crate) fn bytes_at_once(&self) -> usize {
        let sent = self.total_bytes() - self.unsent_bytes();
        let most = self.wire.bytes_at_once();
        if most == self.unsent_bytes() {
            return most;
        }
        self.units.end_within(sent, sent + most) - sent
    }

    /// Unsent bytes.
    pub(crate) fn unsent_bytes(&self) -> usize {
        self.wire.unsent_bytes()
    }

    /// Counts `bytes` more as sent.
    pub(crate) fn advance(&mut self, bytes: usize) {
        self.wire.advance(bytes);
    }

    pub(crate) fn wire(&mut self) -> &mut Wire {
        &mut self.wire
    }

    fn check_total(&self, bytes: usize) {
        assert!(
            bytes <= BYTES_MAX - self.total_bytes(),
            "a Gather of more than {BYTES_MAX} bytes"
        );
    }
}

impl fmt::Debug for Gather {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Gather({} bytes in {} parts)",
            self.total_bytes(),
            self.parts()
        )
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::buf::Arena;
    use crate::slab::Slabs;
    use crate::{HugePages, Region};

    fn buf(bytes: &[u8]) -> Buf {
        let mut buf = Buf::new(
            Arena::new(4 << 20, Slabs::new())
                .take(bytes.len())
                .expect("room"),
        );
        buf.bytes_mut().copy_from_slice(bytes);
        buf
    }

    fn left(gather: &mut Gather) -> Vec<u8> {
        let mut out = Vec::new();
        gather.copy_to(&mut out);
        out
    }

    #[test]
    fn a_call_that_sends_a_part_ends_where_a_unit_does() {
        const UNIT: usize = 72 + 4096;
        let mut gather = Gather::new(100 * 72, 200);
        for _ in 0..100 {
            gather.begin_unit();
            gather.push_bytes(&[0; 72]);
            gather.push_buf(buf(&[0; 4096]), 0, 4096);
        }
        gather.send_at_once(128 << 10);
        for calls in 1..=3 {
            let bytes = gather.bytes_at_once();
            assert_eq!(bytes % UNIT, 0, "call {calls}: {bytes}");
            assert!((112 << 10..=128 << 10).contains(&bytes), "{bytes}");
            gather.advance(bytes);
        }
        gather.send_at_once(usize::MAX);
        assert_eq!(gather.bytes_at_once(), gather.unsent_bytes());
    }

    #[test]
    fn adjacent_bytes_are_one_part_and_nothing_is_no_part() {
        let region = Region::new(4096, HugePages::No).expect("a page");
        region.write(10, b"page");
        let mut gather = Gather::new(100, 4);
        gather.push_bytes(b"");
        gather.push_bytes(b"ab");
        gather.push_bytes(b"cd");
        gather.push_buf(buf(b"0123456789"), 2, 3);
        gather.push_buf(buf(b"0123456789"), 2, 0);
        gather.push_bytes(b"ef");
        gather.push_lent(Region::local(&region).lend(10, 4));
        drop(region);
        assert_eq!((gather.parts(), gather.total_bytes()), (4, 13));
        assert_eq!(left(&mut gather), b"abcd234efpage");
        gather.clear();
        assert!(gather.is_empty() && gather.parts() == 0 && gather.has_room(100, 4));
    }

    #[test]
    fn what_disks_lend_in_any_order_stays_mapped_until_all_is_let_go() {
        let regions = [1, 2].map(|byte| {
            let region = Region::new(4096, HugePages::No).expect("a page");
            region.write(0, &[byte; 4]);
            region
        });
        let views = [0, 1].map(|index: usize| Region::local(&regions[index]));
        let mut gather = Gather::new(0, 8);
        for index in [0, 0, 1, 1, 0, 1] {
            gather.push_lent(views[index].lend(0, 2));
        }
        drop(views);
        let kept = |region: &Arc<Region>| Arc::strong_count(region) > 1;
        assert!(kept(&regions[0]) && kept(&regions[1]));
        assert_eq!(left(&mut gather), [1, 1, 1, 1, 2, 2, 2, 2, 1, 1, 2, 2]);
        gather.clear();
        assert!(!kept(&regions[0]) && !kept(&regions[1]));
    }

    #[test]
    fn a_short_send_goes_on_where_it_stopped_however_it_is_cut() {
        for cut in 0..=9 {
            let mut gather = Gather::new(100, 4);
            gather.push_bytes(b"abc");
            gather.push_buf(buf(b"def"), 0, 3);
            gather.push_bytes(b"ghi");
            gather.advance(cut);
            assert_eq!(left(&mut gather), b"abcdefghi"[cut..]);
            gather.advance(9 - cut);
            assert_eq!((gather.unsent_bytes(), gather.total_bytes()), (0, 9));
        }
    }

    #[test]
    fn has_room_counts_bytes_and_parts() {
        let mut gather = Gather::new(4, 2);
        assert!(gather.has_room(4, 2) && !gather.has_room(5, 0) && !gather.has_room(0, 3));
        gather.push_bytes(b"abc");
        assert!(gather.has_room(1, 1) && !gather.has_room(2, 0) && !gather.has_room(0, 2));
    }

    #[test]
    #[should_panic(expected = "4 bytes of copies are full")]
    fn a_push_without_room_for_bytes_panics() {
        Gather::new(4, 2).push_bytes(b"abcde");
    }

    #[test]
    #[should_panic(expected = "1 parts are full")]
    fn a_push_without_room_for_parts_panics() {
        let mut gather = Gather::new(4, 1);
        gather.push_bytes(b"a");
        gather.push_buf(buf(b"b"), 0, 1);
    }
}
