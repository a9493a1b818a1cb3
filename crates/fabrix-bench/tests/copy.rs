//! Copies from disk to disk: every byte arrives at its address, whatever the disks do meanwhile.

#[allow(
    unreachable_pub,
    dead_code,
    reason = "one module for several test programs"
)]
mod disk;

use std::sync::Arc;

use disk::{Act, BLOCK, Manner, TestDisk, job};
use fabrix_bench::{Config, CopyTo, Job, Part, Results, RunError, Rw, run_together};
use fabrix_block::{Device, Status};

/// Copies blocks 3 to 43 of one disk to another disk, with eight requests in flight.
fn copy(from: &Arc<TestDisk>, to: &Arc<TestDisk>, offset: u64) -> Result<Results, RunError> {
    let job = Job {
        iodepth: 8,
        offset: 3 * 4096,
        size: Some(40 * 4096),
        loops: Some(1),
        number_ios: None,
        ..job(Rw::Read, 1)
    };
    let to = Arc::clone(to) as Arc<dyn Device>;
    let part = Part {
        start: fabrix_bench::Start::default(),
        devices: &[Arc::clone(from) as Arc<dyn Device>],
        job: &job,
        copy_to: Some(CopyTo {
            device: &to,
            offset,
        }),
    };
    let results = run_together(&[part], &Config::default(), &mut |_| {});
    results.map(|mut results| results.remove(0))
}

fn source(manner: Manner) -> TestDisk {
    TestDisk::honest(64, manner)
        .with(|at| u8::try_from((at / BLOCK * 31 + at % 251) % 256).expect("below 256"))
}

#[test]
fn every_byte_comes_to_its_place_and_is_counted_on_both_sides() {
    for from in [Manner::AtOnce, Manner::Later(64), Manner::Later(3)] {
        for to in [Manner::AtOnce, Manner::Later(64), Manner::Later(1)] {
            let from = Arc::new(source(from));
            let to = Arc::new(TestDisk::honest(64, to));
            let results = copy(&from, &to, 7 * 4096).expect("it can be copied");
            assert!(results.is_clean(), "{:?}", results.aggregate.ended_early);
            let (read, written) = (&results.aggregate.read, &results.aggregate.write);
            assert_eq!((read.ios, written.ios), (40, 40));
            assert_eq!((read.bytes, written.bytes), (40 * 4096, 40 * 4096));
            let (from, to) = (from.bytes(), to.bytes());
            assert!(to[7 * BLOCK..47 * BLOCK] == from[3 * BLOCK..43 * BLOCK]);
            assert!(to[..7 * BLOCK].iter().all(|byte| *byte == 0));
            assert!(to[47 * BLOCK..].iter().all(|byte| *byte == 0));
        }
    }
}

#[test]
fn a_write_that_fails_ends_the_copy_and_is_named() {
    let fails = |seen: disk::Seen| {
        if seen.lba == 12 {
            Act::Answer(Status::NoSpace)
        } else {
            Act::Honest
        }
    };
    let to = Arc::new(TestDisk::new(64, Manner::Later(2), fails));
    let results = copy(&Arc::new(source(Manner::Later(64))), &to, 7 * 4096).expect("it begins");
    let first = results.aggregate.errors.first.expect("it failed");
    assert!(first.contains("the write of 1 block at LBA 12"), "{first}");
    assert!(results.aggregate.write.ios < 40);
}

#[test]
fn a_copy_that_has_no_room_touches_neither_disk() {
    let (from, to) = (
        Arc::new(source(Manner::AtOnce)),
        Arc::new(TestDisk::honest(64, Manner::AtOnce)),
    );
    let error = copy(&from, &to, 30 * 4096).expect_err("34 blocks are left for 40");
    assert!(
        error.to_string().contains("the copy") && error.to_string().contains("ends beyond"),
        "{error}"
    );
    assert!(to.bytes().iter().all(|byte| *byte == 0));
}
