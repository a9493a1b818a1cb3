//! Long sends by reference: from the buffers that their owners gave, or from memory of the connection's own, used in
//! turn, into which a send is copied whole.
//!
//! Knows which bytes the peer may still have to read; what sending by reference means stands in `rt`'s `stage.rs`.
//! Bytes of a stream are read in order, so a peer that has a slot's payload has everything before it, and only then may
//! what was referred to change. A peer that claims to have what it has not read sees later bytes of the same memory. So
//! the buffers of others are referred to only for a process that could look into our memory anyway; the connection's
//! own memory never serves another one, and what is seen there was meant for the same peer.
//!
//! To refer spares the sender a copy into memory that the receiver has just read, out of its core's cache, and costs
//! the receiver more than a copy: it takes each page by itself. Which is more depends on the machine, the receiver and
//! the hour, so it is tried out.

mod arrivals;
mod ring;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use fabrix_proto::Slot;
use fabrix_rt::{Gather, Nanos, Referral, Socket, Trial, peer};

use self::arrivals::Arrivals;
use self::ring::Ring;

/// A shorter send is cheaper to copy than to refer to.
const STAGED_BYTES: usize = 32 << 10;
/// Where parts, headers counted, are as long as this on average, which is with payload of twice as much, it is referred
/// to where it lies.
const IN_PLACE_BYTES: usize = 32 << 10;
/// So many connections of one process refer: descriptors and memory are bounded however many there are. The others'
/// sends are copied.
const REFERRERS_MOST: usize = 32;
/// For so long all long sends are copied, or referred to, when both are tried.
const PERIOD: Duration = Duration::from_millis(3);

/// What becomes of a connection's long sends.
#[derive(Default)]
pub(crate) enum Staging {
    /// Nobody says what has arrived: all is sent from where it is, by copies.
    #[default]
    Unsafe,
    /// There are no descriptors, or too many connections refer.
    Refused,
    Tried(Box<Tried>),
}

/// Whether to refer, what the peer has of all that was sent, and the means once that was tried.
pub(crate) struct Tried {
    trial: Trial,
    arrivals: Arrivals,
    referrer: Option<Referrer>,
}

/// How one connection refers.
struct Referrer {
    referral: Referral,
    /// The peer is a process that could look into our memory anyway.
    in_place: bool,
    /// Where in the stream the last send ends that referred to buffers where they lie.
    in_place_to: u64,
    /// No send that begins before this refers to buffers where they lie: one has got its own back by then.
    copied_to: u64,
    /// Once there was a send of many short parts.
    ring: Option<Ring>,
}

static REFERRERS: AtomicUsize = AtomicUsize::new(0);

impl Staging {
    /// From now on [`arrived`](Self::arrived) is called, of so many slots.
    pub(crate) fn expect_arrivals(&mut self, slots: usize) {
        if matches!(self, Self::Unsafe) {
            *self = Self::Tried(Box::new(Tried {
                trial: Trial::new(PERIOD),
                arrivals: Arrivals::new(slots),
                referrer: None,
            }));
        }
    }

    /// A slot's payload, or a part of it, ends at a position in the stream.
    #[inline(always)]
    pub(crate) fn mark(&mut self, slot: Slot, ends_at: impl FnOnce() -> u64) {
        if let Self::Tried(tried) = self {
            tried.arrivals.mark(slot, ends_at());
        }
    }

    /// The peer has all that was sent of a slot's payload.
    #[inline(always)]
    pub(crate) fn arrived(&mut self, slot: Slot) {
        if let Self::Tried(tried) = self {
            tried.arrivals.arrived(slot);
        }
    }

    /// A slot lets go of its payload; whether the peer may still have to read it, there where it lies.
    #[inline(always)]
    pub(crate) fn lets_go(&mut self, slot: Slot) -> bool {
        match self {
            Self::Tried(tried) if !tried.arrivals.has(slot) => tried.lets_go(slot),
            _ => false,
        }
    }

    /// Where in the stream the last send ends that referred to buffers where they lie; 0: there was none.
    #[cfg(test)]
    pub(crate) fn in_place_to(&self) -> u64 {
        match self {
            Self::Tried(tried) => tried
                .referrer
                .as_ref()
                .map_or(0, |referrer| referrer.in_place_to),
            _ => 0,
        }
    }

    /// What is to be sent now, up to a position in the stream, is referred to if it is long, there is room, and more is
    /// sent that way.
    #[inline(always)]
    pub(crate) fn stage(&mut self, now: Nanos, socket: &Socket, gather: &mut Gather, ends_at: u64) {
        if gather.total_bytes() < STAGED_BYTES {
            return;
        }
        if let Self::Tried(tried) = self
            && tried.trial.is_second(now, ends_at)
            && !tried.refer(socket, gather, ends_at)
        {
            *self = Self::Refused;
        }
    }
}

impl Tried {
    /// Whether there is a way to refer; false before there ever was one.
    #[inline(never)]
    fn refer(&mut self, socket: &Socket, gather: &mut Gather, ends_at: u64) -> bool {
        if self.referrer.is_none() {
            self.referrer = Referrer::new(socket);
        }
        let Some(referrer) = &mut self.referrer else {
            return false;
        };
        referrer.refer(gather, ends_at, self.arrivals.position());
        true
    }

    /// As [`Staging::lets_go`], of a slot whose payload the peer does not certainly have.
    #[inline(never)]
    fn lets_go(&mut self, slot: Slot) -> bool {
        let ends_at = self.arrivals.forget(slot);
        let arrived = self.arrivals.position();
        self.referrer.as_mut().is_some_and(|referrer| {
            referrer.copied_to = referrer.copied_to.max(ends_at);
            referrer.in_place_to > arrived
        })
    }
}

impl Referrer {
    fn new(socket: &Socket) -> Option<Self> {
        if REFERRERS.fetch_add(1, Ordering::Relaxed) >= REFERRERS_MOST {
            REFERRERS.fetch_sub(1, Ordering::Relaxed);
            return None;
        }
        let Ok(referral) = Referral::new(socket) else {
            REFERRERS.fetch_sub(1, Ordering::Relaxed);
            return None;
        };
        Some(Self {
            referral,
            in_place: peer::is_ours(socket),
            in_place_to: 0,
            copied_to: 0,
            ring: None,
        })
    }

    fn refer(&mut self, gather: &mut Gather, ends_at: u64, arrived: u64) {
        if !self.referral.is_of_use() {
            return;
        }
        let bytes = gather.total_bytes();
        let is_late = ends_at - bytes as u64 >= self.copied_to;
        if self.in_place && is_late && bytes >= gather.parts() * IN_PLACE_BYTES {
            gather.send_in_place(&self.referral);
            self.in_place_to = ends_at;
            return;
        }
        if self.ring.is_none() {
            self.ring = Ring::new(&self.referral);
        }
        if let Some(ring) = &mut self.ring {
            ring.put(gather, ends_at, arrived);
        }
    }
}

impl Drop for Referrer {
    fn drop(&mut self) {
        REFERRERS.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    /// Long sends, ten in a millisecond, for as long as two periods; in how many of them there was a way to refer.
    fn sends_with_a_referrer(staging: &mut Staging, bytes: usize) -> usize {
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
            staging.stage(now, &socket, &mut gather, said);
            let refers = matches!(staging, Staging::Tried(tried) if tried.referrer.is_some());
            count += usize::from(refers);
            now = now + step;
        }
        count
    }

    #[test]
    fn long_sends_are_copied_before_the_other_way_is_tried() {
        let mut staging = Staging::default();
        staging.expect_arrivals(1);
        assert_eq!(sends_with_a_referrer(&mut staging, STAGED_BYTES), 30);
    }

    #[test]
    fn short_sends_are_copied_and_so_is_all_where_nobody_says_what_arrived() {
        let mut staging = Staging::default();
        assert_eq!(sends_with_a_referrer(&mut staging, STAGED_BYTES), 0);
        staging.expect_arrivals(1);
        assert_eq!(sends_with_a_referrer(&mut staging, STAGED_BYTES - 1), 0);
    }
}
