//! Long sends by reference: memory of one connection, used in turn, into which a send is copied whole.
//!
//! Knows which bytes of the memory the peer may still have to read; what sending by reference means stands in `rt`'s
//! `Stage`. Bytes of a stream are read in order, so a peer that has a slot's payload has everything before it. Memory
//! is used again only after that, and never serves another connection: the worst that a peer can make us do, by
//! claiming what it has not read, is to send it other bytes that were meant for it.
//!
//! To refer spares the sender a copy out of one core's cache into another's and costs the receiver more than a copy: it
//! takes each page by itself. Which is more depends on the machine, the receiver and the hour, so it is tried out.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use fabrix_proto::Slot;
use fabrix_rt::{Gather, Nanos, Socket, Stage, Trial};

/// A shorter send is cheaper to copy than to refer to.
const STAGED_BYTES: usize = 32 << 10;
/// Much more than a core's own cache, so that what is written next has left it; much less than all cores' cache.
const RING_BYTES: usize = 4 << 20;
/// So many rings in one process: memory is bounded however many connections there are. The others' sends are copied.
const RINGS_MOST: usize = 32;
/// For so long all long sends are copied, or referred to, when both are tried.
const PERIOD: Duration = Duration::from_millis(3);
/// No two parts share a page.
const PAGE_BYTES: usize = 4096;

/// What becomes of a connection's long sends.
#[derive(Default)]
pub(crate) enum Staging {
    /// Nobody says what has arrived: all is sent from where it is.
    #[default]
    Unsafe,
    /// There is no memory, or there are too many rings.
    Refused,
    Tried(Box<Tried>),
}

/// Whether to refer, and the ring once that was tried.
pub(crate) struct Tried {
    trial: Trial,
    ring: Option<Ring>,
}

impl Staging {
    /// From now on [`arrived`](Self::arrived) is called.
    pub(crate) fn expect_arrivals(&mut self) {
        if matches!(self, Self::Unsafe) {
            *self = Self::Tried(Box::new(Tried {
                trial: Trial::new(PERIOD),
                ring: None,
            }));
        }
    }

    #[inline(always)]
    pub(crate) fn ring(&mut self) -> Option<&mut Ring> {
        match self {
            Self::Tried(tried) => tried.ring.as_mut(),
            _ => None,
        }
    }

    /// The peer has all that was sent of a slot's payload.
    #[inline(always)]
    pub(crate) fn arrived(&mut self, slot: Slot) {
        if let Some(ring) = self.ring() {
            ring.arrived(slot);
        }
    }

    /// What is to be sent now, up to a position in the stream, is referred to if it is long, there is room, and more is
    /// sent that way. `slots` is how many the connection has.
    #[inline(always)]
    pub(crate) fn stage(
        &mut self,
        now: Nanos,
        socket: &Socket,
        gather: &mut Gather,
        ends_at: u64,
        slots: usize,
    ) {
        if gather.total_bytes() < STAGED_BYTES {
            return;
        }
        if let Self::Tried(tried) = self
            && tried.trial.is_second(now, ends_at)
            && !tried.refer(socket, gather, ends_at, slots)
        {
            *self = Self::Refused;
        }
    }
}

impl Tried {
    /// Whether there is a ring to refer to.
    #[inline(never)]
    fn refer(&mut self, socket: &Socket, gather: &mut Gather, ends_at: u64, slots: usize) -> bool {
        if self.ring.is_none() {
            self.ring = Ring::new(socket, slots);
        }
        let Some(ring) = &mut self.ring else {
            return false;
        };
        ring.put(gather, ends_at);
        true
    }
}

pub(crate) struct Ring {
    stage: Stage,
    /// What the peer may still have to read, in the order of the stream, and so of the memory, around its end.
    parts: VecDeque<Part>,
    /// Where the next part begins if it fits there: the whole ring is used in turn, however little of it is in use.
    next: usize,
    /// Where in the stream each slot's payload ended last. Zero: it has none since the ring was made.
    marks: Vec<u64>,
    /// The peer has the stream so far.
    arrived: u64,
}

struct Part {
    start: usize,
    /// Where in the stream it ends.
    ends_at: u64,
}

static RINGS: AtomicUsize = AtomicUsize::new(0);

impl Ring {
    fn new(socket: &Socket, slots: usize) -> Option<Self> {
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
            next: 0,
            marks: vec![0; slots],
            arrived: 0,
        })
    }

    /// A slot's payload, or a part of it, ends at a position in the stream.
    #[inline(always)]
    pub(crate) fn mark(&mut self, slot: Slot, ends_at: u64) {
        self.marks[usize::from(slot.0)] = ends_at;
    }

    #[inline(always)]
    fn arrived(&mut self, slot: Slot) {
        self.arrived = self.arrived.max(self.marks[usize::from(slot.0)]);
    }

    /// Has all that a gather sends go through the ring; leaves it as it is where there is no room.
    fn put(&mut self, gather: &mut Gather, ends_at: u64) {
        let arrived = self.arrived;
        while self
            .parts
            .front()
            .is_some_and(|part| part.ends_at <= arrived)
        {
            self.parts.pop_front();
        }
        let bytes = gather.total_bytes();
        let Some(start) = self.room(bytes).filter(|_| self.stage.is_of_use()) else {
            return;
        };
        gather.send_through(self.stage.part(start, bytes));
        self.parts.push_back(Part { start, ends_at });
        self.next = start + bytes.next_multiple_of(PAGE_BYTES);
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

    const QUARTER: usize = RING_BYTES / 4;
    const SLOT: Slot = Slot(0);

    struct Sender {
        ring: Ring,
        said: u64,
    }

    impl Sender {
        fn new() -> Self {
            let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
            let near = TcpStream::connect(listener.local_addr().expect("bound")).expect("room");
            let ring = Ring::new(&Socket::from(near), 1);
            Self {
                ring: ring.expect("memory, and fewer rings than the most"),
                said: 0,
            }
        }

        /// Where the ring puts a send of so many bytes.
        fn put(&mut self, bytes: usize) -> Option<usize> {
            let mut gather = Gather::new(bytes, 1);
            let payload: Vec<u8> = (0_u8..=250).cycle().take(bytes).collect();
            gather.push_bytes(&payload);
            self.said += bytes as u64;
            self.ring.put(&mut gather, self.said);
            let mut sent = Vec::new();
            gather.copy_to(&mut sent);
            assert!(sent == payload, "the same is sent in either way");
            let put = self
                .ring
                .parts
                .back()
                .filter(|part| part.ends_at == self.said);
            put.map(|part| part.start)
        }

        fn arrived(&mut self, position: u64) {
            self.ring.mark(SLOT, position);
            self.ring.arrived(SLOT);
        }
    }

    /// Long sends, ten in a millisecond, for as long as two periods; in how many of them there was a ring.
    fn sends_with_a_ring(staging: &mut Staging, bytes: usize) -> usize {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let near = TcpStream::connect(listener.local_addr().expect("bound")).expect("room");
        let socket = Socket::from(near);
        let step = Duration::from_micros(100);
        let (mut now, mut said, mut count) = (Nanos(1_000_000_000), 0, 0);
        let end = now + PERIOD * 2;
        while now < end {
            let mut gather = Gather::new(bytes, 1);
            gather.push_bytes(&vec![0; bytes]);
            said += bytes as u64;
            staging.stage(now, &socket, &mut gather, said, 1);
            count += usize::from(staging.ring().is_some());
            now = now + step;
        }
        count
    }

    #[test]
    fn long_sends_are_copied_before_the_other_way_is_tried() {
        let mut staging = Staging::default();
        staging.expect_arrivals();
        assert_eq!(sends_with_a_ring(&mut staging, STAGED_BYTES), 30);
    }

    #[test]
    fn there_is_no_ring_for_short_sends_nor_where_nobody_says_what_arrived() {
        let mut staging = Staging::default();
        assert_eq!(sends_with_a_ring(&mut staging, STAGED_BYTES), 0);
        staging.expect_arrivals();
        assert_eq!(sends_with_a_ring(&mut staging, STAGED_BYTES - 1), 0);
    }

    #[test]
    fn the_ring_is_used_in_turn_even_by_one_at_a_time() {
        let mut sender = Sender::new();
        for quarter in [0, 1, 2, 3, 0, 1] {
            assert_eq!(sender.put(QUARTER), Some(quarter * QUARTER));
            sender.arrived(sender.said);
        }
    }

    #[test]
    fn what_the_peer_may_have_to_read_is_not_written_over() {
        let mut sender = Sender::new();
        for quarter in 0..4 {
            assert_eq!(sender.put(QUARTER), Some(quarter * QUARTER));
        }
        assert_eq!(sender.put(STAGED_BYTES), None, "a full ring");
        sender.arrived(QUARTER as u64 - 1);
        assert_eq!(
            sender.put(STAGED_BYTES),
            None,
            "all but a byte of the first"
        );
        sender.arrived(2 * QUARTER as u64);
        assert_eq!(sender.put(2 * QUARTER), Some(0), "two quarters");
        sender.arrived(QUARTER as u64);
        assert_eq!(
            sender.put(1),
            None,
            "an older slot's answer says nothing new"
        );
        sender.arrived(3 * QUARTER as u64);
        let rounded_up = sender.put(QUARTER - 1);
        assert_eq!(rounded_up, Some(2 * QUARTER), "to pages, it fits exactly");
        assert_eq!(sender.put(1), None);
    }

    #[test]
    fn what_does_not_fit_before_the_end_begins_at_the_start() {
        let mut sender = Sender::new();
        assert_eq!(sender.put(3 * QUARTER), Some(0));
        assert_eq!(sender.put(2 * QUARTER), None);
        sender.arrived(3 * QUARTER as u64);
        assert_eq!(sender.put(2 * QUARTER), Some(0));
        sender.arrived(sender.said);
        assert_eq!(sender.put(RING_BYTES + 1), None);
    }
}
