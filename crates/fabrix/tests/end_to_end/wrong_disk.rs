//! Disks that the user cannot have, and jobs that make no sense: the exit code, a sentence that
//! names the thing and what to do, and nothing that was changed.

use std::fs;

use super::harness::{
    Ended, Running, Serve, bench, fabrix, fabrix_unprivileged, make_file, path_in, scratch, skipped,
};

/// What every refusal has: nothing on stdout, one line on stderr, the disk's name in it, no panic.
#[track_caller]
fn refused(ended: &Ended, code: i32, parts: &[&str]) {
    ended.exits(code).says(parts);
    assert_eq!(ended.stdout, "", "{ended}");
    let sentences: Vec<&str> = ended.stderr.lines().collect();
    assert_eq!(sentences.len(), 1, "one sentence, not {ended}");
    assert!(sentences[0].starts_with("fabrix: "), "{ended}");
}

#[track_caller]
fn bench_is_refused(args: &[&str], code: i32, parts: &[&str]) {
    refused(&fabrix(&[&["bench"], args].concat()), code, parts);
}

#[test]
fn a_bad_size_is_a_usage_error() {
    bench_is_refused(
        &["ram:1Q"],
        2,
        &["ram:1Q", "`1Q` is not a size", "write 512M or 1G"],
    );
    bench_is_refused(
        &["ram:1GB"],
        2,
        &["ram:1GB", "powers of 1000 or of 1024", "write 1G"],
    );
    bench_is_refused(&["ram:0"], 2, &["ram:0", "at least one block"]);
    bench_is_refused(&["ram:-1G"], 2, &["ram:-1G", "is not a size"]);
    bench_is_refused(
        &["ram:99999999999999999999G"],
        2,
        &["ram:99999999999999999999G"],
    );
}

#[test]
fn an_unknown_scheme_is_a_usage_error_that_lists_the_known_ones() {
    let known = ["ram:1G", "null:1T", "file:PATH", "raid0:", "nvme+tcp://"];
    for disk in ["floppy:1G", "foo", "", "ram", ":"] {
        bench_is_refused(&[disk], 2, &known);
        bench_is_refused(&[disk], 2, &[&format!("`{disk}` is not a disk")]);
    }
    bench_is_refused(&["foo"], 2, &["there is no file of this name"]);
    bench_is_refused(&["gopher://box/disk"], 2, &["gopher://box", "nvme+tcp"]);
}

#[test]
fn an_unknown_option_of_a_disk_is_a_usage_error() {
    bench_is_refused(
        &["ram:8M,colour=red"],
        2,
        &["ram:8M,colour=red", "`colour`"],
    );
    bench_is_refused(&["ram:8M,block=520"], 2, &["block=520", "512 or 4096"]);
    bench_is_refused(
        &["ram:8M,inject=error:5:dance"],
        2,
        &["inject=error:5:dance", "write error:"],
    );
    bench_is_refused(
        &["nvme+tcp://127.0.0.1:9/nqn.2026-01.x:y,tls"],
        2,
        &["`tls`", "hdr-digest"],
    );
}

#[test]
fn an_array_that_is_none_is_a_usage_error() {
    bench_is_refused(&["raid0:ram:8M"], 2, &["raid0:ram:8M", "raid0:(A,B)"]);
    bench_is_refused(&["raid0:(ram:8M)"], 2, &["2 to 64 members"]);
    bench_is_refused(
        &["raid0:chunk=5k,(ram:8M,ram:8M)"],
        2,
        &["chunk `5k`", "power of two"],
    );
    bench_is_refused(&["raid0:(ram:8M,ram:1Q)"], 2, &["ram:1Q", "is not a size"]);
    bench_is_refused(&["raid0:(ram:8M,ram:8M,block=4096)"], 2, &["raid0:"]);
}

#[test]
fn an_unknown_option_of_the_command_line_is_a_usage_error() {
    for args in [
        &["bench", "ram:8M", "--colour"][..],
        &["serve", "ram:8M", "--colour"],
        &["dance"],
        &["bench"],
    ] {
        let ended = fabrix(args);
        ended.exits(2).says(&["error: ", "Usage: fabrix"]);
        assert_eq!(ended.stdout, "");
    }
    fabrix(&["bench", "ram:8M", "--colour"]).says(&["--colour"]);
    fabrix(&["serve", "ram:8M", "--engine", "steam"])
        .exits(2)
        .says(&["steam", "io-uring or epoll"]);
    fabrix(&["serve", "ram:8M", "--cores", "4096"])
        .exits(2)
        .says(&["processor 4096"]);
    fabrix(&["bench", "ram:8M", "--runtime", "soon"])
        .exits(2)
        .says(&["`soon` is not a time", "500ms"]);
    fabrix(&["bench", "ram:8M", "--rw", "dance"])
        .exits(2)
        .says(&["dance", "randrw"]);
}

#[test]
fn a_missing_file_is_a_usage_error_that_says_how_to_make_one() {
    let folder = scratch();
    let path = path_in(&folder, "missing");
    bench_is_refused(&[&path], 2, &[&path, "does not exist", "size=1G"]);
    bench_is_refused(
        &[&format!("{path},size=8M,ro")],
        2,
        &[&path, "does not exist"],
    );
    bench_is_refused(&["/dev/loop99999"], 2, &["there is no such device"]);
    let ended = fabrix(&["serve", &path, "--listen", "nvme+tcp://127.0.0.1:0"]);
    refused(&ended, 2, &[&path, "does not exist"]);
    assert!(
        !fs::exists(&path).expect("the folder is ours"),
        "nothing was made"
    );
}

#[test]
fn a_disk_smaller_than_a_block_is_a_usage_error() {
    let folder = scratch();
    let path = path_in(&folder, "tiny");
    make_file(&path, 3, 0, b"abc");
    for option in ["", ",direct=off"] {
        bench_is_refused(
            &[&format!("{path}{option}")],
            2,
            &[&path, "3 bytes", "less than one block of"],
        );
    }
    bench_is_refused(&["ram:100"], 2, &["ram:100", "512"]);
    assert_eq!(fs::read(&path).expect("it is our file"), b"abc");
}

#[test]
fn a_folder_is_no_disk() {
    let folder = scratch();
    let path = folder.path().to_str().expect("temporary paths are text");
    bench_is_refused(&[path], 2, &[path, "neither a file nor a block device"]);
    bench_is_refused(
        &["/dev/zero"],
        2,
        &["/dev/zero", "neither a file nor a block device"],
    );
}

#[test]
fn a_size_that_is_not_the_files_size_is_a_usage_error() {
    let folder = scratch();
    let path = path_in(&folder, "disk");
    make_file(&path, 8 << 20, 0, b"mine");
    for size in ["4M", "16M"] {
        let disk = format!("{path},size={size},direct=off");
        bench_is_refused(&[&disk], 2, &[&path, "8M", size, "leave size= out"]);
    }
    assert_eq!(
        fs::metadata(&path).expect("it is our file").len(),
        8 << 20,
        "and it keeps its size"
    );
    bench(&[&format!("{path},size=8M,direct=off"), "--runtime", "50ms"]);
}

#[test]
fn a_file_that_another_target_serves_is_in_use() {
    let folder = scratch();
    let path = path_in(&folder, "disk");
    let serve = Serve::start(&[&format!("{path},size=8M")]);
    let again = fabrix(&["serve", &path, "--listen", "nvme+tcp://127.0.0.1:0"]);
    refused(&again, 1, &[&path, "is open elsewhere", "stop that one"]);
    bench_is_refused(
        &[&path, "--rw", "randwrite"],
        1,
        &[&path, "is open elsewhere"],
    );
    bench_is_refused(
        &[&format!("{path},ro")],
        1,
        &[&path, "is open for writing elsewhere"],
    );
    serve.stop();
    bench(&[&path, "--runtime", "50ms"]);
}

#[test]
fn two_readers_share_a_file() {
    let folder = scratch();
    let path = path_in(&folder, "disk");
    make_file(&path, 8 << 20, 0, b"mine");
    let _first = Serve::start(&[&format!("{path},ro,direct=off")]);
    let second = Serve::start(&[&format!("{path},ro,direct=off")]);
    bench(&[&second.uri(0), "--runtime", "50ms"]);
}

#[test]
fn a_file_without_permission_is_refused_with_what_to_do() {
    use std::os::unix::fs::PermissionsExt;
    let folder = scratch();
    let path = path_in(&folder, "disk");
    make_file(&path, 8 << 20, 0, b"mine");
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).expect("it is ours");
    let allow =
        |mode| fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("it is ours");
    allow(0o444);
    let Ok(write) = fabrix_unprivileged(&["bench", &path]) else {
        return skipped(
            "permission denied",
            "root runs the tests, and `nobody` cannot start the program",
        );
    };
    refused(
        &write,
        1,
        &[
            &path,
            "may not be opened for writing by this user",
            "add ro",
        ],
    );
    let read = format!("{path},ro,direct=off");
    let read = fabrix_unprivileged(&["bench", &read, "--runtime", "50ms"]);
    read.expect("it started before").exits(0);
    allow(0o000);
    let ended = fabrix_unprivileged(&["bench", &format!("{path},ro")]).expect("it started before");
    refused(&ended, 1, &[&path, "may not be read by this user"]);
}

#[test]
fn more_memory_than_there_is_is_refused() {
    bench_is_refused(&["ram:999999T"], 1, &["ram:999999T", "ask for less"]);
}

#[test]
fn a_request_size_that_is_no_multiple_of_the_block_is_a_usage_error() {
    bench_is_refused(
        &["ram:8M", "--bs", "1000"],
        2,
        &["bs=1000", "512 bytes", "bs=1024 would be"],
    );
    bench_is_refused(
        &["ram:8M,block=4096", "--bs", "512"],
        2,
        &["bs=512", "4096", "bs=4096 would be"],
    );
    bench_is_refused(&["ram:8M", "--bs", "0"], 2, &["bs=0"]);
    bench_is_refused(
        &["ram:8M", "--bs", "8G"],
        2,
        &["8589934592", "less than 4G"],
    );
}

#[test]
fn a_region_beyond_the_disk_is_a_usage_error() {
    let beyond = [
        "size=1073741824",
        "beyond the disk of 8388608 bytes",
        "ram:8M",
    ];
    bench_is_refused(&["ram:8M", "--size", "1G"], 2, &beyond);
    let offset = ["ram:8M", "--offset", "1G"];
    bench_is_refused(&offset, 2, &["offset 1073741824", "beyond the disk"]);
    let serve = Serve::start(&["ram:8M"]);
    let uri = serve.uri(0);
    bench_is_refused(
        &[&uri, "--size", "1G"],
        2,
        &[&uri, "beyond the disk of 8388608 bytes"],
    );
}

#[test]
fn a_depth_number_of_jobs_or_time_of_zero_is_a_usage_error() {
    bench_is_refused(&["ram:8M", "--iodepth", "0"], 2, &["iodepth=0", "1..4096"]);
    bench_is_refused(&["ram:8M", "--numjobs", "0"], 2, &["numjobs=0"]);
    bench_is_refused(
        &["ram:8M", "--runtime", "0"],
        2,
        &["runtime=0", "runtime=10"],
    );
    bench_is_refused(&["ram:8M", "--iodepth", "1000000"], 2, &["iodepth=1000000"]);
    bench_is_refused(
        &["ram:8M", "--verify"],
        2,
        &[
            "--verify needs a job that writes",
            "--rw=randread --verify=crc32c",
        ],
    );
}

/// What a disk begins with, and whose that is.
const USED: [(u64, &[u8], &str); 5] = [
    (510, &[0x55, 0xaa], "partition table"),
    (512, b"EFI PART", "GPT partition table"),
    (0x438, &[0x53, 0xef], "ext4"),
    (0, b"XFSB", "XFS"),
    (0, b"LUKS\xba\xbe", "LUKS"),
];

#[test]
fn a_disk_with_somebodys_data_is_not_written_without_allow_write() {
    let folder = scratch();
    for (number, (at, magic, whose)) in USED.into_iter().enumerate() {
        let path = path_in(&folder, &number.to_string());
        make_file(&path, 1 << 20, at, magic);
        let before = fs::read(&path).expect("it is our file");
        let disk = format!("{path},direct=off");
        for rw in ["write", "randwrite", "randrw"] {
            let hint = [path.as_str(), whose, "--allow-write"];
            bench_is_refused(&[&disk, "--rw", rw, "--runtime", "50ms"], 2, &hint);
        }
        bench(&[&disk, "--rw", "randread", "--runtime", "50ms"]);
        assert!(
            fs::read(&path).expect("it is our file") == before,
            "{whose}: nothing was changed"
        );
        bench(&[&disk, "--rw", "write", "--runtime", "50ms", "--allow-write"]);
        assert!(
            fs::read(&path).expect("it is our file") != before,
            "{whose}: now it was"
        );
    }
}

#[test]
fn a_remote_disk_with_somebodys_data_is_not_written_without_allow_write() {
    let folder = scratch();
    for (block, at) in [("512", 512), ("4096", 4096)] {
        let path = path_in(&folder, block);
        make_file(&path, 1 << 20, at, b"EFI PART");
        let before = fs::read(&path).expect("it is our file");
        let serve = Serve::start(&[&format!("{path},direct=off,block={block}")]);
        let uri = serve.uri(0);
        let what = [uri.as_str(), "GPT partition table", "--allow-write"];
        bench_is_refused(&[&uri, "--rw", "write", "--runtime", "50ms"], 2, &what);
        assert!(
            fs::read(&path).expect("it is our file") == before,
            "nothing was changed"
        );
    }
}

#[test]
fn a_file_that_is_there_is_never_made_anew() {
    let folder = scratch();
    let path = path_in(&folder, "disk");
    make_file(&path, 8 << 20, 4096, b"mine");
    let before = fs::read(&path).expect("it is our file");
    Serve::start(&[&format!("{path},size=8M,direct=off")]).stop();
    assert!(
        fs::read(&path).expect("it is our file") == before,
        "serving changed nothing"
    );
}

#[test]
fn a_report_that_cannot_be_written_is_an_error_that_names_the_place() {
    let folder = scratch();
    let path = path_in(&folder, "file");
    make_file(&path, 3, 0, b"abc");
    let demo = ["demo", "--quick", "--size", "8M", "--report", &path];
    let ended = Running::start(&demo).ended();
    ended.exits(1).says(&[&path]);
    assert_eq!(fs::read(&path).expect("it is our file"), b"abc");
}
