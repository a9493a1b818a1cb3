//! The target dies under verified load: the host waits for it, connects again, and nothing is lost;
//! or it does not come back, and requests fail in time.

use std::time::Duration;

use super::harness::{Running, Serve, bench, engines, path_in, scratch, wait_until_written};

#[test]
fn a_target_that_is_killed_and_restarted_under_load_loses_nothing() {
    engines()
        .iter()
        .for_each(|engine| loses_nothing(engine, drop));
}

#[test]
fn a_target_that_is_ended_well_and_restarted_under_load_loses_nothing() {
    engines()
        .iter()
        .for_each(|engine| loses_nothing(engine, |serve| drop(serve.stop())));
}

/// Ends and restarts a target several times while a verified load runs over it.
#[track_caller]
fn loses_nothing(engine: &str, end: fn(Serve)) {
    let folder = scratch();
    let disk = path_in(&folder, "disk");
    let args = [&format!("{disk},size=16M"), "--engine", engine];
    let mut serve = Serve::start(&args);
    let (port, uri) = (serve.port(), serve.uri(0));
    let load = [
        "--rw",
        "randrw",
        "--verify",
        "--iodepth",
        "16",
        "--size",
        "256k",
    ];
    let how = ["--runtime", "6s", "--nr-io-queues", "2", "--engine", engine];
    let mut load = Running::start(&[&["bench", &uri], &load[..], &how[..]].concat());
    for round in 1..=5 {
        wait_until_written(&disk);
        end(serve);
        load.hears("reconnecting", round);
        serve = Serve::start_again(&args, port);
        load.hears("connected again", round);
        assert!(
            load.is_running(),
            "the load was over before round {round} was"
        );
    }
    let ended = load.ended();
    ended.exits(0).says(&[&format!("127.0.0.1:{port}")]);
    assert!(ended.stdout.contains(", 0 wrong"), "{ended}");
    serve.stop();
}

#[test]
fn a_target_in_the_middle_waits_for_the_one_behind() {
    let folder = scratch();
    let disk = path_in(&folder, "disk");
    let args = [&format!("{disk},size=16M")[..]];
    let mut last = Serve::start(&args);
    let port = last.port();
    let middle = Serve::start(&[&last.uri(0)]);
    let load = [
        "--rw",
        "randrw",
        "--verify",
        "--iodepth",
        "8",
        "--size",
        "256k",
        "--runtime",
        "2s",
    ];
    let load = Running::start(&[&["bench", &middle.uri(0)], &load[..]].concat());
    wait_until_written(&disk);
    last.process.kill();
    middle.process.hears("reconnecting", 1);
    last = Serve::start_again(&args, port);
    middle.process.hears("connected again", 1);
    let ended = load.ended();
    ended.exits(0);
    assert!(
        !ended.stderr.contains("reconnecting"),
        "the one in front noticed nothing: {ended}"
    );
    assert!(ended.stdout.contains(", 0 wrong"), "{ended}");
    drop(last);
}

#[test]
fn requests_fail_in_time_when_the_target_does_not_come_back() {
    let folder = scratch();
    for engine in engines() {
        let disk = path_in(&folder, engine);
        let mut serve = Serve::start(&[&format!("{disk},size=16M,direct=off")]);
        let uri = serve.uri(0);
        let load = [
            "--rw",
            "randrw",
            "--verify",
            "--iodepth",
            "8",
            "--size",
            "256k",
        ];
        let how = [
            "--runtime",
            "60s",
            "--fast-io-fail-tmo",
            "1s",
            "--engine",
            engine,
        ];
        let load = Running::start(&[&["bench", &uri], &load[..], &how[..]].concat());
        wait_until_written(&disk);
        serve.process.kill();
        let killed = std::time::Instant::now();
        let ended = load.ended();
        ended
            .exits(1)
            .says(&["reconnecting", &uri, " failed; the first: ", "NotReady"]);
        let took = killed.elapsed();
        assert!(
            took >= Duration::from_millis(900),
            "requests wait for a second, not {took:?}"
        );
        assert!(took < Duration::from_secs(10), "and not for {took:?}");
    }
}

#[test]
fn what_was_acknowledged_is_there_after_a_kill() {
    let folder = scratch();
    let disk = path_in(&folder, "disk");
    let args = [&format!("{disk},size=16M")[..]];
    let mut serve = Serve::start(&args);
    let port = serve.port();
    bench(&[
        &serve.uri(0),
        "--rw",
        "write",
        "--bs",
        "64k",
        "--size",
        "64k",
        "--runtime",
        "50ms",
    ]);
    let before = std::fs::read(&disk).expect("it is our file");
    assert!(
        before[..64 << 10].iter().any(|byte| *byte != 0),
        "something was written"
    );
    serve.process.kill();
    let serve = Serve::start_again(&args, port);
    bench(&[&serve.uri(0), "--rw", "read", "--runtime", "50ms"]);
    assert!(
        std::fs::read(&disk).expect("it is our file") == before,
        "the bytes are the same"
    );
}
