//! A running `serve` is changed through its control socket: what users see of it, right and wrong.

use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::Command;

use crate::harness::{Serve, fabrix};

/// A target with a control socket, and the words that name the socket.
fn controlled(folder: &tempfile::TempDir) -> (Serve, String) {
    let api = format!("unix:{}", folder.path().join("api").display());
    let serve = Serve::start(&["ram:1M", "--api", &api]);
    (serve, api)
}

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().expect("a folder")
}

#[test]
fn a_disk_is_added_resized_and_removed_while_the_target_runs() {
    let folder = folder();
    let (serve, api) = controlled(&folder);
    let path = folder.path().join("disk");
    let disk = format!("file:{},size=1M,direct=off", path.display());
    let ctl = |words: &[&str]| fabrix(&[&["ctl", "--api", &api, "-o", "json"], words].concat());

    let added = ctl(&["namespace", "add", &disk, "--nsid", "5"]);
    added.exits(0);
    let uri = added.json()["exports"][1]["uri"]
        .as_str()
        .map(str::to_owned);
    let uri = uri.expect("the new export has an address");
    let load = ["--rw", "randrw", "--verify", "--runtime", "200ms"];
    fabrix(&[&["bench", uri.as_str()], &load[..]].concat()).exits(0);

    let resized = ctl(&["namespace", "resize", "5", "2M"]);
    resized.exits(0);
    assert_eq!(resized.json()["exports"][1]["size_bytes"], 2 << 20);
    let length = std::fs::metadata(&path).expect("the file").len();
    assert_eq!(length, 2 << 20);

    // To cut it has to be asked for, whoever made it larger.
    ctl(&["namespace", "resize", "5", "1M"])
        .exits(2)
        .says(&["namespace 5 has 2M", "--shrink"]);
    let file = File::options().write(true).open(&path).expect("the file");
    file.set_len(4 << 20).expect("a larger file");
    ctl(&["namespace", "resize", "5", "3M"])
        .exits(2)
        .says(&["namespace 5 has 4M"]);
    assert_eq!(file.metadata().expect("the file").len(), 4 << 20);
    let shrunk = ctl(&["namespace", "resize", "5", "1M", "--shrink"]);
    shrunk.exits(0);
    assert_eq!(shrunk.json()["exports"][1]["size_bytes"], 1 << 20);
    ctl(&["namespace", "resize", "5", "--shrink"])
        .exits(2)
        .says(&["SIZE"]);

    let removed = ctl(&["namespace", "remove", "5"]);
    removed.exits(0);
    assert_eq!(removed.json()["exports"].as_array().map(Vec::len), Some(1));
    fabrix(&["bench", &uri, "--runtime", "100ms"]).exits(3);
    // Its file is free: nobody holds its lock any more.
    ctl(&["namespace", "add", &disk.replace(",size=1M", "")]).exits(0);
    drop(serve);
}

#[test]
fn what_cannot_be_done_is_said_with_the_exit_code_of_its_kind() {
    let folder = folder();
    let (_serve, api) = controlled(&folder);
    let refused = |words: &[&str], code: i32, says: &str| {
        fabrix(&[&["ctl", "--api", &api], words].concat())
            .exits(code)
            .says(&[says]);
    };
    refused(
        &["namespace", "add", "ram:1M", "--nsid", "1"],
        2,
        "namespace 1 is ram:1M",
    );
    refused(
        &["namespace", "add", "ram:1M", "--nsid", "0"],
        2,
        "between 1 and 1024",
    );
    refused(&["namespace", "add", "tape:1M"], 2, "is not a disk");
    refused(&["namespace", "add", "/no/such/file"], 2, "/no/such/file");
    refused(&["namespace", "remove", "9"], 2, "there is no namespace 9");
    refused(
        &["namespace", "resize", "1", "2M"],
        2,
        "cannot change its size",
    );
    refused(&["listener", "add", "nvme+tcp://0.0.0.0:0"], 2, "--allow");
    refused(
        &["listener", "remove", "nvme+tcp://127.0.0.1:1"],
        2,
        "does not listen on",
    );
    refused(&["allow", "not an nqn"], 2, "NQN");
    fabrix(&["ctl", "--api", "unix:/no/such/socket", "show"])
        .exits(3)
        .says(&["fabrix serve --api"]);
}

#[test]
fn hosts_come_by_another_address_and_are_shut_out_by_name() {
    let folder = folder();
    let (serve, api) = controlled(&folder);
    let ctl = |words: &[&str]| fabrix(&[&["ctl", "--api", &api, "-o", "json"], words].concat());
    let more = ctl(&["listener", "add", "nvme+tcp://127.0.0.1:0"]);
    more.exits(0);
    let second = more.json()["listen"][1]
        .as_str()
        .map(str::to_owned)
        .expect("an address");
    fabrix(&["discover", &format!("nvme+tcp://{second}")]).exits(0);
    // What is shown is what `listener` takes.
    let shown = fabrix(&["ctl", "--api", &api, "show"]);
    let uri = format!("nvme+tcp://{second}");
    assert!(shown.exits(0).stdout.contains(&uri), "{shown}");
    ctl(&["allow", "nqn.2026-01.org.example:friend"]).exits(0);
    fabrix(&["bench", &serve.uri(0), "--runtime", "100ms"])
        .exits(3)
        .says(&["not allow"]);
    let friend = ["-q", "nqn.2026-01.org.example:friend", "--runtime", "100ms"];
    fabrix(&[&["bench", &serve.uri(0)], &friend[..]].concat()).exits(0);
    ctl(&["listener", "remove", &format!("nvme+tcp://{second}")]).exits(0);
    fabrix(&["discover", &format!("nvme+tcp://{second}")]).exits(3);
}

/// The state at a listener in a list of states.
fn state_at(states: &serde_json::Value, listener: &str) -> String {
    let mut states = states.as_array().expect("a list").iter();
    let found = states.find(|state| state["listener"] == listener);
    let state = found.and_then(|it| it["state"].as_str());
    state.unwrap_or_default().to_owned()
}

#[test]
fn ana_states_are_set_at_one_address_or_at_all_and_stop_the_io_there() {
    let folder = folder();
    let api = format!("unix:{}", folder.path().join("api").display());
    let serve = Serve::start(&["ram:1M", "ram:2M,ana=2", "--api", &api]);
    let ctl = |words: &[&str]| fabrix(&[&["ctl", "--api", &api, "-o", "json"], words].concat());
    let more = ctl(&["listener", "add", "nvme+tcp://127.0.0.1:0"]);
    let more = more.exits(0).json();
    let address = |at: usize| more["listen"][at].as_str().expect("it listens").to_owned();
    let (first, second) = (address(0), address(1));
    let states = |group: usize| {
        let listed = ctl(&["ana", "list"]).exits(0).json();
        let states = &listed["ana_groups"][group]["states"];
        [&first, &second].map(|address| state_at(states, &format!("nvme+tcp://{address}")))
    };
    assert_eq!(more["ana_groups"][1]["nsids"][0], 2);
    assert_eq!(more["exports"][1]["ana_group"], 2);
    assert_eq!(states(0), ["optimized", "optimized"]);

    ctl(&["ana", "set", "1", "inaccessible", "--listener", &first]).exits(0);
    assert_eq!(states(0), ["inaccessible", "optimized"]);
    assert_eq!(states(1), ["optimized", "optimized"]);
    let uri = |address: &str| serve.uri(0).replace(&first, address);
    fabrix(&["bench", &uri(&first), "--runtime", "100ms"])
        .exits(1)
        .says(&["NotReady"]);
    fabrix(&["bench", &uri(&second), "--runtime", "100ms"]).exits(0);
    fabrix(&["bench", &serve.uri(1), "--runtime", "100ms"]).exits(0);

    let listed = fabrix(&["ctl", "--api", &api, "ana", "list"]);
    let line = format!("  inaccessible     nvme+tcp://{first}");
    for part in ["group 1: namespace 1\n", line.as_str()] {
        assert!(listed.exits(0).stdout.contains(part), "{listed}");
    }
    ctl(&["ana", "set", "1", "non-optimized"]).exits(0);
    assert_eq!(states(0), ["non-optimized", "non-optimized"]);
    fabrix(&["bench", &uri(&first), "--runtime", "100ms"]).exits(0);
    let rdma = format!("nvme+rdma://{first}");
    for (words, says) in [
        (&["1", "change"][..], "cannot be set"),
        (&["1", "offline"], "is not a state of an ANA group"),
        (&["3", "optimized"], "no disk is in ANA group 3"),
        (
            &["1", "optimized", "--listener", &rdma],
            "no disk can be reached there",
        ),
        (&["1", "optimized", "--listener", "127.0.0.1:x"], "port"),
    ] {
        ctl(&[&["ana", "set"], words].concat())
            .exits(2)
            .says(&[says]);
    }
    ctl(&["namespace", "add", "ram:1M,ana=17"])
        .exits(2)
        .says(&["between 1 and 16"]);
    fabrix(&["bench", "ram:1M,ana=1"])
        .exits(2)
        .says(&["only `fabrix serve` has ANA groups"]);
}

#[test]
fn the_socket_is_its_owners_alone_and_goes_with_the_target() {
    let folder = folder();
    let (serve, api) = controlled(&folder);
    let path = folder.path().join("api");
    let mode = std::fs::metadata(&path)
        .expect("the socket")
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);
    let second = fabrix(&[
        "serve",
        "ram:1M",
        "-l",
        "nvme+tcp://127.0.0.1:0",
        "--api",
        &api,
    ]);
    second
        .exits(2)
        .says(&["another process answers there already"]);
    serve.stop().exits(0);
    assert!(!path.exists());
    // What a killed target leaves behind is replaced; what is no socket is left alone.
    drop(std::os::unix::net::UnixListener::bind(&path).expect("a socket that nobody answers"));
    drop(Serve::start(&["ram:1M", "--api", &api]));
    std::fs::write(folder.path().join("file"), "mine").expect("a file");
    let file = format!("unix:{}", folder.path().join("file").display());
    fabrix(&[
        "serve",
        "ram:1M",
        "-l",
        "nvme+tcp://127.0.0.1:0",
        "--api",
        &file,
    ])
    .exits(2);
    assert_eq!(
        std::fs::read_to_string(folder.path().join("file")).expect("still there"),
        "mine"
    );
}

/// The kernel says who asks, whatever the modes of the file and its folders have become.
#[test]
fn cve_2021_27365_the_socket_answers_nobody_but_its_owner() {
    const NOBODY: u32 = 65534;
    let folder = folder();
    let (serve, api) = controlled(&folder);
    let open = |path: &std::path::Path, mode| {
        let mode = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(path, mode).expect("it is ours");
    };
    open(folder.path(), 0o755);
    open(&folder.path().join("api"), 0o666);
    let mut client = Command::new(env!("CARGO_BIN_EXE_fabrix"));
    client.args(["ctl", "--api", &api, "show"]).uid(NOBODY);
    let Ok(ended) = client.output() else {
        println!(
            "SKIPPED: cve_2021_27365: only root can become somebody else, who must be able to run this program"
        );
        return;
    };
    assert_eq!(ended.status.code(), Some(3), "{ended:?}");
    assert!(ended.stdout.is_empty());
    fabrix(&["ctl", "--api", &api, "show"]).exits(0);
    drop(serve);
}

/// What any HTTP client sends; gives the whole answer.
fn exchange(folder: &tempfile::TempDir, request: &str) -> String {
    let mut stream = UnixStream::connect(folder.path().join("api")).expect("the socket answers");
    stream.write_all(request.as_bytes()).expect("it reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("text");
    answer
}

#[test]
fn a_request_that_makes_no_sense_is_answered_in_json() {
    let folder = folder();
    let _serve = controlled(&folder);
    let post = |body: &str| {
        let head = "POST /v1/namespaces HTTP/1.0\r\ncontent-type: application/json\r\n";
        exchange(
            &folder,
            &format!("{head}content-length: {}\r\n\r\n{body}", body.len()),
        )
    };
    for (answer, status, says) in [
        (
            exchange(&folder, "GET /v9 HTTP/1.0\r\n\r\n"),
            "404",
            "/v1/target",
        ),
        (
            exchange(&folder, "PUT /v1/target HTTP/1.0\r\n\r\n"),
            "405",
            "method",
        ),
        (
            exchange(&folder, "DELETE /v1/namespaces/x HTTP/1.0\r\n\r\n"),
            "400",
            "`x`",
        ),
        (post("{"), "400", "error"),
        (post(r#"{"disk": 7}"#), "422", "disk"),
        (
            post(r#"{"disk": "ram:1M", "size": 1}"#),
            "422",
            "unknown field",
        ),
    ] {
        assert!(
            answer.starts_with(&format!("HTTP/1.0 {status}")),
            "{answer}"
        );
        assert!(
            answer.contains(r#"{"error":"#) && answer.contains(says),
            "{answer}"
        );
    }
}
