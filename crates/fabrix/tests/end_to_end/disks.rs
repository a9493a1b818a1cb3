//! Every kind of disk, served and measured with verification: block sizes, request sizes, digests,
//! queues, jobs, shards; each with both engines on both sides.

use super::harness::{
    Serve, bench, engines, fabrix, figure, path_in, processors, scratch, skipped,
};

/// Serves `disk`, lets a verified mix run over it, and looks at what must come of that.
#[track_caller]
fn verified(disk: &str, serve_args: &[&str], bench_args: &[&str]) {
    for engine in engines() {
        let serve = Serve::start(&[&[disk, "--engine", engine], serve_args].concat());
        let uri = serve.uri(0);
        let mut load = vec![&uri[..], "--rw", "randrw", "--verify", "--engine", engine];
        for (option, usual) in [
            ("--iodepth", "16"),
            ("--size", "4M"),
            ("--runtime", "100ms"),
        ] {
            if !bench_args.contains(&option) {
                load.extend([option, usual]);
            }
        }
        load.extend(bench_args);
        let result = bench(&load);
        let what = format!("{disk} with {engine}, {serve_args:?}, {bench_args:?}");
        assert!(
            figure(&result, "/jobs/0/read/total_ios") > 0.0,
            "{what}: {result:#}"
        );
        assert!(
            figure(&result, "/jobs/0/write/total_ios") > 0.0,
            "{what}: {result:#}"
        );
        assert!(
            figure(&result, "/jobs/0/verify/blocks_checked") > 0.0,
            "{what}: {result:#}"
        );
        assert_eq!(
            result["jobs"][0]["verify"]["errors"], 0,
            "{what}: {result:#}"
        );
        assert_eq!(result["jobs"][0]["total_err"], 0, "{what}: {result:#}");
        serve.stop();
    }
}

#[test]
fn a_ram_disk_of_either_block_size_gives_back_what_was_written() {
    for block in ["512", "4096"] {
        let disk = format!("ram:16M,block={block}");
        verified(&disk, &[], &[]);
        let serve = Serve::start(&[&disk]);
        assert_eq!(serve.json["exports"][0]["block_bytes"].to_string(), block);
    }
}

#[test]
fn a_file_gives_back_what_was_written_with_and_without_the_page_cache() {
    let memory = tempfile::tempdir_in("/dev/shm");
    if memory.is_err() {
        skipped("a file in /dev/shm", "there is none");
    }
    for folder in [Some(scratch()), memory.ok()].into_iter().flatten() {
        for option in ["", ",direct=off"] {
            let path = path_in(&folder, &format!("disk{}", option.len()));
            let disk = format!("file:{path},size=16M{option}");
            match Serve::try_start(&[&disk]) {
                Ok(serve) => drop(serve.stop()),
                // A file system may have no direct I/O; then the sentence says what to do, and that
                // works.
                Err(ended) => {
                    ended.exits(2).says(&[&path, "direct=off"]);
                    skipped(&disk, "the file system has no direct I/O");
                    continue;
                }
            }
            verified(&disk, &[], &[]);
        }
    }
}

#[test]
fn a_null_disk_is_read_and_has_nothing_but_zeroes() {
    for engine in engines() {
        let serve = Serve::start(&["null:1T", "--engine", engine]);
        assert_eq!(serve.json["exports"][0]["size_bytes"], 1_u64 << 40);
        let load = ["--rw", "randread", "--runtime", "100ms", "--iodepth", "16"];
        let result = bench(&[&[serve.uri(0).as_str(), "--engine", engine], &load[..]].concat());
        assert!(figure(&result, "/jobs/0/read/total_ios") > 0.0);
        assert_eq!(result["jobs"][0]["write"]["total_ios"], 0);
    }
}

#[test]
fn an_array_over_three_disks_gives_back_what_was_written() {
    let folder = scratch();
    let file = path_in(&folder, "member");
    let members = format!("ram:8M,file:{file},size=8M,direct=off,ram:8M,name=third");
    verified(&format!("raid0:chunk=4k,({members})"), &[], &[]);
    verified("raid0:(ram:8M,ram:8M,ram:8M)", &[], &["--bs", "64k"]);
}

#[test]
fn digests_of_headers_data_and_both_are_agreed_on_and_right() {
    for digests in [
        &["--hdr-digest"][..],
        &["--data-digest"],
        &["--hdr-digest", "--data-digest"],
    ] {
        verified("ram:16M", &[], digests);
        verified("ram:16M", &[], &[digests, &["--bs", "64k"]].concat());
    }
}

#[test]
fn small_and_large_requests_give_back_what_was_written() {
    for (bs, depth) in [("512", "32"), ("64k", "16"), ("128k", "8"), ("1M", "2")] {
        verified("ram:16M", &[], &["--bs", bs, "--iodepth", depth]);
    }
}

/// More than a connection keeps to send by reference: it says no to some, and uses again what was
/// answered only.
#[test]
fn more_large_writes_at_once_than_are_staged_give_back_what_was_written() {
    let load = ["--bs", "256k", "--iodepth", "64", "--size", "32M"];
    verified("ram:32M", &[], &load);
}

#[test]
fn several_jobs_and_several_queues_do_not_disturb_each_other() {
    verified("ram:16M", &[], &["--numjobs", "2"]);
    verified(
        "ram:16M",
        &[],
        &["--nr-io-queues", "2", "--queue-size", "32"],
    );
    verified(
        "ram:16M",
        &[],
        &["--numjobs", "2", "--nr-io-queues", "2", "--iodepth", "64"],
    );
}

#[test]
fn a_queue_that_is_smaller_than_the_depth_only_makes_requests_wait() {
    verified("ram:16M", &[], &["--queue-size", "2", "--iodepth", "64"]);
}

#[test]
fn one_shard_and_two_shards_serve_the_same() {
    let processors = processors();
    verified(
        "ram:16M",
        &["--cores", &processors[0]],
        &["--cores", &processors[0]],
    );
    let [first, second, ..] = &processors[..] else {
        return skipped("two shards", "there is one processor");
    };
    let both = format!("{first},{second}");
    verified(
        "ram:16M",
        &["--cores", &both],
        &["--cores", &both, "--numjobs", "2"],
    );
}

#[test]
fn the_result_has_the_keys_of_fio() {
    let serve = Serve::start(&["ram:16M"]);
    let result = bench(&[
        &serve.uri(0),
        "--rw",
        "rw",
        "--rwmixread",
        "70",
        "--runtime",
        "200ms",
    ]);
    assert_eq!(result["schema"], 1);
    for side in ["read", "write"] {
        for key in [
            "iops",
            "bw_bytes",
            "total_ios",
            "io_bytes",
            "clat_ns/mean",
            "lat_ns/max",
        ] {
            assert!(figure(&result, &format!("/jobs/0/{side}/{key}")) > 0.0);
        }
        let clat = format!("/jobs/0/{side}/clat_ns/percentile");
        let median = figure(&result, &format!("{clat}/50.000000"));
        assert!(median > 0.0 && median <= figure(&result, &format!("{clat}/99.900000")));
    }
    let bytes = figure(&result, "/jobs/0/read/io_bytes");
    assert_eq!(bytes, figure(&result, "/jobs/0/read/total_ios") * 4096.0);
    assert_eq!(result["jobs"][0]["job options"]["rwmixread"], "70");
    assert!(figure(&result, "/cpu/machine_cores") > 0.0);
    assert_eq!(result["per_job"].as_array().map(Vec::len), Some(1));
}

#[test]
fn the_summary_for_people_has_rates_and_latencies() {
    let ended = fabrix(&[
        "bench",
        "ram:16M",
        "--rw",
        "randrw",
        "--verify",
        "--runtime",
        "100ms",
    ]);
    ended.exits(0);
    for part in [
        "randrw: ",
        "read: IOPS=",
        "write: IOPS=",
        "clat",
        "99.00th=",
        "cpu: ",
        ", 0 wrong",
    ] {
        assert!(ended.stdout.contains(part), "`{part}` is missing:\n{ended}");
    }
    // What else the machine did meanwhile is not the disk's.
    let is_of_machine = |line: &str| line.starts_with("fabrix: warning: ");
    assert!(ended.stderr.lines().all(is_of_machine), "{ended}");
}

#[test]
fn what_the_disk_promises_is_said_with_its_export() {
    let folder = scratch();
    let (direct, cached) = (path_in(&folder, "a"), path_in(&folder, "b"));
    let file = format!("{cached},size=8M,direct=off");
    let serve = Serve::start(&["ram:8M", &file, "null:8M,name=nothing"]);
    let exports = &serve.json["exports"];
    assert_eq!(
        (&exports[0]["durable"], &exports[1]["durable"]),
        (&false.into(), &true.into())
    );
    assert_eq!(exports[1]["volatile_cache"], true, "the page cache is one");
    assert_eq!(exports[2]["name"], "nothing");
    serve
        .process
        .hears("ram:8M: what is written there is gone", 1);
    assert!(
        !serve.process.said().contains(&format!("{cached},size")),
        "a file stays"
    );
    drop(serve);
    assert!(
        !std::path::Path::new(&direct).exists(),
        "only what is named is made"
    );
}

#[test]
fn a_disk_keeps_its_identity_when_it_is_served_again() {
    let identity = || Serve::start(&["ram:8M", "ram:8M", "null:8M"]).json["exports"].take();
    let (first, again) = (identity(), identity());
    for index in 0..3 {
        assert_eq!(first[index]["uuid"], again[index]["uuid"]);
    }
    assert_ne!(
        first[0]["uuid"], first[1]["uuid"],
        "two equal RAM disks are two disks"
    );
}

/// The uuid and the name that `serve` says a disk has.
fn identity(disk: &str) -> (String, String) {
    let serve = Serve::start(&[disk]);
    let export = serve.json["exports"][0].clone();
    let text = |key: &str| export[key].as_str().expect("a text").to_owned();
    (text("uuid"), text("name"))
}

#[test]
fn a_file_is_the_same_disk_with_whatever_options_it_is_opened() {
    let folder = scratch();
    let path = path_in(&folder, "disk");
    let made = identity(&format!("file:{path},size=1M,direct=off"));
    let again = identity(&format!("file:{path},direct=off"));
    assert_eq!(made.0, again.0);
    let beside = identity(&format!("file:{path}2,size=1M,direct=off"));
    assert_ne!(made.0, beside.0);
}

#[test]
fn a_remote_disk_is_itself_until_it_is_given_a_name() {
    let serve = Serve::start(&["ram:1M,name=first"]);
    let (own, _) = identity("ram:1M,name=first");
    let (passed_on, _) = identity(&serve.uri(0));
    assert_eq!(own, passed_on);
    let (renamed, name) = identity(&format!("{},name=second", serve.uri(0)));
    assert_ne!(own, renamed);
    assert_eq!(name, "second");
}
