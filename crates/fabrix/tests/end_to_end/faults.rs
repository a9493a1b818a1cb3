//! Disks that fail, are slow, or lose what was written: what the person sees and what the script
//! gets.

use super::harness::{Serve, bench, engines, fabrix, figure};

#[test]
fn a_failing_disk_gives_exit_code_1_with_the_count_and_the_first_error() {
    for engine in engines() {
        let serve = Serve::start(&["ram:64M,inject=error:1%", "--engine", engine]);
        let uri = serve.uri(0);
        let load = [
            "--rw",
            "randread",
            "--iodepth",
            "8",
            "--runtime",
            "30s",
            "--engine",
            engine,
        ];
        let ended = fabrix(&[&["bench", &uri, "-o", "json"], &load[..]].concat());
        ended.exits(1).says(&[
            &uri,
            " failed; the first: job 0: the read of 8 blocks at LBA",
            "MediaRead",
        ]);
        assert!(
            !ended.stderr.contains("reconnecting"),
            "an I/O error does not end the connection: {ended}"
        );
        let job = &ended.json()["jobs"][0];
        assert_eq!(job["error"], 1);
        assert!(figure(job, "/errors/by_status/MediaRead") >= 1.0, "{job:#}");
    }
}

#[test]
fn a_write_that_fails_is_a_write_error_on_the_other_side_too() {
    let serve = Serve::start(&["ram:64M,inject=error:3:write"]);
    let ended = fabrix(&[
        "bench",
        &serve.uri(0),
        "--rw",
        "randwrite",
        "--runtime",
        "30s",
    ]);
    ended
        .exits(1)
        .says(&["1 I/O failed", "the write of 8 blocks", "MediaWrite"]);
}

#[test]
fn a_target_stays_usable_after_an_io_error() {
    for engine in engines() {
        let serve = Serve::start(&["ram:64M,inject=error:100:read", "--engine", engine]);
        let first = fabrix(&["bench", &serve.uri(0), "--runtime", "30s", "--iodepth", "4"]);
        first.exits(1).says(&["1 I/O failed", "MediaRead"]);
        let load = [
            "--rw",
            "randrw",
            "--verify",
            "--runtime",
            "100ms",
            "--iodepth",
            "8",
        ];
        let again = bench(&[&[serve.uri(0).as_str()], &load[..]].concat());
        assert_eq!(again["jobs"][0]["verify"]["errors"], 0);
        let said = serve.stop().stderr;
        assert!(
            !said.contains("violation") && !said.contains("panicked"),
            "{said}"
        );
    }
}

#[test]
fn a_delay_shows_in_the_latency() {
    for engine in engines() {
        let serve = Serve::start(&["ram:64M,inject=delay:2ms", "--engine", engine]);
        let load = ["--runtime", "200ms", "--iodepth", "4", "--engine", engine];
        let result = bench(&[&[serve.uri(0).as_str()], &load[..]].concat());
        let (mean, least) = ("/jobs/0/read/clat_ns/mean", "/jobs/0/read/clat_ns/min");
        assert!(figure(&result, mean) >= 2e6, "{result:#}");
        assert!(figure(&result, least) >= 2e6, "{result:#}");
        assert!(figure(&result, "/jobs/0/read/total_ios") > 0.0);
    }
}

#[test]
fn a_disk_that_forgets_what_was_written_gives_exit_code_5() {
    for engine in engines() {
        let serve = Serve::start(&["null:16M", "--engine", engine]);
        let uri = serve.uri(0);
        let load = [
            "--rw",
            "randwrite",
            "--verify",
            "--runtime",
            "100ms",
            "--engine",
            engine,
        ];
        let ended = fabrix(&[&["bench", &uri, "-o", "json"], &load[..]].concat());
        ended
            .exits(5)
            .says(&[&uri, " wrong block", "(LBA ", "found zeroes"]);
        assert!(
            figure(&ended.json(), "/jobs/0/verify/errors") > 0.0,
            "{ended}"
        );
    }
}

/// An array whose two members are one and the same disk, which one of them hides behind another
/// name: every other chunk overwrites its neighbour. Which of the first two was overwritten depends
/// on where the running time ended.
#[test]
fn blocks_at_the_wrong_place_give_exit_code_5_and_the_first_is_named() {
    let serve = Serve::start(&["ram:64k"]);
    let uri = serve.uri(0);
    let named = ["--nqn", "nqn.2026-01.io.fabrix.test:named"];
    let again = Serve::start(&[&[format!("{uri},name=another").as_str()], &named[..]].concat());
    let array = format!("raid0:chunk=4k,({uri},{})", again.uri(0));
    let ended = fabrix(&[
        "bench",
        &array,
        "--rw",
        "write",
        "--verify",
        "--runtime",
        "100ms",
    ]);
    let (overwritten, by) = if ended.stderr.contains("the first: offset 0 ") {
        ("offset 0 (LBA 0)", "offset 4096")
    } else {
        ("offset 4096 (LBA 8)", "offset 0")
    };
    ended.exits(5).says(&[
        &format!("the first: {overwritten}"),
        &format!("of the block at {by} (a misdirected block)"),
    ]);
}
