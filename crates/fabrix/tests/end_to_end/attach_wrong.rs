//! What `attach` and `detach` cannot do: a sentence and an exit code for each, and nothing is left
//! behind.

use std::fs;
use std::io::Write;
use std::net::TcpListener;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::process::Command;
use std::sync::PoisonError;
use std::thread;
use std::time::{Duration, Instant};

use super::attach_place::{
    Mounted, NAMESPACE, Place, has_block_devices, has_files, has_programs, shell, wait,
};
use super::harness::{BOUND, NQN, Running, Serve, skipped};

/// Attaches as a socket, which must be refused, and leaves nothing.
#[track_caller]
fn refused(args: &[&str], code: i32, parts: &[&str]) {
    let place = Place::new();
    let ended = place.run(&[&["attach", "--as", "nbd-socket"], args].concat());
    ended.exits(code).says(parts);
    assert!(place.list().is_empty());
    assert_eq!(ended.stdout, "", "what is printed is a device");
}

#[test]
fn a_wrong_nqn_is_named_and_so_is_a_wrong_iqn() {
    let listen = [
        "--listen",
        "nvme+tcp://127.0.0.1:0",
        "--listen",
        "iscsi://127.0.0.1:0",
    ];
    let serve = Serve::start(&[&["ram:1M"], &listen[..]].concat());
    let uri = serve.uri(0).replace(NQN, "nqn.2026-01.io.fabrix:other");
    refused(&[&uri], 3, &["nqn.2026-01.io.fabrix:other"]);
    let uri = serve.json["exports"][0]["iscsi_uri"]
        .as_str()
        .expect("an address");
    let uri = uri.replace("iqn.2026-01.io.fabrix:disks", "iqn.2026-01.io.fabrix:other");
    refused(&[&uri], 3, &["iqn.2026-01.io.fabrix:other"]);
}

#[test]
fn a_disk_is_not_attached_under_two_names() {
    let listen = [
        "--listen",
        "nvme+tcp://127.0.0.1:0",
        "--listen",
        "iscsi://127.0.0.1:0",
    ];
    let serve = Serve::start(&[&["ram:1M", "ram:1M"], &listen[..]].concat());
    let place = Place::new();
    let uri = serve.uri(0);
    place.attach(&[&uri, "--as", "nbd-socket", "--name", "one"]);
    let iscsi = serve.json["exports"][0]["iscsi_uri"]
        .as_str()
        .expect("a URI");
    let again = ["attach", iscsi, "--as", "nbd-socket", "--name", "two"];
    let parts = [uri.as_str(), iscsi, "one disk", "fabrix detach one"];
    place.run(&again).exits(2).says(&parts);
    place.attach(&[&serve.uri(1), "--as", "nbd-socket", "--name", "other"]);
    place.run(&["detach", "one"]).exits(0);
    place.run(&again).exits(0);
}

#[test]
fn a_namespace_that_is_not_there_is_named() {
    let serve = Serve::start(&["ram:1M"]);
    let uri = format!("nvme+tcp://{}/{NQN}/7", serve.address());
    refused(&[&uri], 3, &["7"]);
}

#[test]
fn no_target_is_told_by_the_address_that_was_tried() {
    let free = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = free.local_addr().expect("its address").to_string();
    drop(free);
    let began = Instant::now();
    refused(&[&format!("nvme+tcp://{address}/{NQN}")], 3, &[&address]);
    let iscsi = format!("iscsi://{address}/iqn.2026-01.io.fabrix:disks");
    refused(&[&iscsi], 3, &[&address, "nothing listens there"]);
    assert!(
        began.elapsed() < Duration::from_secs(30),
        "it does not wait"
    );
}

#[test]
fn the_port_of_another_service_is_no_target() {
    let other = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = other.local_addr().expect("its address").to_string();
    std::thread::spawn(move || {
        while let Ok((mut stream, _)) = other.accept() {
            let _gone = stream.write_all(b"SSH-2.0-x\r\n");
        }
    });
    refused(&[&format!("nvme+tcp://{address}/{NQN}")], 3, &[&address]);
    let serve = Serve::start(&["ram:16M"]);
    let iscsi = format!("iscsi://{}/iqn.2026-01.io.fabrix:disks", serve.address());
    refused(&[&iscsi], 3, &[&serve.address()]);
    refused(&[&iscsi, "-i", "2"], 2, &["one connection"]);
}

#[test]
fn words_that_mean_nothing_are_refused() {
    refused(&["/no/such/file"], 2, &["/no/such/file"]);
    refused(
        &["ram:1M", "--name", "../up"],
        2,
        &["a name begins with a letter"],
    );
    refused(
        &["ram:1M", "--socket", "/no/such/folder/socket"],
        2,
        &["--socket"],
    );
    let long = format!("/tmp/{}", "a".repeat(120));
    refused(
        &["ram:1M", "--socket", &long],
        2,
        &["the path of a socket is too long by"],
    );
    refused(
        &["ram:1M", "--devid-file", "/no/such/folder/file"],
        1,
        &["--devid-file", "/no/such/folder"],
    );
    refused(
        &["ram:1M", "--listen", "nbd://0.0.0.0:0"],
        2,
        &["opens the disk to a network", "--allow any"],
    );
    refused(
        &["ram:1M", "--listen", "127.0.0.1"],
        2,
        &["nbd://ADDR[:PORT]"],
    );
    refused(&["ram:1M", "--allow", "any"], 2, &["--listen"]);
    let both = ["ram:1M", "--listen", "nbd://127.0.0.1", "--socket", "s"];
    refused(&both, 2, &["--listen", "--socket"]);
    refused(&[], 2, &["URI"]);
    let nothing = Place::new().run(&["detach", "nothing"]);
    nothing
        .exits(2)
        .says(&["nothing that is attached is called nothing", "fabrix list"]);
}

#[test]
fn a_name_that_is_taken_is_refused_and_what_has_it_stays() {
    let place = Place::new();
    place.attach(&["null:1M", "--as", "nbd-socket", "--name", "one"]);
    let pid = place.list()[0]["pid"].clone();
    let again = place.run(&["attach", "null:2M", "--as", "nbd-socket", "--name", "one"]);
    again
        .exits(2)
        .says(&["the name one is taken", "--name", "fabrix list"]);
    assert_eq!((place.list().len(), &place.list()[0]["pid"]), (1, &pid));
}

#[test]
fn a_device_that_somebody_has_claimed_is_busy_and_stays() {
    if !has_block_devices("a_device_that_somebody_has_claimed_is_busy_and_stays") {
        return;
    }
    let place = Place::new();
    let device = place.attach(&["ram:16M", "--as", "fuse", "--name", "one"]);
    let mut claimed = fs::File::options();
    let claimed = claimed.read(true).custom_flags(O_EXCL).open(&device);
    let claimed = claimed.expect("nobody has it");
    let text = device.display().to_string();
    let busy = place.run(&["detach", "one"]);
    busy.exits(1)
        .says(&[&text, "is in use", "claimed", "--force"]);
    assert_eq!(place.list()[0]["state"], "attached");
    drop(claimed);
    place.run(&["detach", "one"]).exits(0);
}

#[test]
fn a_mounted_device_is_not_detached_and_the_sentence_says_where_it_is_mounted() {
    let name = "a_mounted_device_is_not_detached_and_the_sentence_says_where_it_is_mounted";
    if !has_block_devices(name) || !has_programs(name, &["mkfs.ext4"]) {
        return;
    }
    let place = Place::new();
    let device = place.attach(&["ram:32M", "--as", "fuse", "--name", "one"]);
    let mounted = Mounted::fresh(&device);
    let at = mounted.at.path().display().to_string();
    for which in ["one", "1", &device.display().to_string(), "all"] {
        let busy = place.run(&["detach", which]);
        busy.exits(1)
            .says(&["is in use", &format!("mounted at {at}"), "unmount"]);
    }
    fs::write(mounted.path("file"), b"still there").expect("it can be written");
    mounted.unmount();
    place.run(&["detach", "one"]).exits(0);
}

/// Runs the program where /dev has nothing but /dev/null; None: that cannot be made here.
fn without_devices(place: &Place, args: &[&str]) -> Option<super::harness::Ended> {
    let _no_mounts = NAMESPACE.write().unwrap_or_else(PoisonError::into_inner);
    if !shell("unshare --mount true 2>/dev/null") {
        return None;
    }
    let bare = "mount -t tmpfs none /dev && mknod -m 666 /dev/null c 1 3 && exec \"$@\"";
    let program = place.command(args);
    let mut unshare = Command::new("unshare");
    unshare.args(["--mount", "sh", "-c", bare, "sh"]);
    unshare.arg(program.get_program()).args(program.get_args());
    for (name, value) in program.get_envs() {
        unshare.env(name, value.unwrap_or_default());
    }
    Some(Running::spawn(&mut unshare).expect("it was there").ended())
}

#[test]
fn no_fuse_device_is_told_with_what_works_without_it() {
    let place = Place::new();
    for front in ["file", "fuse"] {
        let words = ["attach", "ram:1M", "--as", front];
        let Some(ended) = without_devices(&place, &words) else {
            return skipped("no_fuse_device_is_told", "no namespace can be made here");
        };
        ended
            .exits(2)
            .says(&["/dev/fuse", "load the module fuse", "--as nbd-socket"]);
        assert!(place.list().is_empty());
    }
    let chosen = without_devices(&place, &["attach", "ram:1M"]).expect("as before");
    chosen.exits(0).says(&[
        "as an NBD socket, because ublk: ",
        "; nbd: ",
        "; /dev/fuse: ",
    ]);
    assert_eq!(place.list()[0]["as"], "nbd-socket");
}

#[test]
fn without_a_permission_it_is_told_what_may_be_had() {
    let name = "without_a_permission_it_is_told_what_may_be_had";
    let place = Place::new();
    fs::set_permissions(place.folder(), PermissionsExt::from_mode(0o777)).expect("it is ours");
    let nobody = |args: &[&str]| place.run_as_nobody(args).ok();
    for front in ["fuse", "ublk", "nbd", "kernel"] {
        let Some(refused) = nobody(&["attach", "null:1M", "--as", front]) else {
            return skipped(name, "the program is not nobody's");
        };
        let kernel = front == "kernel";
        let parts: &[&str] = if kernel {
            &["needs root"]
        } else {
            &["needs root", "--as file", "--as nbd"]
        };
        refused.exits(2).says(parts);
    }
    let begun = |args: &[&str]| {
        nobody(args)
            .expect("as before")
            .exits(0)
            .stdout
            .trim()
            .to_owned()
    };
    for front in ["nbd-socket", "vhost-user"] {
        let socket = begun(&["attach", "null:1M", "--as", front, "--name", "mine"]);
        assert!(Path::new(&socket).exists(), "{socket}");
        begun(&["detach", "mine"]);
    }
    let mut without_helper = place.command(&["attach", "null:1M", "--as", "file"]);
    let without_helper = Place::as_nobody(without_helper.env("PATH", "/none"));
    let without_helper = without_helper.expect("as before");
    if has_files(name) {
        without_helper
            .exits(2)
            .says(&["fusermount3", "fuse3", "--as nbd-socket"]);
    }
    assert!(place.list().is_empty());
}

#[test]
fn what_cannot_be_begun_is_left_for_the_next_best() {
    let name = "what_cannot_be_begun_is_left_for_the_next_best";
    if !has_files(name) {
        return;
    }
    let place = Place::new();
    fs::set_permissions(place.folder(), PermissionsExt::from_mode(0o777)).expect("it is ours");
    let helper = place.folder().join("fusermount3");
    let refuses = "#!/bin/sh\necho '/dev/fuse: Permission denied' >&2\nexit 1\n";
    fs::write(&helper, refuses).expect("the folder is ours");
    fs::set_permissions(&helper, PermissionsExt::from_mode(0o755)).expect("it is ours");
    let with_helper = place.folder().to_owned();
    for (path, why) in [
        (Path::new("/none"), "No such file"),
        (&with_helper, "/dev/fuse: Permission denied"),
    ] {
        let mut attach = place.command(&["attach", "null:1M", "--name", "one"]);
        let Ok(attached) = Place::as_nobody(attach.env("PATH", path)) else {
            return skipped(name, "the program is not nobody's");
        };
        attached.exits(0).says(&[
            "one: attached as an NBD socket, because a block device needs root; file: fusermount3",
            why,
        ]);
        assert!(!place.folder().join("one.disk").exists(), "nothing is left");
        place.run(&["detach", "one"]).exits(0);
    }
    let nowhere = place.folder().join("none/nbd").display().to_string();
    let refused = place.run(&["attach", "null:1M", "--socket", &nowhere]);
    refused.exits(2).says(&["--socket", &nowhere]);
}

#[test]
fn a_disk_whose_attach_was_ended_before_it_was_there_is_not_attached_later() {
    let name = "a_disk_whose_attach_was_ended_before_it_was_there_is_not_attached_later";
    if !has_files(name) {
        return;
    }
    let place = Place::new();
    fs::set_permissions(place.folder(), PermissionsExt::from_mode(0o777)).expect("it is ours");
    // A helper that says that it has begun, and then waits for a pipe to be written.
    let (began, pipe) = (place.folder().join("began"), place.folder().join("pipe"));
    let made = Command::new("mkfifo")
        .args(["-m", "666"])
        .arg(&pipe)
        .status();
    assert!(made.is_ok_and(|status| status.success()), "a pipe");
    let helper = place.folder().join("fusermount3");
    let (began, pipe) = (began.display().to_string(), pipe.display().to_string());
    let waits = format!("#!/bin/sh\necho began > {began}\nread line < {pipe}\nexit 1\n");
    fs::write(&helper, waits).expect("the folder is ours");
    fs::set_permissions(&helper, PermissionsExt::from_mode(0o755)).expect("it is ours");
    let mut attach = place.command(&["attach", "null:1M", "--name", "one"]);
    attach.env("PATH", place.folder());
    let Ok(attach) = Place::start_as_nobody(&mut attach) else {
        return skipped(name, "the program is not nobody's");
    };
    let until = Instant::now() + BOUND;
    while !Path::new(&began).exists() {
        assert!(Instant::now() < until, "the helper is not asked");
        thread::yield_now();
    }
    drop(attach); // it is killed
    fs::write(&pipe, "go on\n").expect("the helper reads");
    // The name is free once the process that was to keep the disk has ended.
    let again = ["attach", "null:1M", "--name", "one", "--as", "nbd-socket"];
    while place.run(&again).code != 0 {
        assert!(Instant::now() < until, "{:?}", place.list());
    }
    place.run(&["detach", "one"]).exits(0);
}

#[test]
fn root_who_may_not_mount_gets_what_needs_no_mount() {
    let name = "root_who_may_not_mount_gets_what_needs_no_mount";
    if !has_files(name) || !has_programs(name, &["setpriv"]) {
        return;
    }
    let place = Place::new();
    let attach = place.command(&["attach", "null:1M"]);
    let mut without = Command::new("setpriv");
    without.args(["--bounding-set=-sys_admin", "--inh-caps=-sys_admin"]);
    without.arg(attach.get_program()).args(attach.get_args());
    without.env("FABRIX_RUN_DIR", place.folder());
    let attached = Running::spawn(&mut without).expect("it is here").ended();
    attached.exits(0).says(&[
        "attached as an NBD socket, because",
        "file: a file over FUSE is mounted, and that needs CAP_SYS_ADMIN",
    ]);
    assert_eq!(place.list()[0]["as"], "nbd-socket");
}

#[test]
fn a_file_over_fuse_is_for_everybody_who_has_the_helper() {
    let name = "a_file_over_fuse_is_for_everybody_who_has_the_helper";
    if !has_files(name) || !has_programs(name, &["fusermount3"]) {
        return;
    }
    let place = Place::new();
    fs::set_permissions(place.folder(), PermissionsExt::from_mode(0o777)).expect("it is ours");
    let attach = ["attach", "ram:1M", "--name", "mine"];
    let Ok(attached) = place.run_as_nobody(&attach) else {
        return skipped(name, "the program is not nobody's");
    };
    attached
        .exits(0)
        .says(&["as a file, because a block device needs root"]);
    let path = attached.stdout.trim();
    let script = "printf %512s x | dd of=\"$0\" conv=notrunc,fsync && head -c 512 \"$0\"";
    let used = Place::as_nobody(Command::new("sh").args(["-c", script, path]));
    assert_eq!(used.expect("it can be started").exits(0).stdout.trim(), "x");
    let detached = place.run_as_nobody(&["detach", "mine"]);
    detached.expect("it can be started").exits(0);
    assert!(place.list().is_empty() && !Path::new(path).exists());
}

/// Of open(2), on most machines.
const O_EXCL: i32 = 0o200;

/// A container that was begun meanwhile has such a copy.
#[test]
fn a_file_whose_mount_was_copied_into_another_namespace_goes_by_force() {
    let test = "a_file_whose_mount_was_copied_into_another_namespace_goes_by_force";
    if !has_files(test) || !has_programs(test, &["unshare", "umount"]) {
        return;
    }
    let place = Place::new();
    let path = place.attach(&["ram:1M", "--as", "file", "--name", "one"]);
    let mut copy = Command::new("unshare");
    copy.args(["--mount", "--propagation", "private", "sleep", "600"]);
    let copy = Running::spawn(&mut copy).expect("it starts");
    let command = format!("/proc/{}/comm", copy.pid());
    wait("the namespace is there", || {
        fs::read_to_string(&command).is_ok_and(|name| name == "sleep\n")
    });
    assert!(shell(&format!("umount '{}'", path.display())));
    assert_eq!(place.list()[0]["state"], "attached", "the copy keeps it");
    place.run(&["detach", "one", "--force"]).exits(0);
    assert!(place.list().is_empty());
}
