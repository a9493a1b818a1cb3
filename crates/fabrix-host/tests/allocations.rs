//! Nothing is allocated for a request once a channel is ready.

mod common;

use common::{Asked, Fake, Rig, options};
use fabrix_block::{Operation, Payload, Status};
use fabrix_host::{Options, connect};
use fabrix_rt::counting::{CountingAllocator, allocations, allocations_of};
use fabrix_rt::{Buf, Engine, Loan};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

on_both_engines!(ten_thousand_requests_at_depth_16_allocate_nothing);

fn ten_thousand_requests_at_depth_16_allocate_nothing(engine: Engine) {
    let fake = Fake::honest();
    let (options, _) = options(engine);
    let options = Options {
        data_digest: true,
        nr_io_queues: 2,
        ..options
    };
    let disk = connect(&fake.address(), &options).expect("an honest target");
    let mut rig = Rig::new(engine, &disk);
    let mut bufs: Vec<Option<Buf>> = (0..DEPTH).map(|_| Some(rig.buf(16 << 10, 1))).collect();
    let made = allocations_of(allocations, || run(&mut rig, &mut bufs, 4_000));
    assert_eq!(made, 0, "allocations in 4,000 requests");
}

const DEPTH: usize = 16;

/// Reads, writes in and out of capsules, zeroes, ranges and flushes in turn.
fn run(rig: &mut Rig, bufs: &mut [Option<Buf>], requests: usize) {
    let (mut begun, mut ended) = (0, 0);
    while ended < requests {
        for (slot, place) in bufs.iter_mut().enumerate() {
            if place.is_some() && begun < requests {
                begin(rig, slot, place, begun);
                begun += 1;
            }
        }
        let (slot, status, loan) = rig.next();
        assert_eq!(status, Status::Ok);
        let Loan::Buf(buf) = loan else {
            panic!("the buffer comes back")
        };
        assert!(buf.is_unique());
        bufs[slot as usize] = Some(buf);
        ended += 1;
    }
}

fn begin(rig: &mut Rig, slot: usize, place: &mut Option<Buf>, number: usize) {
    let durable = false;
    let (operation, blocks) = match number % 8 {
        0 => (Operation::Write { durable }, 32),
        1 | 2 => (Operation::Write { durable }, 8),
        3 => (
            Operation::WriteZeroes {
                deallocate: false,
                durable,
            },
            8,
        ),
        4 => (Operation::Deallocate, 8),
        5 => (Operation::Flush, 0),
        _ => (Operation::Read, 32),
    };
    let lba = (number as u64 * 37) % 4000;
    let payload = place.take().map_or(Payload::None, Payload::Owned);
    let slot = u32::try_from(slot).expect("small");
    let asked = rig.ask(slot, operation, (lba, blocks), payload);
    assert!(matches!(asked, Asked::Pending), "{asked:?}");
}
