//! Job files of fio mean here what they mean to fio: each file of `tests/fio` runs in both
//! programs, on files of the same size, and the results have the same jobs, counts and bytes. The
//! files have the same names, lengths and written sectors afterwards.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use super::harness::{Ended, Running, fabrix, make_file, path_in, scratch, skipped};

/// Job, direction, requests and bytes of each job of a result.
fn counts(result: &Value) -> Vec<String> {
    let jobs = result["jobs"].as_array().expect("jobs");
    let side = |job: &Value, side: &str| {
        let side = &job[side];
        format!("{} requests, {} bytes", side["total_ios"], side["io_bytes"])
    };
    let line = |job: &Value| {
        let name = job["jobname"].as_str().unwrap_or_default();
        format!(
            "{name} of group {}: read {}; written {}; trimmed {}; {} flushes",
            job["groupid"],
            side(job, "read"),
            side(job, "write"),
            side(job, "trim"),
            job["sync"]["lat_ns"]["N"]
        )
    };
    jobs.iter().map(line).collect()
}

/// The files of a folder: names, lengths, and ranges of sectors that are not zeroes.
fn medium(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).expect("the folder is there");
    let describe = |path: PathBuf| {
        let bytes = std::fs::read(&path).expect("a file");
        let mut written: Vec<Range<usize>> = Vec::new();
        for (index, sector) in bytes.chunks(512).enumerate() {
            match written.last_mut() {
                _ if sector.iter().all(|byte| *byte == 0) => {}
                Some(last) if last.end == index => last.end += 1,
                _ => written.push(index..index + 1),
            }
        }
        let name = path.file_name().unwrap_or_default().display();
        format!("{name}: {} bytes, written sectors {written:?}", bytes.len())
    };
    let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
    // fio saves the state of a verification in files of its own.
    let is_state = |path: &PathBuf| path.extension().is_some_and(|end| end == "state");
    let mut files: Vec<String> = paths.filter(|path| !is_state(path)).map(describe).collect();
    files.sort();
    files
}

/// Runs a program on a job file, with a disk of 4 MiB in a folder of its own. Returns the folder's
/// files too.
fn run(program: &str, words: &[&str], file: &Path) -> (Ended, Vec<String>) {
    let folder = scratch();
    make_file(&path_in(&folder, "disk"), 4 << 20, 0, b"");
    let mut command = Command::new(program);
    command.args(words).arg(file).env("DIR", folder.path());
    // fio trims devices only, unless its engine does nothing.
    let engine = if program == "fio" { "null" } else { "psync" };
    command.env("ENGINE", engine);
    let running = Running::spawn(command.current_dir(folder.path()));
    let ended = running.expect("the program can be started").ended();
    (ended, medium(folder.path()))
}

fn has_fio() -> bool {
    Command::new("fio").arg("--version").output().is_ok()
}

#[test]
fn every_job_file_counts_as_in_fio() {
    if !has_fio() {
        return skipped("every_job_file_counts_as_in_fio", "fio is not installed");
    }
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fio");
    let entries = std::fs::read_dir(folder).expect("the folder is there");
    let mut files: Vec<_> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .collect();
    files.retain(|path| path.extension().is_some_and(|end| end == "fio"));
    files.sort();
    let mut differences = Vec::new();
    for file in &files {
        let (theirs, their_files) = run("fio", &["--output-format=json"], file);
        let words = ["bench", "-o", "json"];
        let (ours, our_files) = run(env!("CARGO_BIN_EXE_fabrix"), &words, file);
        let theirs = theirs
            .stdout
            .split_once('{')
            .map(|(_, json)| format!("{{{json}"));
        let theirs = serde_json::from_str(&theirs.expect("fio prints JSON")).expect("JSON");
        if ours.code != 0 {
            differences.push(format!("{}: {ours}", file.display()));
            continue;
        }
        let (mut theirs, mut ours) = (counts(&theirs), counts(&ours.json()));
        // fio's null engine writes nothing.
        let text = std::fs::read_to_string(file).expect("it was read");
        if !text.contains("ENGINE") {
            theirs.extend(their_files);
            ours.extend(our_files);
        }
        if theirs != ours {
            differences.push(format!(
                "{}:\nfio:  {theirs:#?}\nours: {ours:#?}",
                file.display()
            ));
        }
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
    assert!(files.len() > 25, "{files:?}");
}

/// Adds the differences between two values to `found`: keys of fio that ours lacks, and other
/// types. Objects are compared by their keys, and lists by their first element.
fn compare(theirs: &Value, ours: &Value, path: &str, found: &mut Vec<String>) {
    let kind = |value: &Value| match value {
        Value::Number(number) if number.is_f64() => "fraction",
        Value::Number(_) => "whole number",
        Value::String(_) => "text",
        Value::Object(_) => "object",
        Value::Array(_) => "list",
        Value::Null | Value::Bool(_) => "another type",
    };
    if kind(theirs) != kind(ours) {
        found.push(format!("{path}: {} and {}", kind(theirs), kind(ours)));
    }
    if let (Value::Object(theirs), Value::Object(ours)) = (theirs, ours) {
        for (key, value) in theirs {
            match ours.get(key) {
                Some(other) => compare(value, other, &format!("{path}/{key}"), found),
                None => found.push(format!("{path}/{key}")),
            }
        }
    }
    if let (Some(theirs), Some(ours)) = (theirs.get(0), ours.get(0)) {
        compare(theirs, ours, &format!("{path}[]"), found);
    }
}

/// Names of the files in a folder, in order.
fn names_in(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).expect("the folder is there");
    let name = |entry: std::io::Result<std::fs::DirEntry>| {
        let name = entry.expect("an entry").file_name();
        name.into_string().expect("plain names")
    };
    let mut names: Vec<String> = entries.map(name).collect();
    names.sort();
    names
}

const MIX: &str = "[global]\nblocksize=8k\nbs=4k\nsize=4m\nioengine=libaio\niodepth=4\nfilename=disk\n\
    [mix]\nrw=randrw\nrwmixread=70\nruntime=500ms\ntime_based\nlog_avg_msec=100\n\
    write_bw_log=x\nwrite_iops_log=x\nwrite_lat_log=x\n\
    [reads]\nstonewall\nreadwrite=read\n";

#[test]
fn results_and_logs_have_what_fios_have() {
    if !has_fio() {
        return skipped(
            "results_and_logs_have_what_fios_have",
            "fio is not installed",
        );
    }
    let fabrix = env!("CARGO_BIN_EXE_fabrix");
    let [theirs, ours] = [
        ("fio", &["--output-format=json"][..]),
        (fabrix, &["bench", "-o", "json"]),
    ]
    .map(|(program, words)| {
        let folder = scratch();
        make_file(&path_in(&folder, "disk"), 4 << 20, 0, b"");
        std::fs::write(folder.path().join("mix.fio"), MIX).expect("a job file");
        let mut command = Command::new(program);
        command.args(words).arg("mix.fio");
        let ended = Running::spawn(command.current_dir(folder.path()));
        let ended = ended.expect("the program can be started").ended();
        assert_eq!(ended.code, 0, "{ended}");
        let json = &ended.stdout[ended.stdout.find('{').expect("an object")..];
        let result: Value = serde_json::from_str(json).expect("JSON");
        let logs = names_in(folder.path()).into_iter();
        let logs = logs.filter(|name| name.ends_with(".log"));
        let line = |name: String| {
            let text = std::fs::read_to_string(folder.path().join(&name)).expect("a log");
            let columns = text.lines().map(|line| line.split(", ").count()).min();
            format!("{name}: {columns:?} columns")
        };
        (result, logs.map(line).collect::<Vec<String>>())
    });
    let mut missing = Vec::new();
    compare(&theirs.0, &ours.0, "", &mut missing);
    let jobs = ours.0["jobs"].as_array().expect("jobs");
    for (theirs, ours) in theirs.0["jobs"].as_array().expect("jobs").iter().zip(jobs) {
        compare(theirs, ours, &theirs["jobname"].to_string(), &mut missing);
        for (key, value) in theirs["job options"].as_object().expect("options") {
            assert_eq!(ours["job options"][key], *value, "{key}");
        }
    }
    for (key, value) in theirs.0["global options"].as_object().expect("options") {
        assert_eq!(ours.0["global options"][key], *value, "{key}");
    }
    // docs/BENCH.md says why these are absent.
    let absent = ["iodepth_submit", "iodepth_complete"];
    missing.retain(|path| !absent.iter().any(|key| path.ends_with(key)));
    assert!(missing.is_empty(), "{missing:#?}");
    let logs: Vec<&String> = theirs
        .1
        .iter()
        .filter(|name| !name.contains("slat"))
        .collect();
    assert_eq!(ours.1.iter().collect::<Vec<_>>(), logs);
}

#[test]
fn lines_of_fio_run_as_they_are() {
    let folder = scratch();
    let file = path_in(&folder, "disk");
    make_file(&file, 4 << 20, 0, b"");
    let name = format!("--filename={file}");
    for words in [
        &["--name=x", &name, "--size=64k"][..],
        &[
            "--name",
            "x",
            &name,
            "--direct",
            "1",
            "--rw",
            "randread",
            "--number_ios=5",
        ],
        &[
            "-name=x",
            &name,
            "-direct=1",
            "-rw=randwrite",
            "-bs=4k",
            "-size=1m",
            "-thread",
            "-group_reporting",
        ],
        &[
            &name,
            "--ioengine=libaio",
            "--direct=1",
            "--bs=4k",
            "--iodepth=64",
            "--size=1M",
            "--readwrite=randrw",
            "--rwmixread=75",
            "--gtod_reduce=1",
            "--name=test",
            "--randrepeat=1",
        ],
        &[
            "fio",
            "--name=a",
            "--bs=8k",
            &name,
            "--size=64k",
            "--name=b",
            &name,
            "--rw=write",
            "--size=64k",
        ],
        // The test of Proxmox for disks of databases.
        &[
            "--ioengine=libaio",
            &name,
            "--direct=1",
            "--sync=1",
            "--rw=write",
            "--bs=4K",
            "--numjobs=1",
            "--iodepth=1",
            "--runtime=60ms",
            "--time_based",
            "--name=fio",
        ],
        &[
            "--name=x",
            &name,
            "--time_based",
            "--runtime=50ms",
            "--eta=never",
            "--output-format=json+",
        ],
        &[
            "--name=x",
            "--rw=randread",
            "--size=64k",
            "--numjobs=2",
            "ram:8M",
        ],
    ] {
        let ended = fabrix(&[&["bench"], words].concat());
        ended.exits(0);
    }
    let ended = fabrix(&[
        "bench",
        "--name=x",
        &name,
        "--showcmd",
        "--rw=read",
        "--bs=4k",
    ]);
    let expected = format!("fabrix bench --name=x --filename={file} --rw=read --bs=4k\n");
    assert_eq!(ended.exits(0).stdout, expected);
}

#[test]
fn flags_beside_a_job_file_apply_to_all_its_jobs() {
    let folder = scratch();
    let file = path_in(&folder, "jobs");
    std::fs::write(&file, "[a]\nsize=1m\nbs=64k\n[b]\nstonewall\nsize=1m\n").expect("ours");
    let ended = fabrix(&[
        "bench", &file, "ram:16M", "--bs", "16k", "--rw", "write", "-o", "json",
    ]);
    ended.exits(0).says(&["--bs, --rw", "for all jobs"]);
    let counted = counts(&ended.json());
    let written = "read 0 requests, 0 bytes; written 64 requests, 1048576 bytes; trimmed 0 requests, 0 bytes; \
                   0 flushes";
    let expected = [
        format!("a of group 0: {written}"),
        format!("b of group 1: {written}"),
    ];
    assert_eq!(counted, expected);
    let only = fabrix(&["bench", &file, "ram:16M", "--section=b", "-o", "json"]);
    assert_eq!(counts(&only.exits(0).json()).len(), 1);
    let kept = std::fs::read_to_string(&file).expect("it is still there");
    assert!(kept.starts_with("[a]"), "the file of jobs is not a disk");
}

#[test]
fn wrong_words_are_named_before_anything_is_measured() {
    let folder = scratch();
    let log = format!("--write_iops_log={}", path_in(&folder, "missing/x"));
    let text = path_in(&folder, "text");
    std::fs::write(&text, "somebody's notes\n".repeat(1000)).expect("ours");
    for (words, parts) in [
        (
            &[
                "--name=x",
                "--filename=ram:8M",
                "--direkt=1",
                "--zonemode=zbd",
            ][..],
            &["`--direkt`", "`direct`", "`--zonemode` is not supported"][..],
        ),
        (
            &["--name=x", "--filename=ram:8M", &log],
            &["there is no folder", "missing"],
        ),
        (
            &["--name=x", "--filename=null:8M", "--ioengine=nbd"],
            &["another kind of disk"],
        ),
        (&["ram:8M", "--direct=1"], &["--name=NAME"]),
        (&["--name=x"], &["names no disk: write filename=DISK"]),
        (
            &["--name=x", "--filename=ram:8M", "--output-format=xml"],
            &["`xml` is not known", "terse"],
        ),
        (
            &["--name=x", "--filename=ram:8M", "--rw=write", "--readonly"],
            &["--readonly"],
        ),
        (
            &[&text, "--rw", "write", "--runtime", "1"],
            &["data that no benchmark wrote", "--allow-write"],
        ),
    ] {
        let ended = fabrix(&[&["bench"], words].concat());
        ended.exits(2).says(parts);
        assert!(ended.stdout.is_empty(), "{ended}");
    }
    let kept = std::fs::read_to_string(&text).expect("it is still there");
    assert!(kept.starts_with("somebody's notes"));
}

#[test]
fn results_are_written_to_the_named_file() {
    let folder = scratch();
    let file = path_in(&folder, "out.json");
    let output = format!("--output={file}");
    let words = [
        "bench",
        "--name=x",
        "--filename=ram:8M",
        "--size=64k",
        &output,
        "--output-format=json",
    ];
    let ended = fabrix(&words);
    assert_eq!(ended.exits(0).stdout, "");
    let text = std::fs::read_to_string(&file).expect("it was written");
    let result: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(result["jobs"][0]["jobname"], "x");
    // Our word for the format stands beside fio's name of the file.
    let ended = fabrix(&[&words[..5], &["--output", &file, "-o", "json"]].concat());
    assert_eq!(ended.exits(0).stdout, "");
    let text = std::fs::read_to_string(&file).expect("it was written");
    assert!(text.starts_with('{'), "{text}");
}
