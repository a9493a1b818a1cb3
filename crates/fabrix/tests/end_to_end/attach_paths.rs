//! Paths that join and leave an attached disk, and paths that discovery lists.

use std::path::Path;

use serde_json::Value;
use tempfile::TempDir;

use super::attach_place::{Place, begin_nbd, until};
use super::harness::{Ended, Serve, fabrix, make_file, path_in, scratch};

/// A target at two addresses, and what its disk holds: sevens.
struct Two {
    _folder: TempDir,
    api: String,
    serve: Serve,
}

impl Two {
    fn new(scheme: &str) -> Self {
        let folder = scratch();
        let image = path_in(&folder, "disk");
        make_file(&image, 16 << 20, 0, &[7; 512]);
        let api = format!("unix:{}", path_in(&folder, "api"));
        let listens = [1, 2].map(|at| format!("{scheme}://127.0.0.{at}:0"));
        let words = [&image, "--listen", &listens[0], "--listen", &listens[1]];
        let serve = Serve::start(&[&words[..], &["--api", &api]].concat());
        Self {
            _folder: folder,
            api,
            serve,
        }
    }

    /// The addresses that it listens on.
    fn addresses(&self, key: &str) -> [String; 2] {
        let at = |at: usize| self.serve.json[key][at].as_str().expect("it listens");
        [0, 1].map(|index| at(index).to_owned())
    }

    /// The disk at each address, over NVMe.
    fn uris(&self) -> [String; 2] {
        let uri = self.serve.uri(0);
        let addresses = self.addresses("listen");
        addresses.map(|address| uri.replace(&self.serve.address(), &address))
    }
}

fn path(place: &Place, words: &[&str]) -> Ended {
    place.run(&[&["path"], words].concat())
}

/// The numbers of the paths that are connected.
fn connected(one: &Value) -> Vec<u64> {
    let paths = one["paths"].as_array().map_or(&[][..], Vec::as_slice);
    let connected = paths.iter().filter(|path| path["state"] == "connected");
    connected
        .filter_map(|path| path["index"].as_u64())
        .collect()
}

#[test]
fn paths_are_added_and_removed_while_the_disk_is_read() {
    let two = Two::new("nvme+tcp");
    let [one, other] = two.uris();
    let place = Place::new();
    let socket = place.attach(&[&format!("multipath:({one})"), "--as", "nbd-socket"]);
    let mut client = begin_nbd(&socket);
    assert_eq!(client.read(0, 512), Ok(vec![7; 512]));
    let added = path(&place, &["add", "disk1", &other, "-o", "json"]);
    let paths = added.exits(0).json()["paths"].clone();
    assert_eq!(
        (&paths[1]["index"], paths.as_array().map(Vec::len)),
        (&1.into(), Some(2))
    );
    until(&place, "over two paths", |one| connected(one) == [0, 1]);
    path(&place, &["remove", "disk1", "0"]).exits(0);
    assert_eq!(client.read(0, 512), Ok(vec![7; 512]), "over the new path");
    let left = place.list().remove(0);
    assert_eq!(connected(&left), [1], "the number stays: {left}");
    assert_eq!(left["roster"][0]["index"], 1);
    let text = path(&place, &["list", "disk1"]).exits(0).stdout.clone();
    let addresses = two.addresses("listen");
    assert!(
        text.contains(&addresses[1]) && !text.contains(&addresses[0]),
        "{text}"
    );
    path(&place, &["add", "disk1", &one]).exits(0);
    until(&place, "over both again", |one| connected(one) == [0, 1]);
    path(&place, &["remove", "disk1", "1"]).exits(0);
    assert_eq!(client.read(0, 512), Ok(vec![7; 512]));
    let grown = place.run(&["resize", "disk1", "-o", "json"]);
    assert_eq!(
        connected(&grown.exits(0).json()),
        [0],
        "the size is asked over it"
    );
}

#[test]
fn a_path_that_cannot_be_added_or_removed_is_refused_with_the_reason() {
    let two = Two::new("nvme+tcp");
    let [one, other] = two.uris();
    let place = Place::new();
    place.attach(&[&format!("multipath:({one})"), "--as", "nbd-socket"]);
    let refused = |words: &[&str], code: i32, parts: &[&str]| {
        path(&place, words).exits(code).says(parts);
    };
    refused(&["remove", "disk1", "0"], 2, &["path 0 is the last one"]);
    refused(&["remove", "disk1", "5"], 2, &["there is no path 5"]);
    refused(&["add", "disk1", &one], 2, &["are the same path"]);
    let another = Serve::start(&["ram:16M"]);
    let uuid = |serve: &Serve| serve.json["exports"][0]["uuid"].as_str().map(str::to_owned);
    let uuids = [&two.serve, &another].map(|serve| uuid(serve).expect("a UUID"));
    let parts = ["are not the same disk", &uuids[0], &uuids[1]];
    refused(&["add", "disk1", &another.uri(0)], 3, &parts);
    refused(
        &["add", "disk1", "ram:1M"],
        2,
        &["a path is the URI of a remote disk"],
    );
    refused(
        &["add", "disk1", &format!("{other},ro")],
        2,
        &["without options"],
    );
    assert_eq!(connected(&place.list()[0]), [0], "nothing has changed");
    place.run(&["detach", "disk1"]).exits(0);
    place.attach(&[&one, "--as", "nbd-socket", "--name", "plain"]);
    refused(
        &["add", "plain", &other],
        2,
        &["attach it as", "multipath:(URI)"],
    );
}

#[test]
fn a_disk_with_a_path_twice_or_with_too_many_is_refused() {
    let two = Two::new("nvme+tcp");
    let uri = two.serve.uri(0);
    let place = Place::new();
    let attach = |uri: &str| place.run(&["attach", uri, "--as", "nbd-socket"]);
    attach(&format!("multipath:({uri},{uri})"))
        .exits(2)
        .says(&["are the same path"]);
    // Nothing listens at the first ones, and none of them is tried.
    let hosts: Vec<String> = (1..=17).map(|at| format!("127.77.0.{at}:9")).collect();
    let many = uri.replace(&two.serve.address(), &hosts.join(","));
    attach(&many)
        .exits(2)
        .says(&["17 paths: a disk has at most 16"]);
}

/// Attaches the disk of a URI without a name over the paths that discovery lists. Reads go on when
/// one of the addresses is closed and its path is out of use.
fn is_over_both(two: &Two, scheme: &str, key: &str) {
    let addresses = two.addresses(key);
    let uris = addresses.map(|address| format!("{scheme}://{address}"));
    let place = Place::new();
    let attached = place.run(&["attach", &uris[0], "--as", "nbd-socket"]);
    attached
        .exits(0)
        .says(&["the disk has 2 paths", &uris[0], &uris[1]]);
    let mut client = begin_nbd(Path::new(attached.stdout.trim()));
    until(&place, "over two paths", |one| connected(one) == [0, 1]);
    assert_eq!(client.read(0, 512), Ok(vec![7; 512]));
    fabrix(&["ctl", "--api", &two.api, "listener", "remove", &uris[0]]).exits(0);
    path(&place, &["fail", "disk1", "0"]).exits(0);
    assert_eq!(client.read(0, 512), Ok(vec![7; 512]), "over the other one");
    path(&place, &["remove", "disk1", "0"]).exits(0);
    assert_eq!(client.read(0, 512), Ok(vec![7; 512]));
    assert_eq!(connected(&place.list()[0]), [1]);
}

#[test]
fn a_subsystem_that_discovery_lists_at_two_addresses_is_a_disk_over_both() {
    is_over_both(&Two::new("nvme+tcp"), "nvme+tcp", "listen");
}

#[test]
fn a_target_that_is_listed_at_two_portals_is_a_disk_over_both() {
    is_over_both(&Two::new("iscsi"), "iscsi", "portals");
}

#[test]
fn a_uri_with_a_name_stays_one_path_and_a_policy_belongs_to_listed_ones() {
    let two = Two::new("nvme+tcp");
    let uri = two.serve.uri(0);
    let bench = |uri: &str| fabrix(&["bench", uri, "--runtime", "50ms"]);
    let named = bench(&uri);
    assert!(!named.exits(0).stderr.contains("paths"), "{named}");
    bench(&format!("{uri},policy=round-robin"))
        .exits(2)
        .says(&["`policy` is an option of a disk with several paths"]);
    let found = format!("nvme+tcp://{}", two.serve.address());
    bench(&format!("{found},policy=round-robin,failover=fast"))
        .exits(0)
        .says(&["the disk has 2 paths"]);
    bench(&format!("{found},policy=fastest"))
        .exits(2)
        .says(&["`fastest` is not a policy"]);
    let one = Serve::start(&["ram:16M"]);
    let plain = bench(&format!("nvme+tcp://{}", one.address()));
    assert!(!plain.exits(0).stderr.contains("paths"), "{plain}");
}

#[test]
fn a_port_that_discovery_lists_later_becomes_a_path_when_the_path_is_back() {
    let folder = scratch();
    let image = path_in(&folder, "disk");
    make_file(&image, 16 << 20, 0, &[7; 512]);
    let serve = Serve::start(&[&image]);
    let first = format!("nvme+tcp://{}", serve.address());
    let place = Place::new();
    let uri = format!("{first},policy=queue-depth");
    let socket = place.attach(&[&uri, "--as", "nbd-socket"]);
    until(&place, "over one path", |one| connected(one) == [0]);
    serve.stop();
    let more = [&image, "--listen", "nvme+tcp://127.0.0.2:0"];
    let _serve = Serve::start_again_on(&more, &first);
    let both = until(&place, "over the new port too", |one| {
        connected(one) == [0, 1]
    });
    let address = both["paths"][1]["address"].as_str();
    assert!(
        address.is_some_and(|it| it.starts_with("127.0.0.2:")),
        "{both}"
    );
    path(&place, &["remove", "disk1", "0"]).exits(0);
    assert_eq!(begin_nbd(&socket).read(0, 512), Ok(vec![7; 512]));
}

/// A disk whose target takes it away is unusable, and attached again when it is back.
fn is_unusable_without_its_disk(scheme: &str, key: &str) {
    let two = Two::new(scheme);
    let place = Place::new();
    let uri = format!("{scheme}://{}", two.addresses(key)[0]);
    let socket = place.attach(&[&uri, "--as", "nbd-socket", "-k", "200ms"]);
    assert_eq!(begin_nbd(&socket).read(0, 512), Ok(vec![7; 512]));
    let disk = two.serve.json["exports"][0]["disk"]
        .as_str()
        .expect("a text");
    let ctl = |words: &[&str]| fabrix(&[&["ctl", "--api", &two.api], words].concat());
    ctl(&["namespace", "remove", "1"]).exits(0);
    until(&place, "unusable", |one| {
        one["state"] == "unusable" && one["fault"].is_string()
    });
    ctl(&["namespace", "add", disk]).exits(0);
    until(&place, "attached again", |one| one["state"] == "attached");
}

#[test]
fn a_disk_that_its_target_takes_away_is_unusable_until_it_is_back() {
    is_unusable_without_its_disk("nvme+tcp", "listen");
}

#[test]
fn a_disk_over_iscsi_that_its_target_takes_away_is_unusable_until_it_is_back() {
    is_unusable_without_its_disk("iscsi", "portals");
}
