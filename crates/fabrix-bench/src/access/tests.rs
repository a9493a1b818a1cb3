//! Tests: which requests a job makes.

use super::*;
use crate::job::{Rw, Share, SizeRange};

fn sequence(rw: Rw, rwmixread: u32, units: u64) -> Sequence {
    let job = Job {
        rw,
        rwmixread,
        ..Job::default()
    };
    Sequence::new(
        &job,
        0,
        &Region {
            lba: 0,
            units,
            blocks_per_unit: 8,
        },
    )
}

#[test]
fn seventy_percent_writes_come_out_within_one_percent() {
    for rw in [Rw::RandMixed, Rw::Mixed] {
        let mut sequence = sequence(rw, 30, 1000);
        let writes = (0..100_000)
            .filter(|_| sequence.draw().direction == Direction::Write)
            .count();
        assert!(
            (69_000..=71_000).contains(&writes),
            "{rw}: {writes} writes of 100000"
        );
    }
}

#[test]
fn a_mix_of_none_or_all_is_exact() {
    let (mut none, mut all) = (
        sequence(Rw::RandMixed, 0, 9),
        sequence(Rw::RandMixed, 100, 9),
    );
    assert!((0..10_000).all(|_| none.draw().direction != all.draw().direction));
}

#[test]
fn sequential_jobs_walk_in_order_and_start_over() {
    let mut sequence = sequence(Rw::Read, 50, 3);
    let units: Vec<u64> = (0..7).map(|_| sequence.draw().unit).collect();
    assert_eq!(units, [0, 1, 2, 0, 1, 2, 0]);
}

/// The first units of a job on a region of 16 units of 4 KiB.
fn first(job: &Job, count: usize) -> Vec<u64> {
    let region = Region {
        lba: 0,
        units: 16,
        blocks_per_unit: 8,
    };
    let mut sequence = Sequence::new(job, 0, &region);
    (0..count).map(|_| sequence.draw().unit).collect()
}

#[test]
fn sequential_requests_leave_out_bytes() {
    let job = Job {
        rw: Rw::Read,
        skip_bytes: 8192,
        ..Job::default()
    };
    assert_eq!(first(&job, 8), [0, 3, 6, 9, 12, 15, 0, 3]);
}

#[test]
fn backward_walks_start_over_as_in_fio() {
    let back = |skip_bytes| Job {
        rw: Rw::Read,
        skip_bytes,
        ..Job::default()
    };
    assert_eq!(first(&back(-8192), 4), [0, 14, 13, 12]);
    assert_eq!(first(&back(-8192), 18)[14..], [1, 0, 14, 13]);
    assert_eq!(first(&back(-12288), 9), [0, 13, 11, 9, 7, 5, 3, 1, 13]);
    assert_eq!(first(&back(-4096), 3), [0, 0, 0]);
    assert_eq!(
        first(&back(i64::MIN), 3),
        [0, 0, 0],
        "longer than the region"
    );
    assert_eq!(first(&back(i64::MAX / 4096 * 4096), 3), [0, 0, 0]);
}

#[test]
fn a_run_follows_each_random_address() {
    let mut job = Job {
        run_ios: 4,
        ..Job::default()
    };
    let units = first(&job, 400);
    for run in units.chunks(4) {
        let expected = [0, 1, 2, 3].map(|step| (run[0] + step) % 16);
        assert_eq!(run, expected);
    }
    job.run_is_identical = true;
    let units = first(&job, 400);
    assert!(
        units
            .chunks(4)
            .all(|run| run.iter().all(|unit| *unit == run[0]))
    );
    assert!(units.iter().collect::<std::collections::HashSet<_>>().len() > 8);
}

#[test]
fn a_sequential_mix_walks_once_per_direction() {
    let mut sequence = sequence(Rw::Mixed, 50, 1000);
    let mut next = [0, 0];
    for _ in 0..500 {
        let access = sequence.draw();
        assert_eq!(access.unit, next[access.direction.index()]);
        next[access.direction.index()] += 1;
    }
}

#[test]
fn a_random_mix_visits_each_unit_once_per_pass() {
    let mut sequence = sequence(Rw::RandMixed, 50, 1000);
    for pass in 0..3 {
        let mut units: Vec<u64> = (0..1000).map(|_| sequence.draw().unit).collect();
        units.sort_unstable();
        assert!(units.into_iter().eq(0..1000), "pass {pass}");
    }
}

#[test]
fn requests_of_several_lengths_move_each_byte_once_per_pass() {
    let share = |bytes, percent| Share { bytes, percent };
    let job = Job {
        rw: Rw::RandWrite,
        split: [
            vec![share(4096, 100)],
            vec![share(4096, 50), share(16384, 50)],
        ],
        ..Job::default()
    };
    let region = Region {
        lba: 0,
        units: 1000,
        blocks_per_unit: 1,
    };
    let mut sequence = Sequence::new(&job, 0, &region);
    let mut hits = [0; 1000];
    let mut left = 1000;
    while left > 0 {
        let Access { unit, units, .. } = sequence.draw();
        let first = usize::try_from(unit).expect("below 1000");
        hits[first..first + units as usize]
            .iter_mut()
            .for_each(|hits| *hits += 1);
        left -= units;
    }
    assert!(hits.iter().all(|hits| *hits == 1), "{hits:?}");
}

#[test]
fn trims_stand_alone_or_before_each_write() {
    let mut only = sequence(Rw::RandTrim, 50, 100);
    assert!((0..100).all(|_| only.draw().direction == Direction::Trim));
    let mut both = sequence(Rw::TrimWrite, 50, 3);
    let drawn: Vec<_> = (0..6).map(|_| both.draw()).collect();
    let units: Vec<_> = drawn.iter().map(|access| access.unit).collect();
    assert_eq!(units, [0, 0, 1, 1, 2, 2]);
    assert!(drawn.chunks(2).all(|pair| {
        pair[0].direction == Direction::Trim && pair[1].direction == Direction::Write
    }));
}

#[test]
fn independent_draws_stay_inside_and_reach_everything_evenly() {
    let job = Job {
        random_map: false,
        ..Job::default()
    };
    let region = Region {
        lba: 0,
        units: 10,
        blocks_per_unit: 8,
    };
    let mut sequence = Sequence::new(&job, 0, &region);
    let mut hits = [0u32; 10];
    for _ in 0..100_000 {
        hits[usize::try_from(sequence.draw().unit).expect("below 10")] += 1;
    }
    assert!(
        hits.iter().all(|hit| (9_500..=10_500).contains(hit)),
        "{hits:?}"
    );
}

#[test]
fn jobs_of_one_run_draw_different_addresses() {
    let job = Job::default();
    let region = Region {
        lba: 0,
        units: 1 << 40,
        blocks_per_unit: 8,
    };
    let mut first = Sequence::new(&job, 0, &region);
    let mut second = Sequence::new(&job, 1, &region);
    assert!((0..100).all(|_| first.draw() != second.draw()));
}

fn split(rw: Rw, units: u64) -> Sequence {
    let share = |bytes, percent| Share { bytes, percent };
    let shares = vec![share(4096, 60), share(16384, 40)];
    let job = Job {
        rw,
        split: [shares.clone(), shares],
        random_map: false,
        ..Job::default()
    };
    let region = Region {
        lba: 0,
        units,
        blocks_per_unit: 1,
    };
    Sequence::new(&job, 0, &region)
}

#[test]
fn a_split_gives_each_size_its_share_and_leaves_nothing_outside() {
    let mut sequence = split(Rw::RandRead, 100);
    let draws: Vec<Access> = (0..100_000).map(|_| sequence.draw()).collect();
    let long = draws.iter().filter(|access| access.units == 4).count();
    assert!(
        (39_000..=41_000).contains(&long),
        "{long} of 100000 are long"
    );
    assert!(
        draws
            .iter()
            .all(|access| access.unit + u64::from(access.units) <= 100)
    );
    assert!(
        draws
            .iter()
            .any(|access| access.unit == 96 && access.units == 4)
    );
}

#[test]
fn a_sequential_split_leaves_no_gap_and_ends_with_the_region() {
    let mut sequence = split(Rw::Write, 50);
    let mut next = 0;
    for _ in 0..1000 {
        let access = sequence.draw();
        assert_eq!(access.unit, next);
        next = (next + u64::from(access.units)) % 50;
    }
}

#[test]
fn each_direction_visits_its_own_blocks_once_where_the_sizes_differ() {
    let share = |bytes| {
        vec![Share {
            bytes,
            percent: 100,
        }]
    };
    let job = Job {
        rw: Rw::RandMixed,
        split: [share(4096), share(16384)],
        ..Job::default()
    };
    let region = Region {
        lba: 0,
        units: 1000,
        blocks_per_unit: 1,
    };
    let mut sequence = Sequence::new(&job, 0, &region);
    let mut written: Vec<u64> = (0..2000)
        .map(|_| sequence.draw())
        .filter(|access| access.direction == Direction::Write)
        .take(250)
        .map(|access| access.unit + 4 - u64::from(access.units))
        .collect();
    written.sort_unstable();
    assert!(written.into_iter().eq((0..250).map(|place| place * 4)));
}

#[test]
fn a_share_of_random_jobs_may_be_sequential() {
    let job = Job {
        percent_random: [25, 100],
        ..Job::default()
    };
    let region = Region {
        lba: 0,
        units: 1 << 20,
        blocks_per_unit: 8,
    };
    let mut sequence = Sequence::new(&job, 0, &region);
    let units: Vec<u64> = (0..10_000).map(|_| sequence.draw().unit).collect();
    let follow = units.windows(2).filter(|pair| pair[1] == pair[0] + 1);
    let follow = follow.count();
    assert!((7_300..=7_700).contains(&follow), "{follow} of 10000");
}

#[test]
fn ranges_have_all_multiples_equally_often_and_alignments_hold() {
    let range = SizeRange {
        shortest: 4096,
        longest: 10240,
    };
    let job = Job {
        ranges: [Some(range), None],
        align: [8192, 0],
        random_map: false,
        ..Job::default()
    };
    let region = Region {
        lba: 0,
        units: 1000,
        blocks_per_unit: 1,
    };
    let mut sequence = Sequence::new(&job, 0, &region);
    let mut counts = [0_u32; 6];
    for _ in 0..100_000 {
        let access = sequence.draw();
        assert!(access.unit.is_multiple_of(4) && access.unit + u64::from(access.units) <= 1000);
        counts[access.units as usize] += 1;
    }
    // Units of 2 KiB: fio draws 4k, 8k and 10k in the proportion 4 to 4 to 2.
    for (count, expected) in counts.into_iter().zip([0, 0, 40_000, 0, 40_000, 20_000]) {
        assert!(count.abs_diff(expected) < 1000, "{counts:?}");
    }
}
