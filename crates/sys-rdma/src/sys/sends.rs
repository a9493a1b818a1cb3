//! The send queue of a queue pair as this end counts it: work requests from preparation to their
//! completion.
//!
//! Requests end in their order. The last request of every chain asks for a completion, which ends
//! all requests before it. A request owns its memory until it has ended.

use std::mem;
use std::ptr;

use super::completions::request_id;
use super::layout::{self, SendWr, Sge};
use super::memory::{Memory, Remote};
use super::slots::Slots;

/// A request before it is prepared.
pub(super) struct Request {
    pub(super) opcode: libc::c_int,
    /// Range of the data.
    pub(super) data: Option<Sge>,
    pub(super) remote: Option<Remote>,
    pub(super) invalidate: u32,
    pub(super) entry: Entry,
}

/// What is remembered of a request until it has ended.
#[derive(Default)]
pub(super) struct Entry {
    /// Token of the work that ends with this request. None: more requests of the work follow.
    pub(super) token: Option<u64>,
    pub(super) memory: Option<Memory>,
    pub(super) is_read: bool,
}

/// A work that has ended.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) token: u64,
    pub(super) is_ok: bool,
    pub(super) memory: Option<Memory>,
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
            ..SendWr::empty()
        };
        self.reads += u32::from(request.entry.is_read);
        self.entries[index] = request.entry;
        self.prepared += 1;
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
                });
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use fabrix_rt::{Shard, ShardConfig};

    use super::*;

    const CAPACITY: u32 = 4;

    fn ring() -> (Shard, SendRing) {
        let config = ShardConfig {
            arena_bytes: 16 << 20,
            ..ShardConfig::default()
        };
        let mut shard = Shard::new(config).expect("a shard");
        let messages = Slots::take(&mut shard, |_| Some(7), CAPACITY, 64).expect("room");
        (shard, SendRing::new(3, CAPACITY, messages, 16))
    }

    /// Prepares a work of one message, with a buffer.
    fn message(shard: &mut Shard, ring: &mut SendRing, token: u64) {
        let buf = shard.take_buf(4096).expect("room");
        let request = Request {
            opcode: layout::WR_SEND,
            data: None,
            remote: None,
            invalidate: 0,
            entry: Entry {
                token: Some(token),
                memory: Some(Memory::Buf(buf)),
                is_read: false,
            },
        };
        ring.prepare(b"hello", request);
    }

    /// Ids and flags of the chain, as the device follows it.
    fn follow(ring: &mut SendRing) -> Vec<(u64, u32)> {
        let mut next = ring.chain().unwrap_or(ptr::null_mut());
        let mut seen = Vec::new();
        while let Some(index) = index_of(ring, next) {
            let request = ring.requests[index];
            seen.push((request.wr_id & u64::from(u32::MAX), request.send_flags));
            next = request.next;
        }
        seen
    }

    fn index_of(ring: &SendRing, request: *const SendWr) -> Option<usize> {
        let start = ring.requests.as_ptr() as usize;
        (!request.is_null()).then(|| (request as usize - start) / size_of::<SendWr>())
    }

    fn tokens(ring: &mut SendRing) -> Vec<(u64, bool)> {
        let mut all = Vec::new();
        while let Some(ended) = ring.next_ended() {
            assert!(ended.memory.is_some(), "memory comes back once");
            all.push((ended.token, ended.is_ok));
        }
        all
    }

    #[test]
    fn the_last_of_a_chain_asks_for_a_completion_that_ends_all_before_it() {
        let (mut shard, mut ring) = ring();
        for round in 0..5_u64 {
            let first = u32::try_from(round * 3).expect("small");
            for token in 0..3 {
                message(&mut shard, &mut ring, token);
            }
            let inline = layout::SEND_INLINE;
            let chain = follow(&mut ring);
            let flags: Vec<u32> = chain.iter().map(|(_, flags)| *flags).collect();
            assert_eq!(flags, [inline, inline, inline | layout::SEND_SIGNALED]);
            assert_eq!(chain[2].0, u64::from(first + 2));
            ring.all_posted();
            assert_eq!((ring.room(), ring.in_use()), (1, 3));
            assert_eq!(tokens(&mut ring), []);
            ring.completed(first + 2, true);
            assert_eq!(tokens(&mut ring), [(0, true), (1, true), (2, true)]);
            assert!(ring.is_empty());
        }
        assert_eq!(shard.buffer_bytes_in_use(), 4096, "the messages alone");
    }

    #[test]
    fn a_failed_request_fails_all_behind_it_and_none_before() {
        let (mut shard, mut ring) = ring();
        for token in 0..4 {
            message(&mut shard, &mut ring, token);
        }
        follow(&mut ring);
        ring.all_posted();
        ring.completed(1, false);
        assert_eq!(tokens(&mut ring), [(0, true), (1, false)]);
        ring.completed(2, false);
        ring.completed(3, false);
        assert_eq!(tokens(&mut ring), [(2, false), (3, false)]);
        assert!(ring.is_empty());
    }

    #[test]
    fn requests_that_the_device_has_refused_fail_after_those_that_it_has_taken() {
        let (mut shard, mut ring) = ring();
        for token in 0..4 {
            message(&mut shard, &mut ring, token);
        }
        follow(&mut ring);
        let bad = &raw const ring.requests[2];
        ring.posted_before(bad);
        ring.abandon();
        assert_eq!(tokens(&mut ring), [], "two are still with the device");
        ring.completed(1, true);
        assert_eq!(tokens(&mut ring), [(0, true), (1, true)]);
        ring.abandon();
        assert_eq!(tokens(&mut ring), [(2, false), (3, false)]);
    }

    #[test]
    fn a_refusal_that_names_no_request_of_ours_leaves_all_with_the_device() {
        let (mut shard, mut ring) = ring();
        message(&mut shard, &mut ring, 0);
        follow(&mut ring);
        ring.posted_before(ptr::null());
        ring.abandon();
        assert_eq!(tokens(&mut ring), []);
        assert!(!ring.is_empty());
    }

    #[test]
    fn completions_that_were_told_or_never_asked_for_are_ignored() {
        let (mut shard, mut ring) = ring();
        message(&mut shard, &mut ring, 0);
        ring.completed(0, true);
        assert_eq!(tokens(&mut ring), [], "the device does not have it");
        follow(&mut ring);
        ring.all_posted();
        for low in [1, 77, u32::MAX] {
            ring.completed(low, true);
        }
        assert_eq!(tokens(&mut ring), []);
        ring.completed(0, true);
        ring.completed(0, true);
        assert_eq!(tokens(&mut ring), [(0, true)]);
    }

    #[test]
    fn a_read_of_several_parts_is_one_work_that_ends_with_its_last_part() {
        let (mut shard, mut ring) = ring();
        let buf = shard.take_buf(8192).expect("room");
        for token in [None, Some(5)] {
            let request = Request {
                opcode: layout::WR_RDMA_READ,
                data: Some(Sge::default()),
                remote: None,
                invalidate: 0,
                entry: Entry {
                    token,
                    memory: token.map(|_| Memory::Buf(buf.clone())),
                    is_read: true,
                },
            };
            ring.prepare(&[], request);
        }
        message(&mut shard, &mut ring, 6);
        let flags: Vec<u32> = follow(&mut ring).iter().map(|(_, flags)| *flags).collect();
        assert_eq!(flags[..2], [0, layout::SEND_SIGNALED]);
        ring.all_posted();
        assert_eq!(ring.reads(), 2);
        ring.completed(1, true);
        assert_eq!(tokens(&mut ring), [(5, true)]);
        assert_eq!(ring.reads(), 0);
    }
}
