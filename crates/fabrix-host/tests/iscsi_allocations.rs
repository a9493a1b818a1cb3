//! Nothing is allocated for a request over iSCSI once a channel is ready.

mod common;

use common::{Asked, Rig, Unit, address, initiator, options};
use fabrix_block::{Operation, Payload, Status};
use fabrix_host::Options;
use fabrix_host::iscsi::connect;
use fabrix_rt::counting::{CountingAllocator, allocations, allocations_of};
use fabrix_rt::{Buf, Engine, Loan};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

on_both_engines!(ten_thousand_requests_at_depth_16_allocate_nothing);

fn ten_thousand_requests_at_depth_16_allocate_nothing(engine: Engine) {
    let unit = Unit::honest();
    let (options, _) = options(engine);
    let options = Options {
        header_digest: true,
        data_digest: true,
        ..options
    };
    let disk = connect(&address(&unit), &initiator(), &options).expect("an honest target");
    let mut rig = Rig::new(engine, &disk);
    let mut bufs: Vec<Option<Buf>> = (0..DEPTH).map(|_| Some(rig.buf(512 << 10, 1))).collect();
    let made = allocations_of(allocations, || run(&mut rig, &mut bufs, 4_000));
    assert_eq!(made, 0, "allocations in 4,000 requests");
}

const DEPTH: usize = 16;

/// Reads, writes with their command and by R2T, zeroes and flushes in turn.
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
        bufs[slot as usize] = Some(buf);
        ended += 1;
    }
}

fn begin(rig: &mut Rig, slot: usize, place: &mut Option<Buf>, number: usize) {
    let durable = false;
    let zeroes = Operation::WriteZeroes {
        deallocate: false,
        durable,
    };
    let (operation, blocks) = match number % 8 {
        0 => (
            Operation::Write { durable },
            if number.is_multiple_of(64) { 1024 } else { 32 },
        ),
        1 | 2 => (Operation::Write { durable: true }, 8),
        3 => (zeroes, 8),
        4 => (Operation::Flush, 0),
        _ => (Operation::Read, 32),
    };
    let lba = (number as u64 * 37) % 3000;
    let payload = place.take().map_or(Payload::None, Payload::Owned);
    let slot = u32::try_from(slot).expect("small");
    let asked = rig.ask(slot, operation, (lba, blocks), payload);
    assert!(matches!(asked, Asked::Pending), "{asked:?}");
}
