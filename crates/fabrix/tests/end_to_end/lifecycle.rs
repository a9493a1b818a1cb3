//! How serving begins and ends: `--run`, signals, idle and under load; readers that go away;
//! `doctor`.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::harness::{
    NQN, Running, Serve, bench, engines, fabrix, make_file, path_in, processors, scratch,
    wait_until_written,
};

/// Leaving takes no longer, whatever the load.
const A_FEW_SECONDS: Duration = Duration::from_secs(10);

fn run(command: &str) -> Vec<&str> {
    vec![
        "serve",
        "ram:16M",
        "--listen",
        "nvme+tcp://127.0.0.1:0",
        "--run",
        command,
    ]
}

#[test]
fn serve_run_ends_with_the_exit_status_of_the_command() {
    fabrix(&run("exit 0")).exits(0);
    fabrix(&run("exit 7")).exits(7);
    fabrix(&run("kill -KILL $$")).exits(128 + 9);
    fabrix(&run("no-such-command-anywhere")).exits(127);
}

#[test]
fn serve_run_sets_the_uri_and_finds_this_program() {
    let ended = fabrix(&run(
        "echo uri=$uri; fabrix bench $uri --rw randrw --verify --runtime 100ms",
    ));
    ended.exits(0);
    let uri = ended
        .stdout
        .lines()
        .find_map(|line| line.strip_prefix("uri="));
    let uri = uri.expect("the command has printed it");
    assert!(
        uri.starts_with("nvme+tcp://127.0.0.1:") && uri.contains("/nqn.2026-01.io.fabrix:disks-"),
        "{uri}"
    );
    assert!(ended.stdout.contains("IOPS="), "{ended}");
}

#[test]
fn serve_hands_a_sigterm_on_to_the_command_it_runs() {
    let serve = Running::start(&run(
        "trap 'exit 9' TERM; echo waiting >&2; while :; do sleep 0.05; done",
    ));
    serve.hears("waiting", 1);
    let asked = Instant::now();
    serve.signal("TERM");
    serve.ended().exits(9);
    assert!(asked.elapsed() < A_FEW_SECONDS);
}

#[test]
fn sigterm_and_sigint_end_an_idle_target_with_success() {
    for engine in engines() {
        for signal in ["TERM", "INT"] {
            let serve = Serve::start(&["ram:16M", "--engine", engine]);
            let asked = Instant::now();
            serve.process.signal(signal);
            serve.process.ended().exits(0);
            assert!(asked.elapsed() < A_FEW_SECONDS, "{engine}, SIG{signal}");
        }
    }
}

#[test]
fn sigterm_and_sigint_end_a_target_under_load_with_success() {
    let folder = scratch();
    for engine in engines() {
        for signal in ["TERM", "INT"] {
            let path = path_in(&folder, &format!("{engine}-{signal}"));
            let serve = Serve::start(&[&format!("{path},size=16M,direct=off"), "--engine", engine]);
            let uri = serve.uri(0);
            let load = [
                "--rw",
                "randwrite",
                "--iodepth",
                "32",
                "--size",
                "256k",
                "--runtime",
                "60s",
            ];
            let short = ["--fast-io-fail-tmo", "1s"];
            let load = Running::start(&[&["bench", &uri], &load[..], &short[..]].concat());
            wait_until_written(&path);
            let asked = Instant::now();
            serve.process.signal(signal);
            serve.process.ended().exits(0);
            assert!(asked.elapsed() < A_FEW_SECONDS, "{engine}, SIG{signal}");
            load.ended().exits(1).says(&["reconnecting", &uri]);
        }
    }
}

#[test]
fn a_disk_that_does_not_answer_does_not_keep_a_target_from_ending() {
    let folder = scratch();
    let path = path_in(&folder, "disk");
    let disk = format!("{path},size=16M,direct=off,inject=delay:40s:write");
    let serve = Serve::start(&[&disk]);
    let uri = serve.uri(0);
    let write = ["--rw", "write", "--number-ios", "1", "--size", "256k"];
    let short = ["--fast-io-fail-tmo", "1s"];
    let load = Running::start(&[&["bench", &uri], &write[..], &short[..]].concat());
    wait_until_written(&path);
    let asked = Instant::now();
    serve.process.signal("TERM");
    let ended = serve.process.ended();
    ended
        .exits(0)
        .says(&["the disk of 1 connection does not answer"]);
    assert!(asked.elapsed() < A_FEW_SECONDS);
    load.ended().exits(1);
}

#[test]
fn a_hang_up_ends_no_target_and_neither_does_what_other_programs_give_a_meaning() {
    for engine in engines() {
        let serve = Serve::start(&["ram:16M", "--engine", engine]);
        for signal in ["USR1", "USR2", "PIPE", "XFSZ", "HUP"] {
            serve.process.signal(signal);
        }
        serve.process.hears("SIGHUP changes nothing", 1);
        bench(&[&serve.uri(0), "--number-ios", "10"]);
        serve.stop();
    }
}

#[test]
fn a_file_that_may_not_grow_any_more_fails_writes_and_not_its_target() {
    let folder = scratch();
    for engine in engines() {
        let path = path_in(&folder, engine);
        make_file(&path, 16 << 20, 0, &[]);
        let load = "fabrix bench $uri --rw write --bs 64k --number-ios 64; echo $?";
        let script = format!(
            "ulimit -f 2048; exec {} serve {path},direct=off --engine {engine} --listen {} --run '{load}; {}'",
            env!("CARGO_BIN_EXE_fabrix"),
            "nvme+tcp://127.0.0.1:0",
            "fabrix bench $uri --number-ios 1 -o json",
        );
        let ended = Running::spawn(Command::new("sh").arg("-c").arg(script));
        let ended = ended.expect("a shell").ended();
        ended.exits(0);
        assert!(ended.stdout.contains("\n1\n"), "a write failed: {ended}");
    }
}

#[test]
fn idle_connections_do_not_keep_a_target_from_ending() {
    let serve = Serve::start(&["ram:16M"]);
    let uri = serve.uri(0);
    let idle = Running::start(&["bench", &uri, "--hold", "60s", "--numjobs", "4"]);
    serve.process.hears(" connected from", 5);
    let asked = Instant::now();
    serve.stop();
    assert!(asked.elapsed() < A_FEW_SECONDS);
    idle.signal("INT");
    idle.ended().exits(1);
}

#[test]
fn an_idle_connection_costs_a_target_less_than_64_kib() {
    const HOSTS: u64 = 128;
    const OF_A_HOST: u64 = 2; // its admin queue's and an I/O queue's
    let serve = Serve::start(&["ram:16M", "--cores", &processors()[0]]);
    let (uri, pid) = (serve.uri(0), serve.process.pid());
    bench(&[&uri, "--number-ios", "1"]); // code that nobody had run yet counts for no connection
    let alone = memory_kib(pid, "VmRSS:");
    std::fs::write(format!("/proc/{pid}/clear_refs"), "5").expect("forgets the peak until now");
    let jobs = HOSTS.to_string();
    // The second time in memory that was used before, where what is cleared is filled.
    for time in ["100ms", "1s"] {
        fabrix(&["bench", &uri, "--hold", time, "--numjobs", &jobs]).exits(0);
    }
    let each = (memory_kib(pid, "VmHWM:") - alone) / (HOSTS * OF_A_HOST);
    // Less than half of what it is would mean that they were not there.
    assert!((20..64).contains(&each), "{each} KiB a connection");
}

/// A line of a process's status (proc(5)).
fn memory_kib(pid: u32, name: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
    let found = status.lines().find_map(|line| line.strip_prefix(name));
    let kib = found.and_then(|text| text.split_whitespace().next()?.parse().ok());
    kib.expect("a number of kB")
}

#[test]
fn an_interrupted_bench_prints_what_it_has_and_says_so() {
    let folder = scratch();
    let path = path_in(&folder, "disk");
    let load = ["--rw", "randwrite", "--size", "256k", "--runtime", "60s"];
    let disk = format!("{path},direct=off");
    // A hang-up that `nohup` takes away is no interrupt. A second interrupt would end it with 130.
    for (hang_up, signals) in [
        ("--default-signal=HUP", &["INT"][..]),
        ("--default-signal=HUP", &["HUP"]),
        ("--ignore-signal=HUP", &["HUP", "INT"]),
    ] {
        make_file(&path, 16 << 20, 0, &[]);
        let mut bench = Command::new("env");
        bench.args([hang_up, env!("CARGO_BIN_EXE_fabrix"), "bench", &disk]);
        let bench = Running::spawn(bench.args(load)).expect("env is everywhere");
        wait_until_written(&path);
        for signal in signals {
            bench.signal(signal);
        }
        let ended = bench.ended();
        ended.exits(1).says(&["interrupted: what was measured"]);
        assert!(ended.stdout.contains("write: IOPS="), "{ended}");
    }
}

#[test]
fn an_interrupt_ends_a_bench_that_waits_for_a_silent_target() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let uri = format!("nvme+tcp://{}/{NQN}/1", silent.local_addr().expect("bound"));
    let bench = Running::start(&["bench", &uri]);
    let (_connection, _) = silent.accept().expect("it connects");
    bench.signal("INT");
    bench.ended().exits(130);
}

#[test]
fn exports_are_printed_with_the_line_for_nvme_connect() {
    let listen = ["--listen", "nvme+tcp://127.0.0.1:0"];
    let ended = fabrix(
        &[
            &["serve", "ram:16M", "null:1T,ro", "--run", "true"],
            &["--nqn", NQN][..],
            &listen[..],
        ]
        .concat(),
    );
    ended.exits(0);
    let lines: Vec<&str> = ended.stdout.lines().collect();
    assert_eq!(lines.len(), 3, "{ended}");
    let words: Vec<&str> = lines[0].split_whitespace().collect();
    assert!(words[0].starts_with("nvme+tcp://127.0.0.1:"), "{ended}");
    assert_eq!(
        words[1..],
        ["ram:16M", "16M,", "512-byte", "blocks"],
        "{ended}"
    );
    assert!(
        lines[1].contains("/2  null:1T,ro  1T, 512-byte blocks, read-only"),
        "{ended}"
    );
    let port = words[0]["nvme+tcp://127.0.0.1:".len()..]
        .split('/')
        .next()
        .expect("a port");
    let connect = format!("  nvme connect -t tcp -a 127.0.0.1 -s {port} -n {NQN}");
    assert_eq!(lines[2], connect, "{ended}");
}

#[test]
fn a_reader_of_the_results_may_go_away() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fabrix"));
    command.args(["bench", "ram:16M", "--runtime", "50ms", "-o", "json"]);
    let mut child = command
        .stdout(Stdio::piped())
        .spawn()
        .expect("it was just built");
    drop(child.stdout.take());
    assert_eq!(child.wait().expect("it is our child").code(), Some(0));
}

#[test]
fn a_target_goes_on_when_nobody_hears_what_it_says() {
    let script = format!(
        "{{ {0} serve ram:16M --listen nvme+tcp://127.0.0.1:0 --run '{1}; {1}' 2>&1 >&3 | :; }} 3>&1",
        env!("CARGO_BIN_EXE_fabrix"),
        "fabrix bench $uri --runtime 50ms || echo FAILED"
    );
    let ended = Running::spawn(Command::new("sh").arg("-c").arg(script))
        .expect("a shell")
        .ended();
    assert_eq!(ended.stdout.matches("read: IOPS=").count(), 2, "{ended}");
    assert!(!ended.stdout.contains("FAILED"), "{ended}");
}

#[test]
fn doctor_says_what_was_looked_at_and_what_to_do() {
    let json = fabrix(&["doctor", "-o", "json"]).exits(0).json();
    assert_eq!(json["schema"], 1);
    let findings = json["findings"].as_array().expect("findings are a list");
    let text = fabrix(&["doctor"]).exits(0).stdout.clone();
    for subject in [
        "io_uring",
        "processors",
        "huge pages",
        "open files",
        "locked memory",
        "socket buffers",
        "congestion",
        "rdma",
        "ceph",
    ] {
        let finding = findings
            .iter()
            .find(|finding| finding["subject"] == subject);
        let finding = finding.unwrap_or_else(|| panic!("{subject} is missing: {json:#}"));
        assert!(
            finding["found"]
                .as_str()
                .is_some_and(|found| !found.is_empty()),
            "{finding}"
        );
        assert_eq!(
            finding["ok"] == true,
            finding["fix"].is_null(),
            "a fix for what is not well: {finding}"
        );
        let line = text
            .lines()
            .find(|line| line.get(4..).is_some_and(|line| line.starts_with(subject)));
        let mark = if finding["ok"] == true { "ok " } else { "-- " };
        assert!(
            line.is_some_and(|line| line.starts_with(mark)),
            "{subject}:\n{text}"
        );
    }
}

#[test]
fn a_held_connection_measures_nothing_and_ends_in_time() {
    let serve = Serve::start(&["ram:16M"]);
    let ended = fabrix(&["bench", &serve.uri(0), "--hold", "100ms", "--numjobs", "3"]);
    ended.exits(0);
    assert_eq!(ended.stdout, "");
    assert!(bench(&[&serve.uri(0), "--runtime", "50ms"])["jobs"].is_array());
}
