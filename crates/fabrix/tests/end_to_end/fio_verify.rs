//! Verified files of fio and of `fabrix bench`: each program reads what the other wrote, and wrong
//! blocks are named. Trims are here too, because a verified file shows what they do.

use std::path::Path;
use std::process::Command;

use super::harness::{Ended, Running, fabrix, make_file, path_in, scratch, skipped};

/// Runs fio with a job of 64 KiB in requests of 8 KiB. It leaves its state beside the file.
fn fio(file: &str, words: &[&str]) -> Option<Ended> {
    let mut command = Command::new("fio");
    command.args(["--name=x", "--size=64k", "--bs=8k"]);
    command.arg(format!("--filename={file}")).args(words);
    command.current_dir(Path::new(file).parent().expect("it is in a folder"));
    Running::spawn(&mut command).ok().map(Running::ended)
}

/// Runs the same job here.
fn ours(file: &str, words: &[&str]) -> Ended {
    let name = format!("--filename={file}");
    let job = [
        "bench",
        "--allow-write",
        "--name=x",
        "--size=64k",
        "--bs=8k",
        &name,
        "--output-format=json",
    ];
    fabrix(&[&job, words].concat())
}

#[test]
fn each_program_reads_what_the_other_wrote() {
    let folder = scratch();
    let (theirs, mine) = (path_in(&folder, "theirs"), path_in(&folder, "mine"));
    for words in [
        "--verify=crc32c",
        "--verify=crc32c-intel",
        "--verify=md5",
        "--verify=crc64",
        "--verify=crc32",
        "--verify=crc16",
        "--verify=crc7",
        "--verify=sha1",
        "--verify=sha256",
        "--verify=sha512",
        "--verify=sha3-224",
        "--verify=sha3-256",
        "--verify=sha3-384",
        "--verify=sha3-512",
        "--verify=xxhash",
        "--verify=meta",
        "--verify=crc32c --verify_interval=1k",
        "--verify=sha256 --verify_interval=512 --verify_offset=200",
        "--verify=sha512 --verify_interval=2k --verify_offset=1k",
        "--verify=md5 --verify_pattern=0xdeadbe",
        "--verify=meta --verify_pattern=0xff%o\"abcd\"-12",
        "--verify=pattern --verify_pattern=0xff%o\"abcd\"-12",
        "--verify_pattern=%o --verify_interval=4k",
    ] {
        let words: Vec<&str> = words.split(' ').collect();
        let with = |more: &[&'static str]| [&words[..], more].concat();
        let Some(written) = fio(&theirs, &with(&["--rw=write", "--do_verify=0"])) else {
            return skipped(
                "each_program_reads_what_the_other_wrote",
                "fio is not installed",
            );
        };
        written.exits(0);
        let read = ours(&theirs, &with(&["--rw=randread"]));
        let checked = &read.exits(0).json()["jobs"][0]["verify"]["blocks_checked"];
        assert!(checked.as_u64() >= Some(8), "{words:?}: {checked}");
        ours(&mine, &with(&["--rw=randwrite", "--do_verify=0"])).exits(0);
        let read = fio(&mine, &with(&["--rw=read"])).expect("it ran before");
        assert!(read.code == 0, "{words:?}: {read}");
    }
}

#[test]
fn wrong_blocks_of_a_file_are_named_and_end_with_5() {
    let folder = scratch();
    let file = path_in(&folder, "disk");
    make_file(&file, 64 << 10, 0, b"");
    let check = |words: &[&str]| ours(&file, &[&["--rw=read"], words].concat());
    let never = check(&["--verify=crc32c"]);
    never.exits(5).says(&[
        "8 wrong blocks",
        "offset 0 (LBA 0)",
        "verify=crc32c",
        "zeroes",
    ]);
    ours(&file, &["--rw=write", "--verify=crc32c", "--do_verify=0"]).exits(0);
    check(&["--verify=crc32c"]).exits(0);
    check(&["--verify=md5"])
        .exits(5)
        .says(&["8 wrong blocks", "written with verify=crc32c"]);
    check(&["--verify=crc32c", "--verify_interval=4k"])
        .exits(5)
        .says(&["a block of 8192 bytes"]);
    let bytes = std::fs::read(&file).expect("ours");
    let mut wrong = bytes.clone();
    wrong[20_000] ^= 1;
    std::fs::write(&file, &wrong).expect("ours");
    let flipped = ["1 wrong block", "offset 16384", "a damaged block"];
    check(&["--verify=crc32c"]).exits(5).says(&flipped);
    let mut wrong = bytes.clone();
    wrong.copy_within(8192..16384, 24576);
    std::fs::write(&file, &wrong).expect("ours");
    let moved = [
        "1 wrong block",
        "offset 24576",
        "the block at offset 8192 (a misdirected block)",
    ];
    check(&["--verify=crc32c"]).exits(5).says(&moved);
    let only = ours(
        &file,
        &["--rw=randwrite", "--verify=crc32c", "--verify_only"],
    );
    only.exits(5).says(&["verify_only", "offset 24576"]);
    assert_eq!(
        std::fs::read(&file).expect("ours"),
        wrong,
        "nothing was written"
    );
    let fatal = check(&["--verify=crc32c", "--verify_fatal=1"]);
    assert_eq!(fatal.exits(5).json()["jobs"][0]["read"]["total_ios"], 4);
}

#[test]
fn trims_make_holes_and_are_counted_apart() {
    let folder = scratch();
    let file = path_in(&folder, "disk");
    make_file(&file, 64 << 10, 0, b"");
    ours(&file, &["--rw=write"]).exits(0);
    let trimmed = ours(&file, &["--rw=trim", "--size=32k", "--offset=16k"]);
    let job = &trimmed.exits(0).json()["jobs"][0];
    assert_eq!(
        (&job["trim"]["total_ios"], &job["write"]["total_ios"]),
        (&4.into(), &0.into())
    );
    assert_eq!(job["trim"]["lat_ns"]["N"], 4);
    let bytes = std::fs::read(&file).expect("ours");
    let is_hole = |part: &[u8]| part.iter().all(|byte| *byte == 0);
    assert!(
        is_hole(&bytes[16384..49152]) && !is_hole(&bytes[..16384]) && !is_hole(&bytes[49152..])
    );
    let both = ours(&file, &["--rw=randtrimwrite", "--verify=crc32c"]);
    let job = &both.exits(0).json()["jobs"][0];
    assert_eq!(
        (&job["trim"]["total_ios"], &job["verify"]["blocks_checked"]),
        (&8.into(), &8.into())
    );
}
