//! Writes leave on the medium what fio's leave: each file of
//! `tests/fio/medium` runs in both programs, and the disks have the same properties.

use std::collections::HashSet;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use super::harness::{Running, path_in, scratch, skipped};

const DISK_BYTES: usize = 4 << 20;
/// Byte of the disk before the run.
const OLD: u8 = 0xEE;

/// The disk after a run of a program on a job file. Errors: the program's output.
fn written(program: &str, words: &[&str], file: &Path) -> Result<Vec<u8>, String> {
    let folder = scratch();
    let disk = path_in(&folder, "disk");
    std::fs::write(&disk, [OLD].repeat(DISK_BYTES)).expect("there is room");
    let mut command = Command::new(program);
    command.args(words).arg(file).env("DIR", folder.path());
    let running = Running::spawn(command.current_dir(folder.path()));
    let ended = running.expect("the program can be started").ended();
    match ended.code {
        0 => Ok(std::fs::read(&disk).expect("the disk is ours")),
        _ => Err(format!("{program}: {ended}")),
    }
}

/// Properties of a disk, each with its largest possible value.
fn properties(disk: &[u8]) -> [(&'static str, usize, usize); 4] {
    let different = |bytes| disk.chunks(bytes).collect::<HashSet<_>>().len();
    let old = |block: &&[u8]| block.iter().all(|byte| *byte == OLD);
    [
        ("different sectors", different(512), DISK_BYTES / 512),
        ("different blocks", different(4096), DISK_BYTES / 4096),
        (
            "blocks that were not written",
            disk.chunks(4096).filter(old).count(),
            DISK_BYTES / 4096,
        ),
        ("compressed bytes", compressed(disk), DISK_BYTES),
    ]
}

/// Length of the data after compression.
fn compressed(data: &[u8]) -> usize {
    let mut gzip = Command::new("gzip")
        .args(["-c", "-1"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("gzip is part of every system");
    let mut input = gzip.stdin.take().expect("it is a pipe");
    std::thread::scope(|scope| {
        scope.spawn(move || input.write_all(data).expect("gzip reads all"));
        let output = gzip.wait_with_output().expect("gzip ends");
        output.stdout.len()
    })
}

/// Whether two values of a property are alike: none, one and all exactly, and others within a tenth
/// of the whole, because the two programs draw other random numbers.
fn alike(ours: usize, theirs: usize, whole: usize) -> bool {
    match theirs {
        0 | 1 => ours == theirs,
        _ if theirs == whole => ours == theirs,
        _ => ours.abs_diff(theirs) <= whole / 10,
    }
}

#[test]
fn contents_and_addresses_have_the_properties_of_fios() {
    if Command::new("fio").arg("--version").output().is_err() {
        return skipped("contents_and_addresses", "fio is not installed");
    }
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fio/medium");
    let (mut differences, mut count) = (Vec::new(), 0);
    for entry in std::fs::read_dir(folder).expect("the folder is there") {
        let file = entry.expect("it can be read").path();
        let name = file.file_stem().unwrap_or_default().to_string_lossy();
        count += 1;
        let theirs = written("fio", &["--output-format=json"], &file).expect("fio knows its keys");
        let ours = match written(
            env!("CARGO_BIN_EXE_fabrix"),
            &["bench", "--allow-write"],
            &file,
        ) {
            Ok(ours) => ours,
            Err(error) => {
                differences.push(error);
                continue;
            }
        };
        if name.ends_with("-exact") && ours != theirs {
            differences.push(format!("{name}: the disks differ"));
        }
        for (ours, theirs) in properties(&ours).into_iter().zip(properties(&theirs)) {
            let (property, of_theirs, whole) = theirs;
            if !alike(ours.1, of_theirs, whole) {
                differences.push(format!(
                    "{name}: {property}: fio {of_theirs}, ours {} of {whole}",
                    ours.1
                ));
            }
        }
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
    assert!(count > 15, "{count} files");
}
