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

/// Listens for hosts and initiators everywhere, by IPv4 and by IPv6. Nothing where there is no
/// IPv6.
fn serve_everywhere(options: &str) -> Option<Serve> {
    let listens = [
        "nvme+tcp://0.0.0.0:0",
        "nvme+tcp://[::]:0",
        "iscsi://0.0.0.0:0",
        "iscsi://[::]:0",
    ]
    .map(|listen| format!("{listen}{options}"));
    let listens = listens.iter().flat_map(|listen| ["--listen", listen]);
    let words: Vec<&str> = ["ram:8M", "--allow", "any"]
        .into_iter()
        .chain(listens)
        .collect();
    match Serve::try_start(&words) {
        Ok(serve) => Some(serve),
        Err(ended) if ended.stderr.contains("[::]") => {
            skipped("listening on ::", "no IPv6 here");
            None
        }
        Err(ended) => panic!("{ended}"),
    }
}

/// The addresses that hosts and initiators are told who ask there.
fn told(uri: &str) -> Vec<String> {
    let place = |address: &str, port: u16| {
        let ip = address.parse().expect("an address");
        std::net::SocketAddr::new(ip, port).to_string()
    };
    let json = fabrix(&["discover", "-o", "json", uri]).exits(0).json();
    let list = |json: &Value| json.as_array().expect("a list").clone();
    if uri.starts_with("iscsi") {
        let portals = list(&json["targets"][0]["portals"]);
        let portal = |portal: &Value| {
            let port = portal["port"].as_u64().expect("a port");
            let address = portal["address"].as_str().expect("an address");
            place(
                address.trim_matches(['[', ']']),
                u16::try_from(port).expect("a port"),
            )
        };
        return portals.iter().map(portal).collect();
    }
    let record = |record: &Value| {
        let port = record["trsvcid"].as_str().expect("a port");
        place(
            record["traddr"].as_str().expect("an address"),
            port.parse().expect("a port"),
        )
    };
    list(&json["records"]).iter().map(record).collect()
}

fn ports(serve: &Serve, key: &str) -> Vec<u16> {
    let listens = serve.json[key].as_array().expect("a list").clone();
    let port = |listen: &Value| {
        let text = listen
            .as_str()
            .expect("a text")
            .split(',')
            .next()
            .expect("an address");
        text.parse::<std::net::SocketAddr>()
            .expect("an address")
            .port()
    };
    listens.iter().map(port).collect()
}

#[test]
fn a_wildcard_is_told_by_an_address_that_works() {
    let Some(serve) = serve_everywhere("") else {
        return;
    };
    for (scheme, key) in [("nvme+tcp", "listen"), ("iscsi", "portals")] {
        let [four, six] = ports(&serve, key)[..] else {
            panic!("two listeners: {}", serve.json);
        };
        let at = |ip: &str, port: u16| format!("{scheme}://{ip}:{port}");
        let by_four = [format!("127.0.0.1:{four}"), format!("127.0.0.1:{six}")];
        let sorted = |mut told: Vec<String>, first: &str| {
            if scheme == "iscsi" {
                assert_eq!(told[0], first, "the one that was asked at comes first");
            }
            told.sort_by_key(|told| !told.ends_with(&four.to_string()));
            told
        };
        assert_eq!(sorted(told(&at("127.0.0.1", four)), &by_four[0]), by_four);
        assert_eq!(sorted(told(&at("127.0.0.1", six)), &by_four[1]), by_four);
        assert_eq!(told(&at("[::1]", six)), [format!("[::1]:{six}")]);
    }
}

#[test]
fn an_announced_address_is_told_instead_of_the_own() {
    let Some(serve) = serve_everywhere(",announce=198.51.100.7:14420") else {
        return;
    };
    for (scheme, key) in [("nvme+tcp", "listen"), ("iscsi", "portals")] {
        let six = ports(&serve, key)[1];
        for ip in ["127.0.0.1", "[::1]"] {
            let told = told(&format!("{scheme}://{ip}:{six}"));
            assert_eq!(told, ["198.51.100.7:14420"; 2], "{scheme} at {ip}");
        }
    }
    let shown = serve.json.to_string();
    assert!(shown.contains("-a 198.51.100.7 -s 14420"), "{shown}");
    assert!(
        shown.contains("0.0.0.0:") && shown.contains(",announce=198.51.100.7:14420"),
        "{shown}"
    );
}

#[test]
fn without_a_port_discovery_asks_the_port_of_discovery_first() {
    let serve = |ip: &str, more: &[&str]| {
        let subsystem = format!("nvme+tcp://{ip}:4420");
        let words = [&["ram:8M", "--listen", &subsystem], more].concat();
        Serve::try_start(&words)
    };
    // Addresses of loopback that nobody else uses.
    let discovery = "nvme+tcp://127.26.0.1:8009";
    let (both, one) = match (
        serve("127.26.0.1", &["--listen", discovery]),
        serve("127.26.0.2", &[]),
    ) {
        (Ok(both), Ok(one)) => (both, one),
        (Err(ended), _) | (_, Err(ended)) if ended.stderr.contains("in use") => {
            return skipped(
                "discovery without a port",
                "somebody listens on 4420 everywhere",
            );
        }
        (Err(ended), _) | (_, Err(ended)) => panic!("{ended}"),
    };
    for (ip, serve, words) in [
        ("127.26.0.1", &both, "127.26.0.1:8009 answers"),
        ("127.26.0.2", &one, "127.26.0.2:4420 answers"),
    ] {
        for target in [format!("nvme+tcp://{ip}"), ip.to_owned()] {
            let answer = fabrix(&["discover", &target]);
            answer.exits(0).says(&[words]);
            assert!(!answer.stderr.contains("8009 does not"), "{answer}");
            assert!(
                answer.stdout.contains(&serve.port().to_string()),
                "{answer}"
            );
        }
    }
    let nobody = fabrix(&["discover", "nvme+tcp://127.26.0.3"]);
    nobody
        .exits(3)
        .says(&["127.26.0.3:8009", "127.26.0.3:4420"]);
}

#[test]
fn an_address_that_is_listened_on_already_is_named() {
    let refused = |listens: [&str; 2], words: &str| {
        let [one, other] = listens;
        let words_of = [
            "serve", "ram:8M", "--allow", "any", "--listen", one, "--listen", other,
        ];
        fabrix(&words_of).exits(2).says(&[words]);
    };
    let (four, six) = ("nvme+tcp://0.0.0.0:26042", "nvme+tcp://[::]:26042");
    let covers = "[::]:26042 already covers 0.0.0.0:26042";
    refused([four, six], covers);
    refused([six, four], covers);
    refused([four, four], "0.0.0.0:26042 is listened on twice");
    refused(
        [four, "iscsi://0.0.0.0:26042"],
        "cannot be for NVMe and for iSCSI",
    );
    let loopback = "iscsi://127.0.0.1:26042";
    refused(
        [four, loopback],
        "0.0.0.0:26042 already covers 127.0.0.1:26042",
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
    fabrix(&["bench", &disk, "--runtime", "50ms"]).exits(0);
    let none = "nvme+tcp://127.0.0.1:8009/nqn.2026-01.io.fabrix.test:none/1";
    fabrix(&["bench", none])
        .exits(3)
        .says(&[none, "no such subsystem"]);
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

/// A port before `target` that spoils what it says: wherever these words stand, the byte at an
/// offset from their start becomes another.
fn spoiling(target: String, how: (&'static str, usize, u8)) -> SocketAddr {
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
            thread::spawn(move || spoil(target, host, how));
        }
    });
    address
}

fn spoil(mut target: TcpStream, mut host: TcpStream, (words, at, byte): (&'static str, usize, u8)) {
    let mut bytes = vec![0; 1 << 16];
    while let Ok(count @ 1..) = target.read(&mut bytes) {
        for start in 0..count.saturating_sub(words.len()) {
            if bytes[start..].starts_with(words.as_bytes()) {
                bytes[start + at] = byte;
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
    let uri = format!("nvme+tcp://{}", spoiling(serve.address(), (NQN, 5, 7)));
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

#[test]
fn addresses_of_an_iscsi_target_that_cannot_be_read_are_told() {
    let serve = Serve::start(&["ram:8M", "--listen", "iscsi://127.0.0.1:0"]);
    let address = serve.json["portals"][0].as_str().expect("a portal");
    let words = "TargetAddress=127.0.0.1:";
    let spoiled = spoiling(address.to_owned(), (words, words.len(), b'x'));
    let uri = format!("iscsi://{spoiled}");
    let text = fabrix(&["discover", &uri]);
    text.exits(1)
        .says(&["`127.0.0.1:x", "is no address of", "no address of a target"]);
    let json = fabrix(&["discover", &uri, "-o", "json"]);
    let target = &json.exits(1).json()["targets"][0];
    assert_eq!(target["portals"].as_array().map(Vec::len), Some(0));
    assert_eq!(target["unreadable"].as_array().map(Vec::len), Some(1));
}
