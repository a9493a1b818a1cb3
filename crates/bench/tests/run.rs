//! Whole runs on disks in memory: what is asked of them, and what is said of it afterwards.

#[allow(
    unreachable_pub,
    dead_code,
    reason = "one module for several test programs"
)]
mod disk;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use disk::{Act, Manner, TestDisk, job, results, try_run};
use fabrix_bench::access::Distribution;
use fabrix_bench::arrivals::{Pacing, Rate};
use fabrix_bench::job::Share;
use fabrix_bench::steady::Steady;
use fabrix_bench::{Config, Job, Part, Results, RunError, Rw, run, run_together};
use fabrix_block::{Device, Status};

fn honest(manner: Manner) -> Arc<TestDisk> {
    Arc::new(TestDisk::honest(64, manner))
}

#[test]
fn every_request_is_counted_in_either_manner() {
    for manner in [Manner::AtOnce, Manner::Later(64)] {
        let results = results(&honest(manner), &job(Rw::RandRead, 1000));
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
fn a_disk_that_is_always_busy_is_an_error() {
    let config = Config {
        ready: Duration::from_millis(20),
        ..Config::default()
    };
    let error = try_run(&honest(Manner::Later(0)), &job(Rw::Read, 10), &config)
        .expect_err("there is no room");
    assert!(error.to_string().starts_with("0 of 1 jobs"), "{error}");
}

#[test]
fn requests_without_an_answer_are_given_up_in_the_end() {
    let disk = Arc::new(TestDisk::new(64, Manner::AtOnce, |seen| {
        if seen.number == 0 {
            Act::Honest
        } else {
            Act::Silence
        }
    }));
    let job = Job {
        runtime: Duration::from_millis(20),
        number_ios: None,
        ..job(Rw::RandRead, 1)
    };
    let config = Config {
        drain: Duration::from_millis(20),
        ..Config::default()
    };
    let results = try_run(&disk, &job, &config).expect("the job can be run");
    let why = results.aggregate.ended_early.expect("it did not end well");
    assert_eq!(
        why,
        "4 requests had no answer for 0.02 s, and were given up"
    );
    assert_eq!(results.aggregate.read.ios, 0);
}

#[test]
fn an_interrupt_does_not_wait_long_for_a_disk_that_is_silent() {
    let disk = Arc::new(TestDisk::new(64, Manner::AtOnce, |seen| {
        if seen.number <= 100 {
            Act::Honest
        } else {
            Act::Silence
        }
    }));
    let stop = Arc::new(AtomicBool::new(false));
    let config = Config {
        drain: Duration::from_secs(600),
        stop_drain: Duration::from_millis(20),
        stop: Some(Arc::clone(&stop)),
        progress_every: Duration::from_millis(5),
        ..Config::default()
    };
    let job = Job {
        runtime: Duration::from_secs(600),
        number_ios: None,
        ..job(Rw::RandRead, 1)
    };
    let devices = [disk as Arc<dyn Device>];
    let results = run(&devices, &job, &config, &mut |progress| {
        stop.store(progress.ios >= 100, Ordering::Relaxed);
    });
    let all = results.expect("it gives what it has").aggregate;
    assert_eq!(all.read.ios, 100);
    assert_eq!(all.ended_early.as_deref(), Some("stopped before its time"));
}

#[test]
fn an_interrupt_finds_jobs_that_have_ended_and_others_that_have_not() {
    let stop = Arc::new(AtomicBool::new(false));
    let config = Config {
        stop: Some(Arc::clone(&stop)),
        progress_every: Duration::from_millis(5),
        ..Config::default()
    };
    let short = job(Rw::RandRead, 10);
    let long = Job {
        runtime: Duration::from_secs(600),
        number_ios: None,
        ..job(Rw::RandRead, 1)
    };
    let devices = [honest(Manner::Later(64)) as Arc<dyn Device>];
    let parts = [&short, &long].map(|job| Part {
        devices: &devices,
        job,
        copy_to: None,
    });
    let results = run_together(&parts, &config, &mut |progress| {
        stop.store(progress.ios > 1000, Ordering::Relaxed);
    });
    let results = results.expect("both give what they have");
    assert!(results[0].is_clean() && results[0].aggregate.read.ios == 10);
    let why = results[1].aggregate.ended_early.as_deref();
    assert_eq!(why, Some("stopped before its time"));
}

#[test]
fn the_first_failure_ends_the_job_and_is_named() {
    let disk = Arc::new(TestDisk::new(64, Manner::AtOnce, |seen| {
        if seen.number == 101 {
            Act::Answer(Status::MediaRead)
        } else {
            Act::Honest
        }
    }));
    let results = results(&disk, &job(Rw::Read, 1000));
    let all = &results.aggregate;
    assert_eq!((all.read.ios, all.errors.total()), (100, 1));
    assert_eq!(
        all.errors.first.as_deref(),
        Some("job 0: the read of 1 blocks at LBA 36 was answered MediaRead")
    );
    assert_eq!(
        all.ended_early.as_deref(),
        Some("ended by its first failed request (MediaRead)")
    );
    assert!(!results.is_clean());
}

#[test]
fn failures_are_counted_by_status_when_the_job_goes_on() {
    let disk = Arc::new(TestDisk::new(64, Manner::Later(64), |seen| {
        match seen.number % 100 {
            7 => Act::Answer(Status::NoSpace),
            8 => Act::Answer(Status::Aborted),
            _ => Act::Honest,
        }
    }));
    let results = results(
        &disk,
        &Job {
            continue_on_error: true,
            ..job(Rw::Write, 1000)
        },
    );
    let errors = &results.aggregate.errors;
    assert_eq!(
        errors.by_status,
        [(Status::NoSpace, 10), (Status::Aborted, 10)]
    );
    assert_eq!(results.aggregate.write.ios, 980);
    assert_eq!(results.aggregate.ended_early, None);
}

#[test]
fn a_disk_that_does_not_answer_the_first_read_is_an_error() {
    let disk = Arc::new(TestDisk::new(64, Manner::AtOnce, |_| Act::Silence));
    let config = Config {
        ready: Duration::from_millis(20),
        ..Config::default()
    };
    let error = try_run(&disk, &job(Rw::Read, 10), &config).expect_err("nothing answers");
    assert_eq!(
        error.to_string(),
        "0 of 1 jobs have a disk that answered a first read within 0.02 s"
    );
}

#[test]
fn a_disk_that_does_not_open_is_an_error_with_its_sentence() {
    let disk = Arc::new(TestDisk::honest(64, Manner::AtOnce).closed());
    let error =
        try_run(&disk, &job(Rw::Read, 10), &Config::default()).expect_err("it is not there");
    assert!(
        matches!(&error, RunError::Start(sentence) if sentence == "test disk: it is not there"),
        "{error}"
    );
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
fn the_ramp_is_not_counted_and_the_time_is_kept() {
    let (ramp, runtime) = (Duration::from_millis(30), Duration::from_millis(60));
    let job = Job {
        ramp,
        runtime,
        number_ios: None,
        ..job(Rw::RandRead, 1)
    };
    let mut told = Vec::new();
    let config = Config {
        progress_every: Duration::from_millis(10),
        ..Config::default()
    };
    let disk = honest(Manner::Later(64)) as Arc<dyn Device>;
    let results =
        run(&[disk], &job, &config, &mut |progress| told.push(*progress)).expect("it can be run");
    let measured = Duration::from_nanos(results.aggregate.read.runtime_ns);
    assert!(measured >= runtime, "{measured:?}");
    assert!(results.cpu.job_cores > 0.0 && results.cpu.cores > 0);
    assert!(
        told.len() >= 3
            && told
                .iter()
                .all(|progress| progress.planned == ramp + runtime)
    );
    assert!(told.iter().any(|progress| progress.iops > 0.0));
}

#[test]
fn an_open_loop_offers_its_rate_and_counts_the_wait() {
    for pacing in [Pacing::Fixed, Pacing::Poisson] {
        let rate = Some(Rate { iops: 2000, pacing });
        let job = Job {
            rate,
            runtime: Duration::from_millis(250),
            number_ios: None,
            ..job(Rw::RandRead, 1)
        };
        let read = results(&honest(Manner::Later(64)), &job).aggregate.read;
        assert!(
            (350..=700).contains(&read.ios),
            "{pacing:?}: {} requests in 250 ms",
            read.ios
        );
        assert!(read.latency.mean_ns >= read.service.mean_ns);
    }
}

#[test]
fn a_stopped_run_gives_what_it_has() {
    let stop = Some(Arc::new(AtomicBool::new(true)));
    let job = Job {
        number_ios: None,
        ..job(Rw::RandRead, 1)
    };
    let results = try_run(
        &honest(Manner::Later(64)),
        &job,
        &Config {
            stop,
            ..Config::default()
        },
    );
    let results = results.expect("the job can be run");
    assert_eq!(
        results.aggregate.ended_early.as_deref(),
        Some("stopped before its time")
    );
}

#[test]
fn an_impossible_job_never_touches_the_disk() {
    let job = Job {
        block_bytes: 1000,
        ..job(Rw::Write, 1)
    };
    let error = try_run(&honest(Manner::AtOnce), &job, &Config::default())
        .expect_err("1000 is no multiple");
    assert!(matches!(error, RunError::Job(_)), "{error}");
}

#[test]
fn a_failed_first_read_is_an_error_with_its_sentence() {
    for continue_on_error in [false, true] {
        let disk = Arc::new(TestDisk::new(64, Manner::Later(64), |_| {
            Act::Answer(Status::MediaRead)
        }));
        let job = Job {
            continue_on_error,
            ..job(Rw::RandRead, 10)
        };
        let error = try_run(&disk, &job, &Config::default()).expect_err("it cannot be read");
        assert_eq!(
            error.to_string(),
            "the first read of job 0 failed: job 0: the read of 1 blocks at LBA 0 was answered MediaRead"
        );
    }
}

#[test]
fn requests_of_several_sizes_are_counted_with_their_bytes() {
    let disk = honest(Manner::Later(64));
    let shares = [(4096, 50), (16384, 50)].map(|(bytes, percent)| Share { bytes, percent });
    let job = Job {
        split: [shares.into(), shares.into()],
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
fn zipfs_law_asks_few_places_often() {
    let disk = honest(Manner::AtOnce);
    let job = Job {
        distribution: Distribution::Zipf { theta: 1.2 },
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

/// Reads from a disk that stands still once, for 300 ms, with one request in flight.
fn stalled(rate: Option<Rate>) -> Results {
    let disk = Arc::new(TestDisk::new(64, Manner::AtOnce, |seen| {
        match seen.number {
            100 => Act::Stall(Duration::from_millis(300)),
            _ => Act::Honest,
        }
    }));
    let job = Job {
        iodepth: 1,
        rate,
        percentiles: vec![50.0, 90.0, 99.0],
        ..job(Rw::RandRead, 1000)
    };
    results(&disk, &job)
}

#[test]
fn an_open_loop_shows_a_stall_that_a_closed_loop_hides() {
    let closed = stalled(None).aggregate.read;
    assert!(
        closed.latency.max_ns >= 290_000_000,
        "{}",
        closed.latency.max_ns
    );
    let hidden = closed
        .latency
        .percentile_ns(99.0)
        .expect("it was asked for");
    assert!(
        hidden < 50_000_000,
        "one request of 1000 was slow: {hidden} ns"
    );
    let iops = 2000;
    let open = stalled(Some(Rate {
        iops,
        pacing: Pacing::Poisson,
    }))
    .aggregate
    .read;
    // 600 of the 1000 requests were meant to start while the disk stood still.
    let shown = open.latency.percentile_ns(50.0).expect("it was asked for");
    assert!(
        shown > 50_000_000,
        "half of the requests waited: {shown} ns"
    );
    let service = open.service.percentile_ns(99.0).expect("it was asked for");
    assert!(
        service < 50_000_000,
        "the disk itself was slow once: {service} ns"
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

#[test]
fn a_steady_disk_ends_its_job_before_its_time_and_cleanly() {
    let window = Duration::from_millis(40);
    let steady = Steady::parse("iops_slope:100000%", window, Duration::ZERO).expect("fio's form");
    let job = Job {
        steady: Some(steady),
        number_ios: None,
        ..job(Rw::RandRead, 1)
    };
    let config = Config {
        progress_every: Duration::from_millis(5),
        ..Config::default()
    };
    let results = try_run(&honest(Manner::Later(64)), &job, &config).expect("it can be run");
    assert!(results.is_clean(), "{:?}", results.aggregate.ended_early);
    assert!(
        results
            .steady
            .is_some_and(|attained| attained.at >= Some(window))
    );
    let series: u64 = results.series.iter().map(|point| point.sides[0].ios).sum();
    assert!(
        series > 0 && series <= results.aggregate.read.ios,
        "{series}"
    );
}
