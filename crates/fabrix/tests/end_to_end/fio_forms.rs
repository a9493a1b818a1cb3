//! fio's command line beside job files, and the forms of its results: terse lines and its own text.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

use super::harness::{Ended, Running, make_file, path_in, scratch, skipped};

/// Runs a program on a line, in a folder with a disk of 1 MiB and two job files.
fn run(program: &str, folder: &Path, words: &str) -> Ended {
    std::fs::write(
        folder.join("first.fio"),
        "[global]\nbs=8k\n[a]\n[b]\nbs=16k\nbs=32k\n",
    )
    .expect("a job file");
    std::fs::write(folder.join("second.fio"), "[c]\nfilename=disk\n").expect("a job file");
    make_file(&folder.join("disk").display().to_string(), 1 << 20, 0, b"");
    let mut command = Command::new(program);
    if program != "fio" {
        command.arg("bench");
    }
    command.args(words.split(' ')).current_dir(folder);
    let running = Running::spawn(&mut command);
    running.expect("the program can be started").ended()
}

/// What both programs answer to a line.
fn both(name: &str, words: &str) -> Option<[String; 2]> {
    if Command::new("fio").arg("--version").output().is_err() {
        skipped(name, "fio is not installed");
        return None;
    }
    let folder = scratch();
    Some(["fio", env!("CARGO_BIN_EXE_fabrix")].map(|program| {
        let ended = run(program, folder.path(), words);
        assert_eq!(ended.code, 0, "{ended}");
        ended.stdout.clone()
    }))
}

#[test]
fn jobs_of_a_line_stand_before_those_of_its_files() {
    let lines = [
        "--bs=64k --filename=disk first.fio second.fio --name=z --rw=write --output-format=json",
        "--filename=disk --name=z --bs=4k --bs=128k first.fio --output-format=json",
        "--name=global --bs=64k --filename=disk --name=y --name=z --output-format=json",
    ];
    for line in lines {
        let Some(answers) = both("jobs_of_a_line_stand_before_those_of_its_files", line) else {
            return;
        };
        let [theirs, ours] = answers.map(|text| {
            let json = &text[text.find('{').expect("an object")..];
            let document: Value = serde_json::from_str(json).expect("JSON");
            let jobs = document["jobs"].as_array().expect("jobs").iter();
            let jobs = jobs.map(|job| {
                let ios = ["read", "write"].map(|side| job[side]["total_ios"].to_string());
                format!("{} {} {}", job["jobname"], job["groupid"], ios.join(" "))
            });
            jobs.collect::<Vec<String>>()
        });
        assert_eq!(ours, theirs, "{line}");
    }
}

/// A field without its digits.
fn kind(field: &str) -> String {
    field
        .chars()
        .filter(|letter| !letter.is_ascii_digit())
        .collect()
}

#[test]
fn terse_lines_have_fios_fields() {
    let words = "--filename=disk --size=1m --rw=randrw --continue_on_error=all --minimal --name=a \
                 --description=text --name=b --stonewall --rw=write --unified_rw_reporting=both --name=c --stonewall \
                 --unified_rw_reporting=mixed";
    let Some([theirs, ours]) = both("terse_lines_have_fios_fields", words) else {
        return;
    };
    let lines = |text: &str| -> Vec<Vec<String>> {
        let lines = text.lines().filter(|line| line.starts_with("3;"));
        lines
            .map(|line| line.split(';').map(str::to_owned).collect())
            .collect()
    };
    let (theirs, ours) = (lines(&theirs), lines(&ours));
    assert_eq!(ours.len(), theirs.len());
    for (theirs, ours) in theirs.iter().zip(&ours) {
        assert_eq!(ours.len(), theirs.len(), "{theirs:?}\n{ours:?}");
        assert_eq!(ours[2..5], theirs[2..5], "name, group and error");
        for (at, (theirs, ours)) in theirs.iter().zip(ours).enumerate().skip(5) {
            assert_eq!(kind(ours), kind(theirs), "field {at}: {theirs} and {ours}");
        }
    }
}

#[test]
fn the_first_line_of_a_job_is_fios() {
    let words = "--filename=disk --size=64k --output-format=normal --name=a --rw=randrw --bs=4k,8k --ioengine=libaio \
                 --iodepth=4 --numjobs=2 --name=b --bsrange=4k-16k --stonewall";
    let Some(answers) = both("the_first_line_of_a_job_is_fios", words) else {
        return;
    };
    let [theirs, ours] = answers.map(|text| {
        let heads = text
            .lines()
            .filter(|line| line.contains("(g=") || *line == "...");
        heads.map(str::to_owned).collect::<Vec<String>>()
    });
    assert_eq!(ours, theirs);
}

#[test]
fn json_plus_has_all_latencies() {
    let words =
        "--filename=disk --size=64k --output-format=json+ --name=a --rw=randwrite --fsync=4";
    let Some(answers) = both("json_plus_has_all_latencies", words) else {
        return;
    };
    for text in answers {
        let json = &text[text.find('{').expect("an object")..];
        let document: Value = serde_json::from_str(json).expect("JSON");
        let job = &document["jobs"][0];
        let [written, synced] = ["/write/clat_ns/bins", "/sync/lat_ns/bins"].map(|at| {
            let bins = job.pointer(at).and_then(Value::as_object).expect(at);
            bins.iter()
                .map(|(_, count)| count.as_u64().expect("a count"))
                .sum::<u64>()
        });
        assert_eq!((written, synced), (16, 3), "{text}");
        assert!(job.pointer("/write/lat_ns/bins").is_none());
    }
}

#[test]
fn normal_text_has_fios_lines() {
    let words = "--filename=disk --size=1m --rw=randrw --time_based --runtime=1100ms --output-format=normal --name=a \
                 --fsync=8 --name=b --stonewall --rw=write --number_ios=7";
    let Some(answers) = both("normal_text_has_fios_lines", words) else {
        return;
    };
    // The begin of each line tells its meaning.
    let [theirs, ours] = answers.map(|text| {
        let starts = text.lines().map(|line| {
            let end = line.find(['=', '|', ',']).unwrap_or(line.len());
            line[..end].trim_end().to_owned()
        });
        starts.collect::<Vec<String>>()
    });
    for line in [
        "  read: IOPS",
        "   iops        : min",
        "   READ: bw",
        "Run status group 1 (all jobs):",
    ] {
        assert!(ours.iter().any(|known| known == line), "{line}: {ours:#?}");
    }
    let block = |line: &str| ours.iter().position(|known| known.starts_with(line));
    assert!(block("  fsync/fdatasync") > block("  lat ("), "{ours:#?}");
    assert_eq!(ours[..2], ["a: (g", "b: (g"]);
    // Units and shares depend on the time, and these lines are fio's own.
    let own = [
        "lat (",
        "sync (",
        "clat (",
        " bw (",
        "percentiles",
        "IO depths",
        "submit",
        "complete",
        "slat",
    ];
    let absent = theirs.iter().filter(|line| {
        let is_own = own.iter().any(|part| line.contains(part));
        !is_own
            && !line.starts_with("Starting")
            && !line.starts_with("fio-")
            && line.contains(' ')
            && !ours.contains(line)
    });
    assert_eq!(
        absent.collect::<Vec<_>>(),
        Vec::<&String>::new(),
        "{ours:#?}"
    );
}

#[test]
fn an_output_that_cannot_be_written_is_found_before_the_run() {
    let folder = scratch();
    std::fs::create_dir(folder.path().join("logs_bw.1.log")).expect("a folder");
    let fifo = path_in(&folder, "pipe");
    let made = Command::new("mkfifo").arg(&fifo).status();
    assert!(made.expect("mkfifo").success());
    for (more, part) in [
        ("--output=.", "directory"),
        ("--output=pipe", "pipes"),
        ("--output=gone/x", "no folder gone"),
        ("--write_bw_log=logs", "logs_bw.1.log"),
    ] {
        let words = format!("--name=a --filename=disk --rw=write {more}");
        let ended = run(env!("CARGO_BIN_EXE_fabrix"), folder.path(), &words);
        ended.exits(2).says(&[part]);
        assert_eq!(ended.stdout, "", "{more}");
    }
    std::fs::write(folder.path().join("kept"), "text").expect("a file");
    let words = "--name=a --filename=disk --output=kept --output=. --rw=write";
    run(env!("CARGO_BIN_EXE_fabrix"), folder.path(), words).exits(2);
    let kept = std::fs::read_to_string(folder.path().join("kept"));
    assert_eq!(kept.expect("it is there"), "text");
}

#[test]
fn pipes_are_no_job_files() {
    let folder = scratch();
    let fifo = path_in(&folder, "pipe.fio");
    let made = Command::new("mkfifo").arg(&fifo).status();
    assert!(made.expect("mkfifo").success());
    std::fs::write(folder.path().join("x.fio"), "[a]\ninclude pipe.fio\n").expect("a job file");
    for words in [
        "pipe.fio",
        "x.fio",
        "compare pipe.fio x.fio",
        "diskspd -Xpipe.fio",
    ] {
        let ended = run(env!("CARGO_BIN_EXE_fabrix"), folder.path(), words);
        ended.exits(2).says(&["a pipe or a device"]);
    }
}

#[test]
fn names_act_on_no_terminal() {
    let folder = scratch();
    for form in ["text", "normal", "terse"] {
        let words = format!("--name=a\u{1b}[31m --filename=disk --output-format={form}");
        let ended = run(env!("CARGO_BIN_EXE_fabrix"), folder.path(), &words);
        assert!(!ended.stdout.contains('\u{1b}'), "{ended}");
        assert!(ended.stdout.contains("a\\u{1b}[31m"), "{ended}");
    }
}

#[test]
fn one_file_with_two_values_of_direct_is_told_what_to_write() {
    let folder = scratch();
    let words = "--filename=disk --size=64k --name=a --name=b --direct=1";
    let ended = run(env!("CARGO_BIN_EXE_fabrix"), folder.path(), words);
    ended
        .exits(2)
        .says(&["disk: jobs use this file", "the same direct="]);
}
