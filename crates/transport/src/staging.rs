//! Where large payload waits to be sent by reference: memory of one connection, used in turn.
//!
//! Knows which parts of the memory are in use; what sending by reference means stands in `rt`'s `Stage`. A part is used
//! again only after whoever took it says that the peer has it, and no part ever serves another connection: the worst
//! that a peer can make us do, by answering what it has not read, is to send it other bytes that were meant for it.

use std::cell::OnceCell;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};

use fabrix_rt::{Referenced, Socket, Stage, staging_pays};

/// Smaller payload is cheaper to copy than to refer to.
pub(crate) const STAGED_BYTES: usize = 64 << 10;
/// Much more than a core's own cache, so that what is written next has left it; much less than all cores' cache.
const RING_BYTES: usize = 4 << 20;
/// So many rings in one process: memory is bounded however many connections there are. The others' sends are copied.
const RINGS_MOST: usize = 32;
/// No two parts share a page.
const PAGE_BYTES: usize = 4096;

/// A connection's ring, made when it is first wanted.
#[derive(Default)]
pub(crate) struct Staging {
    /// None in it: it would not pay here, there is no memory, or there are too many.
    ring: OnceCell<Option<Ring>>,
}

/// Names a part that is in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place(u32);

impl Staging {
    /// Copies payload to where it is sent from; None: it must be sent from where it is.
    pub(crate) fn put(&mut self, socket: &Socket, bytes: &[u8]) -> Option<Place> {
        self.ring
            .get_or_init(|| staging_pays().then(|| Ring::new(socket)).flatten());
        self.ring.get_mut()?.as_mut()?.put(bytes)
    }

    /// What lies at a place that is in use.
    pub(crate) fn at(&self, place: Place) -> Option<&Referenced> {
        let ring = self.ring.get()?.as_ref()?;
        ring.parts.get(ring.index(place)).map(|part| &part.copy)
    }

    /// The peer has it.
    pub(crate) fn free(&mut self, place: Place) {
        if let Some(Some(ring)) = self.ring.get_mut() {
            ring.free(place);
        }
    }
}

struct Ring {
    stage: Stage,
    /// In the order in which they were taken, and so in the memory's, around its end.
    parts: VecDeque<Part>,
    /// The place of the first part.
    first: u32,
    /// Where the next part begins if it fits there: the whole ring is used in turn, however little of it is in use.
    next: usize,
}

struct Part {
    start: usize,
    copy: Referenced,
    in_use: bool,
}

static RINGS: AtomicUsize = AtomicUsize::new(0);

impl Ring {
    fn new(socket: &Socket) -> Option<Self> {
        if RINGS.fetch_add(1, Ordering::Relaxed) >= RINGS_MOST {
            RINGS.fetch_sub(1, Ordering::Relaxed);
            return None;
        }
        let stage = Stage::new(socket, RING_BYTES).ok();
        if stage.is_none() {
            RINGS.fetch_sub(1, Ordering::Relaxed);
        }
        Some(Self {
            stage: stage?,
            parts: VecDeque::with_capacity(RING_BYTES / STAGED_BYTES),
            first: 0,
            next: 0,
        })
    }

    fn put(&mut self, bytes: &[u8]) -> Option<Place> {
        if !self.stage.is_of_use() {
            return None;
        }
        let start = self.room(bytes.len())?;
        let behind = u32::try_from(self.parts.len()).expect("a ring has few parts");
        self.parts.push_back(Part {
            start,
            copy: self.stage.put(start, bytes),
            in_use: true,
        });
        self.next = start + bytes.len().next_multiple_of(PAGE_BYTES);
        Some(Place(self.first.wrapping_add(behind)))
    }

    /// Where so many bytes fit: behind the newest part, or at the beginning.
    fn room(&self, bytes: usize) -> Option<usize> {
        let fits = |start: usize, end: usize| end - start >= bytes;
        match self.parts.front() {
            // All that is in use lies behind what is free, or fills it.
            Some(oldest) if self.next <= oldest.start => {
                fits(self.next, oldest.start).then_some(self.next)
            }
            _ if fits(self.next, RING_BYTES) => Some(self.next),
            oldest => fits(0, oldest.map_or(RING_BYTES, |part| part.start)).then_some(0),
        }
    }

    /// Where a place is among the parts.
    fn index(&self, place: Place) -> usize {
        place.0.wrapping_sub(self.first) as usize
    }

    fn free(&mut self, place: Place) {
        let index = self.index(place);
        self.parts[index].in_use = false;
        while self.parts.front().is_some_and(|part| !part.in_use) {
            self.parts.pop_front();
            self.first = self.first.wrapping_add(1);
        }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        RINGS.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    fn ring() -> Ring {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let near = TcpStream::connect(listener.local_addr().expect("bound")).expect("room");
        Ring::new(&Socket::from(near)).expect("memory, and fewer rings than the most")
    }

    const QUARTER: usize = RING_BYTES / 4;

    fn put(ring: &mut Ring, bytes: usize) -> Option<Place> {
        ring.put(&vec![1; bytes])
    }

    #[test]
    fn the_ring_is_used_in_turn_even_by_one_at_a_time() {
        let mut ring = ring();
        let starts: Vec<_> = (0..6)
            .map(|_| {
                let place = put(&mut ring, QUARTER).expect("an empty ring");
                let start = ring.parts[0].start;
                ring.free(place);
                start
            })
            .collect();
        assert_eq!(starts, [0, 1, 2, 3, 0, 1].map(|quarter| quarter * QUARTER));
    }

    #[test]
    fn nothing_in_use_is_used_again_and_a_full_ring_says_no() {
        let mut ring = ring();
        let places: Vec<_> = (0..4)
            .map(|_| put(&mut ring, QUARTER).expect("room"))
            .collect();
        assert_eq!(put(&mut ring, STAGED_BYTES), None);
        // Those behind the oldest are not free before it is: their order is the memory's.
        ring.free(places[1]);
        assert_eq!(put(&mut ring, STAGED_BYTES), None);
        ring.free(places[0]);
        assert!(put(&mut ring, 2 * QUARTER).is_some());
        assert_eq!(put(&mut ring, STAGED_BYTES), None);
        ring.free(places[2]);
        assert!(
            put(&mut ring, QUARTER - 1).is_some(),
            "rounded up to pages it fits exactly"
        );
        assert_eq!(put(&mut ring, 1), None);
    }

    #[test]
    fn what_does_not_fit_before_the_end_begins_at_the_start() {
        let mut ring = ring();
        let first = put(&mut ring, 3 * QUARTER).expect("room");
        assert_eq!(put(&mut ring, 2 * QUARTER), None);
        ring.free(first);
        assert!(put(&mut ring, 2 * QUARTER).is_some());
        assert_eq!(ring.parts[0].start, 0);
        assert_eq!(put(&mut ring, RING_BYTES + 1), None);
    }
}
