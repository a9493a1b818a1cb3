//! The requests of a pool, by their slot. All memory is allocated at the start.

use fabrix_block::{Payload, Request as BlockRequest};
use fabrix_rt::{Loan, Nanos, Token};

use crate::request::Request;

/// A request of the disk's user.
pub(super) struct Entry {
    pub(super) request: Request,
    /// Bytes of its blocks.
    pub(super) bytes: u64,
    /// The path that has it, or had it last.
    pub(super) path: usize,
    pub(super) sent_at: Nanos,
}

impl Entry {
    pub(super) const fn new(request: Request, bytes: u64) -> Self {
        Self {
            request,
            bytes,
            path: 0,
            sent_at: Nanos(0),
        }
    }

    /// The request for a path. Its data is with the path until [`take_back`](Self::take_back).
    pub(super) fn lend(&mut self, token: Token) -> BlockRequest<'static> {
        let data = self.request.data.take();
        BlockRequest {
            operation: self.request.operation,
            lba: self.request.lba,
            blocks: self.request.blocks,
            payload: data.map_or(Payload::None, Payload::Owned),
            token,
        }
    }

    /// The data comes back from a path.
    pub(super) fn take_back(&mut self, loan: Loan) {
        if let Loan::Buf(buf) = loan {
            self.request.data = Some(buf);
        }
    }
}

/// Requests by slot.
pub(super) struct Table {
    entries: Vec<Option<Entry>>,
    free: Vec<u32>,
}

impl Table {
    pub(super) fn new(capacity: u16) -> Self {
        Self {
            entries: (0..capacity).map(|_| None).collect(),
            free: (0..u32::from(capacity)).rev().collect(),
        }
    }

    pub(super) fn is_full(&self) -> bool {
        self.free.is_empty()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.free.len() == self.entries.len()
    }

    /// Stores a request. The caller has seen that there is room.
    pub(super) fn insert(&mut self, entry: Entry) -> u32 {
        let slot = self.free.pop().expect("the table has room");
        self.entries[slot as usize] = Some(entry);
        slot
    }

    pub(super) fn entry(&mut self, slot: u32) -> &mut Entry {
        let entry = self.entries[slot as usize].as_mut();
        entry.expect("a slot is used until its request has ended")
    }

    pub(super) fn request(&mut self, slot: u32) -> &Request {
        &self.entry(slot).request
    }

    pub(super) fn remove(&mut self, slot: u32) -> Entry {
        let entry = self.entries[slot as usize].take();
        self.free.push(slot);
        entry.expect("a slot is used until its request has ended")
    }
}
