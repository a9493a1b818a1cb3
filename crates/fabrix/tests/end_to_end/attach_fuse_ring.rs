//! Disks over FUSE whose requests come over io_uring, where the kernel can: what they hold, and
//! what becomes of their users when the disk or the process behind them goes.
//!
//! The kernel's switch for it is the machine's, and mostly off: a test sets it, keeps others from
//! it meanwhile, and puts it back.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::thread;

use super::attach_device::{Served, User, holder, writable};
use super::attach_place::{Place, has_block_devices, nobody_hangs, shell, told, until, wait};
use super::harness::skipped;

const SWITCH: &str = "/sys/module/fuse/parameters/enable_uring";

/// The kernel's switch as a test needs it, until this is dropped.
struct Switch {
    /// Locked: nobody else who runs these tests moves the switch meanwhile.
    file: File,
    before: String,
}

impl Switch {
    /// None: it is not there, or not ours to set, which is said.
    fn set(test: &str, on: bool) -> Option<Self> {
        if !has_block_devices(test) {
            return None;
        }
        let opened = File::options().read(true).write(true).open(SWITCH);
        let opened = opened.and_then(|file| file.lock().map(|()| file));
        match opened {
            Ok(file) => {
                let before = fs::read_to_string(SWITCH).expect("it is open");
                let switch = Self { file, before };
                switch.to(if on { "Y" } else { "N" });
                Some(switch)
            }
            Err(error) => {
                skipped(test, &format!("{SWITCH}: {error}"));
                None
            }
        }
    }

    fn to(&self, word: &str) {
        self.file
            .write_all_at(word.as_bytes(), 0)
            .expect("it is open for that");
    }
}

impl Drop for Switch {
    fn drop(&mut self) {
        self.to(self.before.trim());
    }
}

/// Over what the only attachment is asked.
fn is_over_uring(place: &Place) -> bool {
    place.list()[0]["io_uring"] == true
}

#[test]
fn a_block_device_over_io_uring_holds_what_many_write_at_once() {
    let name = "a_block_device_over_io_uring_holds_what_many_write_at_once";
    let Some(_on) = Switch::set(name, true) else {
        return;
    };
    let place = Place::new();
    let device = place.attach(&["ram:64M", "--as", "fuse", "--name", "one"]);
    assert!(is_over_uring(&place));
    let write = |number: u8| {
        let device = device.clone();
        thread::spawn(move || {
            let file = writable(&device);
            let at = u64::from(number) << 21;
            let data: Vec<u8> = (0..1 << 21)
                .map(|at: u32| at.to_le_bytes()[1] ^ number)
                .collect();
            file.write_all_at(&data, at).expect("two mebibytes");
            file.sync_all().expect("they are on the medium");
        })
    };
    let writers: Vec<_> = (0..16).map(write).collect();
    let written = |writer: thread::JoinHandle<()>| writer.join().expect("it has written");
    writers.into_iter().for_each(written);
    // Not from the page cache.
    let read = format!(
        "dd if={} iflag=direct bs=1M count=32 2>/dev/null",
        device.display()
    );
    let back = std::process::Command::new("sh")
        .args(["-c", &read])
        .output();
    let back = back.expect("dd is everywhere").stdout;
    assert_eq!(back.len(), 32 << 20);
    for (number, part) in back.chunks(1 << 21).enumerate() {
        let number = u8::try_from(number).expect("sixteen");
        let same = |(at, byte): (u32, &u8)| *byte == at.to_le_bytes()[1] ^ number;
        assert!((0..).zip(part).all(same), "what writer {number} wrote");
    }
    let now = place.list();
    for (what, least) in [("write", 16 << 21), ("read", 32 << 20)] {
        assert!(now[0][what]["bytes"].as_u64() >= Some(least), "{what}");
    }
    assert!(now[0]["flush"]["requests"].as_u64() > Some(0));
    let punched = shell(&format!("blkdiscard -o 1M -l 1M {}", device.display()));
    assert!(!punched || place.list()[0]["zeroes"]["requests"].as_u64() > Some(0));
    place.run(&["detach", "one"]).exits(0);
    assert!(place.list().is_empty());
}

#[test]
fn where_the_kernel_or_the_program_does_without_io_uring_attach_says_why() {
    let name = "where_the_kernel_or_the_program_does_without_io_uring_attach_says_why";
    let Some(switch) = Switch::set(name, false) else {
        return;
    };
    let doctor = |place: &Place| {
        let all = place.run(&["doctor", "-o", "json"]).exits(0).json();
        let all = all["findings"].as_array().expect("a list").clone();
        let ring = all.iter().find(|it| it["subject"] == "fuse io_uring");
        ring.expect("a line about it").clone()
    };
    let place = Place::new();
    for front in ["fuse", "file"] {
        let words = ["attach", "ram:16M", "--as", front, "--name", "one"];
        let said = place.run(&words).exits(0).stderr.clone();
        assert!(
            !said.contains("io_uring"),
            "nobody has asked for it: {said}"
        );
        assert!(!is_over_uring(&place), "{front}");
        place.run(&["detach", "one"]).exits(0);
    }
    assert!(
        doctor(&place)["fix"]
            .as_str()
            .is_some_and(|fix| fix.contains(SWITCH))
    );
    switch.to("Y");
    assert_eq!(doctor(&place)["ok"], true);
    let words = [
        "attach", "ram:16M", "--as", "fuse", "--name", "one", "--engine", "epoll",
    ];
    place.run(&words).exits(0).says(&["no io_uring"]);
    assert!(!is_over_uring(&place));
    place.run(&["detach", "one"]).exits(0);
    let file = place.attach(&["ram:16M", "--as", "file", "--name", "one"]);
    writable(&file)
        .write_all_at(&[7; 512], 512)
        .expect("a block");
    assert!(is_over_uring(&place));
    place.run(&["detach", "one"]).exits(0);
}

#[test]
fn a_disk_over_io_uring_whose_target_is_gone_is_taken_away_by_force_and_nobody_hangs() {
    let name = "a_disk_over_io_uring_whose_target_is_gone_is_taken_away_by_force_and_nobody_hangs";
    let Some(_on) = Switch::set(name, true) else {
        return;
    };
    let mut served = Served::start("ram:64M", "nvme+tcp");
    let place = Place::new();
    let words = ["--as", "fuse", "--name", "one", "--fast-io-fail-tmo", "1h"];
    let device = place.attach(&[&[served.uri.as_str()], &words[..]].concat());
    assert!(is_over_uring(&place));
    let holder = holder(&place);
    served.kill();
    let path = device.display();
    let writer = User::dd(&format!("if=/dev/zero of={path} conv=notrunc,fsync"));
    let reader = User::dd(&format!("if={path} of=/dev/null iflag=direct"));
    let users = [writer.pid(), reader.pid()];
    writer.waits_for_its_disk();
    reader.waits_for_its_disk();
    place.run(&["detach", "one", "--force"]).exits(0);
    reader.ended().exits(1).says(&["Input/output error"]);
    writer.ended();
    nobody_hangs(&[&users[..], &[holder]].concat());
    wait("its process has ended", || {
        !Path::new(&format!("/proc/{holder}")).exists()
    });
    assert!(place.list().is_empty());
}

#[test]
fn a_process_over_io_uring_that_is_killed_leaves_a_device_that_fails_and_is_cleared_away() {
    let name =
        "a_process_over_io_uring_that_is_killed_leaves_a_device_that_fails_and_is_cleared_away";
    let Some(_on) = Switch::set(name, true) else {
        return;
    };
    // A size that no other test has: the numbers of loop devices are used again.
    let mut served = Served::start("ram:69M", "nvme+tcp");
    let place = Place::new();
    let words = ["--as", "fuse", "--name", "one", "--fast-io-fail-tmo", "1h"];
    let device = place.attach(&[&[served.uri.as_str()], &words[..]].concat());
    assert!(is_over_uring(&place));
    served.kill();
    let reader = User::dd(&format!(
        "if={} of=/dev/null iflag=direct",
        device.display()
    ));
    let user = reader.pid();
    reader.waits_for_its_disk();
    let pid = holder(&place);
    assert!(shell(&format!("kill -9 {pid}")));
    until(&place, "dead", |one| one["state"] == "dead");
    reader.ended().exits(1).says(&["Input/output error"]);
    nobody_hangs(&[user, pid]);
    place.run(&["detach", "one"]).exits(0);
    assert!(place.list().is_empty());
    assert_ne!(
        told(&device, "size"),
        (69 << 11).to_string(),
        "nothing is left of it"
    );
}
