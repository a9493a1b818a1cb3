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
    let ios = total(&ended.stdout, "Total IO", 1);
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
        ("-Sw", true, true),
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
    }
    let sync = options(&["-b4K", "-w100", "-i1", "-j500", "-Sh", "ram:1M"])["sync"].clone();
    assert_eq!(sync, "dsync");
}

#[test]
fn diskspds_threads_may_share_one_position() {
    for words in [["-si", "-t2", "-o4"], ["-t2", "-o4", "-si"]] {
        let ended = diskspd(&[&words[..], &["-b64K", "ram:8M"]].concat());
        ended.says(&["-si: the threads share one position", "8 requests"]);
        assert!(
            ended.stdout.contains("using interlocked sequential I/O"),
            "{ended}"
        );
    }
}

#[test]
fn flags_of_diskspd_without_an_effect_are_noted() {
    let ended = diskspd(&["-b4K", "-P", "-v", "-x", "-l", "-fr", "-C0", "ram:1M"]);
    ended.says(&["without effect here: -P -v -x -l -fr -C0"]);
}

#[test]
fn diskspds_totals_are_the_sums_of_their_rows() {
    let words = ["-b4K", "-o4", "-t2", "-r", "-w30", "-D100", "-L", "-S"];
    let ended = diskspd(&[&words[..], &["ram:8M", "ram:16M"]].concat());
    let text = &ended.stdout;
    let mut deviations = Vec::new();
    for section in ["Total IO", "Read IO", "Write IO"] {
        let part = &text[text.find(section).expect(section)..];
        let rows = part.lines().skip(1).take_while(|line| !line.is_empty());
        let cells = |line: &str| -> Vec<f64> {
            let numbers = line.trim_start_matches("total:").split('|');
            let numbers = numbers.map(|cell| cell.trim().parse().unwrap_or(f64::NAN));
            numbers.collect()
        };
        let rows: Vec<&str> = rows.collect();
        assert_eq!(rows[1], "-".repeat(114), "DiskSpd's rule: {text}");
        assert!(rows[2].ends_with("| ram:8M (8192KiB)"), "{text}");
        let total = cells(rows.last().expect("a total"));
        for (column, rounding) in [(1, 0.0), (2, 0.0), (3, 0.025), (4, 0.025)] {
            let sum: f64 = rows[2..6].iter().map(|line| cells(line)[column]).sum();
            // The total has no column for the thread.
            let difference = (total[column - 1] - sum).abs();
            assert!(difference <= rounding, "{section}, {column}: {text}");
        }
        deviations.push(total[5]);
    }
    deviations.dedup();
    assert_eq!(deviations.len(), 3, "each direction has its own: {text}");
    let tables = [
        "\nram:8M\n  %-ile",
        "\nram:16M\n  %-ile",
        "\ntotal:\n  %-ile",
    ];
    for table in tables {
        assert!(text.contains(table), "{table}: {text}");
    }
}

#[test]
fn diskspds_text_names_what_was_asked_in_its_order() {
    let ended = diskspd(&[
        "-b8K", "-si", "-o2", "-w20", "-B8K", "-f64K", "-Sb", "-L", "-D", "-z3", "ram:1M",
    ]);
    let text = &ended.stdout;
    let (_, asked) = text.split_once("timespan:   1\n").expect("the input");
    let (asked, _) = asked.split_once("\n\n").expect("an empty line");
    let lines: Vec<&str> = asked.lines().skip(1).map(str::trim).collect();
    assert_eq!(
        lines,
        [
            "duration: 1s",
            "warm up time: 0s",
            "cool down time: 0s",
            "measuring latency",
            "gathering IOPS at intervals of 1000ms",
            "random seed: 3",
            "path: 'ram:1M'",
            "think time: 0ms",
            "burst size: 0",
            "software cache disabled",
            "using hardware write cache, writethrough off",
            "performing mix test (read/write ratio: 80/20)",
            "block size: 8192",
            "using sequential I/O (stride: 8192)",
            "number of outstanding I/O operations per thread: 2",
            "base file offset: 8192",
            "max file size: 65536",
            "thread stride size: 0",
            "threads per file: 1",
        ]
    );
    assert!(
        text.contains("\n\n\ntotal:\n  %-ile |"),
        "one table: {text}"
    );
}

#[test]
fn diskspd_gives_files_the_size_of_c() {
    let folder = scratch();
    let path = path_in(&folder, "disk");
    let bytes = || std::fs::metadata(&path).expect("a file").len();
    let words = ["-b64K", "-w0"];
    let run = |size: &str| diskspd(&[&words[..], &[size, &path]].concat());
    run("-c1M").says(&["was filled with random data before"]);
    assert_eq!(bytes(), 1 << 20);
    run("-c4M").says(&["-c: ", "had 1M and has 4M now", "was filled"]);
    assert_eq!(bytes(), 4 << 20);
    run("-c2M").says(&["had 4M and has 2M now"]);
    assert_eq!(bytes(), 2 << 20);
    diskspd(&["-b4K", "-c8M", "ram:1M"]).says(&["-c: only files", "ram:1M stays as it is"]);
    std::fs::write(&path, "somebody's letter\n".repeat(100_000)).expect("a file");
    let before = bytes();
    let refused = fabrix(&["bench", "diskspd", "-d1", "-W0", "-w0", "-c8M", &path]);
    refused.exits(2).says(&["--allow-write"]);
    assert_eq!(bytes(), before, "nothing is cut off");
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
