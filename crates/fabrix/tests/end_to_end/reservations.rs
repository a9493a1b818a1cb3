//! Reservations that outlive the process: a real `kill -9`, and a file that cannot be believed.

use std::fs;
use std::path::Path;

use tempfile::TempDir;

use super::harness::{IQN, Serve, fabrix};
use super::plain_initiator::Initiator;

const RESERVATION_CONFLICT: u8 = 0x18;
const REGISTER_AND_IGNORE: u8 = 6;
const RESERVE: u8 = 1;
const APTPL: u8 = 1;

fn log_in(serve: &Serve, name: &str) -> Initiator {
    let portal = serve.json["portals"][0].as_str().expect("a portal");
    Initiator::new(portal, IQN, name)
}

/// The status of a write of one block.
fn write(initiator: &mut Initiator) -> u8 {
    let cdb = [0x2A, 0, 0, 0, 0, 0, 0, 0, 1, 0];
    initiator.command(&cdb, &[7; 512], 0).0
}

fn serve(disk: &str, state: &[&str]) -> Serve {
    let listen = [disk, "--listen", "iscsi://127.0.0.1:0"];
    Serve::start(&[&listen[..], state].concat())
}

/// Registers with APTPL and reserves; what was answered must hold after `kill -9`.
fn outlives_a_kill(disk: &str, state: &[&str]) {
    let mut target = serve(disk, state);
    let mut holder = log_in(&target, "holder");
    let register = holder.reserve_out(REGISTER_AND_IGNORE, 0, 5, APTPL);
    assert_eq!(register, 0, "registered");
    assert_eq!(holder.reserve_out(RESERVE, 5, 0, 0), 0, "reserved");
    target.process.kill();
    let target = serve(disk, state);
    let mut other = log_in(&target, "other");
    assert_eq!(other.keys(), [5]);
    assert_eq!(write(&mut other), RESERVATION_CONFLICT);
    assert_eq!(write(&mut log_in(&target, "holder")), 0);
}

fn path(folder: &Path, name: &str) -> String {
    folder.join(name).to_str().expect("a plain path").to_owned()
}

#[test]
fn what_was_answered_holds_after_kill_9() {
    let folder = TempDir::new().expect("a folder");
    let state = path(folder.path(), "state");
    let file = format!("{},size=16M", path(folder.path(), "disk.img"));
    outlives_a_kill(&file, &["--state", &state]);
    // Whoever asks for a place gets it for every disk.
    outlives_a_kill("ram:16M", &["--state", &state]);
    // A local file needs not be asked for.
    let other = format!("{},size=16M", path(folder.path(), "other.img"));
    outlives_a_kill(&other, &[]);
}

#[test]
fn a_ram_disk_does_not_promise_what_it_does_not_keep() {
    let target = serve("ram:16M", &[]);
    let mut initiator = log_in(&target, "i");
    let check_condition = 2;
    let register = initiator.reserve_out(REGISTER_AND_IGNORE, 0, 5, APTPL);
    assert_eq!(register, check_condition);
    assert_eq!(initiator.reserve_out(REGISTER_AND_IGNORE, 0, 5, 0), 0);
}

#[test]
fn a_disk_whose_stored_reservations_are_damaged_is_not_served() {
    let folder = TempDir::new().expect("a folder");
    let state = path(folder.path(), "state");
    let arguments = [
        "ram:16M",
        "--listen",
        "iscsi://127.0.0.1:0",
        "--state",
        &state,
        "--iqn",
        IQN,
    ];
    let mut target = serve("ram:16M", &["--state", &state]);
    let mut initiator = log_in(&target, "i");
    assert_eq!(initiator.reserve_out(REGISTER_AND_IGNORE, 0, 5, APTPL), 0);
    target.process.kill();
    let stored = fs::read_dir(&state).expect("the folder is there");
    let stored: Vec<_> = stored
        .map(|entry| entry.expect("readable").path())
        .collect();
    let [stored] = &stored[..] else {
        panic!("one file for one disk: {stored:?}");
    };
    let mut bytes = fs::read(stored).expect("readable");
    bytes[12] ^= 1;
    fs::write(stored, bytes).expect("writable");
    fabrix(&[&["serve"], &arguments[..]].concat())
        .exits(2)
        .says(&["namespace 1 is not served", "do not match their checksum"]);
    fs::remove_file(stored).expect("removable");
    let target = serve("ram:16M", &["--state", &state]);
    assert!(log_in(&target, "i").keys().is_empty());
}

#[test]
fn a_state_folder_that_cannot_be_had_is_an_error() {
    fabrix(&["serve", "ram:16M", "--state", "/proc/nowhere"])
        .exits(2)
        .says(&["cannot be stored in /proc/nowhere"]);
}
