//! Secrets are shown nowhere: not in messages, lists, answers and files, and not to other
//! processes.

use std::fs::{self, Permissions};
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::time::Instant;

use super::harness::{BOUND, Running, Serve, bench, fabrix, path_in, scratch};

/// Stands in every secret of these tests.
const MARKER: &str = "hushhush";
const OURS: &str = "hushhush-is-ours";
const THEIRS: &str = "theirs-hushhush";

/// A target that asks for [`OURS`] and proves [`THEIRS`].
fn target() -> Serve {
    let (chap, mutual) = (format!("me%{OURS}"), format!("it%{THEIRS}"));
    Serve::start(&[
        "ram:16M",
        "--listen",
        "iscsi://127.0.0.1:0",
        "--chap",
        &chap,
        "--mutual-chap",
        &mutual,
    ])
}

/// Its first disk, with an account.
fn disk(target: &Serve, account: &str) -> String {
    let uri = target.uri(0);
    uri.replace("iscsi://", &format!("iscsi://{account}@"))
}

/// Sends one request to a control socket, and gives the answer.
fn ask(api: &str, request: &str, body: &str) -> String {
    let path = api.strip_prefix("unix:").expect("a path");
    let mut socket = UnixStream::connect(path).expect("it listens");
    let head = "Host: x\r\nConnection: close\r\nContent-Type: application/json";
    let length = body.len();
    write!(
        socket,
        "{request} HTTP/1.1\r\n{head}\r\nContent-Length: {length}\r\n\r\n{body}"
    )
    .expect("it reads");
    let mut answer = String::new();
    socket.read_to_string(&mut answer).expect("it answers");
    answer
}

/// Writes a file that only we may read.
fn private(path: &str, text: &str) {
    let _from_before = fs::remove_file(path);
    fs::write(path, text).expect("the folder is ours");
    fs::set_permissions(path, Permissions::from_mode(0o600)).expect("the file is ours");
}

#[test]
fn no_command_repeats_a_secret_however_wrong_its_words_are() {
    let folder = scratch();
    let jobs = path_in(&folder, "jobs.fio");
    let uris = [
        "iscsi://me%hushhush,def=...@127.0.0.1:1",
        "iscsi://me%abc,hushhush@127.0.0.1:1/iqn.x",
        "iscsi://me%hush/hushhush@127.0.0.1:1/iqn.x",
        "iscsi://me%a@b/hushhush@127.0.0.1:1/iqn.x",
        "iscsi://me:hushhush@127.0.0.1:1",
        "iscsi://me%hushhush",
        "iscsi://me%@hushhush@127.0.0.1:1",
        "iscsi:/me%hushhush@127.0.0.1:1",
        "iscsi://me%hushhushhush@127.0.0.1:1/iqn.x/0",
        "iscsi://me%hushhushhush@127.0.0.1:1/iqn.x/0,queues=1",
        "iscsi://127.0.0.1:1/iqn.x,target_user=a,target_password=b,hushhush",
        "iscsi://127.0.0.1:1/iqn.x,target_user=a,target_pasword=hushhush",
        "iscsi://127.0.0.1:1/iqn.x,pw=hushhush",
        "raid0:(iscsi://me%a,hushhush@127.0.0.1:1,ram:1M)",
        "nvme+tcp://me%hushhush@127.0.0.1:1",
    ];
    for uri in uris {
        fs::write(&jobs, format!("[one]\nrw=read\nfilename={uri}\n")).expect("a file");
        let option = format!("--uri={uri}");
        for args in [
            &["bench", uri, "--runtime", "10ms"][..],
            &["bench", uri, uri],
            &["bench", "cdm", uri],
            &["bench", "sgp_dd", &format!("if={uri}"), "of=ram:1M"],
            &["bench", &jobs],
            &["serve", uri, "--run", "true"],
            &["serve", "--listen", uri, "ram:1M", "--run", "true"],
            &["discover", uri],
            &[
                "attach",
                uri,
                "--as",
                "nbd-socket",
                "--socket",
                "/nowhere/x",
            ],
            &["attach", uri, "--persist"],
            &["list", uri],
            &["bench", "ram:1M", &option],
        ] {
            let ended = fabrix(args);
            assert_ne!(ended.code, 0, "{args:?}: {ended}");
            assert!(!format!("{ended}").contains(MARKER), "{args:?}: {ended}");
        }
    }
}

#[test]
fn a_disk_that_is_served_again_is_listed_without_its_secret() {
    let folder = scratch();
    let api = format!("unix:{}", path_in(&folder, "api"));
    let there = target();
    let uri = format!(
        "{},target_user=it,target_password={THEIRS}",
        disk(&there, &format!("me%{OURS}"))
    );
    let here = Serve::start(&[&uri, "--api", &api]);
    let ctl = |words: &[&str]| fabrix(&[&["ctl", "--api", &api], words].concat());
    for ended in [
        ctl(&["namespace", "add", &uri]),
        ctl(&["show"]),
        ctl(&["show", "-o", "json"]),
        ctl(&["namespace", "add", &uri, "--nsid", "1"]),
        fabrix(&["top", "--api", &api, "--once"]),
    ] {
        assert!(!format!("{ended}").contains(MARKER), "{ended}");
    }
    let body = format!("{{\"disk\": \"ram:1M\", \"nsid\": \"{uri}\"}}");
    let answer = ask(&api, "POST /v1/namespaces", &body);
    assert!(
        answer.starts_with("HTTP/1.1 4") && !answer.contains(MARKER),
        "{answer}"
    );
    let shown = here.json["exports"][0]["disk"].as_str().expect("a disk");
    assert!(
        shown.contains("me%...@") && shown.ends_with("target_password=..."),
        "{shown}"
    );
    assert!(!here.json.to_string().contains(MARKER) && !here.process.said().contains(MARKER));
    here.stop();
}

#[test]
fn other_processes_see_no_secret_among_the_words_and_there_is_no_core() {
    let there = target();
    let uri = disk(&there, &format!("me%{OURS}"));
    let load = Running::start(&["bench", &uri, "--rw", "read", "--runtime", "60s"]);
    for process in [&load, &there.process] {
        let file = |name: &str| {
            let text = fs::read(format!("/proc/{}/{name}", process.pid()));
            String::from_utf8_lossy(&text.expect("it runs")).into_owned()
        };
        let until = Instant::now() + BOUND;
        // A process begins as the copy of its parent, without words of its own.
        let is_ready = |words: &str| words.contains("me%...") && !words.contains(MARKER);
        while !is_ready(&file("cmdline")) {
            assert!(Instant::now() < until, "{}", file("cmdline"));
            std::thread::yield_now();
        }
        let limits = file("limits");
        let core = limits
            .lines()
            .find(|line| line.starts_with("Max core file size"));
        let soft = core.and_then(|line| line.split_whitespace().nth(4));
        assert!(matches!(soft, Some("0" | "1")), "{limits}");
    }
}

#[test]
fn secrets_come_from_files_of_windows_too_and_from_nobody_elses() {
    let folder = scratch();
    let (ours, theirs) = (path_in(&folder, "ours @ 1"), path_in(&folder, "theirs"));
    let there = target();
    let account = format!("me%@{}", ours.replace('@', "%40"));
    let uri = format!(
        "{},target_user=it,target_password=@{theirs}",
        disk(&there, &account)
    );
    for (before, after) in [("", ""), ("", "\n"), ("", "\r\n"), ("\u{feff}", "\r\n")] {
        private(&ours, &format!("{before}{OURS}{after}"));
        private(&theirs, &format!("{before}{THEIRS}{after}"));
        bench(&[&uri, "--rw", "read", "--runtime", "20ms"]);
    }
    let inline = disk(&there, &format!("me%{OURS}\r\n"));
    bench(&[&inline, "--rw", "read", "--runtime", "20ms"]);
    for path in [&ours, &theirs] {
        fs::set_permissions(path, Permissions::from_mode(0o640)).expect("the file is ours");
        fabrix(&["bench", &uri]).exits(2).says(&["chmod 600", path]);
        fs::set_permissions(path, Permissions::from_mode(0o600)).expect("the file is ours");
    }
    private(&ours, "one\ntwo\n");
    fabrix(&["bench", &uri]).exits(2).says(&["one line"]);
    let chap = path_in(&folder, "chap");
    private(&chap, &format!("\u{feff}me%{OURS}\r\n"));
    let chap = format!("@{chap}");
    let again = Serve::start(&[
        "ram:16M",
        "--listen",
        "iscsi://127.0.0.1:0",
        "--chap",
        &chap,
    ]);
    bench(&[
        &disk(&again, &format!("me%{OURS}")),
        "--rw",
        "read",
        "--runtime",
        "20ms",
    ]);
}
