//! The faults that `verify` finds on a misbehaving disk. The writes are sequential and counted, so
//! every test knows the content of each block.

#[allow(
    unreachable_pub,
    dead_code,
    reason = "one module for several test programs"
)]
mod disk;

use std::sync::Arc;

use disk::{Act, Manner, Seen, TestDisk, job, results};
use fabrix_bench::results::Verified;
use fabrix_bench::verify::Verify;
use fabrix_bench::{Job, Rw};
use fabrix_block::Status;

const BLOCKS: u64 = 64;

/// The verification result of `passes` sequential passes over a scripted disk.
fn verified(passes: u64, script: impl Fn(Seen) -> Act + Send + Sync + 'static) -> Verified {
    let disk = Arc::new(TestDisk::new(BLOCKS, Manner::AtOnce, script));
    let job = Job {
        verify: Some(Verify::fine(4096)),
        ..job(Rw::Write, passes * BLOCKS)
    };
    found(&disk, &job)
}

/// The verification result of a run.
fn found(disk: &Arc<TestDisk>, job: &Job) -> Verified {
    let all = results(disk, job).aggregate;
    all.verify.expect("the job verifies")
}

#[track_caller]
fn check(found: &Verified, errors: u64, first_error: &str) {
    assert_eq!(found.blocks_checked, BLOCKS);
    assert_eq!(
        (found.errors, found.first_error.as_deref()),
        (errors, Some(first_error))
    );
}

/// A script that changes one write and executes everything else correctly.
fn on_write(number: usize, act: Act) -> impl Fn(Seen) -> Act {
    move |seen| {
        if seen.write && seen.number == number {
            act
        } else {
            Act::Honest
        }
    }
}

/// A script that changes reads of one block and executes everything else correctly.
fn on_read_of(lba: u64, act: Act) -> impl Fn(Seen) -> Act {
    move |seen| {
        if !seen.write && seen.lba == lba {
            act
        } else {
            Act::Honest
        }
    }
}

#[test]
fn an_honest_disk_has_every_block_checked_and_none_wrong() {
    let found = verified(2, |_| Act::Honest);
    assert_eq!(
        found,
        Verified {
            blocks_checked: BLOCKS,
            errors: 0,
            first_error: None
        }
    );
}

#[test]
fn finds_a_stale_block() {
    // The second write of block 20 is acknowledged and lost.
    let found = verified(2, on_write(64 + 20, Act::Answer(Status::Ok)));
    check(
        &found,
        1,
        "offset 81920 (LBA 20): expected generation 2 of this run, found generation 1 (a stale block)",
    );
}

#[test]
fn finds_a_misdirected_block_and_the_place_where_it_is_missing() {
    // The second write of block 20 goes to block 10, which is already written.
    let found = verified(2, on_write(64 + 20, Act::At(10)));
    check(
        &found,
        2,
        "offset 40960 (LBA 10): expected generation 2 of this run, found generation 2 of the block at \
         offset 81920 (a misdirected block)",
    );
}

#[test]
fn finds_zeroes_where_a_block_was_written() {
    let found = verified(1, on_write(20, Act::Answer(Status::Ok)));
    check(
        &found,
        1,
        "offset 81920 (LBA 20): expected generation 1 of this run, found zeroes",
    );
}

#[test]
fn finds_one_flipped_bit() {
    let found = verified(1, on_read_of(20, Act::Flip(9999)));
    check(
        &found,
        1,
        "offset 81920 (LBA 20): expected generation 1 of this run, found a damaged block (its checksum is wrong)",
    );
}

#[test]
fn finds_blocks_of_an_earlier_run_with_the_same_seed() {
    let disk = Arc::new(TestDisk::new(BLOCKS, Manner::AtOnce, |seen| {
        // The first run writes 64 blocks. The second run loses block 20.
        if seen.write && seen.number == 64 + 20 {
            Act::Answer(Status::Ok)
        } else {
            Act::Honest
        }
    }));
    let job = Job {
        verify: Some(Verify::fine(4096)),
        ..job(Rw::Write, BLOCKS)
    };
    assert!(results(&disk, &job).is_clean());
    let found = found(&disk, &job);
    check(
        &found,
        1,
        "offset 81920 (LBA 20): expected generation 1 of this run, found a block of an earlier run (a lost write)",
    );
}

#[test]
fn finds_a_wrong_answer_while_the_load_runs() {
    // Only one read returns wrong data, long before the end. The read-back finds a correct disk.
    let disk = Arc::new(TestDisk::new(BLOCKS, Manner::Later(64), |seen| {
        if !seen.write && seen.number == 5000 {
            Act::Zeroes
        } else {
            Act::Honest
        }
    }));
    let job = Job {
        verify: Some(Verify::fine(4096)),
        iodepth: 16,
        ..job(Rw::RandMixed, 20_000)
    };
    let found = found(&disk, &job);
    assert_eq!(found.errors, 1, "{found:?}");
}

#[test]
fn requests_in_flight_never_overlap() {
    let disk = Arc::new(TestDisk::honest(BLOCKS, Manner::Later(64)));
    let job = Job {
        verify: Some(Verify::fine(4096)),
        iodepth: 16,
        numjobs: 2,
        ..job(Rw::RandMixed, 20_000)
    };
    let results = results(&disk, &job);
    assert!(results.is_clean(), "{:?}", results.aggregate);
    assert!(
        results
            .aggregate
            .verify
            .is_some_and(|found| found.blocks_checked > 15_000)
    );
    assert_eq!(disk.overlaps(), 0);
}

#[test]
fn a_buffer_that_the_disk_still_looks_at_is_not_changed() {
    let disk = Arc::new(TestDisk::new(BLOCKS, Manner::AtOnce, |seen| {
        if seen.write && seen.number < 50 {
            Act::Keep
        } else {
            Act::Honest
        }
    }));
    for verify in [true, false] {
        let job = Job {
            verify: verify.then(|| Verify::fine(4096)),
            ..job(Rw::RandMixed, 1000)
        };
        assert!(results(&disk, &job).is_clean());
    }
}

#[test]
fn a_failed_write_leaves_old_and_new_right() {
    let script = |seen: Seen| match (seen.write, seen.number % 7) {
        (true, 3) => Act::Answer(Status::MediaWrite),
        _ => Act::Honest,
    };
    let disk = Arc::new(TestDisk::new(BLOCKS, Manner::Later(64), script));
    let job = Job {
        verify: Some(Verify::fine(4096)),
        continue_on_error: [true; 2],
        ..job(Rw::RandMixed, 10_000)
    };
    let results = results(&disk, &job);
    assert!(results.aggregate.errors.total() > 500);
    assert_eq!(results.aggregate.verify.map(|found| found.errors), Some(0));
}

#[test]
fn requests_of_several_blocks_are_checked_block_by_block() {
    // The fault affects only one of the four blocks.
    let disk = Arc::new(TestDisk::new(
        BLOCKS,
        Manner::AtOnce,
        on_read_of(20, Act::Flip(2 * 4096 * 8 + 9999)),
    ));
    let job = Job {
        verify: Some(Verify::fine(4096)),
        iodepth: 2,
        block_bytes: 16384,
        ..job(Rw::Write, 16)
    };
    let found = found(&disk, &job);
    check(
        &found,
        1,
        "offset 90112 (LBA 22): expected generation 1 of this run, found a damaged block (its checksum is wrong)",
    );
}

#[test]
fn a_later_job_finds_the_blocks_that_an_earlier_one_lost() {
    let disk = Arc::new(TestDisk::new(
        BLOCKS,
        Manner::Later(64),
        on_write(20, Act::Answer(Status::Ok)),
    ));
    let write = Job {
        verify: Some(Verify {
            read_back: false,
            ..Verify::default()
        }),
        ..job(Rw::Write, BLOCKS)
    };
    assert_eq!(found(&disk, &write), Verified::default(), "nothing is read");
    let read = Job {
        verify: Some(Verify::default()),
        iodepth: 8,
        ..job(Rw::Read, BLOCKS)
    };
    let first =
        "offset 81920 (LBA 20): expected a block that was written with verify=crc32c, found zeroes";
    check(&found(&disk, &read), 1, first);
    let fatal = Job {
        verify: Some(Verify {
            fatal: true,
            ..Verify::default()
        }),
        iodepth: 1,
        ..job(Rw::Read, 2 * BLOCKS)
    };
    let ended = results(&disk, &fatal).aggregate;
    assert_eq!(
        ended
            .verify
            .map(|found| (found.blocks_checked, found.errors)),
        Some((21, 1))
    );
    assert!(
        ended
            .ended_early
            .is_some_and(|why| why.contains("verify_fatal"))
    );
}

#[test]
fn a_backlog_is_read_back_in_batches_and_each_block_once() {
    let disk = Arc::new(TestDisk::honest(BLOCKS, Manner::AtOnce));
    let job = Job {
        verify: Some(Verify {
            backlog: 24,
            ..Verify::default()
        }),
        ..job(Rw::Write, BLOCKS)
    };
    let all = results(&disk, &job).aggregate;
    assert_eq!((all.write.ios, all.read.ios), (BLOCKS, BLOCKS));
    assert_eq!(
        all.verify.map(|found| (found.blocks_checked, found.errors)),
        Some((BLOCKS, 0))
    );
    let seen = disk.seen();
    assert!(
        seen[..24].iter().all(|seen| seen.write),
        "24 writes come first"
    );
    assert!(
        seen[24..48].iter().all(|seen| !seen.write),
        "their reads follow"
    );
    assert!(seen[48].write);
}

#[test]
fn a_backlog_holds_units_that_were_written_twice() {
    let disk = Arc::new(TestDisk::new(BLOCKS, Manner::Later(7), |_| Act::Honest));
    let job = Job {
        verify: Some(Verify {
            backlog: 1000,
            ..Verify::fine(4096)
        }),
        random_map: false,
        iodepth: 16,
        ..job(Rw::RandWrite, 500)
    };
    let found = found(&disk, &job);
    assert_eq!((found.errors, &found.first_error), (0, &None));
    assert!(found.blocks_checked >= 60, "{found:?}");
}

#[test]
fn trims_precede_the_writes_of_their_blocks_and_are_counted_apart() {
    let disk = Arc::new(TestDisk::honest(BLOCKS, Manner::Later(64)).with(|_| 0xa5));
    let job = Job {
        verify: Some(Verify::default()),
        iodepth: 16,
        ..job(Rw::RandTrimWrite, BLOCKS)
    };
    let all = results(&disk, &job).aggregate;
    assert_eq!(
        (all.trim.ios, all.write.ios, all.read.ios),
        (BLOCKS, BLOCKS, BLOCKS)
    );
    assert_eq!(
        (all.total.ios, all.trim.latency.count),
        (2 * BLOCKS, BLOCKS)
    );
    assert_eq!(
        all.verify.map(|found| (found.blocks_checked, found.errors)),
        Some((BLOCKS, 0))
    );
    assert_eq!(disk.overlaps(), 0);
    let trims = Job {
        rw: Rw::RandTrim,
        verify: None,
        ..job
    };
    assert!(results(&disk, &trims).is_clean());
    assert!(disk.bytes().iter().all(|byte| *byte == 0));
}

#[test]
fn a_random_job_without_its_map_writes_all_of_its_amount_before_it_reads_back() {
    let disk = Arc::new(TestDisk::new(BLOCKS, Manner::AtOnce, |_| Act::Honest));
    let job = Job {
        verify: Some(Verify::fine(4096)),
        random_map: false,
        number_ios: None,
        loops: Some(1),
        io_bytes: Some((BLOCKS + BLOCKS / 2) * 4096),
        ..job(Rw::RandWrite, 0)
    };
    let all = results(&disk, &job).aggregate;
    assert_eq!(all.write.ios, BLOCKS + BLOCKS / 2);
    assert!(all.read.ios <= BLOCKS, "{} blocks", all.read.ios);
}
