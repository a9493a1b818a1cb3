//! Disks over several paths: through several gateways, and while a path is down.

use std::net::TcpListener;

use serde_json::json;

use super::attach_place::{Place, begin_nbd, read_over_nbd, until};
use super::harness::{Serve, fabrix, make_file, path_in, scratch};

#[test]
fn a_disk_has_its_new_size_while_one_of_its_paths_is_down_and_when_the_path_comes() {
    let folder = scratch();
    let api = format!("unix:{}", path_in(&folder, "api"));
    let disk = format!("file:{},size=16M", path_in(&folder, "disk"));
    let serve = Serve::start(&[&disk, "--allow", "any", "--api", &api]);
    let late = format!("127.26.0.4:{}", serve.port());
    let place = Place::new();
    let hosts = format!("{},{late}", serve.address());
    let both = serve.uri(0).replace(&serve.address(), &hosts);
    let socket = place.attach(&[&both, "--as", "nbd-socket", "-k", "200ms"]);
    let ctl = |words: &[&str]| fabrix(&[&["ctl", "--api", &api], words].concat());
    ctl(&["namespace", "resize", "1", "32M"]).exits(0);
    until(&place, "of the new size", |one| {
        one["size_bytes"] == 32 << 20 && one["state"] == "attached"
    });
    ctl(&["listener", "add", &format!("nvme+tcp://{late}")]).exits(0);
    until(&place, "over both paths", |one| {
        let paths = one["paths"].as_array().map_or(&[][..], Vec::as_slice);
        paths.len() == 2 && paths.iter().all(|path| path["state"] == "connected")
    });
    place.run(&["path", "fail", "disk1", "0"]).exits(0);
    assert_eq!(read_over_nbd(&socket, (32 << 20) - 512, 512), vec![0; 512]);
}

#[test]
fn a_disk_behind_two_gateways_has_two_paths_and_discovery_at_each_lists_both() {
    let folder = scratch();
    let image = path_in(&folder, "disk");
    make_file(&image, 16 << 20, 0, &[7; 512]);
    let disk = Serve::start(&[&image]);
    let ports = [1, 2].map(|_| TcpListener::bind("127.0.0.1:0").expect("a port"));
    let ports = ports.map(|held| held.local_addr().expect("an address"));
    let gateway = |at: usize| {
        let [here, there] = [at, 1 - at].map(|at| format!("nvme+tcp://{}", ports[at]));
        let ids = [
            "--cntlid-min",
            ["1", "1001"][at],
            "--cntlid-max",
            ["1000", "2000"][at],
        ];
        let words = [
            &disk.uri(0),
            "--nqn",
            "nqn.2026-01.io.fabrix:both",
            "--gateway",
            &there,
            "--fast-io-fail-tmo",
            "30s",
        ];
        Serve::start_again_on(&[&words[..], &ids[..]].concat(), &here)
    };
    let gateways = [0, 1].map(gateway);
    let told = &gateways[1].json["gateways"];
    assert_eq!(
        (&told["cntlid_min"], &told["cntlid_max"]),
        (&json!(1001), &json!(2000))
    );
    assert_eq!(told["others"], json!([format!("nvme+tcp://{}", ports[0])]));
    for port in ports {
        let found = fabrix(&["discover", &format!("nvme+tcp://{port}"), "-o", "json"]);
        let text = &found.exits(0).stdout;
        assert!(
            ports
                .iter()
                .all(|port| text.contains(&port.port().to_string())),
            "{text}"
        );
    }
    let place = Place::new();
    let both = format!("nvme+tcp://{},policy=fixed:0", ports[0]);
    let socket = place.attach(&[&both, "--as", "nbd-socket"]);
    let mut client = begin_nbd(&socket);
    assert_eq!(client.read(0, 512), Ok(vec![7; 512]), "over the first");
    let [one, _other] = gateways;
    one.stop();
    assert_eq!(
        client.read(0, 512),
        Ok(vec![7; 512]),
        "over the second gateway"
    );
    let other = format!("nvme+tcp://{}", ports[1]);
    fabrix(&["bench", &other, "--runtime", "50ms"])
        .exits(0)
        .says(&[&ports[0].to_string(), "joins the disk when it can"]);
}

#[test]
fn a_path_over_which_a_disk_is_read_only_is_named() {
    let disk = Serve::start(&["ram:1M"]);
    let reader = Serve::start(&[&disk.uri(0), "--read-only"]);
    let place = Place::new();
    let both = format!("multipath:({},{})", disk.uri(0), reader.uri(0));
    let attached = place.run(&["attach", &both, "--as", "nbd-socket"]);
    let name = reader.uri(0);
    attached
        .exits(0)
        .says(&["the disk is read-only: it is so over", &name]);
    assert_eq!(place.list()[0]["read_only"], true);
}

#[test]
fn a_disk_whose_paths_are_all_failed_is_inaccessible_until_one_is_restored() {
    let serve = Serve::start(&["ram:1M"]);
    let place = Place::new();
    place.attach(&[
        &format!("multipath:({})", serve.uri(0)),
        "--as",
        "nbd-socket",
    ]);
    place.run(&["path", "fail", "disk1", "0"]).exits(0);
    assert_eq!(place.list()[0]["state"], "inaccessible");
    let row = place.run(&["list"]).exits(0).stdout.clone();
    assert!(row.contains("inaccessible  0/1"), "{row}");
    place.run(&["path", "restore", "disk1", "0"]).exits(0);
    assert_eq!(place.list()[0]["state"], "attached");
}

#[test]
fn what_is_said_of_other_gateways_and_cannot_be_is_refused() {
    let ours = "nvme+tcp://127.0.0.1:4420";
    for (words, said) in [
        (
            ["--gateway", "iscsi://192.0.2.1"],
            "only NVMe has a discovery log",
        ),
        (
            ["--gateway", "nvme+tcp://0.0.0.0"],
            "at which hosts reach it",
        ),
        (["--gateway", ours], "an address of this target"),
        (
            ["--referral", "nvme+tcp://192.0.2.1:0"],
            "at which hosts reach it",
        ),
        (["--cntlid-max", "65520"], "65520 is not in 1..=65519"),
        (["--cntlid-min", "0"], "0 is not in 1..=65519"),
    ] {
        fabrix(&[&["serve", "ram:1M", "--listen", ours], &words[..]].concat())
            .exits(2)
            .says(&[words[0], said]);
    }
    let far = "nvme+tcp://127.0.0.1:9/nqn.2026-01.io.fabrix:far/1";
    for (words, said) in [
        (&["disk"][..], "the same at each gateway"),
        (
            &["ram:1M", "-n", "nqn.2026-01.io.fabrix:both"],
            "memory of this process",
        ),
        (
            &[far, "-n", "nqn.2026-01.io.fabrix:both"],
            "--fast-io-fail-tmo 30s",
        ),
    ] {
        let gateway = ["--listen", ours, "--gateway", "nvme+tcp://192.0.2.1"];
        fabrix(&[&["serve"], words, &gateway].concat())
            .exits(2)
            .says(&[said]);
    }
    fabrix(&["serve", "ram:1M", "--cntlid-min", "9", "--cntlid-max", "8"])
        .exits(2)
        .says(&["--cntlid-min 9 is more than --cntlid-max 8"]);
}
