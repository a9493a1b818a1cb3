//! `bench` in the words of DiskSpd, sgp_dd, ddpt and CrystalDiskMark: each flag by its effect.

use std::fs;

use serde_json::Value;

use super::attach_place::wait;
use super::harness::{Ended, Running, fabrix, make_file, path_in, scratch};

/// Runs DiskSpd's flags for a second without warm-up.
#[track_caller]
fn diskspd(words: &[&str]) -> Ended {
    let ended = fabrix(&[&["bench", "diskspd", "-d1", "-W0"], words].concat());
    ended.exits(0);
    ended
}

/// The same with our JSON: the options of the job.
#[track_caller]
fn options(words: &[&str]) -> Value {
    diskspd(&[words, &["--output", "json"]].concat()).json()["runs"][0]["jobs"][0]["job options"]
        .clone()
}

/// A number of a column of the line `total:` in a table of threads.
#[track_caller]
fn total(text: &str, table: &str, column: usize) -> f64 {
    let (_, behind) = text.split_once(table).expect("the table is there");
    let line = behind.lines().find(|line| line.starts_with("total:"));
    let cell = line.and_then(|line| line.split('|').nth(column)?.trim().parse().ok());
    cell.unwrap_or_else(|| panic!("no number in column {column} of {table}:\n{text}"))
}

#[test]
fn diskspd_writes_only_between_its_base_and_its_end() {
    let folder = scratch();
    let path = path_in(&folder, "disk");
    make_file(&path, 4 << 20, 0, &[]);
    diskspd(&["-b64K", "-w100", "-B1M", "-f2M", "--allow-write", &path]);
    let bytes = fs::read(&path).expect("the disk");
    let is_written = |block: &[u8]| block.iter().any(|byte| *byte != 0);
    let written: Vec<bool> = bytes.chunks(64 << 10).map(is_written).collect();
    for (index, written) in written.into_iter().enumerate() {
        assert_eq!(written, (16..32).contains(&index), "block {index}");
    }
}

#[test]
fn diskspd_pauses_between_its_bursts() {
    let ended = diskspd(&["-b4K", "-t2", "-i10", "-j100", "ram:8M"]);
    // Ten bursts of ten requests in two threads, and the first one of the next second.
    let ios = total(&ended.stdout, "Total IO", 2);
    assert!((20.0..=220.0).contains(&ios), "{ended}");
}

#[test]
fn diskspd_binds_its_threads_to_processors() {
    let status = fs::read_to_string("/proc/self/status").expect("the kernel's text");
    let allowed = status
        .lines()
        .find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    let last = allowed.expect("it is there").trim().rsplit([',', '-']);
    let last = last.take(1).next().expect("a processor").to_owned();
    let flag = format!("-a{last}");
    let running = Running::start(&["bench", "diskspd", "-d600", "-W0", &flag, "ram:8M"]);
    let bound = || {
        let tasks = fs::read_dir(format!("/proc/{}/task", running.pid())).ok()?;
        let lists = tasks.filter_map(|task| {
            let text = fs::read_to_string(task.ok()?.path().join("status")).ok()?;
            let list = text
                .lines()
                .find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
            Some(list.trim().to_owned())
        });
        lists.into_iter().find(|list| *list == last)
    };
    wait("a thread is bound", || bound().is_some());
    running.signal("INT");
    running.ended().exits(1).says(&["interrupted"]);
}

#[test]
fn diskspd_writes_through_and_uses_the_page_cache_as_it_is_told() {
    let folder = scratch();
    let path = path_in(&folder, "disk");
    make_file(&path, 1 << 20, 0, &[]);
    for (flag, durable, cached) in [
        ("-Sd", false, false),
        ("-Su", false, false),
        ("-S", false, false),
        ("-Sh", true, false),
        ("-h", true, false),
        ("-Sw", true, false),
        ("-Sb", false, true),
        ("-Sbw", true, true),
    ] {
        let words = [
            "-b4K",
            "-w100",
            "-i1",
            "-j500",
            flag,
            "--allow-write",
            &path,
        ];
        let text = diskspd(&words).stdout;
        assert_eq!(text.contains("writethrough on"), durable, "{flag}: {text}");
        let cache = match cached {
            true => "using software cache",
            false => "software cache disabled",
        };
        assert!(text.contains(cache), "{flag}: {text}");
        assert_eq!(text.contains("direct=off"), cached, "{flag}: {text}");
    }
    let sync = options(&["-b4K", "-w100", "-i1", "-j500", "-Sh", "ram:1M"])["sync"].clone();
    assert_eq!(sync, "dsync");
}

#[test]
fn diskspds_threads_may_share_one_position() {
    for words in [["-si", "-t2", "-o4"], ["-t2", "-o4", "-si"]] {
        let ended = diskspd(&[&words[..], &["-b64K", "ram:8M"]].concat());
        ended.says(&["-si: the threads share one position", "8 requests"]);
        assert!(ended.stdout.contains("using sequential I/O"), "{ended}");
    }
}

#[test]
fn flags_of_diskspd_without_an_effect_are_noted() {
    let ended = diskspd(&["-b4K", "-P", "-v", "-x", "-l", "-fr", "-C0", "ram:1M"]);
    ended.says(&["without effect here: -P -v -x -l -fr -C0"]);
}

#[test]
fn diskspds_processor_columns_add_up() {
    let ended = diskspd(&["-b4K", "-L", "ram:8M"]);
    let line = ended.stdout.lines().find(|line| line.starts_with("avg.|"));
    let cells = line.expect("the line is there").split('|').skip(1);
    let percent: Vec<f64> = cells
        .map(|cell| {
            let number = cell.trim().trim_end_matches('%').parse();
            number.expect("a percentage")
        })
        .collect();
    let [usage, user, kernel, idle] = percent[..] else {
        panic!("four columns: {percent:?}");
    };
    // Each number is rounded to a hundredth.
    assert!((usage - user - kernel).abs() < 0.021, "{percent:?}");
    assert!((usage + idle - 100.0).abs() < 0.011, "{percent:?}");
    assert!(usage > 0.0, "{percent:?}");
    let sums = [3, 4].map(|column| {
        total(&ended.stdout, "Read IO", column) + total(&ended.stdout, "Write IO", column)
            - total(&ended.stdout, "Total IO", column)
    });
    assert!(sums.iter().all(|sum| sum.abs() < 0.021), "{ended}");
}

#[test]
fn sgp_dd_moves_what_its_words_and_numbers_say() {
    for (words, out) in [
        (
            &["if=ram:1M", "count=0x10"][..],
            "16+0 records in\n16+0 records out\n",
        ),
        (
            &["if=ram:1M", "count=10h", "bs=1k"],
            "16+0 records in\n16+0 records out\n",
        ),
        (
            &["if=ram:1M", "count=2x8", "iflag=direct,dpo,null"],
            "16+0 records in\n16+0 records out\n",
        ),
        (
            &["if=ram:1M", "of=.", "verbose=2", "deb=1", "dio=1"],
            "2048+0 records in\n2048+0 records out\n",
        ),
        (
            &["if=/dev/zero", "of=ram:1M", "oflag=fua,coe", "elemsz_kb=64"],
            "2048+0 records in\n2048+0 records out\n",
        ),
    ] {
        let ended = fabrix(&[&["bench", "sgp_dd"], words].concat());
        ended.exits(0);
        assert_eq!(ended.stdout, out, "{words:?}");
    }
    let piped = fabrix(&["bench", "sgp_dd", "if=ram:1M", "of=-", "time=1"]);
    piped.exits(0).says(&["of=-: the data is read"]);
    assert!(
        piped.stdout.starts_with("time to transfer data was "),
        "{piped}"
    );
}

#[test]
fn sgp_dd_counts_errors_and_goes_on_if_it_is_told() {
    // Of 16 commands with 128 blocks each the fifth fails.
    let words = ["bench", "sgp_dd", "if=ram:1M,inject=error:5:read", "bs=512"];
    for (more, goes_on) in [(&[][..], false), (&["iflag=coe"], true), (&["coe=1"], true)] {
        let ended = fabrix(&[&words[..], more].concat());
        ended.exits(1).says(&["1 I/O failed", "MediaRead"]);
        let is_rest = ended.stdout.contains("1920+0 records in");
        assert_eq!(is_rest, goes_on, "{ended}");
    }
}

#[test]
fn ddpt_reads_and_copies_as_ddpt_does() {
    let ended = fabrix(&["bench", "ddpt", "if=ram:4M", "iflag=direct,pt"]);
    ended.exits(0);
    let text = &ended.stdout;
    let out = "8192+0 records in\n0+0 records out\ntime to read data: ";
    assert!(
        text.starts_with(out) && text.contains(" secs at "),
        "{text}"
    );
    let words = ["bench", "ddpt", "if=ram:4M", "of=ram:4M,name=b", "bs=4k"];
    let text = fabrix(&words).stdout;
    let out = "1024+0 records in\n1024+0 records out\ntime to transfer data: ";
    assert!(
        text.starts_with(out) && text.ends_with(" MB/sec\n"),
        "{text}"
    );
    let silent = fabrix(&[&words[..], &["status=none"]].concat());
    assert_eq!((silent.code, silent.stdout.as_str()), (0, ""), "{silent}");
    let refused = fabrix(&["bench", "ddpt", "if=ram:4M", "thr=4"]);
    refused.exits(2).says(&["`thr` is not supported", "iseek"]);
}

#[test]
fn crystaldiskmark_has_its_demo_and_tests_of_ones_own() {
    let short = [
        "--size",
        "1M",
        "--count",
        "1",
        "--runtime",
        "50ms",
        "--interval",
        "0",
    ];
    let cdm = |more: &[&str]| {
        let ended = fabrix(&[&["bench", "cdm", "ram:2M"], &short[..], more].concat());
        ended.exits(0);
        ended.stdout
    };
    let demo = cdm(&["--preset", "demo"]);
    assert!(demo.contains("SEQ  1024 KiB (Q=  8, T= 1)"), "{demo}");
    assert!(
        demo.contains("Preset: Demo") && !demo.contains("RND"),
        "{demo}"
    );
    let own = cdm(&["--tests", "SEQ128K-Q4T1,rnd8k-q2t2"]);
    for part in [
        "SEQ   128 KiB (Q=  4, T= 1)",
        "RND     8 KiB (Q=  2, T= 2)",
        "Preset: Custom",
    ] {
        assert!(own.contains(part), "{part}: {own}");
    }
}
