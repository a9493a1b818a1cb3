//! With an open channel an I/O allocates nothing. The test uses a counting allocator and all
//! filters over a RAM disk and over an array.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use fabrix_block::exclusive::Exclusive;
use fabrix_block::filter::stats::Stats;
use fabrix_block::{
    Channel, Device, Operation, Payload, Request, Spec, Status, Submit, open_local,
};
use fabrix_rt::counting::{CountingAllocator, allocations, allocations_of};
use fabrix_rt::{Completion, Shard, ShardConfig, Task, Token, Wait};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

#[derive(Default)]
struct Ended(u32);

impl Task for Ended {
    fn completed(&mut self, _shard: &mut Shard, _slot: u32, completion: Completion) {
        assert_eq!(Status::from_result(completion.result), Status::Ok);
        self.0 += 1;
    }
}

/// Executes each operation once and waits for the completions.
fn round(shard: &mut Shard, channel: &mut Box<dyn Channel>, token: Token, lba: u64) {
    static BYTES: [u8; 16384] = [7; 16384];
    let buf = shard.take_buf(16384).expect("a buffer");
    let requests = [
        (
            Operation::Write { durable: false },
            Payload::Borrowed(&BYTES[..]),
        ),
        (Operation::Read, Payload::Lend),
        (Operation::Read, Payload::Owned(buf)),
        (
            Operation::WriteZeroes {
                deallocate: false,
                durable: true,
            },
            Payload::None,
        ),
        (Operation::Deallocate, Payload::None),
        (Operation::Flush, Payload::None),
    ];
    for (operation, payload) in requests {
        match channel.submit(
            shard,
            Request {
                operation,
                lba,
                blocks: 32,
                payload,
                token,
            },
        ) {
            Submit::Done(status, _) => assert_eq!(status, Status::Ok),
            Submit::Pending => {}
            Submit::Busy(_) => panic!("busy"),
        }
        shard.turn(Wait::Never);
        while shard.operations_in_flight() > 0 {
            shard.turn(Wait::AtMost(Duration::from_secs(1)));
        }
        shard.turn(Wait::Never);
    }
}

fn check(device: &Arc<dyn Device>) {
    let mut shard = Shard::new(ShardConfig::default()).expect("a shard");
    let task = shard.add(Rc::new(RefCell::new(Ended::default())));
    let token = Token { task, slot: 1 };
    let mut channel = device.open(&mut shard).expect("a channel");
    let made = allocations_of(allocations, || {
        for lba in 0..200 {
            round(&mut shard, &mut channel, token, lba);
        }
    });
    assert_eq!(made, 0, "allocations in 1200 requests");
}

fn open(text: &str) -> Arc<dyn Device> {
    open_local(&Spec::parse(text).expect(text)).expect(text)
}

#[test]
fn a_ram_disk_allocates_nothing_for_an_io() {
    check(&open("ram:1M"));
}

#[test]
fn a_null_disk_allocates_nothing_for_an_io() {
    check(&open("null:1T"));
}

#[test]
fn an_array_that_joins_pieces_allocates_nothing_for_an_io() {
    check(&open("raid0:chunk=4k,(ram:1M,ram:1M,ram:1M)"));
}

#[test]
fn the_filters_allocate_nothing_for_an_io() {
    check(&(Exclusive::new(Stats::new(open("ram:1M,inject=error:1000000000"))) as Arc<dyn Device>));
}

#[test]
fn a_file_allocates_nothing_for_an_io() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut device = None;
    for direct in ["", ",direct=off"] {
        let text = format!("{}/disk,size=4M,block=512{direct}", folder.path().display());
        device = device.or_else(|| open_local(&Spec::parse(&text).expect("a spec")).ok());
    }
    check(&device.expect("a file"));
}
