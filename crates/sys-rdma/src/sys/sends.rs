//! The send queue of a queue pair as this end counts it: work requests from preparation to their
//! completion.
//!
//! Requests end in their order. The last request of every chain asks for a completion, which ends
//! all requests before it. A request owns its memory until it has ended.

use std::mem;
use std::ptr;

use super::completions::request_id;
use super::layout::{self, BindMw, SendWr, Sge};
use super::memory::{Memory, Part, Remote};
use super::slots::Slots;

/// A request before it is prepared.
pub(super) struct Request {
    pub(super) opcode: libc::c_int,
    /// Range of the data.
    pub(super) data: Option<Sge>,
    pub(super) remote: Option<Remote>,
    pub(super) invalidate: u32,
    pub(super) bind: BindMw,
    pub(super) entry: Entry,
}

/// What is remembered of a request until it has ended.
#[derive(Default)]
pub(super) struct Entry {
    /// Token of the work that ends with this request. None: more requests of the work follow, or
    /// nobody asks for its end.
    pub(super) token: Option<u64>,
    pub(super) memory: Option<Memory>,
    pub(super) is_read: bool,
    /// Window that the request closes.
    pub(super) closes: Option<u32>,
}

/// A work that has ended.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) token: u64,
    pub(super) is_ok: bool,
    pub(super) memory: Option<Memory>,
    /// Window that the work was to close.
    pub(super) closes: Option<u32>,
}

pub(super) struct SendRing {
    number: u32,
    requests: Box<[SendWr]>,
    ranges: Box<[[Sge; 2]]>,
    entries: Box<[Entry]>,
    messages: Slots,
    inline_bytes: usize,
    /// Requests prepared so far, and of these: given to the device, ended there, and told to the
    /// owner. Each is at most the one before.
    prepared: u64,
    posted: u64,
    ended: u64,
    told: u64,
    /// The request with this sequence number has failed, and all after it.
    failed_from: Option<u64>,
    reads: u32,
}

impl Request {
    fn of_part(opcode: libc::c_int, data: Sge, part: &Part, entry: Entry) -> Self {
        Self {
            opcode,
            data: Some(data),
            remote: Some(part.remote),
            invalidate: 0,
            bind: BindMw::empty(),
            entry,
        }
    }
}

impl SendRing {
    pub(super) fn new(number: u32, capacity: u32, messages: Slots, inline_bytes: usize) -> Self {
        let capacity = capacity as usize;
        let entries = (0..capacity).map(|_| Entry::default());
        Self {
            number,
            requests: vec![SendWr::empty(); capacity].into(),
            ranges: vec![[Sge::default(); 2]; capacity].into(),
            entries: entries.collect(),
            messages,
            inline_bytes,
            prepared: 0,
            posted: 0,
            ended: 0,
            told: 0,
            failed_from: None,
            reads: 0,
        }
    }

    /// Requests that may be prepared now.
    pub(super) fn room(&self) -> usize {
        self.requests.len() - self.in_use()
    }

    /// RDMA READs that have not ended.
    pub(super) fn reads(&self) -> u32 {
        self.reads
    }

    /// Whether every request has ended and was told.
    pub(super) fn is_empty(&self) -> bool {
        self.in_use() == 0
    }

    /// Requests that were prepared and not told as ended.
    pub(super) fn in_use(&self) -> usize {
        usize::try_from(self.prepared - self.told).expect("at most the capacity")
    }

    fn index(&self, sequence: u64) -> usize {
        let capacity = self.requests.len() as u64;
        usize::try_from(sequence % capacity).expect("below the capacity")
    }

    /// Prepares a request. `message` is copied. Panics without room.
    pub(super) fn prepare(&mut self, message: &[u8], request: Request) {
        assert!(self.room() > 0, "the caller has looked for room");
        let index = self.index(self.prepared);
        let slot = u32::try_from(index).expect("capacities are u32");
        let low = u32::try_from(self.prepared & u64::from(u32::MAX)).expect("32 bits are left");
        let ranges = &mut self.ranges[index];
        let mut count = 0;
        let mut flags = 0;
        if !message.is_empty() {
            // SAFETY: the request that used this slot before has ended, so the device does not use
            // it any more.
            // WHY UNSAFE: the memory of messages is shared with the device.
            unsafe { self.messages.write(slot, message) };
            ranges[0] = self.messages.range(slot, message.len());
            count = 1;
            if request.data.is_none() && message.len() <= self.inline_bytes {
                flags |= layout::SEND_INLINE;
            }
        }
        if let Some(data) = request.data {
            ranges[count] = data;
            count += 1;
        }
        if request.entry.is_read && request.entry.token.is_some() {
            flags |= layout::SEND_SIGNALED;
        }
        let remote = request.remote.unwrap_or(Remote { address: 0, key: 0 });
        self.requests[index] = SendWr {
            wr_id: request_id(self.number, true, low),
            num_sge: libc::c_int::try_from(count).expect("at most two"),
            opcode: request.opcode,
            send_flags: flags,
            invalidate_rkey: request.invalidate,
            remote_addr: remote.address,
            rkey: remote.key,
            bind: request.bind,
            ..SendWr::empty()
        };
        self.reads += u32::from(request.entry.is_read);
        self.entries[index] = request.entry;
        self.prepared += 1;
    }

    /// Prepares one request for each part, of a work that ends with the last one. Panics without
    /// parts and for a part outside the memory: no request is prepared then, because the memory is
    /// dropped.
    pub(super) fn prepare_parts(
        &mut self,
        opcode: libc::c_int,
        memory: Memory,
        key: u32,
        parts: &[Part],
        token: Option<u64>,
    ) {
        let range = |memory: &Memory, part: &Part| memory.range(key, part.start, part.bytes);
        for part in parts {
            range(&memory, part);
        }
        let (last, before) = parts.split_last().expect("a transfer has parts");
        let is_read = opcode == layout::WR_RDMA_READ;
        let entry = |token, memory| Entry {
            token,
            memory,
            is_read,
            closes: None,
        };
        for part in before {
            let request = Request::of_part(opcode, range(&memory, part), part, entry(None, None));
            self.prepare(&[], request);
        }
        let data = range(&memory, last);
        let request = Request::of_part(opcode, data, last, entry(token, Some(memory)));
        self.prepare(&[], request);
    }

    /// Links the requests that the device does not have yet. None: there are none.
    pub(super) fn chain(&mut self) -> Option<*mut SendWr> {
        if self.posted == self.prepared {
            return None;
        }
        let ranges = self.ranges.as_mut_ptr();
        let mut next: *mut SendWr = ptr::null_mut();
        for sequence in (self.posted..self.prepared).rev() {
            let index = self.index(sequence);
            let request = &mut self.requests[index];
            if next.is_null() {
                request.send_flags |= layout::SEND_SIGNALED;
            }
            request.next = next;
            request.sg_list = ranges.wrapping_add(index).cast();
            next = self.requests.as_mut_ptr().wrapping_add(index);
        }
        Some(next)
    }

    /// The device has taken all requests of the chain.
    pub(super) fn all_posted(&mut self) {
        self.posted = self.prepared;
    }

    /// The device has taken the requests of the chain before `bad`. A request that is none of ours
    /// tells nothing, so all count as taken: they end with the queue pair.
    pub(super) fn posted_before(&mut self, bad: *const SendWr) {
        let start = self.requests.as_ptr() as usize;
        let offset = (bad as usize).wrapping_sub(start) / size_of::<SendWr>();
        let taken = (self.posted..self.prepared).find(|sequence| self.index(*sequence) == offset);
        self.posted = taken.unwrap_or(self.prepared);
    }

    /// A completion has come. An unknown one is ignored.
    pub(super) fn completed(&mut self, low: u32, is_ok: bool) {
        let expected = u32::try_from(self.ended & u64::from(u32::MAX)).expect("32 bits are left");
        let sequence = self.ended + u64::from(low.wrapping_sub(expected));
        if sequence >= self.posted {
            return;
        }
        self.ended = sequence + 1;
        if !is_ok {
            self.failed_from.get_or_insert(sequence);
        }
    }

    /// The device takes no more requests: those that it has not taken have failed, once the others
    /// have ended.
    pub(super) fn abandon(&mut self) {
        if self.ended == self.posted && self.posted < self.prepared {
            self.failed_from.get_or_insert(self.posted);
            self.posted = self.prepared;
            self.ended = self.prepared;
        }
    }

    /// The next work that has ended and was not told yet.
    pub(super) fn next_ended(&mut self) -> Option<Ended> {
        while self.told < self.ended {
            let sequence = self.told;
            let index = self.index(sequence);
            let entry = mem::take(&mut self.entries[index]);
            self.told += 1;
            self.reads -= u32::from(entry.is_read);
            if let Some(token) = entry.token {
                return Some(Ended {
                    token,
                    is_ok: self.failed_from.is_none_or(|failed| sequence < failed),
                    memory: entry.memory,
                    closes: entry.closes,
                });
            }
        }
        None
    }
}

#[cfg(test)]
mod tests;
