//! The profiles from their first word to their last: each ends in its table and its report, on
//! memory and on a file; when it is interrupted, when its target dies, and when its disk is
//! somebody's.

use super::harness::{Ended, Running, Serve, fabrix, path_in, scratch, wait_until_filled};

/// As short as it gets, for the profiles that take such words.
const SHORT: [&str; 6] = ["--runtime", "0.01", "--ramp", "0", "--size", "1M"];

/// Runs a profile on memory and on a file; it has to say these parts, and to leave a report with
/// these charts.
#[track_caller]
fn ends_in(profile: &[&str], disks: [&str; 2], rest: &[&str], parts: &[&str], charts: &[&str]) {
    let folder = scratch();
    let file = path_in(&folder, "disk");
    super::harness::make_file(&file, 64 << 20, 0, b"");
    let disks = disks.map(|disk| disk.replace("FILE", &file));
    for (number, disk) in disks.iter().enumerate() {
        let report = path_in(&folder, &format!("report-{number}"));
        let named: Vec<String> = rest.iter().map(|word| word.replace("DISK", disk)).collect();
        let named: Vec<&str> = named.iter().map(String::as_str).collect();
        let words = [
            &["bench", profile[0], "--report", &report],
            &profile[1..],
            &named,
        ];
        let ended = fabrix(&words.concat());
        ended.exits(0).says(&["the report is "]);
        for part in parts {
            assert!(ended.stdout.contains(part), "`{part}` is missing:\n{ended}");
        }
        let charts = charts.iter().map(|name| format!("{name}.svg"));
        let files = ["index.html", "results.json", "results.csv"].map(str::to_owned);
        for name in files.into_iter().chain(charts) {
            let length = std::fs::metadata(format!("{report}/{name}")).map(|facts| facts.len());
            assert!(length.is_ok_and(|length| length > 0), "no {name}:\n{ended}");
        }
    }
}

#[test]
fn starwind_ends_in_its_three_tables() {
    ends_in(
        &["starwind"],
        ["ram:8M", "FILE"],
        &[&["DISK"], &SHORT[..], &["--published", "starwind-ram-rdma"]].concat(),
        &[
            "the knee",
            "8k random 70% write",
            "460,792",
            "Latency: one request at a time",
        ],
        &["search", "search-latency", "workloads", "latency", "tails"],
    );
}

#[test]
fn starwind_puts_columns_beside_each_other() {
    let sides = ["starwind", "ram:8M", "--loopback", "--against", "null:8M"];
    let ended = fabrix(&[&["bench"], &sides[..], &SHORT].concat());
    ended.exits(0);
    for part in ["ram:8M over NVMe/TCP", "null:8M"] {
        assert!(ended.stdout.contains(part), "`{part}` is missing:\n{ended}");
    }
}

#[test]
fn stgt_ends_in_its_sweep_over_both_protocols_and_what_was_measured_besides() {
    ends_in(
        &["stgt"],
        ["ram:8M,block=512", "FILE,block=512"],
        &[&["DISK", "--sizes", "1k,64k"], &SHORT[..]].concat(),
        &[
            "Command sizes, NVMe/TCP",
            "Command sizes, iSCSI",
            "Initiators and devices at once",
            "both, two initiators",
            "The chain",
        ],
        &["sweep", "sweep-field", "sweep-iscsi", "sweep-field-iscsi"],
    );
}

#[test]
fn stgt_sweeps_all_sizes_of_a_disk_of_zeroes_unless_told_otherwise() {
    let ended = fabrix(&[
        "bench",
        "stgt",
        "--runtime",
        "0.01",
        "--ramp",
        "0",
        "-o",
        "json",
    ]);
    let tables = ended.exits(0).json()["tables"].clone();
    let rows = tables[0]["rows"].as_array().expect("the sweep").clone();
    let sizes: Vec<&str> = rows.iter().filter_map(|row| row[0].as_str()).collect();
    let expected = [
        "1", "2", "4", "8", "16", "32", "64", "128", "256", "512", "1024",
    ];
    assert_eq!(sizes, expected);
    assert!(
        rows.iter()
            .flat_map(|row| row.as_array().expect("cells"))
            .all(|cell| !cell.is_null()),
        "MB/s and both CPUs everywhere: {rows:#?}"
    );
}

#[test]
fn zetavault_ends_in_a_table_for_each_direction_and_number_of_workers() {
    ends_in(
        &["zetavault"],
        ["ram:8M,block=512", "FILE,block=512"],
        &[&["DISK", "--count", "1"], &SHORT[..]].concat(),
        &["Random read, 1 worker", "Random write, 4 workers", "64K"],
        &["read-1w", "read-1w-bw", "write-4w", "write-4w-bw"],
    );
}

#[test]
fn path_ends_in_its_layers_and_hops() {
    ends_in(
        &["path"],
        ["ram:8M", "FILE"],
        &[&["DISK"], &SHORT[..]].concat(),
        &[
            "+ NVMe/TCP in memory",
            "+ NVMe/TCP over loopback",
            "+ data digest",
            "Where one request's time goes",
        ],
        &["layers", "hops"],
    );
}

#[test]
fn cdm_ends_in_its_numbers_and_leaves_a_card() {
    let short = [
        "--size",
        "32M",
        "--time",
        "0.01",
        "--interval",
        "0",
        "--count",
        "2",
    ];
    ends_in(
        &["cdm"],
        ["ram:64M", "FILE"],
        &[&["DISK"], &short[..]].concat(),
        &["[Read]", "RND     4 KiB (Q= 32, T= 1)", "[Write]"],
        &["scores", "card"],
    );
}

#[test]
fn cdm_compares_the_policies_of_a_disk_with_several_paths() {
    let listens = ["nvme+tcp://127.0.0.1:0", "nvme+tcp://127.0.0.2:0"];
    let listens = ["--listen", listens[0], "--listen", listens[1]];
    let serve = Serve::start(&[&["ram:64M"], &listens[..]].concat());
    let second = serve.json["listen"][1].as_str().expect("it listens");
    let hosts = format!("{},{second}", serve.address());
    let paths = serve.uri(0).replace(&serve.address(), &hosts);
    let cdm = |policies: &str, more: &[&str]| {
        let short = "--time 0.01 --interval 0 --count 1 --preset demo".split(' ');
        let words = ["bench", "cdm", &paths, "--policies", policies];
        fabrix(
            &words
                .into_iter()
                .chain(short)
                .chain(more.iter().copied())
                .collect::<Vec<_>>(),
        )
    };
    let ended = cdm("all", &["--size", "8M,16M", "-o", "json"]);
    let report = ended.exits(0).json();
    let table = &report["tables"][0];
    let rows = table["rows"].as_array().expect("rows");
    assert_eq!(rows.len(), 7 * 2, "{table}");
    assert_eq!(
        (&rows[0][0], &rows[0][1]),
        (&"fixed:0".into(), &"8M".into())
    );
    assert!(
        rows.iter().all(|row| row[2].as_f64() > Some(0.0)),
        "{table}"
    );
    assert!(
        rows.iter().all(|row| row[3].as_f64() > Some(0.0)),
        "{table}"
    );
    let text = cdm("round-robin:1", &["--size", "8M"])
        .exits(0)
        .stdout
        .clone();
    assert!(
        text.contains("round-robin:1") && text.contains("SEQ1M Q8T1"),
        "{text}"
    );
    cdm("fastest", &[])
        .exits(2)
        .says(&["`fastest` is not a policy"]);
    fabrix(&[
        "bench",
        "cdm",
        "ram:64M",
        "--size",
        "8M",
        "--policies",
        "all",
    ])
    .exits(2)
    .says(&["has one path", "multipath:(URI,URI)"]);
    fabrix(&["bench", "cdm", "ram:64M", "--size", "8M,16M"])
        .exits(2)
        .says(&["--policies"]);
}

#[test]
fn sgp_dd_ends_in_its_records() {
    ends_in(
        &["sgp_dd"],
        ["ram:8M", "FILE"],
        &[
            "if=DISK",
            "of=/dev/null",
            "bs=512",
            "count=2k",
            "thr=2",
            "time=1",
        ],
        &["2048+0 records in", "MB/sec"],
        &["tails", "course"],
    );
}

#[test]
fn diskspd_ends_in_its_text_or_its_xml() {
    ends_in(
        &["diskspd"],
        ["ram:8M", "FILE"],
        &[
            "-b4K", "-o2", "-t2", "-r", "-w50", "-d1", "-W0", "-L", "DISK",
        ],
        &["Total IO", "3-nines", "thread count:\t\t2"],
        &["tails", "course"],
    );
    let xml = fabrix(&["bench", "diskspd", "-d1", "-W", "-L", "-Rxml", "ram:8M"]);
    xml.exits(0);
    for part in ["<IOCount>", "<AverageReadMilliseconds>"] {
        assert!(xml.stdout.contains(part), "`{part}` is missing:\n{xml}");
    }
}

#[test]
fn a_diskspd_profile_runs_like_its_flags() {
    let folder = scratch();
    let path = path_in(&folder, "profile.xml");
    let profile = "<Profile><ResultFormat>text</ResultFormat><TimeSpans><TimeSpan><Duration>1</Duration>\
        <Warmup>0</Warmup><Targets><Target><Path>*1</Path><BlockSize>4096</BlockSize><Random>4096</Random>\
        <RequestCount>2</RequestCount><WriteRatio>100</WriteRatio><WriteThrough>true</WriteThrough>\
        <BurstSize>10</BurstSize><ThinkTime>100</ThinkTime></Target></Targets></TimeSpan></TimeSpans></Profile>";
    std::fs::write(&path, profile).expect("a file");
    let ended = fabrix(&["bench", "diskspd", &format!("-X{path}"), "ram:8M"]);
    ended.exits(0);
    for part in [
        "-b4096",
        "performing write test",
        "writethrough on",
        "using random I/O",
    ] {
        assert!(ended.stdout.contains(part), "`{part}` is missing:\n{ended}");
    }
    let total = ended.stdout.lines().find(|line| line.starts_with("total:"));
    let ios = total.and_then(|line| line.split('|').nth(1)?.trim().parse::<u64>().ok());
    // Ten requests every 100 ms of one second.
    assert!(ios.is_some_and(|ios| (10..=110).contains(&ios)), "{ended}");
}

#[test]
fn the_generators_own_limit_is_measured_and_said() {
    let ended = fabrix(&["bench", "ram:8M", "--runtime", "1"]);
    ended.exits(0).says(&[
        "the load generator alone makes",
        "IOPS with the settings of `randread`",
    ]);
}

#[test]
fn the_way_to_a_remote_disk_is_measured_on_more_of_it_than_stands_for_a_part_of_the_way() {
    let serve = Serve::start(&["null:1G"]);
    let path = |size: &str| {
        let short = ["--runtime", "0.01", "--ramp", "0", "--size", size];
        fabrix(&[&["bench", "path", &serve.uri(0)], &short[..]].concat())
    };
    let ended = path("512M");
    ended.exits(0);
    assert!(ended.stdout.contains("+ network"), "{ended}");
    path("2G").exits(2).says(&["--size 2G", "up to 1G"]);
}

#[test]
fn a_profile_does_not_write_where_somebodys_data_is() {
    let folder = scratch();
    let path = path_in(&folder, "disk");
    super::harness::make_file(&path, 8 << 20, 0, b"XFSB");
    let before = std::fs::read(&path).expect("it is our file");
    let disk = format!("{path},direct=off");
    let out = format!("of={disk}");
    for words in [
        &["starwind", disk.as_str()][..],
        &["stgt", &disk],
        &["zetavault", &disk],
        &["cdm", &disk, "--size", "8M"],
        &["diskspd", "-w10", "-d1", &disk],
        &["diskspd", "set", &disk],
        &["sgp_dd", "if=/dev/zero", &out],
    ] {
        fabrix(&[&["bench"], words].concat())
            .exits(2)
            .says(&["XFS", "--allow-write"]);
    }
    assert!(
        std::fs::read(&path).expect("it is our file") == before,
        "nothing was changed"
    );
}

#[test]
fn data_far_from_the_start_of_a_file_is_not_overwritten() {
    let folder = scratch();
    let path = path_in(&folder, "disk");
    let text = b"somebody's text";
    for (offset, words) in [
        (131_072, &["--name=x", "--rw=write", "--filename"][..]),
        (700_000, &["diskspd", "-c2M", "-d1", "-W0"]),
    ] {
        super::harness::make_file(&path, 1 << 20, offset, text);
        let before = std::fs::read(&path).expect("it is our file");
        fabrix(&[&["bench"], words, &[path.as_str()]].concat())
            .exits(2)
            .says(&["data that no benchmark wrote at offset", "--allow-write"]);
        let after = std::fs::read(&path).expect("it is our file");
        assert!(after == before, "{words:?} changed the file");
    }
}

/// A profile that would last, ended by an interrupt: at once, with exit code 1 and a sentence.
#[track_caller]
fn is_interrupted(words: &[&str]) -> Ended {
    let profile = Running::start(&[&["bench"], words].concat());
    profile.hears("s in all", 1);
    profile.signal("INT");
    let ended = profile.ended();
    ended.exits(1).says(&["interrupted"]);
    ended
}

#[test]
fn an_interrupted_profile_ends_at_once_and_says_so() {
    for words in [
        &["starwind", "ram:8M", "--runtime", "60"][..],
        &["stgt", "--runtime", "60"],
        &["zetavault", "ram:8M", "--runtime", "60"],
        &["path", "ram:8M", "--runtime", "60"],
        &["cdm", "ram:8M", "--size", "8M", "--time", "60"],
        &["diskspd", "-d600", "ram:8M"],
        &["diskspd", "set", "-d60", "ram:8M"],
    ] {
        is_interrupted(words);
    }
}

#[test]
fn an_interrupted_copy_says_how_much_it_has_copied() {
    let folder = scratch();
    let (from, to) = (path_in(&folder, "from"), path_in(&folder, "to"));
    super::harness::make_file(&from, 256 << 20, 0, b"something else than zeroes");
    super::harness::make_file(&to, 256 << 20, 0, b"");
    let [source, sink] = [format!("if={from}"), format!("of={to}")];
    let copy = Running::start(&["bench", "sgp_dd", &source, &sink, "bs=4k", "bpt=1", "thr=1"]);
    wait_until_filled(&to);
    copy.signal("INT");
    let ended = copy.ended();
    ended
        .exits(1)
        .says(&["interrupted: what was measured until then is shown"]);
    let out = |line: &str| line.strip_suffix("+0 records out")?.parse::<u64>().ok();
    let records = ended.stdout.lines().find_map(out);
    assert!(
        records.is_some_and(|records| (1..1 << 16).contains(&records)),
        "{ended}"
    );
}

/// A profile whose target is killed while it writes: an error that names the disk, and no hang.
#[track_caller]
fn outlives_its_target(words: &[&str]) {
    let folder = scratch();
    let disk = path_in(&folder, "disk");
    super::harness::make_file(&disk, 64 << 20, 0, b"");
    let mut serve = Serve::start(&[&format!("{disk},direct=off,block=512")]);
    let uri = serve.uri(0);
    let words: Vec<String> = words.iter().map(|word| word.replace("URI", &uri)).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    // Long enough for a busy machine to connect, short enough to be waited for.
    let soon = ["--fast-io-fail-tmo", "3s"];
    let load = Running::start(&[&["bench", words[0]], &soon[..], &words[1..]].concat());
    wait_until_filled(&disk);
    serve.process.kill();
    load.ended().exits(1).says(&["reconnecting", &uri]);
}

#[test]
fn a_target_that_dies_under_a_profile_is_an_error_and_no_hang() {
    let long = ["--runtime", "600"];
    let all = [
        [&["starwind", "URI"], &long[..]].concat(),
        [&["stgt", "URI"], &long[..]].concat(),
        [&["zetavault", "URI"], &long[..]].concat(),
        vec!["cdm", "URI", "--size", "64M", "--time", "600"],
        vec!["diskspd", "-w100", "-d600", "-W0", "URI"],
        vec!["diskspd", "set", "-d1", "URI"],
        vec![
            "sgp_dd",
            "if=/dev/zero",
            "of=URI",
            "bs=512",
            "bpt=1",
            "thr=1",
        ],
    ];
    // Each waits for its target: together they wait once.
    std::thread::scope(|scope| {
        for words in &all {
            scope.spawn(|| outlives_its_target(words));
        }
    });
}

#[test]
fn a_server_of_the_wire_that_dies_is_an_error_and_no_hang() {
    let (mut server, address) = wire();
    let client = Running::start(&["bench", "net", &address, "-t", "600"]);
    server.hears("a client from", 1);
    server.kill();
    let ended = client.ended();
    ended.exits(1).says(&[&address]);
}

#[test]
fn an_interrupted_measurement_of_the_wire_shows_its_stream() {
    let (server, address) = wire();
    let directions = [
        &["-t", "600"][..],
        &["-t", "600", "-R"],
        &["-t", "600", "--bidir"],
    ];
    for (before, words) in directions.into_iter().enumerate() {
        let client = Running::start(&[&["bench", "net", &address], words].concat());
        server.hears("a client from", before + 1);
        client.signal("INT");
        let ended = client.ended();
        ended.exits(1).says(&["interrupted"]);
        assert!(ended.stdout.contains("Streams"), "{ended}");
    }
}

/// A server of the wire, and where it listens.
fn wire() -> (Running, String) {
    let server = Running::start(&["bench", "net", "--server", "127.0.0.1:0"]);
    server.hears("listening at", 1);
    let said = server.said();
    let address = said
        .lines()
        .find_map(|line| line.split_once("listening at "));
    let address = address.expect("it says where").1.to_owned();
    (server, address)
}
