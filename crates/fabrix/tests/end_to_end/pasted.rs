//! What the program prints to be pasted works when it is pasted: into a shell, into this program,
//! into others.

use std::process::Command;

use super::harness::{Ended, Running, Serve, bench, fabrix, make_file, path_in, scratch, skipped};

/// The words that a shell makes of a line.
#[track_caller]
fn words(line: &str) -> Vec<String> {
    let script = format!("printf '%s\\n' {line}");
    let output = Command::new("sh").args(["-c", &script]).output();
    let output = output.expect("there is a shell");
    assert!(output.status.success(), "{line}");
    let text = String::from_utf8(output.stdout).expect("text");
    text.lines().map(str::to_owned).collect()
}

#[track_caller]
fn read_from(uri: &str) {
    bench(&[uri, "--rw", "randread", "--runtime", "50ms"]);
}

/// Runs the program in a folder.
fn fabrix_in(folder: &tempfile::TempDir, args: &[&str]) -> Ended {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fabrix"));
    let running = Running::spawn(command.args(args).current_dir(folder.path()));
    running.expect("the program can be started").ended()
}

#[test]
fn every_line_of_serve_can_be_pasted_into_a_shell() {
    let folder = scratch();
    let path = path_in(&folder, "a $b, 'c' (%d).img");
    make_file(&path, 16 << 20, 0, b"");
    let escaped = path
        .replace(',', "\\,")
        .replace('(', "\\(")
        .replace(')', "\\)");
    let serve = Running::start(&[
        "serve",
        &escaped,
        "--nqn",
        "nqn.2026-01.example:it's $me (1)",
        "--listen",
        "nvme+tcp://[::1]:0",
        "--listen",
        "iscsi://127.0.0.1:0",
    ]);
    let printed = serve.prints("--login\n");
    let mut lines = printed.lines();
    let disk = words(lines.next().expect("a line for the disk"));
    assert_eq!(disk[1], escaped, "{printed}");
    read_from(&disk[0]);
    let iscsi = words(lines.next().expect("a line for initiators"));
    read_from(&iscsi[0]);
    let connect = words(lines.next().expect("a line for nvme-cli"));
    assert_eq!(connect[..4], ["nvme", "connect", "-t", "tcp"], "{printed}");
    let at = format!("nvme+tcp://[{}]:{}", connect[5], connect[7]);
    let offered = fabrix(&["discover", &at]);
    offered.exits(0);
    assert!(offered.stdout.contains(&connect[9]), "{offered}");
    let discover = words(lines.next().expect("a line for iscsiadm"));
    let portal = discover.last().expect("a portal");
    fabrix(&["discover", &format!("iscsi://{portal}")]).exits(0);
    drop(serve);
    bench(&[&disk[1], "--rw", "read", "--runtime", "50ms"]);
}

#[test]
fn a_shell_that_serve_runs_reaches_the_disk_by_its_variable() {
    fabrix(&[
        "serve",
        "ram:16M",
        "--nqn",
        "nqn.2026-01.example:two words",
        "--listen",
        "nvme+tcp://[::1]:0",
        "--run",
        "fabrix bench $uri --rw read --runtime 50ms",
    ])
    .exits(0);
}

#[test]
fn an_iscsi_uri_of_lun_256_and_above_works_here_and_with_qemu() {
    let disks = ["null:1M"; 257];
    let serve = Serve::start(&[&disks[..], &["--listen", "iscsi://127.0.0.1:0"]].concat());
    let uri = serve.json["exports"][256]["iscsi_uri"].as_str();
    let uri = uri.expect("a URI for initiators");
    read_from(uri);
    let (target, _) = uri.rsplit_once('/').expect("a LUN");
    read_from(&format!("{target}/256"));
    for uri in [uri, &format!("{target}/255")] {
        let info = Command::new("qemu-img").args(["info", uri]).output();
        match info {
            Ok(info) if String::from_utf8_lossy(&info.stderr).contains("Unknown protocol") => {
                skipped(
                    "iSCSI URIs with QEMU",
                    "its block driver for iSCSI is not installed",
                );
            }
            Ok(info) => assert!(info.status.success(), "{uri}: {info:?}"),
            Err(error) => skipped("iSCSI URIs with QEMU", &error.to_string()),
        }
    }
    serve.stop();
}

#[test]
fn the_discovery_port_alone_is_refused_because_no_disk_is_reached_there() {
    let only = ["serve", "ram:16M", "--listen", "nvme+tcp://127.0.0.1:8009"];
    let ended = fabrix(&[&only[..], &["--run", "true"]].concat());
    ended.exits(2).says(&[
        "port 8009 answers discovery only",
        "--listen nvme+tcp://ADDR",
    ]);
}

#[test]
fn the_bare_name_of_a_file_is_a_disk_wherever_disks_are_named() {
    let folder = scratch();
    for name in ["vm.img", "ro"] {
        make_file(&path_in(&folder, name), 16 << 20, 0, b"");
    }
    let load = ["--rw", "randread", "--runtime", "50ms"];
    for disk in ["vm.img", "ro", "vm.img,ro", "raid0:(vm.img,ro,ram:16M)"] {
        fabrix_in(&folder, &[&["bench", disk], &load[..]].concat()).exits(0);
        fabrix_in(
            &folder,
            &[
                "serve",
                disk,
                "--listen",
                "nvme+tcp://127.0.0.1:0",
                "--run",
                "true",
            ],
        )
        .exits(0);
    }
    for (disk, says) in [
        ("vm.image", "no file of this name"),
        ("rma:16M", "did you mean ram:16M?"),
        ("vm.image,size=16M", "no file of this name"),
    ] {
        let ended = fabrix_in(&folder, &["bench", disk]);
        ended.exits(2).says(&[says]);
        assert!(!ended.stderr.contains("./"), "{ended}");
    }
    make_file(&path_in(&folder, "vm:1"), 16 << 20, 0, b"");
    fabrix_in(&folder, &["bench", "vm:1"])
        .exits(2)
        .says(&["./vm:1"]);
    fabrix_in(&folder, &[&["bench", "./vm:1"], &load[..]].concat()).exits(0);
}

#[test]
fn a_file_with_a_comma_in_its_name_is_served_as_the_error_says_it_is_written() {
    let folder = scratch();
    let path = path_in(&folder, "a,b.img");
    make_file(&path, 16 << 20, 0, b"");
    let ended = fabrix(&["bench", &path]);
    ended.exits(2);
    let (_, written) = ended.stderr.split_once("is written ").expect("a hint");
    let written = words(written.trim_end());
    bench(&[&written[0], "--rw", "read", "--runtime", "50ms"]);
}
