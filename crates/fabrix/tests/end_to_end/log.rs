//! What the operator reads: the log of a target and of an attached disk, in its three formats.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use super::attach_place::{Place, begin_nbd, until, wait};
use super::harness::{Running, Serve, fabrix, path_in, scratch};

/// The lines of a log in JSON.
fn lines(log: &str) -> Vec<Value> {
    let line = |line: &str| {
        serde_json::from_str(line).unwrap_or_else(|error| panic!("`{line}` is not JSON: {error}"))
    };
    log.lines().map(line).collect()
}

/// Both addresses of the first disk.
fn uris(serve: &Serve) -> [String; 2] {
    ["uri", "iscsi_uri"].map(|key| {
        let uri = serve.json["exports"][0][key].as_str();
        uri.expect("an address").to_owned()
    })
}

const BOTH: [&str; 4] = [
    "--listen",
    "nvme+tcp://127.0.0.1:0",
    "--listen",
    "iscsi://127.0.0.1:0",
];

#[test]
fn a_failing_disk_is_told_at_once_with_what_failed_and_then_counted() {
    for protocol in [0, 1] {
        let disk = "ram:64M,inject=error:100%:write";
        let json = ["--log-format", "json", "--allow", "any"];
        let serve = Serve::start(&[&[disk][..], &BOTH, &json].concat());
        let uri = &uris(&serve)[protocol];
        for _ in 0..3 {
            let load = ["--rw", "write", "--iodepth", "16", "--runtime", "30s"];
            fabrix(&[&["bench", uri][..], &load].concat()).exits(1);
        }
        let log = serve.stop().stderr;
        let all = lines(&log);
        let failed = all.iter().filter(|line| line["status"] == "media-write");
        let failed: Vec<&Value> = failed.collect();
        let first = failed[0];
        assert_eq!(first["level"], "error");
        assert_eq!(first["nsid"], 1);
        assert_eq!(first["operation"], "write");
        assert!(first["blocks"].is_u64() && first["lba"].is_u64(), "{first}");
        let message = first["message"].as_str().unwrap_or_default();
        assert!(message.starts_with("namespace 1 (ram:64M"), "{message}");
        assert_eq!(failed.len(), 2, "the rest is one count: {log}");
        let count = failed[1]["count"].as_u64();
        assert!(count.is_some_and(|count| count >= 2), "{log}");
    }
}

#[test]
fn every_reason_of_a_refusal_has_its_line_and_the_rest_is_counted() {
    let folder = scratch();
    let secret = path_in(&folder, "secret");
    fs::write(&secret, "alice%a-long-enough-secret").expect("a file");
    let private = Command::new("chmod").args(["600", &secret]).status();
    assert!(private.expect("there is chmod").success());
    let chap = format!("@{secret}");
    let known = "iqn.2026-01.example:known";
    let args = ["--chap", &chap, "--allow", known, "--log-format", "json"];
    let listen = ["--listen", "iscsi://127.0.0.1:0"];
    let serve = Serve::start(&[&["ram:8M"][..], &listen, &args].concat());
    let uri = serve.json["exports"][0]["iscsi_uri"].as_str();
    let at = uri
        .and_then(|uri| uri.strip_prefix("iscsi://"))
        .expect("an address");
    let (at, _) = at.split_once('/').expect("a name follows");
    let ask = |user: &str, name: &str| {
        let uri = format!("iscsi://{user}{at}");
        fabrix(&["discover", &uri, "--initiator-name", name]).exits(3);
    };
    for _ in 0..3 {
        ask("", "iqn.2026-01.example:stranger");
        ask("alice%another-secret-of-12@", known);
    }
    let log = serve.stop().stderr;
    let all = lines(&log);
    for host in ["iqn.2026-01.example:stranger", known] {
        let of = || all.iter().filter(|line| line["host"] == host);
        let count = |line: &Value| line["count"].as_u64().unwrap_or(1);
        assert_eq!(of().map(count).sum::<u64>(), 3, "{host}: {log}");
        let first = of().next().expect("a line");
        let message = first["message"].as_str().unwrap_or_default();
        let expected = format!("refused {host} from 127.0.0.1:");
        assert!(message.starts_with(&expected), "{message}");
        assert_eq!(first["level"], "warning");
    }
    assert!(!log.contains("secret-of-12"), "{log}");
}

#[test]
fn a_session_that_ends_says_why() {
    let serve = Serve::start(&[&["ram:8M", "--allow", "any"][..], &BOTH].concat());
    for uri in uris(&serve) {
        fabrix(&["bench", &uri, "--runtime", "100ms"]).exits(0);
    }
    serve.process.hears("has ended: it logged out", 1);
    serve
        .process
        .hears("has ended: it closed the connection", 1);
    let _idle = Running::start(&["bench", &serve.uri(0), "--runtime", "60s"]);
    serve.process.hears(" connected from", 4);
    let log = serve.stop().stderr;
    assert!(
        log.contains("has ended: the target is shutting down"),
        "{log}"
    );
}

/// Whether a line begins with a time as RFC 3339 has it, and then says this.
fn is_timed(line: &str, rest: &str) -> bool {
    let pattern = "dddd-dd-ddTdd:dd:dd.dddZ ";
    let fits = |(char, wanted): (char, char)| match wanted {
        'd' => char.is_ascii_digit(),
        wanted => char == wanted,
    };
    line.len() > pattern.len()
        && line.chars().zip(pattern.chars()).all(fits)
        && line[pattern.len()..].starts_with(rest)
}

#[test]
fn a_line_has_a_time_and_a_level_or_the_priority_that_the_journal_reads() {
    let folder = scratch();
    let path = path_in(&folder, "log");
    let log = File::create(&path).expect("a file");
    let about = log.metadata().expect("it is there");
    let journal = format!("{}:{}", about.dev(), about.ino());
    let serve = |journal: &str, format: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_fabrix"));
        let serves = ["serve", "ram:8M", "--listen", "nvme+tcp://127.0.0.1:0"];
        let bench = ["--run", "fabrix bench $uri --runtime 10ms 2>/dev/null"];
        command
            .args([&serves[..], &bench, format].concat())
            .env("JOURNAL_STREAM", journal)
            .stdout(Stdio::null())
            .stderr(
                File::options()
                    .write(true)
                    .truncate(true)
                    .open(&path)
                    .expect("a file"),
            );
        assert!(command.status().expect("it runs").success());
        fs::read_to_string(&path).expect("a log")
    };
    let connected = |log: &str, is_right: &dyn Fn(&str) -> bool| {
        let mut lines = log.lines().filter(|line| line.contains(" connected from"));
        assert!(lines.next().is_some_and(is_right), "{log}");
    };
    connected(&serve(&journal, &[]), &|line| line.starts_with("<6>nqn."));
    connected(&serve("1:2", &[]), &|line| is_timed(line, "info    nqn."));
    let text = ["--log-format", "text"];
    connected(&serve(&journal, &text), &|line| {
        is_timed(line, "info    nqn.")
    });
    let journald = ["--log-format", "journald"];
    connected(&serve("1:2", &journald), &|line| {
        line.starts_with("<6>nqn.")
    });
    let json = serve(&journal, &["--log-format", "json"]);
    assert!(lines(&json).iter().any(|line| line["level"] == "info"));
    let refused = fabrix(&["serve", "ram:8M", "--log-format", "yaml"]);
    refused.exits(2).says(&["yaml"]);
}

#[test]
fn an_attached_disk_that_fails_is_told_in_its_log() {
    let serve = Serve::start(&["ram:8M,inject=error:100%:read"]);
    let place = Place::new();
    let words = [
        "--as",
        "nbd-socket",
        "--name",
        "bad",
        "--log-format",
        "json",
    ];
    let socket = place.attach(&[&[serve.uri(0).as_str()][..], &words].concat());
    assert!(begin_nbd(&socket).read(0, 512).is_err());
    let log = place.folder().join("bad.log");
    let read = || fs::read_to_string(&log).unwrap_or_default();
    wait("the log says so", || read().contains("media-read"));
    let all = lines(&read());
    let line = all.iter().find(|line| line["status"] == "media-read");
    let line = line.expect("it was there");
    let said = (&line["level"], &line["disk"], &line["operation"]);
    assert_eq!(said, (&json!("error"), &json!("bad"), &json!("read")));
}

#[test]
fn a_target_that_comes_back_with_another_disk_is_unusable_and_says_what_differs() {
    let check = |listen: &str, key: &str| {
        let both = |disk: &'static str| [disk, "--allow", "any"];
        let first = both("ram:16M,name=one");
        let mut serve = Serve::start(&[&first[..], &["--listen", listen]].concat());
        let uri = serve.json["exports"][0][key].as_str();
        let uri = uri.expect("an address").to_owned();
        let (listen, _) = uri
            .split_once("/nqn")
            .or_else(|| uri.split_once("/iqn"))
            .expect("a name");
        let place = Place::new();
        let words = ["--as", "nbd-socket", "--name", "it", "-c", "50ms"];
        let _socket = place.attach(&[&[uri.as_str()][..], &words].concat());
        for (disk, differs) in [
            ("ram:16M,name=two", "another identity"),
            ("ram:16M,name=one,block=4096", "another block size"),
        ] {
            serve.process.kill();
            serve = Serve::start_again_on(&both(disk), listen);
            let found = until(&place, "unusable", |one| {
                let fault = one["fault"].as_str().unwrap_or_default();
                one["state"] == "unusable" && fault.contains(differs)
            });
            assert_eq!(found["paths"][0]["state"], "unusable", "{found}");
            let table = place.run(&["list"]).stdout;
            assert!(
                table.contains("unusable") && table.contains(differs),
                "{table}"
            );
            let top = place
                .run(&["top", "-n", "1", "-i", "100ms", "-o", "json"])
                .json();
            let fault = top["disks"][0]["fault"].as_str().unwrap_or_default();
            assert!(fault.contains(differs), "{top}");
            let log = fs::read_to_string(place.folder().join("it.log")).expect("a log");
            let is_told = |line: &str| line.contains(" error ") && line.contains(differs);
            assert!(log.lines().any(is_told), "{log}");
        }
        serve.process.kill();
        let _same = Serve::start_again_on(&first, listen);
        let back = until(&place, "back", |one| one["state"] == "attached");
        assert!(back["fault"].is_null(), "{back}");
    };
    check("nvme+tcp://127.0.0.1:0", "uri");
    check("iscsi://127.0.0.1:0", "iscsi_uri");
}
