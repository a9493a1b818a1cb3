//! Published command lines of fio run as they are. Their sizes and times are shortened.

use serde_json::Value;

use super::harness::{fabrix, make_file, path_in, scratch};

/// A line, the names of its entries in the results, and the keys that they must not leave at 0.
struct Line {
    text: &'static str,
    jobs: &'static [&'static str],
    counted: &'static [&'static str],
}

const fn line(
    text: &'static str,
    jobs: &'static [&'static str],
    counted: &'static [&'static str],
) -> Line {
    Line {
        text,
        jobs,
        counted,
    }
}

/// `DIR` is a folder and `DEV` a disk of 8 MiB.
const LINES: [Line; 26] = [
    // fio's documentation.
    line(
        "fio --name=random-writers --ioengine=libaio --iodepth=4 --rw=randwrite --bs=32k --direct=0 --size=1m \
         --numjobs=4 --directory=DIR",
        &[
            "random-writers",
            "random-writers",
            "random-writers",
            "random-writers",
        ],
        &["write"],
    ),
    line(
        "fio --name=global --rw=randread --size=1m --filename=DEV --name=job1 --name=job2 --bs=8k",
        &["job1", "job2"],
        &["read"],
    ),
    line(
        "fio --filename DEV --size 1m --name first --rw read --name second --rw write --stonewall",
        &["first", "second"],
        &[],
    ),
    // etcd: is the medium fast enough?
    line(
        "fio --rw=write --ioengine=sync --fdatasync=1 --directory=DIR --size=2m --bs=2300 --name=mytest",
        &["mytest"],
        &["write", "sync"],
    ),
    // Proxmox and Ceph: databases and journals.
    line(
        "fio --ioengine=libaio --direct=1 --sync=1 --rw=write --bs=4k --numjobs=1 --iodepth=1 --time_based \
         --name=fio --filename=DEV --runtime=100ms",
        &["fio"],
        &["write"],
    ),
    line(
        "fio --filename=DEV --direct=1 --sync=1 --rw=write --bs=4k --numjobs=2 --iodepth=1 --time_based \
         --group_reporting --name=journal-test --runtime=100ms",
        &["journal-test"],
        &["write"],
    ),
    // Google Cloud.
    line(
        "fio --name=write_throughput --directory=DIR --numjobs=2 --size=4M --time_based --ramp_time=50ms \
         --ioengine=libaio --direct=1 --verify=0 --bs=1M --iodepth=4 --rw=write --group_reporting=1 \
         --iodepth_batch_submit=4 --iodepth_batch_complete_max=4 --runtime=100ms",
        &["write_throughput"],
        &["write"],
    ),
    line(
        "fio --name=read_iops --directory=DIR --size=4M --time_based --ramp_time=50ms --ioengine=libaio --direct=1 \
         --verify=0 --bs=4K --iodepth=256 --rw=randread --group_reporting=1 --iodepth_batch_submit=256 \
         --iodepth_batch_complete_max=256 --runtime=100ms",
        &["read_iops"],
        &["read"],
    ),
    // Oracle Cloud.
    line(
        "fio --filename=DEV --direct=1 --rw=randread --bs=4k --ioengine=libaio --iodepth=256 --numjobs=4 --time_based \
         --group_reporting --name=iops-test-job --eta-newline=1 --readonly --runtime=100ms",
        &["iops-test-job"],
        &["read"],
    ),
    line(
        "fio --filename=DEV --direct=1 --rw=randrw --bs=64k --ioengine=libaio --iodepth=64 --numjobs=4 --time_based \
         --group_reporting --name=throughput-test-job --eta-newline=1 --runtime=100ms",
        &["throughput-test-job"],
        &["read", "write"],
    ),
    // Amazon.
    line(
        "fio --directory=DIR --ioengine=psync --name fio_test_file --direct=1 --rw=randwrite --bs=16k --size=1M \
         --numjobs=4 --time_based --group_reporting --norandommap --runtime=100ms",
        &["fio_test_file"],
        &["write"],
    ),
    line(
        "fio --name full-write-test --filename DEV --size 4M --bs 512k --iodepth 32 --direct 1 --ioengine libaio \
         --rw write",
        &["full-write-test"],
        &["write"],
    ),
    // Kubernetes: dbench and kubestr.
    line(
        "fio --randrepeat=0 --verify=0 --ioengine=libaio --direct=1 --gtod_reduce=1 --name=read_iops \
         --filename=DIR/fiotest --bs=4K --iodepth=64 --size=4M --readwrite=randread --time_based --ramp_time=20ms \
         --runtime=100ms",
        &["read_iops"],
        &["read"],
    ),
    line(
        "fio --randrepeat=0 --verify=0 --ioengine=libaio --direct=1 --name=write_latency --filename=DIR/fiotest \
         --bs=4K --iodepth=4 --size=4M --readwrite=randwrite --time_based --ramp_time=20ms --runtime=100ms",
        &["write_latency"],
        &["write"],
    ),
    line(
        "fio --randrepeat=0 --verify=0 --ioengine=libaio --direct=1 --gtod_reduce=1 --name=read_seq \
         --filename=DIR/fiotest --bs=1M --iodepth=4 --size=2M --readwrite=read --time_based --ramp_time=20ms \
         --thread --numjobs=4 --offset_increment=1M --runtime=100ms",
        &["read_seq", "read_seq", "read_seq", "read_seq"],
        &["read"],
    ),
    line(
        "fio --randrepeat=0 --verify=0 --ioengine=libaio --direct=1 --gtod_reduce=1 --name=rw_mix \
         --filename=DIR/fiotest --bs=4k --iodepth=64 --size=4M --readwrite=randrw --rwmixread=75 --time_based \
         --ramp_time=20ms --runtime=100ms",
        &["rw_mix"],
        &["read", "write"],
    ),
    // Articles about desktops and servers.
    line(
        "fio --name=random-write --ioengine=posixaio --rw=randwrite --bs=4k --size=4m --numjobs=1 --iodepth=1 \
         --time_based --end_fsync=1 --directory=DIR --runtime=100ms",
        &["random-write"],
        &["write"],
    ),
    line(
        "fio --name=random-write --ioengine=posixaio --rw=randwrite --bs=64k --size=1m --numjobs=4 --iodepth=16 \
         --time_based --end_fsync=1 --directory=DIR --group_reporting --runtime=100ms",
        &["random-write"],
        &["write"],
    ),
    line(
        "fio --randrepeat=1 --ioengine=libaio --direct=1 --gtod_reduce=1 --name=test --filename=DEV --bs=4k \
         --iodepth=64 --size=4M --readwrite=randrw --rwmixread=75",
        &["test"],
        &["read", "write"],
    ),
    // Alibaba Cloud and DigitalOcean.
    line(
        "fio -direct=1 -iodepth=128 -rw=randwrite -ioengine=libaio -bs=4k -size=4M -numjobs=1 -group_reporting \
         -filename=DEV -name=Rand_Write_Testing",
        &["Rand_Write_Testing"],
        &["write"],
    ),
    line(
        "fio --direct=1 --iodepth=32 --rw=randwrite --ioengine=libaio --bs=1k --numjobs=1 --time_based=1 \
         --group_reporting --filename=DEV --name=test --runtime=100ms",
        &["test"],
        &["write"],
    ),
    // Databases: the log of transactions, and its reader beside it.
    line(
        "fio --name=wal --rw=write --bs=8k --ioengine=sync --fsync=1 --size=1m --directory=DIR --name=tables \
         --rw=randread --bs=8k --size=1m --directory=DIR --rate_iops=1000 --thinktime_blocks=1",
        &["wal", "tables"],
        &[],
    ),
    line(
        "fio --name=paced --filename=DEV --rw=randrw --rate_iops=300,50 --rwmixread=50 --time_based --runtime=500ms",
        &["paced"],
        &["read", "write"],
    ),
    line(
        "fio --name=thinking --filename=DEV --rw=randread --thinktime=2ms --thinktime_blocks=4 --number_ios=40",
        &["thinking"],
        &["read"],
    ),
    // Preparation of a disk before its measurement.
    line(
        "fio --name=precondition --filename=DEV --ioengine=libaio --direct=1 --iodepth=32 --rw=write --bs=128k \
         --loops=2 --randrepeat=0",
        &["precondition"],
        &["write"],
    ),
    // A remote disk.
    line(
        "fio --name=remote --filename=ram:8M --ioengine=io_uring --hipri --fixedbufs --registerfiles --direct=1 \
         --rw=randread --bs=4k --iodepth=32 --norandommap --time_based --runtime=100ms",
        &["remote"],
        &["read"],
    ),
];

/// Runs a line in a folder of its own. A sentence says what is wrong.
fn fault(line: &Line) -> Option<String> {
    let folder = scratch();
    let disk = path_in(&folder, "disk");
    make_file(&disk, 8 << 20, 0, b"");
    let place = folder.path().display().to_string();
    let text = line.text.replace("DIR", &place).replace("DEV", &disk);
    let words: Vec<&str> = text.split_whitespace().collect();
    let ended = fabrix(&[&["bench"], &words[..], &["--output-format=json"]].concat());
    if ended.code != 0 {
        return Some(format!("{}:\n{ended}", line.text));
    }
    let result: Value = ended.json();
    let jobs = result["jobs"].as_array().expect("jobs");
    let names: Vec<&str> = jobs
        .iter()
        .filter_map(|job| job["jobname"].as_str())
        .collect();
    let idle = |side: &&&str| jobs.iter().any(|job| job[**side]["total_ios"] == 0);
    match line.counted.iter().find(idle) {
        Some(side) => Some(format!("{}: no {side} in {result:#}", line.text)),
        None => (names != line.jobs).then(|| format!("{}: {names:?}", line.text)),
    }
}

#[test]
fn published_lines_of_fio_run_as_they_are() {
    let faults: Vec<String> = LINES.iter().filter_map(fault).collect();
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn a_rate_that_is_not_reached_fails_the_command() {
    let words = [
        "bench",
        "--name=slow",
        "--filename=ram:8M",
        "--rate_iops=100",
        "--rate_iops_min=1m",
        "--time_based",
        "--runtime=200ms",
    ];
    let ended = fabrix(&words);
    ended
        .exits(1)
        .says(&["job `slow` reached", "rate_iops_min=1048576"]);
    assert!(
        ended.stdout.contains("slow"),
        "the results are printed: {ended}"
    );
}

#[test]
fn exitall_ends_the_jobs_beside_the_one_that_ends() {
    let words = [
        "bench",
        "--name=short",
        "--filename=ram:8M",
        "--size=64k",
        "--exitall",
        "--name=long",
        "--filename=ram:8M",
        "--time_based",
        "--runtime=1h",
    ];
    let ended = fabrix(&words);
    ended.exits(0);
    assert!(ended.stdout.contains("long"), "{ended}");
}

#[test]
fn flushes_fail_the_job_as_other_requests_do() {
    let words = [
        "bench",
        "--name=x",
        "--filename=ram:8M,inject=error:1:flush",
        "--rw=write",
        "--size=64k",
    ];
    for key in ["--fsync=4", "--end_fsync=1"] {
        let ended = fabrix(&[&words[..], &[key]].concat());
        ended.exits(1).says(&["a flush was answered"]);
    }
}
