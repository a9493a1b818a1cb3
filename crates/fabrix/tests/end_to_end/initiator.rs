//! iSCSI from the other side: disks behind `iscsi://` are measured, verified, served again, and
//! survive their target.

use super::harness::{
    Running, Serve, bench, engines, fabrix, figure, path_in, scratch, wait_until_written,
};

const LISTEN: [&str; 2] = ["--listen", "iscsi://127.0.0.1:0"];

fn serve(args: &[&str]) -> Serve {
    Serve::start(&[args, &LISTEN].concat())
}

fn portal(serve: &Serve) -> String {
    let portal = serve.json["portals"][0].as_str().expect("a portal");
    portal.to_owned()
}

/// Measures a disk with verification, and checks that something was.
#[track_caller]
fn verify(args: &[&str]) {
    let load = [
        "--rw",
        "randrw",
        "--verify",
        "--iodepth",
        "16",
        "--runtime",
        "300ms",
    ];
    let result = bench(&[args, &load].concat());
    assert_eq!(result["jobs"][0]["verify"]["errors"], 0);
    assert!(figure(&result, "/jobs/0/verify/blocks_checked") > 0.0);
}

#[test]
fn what_is_written_over_iscsi_is_read_back_with_and_without_digests() {
    for engine in engines() {
        let target = serve(&["ram:32M", "--engine", engine]);
        let uri = target.uri(0);
        assert!(uri.starts_with("iscsi://"), "{uri}");
        verify(&[&uri, "--engine", engine]);
        verify(&[
            &uri,
            "--engine",
            engine,
            "--hdr-digest",
            "--data-digest",
            "--bs",
            "16k",
        ]);
        verify(&[
            &format!("{uri},data-digest"),
            "--bs",
            "256k",
            "--numjobs",
            "2",
        ]);
        target.stop();
    }
}

#[test]
fn discover_lists_the_targets_of_a_portal() {
    let target = serve(&["ram:16M", "--iqn", "iqn.2026-01.example:listed"]);
    let at = format!("iscsi://{}", portal(&target));
    let ended = fabrix(&["discover", &at]);
    ended.exits(0);
    assert!(
        ended.stdout.contains("iqn.2026-01.example:listed"),
        "{ended}"
    );
    let ended = fabrix(&["discover", &at, "-o", "json"]);
    let listed = ended.json();
    assert_eq!(listed["targets"][0]["name"], "iqn.2026-01.example:listed");
    assert_eq!(listed["targets"][0]["portals"][0]["address"], "127.0.0.1");
    // The only target, and its first disk, need no names.
    verify(&[&at]);
    target.stop();
}

#[test]
fn what_cannot_be_had_ends_with_a_sentence_and_a_number() {
    let target = serve(&["ram:16M"]);
    let (uri, at) = (target.uri(0), portal(&target));
    let short = ["--runtime", "100ms"];
    let run = |uri: &str| fabrix(&[&["bench", uri][..], &short].concat());
    run(&format!("iscsi://{at}/iqn.2026-01.example:nobody"))
        .exits(3)
        .says(&["no target of this name", "fabrix discover"]);
    let stem = uri.strip_suffix("/0").expect("LUN 0");
    run(&format!("{stem}/5")).exits(3).says(&["no LUN 5"]);
    run(&format!("{stem}/70000")).exits(2).says(&["16383"]);
    run(&format!("{stem}/0,queues=3"))
        .exits(2)
        .says(&["`queues`", "data-digest"]);
    run(&format!("iscsi://me%short@{at}/x"))
        .exits(2)
        .says(&["12 to 255 bytes"]);
    run(&format!("iscsi://me@{at}/x"))
        .exits(2)
        .says(&["the secret of me is missing"]);
    target.stop();
    run(&uri).exits(3).says(&["nothing listens there"]);
}

#[test]
fn a_target_that_is_killed_and_restarted_under_load_loses_nothing_over_iscsi() {
    for engine in engines() {
        let folder = scratch();
        let disk = path_in(&folder, "disk");
        let args = [&format!("{disk},size=16M"), "--engine", engine];
        let mut target = serve(&args);
        let (listen, uri) = (format!("iscsi://{}", portal(&target)), target.uri(0));
        let load = [
            "bench",
            &uri,
            "--rw",
            "randrw",
            "--verify",
            "--iodepth",
            "16",
            "--size",
            "256k",
            "--runtime",
            "5s",
            "--engine",
            engine,
        ];
        let mut load = Running::start(&load);
        for round in 1..=4 {
            wait_until_written(&disk);
            drop(target);
            load.hears("reconnecting", round);
            target = Serve::start_again_on(&args, &listen);
            load.hears("connected again", round);
            assert!(
                load.is_running(),
                "the load was over before round {round} was"
            );
        }
        let ended = load.ended();
        ended.exits(0);
        assert!(ended.stdout.contains(", 0 wrong"), "{ended}");
        target.stop();
    }
}

#[test]
fn a_chain_of_two_targets_speaks_iscsi_on_both_sides() {
    let last = serve(&["ram:16M"]);
    let middle = serve(&[&last.uri(0), "--hdr-digest", "--data-digest"]);
    let (there, here) = (&last.json["exports"][0], &middle.json["exports"][0]);
    assert_eq!(there["size_bytes"], here["size_bytes"]);
    verify(&[&middle.uri(0)]);
    verify(&[&middle.uri(0), "--bs", "128k"]);
    middle.stop();
    last.stop();
}

#[test]
fn one_disk_over_both_protocols_at_once_verifies_on_both() {
    let nvme = ["--listen", "nvme+tcp://127.0.0.1:0"];
    let target = Serve::start(&[&["ram:32M"][..], &nvme, &LISTEN].concat());
    let export = &target.json["exports"][0];
    let uri = |key: &str| export[key].as_str().expect("a URI").to_owned();
    let half = |uri: &str, offset: &str| {
        Running::start(&[
            "bench",
            uri,
            "--rw",
            "randrw",
            "--verify",
            "--iodepth",
            "16",
            "--runtime",
            "1s",
            "--offset",
            offset,
            "--size",
            "16M",
        ])
    };
    let (one, other) = (half(&uri("uri"), "0"), half(&uri("iscsi_uri"), "16M"));
    for load in [one, other] {
        let ended = load.ended();
        ended.exits(0);
        assert!(ended.stdout.contains(", 0 wrong"), "{ended}");
    }
    target.stop();
}
