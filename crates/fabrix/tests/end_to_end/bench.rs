//! The benchmark: what it measures, what it leaves behind, and what it says of words that it does
//! not know.

use super::harness::{Running, bench, fabrix, figure, path_in, scratch};

#[test]
fn a_disk_of_known_service_time_measures_as_such() {
    let result = bench(&[
        "ram:64M,inject=delay:5ms",
        "--iodepth",
        "4",
        "--runtime",
        "0.5",
    ]);
    let read = &result["jobs"][0]["read"];
    let (mean, iops) = (figure(read, "/clat_ns/mean"), figure(read, "/iops"));
    assert!(
        (5e6..12e6).contains(&mean),
        "four at once, 5 ms each: {mean} ns"
    );
    assert!((300.0..=810.0).contains(&iops), "4 / 5 ms is 800: {iops}");
}

/// A disk that answers 50 requests a second, one after another, asked for 500 a second.
#[test]
fn an_open_loop_shows_the_waiting_at_a_slow_disk_that_a_closed_loop_hides() {
    let slow = [
        "ram:64M,inject=delay:20ms",
        "--iodepth",
        "1",
        "--runtime",
        "0.5",
    ];
    let closed = bench(&slow);
    let open = bench(&[&slow[..], &["--rate-iops", "500"]].concat());
    let p50_ms = |result: &serde_json::Value, of: &str| {
        let at = format!("/jobs/0/read/{of}/percentile/50.000000");
        figure(result, &at) / 1e6
    };
    assert!(
        p50_ms(&closed, "lat_ns") < 60.0,
        "one at a time: {closed:#}"
    );
    assert!(
        p50_ms(&open, "clat_ns") < 60.0,
        "the disk is the same: {open:#}"
    );
    assert!(
        p50_ms(&open, "lat_ns") > 100.0,
        "half waited long: {open:#}"
    );
}

#[test]
fn a_requests_time_is_split_by_hop_and_adds_up() {
    let result = fabrix(&[
        "bench",
        "path",
        "ram:8M,inject=delay:3ms",
        "--runtime",
        "0.2",
        "--ramp",
        "0",
        "-o",
        "json",
    ]);
    let result = result.exits(0).json();
    let tables = result["tables"].as_array().expect("tables");
    let hops = tables.iter().find(|table| table["name"] == "hops");
    let hops = hops.unwrap_or_else(|| panic!("no split: {result:#}"));
    let mean = |name: &str| {
        let rows = hops["rows"].as_array().expect("rows");
        let row = rows.iter().find(|row| row[0] == name);
        figure(row.expect("a part of the way"), "/1")
    };
    let (disk, together, seen) = (
        mean("disk"),
        mean("together"),
        mean("as the benchmark saw it"),
    );
    assert!(
        (2900.0..=together).contains(&disk),
        "3 ms are the disk's: {hops:#}"
    );
    // Only the first request, which brings the connection up, is not among those that the benchmark
    // saw.
    assert!(together > seen * 0.9, "{hops:#}");
    assert!(
        mean("target queue") + mean("wire out") < together - disk + 1.0,
        "{hops:#}"
    );
}

#[test]
fn a_disk_in_the_page_cache_is_doubted() {
    let folder = scratch();
    let path = path_in(&folder, "cached.img");
    super::harness::make_file(&path, 8 << 20, 0, b"");
    let disk = format!("{path},direct=off");
    let filename = format!("--filename={path}");
    let job = ["fio", "--name=x", "--size=64k", &filename];
    // The way around the cache is in the words that led into it.
    for (args, advice) in [
        (&[&disk, "--runtime", "0.05"][..], "leave direct=off out"),
        (&job, "add direct=1"),
        (&[&job[..], &["--buffered=1"]].concat(), "write direct=1"),
        (
            &["diskspd", "-Sb", "-d1", "-W0", "-b4K", &path],
            "write -Su",
        ),
    ] {
        let said = fabrix(&[&["bench"], args].concat());
        said.exits(0).says(&["warning", &path, "page cache"]);
        let warnings = said.stderr.lines();
        let warnings: Vec<&str> = warnings
            .filter(|line| line.contains("page cache"))
            .collect();
        let said = format!("memory; {advice}");
        assert!(
            matches!(warnings[..], [one] if one.ends_with(&said)),
            "{warnings:?}"
        );
    }
}

#[test]
fn a_copy_is_whole_and_does_not_go_where_somebodys_data_is() {
    let folder = scratch();
    let (from, to) = (path_in(&folder, "from"), path_in(&folder, "to"));
    super::harness::make_file(&from, 3 << 20, 1_000_000, b"somewhere in the middle");
    super::harness::make_file(&to, 4 << 20, 0, b"XFSB");
    let (from_disk, to_disk) = (
        format!("if={from},direct=off"),
        format!("of={to},direct=off"),
    );
    let words = [
        from_disk.as_str(),
        &to_disk,
        "bs=4k",
        "bpt=50",
        "thr=3",
        "dio=1",
        "time=1",
    ];
    fabrix(&[&["bench", "sgp_dd"], &words[..]].concat())
        .exits(2)
        .says(&["XFS", "--allow-write"]);
    let ended = fabrix(&[&["bench", "sgp_dd", "--allow-write"], &words[..]].concat());
    ended.exits(0);
    let said = [
        "768+0 records in",
        "768+0 records out",
        "time to transfer data was",
        "MB/sec",
    ];
    assert!(
        said.iter().all(|part| ended.stdout.contains(part)),
        "{ended}"
    );
    let read = |path: &str| std::fs::read(path).expect("it is our file");
    let (from, to) = (read(&from), read(&to));
    assert!(to[..3 << 20] == from && to[3 << 20..].iter().all(|byte| *byte == 0));
}

#[test]
fn a_disk_that_cannot_be_read_is_an_error_before_anything_is_measured() {
    let ended = fabrix(&["bench", "ram:8M,inject=error:1:read"]);
    ended
        .exits(1)
        .says(&["ram:8M", "the first read of job 0 failed", "LBA 0"]);
    assert!(ended.stdout.is_empty(), "{ended}");
}

#[test]
fn repeats_are_counted_and_the_middle_one_is_shown() {
    let result = bench(&[
        "ram:8M",
        "--runtime",
        "0.05",
        "--count",
        "3",
        "--percentile-list",
        "50:99.9",
    ]);
    let job = &result["jobs"][0];
    let mut iops: Vec<f64> = job["repeats"]
        .as_array()
        .expect("three")
        .iter()
        .map(|one| figure(one, "/iops"))
        .collect();
    iops.sort_by(f64::total_cmp);
    assert_eq!(iops.len(), 3);
    assert!(
        (figure(job, "/read/iops") - iops[1]).abs() < 1e-6,
        "{iops:?}"
    );
    let list = job["read"]["clat_ns"]["percentile"]
        .as_object()
        .expect("a list");
    assert_eq!(list.keys().collect::<Vec<_>>(), ["50.000000", "99.900000"]);
}

#[test]
fn a_file_of_jobs_runs_its_stages_on_its_disks() {
    let folder = scratch();
    let file = path_in(&folder, "job.fio");
    let log = path_in(&folder, "log");
    let text = format!(
        "[global]\nfilename=ram:8M\nsize=1m\nbs=64k\nwrite_iops_log={log}\n[fill]\nrw=write\n\
         [check]\nstonewall\nrw=read\nloops=2\n[beside]\nrw=randread\n"
    );
    std::fs::write(&file, text).expect("a scratch file");
    let jobs = bench(&[&file])["jobs"].clone();
    let logs = std::fs::read_dir(std::path::Path::new(&log).parent().expect("a folder"));
    let names = logs
        .expect("it is ours")
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let mut names: Vec<String> = names.filter(|name| name.starts_with("log")).collect();
    names.sort();
    assert_eq!(
        names,
        ["log_iops.1.log", "log_iops.2.log", "log_iops.3.log"]
    );
    assert_eq!(jobs.as_array().map(Vec::len), Some(3));
    assert_eq!(
        (
            figure(&jobs[0], "/write/io_bytes"),
            figure(&jobs[1], "/read/io_bytes")
        ),
        (1048576.0, 2097152.0)
    );
    assert_eq!(jobs[2]["jobname"], "beside");
    std::fs::write(&file, "[a]\nfilename=ram:8M\nzonemode=zbd\n").expect("a scratch file");
    fabrix(&["bench", &file])
        .exits(2)
        .says(&["job.fio", "line 3", "`zonemode` is not supported"]);
}

#[test]
fn a_random_write_reaches_every_block_with_the_asked_contents() {
    let folder = scratch();
    let disk = path_in(&folder, "disk");
    let file = std::fs::File::create(&disk).expect("a scratch file");
    file.set_len(4 << 20).expect("a sparse file");
    let load = ["--rw", "randwrite", "--loops", "1", "--iodepth", "4"];
    bench(&[&[&disk[..]], &load[..], &["--buffer-pattern", "0xdeadface"]].concat());
    let bytes = std::fs::read(&disk).expect("it is ours");
    assert!(bytes.chunks(4).all(|word| word == [0xde, 0xad, 0xfa, 0xce]));
    fabrix(&["bench", "ram:8M", "--buffer-pattern", "0xgg"])
        .exits(2)
        .says(&["`0xgg` is not a pattern"]);
}

#[test]
fn every_run_says_its_seed_which_is_another_one_unless_given() {
    let seed = |words: &[&str]| {
        let load = ["ram:8M", "--number-ios", "10"];
        let result = bench(&[&load[..], words].concat());
        result["jobs"][0]["job options"]["randseed"].clone()
    };
    assert_ne!(seed(&[]), seed(&[]));
    assert_eq!(seed(&["--randseed", "7"]), "7");
}

#[test]
fn a_report_needs_nothing_from_elsewhere_and_can_be_compared() {
    let folder = scratch();
    let report = path_in(&folder, "report");
    fabrix(&["bench", "ram:8M", "--runtime", "0.1", "--report", &report])
        .exits(0)
        .says(&["the report is "]);
    for name in [
        "index.html",
        "results.csv",
        "overview.csv",
        "tails.svg",
        "course.svg",
    ] {
        let text = std::fs::read_to_string(format!("{report}/{name}")).expect(name);
        for outside in [
            "http:", "https:", "src=", "<link", "@import", "url(", "<script",
        ] {
            let names_its_space = name.ends_with("svg") && outside == "http:";
            assert!(
                names_its_space || !text.contains(outside),
                "`{outside}` in {name}"
            );
        }
    }
    let results = format!("{report}/results.json");
    fabrix(&["bench", "compare", &results, &results, "--fail-over", "1"]).exits(0);
    let text = std::fs::read_to_string(&results).expect("it was written");
    let mut slower: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    slower["runs"][0]["jobs"][0]["read"]["iops"] = 1.into();
    let other = path_in(&folder, "slower.json");
    std::fs::write(&other, slower.to_string()).expect("a scratch file");
    let ended = fabrix(&["bench", "compare", &results, &other, "--fail-over", "5%"]);
    ended.exits(6).says(&["fewer IOPS, and 5 % are allowed"]);
    fabrix(&[
        "bench",
        "compare",
        &results,
        &format!("{report}/index.html"),
    ])
    .exits(2)
    .says(&["index.html", "it is not JSON"]);
}

#[test]
fn where_no_report_can_be_nothing_is_measured() {
    let folder = scratch();
    let file = path_in(&folder, "file");
    std::fs::write(&file, "no folder").expect("a scratch file");
    let report = format!("{file}/report");
    for words in [
        &["ram:8M"][..],
        &["path", "ram:8M"],
        &["net", "127.0.0.1:1"],
    ] {
        let ended = fabrix(&[&["bench"], words, &["--report", &report]].concat());
        ended.exits(1).says(&[&report]);
        assert!(ended.stdout.is_empty(), "{ended}");
    }
}

#[test]
fn words_of_other_tools_are_explained() {
    for (profile, word) in [("diskspd", "-b64K -o2 -t1"), ("sgp_dd", "bpt=N thr=N")] {
        let ended = fabrix(&["bench", profile, "--help"]);
        ended.exits(0);
        for part in [word, "--report <DIR>", "--fast-io-fail-tmo"] {
            assert!(ended.stdout.contains(part), "`{part}` is missing:\n{ended}");
        }
    }
}

#[test]
fn our_options_may_stand_behind_the_words_of_another_tool() {
    let folder = scratch();
    let report = path_in(&folder, "report");
    let words = ["bench", "sgp_dd", "if=ram:8M", "count=1k"];
    let ended = fabrix(&[&words[..], &["--report", &report, "--spin=never"]].concat());
    ended.exits(0).says(&["the report is "]);
    for part in ["1024+0 records in", "1024+0 records out"] {
        assert!(ended.stdout.contains(part), "{ended}");
    }
    fabrix(&[&words[..], &["--report"]].concat())
        .exits(2)
        .says(&["--report <DIR>"]);
    fabrix(&[&words[..], &["--reprot", &report]].concat())
        .exits(2)
        .says(&["--reprot"]);
}

#[test]
fn words_of_other_tools_that_are_wrong_are_named() {
    for (words, parts) in [
        (
            &["diskspd", "-y", "ram:8M"][..],
            &["-y", "is not supported"][..],
        ),
        (&["diskspd", "-b4K"], &["which disk"]),
        (&["diskspd", "-#0"], &["name a block device, like /dev/"]),
        (
            &[
                "sgp_dd",
                "if=ram:8M",
                "of=new.img",
                "bs=4k",
                "count=3",
                "seek=1",
            ],
            &["of=new.img", "write of=file:new.img,size=16k"],
        ),
        (
            &["sgp_dd", "if=ram:8M", "of=new.img"],
            &["write of=file:new.img,size=8M"],
        ),
        (&["net", "ram:64M"], &["ram:64M", "neither HOST[:PORT] nor"]),
        (&["sgp_dd", "of=ram:8M", "oflag=append"], &["oflag=append"]),
        (&["diskspd", "-Xnowhere.xml"], &["nowhere.xml"]),
        (&["cdm", "ram:8M", "--tests", "4K"], &["write SEQ1M-Q8T1"]),
        (
            &["starwind", "ram:8M", "--published", "list"],
            &["starwind-ram-rdma", "another"],
        ),
        (
            &["cdm", "ram:8M", "--size", "1G"],
            &["more than the disk has"],
        ),
        (&["ram:8M", "--steadystate", "iops"], &["write iops:5%"]),
        (&["ram:8M", "--bssplit", "4k/60"], &["adds up to 60 %"]),
        (
            &["ram:8M", "--random-distribution", "gauss"],
            &["zipf:THETA"],
        ),
        (&["nowhere.fio"], &["nowhere.fio"]),
        (&["path", "ram:8M", "--against", "ram:8M"], &["--against"]),
        (
            &["starwind", "ram:8M", "--size", "9M"],
            &["ram:8M", "--size 9M", "up to 8M"],
        ),
        (&["stgt", "ram:8M", "--size", "9M"], &["up to 8M"]),
        (
            &["stravind", "ram:8M"],
            &[
                "`stravind` is no profile",
                "starwind, stgt, zetavault, sgp_dd",
            ],
        ),
        (
            &[
                "cdm",
                "ram:8M",
                "--size",
                "8M",
                "--card",
                "/nowhere/at/all.svg",
            ],
            &["there is no folder /nowhere/at"],
        ),
        (
            &["ram:8M", "--write-logs", "/nowhere/at/all"],
            &["there is no folder /nowhere/at"],
        ),
    ] {
        let ended = fabrix(&[&["bench"], words].concat());
        ended.exits(2);
        let parts: Vec<&&str> = parts.iter().filter(|part| **part != "another").collect();
        assert!(
            parts.iter().all(|part| ended.stderr.contains(**part)),
            "{ended}"
        );
    }
}

#[test]
fn the_wire_is_measured_between_two_of_us() {
    let server = Running::start(&["bench", "net", "--server", "127.0.0.1:0"]);
    server.hears("listening at", 1);
    let said = server.said();
    let address = said
        .lines()
        .find_map(|line| line.split_once("listening at "))
        .expect("it says where")
        .1
        .to_owned();
    let ended = fabrix(&[
        "bench",
        "net",
        &address,
        "-t",
        "0.1",
        "-P",
        "2",
        "--iodepth",
        "1,8",
        "-o",
        "json",
    ]);
    let tables = ended.exits(0).json()["tables"].clone();
    assert!(
        (0..3).all(|row| figure(&tables[0]["rows"][row], "/1") > 0.0),
        "{tables:#}"
    );
    assert!(
        (0..2).all(|row| figure(&tables[1]["rows"][row], "/1") > 100.0),
        "{tables:#}"
    );
    server.signal("TERM");
    server.ended().exits(0);
}
