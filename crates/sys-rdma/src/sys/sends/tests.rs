//! Requests from preparation to their end, without a device.

use std::panic::{self, AssertUnwindSafe};

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
        bind: BindMw::empty(),
        entry: Entry {
            token: Some(token),
            memory: Some(Memory::Buf(buf)),
            ..Entry::default()
        },
    };
    ring.prepare(b"hello", request);
}

fn part(start: usize, bytes: u32) -> Part {
    let remote = Remote { address: 0, key: 0 };
    Part {
        start,
        bytes,
        remote,
    }
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
        assert_eq!((ring.room(), ring.in_use()), (1, 3), "before they go");
        let inline = layout::SEND_INLINE;
        let chain = follow(&mut ring);
        let flags: Vec<u32> = chain.iter().map(|(_, flags)| *flags).collect();
        assert_eq!(flags, [inline, inline, inline | layout::SEND_SIGNALED]);
        assert_eq!(chain[2].0, u64::from(first + 2));
        ring.all_posted();
        assert_eq!(tokens(&mut ring), []);
        assert_eq!((ring.room(), ring.in_use()), (1, 3), "before they end");
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
    let buf = Memory::Buf(shard.take_buf(8192).expect("room"));
    let parts = [part(0, 4096), part(4096, 4096)];
    ring.prepare_parts(layout::WR_RDMA_READ, buf, 7, &parts, Some(5));
    message(&mut shard, &mut ring, 6);
    let flags: Vec<u32> = follow(&mut ring).iter().map(|(_, flags)| *flags).collect();
    assert_eq!(flags[..2], [0, layout::SEND_SIGNALED]);
    ring.all_posted();
    assert_eq!(ring.reads(), 2);
    ring.completed(1, true);
    assert_eq!(tokens(&mut ring), [(5, true)]);
    assert_eq!(ring.reads(), 0);
}

#[test]
fn a_work_with_a_part_outside_its_memory_prepares_nothing() {
    let (mut shard, mut ring) = ring();
    let before = shard.buffer_bytes_in_use();
    let buf = Memory::Buf(shard.take_buf(8192).expect("room"));
    let parts = [part(0, 4096), part(8191, 2)];
    let begin = || ring.prepare_parts(layout::WR_RDMA_READ, buf, 7, &parts, Some(5));
    panic::catch_unwind(AssertUnwindSafe(begin)).expect_err("a part is outside");
    assert_eq!(shard.buffer_bytes_in_use(), before, "the buffer is gone");
    assert!(ring.is_empty() && ring.chain().is_none());
    assert_eq!(ring.reads(), 0);
}
