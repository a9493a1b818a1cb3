//! Runs that do not end as planned: failures, silence, interrupts, and impossible jobs or disks.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use fabrix_bench::job::SizeRange;
use fabrix_bench::search::LatencyTarget;
use fabrix_bench::{Config, Job, Part, RunError, Rw, run, run_together};
use fabrix_block::{Device, Status};

use super::disk::{Act, Manner, TestDisk, job, results, try_run};
use super::honest;

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
        drain: Duration::from_secs(60),
        stop_drain: Duration::from_millis(200),
        ..Config::default()
    };
    let all = try_run(&disk, &job, &config)
        .expect("the job can be run")
        .aggregate;
    let why = all.ended_early.expect("it did not end well");
    assert_eq!(why, "gave up 4 requests without an answer for 0.2 s");
    assert_eq!((all.read.ios, all.errors.total()), (0, 4));
    let first = all.errors.first.expect("the failure has a sentence");
    assert_eq!(first, format!("job 0: {why}"));
    // The time of the wait is not part of the measured time.
    assert!(
        all.total.runtime_ns < 200_000_000,
        "{}",
        all.total.runtime_ns
    );
}

#[test]
fn the_last_requests_of_an_amount_are_awaited_longer() {
    let disk = TestDisk::new(64, Manner::AtOnce, |seen| match seen.number {
        10 => Act::Stall(Duration::from_millis(100)),
        _ => Act::Honest,
    });
    let config = Config {
        stop_drain: Duration::from_millis(1),
        ..Config::default()
    };
    let results = try_run(&Arc::new(disk), &job(Rw::RandRead, 10), &config);
    assert!(results.expect("the job can be run").is_clean());
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
        drain: Duration::from_secs(60),
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
    let begun = Instant::now();
    let results = run(&devices, &job, &config, &mut |progress| {
        stop.store(progress.ios >= 100, Ordering::Relaxed);
    });
    let took = begun.elapsed();
    assert!(
        took < config.drain,
        "{took:?}: it waited as for a run that ends by itself"
    );
    let all = results.expect("it gives what it has").aggregate;
    assert_eq!((all.read.ios, all.errors.total()), (100, 4));
    assert_eq!(
        all.ended_early.as_deref(),
        Some("stopped before its time; gave up 4 requests without an answer for 0.02 s")
    );
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
    let disks = [honest(Manner::Later(64)), honest(Manner::Later(64))];
    let devices = disks.clone().map(|disk| [disk as Arc<dyn Device>]);
    let parts = [(&short, &devices[0]), (&long, &devices[1])].map(|(job, devices)| Part {
        devices,
        job,
        copy_to: None,
        start: fabrix_bench::Start::default(),
    });
    let mut ios_then = None;
    let results = run_together(&parts, &config, &mut |progress| {
        if disks[0].seen().len() == 10 {
            let then = *ios_then.get_or_insert(progress.ios);
            stop.store(progress.ios > then + 1000, Ordering::Relaxed);
        }
    });
    let results = results.expect("both give what they have");
    assert!(results[0].is_clean() && results[0].aggregate.read.ios == 10);
    let why = results[1].aggregate.ended_early.as_deref();
    assert_eq!(why, Some("stopped before its time"));
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
        Some("job 0: the read of 1 block at LBA 36 was answered MediaRead")
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
            continue_on_error: [true; 2],
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
fn failures_of_one_direction_alone_may_go_on() {
    let disk = || {
        Arc::new(TestDisk::new(64, Manner::AtOnce, |seen| match seen.write {
            false if seen.number > 0 => Act::Answer(Status::MediaRead),
            _ => Act::Honest,
        }))
    };
    for (continue_on_error, goes_on) in [([true, false], true), ([false, true], false)] {
        let job = Job {
            continue_on_error,
            ..job(Rw::RandMixed, 100)
        };
        let all = results(&disk(), &job).aggregate;
        assert_eq!(all.ended_early.is_none(), goes_on, "{continue_on_error:?}");
        assert!(all.errors.total() > 0);
    }
}

#[test]
fn a_job_whose_target_is_gone_waits_between_its_tries() {
    let gone = TestDisk::new(64, Manner::AtOnce, |seen| match seen.number {
        0 => Act::Honest,
        _ => Act::Answer(Status::NotReady),
    });
    let job = Job {
        number_ios: None,
        continue_on_error: [true; 2],
        runtime: Duration::from_millis(100),
        ..job(Rw::RandRead, 0)
    };
    let failed = results(&Arc::new(gone), &job).aggregate.errors.total();
    // Four requests in flight, each repeated every 10 ms.
    assert!((4..=48).contains(&failed), "{failed} failures");
}

#[test]
fn a_latency_above_the_limit_ends_the_job() {
    let limit = |most| Job {
        max_latency: [Some(most), None, None],
        ..job(Rw::RandRead, 100)
    };
    let disk = honest(Manner::Later(64));
    let all = results(&disk, &limit(Duration::from_nanos(1))).aggregate;
    let why = all.ended_early.expect("each read takes longer");
    assert!(why.contains("more than max_latency=1ns"), "{why}");
    assert!(results(&disk, &limit(Duration::from_secs(60))).is_clean());
}

#[test]
fn the_depth_grows_while_latencies_keep_their_target() {
    let search = |target, keeps_running| Job {
        number_ios: None,
        iodepth: 16,
        latency_target: Some(LatencyTarget {
            target,
            window: Duration::from_millis(1),
            percentile: 100.0,
            keeps_running,
        }),
        runtime: Duration::from_millis(if keeps_running { 50 } else { 60_000 }),
        ..job(Rw::RandRead, 0)
    };
    let disk = honest(Manner::Later(64));
    for keeps_running in [false, true] {
        let all = results(&disk, &search(Duration::from_secs(60), keeps_running)).aggregate;
        assert_eq!((all.depth, all.ended_early), (16, None));
    }
    let all = results(&disk, &search(Duration::from_nanos(1), true)).aggregate;
    let why = all.ended_early.expect("a single read takes longer");
    assert!(why.contains("more than latency_target"), "{why}");
    assert_eq!((all.depth, all.depths.most()), (1, Some(1)));
}

#[test]
fn an_amount_of_io_ends_a_job_whose_requests_have_several_lengths() {
    let range = SizeRange {
        shortest: 4096,
        longest: 16384,
    };
    let amount = Job {
        number_ios: None,
        io_bytes: Some(3 << 20),
        loops: Some(2),
        ranges: [Some(range); 2],
        size: Some(256 << 10),
        ..job(Rw::RandRead, 0)
    };
    let disk = Arc::new(TestDisk::new(64, Manner::AtOnce, |_| Act::Honest));
    let read = results(&disk, &amount).aggregate.read;
    assert!(
        (6 << 20..(6 << 20) + 16384).contains(&read.bytes),
        "{} bytes",
        read.bytes
    );
    assert!(read.ios < 6 * 256 && read.ios > 6 * 64);
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
fn a_failed_first_read_is_an_error_with_its_sentence() {
    for continue_on_error in [[false; 2], [true; 2]] {
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
            "the first read of job 0 failed: job 0: the read of 1 block at LBA 0 was answered MediaRead"
        );
    }
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
