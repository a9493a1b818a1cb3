//! Reservations that outlive the process: a real `kill -9`, and a file that cannot be believed.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;

use tempfile::TempDir;

use super::harness::{BOUND, IQN, Serve, fabrix};

const RESERVATION_CONFLICT: u8 = 0x18;
const REGISTER_AND_IGNORE: u8 = 6;
const RESERVE: u8 = 1;
const APTPL: u8 = 1;

/// An initiator with a session: one command at a time, its data with it.
struct Initiator {
    socket: TcpStream,
    cmd_sn: u8,
}

impl Initiator {
    fn new(serve: &Serve, name: &str) -> Self {
        let portal = serve.json["portals"][0].as_str().expect("a portal");
        let socket = TcpStream::connect(portal).expect("it listens");
        socket.set_read_timeout(Some(BOUND)).expect("a timeout");
        let mut initiator = Self { socket, cmd_sn: 1 };
        let text = format!("InitiatorName=iqn.2026-01.example:{name}\0TargetName={IQN}\0");
        let mut login = [0; 48];
        (login[0], login[1], login[8], login[27]) = (0x43, 0x87, 0x80, 1);
        initiator.send(login, text.as_bytes());
        let (answer, _) = initiator.receive();
        assert_eq!((answer[0], &answer[36..38]), (0x23, &[0, 0][..]));
        // TEST UNIT READY takes the word that the session is new.
        initiator.command(&[0; 6], &[], 0);
        initiator
    }

    fn send(&mut self, mut bhs: [u8; 48], data: &[u8]) {
        let length = u16::try_from(data.len()).expect("short").to_be_bytes();
        bhs[6..8].copy_from_slice(&length);
        let mut bytes = bhs.to_vec();
        bytes.extend(data);
        bytes.resize(48 + data.len().next_multiple_of(4), 0);
        self.socket.write_all(&bytes).expect("it reads");
    }

    fn receive(&mut self) -> ([u8; 48], Vec<u8>) {
        let mut bhs = [0; 48];
        self.socket.read_exact(&mut bhs).expect("it answers");
        let length = usize::from(u16::from_be_bytes([bhs[6], bhs[7]]));
        let mut data = vec![0; length.next_multiple_of(4)];
        self.socket.read_exact(&mut data).expect("and goes on");
        data.truncate(length);
        (bhs, data)
    }

    /// The status, and what was read.
    fn command(&mut self, cdb: &[u8], write: &[u8], read: u8) -> (u8, Vec<u8>) {
        let mut bhs = [0; 48];
        let direction = if read > 0 { 0x40 } else { 0x20 };
        (bhs[0], bhs[1], bhs[19], bhs[27]) = (0x01, 0x80 | direction, self.cmd_sn, self.cmd_sn);
        let expected = write.len() + usize::from(read);
        bhs[22..24].copy_from_slice(&u16::try_from(expected).expect("short").to_be_bytes());
        bhs[32..32 + cdb.len()].copy_from_slice(cdb);
        self.cmd_sn += 1;
        self.send(bhs, write);
        let (answer, data) = self.receive();
        assert!(matches!(answer[0], 0x21 | 0x25), "PDU {:#x}", answer[0]);
        (answer[3], data)
    }

    fn reserve_out(&mut self, action: u8, key: u8, new: u8, flags: u8) -> u8 {
        let mut list = [0; 24];
        (list[7], list[15], list[20]) = (key, new, flags);
        let cdb = [0x5F, action, 1, 0, 0, 0, 0, 0, 24, 0];
        self.command(&cdb, &list, 0).0
    }

    fn keys(&mut self) -> Vec<u8> {
        let (_, data) = self.command(&[0x5E, 0, 0, 0, 0, 0, 0, 0, 64, 0], &[], 64);
        data[8..].chunks(8).map(|key| key[7]).collect()
    }

    fn write(&mut self) -> u8 {
        let cdb = [0x2A, 0, 0, 0, 0, 0, 0, 0, 1, 0];
        self.command(&cdb, &[7; 512], 0).0
    }
}

fn serve(disk: &str, state: &[&str]) -> Serve {
    let listen = [disk, "--listen", "iscsi://127.0.0.1:0"];
    Serve::start(&[&listen[..], state].concat())
}

/// Registers with APTPL and reserves; what was answered must hold after `kill -9`.
fn outlives_a_kill(disk: &str, state: &[&str]) {
    let mut target = serve(disk, state);
    let mut holder = Initiator::new(&target, "holder");
    let register = holder.reserve_out(REGISTER_AND_IGNORE, 0, 5, APTPL);
    assert_eq!(register, 0, "registered");
    assert_eq!(holder.reserve_out(RESERVE, 5, 0, 0), 0, "reserved");
    target.process.kill();
    let target = serve(disk, state);
    let mut other = Initiator::new(&target, "other");
    assert_eq!(other.keys(), [5]);
    assert_eq!(other.write(), RESERVATION_CONFLICT);
    assert_eq!(Initiator::new(&target, "holder").write(), 0);
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
    let mut initiator = Initiator::new(&target, "i");
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
    let mut initiator = Initiator::new(&target, "i");
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
    assert!(Initiator::new(&target, "i").keys().is_empty());
}

#[test]
fn a_state_folder_that_cannot_be_had_is_an_error() {
    fabrix(&["serve", "ram:16M", "--state", "/proc/nowhere"])
        .exits(2)
        .says(&["cannot be stored in /proc/nowhere"]);
}
