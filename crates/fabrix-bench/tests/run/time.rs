//! Runs that depend on time: ramp and runtime, scheduled arrivals, and the steady state.

use std::sync::Arc;
use std::time::Duration;

use fabrix_bench::arrivals::{Pacing, Rate};
use fabrix_bench::steady::Steady;
use fabrix_bench::{Config, Job, Results, Rw, run};
use fabrix_block::Device;

use super::disk::{Act, Manner, TestDisk, job, results, try_run};
use super::honest;

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
        let rate = Some(Rate {
            iops: 2000.0,
            pacing,
        });
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

/// Reads from a disk that stalls once for 300 ms, with one request in flight.
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
    let iops = 2000.0;
    let open = stalled(Some(Rate {
        iops,
        pacing: Pacing::Poisson,
    }))
    .aggregate
    .read;
    // 600 of the 1000 requests were scheduled during the stall.
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
