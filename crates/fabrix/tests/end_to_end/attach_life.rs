//! An attached disk over its life: where it connects from, what becomes of it when its target goes,
//! grows or comes back, and how it returns at the next start.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;

use serde_json::Value;

use super::attach_place::{Place, begin_nbd, has_programs, shell, until, wait};
use super::harness::{Running, Serve, path_in, scratch};

/// Who connects to `listener` first.
fn peer(listener: TcpListener) -> std::thread::JoinHandle<String> {
    std::thread::spawn(move || {
        let (_closed_at_once, peer) = listener.accept().expect("somebody connects");
        peer.ip().to_string()
    })
}

#[test]
fn connections_come_from_the_address_that_was_asked_for() {
    let place = Place::new();
    let nqn = super::harness::NQN;
    let host = "nqn.2008-08.com.example:host";
    let check = |words: &dyn Fn(&str) -> Vec<String>| {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("its address").to_string();
        let peer = peer(listener);
        let words = words(&address);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        place.run(&words).exits(3);
        assert_eq!(peer.join().expect("an address"), "127.0.0.2", "{words:?}");
    };
    let own =
        |words: &[&str]| -> Vec<String> { words.iter().map(|word| (*word).to_owned()).collect() };
    let attach = |uri: String| own(&["attach", &uri, "--as", "nbd-socket", "-w", "127.0.0.2"]);
    check(&|at| attach(format!("nvme+tcp://{at}/{nqn}")));
    check(&|at| attach(format!("iscsi://{at}/iqn.2026-01.io.fabrix:disks/0")));
    check(&|at| {
        own(&[
            "discover",
            &format!("nvme+tcp://{at}"),
            "--host-traddr",
            "127.0.0.2",
        ])
    });
    check(&|at| own(&["discovery", at, "127.0.0.2"]));
    check(&|at| own(&["insert", at, "127.0.0.2", nqn, host]));
}

#[test]
fn a_hang_up_ends_no_attachment_and_neither_does_what_other_programs_give_a_meaning() {
    let place = Place::new();
    place.attach(&["ram:1M", "--as", "nbd-socket", "--name", "one"]);
    let pid = place.list()[0]["pid"].as_u64().expect("a number");
    for signal in ["USR1", "USR2", "PIPE", "XFSZ", "HUP"] {
        assert!(shell(&format!("kill -{signal} {pid}")), "it lives");
    }
    let log = place.folder().join("one.log");
    wait("it has heard them", || {
        fs::read_to_string(&log).is_ok_and(|said| said.contains("SIGHUP changes nothing"))
    });
    assert_eq!(place.list()[0]["state"], "attached");
    place.run(&["detach", "one"]).exits(0);
}

#[test]
fn an_address_that_is_not_ours_or_of_another_kind_gets_a_sentence() {
    let place = Place::new();
    let serve = Serve::start(&["ram:16M"]);
    let from =
        |local: &str| place.run(&["attach", &serve.uri(0), "--as", "nbd-socket", "-w", local]);
    from("203.0.113.77")
        .exits(2)
        .says(&["203.0.113.77", "local address"]);
    from("::1")
        .exits(2)
        .says(&["::1", "no address of that kind"]);
    from("here").exits(2).says(&["here"]);
    from("127.0.0.3").exits(0);
}

#[test]
fn a_target_that_stays_away_is_given_up_when_that_is_said() {
    let mut serve = Serve::start(&["ram:16M"]);
    let place = Place::new();
    let uri = serve.uri(0);
    let gives_up = ["-l", "500ms", "-c", "50ms", "--fast-io-fail-tmo", "1h"];
    let words = [&[uri.as_str(), "--as", "nbd-socket"], &gives_up[..]].concat();
    let socket = place.attach(&words);
    let mut client = begin_nbd(&socket);
    assert_eq!(client.read(0, 512), Ok(vec![0; 512]));
    serve.process.kill();
    assert!(
        client.read(0, 512).is_err(),
        "nobody waits for what was given up"
    );
    until(&place, "lost", |one| one["state"] == "lost");
}

#[test]
fn a_target_that_is_killed_and_comes_back_is_counted_and_nothing_is_lost() {
    let folder = scratch();
    let disk = format!("file:{},size=16M,direct=off", path_in(&folder, "disk"));
    let mut serve = Serve::start(&[&disk]);
    let port = serve.port();
    let place = Place::new();
    let socket = place.attach(&[&serve.uri(0), "--as", "nbd-socket"]);
    let mut client = begin_nbd(&socket);
    client.read(0, 512).expect("a block");
    serve.process.kill();
    let lost = until(&place, "reconnecting", |one| one["state"] == "reconnecting");
    assert_eq!(lost["paths"][0]["address"], format!("127.0.0.1:{port}"));
    let _again = Serve::start_again(&[&disk], port);
    assert_eq!(client.read(0, 512), Ok(vec![0; 512]), "it has waited");
    let back = until(&place, "back", |one| one["state"] == "attached");
    assert_eq!(back["reconnects"], 1);
    assert_eq!(back["subsystem"], super::harness::NQN);
}

#[test]
fn a_disk_that_changes_its_size_over_there_changes_here_by_itself() {
    let folder = scratch();
    let disk = format!("file:{},size=16M,direct=off", path_in(&folder, "disk"));
    let api = format!("unix:{}", path_in(&folder, "api"));
    let listen = [
        "--listen",
        "nvme+tcp://127.0.0.1:0",
        "--listen",
        "iscsi://127.0.0.1:0",
    ];
    let to = ["--allow", "any", "--api", &api];
    let serve = Serve::start(&[&[disk.as_str()], &listen[..], &to[..]].concat());
    let export = &serve.json["exports"][0];
    for uri in [&export["uri"], &export["iscsi_uri"]] {
        let place = Place::new();
        let uri = uri.as_str().expect("an address");
        let socket = place.attach(&[uri, "--as", "nbd-socket", "-k", "200ms"]);
        let mut client = begin_nbd(&socket);
        for size in ["32M", "16M"] {
            let resize = ["namespace", "resize", "1", size, "--shrink"];
            place
                .run(&[&["ctl", "--api", &api], &resize[..]].concat())
                .exits(0);
            let bytes: u64 = if size == "32M" { 32 << 20 } else { 16 << 20 };
            until(&place, "of the new size", |one| one["size_bytes"] == bytes);
        }
        assert_eq!(
            client.read(0, 512),
            Ok(vec![0; 512]),
            "who was connected stays so"
        );
    }
}

#[test]
fn a_disk_that_is_taken_away_over_there_is_listed_as_unusable_and_can_be_detached() {
    let folder = scratch();
    let api = format!("unix:{}", path_in(&folder, "api"));
    let to = ["--listen", "nvme+tcp://127.0.0.1:0", "--api", &api];
    let serve = Serve::start(&[&["ram:16M", "ram:8M"], &to[..]].concat());
    let place = Place::new();
    let socket = place.attach(&[&serve.uri(1), "--as", "nbd-socket"]);
    let mut client = begin_nbd(&socket);
    assert_eq!(client.read(0, 512), Ok(vec![0; 512]));
    place
        .run(&["ctl", "--api", &api, "namespace", "remove", "2"])
        .exits(0);
    until(&place, "known to be gone", |one| {
        let says_why = one["fault"].as_str().is_some_and(|why| why.contains('2'));
        one["state"] == "unusable" && says_why
    });
    assert!(client.read(0, 512).is_err(), "nobody has its data");
    drop(client);
    place.run(&["detach", "all"]).exits(0);
}

#[test]
fn a_secret_stands_in_no_processs_words_and_in_no_list() {
    const SECRET: &str = "a-secret-of-ours";
    let chap = format!("alice%{SECRET}");
    let listen = [
        "--listen",
        "iscsi://127.0.0.1:0",
        "--chap",
        &chap,
        "--allow",
        "any",
    ];
    let serve = Serve::start(&[&["ram:16M"], &listen[..]].concat());
    let uri = serve.json["exports"][0]["iscsi_uri"]
        .as_str()
        .expect("an address");
    let uri = uri.replace("iscsi://", &format!("iscsi://{chap}@"));
    let place = Place::new();
    place.attach(&[&uri, "--as", "nbd-socket", "--name", "one", "--persist"]);
    let one = place.list().remove(0);
    let words = fs::read_to_string(format!("/proc/{}/cmdline", one["pid"])).expect("it lives");
    assert!(!words.contains(SECRET), "{words}");
    assert!(!place.run(&["list"]).stdout.contains(SECRET) && !one.to_string().contains(SECRET));
    let folder = fs::read_dir(place.folder()).expect("the folder");
    for file in folder.map(|file| file.expect("a file").path()) {
        let text = fs::read(&file).unwrap_or_default();
        assert!(
            !String::from_utf8_lossy(&text).contains(SECRET),
            "{}",
            file.display()
        );
    }
    let declared = place.declared("one");
    let mode = fs::metadata(&declared)
        .expect("it is declared")
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);
    place.run(&["detach", "one"]).exits(0);
    fs::set_permissions(&declared, PermissionsExt::from_mode(0o644)).expect("it is ours");
    place
        .run(&["attach", "--declared"])
        .exits(2)
        .says(&["others may read it", "chmod 600"]);
    fs::set_permissions(&declared, PermissionsExt::from_mode(0o600)).expect("it is ours");
    place.run(&["attach", "--declared"]).exits(0);
    assert_eq!(place.list().len(), 1);
}

#[test]
fn declared_disks_come_back_and_one_that_cannot_does_not_keep_the_others_away() {
    let place = Place::new();
    let attach = |name: &str, uri: &str| {
        place.run(&[
            "attach",
            uri,
            "--as",
            "nbd-socket",
            "--name",
            name,
            "--persist",
        ])
    };
    attach("one", "null:1M")
        .exits(0)
        .says(&["one is declared in", "--unit"]);
    let serve = Serve::start(&["ram:16M"]);
    attach("away", &serve.uri(0)).exits(0);
    attach("two", "null:2M,ro").exits(0);
    attach("here", "./image,size=1M")
        .exits(2)
        .says(&["whole path"]);
    place
        .run(&["detach", "one"])
        .exits(0)
        .says(&["comes back", "--forget"]);
    place.run(&["detach", "all", "--force"]).exits(0);
    drop(serve);
    place
        .run(&["attach", "--declared"])
        .exits(3)
        .says(&["away", "127.0.0.1"]);
    let names = |place: &Place| -> Vec<String> {
        let all = place.list();
        all.iter()
            .map(|one| one["name"].as_str().expect("a name").to_owned())
            .collect()
    };
    assert_eq!(names(&place), ["one", "two"]);
    place.run(&["detach", "away", "--forget"]).exits(0);
    // What is there stays as it is.
    let pid = place.list()[0]["pid"].clone();
    let again = place.run(&["attach", "--declared"]);
    assert_eq!((again.code, again.stdout.as_str()), (0, ""), "{again}");
    assert_eq!(place.list()[0]["pid"], pid);
    place.run(&["detach", "all", "--forget"]).exits(0);
    place.run(&["attach", "--declared"]).exits(0);
    assert!(names(&place).is_empty());
    place
        .run(&["attach", "--declared", "--name", "one"])
        .exits(2)
        .says(&["one.toml"]);
}

#[test]
fn the_unit_of_systemd_is_one_that_systemd_takes_and_never_takes_away_what_it_did_not_bring() {
    let unit = Place::new().run(&["attach", "--unit"]);
    let program = env!("CARGO_BIN_EXE_fabrix");
    let start = format!("ExecStart={program} attach --declared --name %i\n");
    assert!(unit.exits(0).stdout.contains(&start), "{unit}");
    // Where the disk is there already, nothing is started, and systemd would stop that nothing at
    // once.
    assert!(!unit.stdout.contains("\nExecStop="), "{unit}");
    let name = "the_unit_of_systemd_is_one_that_systemd_takes";
    if !has_programs(name, &["systemd-analyze"]) {
        return;
    }
    let folder = scratch();
    let file = path_in(&folder, "fabrix-attach@one.service");
    fs::write(&file, &unit.stdout).expect("a file");
    let mut analyze = std::process::Command::new("systemd-analyze");
    let verified = Running::spawn(analyze.args(["verify", "--man=no", &file])).expect("it is here");
    let verified = verified.ended();
    verified.exits(0);
    assert!(!verified.stderr.contains("fabrix-attach"), "{verified}");
}

#[test]
fn a_target_is_waited_for_and_the_device_is_written_down() {
    let folder = scratch();
    let note = path_in(&folder, "note");
    let mut serve = Serve::start(&["ram:16M"]);
    let (port, uri) = (serve.port(), serve.uri(0));
    serve.process.kill();
    let place = Place::new();
    let words = [
        "attach",
        &uri,
        "--as",
        "nbd-socket",
        "--wait",
        "--idempotent",
        "--devid-file",
        &note,
    ];
    let waiting = place.start(&words);
    waiting.hears("waiting for it", 1);
    let _again = Serve::start_again(&["ram:16M"], port);
    let device = waiting.ended().exits(0).stdout.clone();
    assert_eq!(fs::read_to_string(&note).expect("a note"), device);
    fs::remove_file(&note).expect("it is ours");
    assert_eq!(place.run(&words).exits(0).stdout, device);
    assert_eq!(fs::read_to_string(&note).expect("a note"), device);
    assert_eq!(place.list().len(), 1);
}

#[test]
fn top_shows_what_attachments_and_exports_do_between_two_looks() {
    let folder = scratch();
    let api = format!("unix:{}", path_in(&folder, "api"));
    let serve = Serve::start(&["ram:16M", "--api", &api]);
    let place = Place::new();
    let socket = place.attach(&[&serve.uri(0), "--as", "nbd-socket", "--name", "one"]);
    let mut client = begin_nbd(&socket);
    let top = place.start(&["top", "-i", "200ms", "-n", "3", "-o", "json", "--api", &api]);
    let mut top = top;
    while top.is_running() {
        client.read(0, 4096).expect("a block");
    }
    let ended = top.ended();
    let tables: Vec<Value> = ended
        .exits(0)
        .stdout
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    assert_eq!(tables.len(), 3);
    for (kind, index) in [("attachment", 0), ("export", 1)] {
        let busy = |table: &Value| {
            let row = &table["disks"][index];
            assert_eq!(row["kind"], kind, "{table:#}");
            let iops = row["read_iops"].as_f64().expect("a number");
            let bytes = row["read_bytes_per_s"].as_f64().expect("a number");
            assert!((bytes - iops * 4096.0).abs() < 1.0, "{row:#}");
            let [p50, p99] = ["p50", "p99"].map(|share| row["latency_ns"][share].as_u64());
            let works = iops > 0.0;
            assert!(p50.is_some() && p50 <= p99, "{row:#}");
            // What a disk of memory answers at once takes no time that is counted.
            let waits = works && kind == "attachment";
            assert!(!waits || p50 > Some(0), "{row:#}");
            assert!(!waits || row["queue_depth"].as_f64() > Some(0.0), "{row:#}");
            assert_eq!(row["reconnects"], 0);
            assert!(row["paths"].is_array(), "{row:#}");
            works
        };
        assert!(tables.iter().any(busy), "{tables:#?}");
    }
    let plain = place.run(&["top", "-n", "1", "-i", "50ms"]);
    for word in [
        "one", "r/s", "wMB/s", "depth", "p50 us", "p99 us", "paths", "reconn",
    ] {
        assert!(plain.stdout.contains(word), "{plain}");
    }
    assert!(!plain.stdout.contains('\x1b'), "{plain}");
    place
        .run(&["top", "-n", "1", "--api", "unix:/no/such"])
        .exits(3)
        .says(&["/no/such"]);
}

#[test]
fn a_kernel_without_a_host_of_its_own_is_told_apart_from_one_with() {
    let place = Place::new();
    let attach = |more: &[&str]| {
        place.run(
            &[
                &["attach", "nvme+tcp://127.0.0.1:1/nqn.x", "--as", "kernel"],
                more,
            ]
            .concat(),
        )
    };
    attach(&["--foreground"]).exits(2).says(&["--foreground"]);
    if place.is_roots() {
        // Whatever the kernel has: nobody loads a module in vain.
        place
            .run(&["attach", "ram:1M", "--as", "kernel"])
            .exits(2)
            .says(&["is for an nvme+tcp:// disk"]);
    }
    if fs::metadata("/dev/nvme-fabrics").is_err() && place.is_roots() {
        attach(&[])
            .exits(2)
            .says(&["/dev/nvme-fabrics", "modprobe nvme-tcp"]);
    }
    let nobody = place.run_as_nobody(&["attach", "ram:1M", "--as", "kernel"]);
    if let Ok(ended) = nobody {
        ended.exits(2).says(&["needs root"]);
    }
    assert!(place.list().is_empty());
}
