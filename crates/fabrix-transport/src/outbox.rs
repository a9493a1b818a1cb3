//! The bytes that wait to be sent on one connection: one gather that is being filled, one in
//! flight, and full ones in between.
//!
//! Knows gathers and their order; does not know the machine. Everything that becomes ready while a
//! send is in flight joins the next send. So a busy connection makes one system call for many
//! answers.

use std::collections::VecDeque;

use fabrix_proto::{Pass, Sink, Slot};
use fabrix_rt::{Gather, Lent};

use crate::pass::PassResult;
use crate::slot::{Outgoing, Payload};

/// Header bytes that a gather has room for, per part: a command capsule of NVMe/TCP takes 76 with
/// its header digest.
const BYTES_PER_PART: usize = 80;
/// Most bytes that a machine sends by value in one piece: 8 KiB of iSCSI text, its filling and its
/// digest.
const BYTES_AT_ONCE: usize = 9 << 10;
/// Most parts of one system call (`UIO_MAXIOV`).
const MOST_PARTS: usize = 1024;
/// Parts of a connection's first gather: enough to connect and to be identified. A peer that does
/// no more costs little memory.
const FIRST_PARTS: usize = 16;
/// Full gathers that may wait. With so many unread, the stream receives no further commands.
const BACKLOG: usize = 2;
/// Gathers that are kept for reuse: one is filled, one is in flight, and a backlog waits.
const SPARES: usize = BACKLOG + 2;
/// What payload is filled up with.
const FILL: [u8; 3] = [0; 3];
/// Bytes that may wait behind the send in flight. They bound the memory of the shard that a peer
/// holds by never reading.
const BACKLOG_BYTES: usize = 4 << 20;

pub(crate) struct Outbox {
    filling: Option<Box<Gather>>,
    queued: VecDeque<Box<Gather>>,
    /// Inline rather than in a block of their own: see [`fabrix_rt::Apart`].
    spare: [Option<Box<Gather>>; SPARES],
    in_flight: bool,
    /// Parts of the next new gather. Doubles whenever a gather was full, up to `parts_most`.
    parts: usize,
    parts_most: usize,
    /// Payload is filled up with zeros to a multiple of this.
    unit: usize,
}

impl Outbox {
    /// Makes an outbox. Its gathers grow until one holds the answers of `slots` commands: header,
    /// payload and digest each.
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

    /// True while the peer leaves too much unread. Then a send is in flight or about to start, and
    /// its completion is the time to ask again.
    pub(crate) fn backlogged(&self) -> bool {
        self.queued.len() >= BACKLOG || self.waiting_bytes() >= BACKLOG_BYTES
    }

    fn waiting_bytes(&self) -> usize {
        let queued: usize = self.queued.iter().map(|gather| gather.total_bytes()).sum();
        self.filling
            .as_ref()
            .map_or(queued, |gather| queued + gather.total_bytes())
    }

    /// Takes the gather to send next. None: one is in flight, or nothing waits.
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

    /// Takes back the gather of a send that has completed.
    pub(crate) fn give_back(&mut self, mut gather: Box<Gather>) {
        gather.clear();
        self.in_flight = false;
        if !gather.has_room(0, self.parts) {
            return; // newer gathers are longer
        }
        let place = self.spare.iter_mut().find(|place| place.is_none());
        // A peer that did not read can leave more gathers than there are places: they are freed.
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
            self.queue_filled();
        }
        if self.filling.is_none() {
            self.filling = Some(self.fresh());
        }
        self.filling.as_mut().expect("it was made above")
    }

    /// Queues the gather that is being filled: it is full.
    #[inline(never)]
    fn queue_filled(&mut self) {
        self.queued.extend(self.filling.take());
        if self.parts < self.parts_most {
            self.parts = (self.parts * 2).min(self.parts_most);
            self.spare = [const { None }; SPARES]; // a short gather would only be full again
        }
    }

    /// Gives an empty gather, a used one if there is one.
    #[inline(never)]
    fn fresh(&mut self) -> Box<Gather> {
        let capacity = (self.parts * BYTES_PER_PART).max(BYTES_AT_ONCE);
        let spare = self.spare.iter_mut().find_map(Option::take);
        spare.unwrap_or_else(|| Box::new(Gather::new(capacity, self.parts)))
    }
}

/// The [`Sink`] of a stream: takes what a machine sends.
pub struct Out<'a> {
    pub(crate) outbox: &'a mut Outbox,
    pub(crate) slots: &'a [Payload],
    /// Payload of the slot that is answered now, if a disk lends it.
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
    fn gathers_grow_until_one_holds_all_that_is_pushed_in_a_turn() {
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
