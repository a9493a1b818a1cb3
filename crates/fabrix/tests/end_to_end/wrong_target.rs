//! Targets that cannot be had, from both ends: addresses that cannot be listened on, and others
//! that do not answer, do not know what is asked for, or are no targets.

use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use super::harness::{Ended, NQN, Serve, fabrix};

/// One sentence on stderr, nothing on stdout.
#[track_caller]
fn refused(args: &[&str], code: i32, parts: &[&str]) -> Ended {
    let ended = fabrix(args);
    ended.exits(code).says(parts);
    assert_eq!(ended.stdout, "", "{ended}");
    assert_eq!(ended.stderr.lines().count(), 1, "one sentence, not {ended}");
    ended
}

/// The same for `bench` and `discover` of one URI.
#[track_caller]
fn no_connection(uri: &str, parts: &[&str]) {
    refused(&["bench", uri, "--runtime", "50ms"], 3, parts);
    refused(&["discover", uri], 3, parts);
}

/// A port on which nobody listens: it was free a moment ago.
fn dead_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
    listener.local_addr().expect("it is bound").port()
}

#[test]
fn a_port_in_use_is_told_with_the_way_out() {
    let other = TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
    let address = other.local_addr().expect("it is bound").to_string();
    let ended = fabrix(&[
        "serve",
        "null:8M",
        "--listen",
        &format!("nvme+tcp://{address}"),
    ]);
    ended
        .exits(1)
        .says(&[&address, "is in use by another program", "--listen"]);
    assert_eq!(ended.stdout, "", "nothing is promised");
}

#[test]
fn an_address_of_another_machine_cannot_be_listened_on() {
    // Addresses for documentation (RFC 5737) are nobody's.
    let listen = ["--listen", "nvme+tcp://192.0.2.1:4420", "--allow", "any"];
    let ended = fabrix(&[&["serve", "null:8M"], &listen[..]].concat());
    ended
        .exits(1)
        .says(&["192.0.2.1:4420", "is not an address of this machine"]);
}

#[test]
fn a_network_is_not_listened_on_without_saying_for_whom() {
    for address in ["0.0.0.0", "0.0.0.0:0", "[::]:0", "192.0.2.1"] {
        let listen = format!("nvme+tcp://{address}");
        let args = ["serve", "ram:8M", "--listen", &listen];
        refused(
            &args,
            2,
            &[
                "opens the disks to a network",
                "--allow HOSTNQN",
                "--allow any",
            ],
        );
    }
    let both = [
        "--listen",
        "nvme+tcp://127.0.0.1:0",
        "--listen",
        "nvme+tcp://0.0.0.0:0",
    ];
    refused(
        &[&["serve", "ram:8M"], &both[..]].concat(),
        2,
        &["0.0.0.0:0"],
    );
}

#[test]
fn an_address_that_is_none_is_a_usage_error() {
    for listen in [
        "127.0.0.1:4420",
        "nvme+tcp://127.0.0.1:99999",
        "smb://127.0.0.1",
        "iscsi://127.0.0.1:99999",
        "nvme+tcp://",
    ] {
        let args = ["serve", "ram:8M", "--listen", listen];
        refused(
            &args,
            2,
            &[
                &format!("--listen {listen}"),
                "write nvme+tcp://ADDR[:PORT]",
            ],
        );
    }
}

#[test]
fn a_subsystem_name_that_is_none_is_a_usage_error() {
    let ended = fabrix(&[
        "serve",
        "null:8M",
        "--nqn",
        "disks",
        "--listen",
        "nvme+tcp://127.0.0.1:0",
    ]);
    ended.exits(2).says(&["disks", "nqn."]);
}

#[test]
fn a_wrong_nqn_is_refused_and_says_how_to_find_the_right_one() {
    let serve = Serve::start(&["ram:8M"]);
    let uri = format!("{}/nqn.2026-01.io.fabrix:wrong/1", serve.target());
    let what = [
        uri.as_str(),
        "no such subsystem",
        "check the subsystem NQN",
        "discover",
    ];
    refused(&["bench", &uri], 3, &what);
    refused(
        &["serve", &uri, "--listen", "nvme+tcp://127.0.0.1:0"],
        3,
        &what,
    );
    let discovery = format!("{}/nqn.2014-08.org.nvmexpress.discovery", serve.target());
    refused(
        &["bench", &discovery],
        3,
        &["discovery controller", "no namespaces"],
    );
}

#[test]
fn nobody_listening_is_told_with_what_to_check() {
    let target = format!("nvme+tcp://127.0.0.1:{}", dead_port());
    no_connection(
        &target,
        &[
            &target,
            "Connection refused",
            "nothing listens there",
            "is the target running",
        ],
    );
    let uri = format!("{target}/{NQN}/1");
    no_connection(&uri, &[&uri, "nothing listens there"]);
}

#[test]
fn no_such_host_is_told_with_its_name() {
    // RFC 6761: this top-level domain never exists.
    no_connection(
        "nvme+tcp://no-such-host.invalid:4420",
        &["cannot find the host `no-such-host.invalid`"],
    );
}

#[test]
fn only_a_target_can_be_asked_for_its_subsystems() {
    refused(
        &["discover", "ram:8M"],
        2,
        &["ram:8M", "nvme+tcp://ADDR[:PORT]"],
    );
    refused(
        &["discover", "nvme+fc://127.0.0.1"],
        2,
        &["nvme+fc://127.0.0.1", "nvme+tcp, nvme+rdma, iscsi and iser"],
    );
    refused(
        &["discover", "nvme+tcp://127.0.0.1:0"],
        2,
        &["`0` is not a port"],
    );
    refused(&["discover", "nvme+tcp://::1"], 2, &["[::1]"]);
}

/// Listens, does this with every connection, and keeps it open until the test ends.
struct Impostor {
    port: u16,
    _ends_with_this: mpsc::Sender<()>,
}

impl Impostor {
    fn that(mut does: impl FnMut(&mut TcpStream) -> bool + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
        let port = listener.local_addr().expect("it is bound").port();
        let (alive, over) = mpsc::channel::<()>();
        thread::spawn(move || {
            let mut kept = Vec::new();
            for stream in listener.incoming() {
                let Ok(mut stream) = stream else { continue };
                if does(&mut stream) {
                    kept.push(stream);
                }
                if over.try_recv() == Err(mpsc::TryRecvError::Disconnected) {
                    return;
                }
            }
        });
        Self {
            port,
            _ends_with_this: alive,
        }
    }

    fn uri(&self) -> String {
        format!("nvme+tcp://127.0.0.1:{}", self.port)
    }
}

#[test]
fn a_web_server_is_no_target() {
    let web = Impostor::that(|stream| {
        let _gone =
            stream.write_all(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\nBad Request\n");
        true
    });
    no_connection(
        &web.uri(),
        &[
            &web.uri(),
            "the target broke the protocol: a PDU of unknown type",
        ],
    );
}

#[test]
fn a_server_that_closes_at_once_is_no_target() {
    let closing = Impostor::that(|_| false);
    let uri = closing.uri();
    for args in [
        &["bench", &uri, "--runtime", "50ms"][..],
        &["discover", &uri],
    ] {
        let ended = fabrix(args);
        ended.exits(3).says(&[&uri, "the admin connection"]);
        assert_eq!(ended.stderr.lines().count(), 1, "{ended}");
    }
}

#[test]
fn a_server_that_says_nothing_is_given_up_in_time() {
    let silent = Impostor::that(|_| true);
    let uri = format!("{}/{NQN}/1", silent.uri());
    let ended = refused(
        &["bench", &uri, "--runtime", "50ms"],
        3,
        &[&uri, "did not answer ICReq within 10s"],
    );
    assert!(ended.took < Duration::from_secs(20), "{ended}");
}

#[test]
fn a_server_of_large_nonsense_is_no_target() {
    // An ICResp that claims to be 4 GiB long.
    let absurd = Impostor::that(|stream| {
        let mut answer = [0; 128];
        answer[..8].copy_from_slice(&[0x01, 0, 128, 0, 0xff, 0xff, 0xff, 0xff]);
        let _gone = stream.write_all(&answer);
        true
    });
    no_connection(
        &absurd.uri(),
        &[&absurd.uri(), "the target broke the protocol"],
    );
}

#[test]
fn a_stranger_on_the_port_disturbs_nobody() {
    let serve = Serve::start(&["ram:8M"]);
    let mut strangers: Vec<TcpStream> = (0..20)
        .map(|_| TcpStream::connect(serve.address()).expect("it listens"))
        .collect();
    for (number, stranger) in strangers.iter_mut().enumerate() {
        let noise: Vec<u8> = (0..=255)
            .cycle()
            .skip(number * 7)
            .take(number * 100)
            .collect();
        let _gone = stranger.write_all(&noise);
    }
    let load = ["--rw", "randrw", "--verify", "--runtime", "100ms"];
    fabrix(&[&["bench", &serve.uri(0)], &load[..]].concat()).exits(0);
    drop(strangers);
    let said = serve.stop().stderr;
    assert!(!said.contains("panicked"), "{said}");
}
