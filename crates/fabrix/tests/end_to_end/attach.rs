//! Disks attached to this machine as sockets, which every machine has; and the words for all of
//! them.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::Path;

use serde_json::Value;
use tempfile::TempDir;

use super::attach_place::{Place, begin_nbd_on, read_over_nbd, shell, until, wait};
use super::harness::{NQN, Serve, fabrix};

#[test]
fn a_socket_serves_a_remote_disk_and_goes_when_it_is_detached() {
    let folder = TempDir::new().expect("a folder");
    let image = folder.path().join("image");
    fs::write(&image, vec![7; 1 << 20]).expect("an image");
    let serve = Serve::start(&[image.to_str().expect("text")]);
    let uri = serve.json["exports"][0]["uri"]
        .as_str()
        .expect("an address");
    let place = Place::new();
    let socket = place.attach(&[uri, "--as", "nbd-socket", "--name", "remote"]);
    assert_eq!(read_over_nbd(&socket, 512, 1024), [7; 1024]);
    let [one] = &place.list()[..] else {
        panic!("one is attached")
    };
    assert_eq!(
        (one["name"].as_str(), one["state"].as_str()),
        (Some("remote"), Some("attached"))
    );
    assert_eq!(one["read"]["bytes"], 1024);
    place.run(&["detach", "remote"]).exits(0);
    assert!(!socket.exists() && place.list().is_empty());
}

#[test]
fn the_same_disk_again_is_no_error_when_that_is_said() {
    let place = Place::new();
    let socket = place.attach(&["null:1M", "--as", "nbd-socket", "--name", "one"]);
    let again = place.attach(&[
        "null:1M",
        "--as",
        "nbd-socket",
        "--name",
        "one",
        "--idempotent",
    ]);
    assert_eq!(socket, again);
    let taken = place.run(&["attach", "null:2M", "--as", "nbd-socket", "--name", "one"]);
    taken.exits(2).says(&["the name one is taken", "--name"]);
    assert_eq!(place.list().len(), 1);
}

#[test]
fn a_socket_with_clients_is_in_use() {
    let place = Place::new();
    let socket = place.attach(&["null:1M", "--as", "nbd-socket"]);
    let mut client = UnixStream::connect(&socket).expect("it answers");
    client.read_exact(&mut [0; 18]).expect("a greeting");
    place
        .run(&["detach", "1"])
        .exits(1)
        .says(&["in use", "1 connected", "--force"]);
    place.run(&["detach", "1", "--force"]).exits(0);
    assert_eq!(client.read(&mut [0; 1]).expect("the end"), 0);
}

#[test]
fn a_port_serves_the_disk_until_it_is_detached_by_its_address() {
    let place = Place::new();
    let port = place.attach(&["ram:64K", "--listen", "nbd://127.0.0.1:0"]);
    let uri = port.to_str().expect("text");
    let address = uri.strip_prefix("nbd://").expect("an address").to_owned();
    let second = place.run(&["attach", "ram:64K", "--listen", &port.display().to_string()]);
    second
        .exits(1)
        .says(&[&address, "choose another with --listen"]);
    let stream = TcpStream::connect(&address).expect("it listens");
    let mut client = begin_nbd_on(stream);
    assert_eq!(client.read(512, 512), Ok(vec![0; 512]));
    let one = &place.list()[0];
    assert_eq!(
        (&one["device"], &one["as"]),
        (&uri.into(), &"nbd-socket".into())
    );
    let in_use = place.run(&["detach", uri]);
    in_use.exits(1).says(&[uri, "in use", "1 connected"]);
    drop(client);
    wait("nobody is connected", || {
        place.run(&["detach", uri]).code == 0
    });
    TcpStream::connect(&address).expect_err("nobody listens");
    assert!(place.list().is_empty());
}

#[test]
fn a_socket_for_virtual_machines_answers_and_is_in_use_while_one_has_it() {
    let place = Place::new();
    let path = place.folder().join("machine");
    let text = path.to_str().expect("text");
    let socket = place.attach(&["ram:1M", "--as", "vhost-user", "--socket", text]);
    assert_eq!(socket, path);
    assert_eq!(place.list()[0]["as"], "vhost-user");
    let mut monitor = UnixStream::connect(&socket).expect("it answers");
    // GET_FEATURES, version 1, without a body.
    let question = [1_u32, 1, 0].map(u32::to_ne_bytes).concat();
    monitor.write_all(&question).expect("it listens");
    let mut answer = [0; 20];
    monitor.read_exact(&mut answer).expect("an answer");
    assert_eq!(answer[..12], [1_u32, 5, 8].map(u32::to_ne_bytes).concat());
    place
        .run(&["detach", "1"])
        .exits(1)
        .says(&["in use", "a virtual machine has it", "--force"]);
    place.run(&["detach", "1", "--force"]).exits(0);
    assert_eq!(monitor.read(&mut [0; 1]).expect("the end"), 0);
    assert!(!socket.exists());
}

#[test]
fn a_machine_without_the_kernels_client_says_so() {
    let place = Place::new();
    let ended = place.run(&["attach", "ram:1M", "--as", "nbd"]);
    if ended.code == 0 {
        assert!(ended.stdout.starts_with("/dev/nbd"));
        return;
    }
    ended.exits(2).says(&["--as f"]);
    let words = ["attach", "ram:1M", "--as", "nbd", "--socket", "x"];
    place.run(&words).exits(2).says(&["--as nbd-socket"]);
}

#[test]
fn a_dead_process_is_seen_and_its_name_is_free() {
    let place = Place::new();
    let socket = place.attach(&["null:1M", "--as", "nbd-socket", "--name", "one"]);
    let pid = place.list()[0]["pid"].as_u64().expect("a number");
    assert!(shell(&format!("kill -9 {pid}")));
    // The socket closes with the process.
    while UnixStream::connect(&socket).is_ok() {
        std::thread::yield_now();
    }
    while place.list()[0]["state"] != "dead" {
        std::thread::yield_now();
    }
    let again = place.attach(&["null:1M", "--as", "nbd-socket", "--name", "one"]);
    assert_eq!(again, socket);
    assert_eq!(read_over_nbd(&again, 0, 512), [0; 512]);
}

#[test]
fn the_words_of_the_windows_program_work() {
    let serve = Serve::start(&["ram:64M"]);
    let address = serve.json["listen"][0].as_str().expect("an address");
    let place = Place::new();
    let insert_with = |local: &str, queues: &str| {
        let host = "nqn.2008-08.com.example:host";
        place.run(&["insert", address, local, NQN, host, queues, "32"])
    };
    let insert = |local: &str| insert_with(local, "1");
    insert_with("127.0.0.1", "999").exits(2).says(&["999"]);
    let found = place.run(&["discovery", address, "127.0.0.1"]);
    assert!(found.exits(0).stdout.contains(NQN), "{found}");
    insert("203.0.113.77").exits(2).says(&["203.0.113.77"]);
    let inserted = insert("127.0.0.1");
    assert!(
        inserted.exits(0).stdout.starts_with("target 1: /"),
        "{inserted}"
    );
    let list = place.run(&["list"]);
    assert!(
        list.stdout.contains(NQN) && list.stdout.contains(address),
        "{list}"
    );
    place.run(&["remove", "1"]).exits(0);
    assert!(place.list().is_empty());
}

#[test]
fn a_machine_without_ublk_says_what_is_missing() {
    if Path::new("/dev/ublk-control").exists() {
        return println!("SKIPPED: a machine without ublk: this one has it");
    }
    let place = Place::new();
    place
        .run(&["attach", "ram:1M", "--as", "ublk"])
        .exits(2)
        .says(&["no ublk here", "/dev/ublk-control", "ublk_drv", "6.5"]);
    place
        .run(&["attach", "ram:1M", "--as", "ublk", "--engine", "epoll"])
        .exits(2)
        .says(&["io_uring"]);
    assert!(place.list().is_empty());
}

#[test]
fn a_stripe_of_remote_disks_is_a_disk_of_this_machine() {
    let folder = TempDir::new().expect("a folder");
    let image = |name: &str, byte: u8| {
        let path = folder.path().join(name);
        fs::write(&path, vec![byte; 1 << 20]).expect("an image");
        path.to_str().expect("text").to_owned()
    };
    let serve = Serve::start(&[&image("one", 1), &image("two", 2)]);
    let place = Place::new();
    let stripe = format!("raid0:chunk=64k,({},{})", serve.uri(0), serve.uri(1));
    let socket = place.attach(&[&stripe, "--as", "nbd-socket"]);
    let edge = read_over_nbd(&socket, (64 << 10) - 512, 1024);
    assert_eq!((&edge[..512], &edge[512..]), (&[1; 512][..], &[2; 512][..]));
    assert_eq!(place.list()[0]["size_bytes"], 2 << 20);
}

#[test]
fn requests_take_the_path_at_which_the_target_serves_best_and_list_says_how_it_serves() {
    let folder = tempfile::tempdir().expect("a scratch folder");
    let api = format!("unix:{}", folder.path().join("api").display());
    let serve = Serve::start(&["ram:16M", "--api", &api]);
    let ctl = |words: &[&str]| fabrix(&[&["ctl", "--api", &api, "-o", "json"], words].concat());
    let more = ctl(&["listener", "add", "nvme+tcp://127.0.0.1:0"]);
    let second = more.exits(0).json()["listen"][1]
        .as_str()
        .expect("it listens")
        .to_owned();
    let other = serve.uri(0).replace(&serve.address(), &second);
    let place = Place::new();
    let both = format!("multipath:({},{other})", serve.uri(0));
    let socket = place.attach(&[&both, "--as", "nbd-socket"]);
    let is = |at: usize, word: &'static str| move |one: &Value| one["paths"][at]["access"] == word;
    until(&place, "optimized", is(0, "optimized"));
    ctl(&[
        "ana",
        "set",
        "1",
        "non-optimized",
        "--listener",
        &serve.address(),
    ])
    .exits(0);
    until(&place, "non-optimized", is(0, "non-optimized"));
    ctl(&["ana", "set", "1", "inaccessible", "--listener", &second]).exits(0);
    until(&place, "inaccessible", is(1, "inaccessible"));
    read_over_nbd(&socket, 0, 4096);
    assert_eq!(place.list()[0]["state"], "attached");
    ctl(&["ana", "set", "1", "optimized"]).exits(0);
    until(&place, "optimized again", is(1, "optimized"));
}

#[test]
fn requests_take_the_path_at_which_the_target_serves_best_over_iscsi_too() {
    let folder = tempfile::tempdir().expect("a scratch folder");
    let api = format!("unix:{}", folder.path().join("api").display());
    let _serve = Serve::start(&["ram:16M", "--listen", "iscsi://127.0.0.1:0", "--api", &api]);
    let ctl = |words: &[&str]| fabrix(&[&["ctl", "--api", &api, "-o", "json"], words].concat());
    let more = ctl(&["listener", "add", "iscsi://127.0.0.1:0"]);
    let more = more.exits(0).json();
    let portal = |at: usize| more["portals"][at].as_str().expect("it listens").to_owned();
    let (first, second) = (portal(0), portal(1));
    let uri = more["exports"][0]["iscsi_uri"].as_str().expect("a URI");
    let both = format!("multipath:({uri},{})", uri.replace(&first, &second));
    let place = Place::new();
    let socket = place.attach(&[&both, "--as", "nbd-socket"]);
    let is = |at: usize, word: &'static str| move |one: &Value| one["paths"][at]["access"] == word;
    let set = |state: &str, portal: &str| {
        let listener = format!("iscsi://{portal}");
        ctl(&["ana", "set", "1", state, "--listener", &listener]).exits(0);
    };
    until(&place, "optimized", is(0, "optimized"));
    set("non-optimized", &first);
    until(&place, "non-optimized", is(0, "non-optimized"));
    set("inaccessible", &second);
    until(&place, "inaccessible", is(1, "inaccessible"));
    read_over_nbd(&socket, 0, 4096);
    assert_eq!(place.list()[0]["state"], "attached");
    set("optimized", &first);
    set("optimized", &second);
    until(&place, "the first is optimized again", is(0, "optimized"));
    until(&place, "the second is optimized again", is(1, "optimized"));
}

#[test]
fn a_path_that_cannot_be_reached_yet_joins_the_disk_when_it_can() {
    let folder = tempfile::tempdir().expect("a scratch folder");
    let api = format!("unix:{}", folder.path().join("api").display());
    let serve = Serve::start(&["ram:16M", "--api", &api]);
    let late = format!("127.26.0.3:{}", serve.port());
    let place = Place::new();
    let hosts = format!("{late},{}", serve.address());
    let both = serve.uri(0).replace(&serve.address(), &hosts);
    let attached = place.run(&["attach", &both, "--as", "nbd-socket", "--name", "one"]);
    attached
        .exits(0)
        .says(&[&late, "joins the disk when it can"]);
    read_over_nbd(&place.folder().join("one.nbd"), 0, 4096);
    let paths = |states: [&'static str; 2]| {
        move |one: &Value| {
            let paths = one["paths"].as_array().map_or(&[][..], Vec::as_slice);
            states
                .iter()
                .all(|state| paths.iter().any(|path| path["state"] == **state))
        }
    };
    until(&place, "one of two", paths(["connected", "reconnecting"]));
    let listener = format!("nvme+tcp://{late}");
    fabrix(&["ctl", "--api", &api, "listener", "add", &listener]).exits(0);
    let all = |one: &Value| {
        let paths = one["paths"].as_array().map_or(&[][..], Vec::as_slice);
        paths.len() == 2 && paths.iter().all(|path| path["state"] == "connected")
    };
    until(&place, "both", all);
    let path = |words: &[&str]| place.run(&[&["path"], words].concat());
    path(&["fail", "one", "1"]).exits(0);
    path(&["prefer", "one", "0", "-o", "json"]).exits(0);
    let listed = path(&["list", "-o", "json"]).exits(0).json();
    let paths = listed["disks"][0]["paths"]
        .as_array()
        .expect("paths")
        .clone();
    let switches = |at: usize| (paths[at]["failed"] == true, paths[at]["preferred"] == true);
    assert_eq!((switches(0), switches(1)), ((false, true), (true, false)));
    let text = path(&["list", "one"]);
    for word in ["failed", "preferred", &late, "optimized"] {
        assert!(text.exits(0).stdout.contains(word), "{text}");
    }
    read_over_nbd(&place.folder().join("one.nbd"), 0, 4096);
    path(&["restore", "one", "1"]).exits(0);
    path(&["prefer", "one", "none"]).exits(0);
    path(&["fail", "one", "2"]).exits(2).says(&["no path 2"]);
    path(&["prefer", "one", "first"])
        .exits(2)
        .says(&["nor `none`"]);
}

#[test]
fn the_words_of_nvme_connect_are_understood_and_what_is_attached_is_told_in_full() {
    let serve = Serve::start(&["ram:16M"]);
    let place = Place::new();
    let uri = serve.uri(0);
    let words = "-i 2 -Q 64 -k 5 -c 1 -l 600 -g -G -w 127.0.0.1 -q nqn.2008-08.com.example:host \
                 -I 11111111-2222-4333-8444-555555555555";
    let words: Vec<&str> = words.split_whitespace().collect();
    let attach = ["--as", "nbd-socket", "--name", "one", "-o", "json"];
    let printed = place.run(&[&["attach", &uri], &attach[..], &words].concat());
    let printed = printed.exits(0).json();
    let one = place.list().remove(0);
    let socket = place.folder().join("one.nbd");
    for told in [&printed, &one] {
        assert_eq!(told["id"], 1);
        assert_eq!(
            told["device"].as_str().map(Path::new),
            Some(socket.as_path())
        );
        assert_eq!(
            (&told["uri"], &told["as"]),
            (&uri.clone().into(), &"nbd-socket".into())
        );
        assert_eq!(
            (&told["subsystem"], &told["state"]),
            (&NQN.into(), &"attached".into())
        );
        assert_eq!(told["size_bytes"], 16 << 20);
        assert!(told["since"].as_u64() > Some(1 << 30), "{told:#}");
    }
    let path = |one: &Value| one["paths"][0]["state"] == "connected";
    let one = until(&place, "connected", path);
    assert_eq!(one["paths"][0]["address"], serve.address());
    read_over_nbd(&socket, 0, 4096);
    let read = &place.list()[0]["read"];
    assert_eq!(
        (&read["requests"], &read["bytes"]),
        (&1.into(), &4096.into())
    );
    let table = place.run(&["ls"]);
    let line = table.exits(0).stdout.lines().nth(1).unwrap_or_default();
    for word in ["one", "nbd-socket", "16M", "attached", &uri] {
        assert!(line.contains(word), "`{word}` is missing:\n{table}");
    }
}

#[test]
fn a_caller_that_goes_leaves_no_process_that_waits_for_the_target() {
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = nobody.local_addr().expect("its address");
    drop(nobody);
    let place = Place::new();
    let uri = format!("nvme+tcp://{address}/{NQN}");
    let words = ["--as", "nbd-socket", "--name", "one"];
    let waiting = place.start(&[&["attach", &uri, "--wait"], &words[..]].concat());
    waiting.hears("waiting for it", 1);
    let attach = || place.run(&[&["attach", "null:1M"], &words[..]].concat());
    attach().exits(2).says(&["the name one is taken"]);
    drop(waiting);
    wait("the name is free again", || attach().code == 0);
}
