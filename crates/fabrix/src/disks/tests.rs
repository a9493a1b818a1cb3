//! Identities of disks opened by one or several openers.

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
