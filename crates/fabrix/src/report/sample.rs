//! Small fixed results for the tests of the output functions, and the comparison with golden files.
//!
//! `GOLDEN=write cargo test -p fabrix report` rewrites the expected files. Review the difference
//! afterwards.

use std::path::Path;
use std::time::Duration;

use fabrix_bench::cpu::Cpu;
use fabrix_bench::latency::{Latency, PERCENTILES};
use fabrix_bench::results::{Errors, JobResult, Recorded, Results, Side, Verified};
use fabrix_bench::series::{Moved, Point};
use fabrix_bench::workloads::{Reading, thirteen};
use fabrix_bench::{Cell, Job, Matrix, Row};
use fabrix_block::Status;

use super::Context;
use super::sheet::{Repeat, Run};

/// Compares a text with the golden file `name`.
#[track_caller]
pub(crate) fn golden(name: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("src/report/golden")
        .join(name);
    if std::env::var_os("GOLDEN").is_some_and(|value| value == "write") {
        std::fs::write(&path, text).expect("the golden file can be written");
    }
    let expected = std::fs::read_to_string(&path).expect("the golden file is there");
    if let Some((line, (was, is))) = expected
        .lines()
        .zip(text.lines())
        .enumerate()
        .find(|(_, (was, is))| was != is)
    {
        panic!("{name}:{}: it was\n{was}\nand is\n{is}", line + 1);
    }
    assert_eq!(expected.len(), text.len(), "{name} has another end");
}

pub(super) fn context() -> Context {
    let facts = [
        ("processor", "Intel Xeon, 2 cores"),
        ("kernel", "Linux 6.1.0"),
        ("memory", "7.8 GB"),
        ("engine", "io_uring"),
        ("mitigations", "default"),
    ];
    Context {
        version: "0.1.0".into(),
        timestamp: 1_795_233_906,
        command: "fabrix demo --runtime 10 --numjobs 1 --iodepth 32 ram:1G".into(),
        facts: facts
            .map(|(name, value)| (name.into(), value.into()))
            .into(),
    }
}

fn side(ios: u64, mean_us: f64) -> Side {
    let latency = Latency {
        count: ios,
        min_ns: 8_000,
        max_ns: 2_400_000,
        mean_ns: mean_us * 1e3,
        stddev_ns: 11_250.5,
        percentiles_ns: PERCENTILES
            .map(|percent| (percent, percentile(percent)))
            .into(),
        counts: (0..32)
            .map(|range| if range == 15 { ios } else { 0 })
            .collect(),
        bins_ns: Vec::new(),
    };
    Side {
        ios,
        bytes: ios * 4096,
        runtime_ns: 10_000_000_000,
        iops: ios as f64 / 10.0,
        bw_bytes: ios as f64 * 409.6,
        service: latency.clone(),
        latency,
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "small positive sample values"
)]
fn percentile(percent: f64) -> u64 {
    (10_000.0 + percent * percent * 21.5) as u64
}

/// One second of the run.
fn point(second: u64) -> Point {
    let read = Moved {
        ios: 90_000 + second * 1_800,
        bytes: (90_000 + second * 1_800) * 4096,
        wait_ns: 7_500_000_000,
    };
    Point {
        at: Duration::from_secs(second),
        span: Duration::from_secs(1),
        sides: [read, Moved::default(), Moved::default()],
    }
}

/// A successful run of random reads.
pub(crate) fn results() -> Results {
    let all = JobResult {
        read: side(1_000_000, 79.5),
        total: side(1_000_000, 79.5),
        cpu_time: Duration::from_millis(9_300),
        depth: 32,
        ..JobResult::default()
    };
    Results {
        job: Job {
            name: "4k random read".into(),
            ..Job::default()
        },
        others: Vec::new(),
        jobs: vec![all.clone()],
        aggregate: all,
        cpu: Cpu {
            job_cores: 0.93,
            user_cores: 0.61,
            system_cores: 0.72,
            machine_cores: 1.4,
            context_switches: 1234,
            minor_faults: 56,
            major_faults: 0,
            machine_system_cores: 0.75,
            cores: 2,
            window: Duration::from_secs(10),
        },
        series: (1..=10).map(point).collect(),
        steady: None,
        recorded: Recorded::default(),
    }
}

/// A run without repeats.
pub(super) fn run(results: Results) -> Run {
    Run {
        name: results.job.name.clone(),
        disk: "ram:1G".into(),
        repeats: vec![Repeat::of(&results)],
        results,
        target_cores: None,
        missed: None,
        group: 0,
        written: None,
    }
}

/// A run with every kind of failure.
pub(super) fn trouble() -> Results {
    let mut results = results();
    let all = &mut results.aggregate;
    all.errors = Errors {
        by_status: vec![(Status::MediaRead, 3)],
        first: Some("job 0: the read of 1 block at LBA 36 was answered MediaRead".into()),
    };
    all.verify = Some(Verified {
        blocks_checked: 12_345,
        errors: 2,
        first_error: Some(
            "offset 81920 (LBA 20): expected generation 2 of this run, found generation 1 (a stale block)".into(),
        ),
    });
    all.busy = 7;
    all.ended_early = Some("ended by its first failed request (MediaRead)".into());
    results
}

/// A plausible table: published figures for the local disk, and invented remote ones.
pub(super) fn matrix() -> Matrix {
    let local = [
        458_958.0, 558_450.0, 460_132.0, 525_996.0, 656_666.0, 520_115.0, 50_641.0, 69_812.0,
        50_525.0, 58_900.0, 73_434.0, 57_200.0, 337_332.0,
    ];
    let jobs = thirteen(
        Reading::Names,
        1,
        32,
        Duration::from_secs(10),
        Duration::ZERO,
    );
    let row = |(index, (job, iops)): (u32, (Job, f64))| {
        let ratio =
            0.32 + 0.05 * f64::from(index % 7) + if job.block_bytes > 8192 { 0.2 } else { 0.0 };
        let cell = |iops: f64, mean_us: f64, cpu_target| Cell {
            iops,
            bw_bytes: iops * f64::from(job.block_bytes),
            mean_us,
            p99_us: mean_us * 2.4,
            cpu_initiator: 0.98,
            cpu_target,
        };
        let remote = iops * ratio;
        Row {
            name: job.name.clone(),
            local: cell(iops, 1e6 / iops, None),
            remote: cell(remote, 32e6 / remote, Some(0.91)),
            block_bytes: job.block_bytes.into(),
            wire_iops: 1.1e10 / f64::from(job.block_bytes + 20_000),
        }
    };
    Matrix {
        local: "ram:1G".into(),
        remote: "NVMe/TCP over loopback".into(),
        iodepth: 32,
        runtime_ms: 10_000,
        rows: (0..).zip(jobs.into_iter().zip(local)).map(row).collect(),
        warnings: vec!["other programs kept 0.4 cores busy during `4k random read`".into()],
    }
}
