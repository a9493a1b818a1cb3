//! A remote disk is a disk: C serves a file, B serves what C serves, A uses what B serves, and C's
//! file has it.

use std::fs::File;
use std::os::unix::fs::FileExt;

use super::harness::{Serve, bench, engines, fabrix, figure, path_in, scratch};

/// Where A writes, in bytes.
const SIZE: u64 = 1 << 20;

#[test]
fn what_is_written_through_two_targets_stands_on_the_disk_of_the_last() {
    for engine in engines() {
        let folder = scratch();
        let path = path_in(&folder, "disk");
        let last = Serve::start(&[&format!("{path},size=16M,direct=off"), "--engine", engine]);
        let middle = Serve::start(&[&last.uri(0), "--engine", engine]);
        let (there, here) = (&last.json["exports"][0], &middle.json["exports"][0]);
        assert_eq!(there["size_bytes"], here["size_bytes"]);
        assert_eq!(there["block_bytes"], here["block_bytes"]);
        assert_eq!(
            there["volatile_cache"], here["volatile_cache"],
            "a cache behind is a cache"
        );
        let size = SIZE.to_string();
        // Sequential for long enough: every place is written.
        let load = [
            "--rw",
            "write",
            "--bs",
            "64k",
            "--iodepth",
            "4",
            "--size",
            &size,
            "--verify",
        ];
        let result = bench(&[&[middle.uri(0).as_str(), "--runtime", "300ms"], &load[..]].concat());
        assert!(
            figure(&result, "/jobs/0/write/io_bytes") >= 1048576.0,
            "too slow to cover the region"
        );
        assert_eq!(result["jobs"][0]["verify"]["errors"], 0);
        bench(&[
            &last.uri(0),
            "--rw",
            "read",
            "--size",
            &size,
            "--runtime",
            "50ms",
        ]);
        assert!(is_stamped_throughout(&path));
        middle.stop();
        last.stop();
    }
}

#[test]
fn a_mix_over_two_targets_verifies_with_digests_on_the_inner_way() {
    let last = Serve::start(&["ram:16M"]);
    let middle = Serve::start(&[&last.uri(0), "--hdr-digest", "--data-digest"]);
    let load = [
        "--rw",
        "randrw",
        "--verify",
        "--iodepth",
        "16",
        "--numjobs",
        "2",
    ];
    let result = bench(&[&[middle.uri(0).as_str(), "--runtime", "200ms"], &load[..]].concat());
    assert_eq!(result["jobs"][0]["verify"]["errors"], 0);
    assert!(figure(&result, "/jobs/0/verify/blocks_checked") > 0.0);
}

#[test]
fn an_array_over_remote_disks_verifies() {
    let other = ["ram:8M", "--nqn", "nqn.2026-01.io.fabrix.test:other"];
    let (one, two) = (Serve::start(&["ram:8M"]), Serve::start(&other));
    let array = Serve::start(&[&format!("raid0:chunk=64k,({},{})", one.uri(0), two.uri(0))]);
    assert_eq!(array.json["exports"][0]["size_bytes"], 16 << 20);
    let load = [
        "--rw",
        "randrw",
        "--verify",
        "--bs",
        "128k",
        "--iodepth",
        "4",
    ];
    let result = bench(&[&[array.uri(0).as_str(), "--runtime", "200ms"], &load[..]].concat());
    assert_eq!(result["jobs"][0]["verify"]["errors"], 0);
}

#[test]
fn one_remote_disk_is_not_taken_for_two_wherever_two_disks_meet() {
    let folder = scratch();
    let both = [
        "--listen",
        "nvme+tcp://127.0.0.1:0",
        "--listen",
        "iscsi://127.0.0.1:0",
    ];
    let serve = Serve::start(&[&["ram:8M", "ram:8M"], &both[..]].concat());
    let (uri, second) = (serve.uri(0), serve.uri(1));
    let iscsi = serve.json["exports"][0]["iscsi_uri"]
        .as_str()
        .expect("a URI");
    let refused = |args: &[&str]| {
        fabrix(args).exits(2).says(&[&uri, "are one disk"]);
    };
    let write = ["--rw", "write", "--bs", "64k", "--verify"];
    for other in [uri.as_str(), iscsi, &format!("{uri},name=other")] {
        let array = format!("raid0:chunk=64k,({uri},{other})");
        refused(&[&["bench", array.as_str()], &write[..]].concat());
        refused(&["serve", &uri, other, "--listen", "nvme+tcp://127.0.0.1:0"]);
        refused(&[
            "bench",
            "sgp_dd",
            &format!("if={uri}"),
            &format!("of={other}"),
        ]);
        let deep = format!("raid0:({second},{uri})");
        refused(&["serve", &deep, other, "--listen", "nvme+tcp://127.0.0.1:0"]);
    }
    let api = format!("unix:{}", path_in(&folder, "api"));
    let named = ["--nqn", "nqn.2026-01.io.fabrix.test:middle"];
    let _middle = Serve::start(&[&[uri.as_str(), "--api", &api], &named[..]].concat());
    let ctl = |verb: &[&str]| fabrix(&[&["ctl", "--api", &api, "namespace"], verb].concat());
    ctl(&["add", iscsi])
        .exits(2)
        .says(&[&uri, iscsi, "one disk"]);
    ctl(&["add", &second]).exits(0);
    // What has gone may come back.
    ctl(&["remove", "1"]).exits(0);
    ctl(&["add", iscsi]).exits(0);
    // Two disks are two, and one that is measured in two ways is not used in both at once.
    let array = format!("raid0:chunk=64k,({uri},{second})");
    bench(&[&[array.as_str(), "--runtime", "50ms"], &write[..]].concat());
    let sides = ["starwind", &uri, "--against", iscsi, "--runtime", "0.01"];
    let short = ["--ramp", "0", "--size", "1M", "--allow-write"];
    fabrix(&[&["bench"], &sides[..], &short].concat()).exits(0);
}

#[test]
fn two_processes_that_serve_memory_serve_different_disks() {
    let served = |listen: &str| {
        let words = [
            "serve", "ram:16M", "-o", "json", "--run", "true", "--listen", listen,
        ];
        let ended = fabrix(&words);
        let json = ended
            .exits(0)
            .stdout
            .lines()
            .next()
            .map(serde_json::from_str);
        let json: serde_json::Value = json.expect("a line").expect("JSON");
        [&json["nqn"], &json["iqn"], &json["exports"][0]["uuid"]].map(ToString::to_string)
    };
    for listen in ["iscsi://127.0.0.1:0", "nvme+tcp://127.0.0.1:0"] {
        let (one, other) = (served(listen), served(listen));
        for (one, other) in one.iter().zip(&other) {
            assert_ne!(one, other, "{listen}");
        }
    }
}

#[test]
fn a_target_whose_disk_cannot_be_reached_does_not_start() {
    let serve = Serve::start(&["ram:8M"]);
    let gone = serve.uri(0);
    serve.stop();
    let ended = fabrix(&["serve", &gone, "--listen", "nvme+tcp://127.0.0.1:0"]);
    ended.exits(3).says(&[&gone, "nothing listens there"]);
}

/// Whether every 4 KiB of the written region begins with the header of a verified block: its magic
/// number and its own offset.
fn is_stamped_throughout(path: &str) -> bool {
    let mut bytes = vec![0; usize::try_from(SIZE).expect("a megabyte")];
    let file = File::open(path).expect("it was served");
    file.read_exact_at(&mut bytes, 0).expect("it is longer");
    let stamp = |(offset, block): (u64, &[u8])| {
        block.starts_with(&[0xca, 0xac]) && block[16..24] == offset.to_le_bytes()
    };
    (0..).step_by(4096).zip(bytes.chunks(4096)).all(stamp)
}
