//! Other programs on attached disks: those that speak NBD on its socket, and fio on a file system
//! under which the target is killed. What the machine does not have is skipped.

use std::fs;
use std::path::Path;
use std::process::Command;

use super::attach_place::{Mounted, Place, has_block_devices, has_programs, until};
use super::harness::{Ended, Running, Serve, path_in, scratch};

fn run(line: &str) -> Ended {
    let mut words = line.split(' ');
    let mut command = Command::new(words.next().expect("a program"));
    let running = Running::spawn(command.args(words));
    running.expect("it is here").ended()
}

/// A remote disk as an NBD socket, and the address that others know it by.
fn socket(serve: &Serve, place: &Place) -> String {
    let socket = place.attach(&[&serve.uri(0), "--as", "nbd-socket"]);
    format!("nbd+unix:///?socket={}", socket.display())
}

#[test]
fn libnbds_programs_see_copy_and_compare_a_remote_disk() {
    let name = "libnbds_programs_see_copy_and_compare_a_remote_disk";
    if !has_programs(name, &["nbdinfo", "nbdcopy"]) {
        return;
    }
    let (serve, place, folder) = (Serve::start(&["ram:8M"]), Place::new(), scratch());
    let uri = socket(&serve, &place);
    let size = run(&format!("nbdinfo --size {uri}"));
    assert_eq!(size.exits(0).stdout.trim(), (8 << 20).to_string());
    for can in [
        "write",
        "flush",
        "fua",
        "trim",
        "zero",
        "fast-zero",
        "cache",
        "df",
        "multi-conn",
    ] {
        run(&format!("nbdinfo --can {can} {uri}")).exits(0);
    }
    let told = run(&format!("nbdinfo --json {uri}")).exits(0).json();
    assert_eq!(told["exports"][0]["block_size_minimum"], 512, "{told:#}");
    let (image, back) = (path_in(&folder, "image"), path_in(&folder, "back"));
    let bytes: Vec<u8> = (0..2_u32 << 20).flat_map(u32::to_le_bytes).collect();
    fs::write(&image, &bytes).expect("an image");
    run(&format!("nbdcopy --flush {image} {uri}")).exits(0);
    run(&format!("nbdcopy {uri} {back}")).exits(0);
    assert!(fs::read(&back).expect("a copy") == bytes);
    // More than the disk takes at once.
    for request in ["2097152", "8388608"] {
        let long = format!("nbdcopy --request-size={request}");
        run(&format!("{long} {image} {uri}")).exits(0);
        run(&format!("{long} {uri} {back}")).exits(0);
        assert!(fs::read(&back).expect("a copy") == bytes);
    }
}

#[test]
fn libnbd_and_qemu_see_which_parts_of_a_disk_hold_something() {
    let name = "libnbd_and_qemu_see_which_parts_of_a_disk_hold_something";
    if !has_programs(name, &["nbdinfo", "nbdcopy", "qemu-img"]) {
        return;
    }
    let (place, folder) = (Place::new(), scratch());
    let port = place.attach(&["ram:8M", "--listen", "nbd://127.0.0.1:0"]);
    let (uri, image) = (port.display(), path_in(&folder, "image"));
    fs::write(&image, vec![7; 1 << 20]).expect("an image");
    run(&format!("nbdcopy {image} {uri}")).exits(0);
    let map = run(&format!("nbdinfo --map --json {uri}")).exits(0).json();
    let extent = |at: usize| (map[at]["length"].as_u64(), map[at]["type"].as_u64());
    let (data, hole) = ((Some(1 << 20), Some(0)), (Some(7 << 20), Some(3)));
    assert_eq!((extent(0), extent(1)), (data, hole), "{map:#}");
    let map = run(&format!("qemu-img map --output=json {uri}"))
        .exits(0)
        .json();
    assert_eq!(
        (&map[0]["data"], &map[1]["data"]),
        (&true.into(), &false.into())
    );
}

#[test]
fn qemus_programs_convert_and_compare_a_remote_disk() {
    let name = "qemus_programs_convert_and_compare_a_remote_disk";
    if !has_programs(name, &["qemu-img", "qemu-io"]) {
        return;
    }
    let (serve, place, folder) = (Serve::start(&["ram:8M"]), Place::new(), scratch());
    let uri = socket(&serve, &place);
    let info = run(&format!("qemu-img info -f raw {uri}"));
    assert!(
        info.exits(0).stdout.contains("virtual size: 8 MiB"),
        "{info}"
    );
    let image = path_in(&folder, "image");
    let bytes: Vec<u8> = (0..2_u32 << 20).flat_map(u32::to_be_bytes).collect();
    fs::write(&image, bytes).expect("an image");
    run(&format!("qemu-img convert -n -f raw -O raw {image} {uri}")).exits(0);
    run(&format!("qemu-img compare -f raw -F raw {image} {uri}")).exits(0);
    let write = [
        "-c",
        "write -P 7 1M 64k",
        "-c",
        "discard 2M 1M",
        "-c",
        "read -P 7 1M 64k",
    ];
    let wrote = Running::spawn(
        Command::new("qemu-io")
            .args(["-f", "raw"])
            .args(write)
            .arg(&uri),
    );
    wrote.expect("it is here").ended().exits(0);
    let compared = run(&format!("qemu-img compare -f raw -F raw {image} {uri}"));
    compared.exits(1);
}

#[test]
fn fio_verifies_what_it_wrote_over_nbd() {
    let name = "fio_verifies_what_it_wrote_over_nbd";
    if !has_programs(name, &["fio"]) || !run("fio --enghelp").stdout.contains("\tnbd\n") {
        return;
    }
    let (serve, place, folder) = (Serve::start(&["ram:8M"]), Place::new(), scratch());
    let uri = socket(&serve, &place);
    let mut fio = Command::new("fio");
    fio.current_dir(folder.path());
    fio.args([
        "--name=verify",
        "--ioengine=nbd",
        "--rw=randwrite",
        "--bs=4k",
        "--size=8M",
    ]);
    fio.args(["--iodepth=16", "--verify=crc32c", "--verify_fatal=1"]);
    let verified = Running::spawn(fio.arg(format!("--uri={uri}"))).expect("it is here");
    verified.ended().exits(0);
    let read = place.list()[0]["read"]["bytes"].as_u64();
    assert!(read >= Some(8 << 20), "it has read what it wrote: {read:?}");
}

#[test]
fn fio_verifies_a_file_system_whose_target_is_killed_meanwhile() {
    let name = "fio_verifies_a_file_system_whose_target_is_killed_meanwhile";
    let programs = ["fio", "mkfs.ext4", "fstrim", "e2fsck"];
    if !has_block_devices(name) || !has_programs(name, &programs) {
        return;
    }
    for protocol in ["nvme+tcp", "iscsi"] {
        let folder = scratch();
        let disk = format!("file:{},size=64M", path_in(&folder, "disk"));
        let listen = format!("{protocol}://127.0.0.1:0");
        let mut serve = Serve::start(&[&disk, "--listen", &listen]);
        let export = &serve.json["exports"][0];
        let uri = export["uri"]
            .as_str()
            .or_else(|| export["iscsi_uri"].as_str());
        let uri = uri.expect("an address").to_owned();
        let place = Place::new();
        let device = place.attach(&[&uri, "--as", "fuse", "--name", "one"]);
        let mounted = Mounted::fresh(&device);
        let before = place.list()[0]["write"]["requests"].as_u64();
        let mut fio = Command::new("fio");
        fio.current_dir(folder.path());
        fio.args([
            "--name=verify",
            "--direct=1",
            "--ioengine=libaio",
            "--iodepth=16",
        ]);
        fio.args([
            "--rw=randwrite",
            "--bsrange=4k-64k",
            "--size=24M",
            "--rate=48m",
        ]);
        fio.args(["--verify=crc32c", "--verify_fatal=1"]);
        let fio = Running::spawn(fio.arg(format!("--filename={}", mounted.path("file"))));
        let mut fio = fio.expect("it is here");
        let written =
            |one: &serde_json::Value| one["write"]["requests"].as_u64() > before.map(|it| it + 20);
        until(&place, "under load", written);
        serve.process.kill();
        assert!(fio.is_running(), "it was killed meanwhile");
        let listen = uri.split('/').take(3).collect::<Vec<_>>().join("/");
        let _again = Serve::start_again_on(&[&disk], &listen);
        fio.ended().exits(0);
        run(&format!("fstrim {}", mounted.at.path().display())).exits(0);
        mounted.unmount();
        run(&format!("e2fsck -fn {}", device.display())).exits(0);
        assert!(place.list()[0]["reconnects"].as_u64() > Some(0));
        place.run(&["detach", "one"]).exits(0);
        assert!(place.list().is_empty() && !Path::new(&mounted.path("file")).exists());
    }
}
