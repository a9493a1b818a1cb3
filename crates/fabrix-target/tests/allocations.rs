//! Once a connection is ready, an I/O allocates nothing on the target's shard.
//!
//! This test has its own file, because it installs a global allocator. The allocator counts by
//! thread, so the host's thread does not count.

mod common;

use std::io::{Read, Write};

use common::host::{Data, Host};
use common::wire::{Digests, LAST, R2T, RESPONSE, h2c_data};
use common::{Plan, Stage, has, pattern};
use fabrix_proto::nvme::spec::SubmissionEntry;
use fabrix_rt::Engine;
use fabrix_rt::counting::{CountingAllocator, allocations, allocations_of};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// Commands in progress at a time.
const DEPTH: u16 = 16;
const COMMANDS: usize = 4_000;

#[test]
fn io_allocates_nothing_on_the_shard_over_io_uring() {
    if has(Engine::IoUring) {
        check(Engine::IoUring);
    }
}

#[test]
fn io_allocates_nothing_on_the_shard_over_epoll() {
    check(Engine::Epoll);
}

fn check(engine: Engine) {
    let plan = Plan {
        shards: 1,
        ..Plan::default()
    };
    let stage = Stage::set(engine, plan);
    let admin = stage.admin();
    let count = || stage.ask(0, |_| allocations());
    assert!(count() > 0, "the shard's thread is counted");
    for (qid, digests) in [(1, Digests::NONE), (2, Digests::BOTH)] {
        let mut io = Host::io_with(stage.address, admin.controller, qid, digests);
        for (blocks, by_r2t) in [(8, false), (128, false), (128, true)] {
            let mut load = Load::new(&io, blocks, by_r2t);
            let made = allocations_of(count, || load.run(&mut io, COMMANDS));
            let way = if by_r2t { "by R2T" } else { "in capsules" };
            let commands = format!("{COMMANDS} commands of {blocks} blocks {way}, {digests:?}");
            assert_eq!(made, 0, "allocations in {commands}");
        }
    }
}

/// A round of writes and a round of reads. Their bytes are built before the measurement.
struct Load {
    writes: Vec<u8>,
    reads: Vec<u8>,
    data: Vec<u8>,
    answer: Vec<u8>,
    by_r2t: bool,
    digest_bytes: usize,
}

impl Load {
    fn new(io: &Host, blocks: u32, by_r2t: bool) -> Self {
        let bytes = blocks * 512;
        let data = pattern(bytes as usize, 5);
        let (mut writes, mut reads) = (Vec::new(), Vec::new());
        for id in 0..DEPTH {
            let lba = u64::from(id) * u64::from(blocks);
            let write = SubmissionEntry::write(1, lba, blocks, false);
            let carried = if by_r2t {
                Data::Fetch(&data)
            } else {
                Data::Inline(&data)
            };
            writes.extend(io.capsule(write, id, carried));
            let read = SubmissionEntry::read(1, lba, blocks);
            reads.extend(io.capsule(read, id, Data::Expect(bytes)));
        }
        let digest_bytes = if io.digests.header { 4 } else { 0 };
        Self {
            writes,
            reads,
            answer: vec![0; 24 + data.len() + 2 * digest_bytes],
            data,
            by_r2t,
            digest_bytes,
        }
    }

    /// Runs `commands` commands, half of them writes.
    fn run(&mut self, io: &mut Host, commands: usize) {
        for _ in 0..commands.div_ceil(2 * usize::from(DEPTH)) {
            io.stream.write_all(&self.writes).expect("the target reads");
            if self.by_r2t {
                self.feed(io);
            }
            for _ in 0..DEPTH {
                self.receive(io, 0, RESPONSE);
                let status = u16::from_le_bytes([self.answer[22], self.answer[23]]);
                assert_eq!(status, 0, "a write");
            }
            io.stream.write_all(&self.reads).expect("the target reads");
            for _ in 0..DEPTH {
                let bytes = self.data.len() + self.digest_bytes;
                self.receive(io, bytes, 7);
                let start = 24 + self.digest_bytes;
                assert!(
                    self.answer[start..start + self.data.len()] == self.data,
                    "a read"
                );
            }
        }
    }

    fn feed(&mut self, io: &mut Host) {
        for _ in 0..DEPTH {
            self.receive(io, 0, R2T);
            let field = |at| u16::from_le_bytes([self.answer[at], self.answer[at + 1]]);
            let bytes = h2c_data(field(8), field(10), 0, &self.data, LAST, io.digests);
            io.stream.write_all(&bytes).expect("the target reads");
        }
    }

    /// Receives one PDU with `bytes` bytes after its header.
    fn receive(&mut self, io: &mut Host, bytes: usize, kind: u8) {
        let answer = &mut self.answer[..24 + self.digest_bytes + bytes];
        io.stream.read_exact(answer).expect("the target answers");
        assert_eq!(answer[0], kind);
    }
}
