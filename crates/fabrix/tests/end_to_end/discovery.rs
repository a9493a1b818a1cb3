//! What hosts are told about a target, who may connect, and several namespaces.

use std::io::{Read, Write, copy};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;

use serde_json::Value;

use super::harness::{NQN, Serve, bench, fabrix, figure, skipped};

const ALICE: &str = "nqn.2026-01.io.fabrix.test:alice";
const BOB: &str = "nqn.2026-01.io.fabrix.test:bob";

#[track_caller]
fn records(args: &[&str]) -> Vec<Value> {
    let json = fabrix(&[&["discover", "-o", "json"], args].concat())
        .exits(0)
        .json();
    assert_eq!(json["schema"], 1);
    json["records"]
        .as_array()
        .expect("records are a list")
        .clone()
}

#[test]
fn discovery_lists_the_subsystem_and_its_port() {
    let serve = Serve::start(&["ram:8M"]);
    let records = records(&[&serve.target()]);
    assert_eq!(records.len(), 1);
    let expected = [
        ("trtype", "tcp".into()),
        ("adrfam", "ipv4".into()),
        ("subtype", "nvme subsystem".into()),
        ("traddr", "127.0.0.1".into()),
        ("trsvcid", serve.port().to_string()),
        ("subnqn", NQN.to_owned()),
    ];
    for (key, value) in expected {
        assert_eq!(records[0][key], value, "{key}");
    }
    let table = fabrix(&["discover", &serve.target()])
        .exits(0)
        .stdout
        .clone();
    let lines: Vec<&str> = table.lines().collect();
    assert!(
        lines[0].starts_with("trtype") && lines.len() == 2,
        "{table}"
    );
    assert!(
        lines[1].contains(NQN) && lines[1].contains(&serve.port().to_string()),
        "{table}"
    );
}

#[test]
fn every_listener_is_in_the_discovery_log() {
    let two = [
        "--listen",
        "nvme+tcp://127.0.0.1:0",
        "--listen",
        "nvme+tcp://[::1]:0",
    ];
    let serve = match Serve::try_start(&[&["ram:8M"], &two[..]].concat()) {
        Ok(serve) => serve,
        Err(ended) if ended.stderr.contains("[::1]") => {
            return skipped("listening on ::1", "no IPv6 here");
        }
        Err(ended) => panic!("{ended}"),
    };
    let (four, six) = (
        serve.target(),
        format!(
            "nvme+tcp://{}",
            serve.json["listen"][1].as_str().expect("two")
        ),
    );
    let families = |uri: &str| {
        let records = records(&[uri]);
        records
            .iter()
            .map(|record| record["adrfam"].as_str().map(str::to_owned))
            .collect::<Vec<_>>()
    };
    let both = [Some("ipv4".to_owned()), Some("ipv6".to_owned())];
    assert_eq!(families(&four), both);
    assert_eq!(families(&six), both);
    assert!(
        figure(
            &bench(&[&six, "--runtime", "50ms"]),
            "/jobs/0/read/total_ios"
        ) > 0.0
    );
}

#[test]
fn the_discovery_port_answers_discovery_and_is_not_listed() {
    if TcpListener::bind("127.0.0.1:8009").is_err() {
        return skipped("discovery on port 8009", "somebody else listens there");
    }
    let two = [
        "--listen",
        "nvme+tcp://127.0.0.1:0",
        "--listen",
        "nvme+tcp://127.0.0.1:8009",
    ];
    let serve = match Serve::try_start(&[&["ram:8M"], &two[..]].concat()) {
        Ok(serve) => serve,
        Err(ended) if ended.stderr.contains("in use") => {
            return skipped("discovery on port 8009", "somebody else listens there");
        }
        Err(ended) => panic!("{ended}"),
    };
    let records = records(&["nvme+tcp://127.0.0.1:8009"]);
    assert_eq!(records.len(), 1, "{records:?}");
    assert_eq!(records[0]["trsvcid"], serve.port().to_string());
    let disk = format!("nvme+tcp://127.0.0.1:8009/{NQN}/1");
    fabrix(&["bench", &disk])
        .exits(3)
        .says(&[&disk, "no such subsystem"]);
}

#[test]
fn the_nqn_is_found_by_discovery_when_there_is_just_one() {
    let serve = Serve::start(&["ram:8M", "--nqn", "nqn.2026-01.io.fabrix.test:renamed"]);
    assert!(
        serve
            .uri(0)
            .ends_with("/nqn.2026-01.io.fabrix.test:renamed/1")
    );
    let result = bench(&[
        &serve.target(),
        "--rw",
        "randrw",
        "--verify",
        "--runtime",
        "50ms",
    ]);
    assert!(figure(&result, "/jobs/0/read/total_ios") > 0.0);
}

#[test]
fn a_host_that_is_not_named_sees_nothing_and_is_refused() {
    let serve = Serve::start(&["ram:8M", "--allow", ALICE]);
    assert!(records(&[&serve.target(), "--hostnqn", BOB]).is_empty());
    let nothing = fabrix(&["discover", &serve.target(), "--hostnqn", BOB]);
    assert!(
        nothing
            .exits(0)
            .stdout
            .contains("nothing is offered to this host"),
        "{nothing}"
    );
    let connect = fabrix(&[
        "bench",
        &serve.uri(0),
        "--hostnqn",
        BOB,
        "--runtime",
        "50ms",
    ]);
    connect.exits(3).says(&[&serve.uri(0), "allow"]);
    let find = fabrix(&[
        "bench",
        &serve.target(),
        "--hostnqn",
        BOB,
        "--runtime",
        "50ms",
    ]);
    find.exits(3).says(&[
        &serve.target(),
        "offers no subsystem to this host",
        "allowed",
    ]);
}

#[test]
fn a_host_that_is_named_connects() {
    let serve = Serve::start(&["ram:8M", "--allow", BOB, "--allow", ALICE]);
    assert_eq!(records(&[&serve.target(), "--hostnqn", ALICE]).len(), 1);
    let result = bench(&[&serve.uri(0), "--hostnqn", ALICE, "--runtime", "50ms"]);
    assert!(figure(&result, "/jobs/0/read/total_ios") > 0.0);
    serve
        .process
        .hears(&format!("{ALICE} connected from 127.0.0.1"), 1);
}

#[test]
fn a_target_on_all_addresses_starts_for_named_hosts_and_tells_a_reachable_uri() {
    let open = ["--listen", "nvme+tcp://0.0.0.0:0", "--allow", ALICE];
    let serve = Serve::start(&[&["ram:8M"], &open[..]].concat());
    assert!(
        serve.uri(0).starts_with("nvme+tcp://127.0.0.1:"),
        "{}",
        serve.uri(0)
    );
    let records = records(&[
        &format!("nvme+tcp://127.0.0.1:{}", serve.port()),
        "-q",
        ALICE,
    ]);
    assert_eq!(records[0]["trsvcid"], serve.port().to_string());
    bench(&[&serve.uri(0), "-q", ALICE, "--runtime", "50ms"]);
}

#[test]
fn a_name_with_odd_characters_gives_a_uri_that_works() {
    let odd = "nqn.2026-01.io.fabrix.test:a/b,(c) 100%";
    let serve = Serve::start(&["ram:8M", "ram:8M", "--nqn", odd]);
    assert_eq!(records(&[&serve.target()])[0]["subnqn"], odd);
    bench(&[&serve.uri(0), "--runtime", "50ms"]);
    let middle = Serve::start(&[&format!("raid0:({},{})", serve.uri(0), serve.uri(1))]);
    bench(&[&middle.uri(0), "--runtime", "50ms"]);
}

#[test]
fn several_disks_are_namespaces_in_their_order() {
    let serve = Serve::start(&["ram:8M", "ram:16M,block=4096", "null:1G"]);
    let sizes: Vec<u64> = (0..3)
        .filter_map(|at| serve.json["exports"][at]["size_bytes"].as_u64())
        .collect();
    assert_eq!(sizes, [8 << 20, 16 << 20, 1 << 30]);
    for index in 0..2 {
        let uri = serve.uri(index);
        assert!(uri.ends_with(&format!("/{NQN}/{}", index + 1)), "{uri}");
        bench(&[&uri, "--rw", "randrw", "--verify", "--runtime", "50ms"]);
    }
    let past_the_end = fabrix(&[
        "bench",
        &serve.uri(1),
        "--offset",
        "16M",
        "--runtime",
        "50ms",
    ]);
    past_the_end
        .exits(2)
        .says(&["beyond the disk of 16777216 bytes"]);
    let fourth = format!("{}/{NQN}/4", serve.target());
    fabrix(&["bench", &fourth])
        .exits(3)
        .says(&[&fourth, "no namespace 4"]);
}

#[test]
fn a_read_only_disk_is_read_and_not_written() {
    for (disk, option) in [("ram:8M", "--read-only"), ("ram:8M,ro", "--allow=any")] {
        let serve = Serve::start(&[disk, option]);
        assert_eq!(serve.json["exports"][0]["read_only"], true);
        bench(&[&serve.uri(0), "--rw", "randread", "--runtime", "50ms"]);
        let write = fabrix(&[
            "bench",
            &serve.uri(0),
            "--rw",
            "randwrite",
            "--runtime",
            "50ms",
        ]);
        write.exits(2).says(&[&serve.uri(0), "read-only"]);
    }
}

/// A port before `target` that spoils the names of subsystems on their way to the host.
fn spoiling(target: String) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("its address");
    thread::spawn(move || {
        for host in listener.incoming().flatten() {
            let target = TcpStream::connect(&target).expect("it listens");
            let (mut to_target, mut from_host) = (
                target.try_clone().expect("a descriptor"),
                host.try_clone().expect("a descriptor"),
            );
            thread::spawn(move || copy(&mut from_host, &mut to_target));
            thread::spawn(move || spoil(target, host));
        }
    });
    address
}

fn spoil(mut target: TcpStream, mut host: TcpStream) {
    let mut bytes = vec![0; 1 << 16];
    while let Ok(count @ 1..) = target.read(&mut bytes) {
        for at in 0..count.saturating_sub(NQN.len()) {
            if bytes[at..].starts_with(NQN.as_bytes()) {
                bytes[at + 5] = 7;
            }
        }
        if host.write_all(&bytes[..count]).is_err() {
            return;
        }
    }
    let _gone = host.shutdown(std::net::Shutdown::Both);
}

#[test]
fn records_that_cannot_be_read_are_told_and_nothing_else_is_a_failure() {
    let serve = Serve::start(&["ram:8M"]);
    let uri = format!("nvme+tcp://{}", spoiling(serve.address()));
    let why = "record 0 of the discovery log cannot be read: its name (SUBNQN) is no NQN";
    let text = fabrix(&["discover", &uri]);
    text.exits(1).says(&[why, "no record of the discovery log"]);
    assert!(!text.stdout.contains("nothing is offered"), "{text}");
    let json = fabrix(&["discover", &uri, "-o", "json"]);
    let unreadable = &json.exits(1).json()["unreadable"];
    assert_eq!(unreadable[0]["record"], 0);
    let said = unreadable[0]["why"].as_str().unwrap_or_default();
    assert!(said.contains("SUBNQN"), "{json}");
    let bench = fabrix(&["bench", &uri, "--runtime", "1s"]);
    bench.exits(3).says(&["record 0: its name"]);
}
