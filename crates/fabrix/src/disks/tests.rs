//! Identities of disks opened by one or several openers.

use fabrix_host::ConnectErrorKind;

use super::remote::other_address;
use super::*;

fn opener(scope: &str) -> Opener {
    Opener::new(&RemoteArgs::default(), fabrix_rt::Engine::Auto, scope).expect("an opener")
}

fn open(opener: &Opener, text: &str) -> Arc<dyn Device> {
    opener.open(text, false).expect(text)
}

fn uuid(disk: &Arc<dyn Device>) -> [u8; 16] {
    disk.identity().uuid
}

#[test]
fn a_disk_in_memory_is_another_one_in_every_export_and_the_same_after_a_restart() {
    let (here, there) = (
        opener("iscsi://127.0.0.1:3260"),
        opener("iscsi://127.0.0.1:3261"),
    );
    for text in [
        "ram:1M",
        "null:1M",
        "ram:1M,name=a",
        "raid0:(ram:1M,ram:1M)",
    ] {
        let first = open(&here, text);
        let again = open(&here.apart(), text);
        assert_eq!(first.identity(), again.identity(), "{text}");
        let other = open(&there, text);
        assert_ne!(uuid(&first), uuid(&other), "{text}");
        assert_ne!(first.identity().serial, other.identity().serial, "{text}");
    }
}

#[test]
fn a_file_is_one_disk_whoever_exports_it_and_however_it_is_named() {
    let place = tempfile::tempdir().expect("a folder");
    let path = place.path().join("disk").display().to_string();
    let link = place.path().join("link");
    std::os::unix::fs::symlink(&path, &link).expect("a link");
    let one = uuid(&open(&opener("one"), &format!("{path},size=1M,direct=off")));
    let linked = format!("{},direct=off", link.display());
    assert_eq!(one, uuid(&open(&opener("two"), &linked)));
    let named = format!("{path},direct=off,name=a");
    let name = uuid(&open(&opener("one"), &named));
    assert_ne!(one, name);
    assert_eq!(name, uuid(&open(&opener("two"), &named)));
}

#[test]
fn disks_that_look_alike_are_several() {
    let place = tempfile::tempdir().expect("a folder");
    let path = place.path().join("disk").display().to_string();
    drop(open(&opener("any"), &format!("{path},size=1M,direct=off")));
    let read = [
        format!("{path},ro,direct=off"),
        format!("file:{path},direct=off,ro"),
    ];
    let texts = [
        "ram:1M",
        "ram:1M",
        "ram:1M,name=a",
        "ram:2M,name=a",
        &read[0],
        &read[1],
    ];
    let opener = opener("one");
    let mut disks: Vec<_> = texts.iter().map(|text| open(&opener, text)).collect();
    let all: std::collections::HashSet<_> = disks.iter().map(uuid).collect();
    assert_eq!(all.len(), texts.len());
    // A closed disk leaves its identity to the next one. An open disk keeps its own.
    let gone = uuid(&disks.remove(0));
    assert_eq!(uuid(&open(&opener, "ram:1M")), gone);
}

#[test]
fn what_is_not_an_option_of_a_remote_disk_is_refused_with_what_to_write() {
    for (text, said) in [
        (
            "nvme+tcp://192.0.2.1,digest",
            "there are hdr-digest, data-digest",
        ),
        ("iscsi://192.0.2.1/a/0,digest", "data-digest, target_user"),
        ("nvme+tcp://192.0.2.1,192.0.2.2", "SCHEME://HOST,HOST/"),
        (
            "nvme+tcp://192.0.2.1/n/1,hdr-digest=on",
            "write hdr-digest alone",
        ),
        (
            "nvme+tcp://192.0.2.1/n/1,policy=numa",
            "multipath:(URI,URI),policy=",
        ),
    ] {
        let refused = opener("one")
            .open(text, false)
            .err()
            .expect(text)
            .to_string();
        assert!(refused.contains(said), "{refused}");
    }
}

fn hint(uri: &str, kind: ConnectErrorKind) -> Option<String> {
    let Disk::Remote(remote) = Spec::parse(uri).expect(uri).disk else {
        panic!("{uri} is a remote disk");
    };
    other_address(&remote, kind)
}

#[test]
fn the_address_that_was_meant_keeps_its_transport() {
    for (uri, meant) in [
        ("iscsi://192.0.2.1:4420", "nvme+tcp://192.0.2.1:4420?"),
        ("iser://192.0.2.1:4420", "nvme+rdma://192.0.2.1:4420?"),
        ("iser://192.0.2.1:8009", "nvme+rdma://192.0.2.1:8009?"),
        ("nvme+tcp://192.0.2.1:3260", "iscsi://192.0.2.1:3260?"),
        ("nvme+rdma://192.0.2.1:3260", "iser://192.0.2.1:3260?"),
    ] {
        for kind in [ConnectErrorKind::Unreachable, ConnectErrorKind::Closed] {
            let said = hint(uri, kind).expect(uri);
            assert!(said.ends_with(&format!("do you mean {meant}")), "{said}");
        }
        assert_eq!(hint(uri, ConnectErrorKind::Local), None, "{uri}");
    }
}

#[test]
fn a_target_that_is_not_reached_over_rdma_may_be_reached_over_tcp() {
    let kind = ConnectErrorKind::Unreachable;
    for (uri, meant) in [
        (
            "nvme+rdma://192.0.2.1",
            Some("over TCP: nvme+tcp://192.0.2.1"),
        ),
        (
            "iser://[2001:db8::1]:3260",
            Some("over TCP: iscsi://[2001:db8::1]:3260"),
        ),
        ("nvme+tcp://192.0.2.1", None),
        ("iscsi://192.0.2.1", None),
    ] {
        assert_eq!(hint(uri, kind).as_deref(), meant, "{uri}");
        assert_eq!(hint(uri, ConnectErrorKind::Local), None, "{uri}");
        assert_eq!(hint(uri, ConnectErrorKind::Refused), None, "{uri}");
    }
}
