//! `serve --listen iscsi://`: what it says, and what it refuses.

use std::io::{Read, Write};
use std::net::TcpStream;

use super::harness::{Serve, fabrix};

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
    // A login, as one request: the answer says that the session has begun.
    let mut socket = TcpStream::connect(portal).expect("it listens");
    let text = format!("InitiatorName=iqn.2026-01.example:i\0TargetName={IQN}\0\0\0\0");
    let text = &text.as_bytes()[..text.len() / 4 * 4];
    let mut login = vec![0; 48];
    (login[0], login[1], login[8]) = (0x43, 0x87, 0x80);
    login[7] = u8::try_from(text.len()).expect("short");
    login.extend(text);
    socket.write_all(&login).expect("it reads");
    let mut answer = [0; 48];
    socket.read_exact(&mut answer).expect("it answers");
    assert_eq!((answer[0], &answer[36..38]), (0x23, &[0, 0][..]));
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
fn a_list_of_hosts_and_iscsi_do_not_go_together() {
    let listen = ["serve", "ram:16M", "--listen", "iscsi://0.0.0.0:0"];
    fabrix(&listen).exits(2).says(&["--allow"]);
    let listed = [&listen[..], &["--allow", "nqn.2014-08.org.example:host"]].concat();
    fabrix(&listed)
        .exits(2)
        .says(&["a list of initiators", "--allow any"]);
    let name = [&listen[..], &["--iqn", "disks"]].concat();
    fabrix(&name)
        .exits(2)
        .says(&["iqn.2026-01.com.example:disks"]);
}
