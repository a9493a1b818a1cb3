//! Disks attached to this machine: sockets everywhere, files and block devices where the machine has them.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use tempfile::TempDir;

use super::harness::{Ended, Running, Serve};

/// A folder of attachments of its own. What is left in it is detached by force.
pub(super) struct Place(TempDir);

impl Place {
    pub(super) fn new() -> Self {
        Self(TempDir::new().expect("a folder"))
    }

    pub(super) fn folder(&self) -> &Path {
        self.0.path()
    }

    /// Whether it is root who runs the tests.
    pub(super) fn is_roots(&self) -> bool {
        fs::metadata(self.folder()).is_ok_and(|it| it.uid() == 0)
    }

    /// Where a disk is declared for the next start.
    pub(super) fn declared(&self, name: &str) -> PathBuf {
        self.folder().join(format!("config/attach.d/{name}.toml"))
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_fabrix"));
        command.env("FABRIX_RUN_DIR", self.folder());
        command
            .env("FABRIX_CONFIG_DIR", self.folder().join("config"))
            .args(args);
        command
    }

    /// Runs the program as a user that owns nothing; fails where he may not start it.
    pub(super) fn run_as_nobody(&self, args: &[&str]) -> std::io::Result<Ended> {
        let mut command = self.command(args);
        if fs::metadata("/proc/self")?.uid() == 0 {
            command.uid(NOBODY).gid(NOBODY);
        }
        Running::spawn(&mut command).map(Running::ended)
    }

    pub(super) fn start(&self, args: &[&str]) -> Running {
        Running::spawn(&mut self.command(args))
            .expect("the program that was just built can be started")
    }

    pub(super) fn run(&self, args: &[&str]) -> Ended {
        self.start(args).ended()
    }

    /// Attaches, and gives the device.
    #[track_caller]
    pub(super) fn attach(&self, args: &[&str]) -> PathBuf {
        let ended = self.run(&[&["attach"], args].concat());
        PathBuf::from(ended.exits(0).stdout.trim())
    }

    #[track_caller]
    pub(super) fn list(&self) -> Vec<Value> {
        let all = self.run(&["list", "-o", "json"]).exits(0).json();
        all["attachments"].as_array().expect("a list").clone()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.run(&["detach", "all", "--force"]);
    }
}

/// Whether block devices can be made here; says why not.
pub(super) fn has_block_devices(test: &str) -> bool {
    let place = Place::new();
    let ended = place.run(&["attach", "ram:1M", "--as", "fuse"]);
    if ended.code != 0 {
        println!(
            "SKIPPED: {test}: {}",
            ended.stderr.trim().replace('\n', " ")
        );
    }
    ended.code == 0
}

pub(super) fn shell(line: &str) -> bool {
    let status = Command::new("sh").args(["-c", line]).status();
    status.is_ok_and(|status| status.success())
}

/// A client that has begun to speak NBD in the oldest way.
pub(super) struct Nbd(UnixStream);

pub(super) fn begin_nbd(path: &Path) -> Nbd {
    let mut stream = UnixStream::connect(path).expect("the socket answers");
    let mut greeting = [0; 18];
    stream.read_exact(&mut greeting).expect("a greeting");
    assert_eq!(&greeting[..16], b"NBDMAGICIHAVEOPT");
    let begin = [&[0, 0, 0, 3][..], b"IHAVEOPT", &[0, 0, 0, 1, 0, 0, 0, 0]].concat();
    stream.write_all(&begin).expect("it listens");
    stream.read_exact(&mut [0; 10]).expect("size and flags");
    Nbd(stream)
}

impl Nbd {
    /// Reads, or tells the error.
    pub(super) fn read(&mut self, offset: u64, bytes: u32) -> Result<Vec<u8>, u32> {
        let stream = &mut self.0;
        let head = [0x25, 0x60, 0x95, 0x13, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8];
        let request = [&head[..], &offset.to_be_bytes(), &bytes.to_be_bytes()].concat();
        stream.write_all(&request).expect("it listens");
        let mut head = [0; 16];
        stream.read_exact(&mut head).expect("an answer");
        let [_, _, _, _, error @ .., _, _, _, _, _, _, _, _] = head;
        if error != [0; 4] {
            return Err(u32::from_be_bytes(error));
        }
        let mut data = vec![0; bytes as usize];
        stream.read_exact(&mut data).expect("the data");
        Ok(data)
    }
}

/// As much NBD as it takes to read some blocks.
fn read_over_nbd(path: &Path, offset: u64, bytes: u32) -> Vec<u8> {
    begin_nbd(path).read(offset, bytes).expect("no error")
}

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
    let socket = place.attach(&[uri, "--as", "nbd", "--name", "remote"]);
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
    let socket = place.attach(&["null:1M", "--as", "nbd", "--name", "one"]);
    let again = place.attach(&["null:1M", "--as", "nbd", "--name", "one", "--idempotent"]);
    assert_eq!(socket, again);
    let taken = place.run(&["attach", "null:2M", "--as", "nbd", "--name", "one"]);
    taken.exits(2).says(&["the name one is taken", "--name"]);
    assert_eq!(place.list().len(), 1);
}

#[test]
fn a_socket_with_clients_is_in_use() {
    let place = Place::new();
    let socket = place.attach(&["null:1M", "--as", "nbd"]);
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
fn every_wrong_word_gets_a_sentence() {
    let place = Place::new();
    let serve = Serve::start(&["ram:1M"]);
    let address = serve.json["listen"][0].as_str().expect("an address");
    let wrong = |args: &[&str], code: i32, parts: &[&str]| {
        place
            .run(&[&["attach", "--as", "nbd"], args].concat())
            .exits(code)
            .says(parts);
        assert!(place.list().is_empty());
    };
    wrong(
        &[&format!("nvme+tcp://{address}/nqn.2026-01.io.fabrix:other")],
        3,
        &["nqn.2026-01.io.fabrix:other"],
    );
    wrong(&["nvme+tcp://127.0.0.1:1"], 3, &["127.0.0.1:1"]);
    wrong(&["/no/such/file"], 2, &["/no/such/file"]);
    wrong(
        &["ram:1M", "--name", "../up"],
        2,
        &["a name begins with a letter"],
    );
    wrong(
        &["ram:1M", "--socket", "/no/such/folder/socket"],
        2,
        &["--socket"],
    );
    place
        .run(&["detach", "nothing"])
        .exits(2)
        .says(&["nothing that is attached is called nothing"]);
    let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = silent.local_addr().expect("its number").port();
    std::thread::spawn(move || {
        while let Ok((mut stream, _)) = silent.accept() {
            let _gone = stream.write_all(b"SSH-2.0-x\r\n");
        }
    });
    wrong(
        &[&format!(
            "nvme+tcp://127.0.0.1:{port}/nqn.2026-01.io.fabrix:disks"
        )],
        3,
        &["127.0.0.1"],
    );
}

#[test]
fn a_dead_process_is_seen_and_its_name_is_free() {
    let place = Place::new();
    let socket = place.attach(&["null:1M", "--as", "nbd", "--name", "one"]);
    let pid = place.list()[0]["pid"].as_u64().expect("a number");
    assert!(shell(&format!("kill -9 {pid}")));
    // The socket closes with the process.
    while UnixStream::connect(&socket).is_ok() {
        std::thread::yield_now();
    }
    while place.list()[0]["state"] != "dead" {
        std::thread::yield_now();
    }
    let again = place.attach(&["null:1M", "--as", "nbd", "--name", "one"]);
    assert_eq!(again, socket);
    assert_eq!(read_over_nbd(&again, 0, 512), [0; 512]);
}

#[test]
fn the_words_of_the_windows_program_work() {
    let serve = Serve::start(&["ram:64M"]);
    let address = serve.json["listen"][0].as_str().expect("an address");
    let nqn = super::harness::NQN;
    let place = Place::new();
    let insert = |local: &str| {
        place.run(&[
            "insert",
            address,
            local,
            nqn,
            "nqn.2008-08.com.example:host",
            "1",
            "32",
        ])
    };
    insert("203.0.113.77").exits(2).says(&["203.0.113.77"]);
    insert("127.0.0.1").exits(0);
    assert_eq!(place.list()[0]["id"], 1);
    place.run(&["remove", "1"]).exits(0);
    assert!(place.list().is_empty());
}

#[test]
fn a_block_device_holds_a_file_system_and_is_in_use_while_it_is_mounted() {
    let name = "a_block_device_holds_a_file_system_and_is_in_use_while_it_is_mounted";
    if !has_block_devices(name) {
        return;
    }
    let place = Place::new();
    let device = place.attach(&["ram:128M", "--as", "fuse", "--name", "one"]);
    let at = TempDir::new().expect("a folder");
    let (device, at) = (
        device.display().to_string(),
        at.path().display().to_string(),
    );
    if !shell(&format!("mkfs.ext4 -q {device} && mount {device} {at}")) {
        return println!("SKIPPED: {name}: no ext4 here");
    }
    let used = place.run(&["detach", "one"]);
    let data = vec![0xa5; 1 << 20];
    fs::write(format!("{at}/file"), &data).expect("a file");
    let trims = shell(&format!("fstrim {at}"));
    assert!(shell(&format!("umount {at} && mount {device} {at}")));
    assert!(fs::read(format!("{at}/file")).expect("the file") == data);
    assert!(shell(&format!("umount {at}")));
    used.exits(1).says(&["in use", "mounted at", &at]);
    assert!(trims, "holes can be made");
    let zeroes = place.list()[0]["zeroes"]["requests"].as_u64();
    assert!(
        zeroes.is_some_and(|count| count > 0),
        "they reach the disk: {zeroes:?}"
    );
    place.run(&["detach", &device]).exits(0);
    assert!(place.list().is_empty());
}

#[test]
fn a_block_device_whose_target_is_gone_is_taken_away_by_force_and_nobody_hangs() {
    let name = "a_block_device_whose_target_is_gone_is_taken_away_by_force_and_nobody_hangs";
    if !has_block_devices(name) {
        return;
    }
    let mut serve = Serve::start(&["ram:64M"]);
    let uri = serve.json["exports"][0]["uri"]
        .as_str()
        .expect("an address")
        .to_owned();
    let place = Place::new();
    let device = place.attach(&[
        &uri,
        "--as",
        "fuse",
        "--name",
        "one",
        "--fast-io-fail-tmo",
        "1h",
    ]);
    let file = fs::File::open(&device).expect("the device");
    serve.process.kill();
    let reader = std::thread::spawn(move || file.read_at(&mut [0; 4096], 32 << 20));
    place.run(&["detach", "one", "--force"]).exits(0);
    reader
        .join()
        .expect("it has ended")
        .expect_err("its disk was taken away");
    assert!(place.list().is_empty());
}

#[test]
fn a_file_grows_with_its_disk_and_refuses_what_a_disk_refuses() {
    let name = "a_file_grows_with_its_disk_and_refuses_what_a_disk_refuses";
    let folder = TempDir::new().expect("a folder");
    let image = folder.path().join("image");
    fs::write(&image, vec![1; 1 << 20]).expect("an image");
    let place = Place::new();
    let attached = place.run(&[
        "attach",
        image.to_str().expect("text"),
        "--as",
        "file",
        "--name",
        "one",
    ]);
    if attached.code != 0 {
        return println!(
            "SKIPPED: {name}: {}",
            attached.stderr.trim().replace('\n', " ")
        );
    }
    let path = PathBuf::from(attached.stdout.trim());
    let file = fs::File::options()
        .read(true)
        .write(true)
        .open(&path)
        .expect("the file");
    file.write_all_at(&[9; 512], 512).expect("a block");
    file.sync_all().expect("it is on the medium");
    assert_eq!(fs::read(&image).expect("the image")[512..1024], [9; 512]);
    file.write_all_at(&[9; 100], 100).expect_err("half a block");
    file.write_all_at(&[9; 512], 1 << 20)
        .expect_err("past the end");
    file.set_len(0).expect_err("a disk is not cut off");
    let mut part = [0; 100];
    file.read_exact_at(&mut part, 500)
        .expect("reads need no whole blocks");
    assert_eq!(
        (part[..12].to_vec(), part[12..].to_vec()),
        (vec![1; 12], vec![9; 88])
    );
    let grown = fs::File::options()
        .write(true)
        .open(&image)
        .expect("the image");
    grown.set_len(2 << 20).expect("more room");
    place.run(&["resize", "one"]).exits(0);
    assert_eq!(file.metadata().expect("its size").len(), 2 << 20);
    assert_eq!(place.list()[0]["size_bytes"], 2 << 20);
    place.run(&["detach", "one"]).exits(1).says(&["in use"]);
    drop(file);
    place.run(&["detach", "one"]).exits(0);
}

#[test]
fn a_block_device_works_without_io_uring_and_under_load_from_many() {
    let name = "a_block_device_works_without_io_uring_and_under_load_from_many";
    if !has_block_devices(name) {
        return;
    }
    let place = Place::new();
    let device = place.attach(&["ram:64M", "--as", "fuse", "--engine", "epoll"]);
    let write = |number: u8| {
        let device = device.clone();
        std::thread::spawn(move || {
            let file = fs::File::options()
                .read(true)
                .write(true)
                .open(device)
                .expect("the device");
            let at = u64::from(number) << 20;
            file.write_all_at(&vec![number; 1 << 20], at)
                .expect("a mebibyte");
            file.sync_all().expect("it is on the medium");
            let mut back = vec![0; 1 << 20];
            file.read_exact_at(&mut back, at).expect("it is there");
            assert!(back.iter().all(|byte| *byte == number));
        })
    };
    let writers: Vec<_> = (1..17).map(write).collect();
    writers
        .into_iter()
        .for_each(|writer| writer.join().expect("what it wrote"));
    place.run(&["detach", "1"]).exits(0);
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
/// The user that owns nothing.
const NOBODY: u32 = 65_534;
