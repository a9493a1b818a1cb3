//! Files of `fabrix bench`: shared by jobs, named twice, made longer, and protected from results.

use std::fs;
use std::process::Command;

use tempfile::TempDir;

use super::harness::{Ended, Running, path_in, scratch};

/// Runs `fabrix bench` with the words of a line, in a folder.
fn bench_in(folder: &TempDir, line: &str) -> Ended {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fabrix"));
    let command = command.arg("bench").args(line.split_whitespace());
    let running = Running::spawn(command.current_dir(folder.path()));
    running.expect("the program can be started").ended()
}

/// Checks that a line is refused with a sentence.
#[track_caller]
fn is_refused(folder: &TempDir, line: &str, part: &str) {
    bench_in(folder, line).exits(2).says(&[part]);
}

fn length(folder: &TempDir, name: &str) -> Option<u64> {
    let found = fs::metadata(path_in(folder, name));
    found.ok().map(|found| found.len())
}

#[test]
fn a_verified_file_of_a_list_is_written_by_no_other_job() {
    let lines = [
        "--name=a --filename=w1:w2 --size=2M --rw=write --name=b --filename=w2:w3 --size=2M --rw=write --verify=crc32c",
        "--name=a --filename=w1:w2 --size=2M --rw=write --verify=crc32c --name=b --filename=w2 --size=1M --rw=write",
        "--name=a --filename=w1:w2 --size=2M --rw=write --verify=crc32c --name=b --filename=./w2 --size=1M --rw=write",
    ];
    let folder = scratch();
    for line in lines {
        is_refused(&folder, line, "w2, which one of them has in a list");
        assert_eq!(length(&folder, "w2"), None, "{line}");
    }
    let apart = lines[0].replace("--name=b", "--name=b --stonewall");
    bench_in(&folder, &apart).exits(0);
}

#[test]
fn a_stage_verifies_a_list_as_an_earlier_one_wrote_it() {
    let folder = scratch();
    let line = |bs: &str| {
        format!(
            "--filename=w1:w2 --size=2M --verify=crc32c --do_verify=0 --name=a --rw=write --bs=4k --name=b \
             --stonewall --rw=read --bs={bs} --verify_interval=4k --do_verify=1"
        )
    };
    is_refused(&folder, &line("8k"), "with another bs");
    bench_in(&folder, &line("4k")).exits(0);
}

#[test]
fn a_list_has_each_file_once() {
    let folder = scratch();
    fs::write(path_in(&folder, "s1"), "").expect("a file");
    std::os::unix::fs::symlink("s1", path_in(&folder, "s2")).expect("a link");
    for list in ["s1:s1", "s1:./s1", "s1:s2"] {
        let line = format!("--name=a --filename={list} --size=2M");
        is_refused(&folder, &line, "are one file");
    }
    assert_eq!(
        length(&folder, "s1"),
        Some(0),
        "the file has its length again"
    );
    let ram = "--name=a --filename=ram:1M --filename=ram:1M";
    is_refused(&folder, ram, "are one file");
}

#[test]
fn results_replace_no_disk_no_job_file_and_no_other_result() {
    let folder = scratch();
    let job = "[jj]\nfilename=ram:1M\nwrite_iops_log=jj\n";
    fs::write(path_in(&folder, "jj_iops.1.log"), job).expect("a job file");
    fs::write(path_in(&folder, "b.inc"), job).expect("a job file");
    fs::write(path_in(&folder, "a.fio"), "include b.inc\n").expect("a job file");
    fs::create_dir(path_in(&folder, "rp")).expect("a folder");
    let disk = "the results would replace a disk";
    for (line, part) in [
        (
            "--name=v --filename=v_lat.1.log --size=1M --write_lat_log=v",
            disk,
        ),
        (
            "--name=v --filename=w:v_lat.1.log --size=1M --write_lat_log=v",
            disk,
        ),
        ("--name=v --filename=v.img --size=1M --output=./v.img", disk),
        (
            "--name=v --filename=rp/results.json --size=1M --report=rp",
            "would replace the disk rp/results.json",
        ),
        (
            "jj_iops.1.log",
            "the results would replace the file of jobs",
        ),
        (
            "a.fio --output=b.inc",
            "the results would replace the file of jobs",
        ),
        (
            "--name=v --filename=ram:1M --write_bw_log=z --per_job_logs=0 --output=z_bw.log",
            "the results would replace --output",
        ),
        (
            "--name=v --filename=ram:1M --report=rp --output=rp/results.json",
            "the results would replace --output",
        ),
    ] {
        is_refused(&folder, line, part);
    }
    let text = fs::read_to_string(path_in(&folder, "jj_iops.1.log")).expect("it is there");
    assert_eq!(text, job);
    assert_eq!(length(&folder, "v.img"), None, "no file is left behind");
}

#[test]
fn files_grow_to_the_length_that_their_jobs_need() {
    let folder = scratch();
    let run = |line: &str| bench_in(&folder, line).exits(0).code;
    run("--name=a --filename=f --size=1M --rw=write");
    run("--name=a --filename=f --size=2M --rw=write");
    assert_eq!(length(&folder, "f"), Some(2 << 20));
    run("--name=a --nrfiles=2 --size=1M --rw=write");
    run("--name=a --nrfiles=2 --size=2M --rw=read");
    assert_eq!(length(&folder, "a.0.1"), Some(1 << 20));
    run("--filename=g --name=a --size=1M --rw=write --name=b --size=2M --rw=write");
    assert_eq!(length(&folder, "g"), Some(2 << 20));
    fs::write(path_in(&folder, "precious"), "words\n".repeat(1000)).expect("a file");
    let line = "--name=a --filename=precious --size=1M --rw=read";
    is_refused(&folder, line, "data that no benchmark wrote");
    assert_eq!(length(&folder, "precious"), Some(6000));
}

#[test]
fn a_size_that_is_no_whole_number_of_requests_ends_before_its_end() {
    let folder = scratch();
    fs::write(path_in(&folder, "old"), [0; 10_000]).expect("a file");
    for (line, ios) in [
        ("--filename=new --size=1000000 --rw=write", 244),
        ("--filename=new --size=1000000 --rw=randread", 244),
        ("--filename=old --size=10000 --rw=write", 2),
    ] {
        let line = format!("--name=a --bs=4k {line} --output-format=json");
        let job = &bench_in(&folder, &line).exits(0).json()["jobs"][0];
        let side = if line.contains("read") {
            "read"
        } else {
            "write"
        };
        assert_eq!(job[side]["total_ios"], ios, "{line}");
    }
    assert_eq!(length(&folder, "new"), Some(1_000_000));
}

#[test]
fn one_file_in_two_spellings_is_one_disk() {
    let folder = scratch();
    let line =
        "--name=a --filename=f --size=1M --rw=write --name=b --filename=./f --size=1M --rw=read";
    bench_in(&folder, line).exits(0);
    let line = format!("{line} --direct=1");
    is_refused(&folder, &line, "with and without the page cache");
}

#[test]
fn a_list_is_called_by_its_files() {
    let folder = scratch();
    let ended = bench_in(&folder, "--name=a --nrfiles=3 --size=3M --rw=write");
    ended.exits(0).says(&["serves a.0.0, a.0.1, a.0.2,"]);
    assert!(!ended.stderr.contains("raid0"), "{ended}");
    let late = "--name=a --filename=f --size=1M --rw=write --max_latency=1us";
    let ended = bench_in(&folder, late);
    ended.exits(1).says(&["fabrix: f: ended early"]);
}

#[test]
fn a_job_that_is_too_slow_has_the_error_of_a_timeout() {
    let folder = scratch();
    for (keys, reason) in [
        ("--max_latency=1us", "ended_early"),
        ("--thinktime=1ms --rate_iops_min=9000", "missed_rate"),
    ] {
        let line = format!("--name=a --filename=f --size=1M {keys} --output-format=json");
        let job = &bench_in(&folder, &line).exits(1).json()["jobs"][0];
        assert_eq!((&job["error"], &job["total_err"]), (&110.into(), &1.into()));
        assert!(job[reason].is_string(), "{job:#}");
    }
    let terse = "--name=a --filename=f --size=1M --max_latency=1us --output-format=terse";
    let ended = bench_in(&folder, terse);
    let error = ended.exits(1).stdout.split(';').nth(4).map(str::to_owned);
    assert_eq!(error.as_deref(), Some("110"), "{ended}");
}
