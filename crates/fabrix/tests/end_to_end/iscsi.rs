//! `serve --listen iscsi://`: what it says, and what it refuses.

use std::fs::{self, Permissions};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;

use super::harness::{Serve, fabrix};

/// The name of the target that nobody has named.
const TARGET: &str = "iqn.2026-01.io.fabrix:disks";
const IQN: &str = "iqn.2026-01.example:disks";

#[test]
fn serve_tells_how_initiators_reach_each_disk() {
    let serve = Serve::start(&[
        "ram:16M",
        "ram:32M",
        "--listen",
        "iscsi://127.0.0.1:0",
        "--listen",
        "nvme+tcp://127.0.0.1:0",
        "--iqn",
        "iqn.2026-01.Example:disks",
    ]);
    let said = &serve.json;
    let portal = said["portals"][0].as_str().expect("a portal");
    for (lun, export) in said["exports"]
        .as_array()
        .expect("a list")
        .iter()
        .enumerate()
    {
        assert_eq!(export["iscsi_uri"], format!("iscsi://{portal}/{IQN}/{lun}"));
        assert!(
            export["uri"]
                .as_str()
                .expect("a URI")
                .starts_with("nvme+tcp://")
        );
    }
    let discover = format!("iscsiadm -m discovery -t sendtargets -p {portal}");
    assert_eq!(said["iscsiadm"][0], discover);
    // The answer says that the session has begun.
    assert_eq!(log_in(portal, "iqn.2026-01.example:i", IQN), [0, 0]);
}

#[test]
fn iscsi_alone_is_enough() {
    let ended = fabrix(&[
        "serve",
        "ram:16M",
        "--listen",
        "iscsi://127.0.0.1:0",
        "--run",
        "echo uri=$uri",
    ]);
    ended.exits(0);
    assert!(ended.stdout.contains("uri=iscsi://127.0.0.1:"), "{ended}");
    assert!(!ended.stdout.contains("nvme connect"), "{ended}");
}

#[test]
fn a_network_is_opened_to_initiators_that_were_named_or_prove_themselves() {
    let listen = ["serve", "ram:16M", "--listen", "iscsi://0.0.0.0:0"];
    let with = |more: &[&str]| fabrix(&[&listen[..], more, &["--run", "true"]].concat());
    with(&[])
        .exits(2)
        .says(&["--allow IQN", "--chap", "--allow any"]);
    with(&["--allow", "nqn.2014-08.org.example:host"])
        .exits(2)
        .says(&["initiators", "--allow IQN"]);
    with(&["--allow", "host"]).exits(2).says(&["`host`"]);
    with(&["--allow", "iqn.2026-01.example:one"]).exits(0);
    with(&["--allow", "any"]).exits(0);
    with(&["--chap", "alice%twelve-bytes"]).exits(0);
    with(&["--iqn", "disks"])
        .exits(2)
        .says(&["iqn.2026-01.com.example:disks"]);
}

#[test]
fn options_for_a_protocol_that_is_not_served_are_refused() {
    let serve = ["serve", "ram:16M", "--run", "true"];
    for (more, option) in [
        (&["--chap", "a%hushhushhush"][..], "--chap is for iSCSI"),
        (
            &["--initiator", "iqn.2026-01.example:a"],
            "--initiator is for iSCSI",
        ),
        (&["--api", "tcp:127.0.0.1:1"], "write unix:PATH"),
    ] {
        let ended = fabrix(&[&serve[..], more].concat());
        ended.exits(2).says(&[option]);
    }
}

#[test]
fn commands_for_initiators_have_the_authentication_of_chap() {
    let listen = [
        "--listen",
        "iscsi://127.0.0.1:0",
        "--chap",
        "a%hushhushhush",
    ];
    let serve = Serve::start(&[&["ram:16M"], &listen[..]].concat());
    let commands = serve.json["iscsiadm"].as_array().expect("a list");
    let has = |part: &str| {
        commands
            .iter()
            .any(|line| line.as_str().is_some_and(|line| line.contains(part)))
    };
    for part in [
        "-o new",
        "auth.authmethod -v CHAP",
        "auth.username -v USER",
        "auth.password -v SECRET",
        "--login",
    ] {
        assert!(has(part), "{part}: {commands:?}");
    }
    assert!(!has("hushhush"), "a secret is not printed");
}

#[test]
fn secrets_are_long_differ_and_are_never_said_again() {
    let with = |more: &[&str]| {
        let serve = [
            "serve",
            "ram:16M",
            "--listen",
            "iscsi://127.0.0.1:0",
            "--run",
            "true",
        ];
        let ended = fabrix(&[&serve[..], more].concat());
        let said = format!("{ended}");
        assert!(
            !said.contains("hushhush") && !said.contains("S3CRET"),
            "{said}"
        );
        ended
    };
    let mutual = ["--chap", "a%hushhushhush", "--mutual-chap"];
    with(&["--chap", "a%hushhush"]).exits(2).says(&["12"]);
    with(&["--chap", "hushhushhushhush"])
        .exits(2)
        .says(&["USER%SECRET"]);
    with(&[&mutual[..], &["b%hushhushhush"]].concat())
        .exits(2)
        .says(&["differ"]);
    with(&["--mutual-chap", "b%S3CRETS3CRET"])
        .exits(2)
        .says(&["--chap"]);
    with(&[&mutual[..], &["b%S3CRETS3CRET"]].concat())
        .exits(0)
        .says(&["@FILE"]);
}

#[test]
fn a_file_of_secrets_is_for_its_owner_alone() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("secret");
    let text = format!("@{}", path.display());
    let serve = [
        "serve",
        "ram:16M",
        "--listen",
        "iscsi://127.0.0.1:0",
        "--run",
        "true",
    ];
    let with = || fabrix(&[&serve[..], &["--chap", &text]].concat());
    with().exits(2).says(&["No such file"]);
    for (mode, secret, code, says) in [
        (0o640, "alice%twelve-bytes\n", 2, "chmod 600"),
        (0o604, "alice%twelve-bytes\n", 2, "chmod 600"),
        (0o600, "alice%twelve-bytes\n", 0, ""),
        (0o400, "alice%a secret that is longer than 16", 0, "Windows"),
        (0o600, "one%line-of-text\nand another", 2, "USER%SECRET"),
        (0o600, &"a%".repeat(400), 2, "longer"),
    ] {
        let _from_before = fs::remove_file(&path);
        fs::write(&path, secret).expect("a file");
        fs::set_permissions(&path, Permissions::from_mode(mode)).expect("a mode");
        with().exits(code).says(&[says]);
    }
}

#[test]
fn ctl_says_which_initiators_may_log_in() {
    let folder = tempfile::tempdir().expect("a folder");
    let api = format!("unix:{}", folder.path().join("api").display());
    let serve = Serve::start(&["ram:16M", "--listen", "iscsi://127.0.0.1:0", "--api", &api]);
    let portal = serve.json["portals"][0].as_str().expect("a portal");
    let ctl = |words: &[&str]| fabrix(&[&["ctl", "--api", &api], words].concat());
    assert_eq!(log_in(portal, "iqn.2026-01.example:one", TARGET), [0, 0]);
    ctl(&["allow", "nqn.2014-08.org.example:host"])
        .exits(2)
        .says(&["--allow IQN"]);
    ctl(&["allow", "iqn.2026-01.example:TWO"]).exits(0);
    assert_eq!(log_in(portal, "iqn.2026-01.example:one", TARGET), [2, 2]);
    assert_eq!(log_in(portal, "iqn.2026-01.example:two", TARGET), [0, 0]);
    ctl(&["allow", "any"]).exits(0);
    assert_eq!(log_in(portal, "iqn.2026-01.example:one", TARGET), [0, 0]);
}

/// A login as one request, and the status of the answer.
fn log_in(portal: &str, initiator: &str, target: &str) -> [u8; 2] {
    let mut socket = TcpStream::connect(portal).expect("it listens");
    let text = format!("InitiatorName={initiator}\0TargetName={target}\0");
    let mut login = vec![0; 48];
    (login[0], login[1], login[8]) = (0x43, 0x87, 0x80);
    login[7] = u8::try_from(text.len()).expect("short");
    login.extend(text.as_bytes());
    login.resize(login.len().next_multiple_of(4), 0);
    socket.write_all(&login).expect("it reads");
    let mut answer = [0; 48];
    socket.read_exact(&mut answer).expect("it answers");
    assert_eq!(answer[0], 0x23);
    [answer[36], answer[37]]
}
