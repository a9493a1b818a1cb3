//! Memory of one connection's own, used in turn, in which long sends wait for the peer to read them.

use std::collections::VecDeque;

use fabrix_rt::{Gather, Referral, Stage};

use super::STAGED_BYTES;

/// Much more than a core's own cache, so that what is written next has left it; much less than all cores' cache.
const RING_BYTES: usize = 4 << 20;
/// No two parts share a page.
const PAGE_BYTES: usize = 4096;

pub(crate) struct Ring {
    stage: Stage,
    /// What the peer may still have to read, in the order of the stream, and so of the memory, around its end.
    parts: VecDeque<Part>,
    /// Where the next part begins if it fits there: the whole ring is used in turn, however little of it is in use.
    next: usize,
}

struct Part {
    start: usize,
    /// Where in the stream it ends.
    ends_at: u64,
}

impl Ring {
    /// None: there is no memory.
    pub(crate) fn new(referral: &Referral) -> Option<Self> {
        Some(Self {
            stage: Stage::new(referral, RING_BYTES).ok()?,
            parts: VecDeque::with_capacity(RING_BYTES / STAGED_BYTES),
            next: 0,
        })
    }

    /// Has all that a gather sends go through the ring, the peer having the stream up to `arrived`; leaves it as it is
    /// where there is no room.
    pub(crate) fn put(&mut self, gather: &mut Gather, ends_at: u64, arrived: u64) {
        while self
            .parts
            .front()
            .is_some_and(|part| part.ends_at <= arrived)
        {
            self.parts.pop_front();
        }
        let bytes = gather.total_bytes();
        let Some(start) = self.room(bytes) else {
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

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use fabrix_rt::Socket;

    use super::*;

    const QUARTER: usize = RING_BYTES / 4;

    struct Sender {
        ring: Ring,
        said: u64,
        arrived: u64,
    }

    impl Sender {
        fn new() -> Self {
            let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
            let near = TcpStream::connect(listener.local_addr().expect("bound")).expect("room");
            let referral = Referral::new(&Socket::from(near)).expect("descriptors");
            Self {
                ring: Ring::new(&referral).expect("memory"),
                said: 0,
                arrived: 0,
            }
        }

        /// Where the ring puts a send of so many bytes.
        fn put(&mut self, bytes: usize) -> Option<usize> {
            let mut gather = Gather::new(bytes, 1);
            let payload: Vec<u8> = (0_u8..=250).cycle().take(bytes).collect();
            gather.push_bytes(&payload);
            self.said += bytes as u64;
            self.ring.put(&mut gather, self.said, self.arrived);
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
            self.arrived = position;
        }
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
        assert_eq!(sender.put(1), None);
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
