//! Disks attached as block devices, and as files over FUSE, where the machine has them: what they
//! hold, and what becomes of them and of their users when the target, the disk or the process
//! behind them goes.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::attach_place::{
    Mounted, Place, hangs, has_block_devices, has_files, has_programs, nobody_hangs, shell, told,
    until, wait,
};
use super::harness::{Ended, Running, Serve, path_in, scratch};

/// A disk that is served over one protocol, and how to serve it again.
pub(super) struct Served {
    serve: Serve,
    disk: String,
    listen: String,
    pub(super) uri: String,
}

impl Served {
    pub(super) fn start(disk: &str, protocol: &str) -> Self {
        let serve = Serve::start(&[disk, "--listen", &format!("{protocol}://127.0.0.1:0")]);
        let key = if protocol == "iscsi" {
            "iscsi_uri"
        } else {
            "uri"
        };
        let uri = serve.json["exports"][0][key].as_str();
        let uri = uri.expect("an address").to_owned();
        let (listen, _) = uri
            .rsplit_once("/nqn")
            .or_else(|| uri.rsplit_once("/iqn"))
            .expect("a name");
        Self {
            listen: listen.to_owned(),
            disk: disk.to_owned(),
            serve,
            uri,
        }
    }

    /// `kill -9`.
    pub(super) fn kill(&mut self) {
        self.serve.process.kill();
    }

    fn start_again(&mut self) {
        self.serve = Serve::start_again_on(&[&self.disk], &self.listen);
    }
}

const PROTOCOLS: [&str; 2] = ["nvme+tcp", "iscsi"];

pub(super) fn writable(device: &Path) -> File {
    let opened = File::options().read(true).write(true).open(device);
    opened.expect("the device opens")
}

/// A program that uses a disk. One that waits for it cannot be killed, so it is let go in a test
/// that fails: what is attached goes behind it, and takes what it waits for away.
pub(super) struct User(Option<Running>);

impl User {
    /// Reads or writes one block, and how is said in the words of `dd`.
    pub(super) fn dd(words: &str) -> Self {
        let words = words.split(' ').chain(["bs=4k", "count=1"]);
        let running = Running::spawn(Command::new("dd").args(words));
        Self(Some(running.expect("dd is everywhere")))
    }

    pub(super) fn pid(&self) -> u64 {
        self.0.as_ref().map_or(0, |running| running.pid().into())
    }

    pub(super) fn waits_for_its_disk(&self) {
        wait("it waits for its disk", || hangs(self.pid()));
    }

    #[track_caller]
    pub(super) fn ended(mut self) -> Ended {
        let running = self.0.as_mut().expect("nobody has asked before");
        wait("its user has ended", || !running.is_running());
        let running = self.0.take();
        running.expect("as before").ended()
    }
}

impl Drop for User {
    fn drop(&mut self) {
        std::mem::forget(self.0.take());
    }
}

/// The process that keeps the only attachment.
pub(super) fn holder(place: &Place) -> u64 {
    place.list()[0]["pid"].as_u64().expect("a number")
}

#[test]
fn a_block_device_holds_a_file_system_and_is_in_use_while_it_is_mounted() {
    let name = "a_block_device_holds_a_file_system_and_is_in_use_while_it_is_mounted";
    if !has_block_devices(name) || !has_programs(name, &["mkfs.ext4", "fstrim"]) {
        return;
    }
    let place = Place::new();
    let device = place.attach(&["ram:128M", "--as", "fuse", "--name", "one"]);
    let mounted = Mounted::fresh(&device);
    let at = mounted.at.path().display().to_string();
    place
        .run(&["detach", "one"])
        .exits(1)
        .says(&["in use", "mounted at", &at, "--force"]);
    let data = vec![0xa5; 1 << 20];
    fs::write(mounted.path("file"), &data).expect("a file");
    assert!(shell(&format!("fstrim {at}")), "holes can be made");
    mounted.unmount();
    mounted.mount();
    assert!(fs::read(mounted.path("file")).expect("the file") == data);
    mounted.unmount();
    let zeroes = place.list()[0]["zeroes"]["requests"].as_u64();
    assert!(zeroes > Some(0), "they reach the disk: {zeroes:?}");
    place
        .run(&["detach", &device.display().to_string()])
        .exits(0);
    assert!(place.list().is_empty());
}

#[test]
fn a_block_device_is_what_its_disk_is() {
    if !has_block_devices("a_block_device_is_what_its_disk_is") {
        return;
    }
    let place = Place::new();
    let device = place.attach(&["ram:16M,block=4096", "--as", "fuse"]);
    let queue = |what: &str| told(&device, &format!("queue/{what}"));
    assert_eq!(told(&device, "size"), (16 << 11).to_string());
    assert_eq!(
        (told(&device, "ro"), queue("logical_block_size")),
        ("0".into(), "4096".into())
    );
    assert_eq!(queue("write_cache"), "write back");
    for limit in ["discard_max_bytes", "write_zeroes_max_bytes"] {
        assert_ne!(queue(limit), "0", "{limit}");
    }
    for words in [&["ram:16M,ro"][..], &["ram:16M", "--read-only"]] {
        let place = Place::new();
        let device = place.attach(&[words, &["--as", "fuse"]].concat());
        assert_eq!(
            (
                told(&device, "ro"),
                told(&device, "queue/logical_block_size")
            ),
            ("1".into(), "512".into())
        );
        let written = File::options().write(true).open(&device);
        let written = written.and_then(|file| {
            file.write_all_at(&[1; 512], 0)
                .and_then(|()| file.sync_all())
        });
        written.expect_err("nobody may write");
        assert_eq!(place.list()[0]["read_only"], true);
    }
}

#[test]
fn fsync_is_a_flush_of_the_disk() {
    if !has_block_devices("fsync_is_a_flush_of_the_disk") {
        return;
    }
    for front in ["file", "fuse"] {
        let place = Place::new();
        let path = place.attach(&["ram:16M", "--as", front]);
        let flushes = || place.list()[0]["flush"]["requests"].as_u64();
        let file = writable(&path);
        file.write_all_at(&[7; 4096], 4096).expect("a block");
        let before = flushes();
        file.sync_all().expect("it is on the medium");
        assert!(before.is_some() && flushes() > before, "{front}");
        assert_eq!(place.list()[0]["write"]["bytes"], 4096, "{front}");
    }
}

#[test]
fn a_block_device_works_without_io_uring_and_under_load_from_many() {
    if !has_block_devices("a_block_device_works_without_io_uring_and_under_load_from_many") {
        return;
    }
    let place = Place::new();
    let device = place.attach(&["ram:64M", "--as", "fuse", "--engine", "epoll"]);
    let write = |number: u8| {
        let device = device.clone();
        std::thread::spawn(move || {
            let file = writable(&device);
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
fn a_disk_that_changes_its_size_over_there_changes_its_block_device_by_itself() {
    let name = "a_disk_that_changes_its_size_over_there_changes_its_block_device_by_itself";
    if !has_block_devices(name) {
        return;
    }
    let folder = scratch();
    let (image, api) = (
        path_in(&folder, "disk"),
        format!("unix:{}", path_in(&folder, "api")),
    );
    let disk = format!("file:{image},size=16M,direct=off");
    let listen = "--listen nvme+tcp://127.0.0.1:0 --listen iscsi://127.0.0.1:0 --allow any --api";
    let words: Vec<&str> = [disk.as_str()]
        .into_iter()
        .chain(listen.split(' '))
        .collect();
    let serve = Serve::start(&[&words[..], &[&api]].concat());
    for key in ["uri", "iscsi_uri"] {
        let uri = serve.json["exports"][0][key].as_str().expect("an address");
        let place = Place::new();
        let device = place.attach(&[uri, "--as", "fuse", "-k", "200ms"]);
        for mib in [32_u64, 16] {
            let size = format!("{mib}M");
            let resize = ["ctl", "--api", &api, "namespace", "resize", "1", &size];
            place.run(&[&resize[..], &["--shrink"]].concat()).exits(0);
            wait(&format!("{size} over {key}"), || {
                told(&device, "size") == (mib << 11).to_string()
            });
            let file = writable(&device);
            let end = (mib << 20) - 4096;
            file.write_all_at(&[0xa5; 4096], end)
                .expect("the last blocks");
            file.sync_all().expect("they are on the medium");
            let mut back = [0; 4096];
            let served = File::open(&image).expect("the image");
            served.read_exact_at(&mut back, end).expect("it is so long");
            assert_eq!(back, [0xa5; 4096]);
        }
    }
}

#[test]
fn requests_wait_for_a_target_no_longer_than_was_said_and_the_device_stays() {
    let name = "requests_wait_for_a_target_no_longer_than_was_said_and_the_device_stays";
    if !has_block_devices(name) {
        return;
    }
    for protocol in PROTOCOLS {
        let mut served = Served::start("ram:64M", protocol);
        let place = Place::new();
        let words = ["--as", "fuse", "--fast-io-fail-tmo", "300ms", "-c", "50ms"];
        let device = place.attach(&[&[served.uri.as_str()], &words[..]].concat());
        served.kill();
        let direct = format!("if={} of=/dev/null iflag=direct", device.display());
        User::dd(&direct)
            .ended()
            .exits(1)
            .says(&["Input/output error"]);
        served.start_again();
        until(&place, "back", |one| {
            one["state"] == "attached" && one["reconnects"] == 1
        });
        User::dd(&direct).ended().exits(0);
        assert_eq!(
            place.list()[0]["device"].as_str().map(Path::new),
            Some(device.as_path())
        );
    }
}

#[test]
fn a_file_system_outlives_a_target_that_is_killed_under_it() {
    let name = "a_file_system_outlives_a_target_that_is_killed_under_it";
    if !has_block_devices(name) || !has_programs(name, &["mkfs.ext4", "e2fsck"]) {
        return;
    }
    for protocol in PROTOCOLS {
        let folder = scratch();
        let disk = format!("file:{},size=64M", path_in(&folder, "disk"));
        let mut served = Served::start(&disk, protocol);
        let place = Place::new();
        let device = place.attach(&[&served.uri, "--as", "fuse", "--name", "one"]);
        let mounted = Mounted::fresh(&device);
        let mut written = Vec::new();
        for round in 0..3 {
            let writer = write_and_sync(mounted.path(&round.to_string()), round);
            served.kill();
            served.start_again();
            written.push(writer.join().expect("it was written"));
        }
        mounted.unmount();
        assert!(
            shell(&format!("e2fsck -fn {} >&2", device.display())),
            "the file system is whole"
        );
        mounted.mount();
        for (round, data) in written.iter().enumerate() {
            let back = fs::read(mounted.path(&round.to_string()));
            assert!(
                back.is_ok_and(|back| back == *data),
                "file {round} over {protocol}"
            );
        }
        mounted.unmount();
        assert!(place.list()[0]["reconnects"].as_u64() > Some(0));
        place.run(&["detach", "one"]).exits(0);
    }
}

/// Writes a file that is not like others and waits until it is on the medium.
fn write_and_sync(path: String, round: u8) -> std::thread::JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let data: Vec<u8> = (0..1 << 20)
            .map(|at: u32| at.to_le_bytes()[1] ^ round)
            .collect();
        let file = File::create(path).expect("a file");
        file.write_all_at(&data, 0).expect("a mebibyte");
        file.sync_all().expect("it is on the medium");
        data
    })
}

#[test]
fn a_disk_whose_target_is_gone_is_taken_away_by_force_and_nobody_hangs() {
    let name = "a_disk_whose_target_is_gone_is_taken_away_by_force_and_nobody_hangs";
    if !has_block_devices(name) {
        return;
    }
    for protocol in PROTOCOLS {
        let mut served = Served::start("ram:64M", protocol);
        let place = Place::new();
        let words = ["--as", "fuse", "--name", "one", "--fast-io-fail-tmo", "1h"];
        let device = place.attach(&[&[served.uri.as_str()], &words[..]].concat());
        let holder = holder(&place);
        served.kill();
        let writer = User::dd(&format!(
            "if=/dev/zero of={} conv=notrunc,fsync",
            device.display()
        ));
        let reader = User::dd(&format!(
            "if={} of=/dev/null iflag=direct",
            device.display()
        ));
        let users = [writer.pid(), reader.pid()];
        writer.waits_for_its_disk();
        reader.waits_for_its_disk();
        let polite = place.start(&["detach", "one"]);
        place.run(&["detach", "one", "--force"]).exits(0);
        reader.ended().exits(1).says(&["Input/output error"]);
        writer.ended();
        polite.ended();
        nobody_hangs(&[&users[..], &[holder]].concat());
        wait("its process has ended", || {
            !Path::new(&format!("/proc/{holder}")).exists()
        });
        assert!(place.list().is_empty());
    }
}

#[test]
fn a_mounted_disk_whose_target_is_gone_is_taken_away_by_force_and_can_be_unmounted() {
    let name = "a_mounted_disk_whose_target_is_gone_is_taken_away_by_force_and_can_be_unmounted";
    if !has_block_devices(name) || !has_programs(name, &["mkfs.ext4"]) {
        return;
    }
    let mut served = Served::start("ram:64M", "nvme+tcp");
    let place = Place::new();
    let words = ["--as", "fuse", "--name", "one", "--fast-io-fail-tmo", "1h"];
    let device = place.attach(&[&[served.uri.as_str()], &words[..]].concat());
    let holder = holder(&place);
    let mounted = Mounted::fresh(&device);
    served.kill();
    let writer = User::dd(&format!(
        "if=/dev/zero of={} conv=fsync",
        mounted.path("file")
    ));
    let user = writer.pid();
    writer.waits_for_its_disk();
    place.run(&["detach", "one"]).exits(1).says(&["mounted at"]);
    place.run(&["detach", "one", "--force"]).exits(0);
    writer.ended().exits(1);
    let at = mounted.at.path().display().to_string();
    let unmount = Running::spawn(Command::new("umount").arg(&at)).expect("it is everywhere");
    let unmounter = u64::from(unmount.pid());
    unmount.ended().exits(0);
    nobody_hangs(&[user, unmounter, holder]);
    assert!(place.list().is_empty());
}

#[test]
fn a_process_that_is_killed_leaves_a_device_that_fails_and_is_cleared_away() {
    let name = "a_process_that_is_killed_leaves_a_device_that_fails_and_is_cleared_away";
    if !has_block_devices(name) {
        return;
    }
    // A size that no other test has: the numbers of loop devices are used again.
    let mut served = Served::start("ram:67M", "nvme+tcp");
    let sectors = (67 << 11).to_string();
    let place = Place::new();
    let words = ["--as", "fuse", "--name", "one", "--fast-io-fail-tmo", "1h"];
    let attach = || place.attach(&[&[served.uri.as_str()], &words[..]].concat());
    let kill = || {
        let pid = holder(&place);
        assert!(shell(&format!("kill -9 {pid}")));
        until(&place, "dead", |one| one["state"] == "dead");
        pid
    };
    let direct = |device: &PathBuf| format!("if={} of=/dev/null iflag=direct", device.display());

    let device = attach();
    kill();
    User::dd(&direct(&device))
        .ended()
        .exits(1)
        .says(&["Input/output error"]);
    let again = attach();
    User::dd(&direct(&again)).ended().exits(0);
    assert!(
        again == device || told(&device, "size") != sectors,
        "nothing is left of it"
    );

    // While a request is on its way, to a target that is not there.
    served.kill();
    let reader = User::dd(&direct(&again));
    let user = reader.pid();
    reader.waits_for_its_disk();
    let pid = kill();
    reader.ended().exits(1).says(&["Input/output error"]);
    nobody_hangs(&[user, pid]);
    place.run(&["detach", "one"]).exits(0);
    assert!(place.list().is_empty());
    assert_ne!(told(&again, "size"), sectors, "nothing is left of it");
}

#[test]
fn a_file_grows_with_its_disk_and_refuses_what_a_disk_refuses() {
    if !has_files("a_file_grows_with_its_disk_and_refuses_what_a_disk_refuses") {
        return;
    }
    let folder = scratch();
    let image = path_in(&folder, "image");
    fs::write(&image, vec![1; 1 << 20]).expect("an image");
    let place = Place::new();
    let path = place.attach(&[&image, "--as", "file", "--name", "one"]);
    let file = writable(&path);
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
    let grown = File::options().write(true).open(&image).expect("the image");
    grown.set_len(3 << 20).expect("more room");
    place.run(&["resize", "one"]).exits(0);
    assert_eq!(file.metadata().expect("its size").len(), 3 << 20);
    assert_eq!(place.list()[0]["size_bytes"], 3 << 20);
    // More than one transfer, from the middle of a block to the middle of another.
    let mut most = vec![7; (3 << 20) - 200];
    file.read_exact_at(&mut most, 100)
        .expect("all but the ends");
    assert!(most == fs::read(&image).expect("the image")[100..][..most.len()]);
    place.run(&["detach", "one"]).exits(1).says(&["in use"]);
    drop(file);
    // Between fork and exec a child of another test has the file open, too.
    wait("nobody has the file open", || {
        place.run(&["detach", "one"]).code == 0
    });
}
