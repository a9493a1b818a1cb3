//! Tests: the region of each job, and the jobs that a disk refuses.

use super::*;
use crate::job::testing::{disk, refused};
use crate::job::{Rw, Share};
use crate::verify::Verify;

fn region(job: &Job, index: u32) -> Region {
    job.region(index, &disk()).expect("the job is possible")
}

#[test]
fn the_default_job_covers_the_disk() {
    let whole = Region {
        lba: 0,
        units: 1 << 18,
        blocks_per_unit: 1,
    };
    assert_eq!(region(&Job::default(), 0), whole);
}

#[test]
fn refuses_a_size_that_is_no_multiple_of_the_block_and_names_one_that_is() {
    refused(
        &Job {
            block_bytes: 5000,
            ..Job::default()
        },
        "bs=5000 is not a multiple of the disk's block of 4096 bytes; bs=8192 would be",
    );
    refused(
        &Job {
            block_bytes: 0,
            ..Job::default()
        },
        "bs=0 is not a multiple of the disk's block of 4096 bytes; bs=4096 would be",
    );
}

#[test]
fn refuses_a_region_beyond_the_disk_and_says_what_is_left() {
    refused(
        &Job {
            size: Some(1 << 30),
            offset: 4096,
            ..Job::default()
        },
        "size=1073741824 from offset 4096 ends beyond the disk of 1073741824 bytes; \
         size=1073737728 is what is left",
    );
    refused(
        &Job {
            offset: 1 << 30,
            ..Job::default()
        },
        "offset 1073741824 of job 0 is beyond the disk of 1073741824 bytes",
    );
    refused(
        &Job {
            offset: 100,
            ..Job::default()
        },
        "offset=100 and offset_increment=0 must be multiples of the disk's block of 4096 bytes",
    );
    refused(
        &Job {
            size: Some(1024),
            ..Job::default()
        },
        "a region of 1024 bytes has no room for bs=4096",
    );
}

#[test]
fn refuses_an_increment_that_leaves_the_disk_even_by_overflow() {
    let job = Job {
        offset_increment: u64::MAX - 4095,
        numjobs: 3,
        ..Job::default()
    };
    assert!(job.region(2, &disk()).is_err());
}

#[test]
fn refuses_to_write_a_read_only_disk_but_reads_it() {
    let disk = Geometry {
        read_only: true,
        ..disk()
    };
    let write = Job {
        rw: Rw::RandMixed,
        ..Job::default()
    };
    let error = write.region(0, &disk).expect_err("it writes");
    assert!(
        error
            .0
            .ends_with("the disk is read-only, and rw=randrw writes"),
        "{error}"
    );
    assert!(Job::default().region(0, &disk).is_ok());
    assert!(
        Job {
            rw: Rw::RandMixed,
            rwmixread: 100,
            ..Job::default()
        }
        .region(0, &disk)
        .is_ok()
    );
}

#[test]
fn trims_need_a_disk_that_deallocates() {
    let job = Job {
        rw: Rw::Trim,
        ..Job::default()
    };
    let none = Geometry {
        deallocate: Deallocate::No,
        ..disk()
    };
    let error = job.region(0, &none).expect_err("it trims");
    assert!(error.0.contains("rw=trim trims"), "{error}");
    let zeroes = Geometry {
        deallocate: Deallocate::Zeroes,
        ..disk()
    };
    assert!(job.region(0, &zeroes).is_ok());
}

#[test]
fn verifying_jobs_share_no_block() {
    let job = Job {
        rw: Rw::RandWrite,
        verify: Some(Verify::default()),
        numjobs: 3,
        ..Job::default()
    };
    let regions: Vec<Region> = (0..3).map(|index| region(&job, index)).collect();
    for pair in regions.windows(2) {
        assert!(pair[0].lba_of(pair[0].units - 1) < pair[1].lba);
    }
    let apart = Job {
        size: Some(64 * 4096),
        offset_increment: 64 * 4096,
        ..job.clone()
    };
    assert_eq!((region(&apart, 2).lba, region(&apart, 2).units), (128, 64));
    refused(
        &Job {
            name: "randread".into(),
            offset_increment: 4096,
            ..apart
        },
        "offset_increment=4096 leaves the jobs blocks in common, and verify needs blocks that no other job \
         writes; write size= of at most that, or leave offset_increment out",
    );
    let crowded = Job {
        size: Some(64 * 4096),
        ..job
    };
    assert!(
        crowded.region(0, &disk()).is_err(),
        "21 places for a depth of 32"
    );
}

#[test]
fn increments_move_each_job() {
    let job = Job {
        offset: 8192,
        offset_increment: 1 << 20,
        size: Some(1 << 20),
        ..Job::default()
    };
    assert_eq!(region(&job, 2).lba, 2 + 2 * 256);
}

#[test]
fn a_region_that_is_no_multiple_of_the_request_is_rounded_down() {
    let job = Job {
        size: Some(65536 + 4096),
        block_bytes: 65536,
        ..Job::default()
    };
    assert_eq!(
        region(&job, 0),
        Region {
            lba: 0,
            units: 1,
            blocks_per_unit: 16
        }
    );
}

#[test]
fn a_split_is_checked_size_by_size() {
    let split = |sizes: &[u32]| {
        let share = |bytes: &u32| Share {
            bytes: *bytes,
            percent: 50,
        };
        let shares: Vec<Share> = sizes.iter().map(share).collect();
        Job {
            split: [shares.clone(), shares],
            ..Job::default()
        }
    };
    assert_eq!(region(&split(&[8192, 16384]), 0).blocks_per_unit, 2);
    assert_eq!(region(&split(&[8192, 12288]), 0).blocks_per_unit, 1);
    refused(
        &split(&[4096, 4000]),
        "bs=4000 is not a multiple of the disk's block of 4096 bytes; bs=4096 would be",
    );
}
