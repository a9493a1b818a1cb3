//! The requests that disks receive, their order, and their complete accounting.

use std::collections::HashSet;
use std::sync::Arc;

use fabrix_bench::contents::{Base, Contents};
use fabrix_bench::job::Distribution;
use fabrix_bench::job::Share;
use fabrix_bench::verify::Verify;
use fabrix_bench::{Config, Flushes, Job, Part, RunError, Rw, Start, run, run_together};
use fabrix_block::Device;

use super::disk::{Manner, TestDisk, job, results};
use super::honest;

#[test]
fn every_request_is_counted_in_either_manner() {
    for (manner, most) in [(Manner::AtOnce, 1), (Manner::Later(64), 7)] {
        let results = results(&honest(manner), &job(Rw::RandRead, 1000));
        let depths = results.aggregate.depths;
        assert_eq!(depths.most(), Some(most), "{manner:?}: {depths:?}");
        let read = &results.aggregate.read;
        assert_eq!(
            (read.ios, read.bytes, read.service.count),
            (1000, 1000 * 4096, 1000)
        );
        assert_eq!(results.aggregate.write.ios, 0);
        assert!(
            results.is_clean() && read.iops > 0.0 && read.service.max_ns >= read.service.min_ns
        );
    }
}

#[test]
fn sequential_jobs_walk_the_region_in_order() {
    let disk = honest(Manner::Later(64));
    let job = Job {
        offset: 8 * 4096,
        size: Some(40 * 4096),
        block_bytes: 8192,
        ..job(Rw::Write, 50)
    };
    results(&disk, &job);
    let lbas: Vec<u64> = disk.seen().iter().map(|seen| seen.lba).collect();
    let expected: Vec<u64> = (0..50).map(|at| 8 + (at % 20) * 2).collect();
    assert_eq!(lbas, expected);
}

#[test]
fn a_flush_follows_every_few_writes_and_ends_the_job() {
    for manner in [Manner::AtOnce, Manner::Later(64), Manner::Later(1)] {
        let disk = honest(manner);
        let job = Job {
            flushes: Flushes {
                every: 3,
                at_end: true,
            },
            ..job(Rw::Write, 9)
        };
        let results = results(&disk, &job);
        let blocks: Vec<u32> = disk.seen().iter().map(|seen| seen.blocks).collect();
        assert_eq!(blocks, [1, 1, 1, 0, 1, 1, 1, 0, 1, 1, 1, 0], "{manner:?}");
        let all = &results.aggregate;
        assert_eq!(
            (all.write.ios, all.sync.count),
            (9, 2),
            "the last one is not counted"
        );
        assert!(results.is_clean());
    }
}

#[test]
fn a_part_starts_after_another_and_its_end_ends_all() {
    let disk = honest(Manner::AtOnce);
    let devices = [Arc::clone(&disk) as Arc<dyn Device>];
    let (reads, writes) = (job(Rw::Read, 20), job(Rw::Write, 10));
    let endless = Job {
        number_ios: None,
        ..job(Rw::Read, 1)
    };
    let part = |job, after, ends_all| Part {
        devices: &devices,
        job,
        copy_to: None,
        start: Start {
            after,
            ends_all,
            ..Start::default()
        },
    };
    let parts = [
        part(&reads, None, false),
        part(&writes, Some(0), true),
        part(&endless, Some(0), false),
    ];
    let results = run_together(&parts, &Config::default(), &mut |_| {}).expect("three parts");
    let ios: Vec<u64> = results.iter().map(|one| one.aggregate.total.ios).collect();
    assert_eq!(ios[..2], [20, 10]);
    assert!(results.iter().all(fabrix_bench::Results::is_clean));
    let first_write = disk.seen().iter().position(|seen| seen.write);
    assert!(first_write.is_some_and(|index| index >= 20));
}

#[test]
fn random_requests_are_aligned_and_inside() {
    let disk = honest(Manner::AtOnce);
    let job = Job {
        offset: 3 * 4096,
        size: Some(30 * 4096),
        block_bytes: 8192,
        ..job(Rw::RandWrite, 5000)
    };
    results(&disk, &job);
    assert!(
        disk.seen()
            .iter()
            .all(|seen| (3..33).contains(&seen.lba) && (seen.lba - 3) % 2 == 0)
    );
    assert!(
        disk.seen()
            .iter()
            .all(|seen| seen.blocks == 2 && seen.write)
    );
}

#[test]
fn seventy_percent_writes_are_seventy_percent() {
    let disk = honest(Manner::AtOnce);
    let job = Job {
        rwmixread: 30,
        ..job(Rw::RandMixed, 50_000)
    };
    let results = results(&disk, &job);
    assert!(
        (34_500..=35_500).contains(&results.aggregate.write.ios),
        "{}",
        results.aggregate.write.ios
    );
    assert_eq!(results.aggregate.total.ios, 50_000);
    let writes = disk.seen().iter().filter(|seen| seen.write).count();
    assert_eq!(writes as u64, results.aggregate.write.ios);
}

#[test]
fn the_asked_depth_is_reached_and_never_exceeded() {
    let disk = honest(Manner::Later(64));
    results(
        &disk,
        &Job {
            iodepth: 13,
            ..job(Rw::RandRead, 1000)
        },
    );
    assert_eq!(disk.most_in_flight(), 13);
}

#[test]
fn a_busy_disk_gets_every_request_in_the_end() {
    for most in [1, 2] {
        let disk = honest(Manner::Later(most));
        let results = results(
            &disk,
            &Job {
                iodepth: 8,
                ..job(Rw::RandRead, 1000)
            },
        );
        assert_eq!(results.aggregate.read.ios, 1000);
        assert!(results.aggregate.busy > 0 && results.is_clean());
        assert_eq!(disk.most_in_flight(), most);
    }
}

#[test]
fn jobs_are_dealt_out_to_disks_and_add_up() {
    let disks = [honest(Manner::AtOnce), honest(Manner::Later(64))];
    let devices = disks.clone().map(|disk| disk as Arc<dyn Device>);
    let job = Job {
        numjobs: 3,
        ..job(Rw::RandRead, 500)
    };
    let results = run(&devices, &job, &Config::default(), &mut |_| {}).expect("the job can be run");
    assert_eq!(results.jobs.len(), 3);
    assert_eq!(results.aggregate.read.ios, 1500);
    assert_eq!(
        (disks[0].seen().len(), disks[1].seen().len()),
        (1000 + 1, 500)
    );
    let idle = run(
        &devices,
        &Job { numjobs: 1, ..job },
        &Config::default(),
        &mut |_| {},
    );
    assert!(
        matches!(idle, Err(RunError::Job(_))),
        "one job cannot work on two disks"
    );
}

#[test]
fn requests_of_several_sizes_are_counted_with_their_bytes() {
    let disk = honest(Manner::Later(64));
    let shares = [(4096, 50), (16384, 50)].map(|(bytes, percent)| Share { bytes, percent });
    let job = Job {
        split: [shares.into(), shares.into()],
        random_map: false,
        ..job(Rw::RandMixed, 4000)
    };
    let total = results(&disk, &job).aggregate.total;
    let blocks: u64 = disk.seen().iter().map(|seen| u64::from(seen.blocks)).sum();
    assert_eq!((total.ios, total.bytes), (4000, blocks * 4096));
    let long = disk.seen().iter().filter(|seen| seen.blocks == 4).count();
    assert!((1850..=2150).contains(&long), "{long} of 4000 are long");
}

#[test]
fn loops_end_a_job_when_it_has_moved_its_region_so_often() {
    let disk = honest(Manner::Later(64));
    let job = Job {
        loops: Some(3),
        number_ios: None,
        ..job(Rw::Write, 1)
    };
    let results = results(&disk, &job);
    assert_eq!(results.aggregate.write.bytes, 3 * 64 * 4096);
    assert!(results.is_clean());
}

#[test]
fn a_random_pass_visits_each_block_once() {
    let share = |bytes, percent| Share { bytes, percent };
    let several = vec![share(4096, 50), share(16384, 50)];
    for split in [[Vec::new(), Vec::new()], [several.clone(), several]] {
        let disk = honest(Manner::Later(64));
        let job = Job {
            split,
            loops: Some(1),
            number_ios: None,
            ..job(Rw::RandMixed, 1)
        };
        let results = results(&disk, &job);
        assert_eq!(results.aggregate.total.bytes, 64 * 4096);
        let seen = disk.seen();
        let mut lbas: Vec<u64> = seen
            .iter()
            .flat_map(|seen| seen.lba..seen.lba + u64::from(seen.blocks))
            .collect();
        lbas.sort_unstable();
        assert!(lbas.into_iter().eq(0..64));
    }
}

#[test]
fn written_blocks_differ_unless_asked_otherwise() {
    let zeroes = Contents {
        base: Base::Zeroes,
        ..Contents::default()
    };
    let compressible = Contents {
        compress_percent: 50,
        ..Contents::default()
    };
    for (contents, different, zero_bytes) in [
        (Contents::default(), 64 * 8, 0..4096),
        (compressible, 64 * 8, 131_072..135_168),
        (zeroes, 1, 262_144..262_145),
    ] {
        let disk = honest(Manner::Later(64));
        let job = Job {
            contents,
            ..job(Rw::RandWrite, 64)
        };
        results(&disk, &job);
        let bytes = disk.bytes();
        let sectors: HashSet<&[u8]> = bytes.chunks(512).collect();
        let zeroes = bytes.iter().filter(|byte| **byte == 0).count();
        assert_eq!(sectors.len(), different, "{job:?}");
        assert!(zero_bytes.contains(&zeroes), "{zeroes} zeroes: {job:?}");
    }
}

#[test]
fn a_job_that_writes_what_another_verifies_is_refused() {
    let disk = honest(Manner::Later(64)) as Arc<dyn Device>;
    let verifying = Job {
        name: "checked".into(),
        verify: Some(Verify::fine(4096)),
        ..job(Rw::Write, 32)
    };
    let writing = Job {
        name: "other".into(),
        offset: 32 * 4096,
        ..job(Rw::Write, 32)
    };
    let devices = [disk];
    let together = |first: &Job, second: &Job| {
        let parts = [first, second].map(|job| Part {
            devices: &devices,
            job,
            copy_to: None,
            start: fabrix_bench::Start::default(),
        });
        run_together(&parts, &Config::default(), &mut |_| {})
    };
    let error = together(&verifying, &writing).expect_err("they overlap");
    assert_eq!(
        error.to_string(),
        "jobs \"checked\" and \"other\" overlap: both use LBA 32 to 63 at the same time, and \
         \"checked\" can verify only what no other job writes; separate them with offset= and \
         size=, or with stonewall"
    );
    let half = Job {
        size: Some(32 * 4096),
        ..verifying
    };
    let results = together(&half, &writing).expect("they share no block");
    assert!(results.iter().all(|results| results.is_clean()));
}

#[test]
fn a_job_that_only_writes_may_have_a_shorter_size_for_reads() {
    let share = |bytes, percent| vec![Share { bytes, percent }];
    for rw in [Rw::Write, Rw::RandWrite] {
        let disk = honest(Manner::Later(3));
        let job = Job {
            split: [share(4096, 100), share(16384, 100)],
            loops: Some(1),
            number_ios: None,
            ..job(rw, 1)
        };
        let write = &results(&disk, &job).aggregate.write;
        assert_eq!((write.ios, write.bytes), (16, 64 * 4096));
    }
}

#[test]
fn requests_longer_than_the_disk_takes_are_split_and_counted_once() {
    for (manner, verify) in [
        (Manner::AtOnce, false),
        (Manner::Later(3), false),
        (Manner::Later(2), true),
    ] {
        let disk = Arc::new(TestDisk::honest(1280, manner));
        let job = Job {
            // Two and a half pieces of the disk's 1 MiB.
            block_bytes: 5 << 19,
            iodepth: 1,
            loops: Some(1),
            number_ios: None,
            verify: verify.then(|| Verify::fine(5 << 19)),
            ..job(Rw::Write, 1)
        };
        let results = results(&disk, &job);
        let write = &results.aggregate.write;
        assert_eq!((write.ios, write.bytes), (2, 5 << 20));
        assert_eq!(write.service.count, 2);
        let expected = [(0, 256), (256, 256), (512, 128)];
        let second = expected.map(|(lba, blocks)| (lba + 640, blocks));
        for is_write in [true, false] {
            // The first read comes before the writes.
            let seen = disk.seen().into_iter().skip(2);
            let seen = seen.filter(|seen| seen.write == is_write);
            let mut pieces: Vec<(u64, u32)> = seen.map(|seen| (seen.lba, seen.blocks)).collect();
            pieces.sort_unstable();
            let all = [expected, second].concat();
            assert_eq!(pieces, if is_write || verify { all } else { Vec::new() });
        }
        if let Some(verified) = &results.jobs[0].verify {
            assert_eq!((verified.blocks_checked, verified.errors), (1280, 0));
        }
        let bytes = disk.bytes();
        let sectors: HashSet<&[u8]> = bytes.chunks(512).collect();
        assert_eq!(sectors.len(), 10 << 10);
    }
}

#[test]
fn zipfs_law_asks_few_places_often() {
    let disk = honest(Manner::AtOnce);
    let job = Job {
        distribution: Distribution::Zipf {
            theta: 1.2,
            center: None,
        },
        ..job(Rw::RandRead, 10_000)
    };
    results(&disk, &job);
    let mut hits = [0_u32; 64];
    disk.seen()
        .iter()
        .for_each(|seen| hits[usize::try_from(seen.lba).expect("64 blocks")] += 1);
    hits.sort_unstable_by(|one, other| other.cmp(one));
    assert!(
        hits[0] > 2500 && hits[..8].iter().sum::<u32>() > 6000,
        "{hits:?}"
    );
}

#[test]
fn several_jobs_run_side_by_side_and_keep_their_results_apart() {
    let disk = honest(Manner::Later(64)) as Arc<dyn Device>;
    let (reads, writes) = (job(Rw::Read, 500), job(Rw::Write, 300));
    let devices = [disk];
    let parts = [&reads, &writes].map(|job| Part {
        devices: &devices,
        job,
        copy_to: None,
        start: fabrix_bench::Start::default(),
    });
    let results = run_together(&parts, &Config::default(), &mut |_| {}).expect("they can be run");
    let moved = |at: usize| {
        (
            results[at].aggregate.read.ios,
            results[at].aggregate.write.ios,
        )
    };
    assert_eq!((moved(0), moved(1)), ((500, 0), (0, 300)));
}
