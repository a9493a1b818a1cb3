//! What waits to be sent on one connection: one gather being filled, one in flight, and the
//! overflow in between.
//!
//! Knows gathers and the order of what was pushed; does not know the machine. Everything that
//! becomes ready while a send is in flight joins the next one, so a busy connection does one system
//! call for many answers.

use std::collections::VecDeque;

use fabrix_proto::{Pass, Sink, Slot};
use fabrix_rt::{Gather, Lent};

use crate::pass::PassResult;
use crate::slot::{Outgoing, Payload};

/// Bytes of headers a gather holds for each of its parts, generously: an SQE capsule is 72 with its
/// 4 of digest.
const BYTES_PER_PART: usize = 80;
/// The most that a machine says by value in one piece: 8 KiB of text, its filling and its digest.
const BYTES_AT_ONCE: usize = 9 << 10;
/// The kernel takes no more parts than this in one call (`UIO_MAXIOV`).
const MOST_PARTS: usize = 1024;
/// Parts of a connection's first gather: enough to connect and to be looked at, and little memory
/// for who does no more.
const FIRST_PARTS: usize = 16;
/// A connection whose peer has this many full gathers unread is not read from.
const BACKLOG: usize = 2;
/// Gathers that are kept for the next sends: one is filled while another travels, and as many wait
/// as a backlog has.
const SPARES: usize = BACKLOG + 2;
/// What payload is filled up with.
const FILL: [u8; 3] = [0; 3];
/// Nor is one for whom so many bytes wait behind the send in flight: with those of a disk that
/// gives buffers, a peer that never reads would hold the shard's memory.
const BACKLOG_BYTES: usize = 4 << 20;

pub(crate) struct Outbox {
    filling: Option<Box<Gather>>,
    queued: VecDeque<Box<Gather>>,
    /// In here, and not in a block of their own: see [`fabrix_rt::Apart`].
    spare: [Option<Box<Gather>>; SPARES],
    in_flight: bool,
    /// Parts of the next gather that is made: twice as many whenever one was full, up to the most.
    parts: usize,
    parts_most: usize,
    /// Payload is filled up with zeros to a multiple of this.
    unit: usize,
}

impl Outbox {
    /// An outbox whose gathers grow until they hold what `slots` commands may have to say at once:
    /// header, payload, digest each.
    pub(crate) fn new(slots: usize, unit: u32) -> Self {
        let parts_most = (slots * 3 + 8).min(MOST_PARTS);
        Self {
            filling: None,
            queued: VecDeque::with_capacity(4),
            spare: [const { None }; SPARES],
            in_flight: false,
            parts: FIRST_PARTS.min(parts_most),
            parts_most,
            unit: unit as usize,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.filling.as_ref().is_none_or(|gather| gather.is_empty()) && self.queued.is_empty()
    }

    pub(crate) fn in_flight(&self) -> bool {
        self.in_flight
    }

    /// The peer does not read: take no more from it until it does. True only while a send is in
    /// flight, or about to be, so that its ending is the time to look again.
    pub(crate) fn backlogged(&self) -> bool {
        self.queued.len() >= BACKLOG || self.waiting_bytes() >= BACKLOG_BYTES
    }

    fn waiting_bytes(&self) -> usize {
        let queued: usize = self.queued.iter().map(|gather| gather.total_bytes()).sum();
        self.filling
            .as_ref()
            .map_or(queued, |gather| queued + gather.total_bytes())
    }

    /// What is to be sent next, if nothing is in flight.
    pub(crate) fn take(&mut self) -> Option<Box<Gather>> {
        if self.in_flight {
            return None;
        }
        let next = match self.queued.pop_front() {
            Some(gather) => Some(gather),
            None if self
                .filling
                .as_ref()
                .is_some_and(|gather| !gather.is_empty()) =>
            {
                self.filling.take()
            }
            None => None,
        };
        self.in_flight = next.is_some();
        next
    }

    /// A send has ended: its gather is free again.
    pub(crate) fn give_back(&mut self, mut gather: Box<Gather>) {
        gather.clear();
        self.in_flight = false;
        if !gather.has_room(0, self.parts) {
            return; // others are longer by now
        }
        let place = self.spare.iter_mut().find(|place| place.is_none());
        // A peer that does not read can leave more than this: they go.
        if let Some(place) = place {
            *place = Some(gather);
        }
    }

    #[inline(always)]
    fn room(&mut self, bytes: usize) -> &mut Gather {
        if self
            .filling
            .as_ref()
            .is_some_and(|gather| !gather.has_room(bytes, 2))
        {
            self.put_by();
        }
        if self.filling.is_none() {
            self.filling = Some(self.fresh());
        }
        self.filling.as_mut().expect("just seen to")
    }

    /// The gather being filled is full.
    #[inline(never)]
    fn put_by(&mut self) {
        self.queued.extend(self.filling.take());
        if self.parts < self.parts_most {
            self.parts = (self.parts * 2).min(self.parts_most);
            self.spare = [const { None }; SPARES]; // they would only be full again
        }
    }

    /// A gather to be filled, one that was used before if there is one.
    #[inline(never)]
    fn fresh(&mut self) -> Box<Gather> {
        let capacity = (self.parts * BYTES_PER_PART).max(BYTES_AT_ONCE);
        let spare = self.spare.iter_mut().find_map(Option::take);
        spare.unwrap_or_else(|| Box::new(Gather::new(capacity, self.parts)))
    }
}

/// Where a machine puts what is to be sent: the [`Sink`] of a stream.
pub struct Out<'a> {
    pub(crate) outbox: &'a mut Outbox,
    pub(crate) slots: &'a [Payload],
    /// All payload of the slot that is answered now, if it is not in the table.
    pub(crate) at_hand: Option<Lent>,
}

impl Sink for Out<'_> {
    #[inline(always)]
    fn bytes(&mut self, bytes: &[u8]) {
        let gather = self.outbox.room(bytes.len());
        gather.begin_unit();
        gather.push_bytes(bytes);
    }

    #[inline(always)]
    fn payload(&mut self, slot: Slot, offset: u32, bytes: u32, pass: Pass) {
        let (offset, bytes) = (offset as usize, bytes as usize);
        // Units are powers of two; for a unit of one this is nothing.
        let fill = &FILL[..bytes.wrapping_neg() & (self.outbox.unit - 1)];
        let gather = self.outbox.room(FILL.len() + pass.trailer_bytes());
        match &self.at_hand {
            Some(lent) => push_lent(gather, lent, (offset, bytes, fill), pass),
            None => {
                let outgoing = self.slots[usize::from(slot.0)].outgoing.as_ref();
                let outgoing =
                    outgoing.expect("the owner gives payload before the machine sends it");
                push(gather, outgoing, (offset, bytes, fill), pass);
            }
        }
    }
}

/// Lists a part of a disk's own pages, and its filling, to be sent.
#[inline(always)]
fn push_lent(gather: &mut Gather, lent: &Lent, part: (usize, usize, &[u8]), pass: Pass) {
    debug_assert_eq!(pass, Pass::None, "others may write lent pages");
    let (offset, bytes, fill) = part;
    gather.push_lent(lent.slice(offset, bytes));
    gather.push_bytes(fill);
}

/// Lists a part of a slot's payload, its filling and the result of the pass, to be sent.
#[inline(always)]
fn push(gather: &mut Gather, outgoing: &Outgoing, part: (usize, usize, &[u8]), pass: Pass) {
    let (offset, bytes, fill) = part;
    let (buf, from) = match outgoing {
        Outgoing::Lent(lent) => return push_lent(gather, lent, part, pass),
        Outgoing::Buf(buf, start) => (buf, start + offset),
    };
    gather.push_buf(buf.clone(), from, bytes);
    gather.push_bytes(fill);
    let result = PassResult::of(pass, &buf.bytes()[from..from + bytes], fill);
    gather.push_bytes(result.bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_at_once_again_and_again_comes_to_leave_at_once() {
        const BYTES: usize = 80;
        const TIMES: usize = 300;
        let mut outbox = Outbox::new(128, 1);
        let mut sends = Vec::new();
        for _ in 0..8 {
            for _ in 0..TIMES {
                outbox.room(BYTES).push_bytes(&[0; BYTES]);
            }
            let mut count = 0;
            while let Some(gather) = outbox.take() {
                count += 1;
                outbox.give_back(gather);
            }
            sends.push(count);
        }
        assert!(sends[0] > 1, "the first are short: {sends:?}");
        assert_eq!(sends[7], 1, "{sends:?}");
    }
}
